/* SPDX-License-Identifier: Apache-2.0
 * Extension "tenon.prepare/1" of a plugin: what a program still does before its first run
 * (generating code, choosing among algorithms), in parts that the host may have done earlier, on
 * threads of its own, telling how far it is. tenon_backend's get_extension gives the table. Without
 * it a program that is wanted ready is compiled with TENON_COMPILE_AOT.
 *
 * Parts that nobody asked for are done by the plugin when it needs them; a part may be asked for
 * again, and then does nothing. */
#ifndef TENON_PREPARE_H
#define TENON_PREPARE_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_PREPARE_ID "tenon.prepare/1"

typedef struct tenon_prepare {
  uint64_t struct_size;
  /* (required) [any-thread] Parts of the program; always the same number. */
  uint32_t (*count)(tenon_program* program);
  /* (required) [any-thread] Does one part, below count; several parts of one program at once, each
   * in its caller's thread. */
  tenon_status* (*part)(tenon_program* program, uint32_t index);
} tenon_prepare;

TENON_STATIC_ASSERT(sizeof(tenon_prepare) == 24, "tenon_prepare moved");

#ifdef __cplusplus
}
#endif
#endif
