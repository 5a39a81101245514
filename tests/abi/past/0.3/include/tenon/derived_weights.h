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

typedef struct tenon_derive_args {
  uint64_t struct_size;
  const tenon_slot* source;   // the dense weight
  const tenon_slot* target;   // the derived weight
  uint64_t slot_size;         // bytes of each of the two slots
  uint32_t value;             // index among the program's values; its size is that of `target`
  uint32_t reserved0;
} tenon_derive_args;
#define TENON_DERIVE_ARGS_SIZE_V1 40u

typedef struct tenon_derived_weights {
  uint64_t struct_size;

  // Writes every byte of the target from the source. The work is done on return.
  // (required) [any-thread]
  tenon_status* (*derive)(tenon_program* program, const tenon_derive_args* args);
} tenon_derived_weights;
#define TENON_DERIVED_WEIGHTS_SIZE_V1 16u

TENON_STATIC_ASSERT(sizeof(tenon_derive_args) >= TENON_DERIVE_ARGS_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_derived_weights) >= TENON_DERIVED_WEIGHTS_SIZE_V1, "it shrank");

#ifdef __cplusplus
}
#endif
#endif
