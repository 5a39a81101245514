// SPDX-License-Identifier: Apache-2.0
//
// The backend ABI: the C interface between the host (libtenon) and a plugin. C11.
//
// A plugin exports one symbol, tenon_backend_entry(). The host passes its table, tenon_host; the
// plugin returns its own, tenon_backend. The plugin links nothing of the host. Authors who write
// C++ rarely need this file: plugin.hpp turns a table "op -> kernel" into a complete plugin.
//
// The life of a plugin, in the order of the calls:
//
//   tenon_backend_entry   negotiate a version                          once per runtime
//   create                make the plugin's state for this runtime     once per runtime
//   enumerate             list the devices                             once per runtime
//   device_open           open a device                                when it is first needed
//   query                 which nodes of this graph do you run?        several times per graph
//   compile               turn a region into a program                 once per region
//   program_info          declare the program's values and steps       once per program
//   buffer_create         allocate the memory that the host planned    several times per context
//   instantiate           fix every address of a program               once per context
//   run                   run all steps of an instance                 many times
//   *_destroy, device_close, shutdown                                  in that order
//
// A process may have several runtimes. create() makes a tenon_plugin for each. The rules below hold
// for each tenon_plugin by itself: enumerate() lists its devices, and shutdown() ends it, while
// others go on. If several share driver handles or worker threads, the plugin counts the users. A
// device that was closed may be opened again.
//
// Rules
//
//   Structs     Structs only grow, at their end. A struct starts with struct_size, which its maker
//               sets. Elements of an array have a stride instead, stated beside the array. A reader
//               compares with the size of the first version, TENON_..._SIZE_V1, never with the
//               sizeof of its own header. It uses a later field only if the size or the stride
//               covers it (TENON_HAS, TENON_REACHES).
//               Only tenon_str and arrays of numbers never grow.
//   Versions    Host and plugin use the highest minor version that both speak; create() gets it. An
//               older plugin runs in a newer host: the host asks for nothing newer. A newer plugin
//               runs in an older host, down to its TENON_MIN_HOST_MINOR (version.h).
//   Errors      A function that can fail returns tenon_status*. NULL means success. Otherwise the
//               caller owns the status and releases it (host->release_status()). Unless stated
//               otherwise, out-parameters are written only on success.
//   Ownership   *_create, *_open and instantiate transfer ownership to the caller. The matching
//               *_destroy, *_close or *_release takes it back. Accessors return borrowed pointers
//               that live as long as their owner. Unless stated otherwise, neither side keeps a
//               pointer after the call returns.
//   Exceptions  No exception, longjmp or signal handler crosses the border.
//   Trust       The host checks everything that a plugin returns. A plugin may trust the host:
//               every node that it passes follows the rules of its op. query() lists these rules.
//   Functions   A NULL function pointer means that the feature is absent. A host requires only the
//               functions marked (required). Later versions of the host require no others.
//
// Threads. Each function states where it may be called from:
//
//   [load]        One thread at a time for all runtimes of the process. No other call for this
//                 tenon_plugin is active; calls for others may be.
//   [any-thread]  Any thread, several at the same time.
//   [object]      Any thread, but one at a time for the object that is the first parameter.
//
// For a runtime, a plugin starts at most tenon_create_options::threads - 1 threads of its own.

// The layout is made by hand:
// clang-format off
#ifndef TENON_BACKEND_H
#define TENON_BACKEND_H

#include "types.h"
#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

// True if the struct behind p is large enough to hold the field.
#define TENON_HAS(type, p, field) ((p)->struct_size >= offsetof(type, field) + sizeof((p)->field))
// The same for an element p of an array with this stride.
#define TENON_REACHES(type, p, stride, field) \
  ((stride) >= offsetof(type, field) + sizeof((p)->field))

typedef struct tenon_status tenon_status;      // made by the host, see host->make_status()

typedef struct tenon_plugin tenon_plugin;      // all others are made by the plugin
typedef struct tenon_device tenon_device;
typedef struct tenon_stream tenon_stream;
typedef struct tenon_event tenon_event;
typedef struct tenon_buffer tenon_buffer;
typedef struct tenon_program tenon_program;
typedef struct tenon_instance tenon_instance;


