// SPDX-License-Identifier: Apache-2.0
//
// Plugin extension "tenon.prepare/1": the slow work of a program that could wait for its first run
// (generating code, timing algorithms), divided into parts. For ahead-of-time compilation the host
// runs the parts in its own threads and shows progress. A plugin without this extension gets
// TENON_COMPILE_AOT instead.
//
// The plugin itself does a part that nobody has asked for as soon as it needs it.

// The layout is made by hand:
// clang-format off
#ifndef TENON_PREPARE_H
#define TENON_PREPARE_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_PREPARE_ID "tenon.prepare/1"

typedef struct tenon_prepare {
  uint64_t struct_size;

  // Returns the number of parts. It never changes for a program.
  // (required) [any-thread]
  uint32_t (*count)(tenon_program* program);

  // Does part `index`, below count(), in the calling thread. Parts of a program may be done at the
  // same time in several threads. Does nothing for a part that is already done.
  // (required) [any-thread]
  tenon_status* (*part)(tenon_program* program, uint32_t index);
} tenon_prepare;
#define TENON_PREPARE_SIZE_V1 24u

TENON_STATIC_ASSERT(sizeof(tenon_prepare) >= TENON_PREPARE_SIZE_V1, "it shrank");

#ifdef __cplusplus
}
#endif
#endif
