// SPDX-License-Identifier: Apache-2.0
//
// Tools to find faults and slow steps: traces of runs, the calls that a crash or a hang was in, and
// faults made on purpose, to test an app or a plugin. Objects, errors and threads: tenon.h. In C++:
// Runtime, report_crashes() and active_calls() (tenon.hpp).

// The layout is made by hand:
// clang-format off
#ifndef TENON_TENON_DEBUG_H
#define TENON_TENON_DEBUG_H

#include "tenon.h"

#ifdef __cplusplus
extern "C" {
#endif


// ---- Traces -------------------------------------------------------------------------------------

typedef struct tenon_trace_options {
  uint64_t struct_size;
  uint64_t most_slices;       // later runs are counted but not kept; 0 = a million
} tenon_trace_options;

// Starts to record the runs of all executables of this runtime, in all threads: waits, copies,
// regions, and single steps where the plugin has tenon.profiler/1. Runs in flight are not recorded.
// A runtime records one trace at a time. options may be NULL.
//
// Tracing adds two clock reads (or two device events) per step. Captured graphs run step by step
// while a trace is active. Without a trace, a run tests one flag.
//
// The three functions of this section may be called while other threads run executables.
TENON_API tenon_status* tenon_trace_start(tenon_runtime* runtime,
                                          const tenon_trace_options* options);

// Ends the trace and returns it in the Trace Event Format of Chrome, which Perfetto reads: complete
// events, ts and dur in microseconds since the start. The args of a step name its op, node,
// provenance, device, bytes, flops where known, and what was fused. Runs still in flight are left
// out.
TENON_API tenon_status* tenon_trace_stop(tenon_runtime* runtime, tenon_text** out_json);

// Ends the trace and writes it to a file. Writes a temporary file first and renames it, so an
// existing file survives a failure. A path that cannot be written fails before the trace ends.
TENON_API tenon_status* tenon_trace_save(tenon_runtime* runtime, tenon_str path);


// ---- Crashes and hangs --------------------------------------------------------------------------
//
// A plugin that crashes or hangs takes its process with it. These functions tell which plugin.

// Installs handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT. The first such signal writes a
// line to standard error that names the active plugin calls:
//
//   tenon: the process crashed (SIGSEGV) in plugin 'cpu', call 'run'
//
// Then the former handlers are restored and receive the signal. tenon installs no signal handler
// unless this function is called. Do not call it in an app that recovers from these signals. Only
// the first call has an effect.
TENON_API tenon_status* tenon_report_crashes(void);

// Writes the active plugin calls as "plugin 'cpu', call 'run'", joined by "; ". Those of the
// calling thread come first. The text is cut to size - 1 bytes and ends with a zero; out_text may
// be NULL. Returns the number of active calls. out_steps, which may be NULL, gets the number of
// times that any call began or ended. If two readings are equal, no call began or ended in between.
// Async-signal-safe.
TENON_API uint32_t tenon_active_calls(char* out_text, uint64_t size, uint64_t* out_steps);


// ---- Faults -------------------------------------------------------------------------------------
//
// A fault makes calls into a plugin fail. Such a call returns a status that looks like one of the
// plugin. Only tenon_runtime_fault causes faults.

// tenon_fault::calls
#define TENON_FAULT_OPEN        UINT32_C(1)     // opening a device
#define TENON_FAULT_ALLOCATE    UINT32_C(2)     // allocating device memory
#define TENON_FAULT_WRITE       UINT32_C(4)     // copying to a device
#define TENON_FAULT_READ        UINT32_C(8)     // copying from a device
#define TENON_FAULT_COPY        UINT32_C(16)    // copying within or between devices of a plugin
#define TENON_FAULT_QUERY       UINT32_C(32)
#define TENON_FAULT_COMPILE     UINT32_C(64)
#define TENON_FAULT_INSTANTIATE UINT32_C(128)   // fixing or changing the addresses of a program
#define TENON_FAULT_RUN         UINT32_C(256)   // running a program, deriving a weight
#define TENON_FAULT_STREAM      UINT32_C(512)   // creating, recording and chaining streams, events
#define TENON_FAULT_WAIT        UINT32_C(1024)  // waiting for them; fails after the wait

// tenon_fault::flags
#define TENON_FAULT_LASTING UINT32_C(1)         // every call from the nth on fails

typedef struct tenon_fault {
  uint64_t struct_size;
  tenon_str device;           // "cuda:0" or "cuda"; empty = any
  uint64_t nth;               // which of these calls fails, from 1; 0 = none, only count calls
  uint32_t calls;             // TENON_FAULT_*, combined; 0 = all
  uint32_t flags;             // TENON_FAULT_LASTING
  tenon_code code;            // of the status. After TENON_DEVICE_LOST every call of that device
                              // fails until the fault is removed
  uint16_t reserved0;
  uint32_t reserved1;
} tenon_fault;

// Sets a fault for all devices of the runtime and replaces the previous one; NULL removes it.
// out_met, which may be NULL, gets the number of calls that the previous fault counted. If that
// number is less than `nth` of the previous fault, no call has failed.
TENON_API tenon_status* tenon_runtime_fault(tenon_runtime* runtime, const tenon_fault* fault,
                                            uint64_t* out_met);

#ifdef __cplusplus
}
#endif
#endif