// ---- Status -------------------------------------------------------------------------------------

// tenon_status_desc::flags
// The same call may succeed later (memory, a busy device).
#define TENON_STATUS_RETRYABLE UINT32_C(1)
// Of compile(): the plugin withdraws a claim. From here on, query() refuses the node and says why.
// The host plans again. A host that does not know the flag reports the failure.
#define TENON_STATUS_WITHDRAWN UINT32_C(2)

// What went wrong. For a failure at run time, the host turns `step` into the name of the node.
typedef struct tenon_status_desc {
  uint64_t struct_size;
  tenon_code code;            // TENON_INVALID_ARGUMENT ... (types.h)
  uint16_t reserved0;
  uint32_t flags;             // TENON_STATUS_*
  tenon_str text;             // names the operand, what was expected and what came; copied
  tenon_str origin;           // plugin and function; copied
  tenon_status* cause;        // (optional) the status that led to this one; the host takes it over
  uint64_t run_id;            // the run that failed, from tenon_run_args; 0 = none
  uint32_t step;              // the step of the program that failed; TENON_NONE = none
  uint32_t reserved1;
  int64_t index;              // flat index of the first bad element; -1 = none
} tenon_status_desc;
#define TENON_STATUS_DESC_SIZE_V1 80u


// ---- The host's table ---------------------------------------------------------------------------

// What the host offers. The table lives until shutdown() returns.
typedef struct tenon_host {
  uint64_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor_min;     // the host speaks every minor version from min to max
  uint32_t abi_minor_max;
  uint32_t reserved0;
  tenon_str version;          // version of libtenon, for messages

  // Makes a status. Never returns NULL: without memory it returns a static out-of-memory status.
  // [any-thread]
  tenon_status* (*make_status)(const tenon_status_desc* desc);

  // Releases a status. NULL is allowed.
  // [any-thread]
  void (*release_status)(tenon_status* status);

  // Returns the code of a status, TENON_OK for NULL.
  // [any-thread]
  tenon_code (*status_code)(const tenon_status* status);

  // Returns the text of a status, borrowed.
  // [any-thread]
  tenon_str (*status_text)(const tenon_status* status);

  // States why tenon_backend_entry() is about to return NULL. The text is copied.
  // [load]
  void (*refuse)(tenon_str reason);

  // Writes a line to the log. level: 0 debug, 1 info, 2 warning, 3 error.
  // [any-thread]
  void (*log)(uint32_t level, tenon_str text);

  // Returns an extension of the host by its id, or NULL. There is tenon.kernels/1 (kernels.h).
  // Ids of tenon: "tenon.<name>/<revision>".
  // Ids of others begin with reverse DNS: "com.example.<name>/<revision>".
  // [any-thread]
  const void* (*get_extension)(tenon_str id);
} tenon_host;
#define TENON_HOST_SIZE_V1 96u

typedef struct tenon_create_options {
  uint64_t struct_size;
  uint32_t abi_minor;         // the minor version that host and plugin use
  uint32_t threads;           // how many threads may compute for this runtime at the same time, the
                              // calling thread included; at least 1
} tenon_create_options;
#define TENON_CREATE_OPTIONS_SIZE_V1 16u


// ---- Devices ------------------------------------------------------------------------------------

// tenon_device_info::flags
#define TENON_DEVICE_HOST_ADDRESSABLE UINT32_C(1)  // buffer_address() works
#define TENON_DEVICE_HOST_THREADS UINT32_C(2)      // computes in the calling thread and in threads
                                                   // of the plugin; a synchronous run then stays in
                                                   // the thread of the app
#define TENON_DEVICE_REBIND_DEAR UINT32_C(4)       // rebind() is expensive (a captured graph); the
                                                   // host copies inputs and outputs instead
#define TENON_DEVICE_LANES UINT32_C(8)             // honours the lanes of a tenon_binding; without
                                                   // it the host puts all steps into one lane

