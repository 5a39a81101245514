/* SPDX-License-Identifier: Apache-2.0
 * Extension "tenon.choices/1" of a plugin: which of several ways its devices take where only timing
 * tells (algorithms of a library). Ways may differ in the last bits of a result, so who goes on
 * with kept results later, or elsewhere, keeps the choices beside them. tenon_backend's
 * get_extension gives the table.
 *
 * A choice is text of the plugin's own, UTF-8, and names all that it depends on (hardware, versions
 * of libraries, the shapes of the work): where one of these differs it does nothing. It may come
 * from a stranger: a plugin takes no way that it would not have had to choose from. */
#ifndef TENON_CHOICES_H
#define TENON_CHOICES_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_CHOICES_ID "tenon.choices/1"

typedef struct tenon_choices {
  uint64_t struct_size;
  /* (required) [any-thread] Calls put, in the call, for each choice that programs of this device
   * were compiled with since it was opened. put fails never, and borrows the text for its call. */
  tenon_status* (*list)(tenon_device* device, void (*put)(void* user, tenon_str choice),
                        void* user);
  /* (required) [any-thread] Programs compiled from here on are to use it. One that the device
   * cannot use, or whose work has a choice already, does nothing, which is no failure. */
  tenon_status* (*take)(tenon_device* device, tenon_str choice);
} tenon_choices;

TENON_STATIC_ASSERT(sizeof(tenon_choices) == 24, "tenon_choices moved");

#ifdef __cplusplus
}
#endif
#endif
