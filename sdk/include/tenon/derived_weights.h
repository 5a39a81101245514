// SPDX-License-Identifier: Apache-2.0
//
// Plugin extension "tenon.derived_weights/1": weights in a layout of the plugin's choice, packed
// for its matrix products, for example.
//
// A program asks for one by listing a value with a layout (tenon_program_value in backend.h). The
// host
//  - calls derive() before the first run that reads it;
//  - shares it between programs of a device that name the same layout of the same weight;
//  - calls derive() again after the weight was set or updated;
//  - frees it together with the last program that reads it.

// The layout is made by hand:
// clang-format off
#ifndef TENON_DERIVED_WEIGHTS_H
#define TENON_DERIVED_WEIGHTS_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_DERIVED_WEIGHTS_ID "tenon.derived_weights/1"

typedef struct tenon_derived_weights {
  uint64_t struct_size;

  // Writes every byte of target from the dense weight in source. value: index among the program's
  // values; its size is the size of target. The work is done on return.
  // (required) [any-thread]
  tenon_status* (*derive)(tenon_program* program, uint32_t value, const tenon_slot* source,
                          const tenon_slot* target);
} tenon_derived_weights;

TENON_STATIC_ASSERT(sizeof(tenon_derived_weights) == 16, "tenon_derived_weights moved");

#ifdef __cplusplus
}
#endif
#endif