// tenon_device_info::device_class. Where the app names no device, a discrete one comes first, then
// an accelerator, an integrated one, one of unknown class, a plugin that computes in host threads,
// and last the processor through another interface.
#define TENON_DEVICE_CLASS_UNKNOWN     UINT32_C(0)
#define TENON_DEVICE_CLASS_CPU         UINT32_C(1)  // the processor of the host
#define TENON_DEVICE_CLASS_INTEGRATED  UINT32_C(2)  // a GPU that shares the host's memory
#define TENON_DEVICE_CLASS_DISCRETE    UINT32_C(3)  // a GPU with memory of its own
#define TENON_DEVICE_CLASS_ACCELERATOR UINT32_C(4)  // another processor, made for such work

typedef struct tenon_device_info {
  uint64_t struct_size;
  tenon_str kind;             // "cpu", "cuda": the part before the colon in "cuda:0"
  tenon_str name;             // the hardware, for people
  tenon_str reason;           // not empty: the device was found but cannot be opened, and why
  uint64_t memory_size;       // bytes, 0 = unknown
  uint64_t max_allocation;    // bytes of the largest buffer, 0 = memory_size
  uint64_t alignment;         // bytes; the offset of every slot is a multiple of it.
                              // A power of two, 0 = 64
  uint32_t flags;             // TENON_DEVICE_*
  uint32_t reserved0;
  uint32_t device_class;      // TENON_DEVICE_CLASS_*
  uint32_t reserved1;
} tenon_device_info;
#define TENON_DEVICE_INFO_SIZE_V1 88u

typedef struct tenon_device_list {
  uint64_t struct_size;
  const tenon_device_info* const* devices;
  uint32_t count;
  uint32_t reserved0;
  tenon_str note;             // count 0: why ("no NVIDIA driver"); otherwise a remark, may be empty
} tenon_device_list;
#define TENON_DEVICE_LIST_SIZE_V1 40u

typedef struct tenon_device_options {
  uint64_t struct_size;
  uint32_t threads;           // computing threads, at most those of tenon_create_options; 0 = those
  uint32_t reserved0;
} tenon_device_options;
#define TENON_DEVICE_OPTIONS_SIZE_V1 16u


// ---- Memory -------------------------------------------------------------------------------------

// tenon_buffer_options::kind. On a device that computes in host memory all kinds are the same.
#define TENON_MEMORY_DEVICE       UINT32_C(0)  // where the device computes fastest
#define TENON_MEMORY_HOST_VISIBLE UINT32_C(1)  // host memory that the device reads and writes, such
                                               // as pinned memory: for transfers
#define TENON_MEMORY_UNIFIED      UINT32_C(2)  // pages move to the device or host that uses them

typedef struct tenon_buffer_options {
  uint64_t struct_size;
  uint64_t size;              // bytes, > 0; of kind DEVICE at most max_allocation
  tenon_str name;             // what the buffer is for ("weights"), for reports; may be empty
  uint32_t kind;              // TENON_MEMORY_*. A plugin refuses a kind that it does not know or
                              // have with TENON_UNSUPPORTED; every device has DEVICE
  uint32_t reserved0;
} tenon_buffer_options;
#define TENON_BUFFER_OPTIONS_SIZE_V1 40u


// ---- Query --------------------------------------------------------------------------------------

// tenon_verdict::verdict
#define TENON_VERDICT_REFUSED UINT32_C(0)
#define TENON_VERDICT_NATIVE UINT32_C(1)      // the device runs the node: a claim. A region whose
                                              // nodes are all claimed in one query must compile

// tenon_verdict::reason: why a node is refused
#define TENON_REASON_NONE UINT32_C(0)
#define TENON_REASON_OP UINT32_C(1)           // no kernel for this op and version
#define TENON_REASON_DTYPE UINT32_C(2)        // no kernel for these dtypes
#define TENON_REASON_SHAPE UINT32_C(3)        // no kernel for these shapes
#define TENON_REASON_ATTRIBUTE UINT32_C(4)    // no kernel for this value of an attribute
#define TENON_REASON_UNKNOWN UINT32_C(5)      // the node carries something the plugin does not know
#define TENON_REASON_OTHER UINT32_C(6)

