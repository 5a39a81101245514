/* SPDX-License-Identifier: Apache-2.0
 * Extension "tenon.derived_weights/1" of a plugin: weights in layouts of its own (packed for their
 * products, say). A program names one as a program value with a layout (backend.h); the host makes
 * it before the first run that reads it, shares it among the programs of a device that name the
 * same layout of the same weight, makes it again after the weight was set or updated, and lets it
 * go with the last program that reads it. tenon_backend's get_extension gives the table. */
#ifndef TENON_DERIVED_WEIGHTS_H
#define TENON_DERIVED_WEIGHTS_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_DERIVED_WEIGHTS_ID "tenon.derived_weights/1"

typedef struct tenon_derived_weights {
  uint64_t struct_size;
  /* (required) [any-thread] Writes all bytes of target from the dense content of the weight in
   * source. value: index into the program's values; its size is target's. Done on return. */
  tenon_status* (*derive)(tenon_program* program, uint32_t value, const tenon_slot* source,
                          const tenon_slot* target);
} tenon_derived_weights;

TENON_STATIC_ASSERT(sizeof(tenon_derived_weights) == 16, "tenon_derived_weights moved");

#ifdef __cplusplus
}
#endif
#endif
