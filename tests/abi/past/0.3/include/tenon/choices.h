// SPDX-License-Identifier: Apache-2.0
//
// Plugin extension "tenon.choices/1": keep and restore tuning results.
//
// Where only timing tells which algorithm is fastest (a matrix product of a vendor library), a
// plugin times several and chooses one. Algorithms may differ in the last bits of a result. A
// program that must continue with identical bits, later or elsewhere, therefore keeps the choices
// together with its data: `tenon lm train` stores them for --resume.
//
// A choice is UTF-8 text in a format of the plugin. It names everything it depends on: hardware,
// library versions, the shapes of the work. Where one of these differs, the choice has no effect.
// The text may come from an untrusted file: a plugin accepts only algorithms that it could have
// chosen itself.

// The layout is made by hand:
// clang-format off
#ifndef TENON_CHOICES_H
#define TENON_CHOICES_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_CHOICES_ID "tenon.choices/1"

typedef struct tenon_choices {
  uint64_t struct_size;

  // Calls put() for each choice used by the programs compiled on this device since it was opened.
  // put() is called before list() returns, never fails, and borrows the text.
  // (required) [any-thread]
  tenon_status* (*list)(tenon_device* device, void (*put)(void* user, tenon_str choice),
                        void* user);

  // Offers a choice to the programs compiled from now on. Succeeds without effect if the device
  // cannot use the choice or has already chosen for the same work.
  // (required) [any-thread]
  tenon_status* (*take)(tenon_device* device, tenon_str choice);
} tenon_choices;
#define TENON_CHOICES_SIZE_V1 24u

TENON_STATIC_ASSERT(sizeof(tenon_choices) >= TENON_CHOICES_SIZE_V1, "it shrank");

#ifdef __cplusplus
}
#endif
#endif