typedef struct tenon_verdict {
  uint32_t verdict;           // TENON_VERDICT_*
  uint32_t reason;            // TENON_REASON_*, if refused
  tenon_str text;             // the reason, for people
  double cost;                // estimated seconds, 0 = unknown
  uint32_t group;             // the nodes of a group are claimed all or none; TENON_NONE = no group
  uint32_t reserved0;
} tenon_verdict;
#define TENON_VERDICT_SIZE_V1 40u

typedef struct tenon_query_result {
  uint64_t struct_size;
  const tenon_verdict* verdicts;  // one per node of function 0, in order
  uint64_t verdict_stride;        // bytes from one verdict to the next
  uint32_t count;
  uint32_t reserved0;
} tenon_query_result;
#define TENON_QUERY_RESULT_SIZE_V1 32u


// ---- Programs -----------------------------------------------------------------------------------

// A value that a program keeps in memory: a value of the region's graph, or one of its own.
//
// A program lists
//  - every input, weight, constant, state and output of the region;
//  - every other value that needs memory or that a view refers to. Values that a fused step keeps
//    in registers are not listed.
//
// An input of the region that is also an output of it is listed twice with the same `source`: once
// as the input, which steps only read, and once as the output, into which a step copies the input.
typedef struct tenon_program_value {
  uint32_t source;            // index of the value in function 0; TENON_NONE = the program's own
  uint32_t flags;             // 0
  uint64_t size;              // bytes; for a dense value of the graph: the size of its type
  uint64_t alignment;         // bytes, 0 = the alignment of the device. For an input or output in
                              // memory of the app, tenon_import_info::alignment holds instead

  // Not empty: a derived weight (derived_weights.h). `source` is a weight that the executable does
  // not update. The slot holds `size` bytes that derive() made from it, in a layout of the
  // plugin's choice; steps only read it.
  //
  // `layout` names everything that the bytes depend on, except the weight's content and type.
  // Programs share a derived weight if weight and `layout` are equal. A weight may be listed once
  // as it is and once per layout.
  tenon_str layout;
} tenon_program_value;
#define TENON_PROGRAM_VALUE_SIZE_V1 40u

// tenon_alias::kind: how value `to` shares the storage of value `from`
#define TENON_ALIAS_VIEW UINT32_C(1)      // Always: `to` is the bytes of `from` that begin at
                                          // `offset`. Nothing is computed and no step writes `to`.
                                          // `to` may be strided, so it is no output of the region.
                                          // `offset` may be any number of bytes: the alignment of
                                          // the device holds for slots of values with storage, and
                                          // not for the slot of a view.
#define TENON_ALIAS_IN_PLACE UINT32_C(2)  // The host may give both the same address; the step is
                                          // correct either way.

typedef struct tenon_alias {
  uint32_t kind;              // TENON_ALIAS_*
  uint32_t from;              // index among the program's values
  uint32_t to;                // index among the program's values
  uint32_t reserved0;
  uint64_t offset;            // bytes, VIEW only
} tenon_alias;
#define TENON_ALIAS_SIZE_V1 24u

// One step of a program, usually one kernel. Steps are listed in an order in which they may run;
// a step depends on the earlier steps whose values it touches. During a run, a program touches only
// what its steps declare. A step writes every byte of the values that it writes.
typedef struct tenon_step {
  uint32_t node;              // node of function 0 that the step runs; TENON_NONE = none or several
  uint32_t read_count;
  const uint32_t* reads;      // indices among the program's values
  const uint32_t* writes;     // indices among the program's values
  uint32_t write_count;
  uint32_t alias_count;
  const tenon_alias* aliases;
  uint64_t scratch_size;      // bytes of memory that the step needs while it runs
  tenon_str label;            // name of the kernel, for reports
} tenon_step;
#define TENON_STEP_SIZE_V1 64u

typedef struct tenon_program_info {
  uint64_t struct_size;
  const tenon_program_value* values;
  uint64_t value_stride;      // bytes from one value to the next
  const tenon_step* steps;
  uint64_t step_stride;       // bytes from one step to the next
  uint64_t alias_stride;      // bytes from one alias to the next, in all steps
  uint32_t value_count;
  uint32_t step_count;
} tenon_program_info;
#define TENON_PROGRAM_INFO_SIZE_V1 56u

