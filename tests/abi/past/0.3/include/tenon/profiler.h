// SPDX-License-Identifier: Apache-2.0
//
// Plugin extension "tenon.profiler/1": when each step of a run began and ended. A trace shows the
// regions of a plugin without this extension as one slice each.
//
// Times are nanoseconds of the host's monotonic clock (CLOCK_MONOTONIC). A plugin whose device has
// its own clock converts. The host drops times that lie outside the run.

// The layout is made by hand:
// clang-format off
#ifndef TENON_PROFILER_H
#define TENON_PROFILER_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_PROFILER_ID "tenon.profiler/1"

typedef struct tenon_step_time {
  int64_t begin_ns;           // begin_ns = end_ns = 0: the step was not measured
  int64_t end_ns;
  uint32_t lane;              // from 0; the steps of a lane do not overlap
  uint32_t reserved0;
} tenon_step_time;
#define TENON_STEP_TIME_SIZE_V1 24u

typedef struct tenon_profiler {
  uint64_t struct_size;

  // Runs like run() of tenon_backend, and measures each step.
  // (required) [object]
  tenon_status* (*run)(tenon_instance* instance, const tenon_run_args* args);

  // Writes the times of the last measured run. The run has succeeded and has been waited for.
  // count: number of steps of the program; all elements of out_times are written. stride: bytes
  // from one element to the next; the plugin writes the fields that it covers.
  // (required) [object]
  tenon_status* (*times)(tenon_instance* instance, tenon_step_time* out_times, uint64_t stride,
                         uint32_t count);
} tenon_profiler;
#define TENON_PROFILER_SIZE_V1 24u

TENON_STATIC_ASSERT(sizeof(tenon_step_time) >= TENON_STEP_TIME_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_profiler) >= TENON_PROFILER_SIZE_V1, "it shrank");

#ifdef __cplusplus
}
#endif
#endif
