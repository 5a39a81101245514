// SPDX-License-Identifier: Apache-2.0
//
// Measured rates of devices and chosen algorithms, which an app may store. Objects, errors and
// threads: tenon.h. In C++, these functions are members of Runtime (tenon.hpp).

// The layout is made by hand:
// clang-format off
#ifndef TENON_TENON_TUNE_H
#define TENON_TENON_TUNE_H

#include "tenon.h"

#ifdef __cplusplus
extern "C" {
#endif


// ---- Rates --------------------------------------------------------------------------------------
//
// How fast a device copies memory, computes matrix products, starts a step, and exchanges data with
// the host. They are measured on request and kept in $XDG_CACHE_HOME/tenon/rates, else
// ~/.cache/tenon/rates, per device, plugin version, driver version and number of threads. Placement
// uses them where it has a choice.

typedef struct tenon_calibrate_options {
  uint64_t struct_size;
  double seconds;             // per measurement, 0 = 0.2

  // (optional) Called in the calling thread before each measurement: its name, how many are done,
  // how many there are. Return 0 to continue. Any other value ends the call with TENON_CANCELLED,
  // and nothing is kept.
  uint32_t (*progress)(void* user, tenon_str what, uint32_t done, uint32_t total);
  void* user;
} tenon_calibrate_options;

// Measures a device, which should be idle, and keeps the rates. device: an id ("cuda:1"), or a kind
// ("cuda"), which means its first device. options and out_json may be NULL. out_json gets the
// text that tenon_runtime_rates() returns. Fails with TENON_IO_ERROR if the rates cannot be kept.
TENON_API tenon_status* tenon_runtime_calibrate(tenon_runtime* runtime, tenon_str device,
                                                const tenon_calibrate_options* options,
                                                tenon_text** out_json);

// Returns the rates of a device as JSON. Rates that were never measured, or whose file is damaged,
// are rough defaults; "remark" states why.
//
//   { "device": "cpu:0", "measured": true, "remark": "", "file": "...",
//     "rates": { "copy_bytes_per_second", "run_seconds", "step_seconds", "fork_seconds",
//                "to_device_bytes_per_second", "from_device_bytes_per_second",
//                "transfer_seconds", "product_flops_per_second": {"f32": ...} } }
TENON_API tenon_status* tenon_runtime_rates(tenon_runtime* runtime, tenon_str device,
                                            tenon_text** out_json);


// ---- Choices ------------------------------------------------------------------------------------
//
// Where only timing tells which algorithm is fastest, a device times several and chooses one.
// Algorithms may differ in the last bits of a result. An app that must later continue with
// identical bits keeps the choices together with its data.

// Returns the choices made for all programs compiled on open devices, as JSON: a list of texts per
// plugin; "{}" if there are none.
TENON_API tenon_status* tenon_runtime_choices(tenon_runtime* runtime, tenon_text** out_json);

// Offers choices to programs compiled from now on. A choice made for another device, version or
// shape has no effect; neither has one for work whose algorithm is already chosen. Every device of
// the runtime gets the choices: an open device now, where they add to earlier ones or replace them;
// another device when it is opened, which then gets those of the last call only. Fails with
// TENON_INVALID_ARGUMENT if json does not have the form that tenon_runtime_choices() returns.
TENON_API tenon_status* tenon_runtime_take_choices(tenon_runtime* runtime, tenon_str json);

#ifdef __cplusplus
}
#endif
#endif