// tenon_compile_options::flags. The other TENON_COMPILE_* of tenon.h are options of an app; a
// plugin does not get them.
#define TENON_COMPILE_AOT UINT32_C(1)   // Generate all code now. Without it, code may be generated
                                        // at first use. A plugin with tenon.prepare/1 (prepare.h)
                                        // never gets this flag: it is asked part by part.

typedef struct tenon_compile_options {
  uint64_t struct_size;
  uint32_t flags;             // TENON_COMPILE_*
  uint32_t exec_mode;         // TENON_EXEC_* (types.h); treat unknown values as DEFAULT
  uint64_t scratch_limit;     // bytes of scratch that a step should not exceed, 0 = no limit. A
                              // step that cannot do with less may exceed it.
} tenon_compile_options;
#define TENON_COMPILE_OPTIONS_SIZE_V1 24u

// An address in device memory. The host does no pointer arithmetic.
typedef struct tenon_slot {
  tenon_buffer* buffer;       // NULL only if the size is 0 or no step touches the value
  uint64_t offset;            // bytes
} tenon_slot;
#define TENON_SLOT_SIZE_V1 16u

// A wait between lanes: `step` begins after `after`, an earlier step in another lane, has finished.
typedef struct tenon_lane_wait {
  uint32_t step;
  uint32_t after;
} tenon_lane_wait;
#define TENON_LANE_WAIT_SIZE_V1 8u

// The addresses of an instance, and its lanes.
//
// Lanes are used for programs compiled with TENON_EXEC_MULTI_STREAM on a device that has
// TENON_DEVICE_LANES. The host decides which steps may overlap, and lays out memory accordingly:
//  - The steps of a lane run in the order of the program.
//  - A step of one lane waits for a step of another only where `waits` says so.
//  - Every lane begins after the work that was enqueued on the run's stream before the run.
//  - The run is done when all lanes are done.
//  - Values of steps that may overlap are often in one buffer, the arena. Their ranges do not
//    overlap if one of the steps writes. A plugin whose driver cannot use one buffer in several
//    queues at the same time does not set TENON_DEVICE_LANES.
// The plugin chooses which stream or thread runs a lane. Running all steps in the order of the
// program is always correct.
typedef struct tenon_binding {
  uint64_t struct_size;
  const tenon_slot* values;   // one per program value; the slot of a view is that of its base plus
                              // the offset
  const tenon_slot* scratch;  // one per step
  uint64_t slot_stride;       // bytes from one slot to the next, in both arrays
  const uint32_t* lanes;          // lane of each step, below lane_count; NULL = one lane
  const tenon_lane_wait* waits;   // in the order of `step`
  uint64_t wait_stride;           // bytes from one wait to the next
  uint32_t value_count;
  uint32_t step_count;
  uint32_t lane_count;            // at most TENON_MAX_LANES; 0 and 1 mean one lane
  uint32_t wait_count;
} tenon_binding;
#define TENON_BINDING_SIZE_V1 72u

// Return the slot of value i, and the scratch of step i.
static inline const tenon_slot* tenon_binding_value(const tenon_binding* b, uint32_t i) {
  return (const tenon_slot*)(const void*)((const char*)b->values + i * b->slot_stride);
}
static inline const tenon_slot* tenon_binding_scratch(const tenon_binding* b, uint32_t i) {
  return (const tenon_slot*)(const void*)((const char*)b->scratch + i * b->slot_stride);
}

typedef struct tenon_run_args {
  uint64_t struct_size;
  uint64_t run_id;            // goes into the status of a failure
  tenon_stream* stream;       // NULL: run() returns when the work is done
  tenon_event* done;          // (optional) recorded after the work; only with a stream

  // (optional) The host may set this word to a nonzero value at any time during run(), from another
  // thread. A plugin reads it atomically before each step (relaxed order is enough). If it is set,
  // the plugin begins no further step and returns TENON_CANCELLED; steps that were enqueued before
  // may still run. A plugin that submits all steps at once reads it before that. The pointer is
  // valid until run() returns.
  const uint32_t* cancel;
} tenon_run_args;
#define TENON_RUN_ARGS_SIZE_V1 32u


// ---- The plugin's table -------------------------------------------------------------------------

