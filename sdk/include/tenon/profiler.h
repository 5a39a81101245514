/* SPDX-License-Identifier: Apache-2.0
 * Extension "tenon.profiler/1" of a plugin: when each step of a run began and ended. tenon_backend's
 * get_extension gives the table. A plugin without it is shown as one slice per region.
 *
 * Times are nanoseconds of the host's monotonic clock (CLOCK_MONOTONIC); a plugin whose device has
 * a clock of its own converts. A step that was not measured has begin_ns = end_ns = 0. The host
 * believes no time that lies outside the run. */
#ifndef TENON_PROFILER_H
#define TENON_PROFILER_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_PROFILER_ID "tenon.profiler/1"

typedef struct tenon_step_time {
  int64_t begin_ns;
  int64_t end_ns;
  uint32_t lane; /* steps of one lane do not overlap; lanes count from 0 */
  uint32_t reserved0;
} tenon_step_time;

typedef struct tenon_profiler {
  uint64_t struct_size;
  /* (required) [object] As run of tenon_backend, measured. */
  tenon_status* (*run)(tenon_instance* instance, const tenon_run_args* args);
  /* (required) [object] The times of the last measured run, after it went well and was waited for.
   * count: the steps of the program; every place is written. */
  tenon_status* (*times)(tenon_instance* instance, tenon_step_time* out_times, uint32_t count);
} tenon_profiler;

TENON_STATIC_ASSERT(sizeof(tenon_step_time) == 24, "tenon_step_time moved");
TENON_STATIC_ASSERT(sizeof(tenon_profiler) == 24, "tenon_profiler moved");

#ifdef __cplusplus
}
#endif
#endif