// What the plugin offers. The table lives as long as the loaded file.
typedef struct tenon_backend {
  uint64_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor_min;     // the plugin speaks every minor version from min to max; the highest
  uint32_t abi_minor_max;     // version that both sides speak is used
  uint32_t reserved0;
  tenon_str name;             // "cpu": lower case, no spaces
  tenon_str version;
  tenon_str vendor;

  // ---- Plugin

  // Makes the plugin's state for one runtime. Does no device work: a missing driver is not an error
  // here.
  // (required) [load]
  tenon_status* (*create)(const tenon_host* host, const tenon_create_options* options,
                          tenon_plugin** out_plugin);

  // Frees the state. The host has destroyed all objects of this tenon_plugin before the call. When
  // the last tenon_plugin of the file is shut down, the plugin calls its driver no more; memory
  // that it has not freed may leak.
  // (required) [load]
  void (*shutdown)(tenon_plugin* plugin);

  // Lists the devices; fast. If there is none, returns success with count 0 and a note. The list
  // lives until shutdown().
  // (required) [load]
  tenon_status* (*enumerate)(tenon_plugin* plugin, const tenon_device_list** out_devices);

  // ---- Devices

  // Opens device `index` of the list. May be slow and may fail.
  // (required) [any-thread]
  tenon_status* (*device_open)(tenon_plugin* plugin, uint32_t index,
                               const tenon_device_options* options, tenon_device** out_device);

  // Closes a device after its work is done.
  // (required) [any-thread]
  void (*device_close)(tenon_device* device);

  // ---- Memory
  //
  // A copy with a stream is part of the work of the stream. A copy without one is not ordered with
  // streams, and does not wait for their work: it may come while streams use other ranges of the
  // same buffer. The host makes sure that no work in flight writes the bytes that such a copy
  // reads, and that none uses the bytes that it writes. The same holds between streams that no
  // event orders.

  // Allocates memory; its content is undefined.
  // (required) [any-thread]
  tenon_status* (*buffer_create)(tenon_device* device, const tenon_buffer_options* options,
                                 tenon_buffer** out_buffer);

  // Frees device memory that no work uses.
  // (required) [any-thread]
  void (*buffer_destroy)(tenon_buffer* buffer);

  // Copies from host memory to a buffer. With a stream: in the order of the stream, and `source`
  // must not change until the stream has passed the copy. Without: done on return.
  // (required) [any-thread]
  tenon_status* (*buffer_write)(tenon_buffer* buffer, uint64_t offset, const void* source,
                                uint64_t size, tenon_stream* stream);

  // Copies from a buffer to host memory. With a stream: in the order of the stream, and `target` is
  // valid after the stream has passed the copy. Without: done on return.
  // (required) [any-thread]
  tenon_status* (*buffer_read)(tenon_buffer* buffer, uint64_t offset, void* target, uint64_t size,
                               tenon_stream* stream);

  // Returns the host address of a buffer: of any buffer with TENON_DEVICE_HOST_ADDRESSABLE, else of
  // buffers of kind HOST_VISIBLE and UNIFIED, and NULL for the others.
  // (optional; required with TENON_DEVICE_HOST_ADDRESSABLE) [any-thread]
  void* (*buffer_address)(tenon_buffer* buffer);

  // Copies within a buffer or between buffers of devices of one tenon_plugin. The ranges do not
  // overlap. The stream, if any, belongs to the device of `target`. The host has made it wait for
  // the work that wrote `source`.
  // (optional) [any-thread]
  tenon_status* (*buffer_copy)(tenon_buffer* target, uint64_t target_offset, tenon_buffer* source,
                               uint64_t source_offset, uint64_t size, tenon_stream* stream);

  // ---- Query and compile

  // States for each node of a graph (blob.h) whether this device runs it. Pure and deterministic:
  // equal graphs get equal verdicts, until compile() withdraws a claim. The blob is valid during
  // the call only.
  //
  // The host has checked every node of the ops in ops.def against the rules of its op, bodies
  // included:
  //   - The operands and outputs that the op requires are present.
  //   - Their shapes and dtypes fit together.
  //   - Axes are in range, and numbers are in the range that the op states.
  //   - A list has the right number of entries, or is empty where the op allows that.
  // The plugin decides what remains: does it know everything that the node carries, and does it run
  // this op for these dtypes, for these values of string attributes, and for these sizes?
  // (required) [any-thread]
  tenon_status* (*query)(tenon_device* device, const void* blob, uint64_t size,
                         const tenon_query_result** out_result);

  // Frees the result of query().
  // (required) [any-thread]
  void (*query_release)(tenon_device* device, const tenon_query_result* result);

  // Compiles a region. query() has claimed every node of exactly this region. May fail only for
  // lack of memory, or with TENON_STATUS_WITHDRAWN if the code of a step cannot be generated; the
  // status names the step.
  // (required) [any-thread]
  tenon_status* (*compile)(tenon_device* device, const void* blob, uint64_t size,
                           const tenon_compile_options* options, tenon_program** out_program);

  // Returns the values and steps of a program. They live as long as the program and never change.
  // (required) [any-thread]
  const tenon_program_info* (*program_info)(tenon_program* program);

  // Frees a program. Its instances are destroyed before.
  // (required) [any-thread]
  void (*program_destroy)(tenon_program* program);

  // ---- Instances and runs

  // Fixes every address of a program. The buffers stay in place as long as the instance.
  // (required) [any-thread]
  tenon_status* (*instantiate)(tenon_program* program, const tenon_binding* binding,
                               tenon_instance** out_instance);

  // Frees an instance that is not running.
  // (required) [object]
  void (*instance_destroy)(tenon_instance* instance);

  // Changes the addresses of an instance that is not running. Without it the host makes a new
  // instance.
  // (optional) [object]
  tenon_status* (*rebind)(tenon_instance* instance, const tenon_binding* binding);

  // Runs all steps. An instance runs once at a time.
  // Without a stream: returns when the work is done, with its failure if any.
  // With a stream: enqueues the work. A failure that depends on data (an index out of range) is
  // returned later, by the first wait on the stream or on an event recorded after the work, with
  // run_id, step and index. If run() itself fails, steps may already be enqueued: the host
  // synchronizes the stream before it reuses a buffer.
  // (required) [object]
  tenon_status* (*run)(tenon_instance* instance, const tenon_run_args* args);

  // ---- Streams and events: a plugin has all of these functions or none. Without them the host
  // calls run() and the copies from worker threads of its own.
  //
  // A stream belongs to the device that made it; so does an event, which is recorded in streams of
  // that device only. Each recording of an event is a new point in a stream. Until its first
  // recording an event is done: queries say so, waits return, and callbacks come at once. A stream
  // of another device of the same tenon_plugin may wait for it. Between devices of different
  // plugins the host uses event_on_done() alone.
  //
  // The failure of work stays on its stream until stream_synchronize() has returned it. Events that
  // are recorded until then return it as well, and so do streams that wait for them. An event keeps
  // it until it is recorded again. Work that is enqueued behind a failure may run or not; its
  // results do not count.

  // Makes a stream. native_handle: NULL, or a stream of the driver to use; the caller keeps it.
  // (optional) [any-thread]
  tenon_status* (*stream_create)(tenon_device* device, void* native_handle,
                                 tenon_stream** out_stream);

  // Waits for the work of the stream, then frees it.
  // (optional) [any-thread]
  void (*stream_destroy)(tenon_stream* stream);

  // Waits for the work of the stream. Returns the first failure since the last synchronization; the
  // stream is good again then, unless the device is lost.
  // (optional) [any-thread]
  tenon_status* (*stream_synchronize)(tenon_stream* stream);

  // Makes an event. It marks a point in a stream once it is recorded.
  // (optional) [any-thread]
  tenon_status* (*event_create)(tenon_device* device, tenon_event** out_event);

  // Frees an event. Does not wait for the work before it. Streams that were made to wait for it
  // still wait, and callbacks that were asked for still come.
  // (optional) [any-thread]
  void (*event_destroy)(tenon_event* event);

  // Records an event after the work enqueued so far. An event may be recorded again, also before
  // the earlier point has passed: earlier waits and callbacks keep the earlier point.
  // (optional) [any-thread]
  tenon_status* (*event_record)(tenon_event* event, tenon_stream* stream);

  // Makes later work of the stream wait for the event. Does not block the calling thread.
  // (optional) [any-thread]
  tenon_status* (*stream_wait_event)(tenon_stream* stream, tenon_event* event);

  // Sets *out_done to 1 if the work before the event is done, else to 0. If the work is done and
  // failed, sets *out_done to 1 and returns the failure. If the query itself fails, *out_done stays
  // as it was: whether the work is done is then unknown.
  // (optional) [any-thread]
  tenon_status* (*event_query)(tenon_event* event, uint32_t* out_done);

  // Waits for the work before the event and returns its failure, if any.
  // (optional) [any-thread]
  tenon_status* (*event_wait)(tenon_event* event);

  // Calls `callback` once, when the work before the event is done, also if the work failed or the
  // device is lost. The callback may come on any thread, also before this call returns, and comes
  // before device_close() returns. It only signals: it does not call the plugin. If this call
  // fails, no callback comes.
  // (optional) [any-thread]
  tenon_status* (*event_on_done)(tenon_event* event, void (*callback)(void* user), void* user);

  // ---- Extensions

  // Returns an extension of the plugin by its id, or NULL.
  //   tenon.choices/1           choices.h            keep what was tuned
  //   tenon.derived_weights/1   derived_weights.h    weights in a layout of the plugin
  //   tenon.import_memory/1     import_memory.h      buffers over memory of the app
  //   tenon.kernels/1           kernels.h            kernels for devices of other plugins
  //   tenon.native_streams/1    native_streams.h     streams and events of the driver
  //   tenon.ops/1               op.h                 ops of the plugin's own
  //   tenon.prepare/1           prepare.h            generate code in parts
  //   tenon.profiler/1          profiler.h           time each step
  // The id tenon.calibrate/1 is reserved.
  // (optional) [any-thread]
  const void* (*get_extension)(tenon_plugin* plugin, tenon_str id);
} tenon_backend;
#define TENON_BACKEND_SIZE_V1 320u

// The exported symbol. Returns the plugin's table, or NULL after host->refuse(). Does no device
// work.
// [load]
const tenon_backend* tenon_backend_entry(const tenon_host* host);

typedef const tenon_backend* (*tenon_backend_entry_fn)(const tenon_host* host);
#define TENON_BACKEND_ENTRY_NAME "tenon_backend_entry"


// ---- Frozen layout: a field that moves breaks the ABI, and does not compile ---------------------

#if defined(__cplusplus)
#define TENON_STATIC_ASSERT static_assert
#else
#define TENON_STATIC_ASSERT _Static_assert
#endif
TENON_STATIC_ASSERT(sizeof(void*) == 8, "tenon's ABI is for 64-bit platforms");
TENON_STATIC_ASSERT(offsetof(tenon_backend, create) == 72, "tenon_backend moved");
TENON_STATIC_ASSERT(offsetof(tenon_backend, run) == 224, "tenon_backend moved");
TENON_STATIC_ASSERT(sizeof(tenon_status_desc) >= TENON_STATUS_DESC_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_host) >= TENON_HOST_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_create_options) >= TENON_CREATE_OPTIONS_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_device_info) >= TENON_DEVICE_INFO_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_device_list) >= TENON_DEVICE_LIST_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_device_options) >= TENON_DEVICE_OPTIONS_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_buffer_options) >= TENON_BUFFER_OPTIONS_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_verdict) >= TENON_VERDICT_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_query_result) >= TENON_QUERY_RESULT_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_program_value) >= TENON_PROGRAM_VALUE_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_alias) >= TENON_ALIAS_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_step) >= TENON_STEP_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_program_info) >= TENON_PROGRAM_INFO_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_compile_options) >= TENON_COMPILE_OPTIONS_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_slot) >= TENON_SLOT_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_lane_wait) >= TENON_LANE_WAIT_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_binding) >= TENON_BINDING_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_run_args) >= TENON_RUN_ARGS_SIZE_V1, "it shrank");
TENON_STATIC_ASSERT(sizeof(tenon_backend) >= TENON_BACKEND_SIZE_V1, "it shrank");

#ifdef __cplusplus
}
#endif
#endif
