/* SPDX-License-Identifier: Apache-2.0
 * The host C API: build or read a graph, differentiate it, compile it for the devices at hand, run
 * it.
 *
 * Objects. runtime: the loaded plugins and their devices. graph: what to compute. store: named
 * weights and state, shared by executables. executable: a graph compiled for a device over a store.
 * context: what one run in flight owns (its inputs, outputs, working memory). Each *_create gives
 * ownership, *_destroy takes it back, NULL is allowed there; an object keeps what it needs alive,
 * so they may be destroyed in any order.
 *
 * Errors. What can fail returns tenon_status*: NULL is success; else read it with tenon_status_code
 * / _text and give it back with tenon_status_release. Out-parameters are written only on success.
 * No call crashes on bad arguments other than pointers that point nowhere.
 *
 * Threads. A graph and a context belong to one thread at a time. Everything else may be used from
 * many threads at once. Each thread that runs an executable makes a context of its own.
 *
 * Strings are UTF-8 with a length, borrowed for the call; those that the API returns live as long
 * as their owner. Shapes are row-major, rank 0 to 8. Sizes are bytes, dims and strides elements. */
#ifndef TENON_TENON_H
#define TENON_TENON_H

#include "types.h"
#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_API __attribute__((visibility("default")))

typedef struct tenon_status tenon_status;
typedef struct tenon_runtime tenon_runtime;
typedef struct tenon_graph tenon_graph;
typedef struct tenon_store tenon_store;
typedef struct tenon_executable tenon_executable;
typedef struct tenon_context tenon_context;
typedef struct tenon_text tenon_text;

/* ---- Errors and texts
 * --------------------------------------------------------------------------------------- */

TENON_API tenon_code tenon_status_code(const tenon_status* status); /* TENON_OK for NULL */
TENON_API tenon_str tenon_status_text(const tenon_status* status);
TENON_API void tenon_status_release(tenon_status* status);
TENON_API tenon_str tenon_code_name(tenon_code code); /* "shape_mismatch" */

TENON_API tenon_str tenon_text_str(const tenon_text* text);
TENON_API void tenon_text_destroy(tenon_text* text);

/* Version of the library: "0.1.0"; numbers in version.h are those the caller was compiled with. */
TENON_API tenon_str tenon_version(void);
TENON_API uint32_t tenon_api_version(void); /* major << 16 | minor */
TENON_API uint32_t tenon_abi_version(void); /* backend ABI, likewise */

/* Where log lines go; NULL: warnings and errors to standard error. level 0 debug .. 3 error. The
 * sink may not call tenon. Set it before other threads use tenon. */
TENON_API void tenon_log_to(void (*sink)(void* user, uint32_t level, tenon_str text), void* user);

/* ---- Runtime: plugins and devices
 * --------------------------------------------------------------------------- */

#define TENON_RUNTIME_NO_ENVIRONMENT UINT32_C(1) /* ignore TENON_PLUGIN_PATH */
#define TENON_RUNTIME_NO_BUILTIN \
  UINT32_C(2) /* do not search the directory that belongs to the library */

typedef struct tenon_runtime_options {
  uint64_t struct_size;
  const tenon_str*
      plugin_dirs; /* searched after the built-in one; a bad plugin there is a line in the report */
  const tenon_str* plugin_files; /* must load: a failure is the call's */
  uint32_t plugin_dir_count;
  uint32_t plugin_file_count;
  uint32_t threads; /* computing threads, 0 = the smaller of affinity and cgroup quota */
  uint32_t flags;
} tenon_runtime_options;

/* options may be NULL. */
TENON_API tenon_status* tenon_runtime_create(const tenon_runtime_options* options,
                                             tenon_runtime** out_runtime);
/* Shuts the plugins down when the last object that uses them is gone. */
TENON_API void tenon_runtime_destroy(tenon_runtime* runtime);

typedef struct tenon_device_entry {
  uint64_t struct_size;
  tenon_str id; /* "cpu:0": what compile options name */
  tenon_str kind;
  tenon_str name; /* of the hardware */
  tenon_str plugin;
  tenon_str reason;     /* not empty: cannot be used, and why */
  uint64_t memory_size; /* bytes, 0 = unknown */
  uint64_t max_allocation;
  uint32_t host_addressable;
  uint32_t reserved0;
} tenon_device_entry;
TENON_API uint32_t tenon_runtime_device_count(const tenon_runtime* runtime);
/* The caller sets out->struct_size. */
TENON_API tenon_status* tenon_runtime_device(const tenon_runtime* runtime, uint32_t index,
                                             tenon_device_entry* out);

/* The load report: one line per file that was looked at. */
typedef struct tenon_plugin_entry {
  uint64_t struct_size;
  tenon_str path;
  tenon_str stage; /* how far it came: permissions manifest dlopen symbol negotiate create enumerate
                      loaded */
  tenon_str text;  /* why it stopped there, or the plugin's note */
  tenon_str name;  /* empty when not known */
  tenon_str version;
  tenon_code code; /* TENON_OK when loaded */
  uint16_t reserved0;
  uint32_t device_count;
} tenon_plugin_entry;
TENON_API uint32_t tenon_runtime_plugin_count(const tenon_runtime* runtime);
TENON_API tenon_status* tenon_runtime_plugin(const tenon_runtime* runtime, uint32_t index,
                                             tenon_plugin_entry* out);

/* Rates: how fast a device copies, multiplies, begins a step, and exchanges bytes with the host.
 * They are measured on request and kept in the user's cache directory ($XDG_CACHE_HOME/tenon/rates,
 * else ~/.cache/tenon/rates), per device and version of its plugin and driver; placement reads them
 * where it has a choice. */
typedef struct tenon_calibrate_options {
  uint64_t struct_size;
  double seconds; /* for each thing that is measured, 0 = 0.2 */
  /* (optional) Called before each thing, in the calling thread: what, and how many of how many are
   * done. Returns 0 to go on; else the call ends with TENON_CANCELLED and nothing is kept. */
  uint32_t (*progress)(void* user, tenon_str what, uint32_t done, uint32_t total);
  void* user;
} tenon_calibrate_options;
/* Measures the device, which should be idle, and keeps what was measured. TENON_IO_ERROR when it
 * cannot be kept. device: an id, or a kind's first. options may be NULL. out_json (may be NULL): as
 * tenon_runtime_rates. [any-thread] */
TENON_API tenon_status* tenon_runtime_calibrate(tenon_runtime* runtime, tenon_str device,
                                                const tenon_calibrate_options* options,
                                                tenon_text** out_json);
/* What is known of a device by its id: {"device", "measured", "remark": why not, "file", "rates":
 * {"copy_bytes_per_second", "run_seconds", "step_seconds", "fork_seconds",
 * "to_device_bytes_per_second", "from_device_bytes_per_second", "transfer_seconds",
 * "product_flops_per_second": {"f32": ...}}}. Where nothing was measured, or the file is damaged,
 * the rates are rough defaults. [any-thread] */
TENON_API tenon_status* tenon_runtime_rates(tenon_runtime* runtime, tenon_str device,
                                            tenon_text** out_json);

/* Choices: where only timing tells which way is fastest a device tries several, and ways may differ
 * in the last bits of a result. Who keeps results to go on from keeps the choices beside them, so
 * that runs elsewhere, or after the caches are gone, give the same bits. out_json: those that the
 * programs of the devices that are open were compiled with, a list of texts per plugin; "{}" where
 * none was made. [any-thread] */
TENON_API tenon_status* tenon_runtime_choices(tenon_runtime* runtime, tenon_text** out_json);
/* Devices use them for what they compile from here on and have not chosen yet; a choice for another
 * device, version or shape does nothing. Further calls replace what devices opened later are given;
 * those that are open keep what they took before, where the new choices say nothing of it. json: as above, TENON_INVALID_ARGUMENT when it is not so.
 * [any-thread] */
TENON_API tenon_status* tenon_runtime_take_choices(tenon_runtime* runtime, tenon_str json);

/* Faults, for tests of an app or of a plugin: calls that the library makes of a plugin fail in the
 * plugin's stead, with a status like the plugin's own. Nothing but this call makes them. */
#define TENON_FAULT_OPEN UINT32_C(1)     /* opening a device */
#define TENON_FAULT_ALLOCATE UINT32_C(2) /* device memory */
#define TENON_FAULT_WRITE UINT32_C(4)    /* copies to a device */
#define TENON_FAULT_READ UINT32_C(8)     /* copies from a device */
#define TENON_FAULT_COPY UINT32_C(16)    /* copies within or between devices of one plugin */
#define TENON_FAULT_QUERY UINT32_C(32)
#define TENON_FAULT_COMPILE UINT32_C(64)
#define TENON_FAULT_INSTANTIATE UINT32_C(128) /* fixing or changing a program's addresses */
#define TENON_FAULT_RUN UINT32_C(256)    /* runs, and making weights in a layout of a program */
#define TENON_FAULT_STREAM UINT32_C(512) /* making, recording and chaining streams and events */
#define TENON_FAULT_WAIT UINT32_C(1024)  /* waiting for them: fails after the wait */

#define TENON_FAULT_LASTING UINT32_C(1) /* all such calls from the nth on, not the nth alone */

typedef struct tenon_fault {
  uint64_t struct_size;
  tenon_str device; /* "cuda:0", "cuda"; empty = any */
  uint64_t nth;     /* which of these calls fails, from 1; 0 = none, they are only counted */
  uint32_t calls;   /* TENON_FAULT_*, joined; 0 = all */
  uint32_t flags;   /* TENON_FAULT_LASTING */
  tenon_code code;  /* of the status. TENON_DEVICE_LOST: after it every call of that device fails,
                       of whatever kind, until the fault is lifted */
  uint16_t reserved0;
  uint32_t reserved1;
} tenon_fault;
/* Sets a fault for all devices of this runtime, in place of the one before; NULL lifts it. out_met
 * (may be NULL): how many calls the one before had counted: when fewer than its nth, nothing
 * failed. [any-thread] */
TENON_API tenon_status* tenon_runtime_fault(tenon_runtime* runtime, const tenon_fault* fault,
                                            uint64_t* out_met);

/* ---- Traces
 * -------------------------------------------------------------------------------------------------
 */

typedef struct tenon_trace_options {
  uint64_t struct_size;
  uint64_t most_slices; /* runs beyond them are counted, not kept; 0 = a million */
} tenon_trace_options;

/* From here on the runs of this runtime, of all its executables and threads, leave a record: what
 * they waited for, copied, wrote to a device and gave back, each region, and each step where the
 * device's plugin measures steps. Runs under way leave none. One trace at a time. While it records
 * a step costs two readings of the clock, or two events of a device's stream, where what is else
 * replayed as a recording runs step by step then; while none does a run looks at one flag. options
 * may be NULL. May be called, as the calls below, while other threads run. */
TENON_API tenon_status* tenon_trace_start(tenon_runtime* runtime,
                                          const tenon_trace_options* options);
/* Ends the trace. out_json: Chrome's trace event format, as Perfetto reads it: complete events, ts
 * and dur in microseconds from the start; a step's args say op, node, provenance, device, bytes,
 * flops where they are known, and the note of fusion. Runs that have not ended are not in it. */
TENON_API tenon_status* tenon_trace_stop(tenon_runtime* runtime, tenon_text** out_json);
/* The same into a file, by way of a temporary beside it: on a failure an older file stays whole. A
 * path where nothing can be written is refused before the trace ends. */
TENON_API tenon_status* tenon_trace_save(tenon_runtime* runtime, tenon_str path);

/* ---- The ops
 * ------------------------------------------------------------------------------------------------
 */

typedef struct tenon_op_entry {
  uint64_t struct_size;
  tenon_str domain;
  tenon_str name;
  tenon_str family;
  tenon_str level;     /* primitive core meta */
  tenon_str signature; /* "rms_norm(x, gamma, beta?) {axis=-1, eps=1e-05} -> (y, inv_rms?)" */
  uint32_t version;
  uint32_t has_gradient;
  uint32_t has_decomposition;
  uint32_t reserved0;
} tenon_op_entry;
TENON_API uint32_t tenon_op_count(void);
TENON_API tenon_status* tenon_op(uint32_t index, tenon_op_entry* out);

/* ---- Graphs
 * -------------------------------------------------------------------------------------------------
 */

typedef uint32_t tenon_value; /* of one graph; TENON_NONE = absent */

TENON_API tenon_status* tenon_graph_create(tenon_str name, tenon_graph** out_graph);
TENON_API void tenon_graph_destroy(tenon_graph* graph);
/* The text form; file_name is for messages. */
TENON_API tenon_status* tenon_graph_parse(tenon_str text, tenon_str file_name,
                                          tenon_graph** out_graph);
TENON_API tenon_status* tenon_graph_print(const tenon_graph* graph, tenon_text** out_text);

/* A symbolic dim for inputs: a negative number to stand among dims. The same name is the same
 * symbol. */
TENON_API tenon_status* tenon_graph_symbol(tenon_graph* graph, tenon_str name, int64_t* out_dim);
TENON_API tenon_status* tenon_graph_input(tenon_graph* graph, tenon_str name, tenon_dtype dtype,
                                          uint32_t rank, const int64_t* dims,
                                          tenon_value* out_value);
TENON_API tenon_status* tenon_graph_weight(tenon_graph* graph, tenon_str name, tenon_dtype dtype,
                                           uint32_t rank, const int64_t* dims, uint32_t trainable,
                                           tenon_value* out_value);
TENON_API tenon_status* tenon_graph_state(tenon_graph* graph, tenon_str name, tenon_dtype dtype,
                                          uint32_t rank, const int64_t* dims,
                                          tenon_value* out_value);
/* data: dense, size bytes; copied. */
TENON_API tenon_status* tenon_graph_constant(tenon_graph* graph, tenon_dtype dtype, uint32_t rank,
                                             const int64_t* dims, const void* data, uint64_t size,
                                             tenon_value* out_value);

#define TENON_ARG_I64 UINT32_C(1)
#define TENON_ARG_F64 UINT32_C(2)
#define TENON_ARG_BOOL UINT32_C(3)
#define TENON_ARG_STR UINT32_C(4)
#define TENON_ARG_INTS UINT32_C(5)
#define TENON_ARG_FLOATS UINT32_C(6)
#define TENON_ARG_DTYPE UINT32_C(7)
#define TENON_ARG_FUNCTION UINT32_C(8)
typedef struct tenon_arg {
  tenon_str name;
  uint32_t type;  /* TENON_ARG_*: which field counts */
  uint32_t count; /* INTS, FLOATS */
  int64_t i64;    /* I64, BOOL, DTYPE */
  double f64;
  tenon_str str;
  const int64_t* ints;
  union {
    const double* floats;
    const tenon_graph* function; /* a body; copied */
  };
} tenon_arg;

/* Appends a node. operands: fixed positions, TENON_NONE = absent. version 0 = the newest.
 * out_values has one place per output that the op's entry lists (for a list: as many as
 * output_count says); want[k] 0 leaves optional output k out (want NULL: only those that are not
 * optional). Places of outputs left out get TENON_NONE. provenance names the call in messages and
 * reports, may be empty. Types are checked at once where they are known, else when symbols are
 * bound. */
TENON_API tenon_status* tenon_graph_add_node(tenon_graph* graph, tenon_str domain, tenon_str op,
                                             uint32_t version, const tenon_value* operands,
                                             uint32_t operand_count, const tenon_arg* attributes,
                                             uint32_t attribute_count, const uint8_t* want,
                                             uint32_t output_count, tenon_str provenance,
                                             tenon_value* out_values);
/* Gradients of a loss of one element, each with its value's type. A weight that the loss does not
 * reach gets zeros. */
TENON_API tenon_status* tenon_graph_gradients(tenon_graph* graph, tenon_value loss,
                                              const tenon_value* wrt, uint32_t count,
                                              tenon_value* out_gradients);
/* Gradients asked for in this graph run some nodes again instead of keeping what they made (less
 * memory for more time, same results): those that `to` is made from and that depend on `from`, for
 * example one layer from its input to its output. What nodes outside read is still kept. A node
 * belongs to the call that named it first. */
TENON_API tenon_status* tenon_graph_checkpoint(tenon_graph* graph, const tenon_value* from,
                                               uint32_t from_count, const tenon_value* to,
                                               uint32_t to_count);
TENON_API tenon_status* tenon_graph_output(tenon_graph* graph, tenon_str name, tenon_value value);
/* After the run, the weight or state `target` holds `value`. At most one update per target. */
TENON_API tenon_status* tenon_graph_update(tenon_graph* graph, tenon_value target,
                                           tenon_value value);

typedef struct tenon_tensor_type {
  tenon_dtype dtype; /* TENON_DTYPE_NONE: depends on symbols that are not bound yet */
  uint16_t rank;
  uint32_t reserved0;
  int64_t dims[TENON_MAX_RANK];
} tenon_tensor_type;
TENON_API tenon_status* tenon_graph_type(const tenon_graph* graph, tenon_value value,
                                         tenon_tensor_type* out_type);

/* What a graph reads: space TENON_SPACE_INPUT, _WEIGHT or _STATE. */
TENON_API uint32_t tenon_graph_count(const tenon_graph* graph, uint32_t space);
TENON_API tenon_status* tenon_graph_name(const tenon_graph* graph, uint32_t space, uint32_t index,
                                         tenon_str* out_name, tenon_value* out_value,
                                         uint32_t* out_trainable);

/* One training step for all trainable weights: gradients of loss, clipping, optimizer, updates
 * (specification 9). State is named "<weight>.m" and so on, the step counter "optimizer.step";
 * tenon_store_add_missing makes it. A half-precision weight has its f32 master as state
 * "<weight>.master": the step changes the master and writes the weight, rounded from it. */
#define TENON_OPTIMIZER_SGD UINT32_C(1)
#define TENON_OPTIMIZER_ADAMW UINT32_C(2)
#define TENON_OPTIMIZER_LION UINT32_C(3)
typedef struct tenon_optimizer {
  uint64_t struct_size;
  uint32_t kind;
  uint32_t skip_nonfinite;   /* 1: a step whose gradient norm is not finite changes nothing */
  tenon_value learning_rate; /* f32 scalar: an input, or computed in the graph */
  uint32_t nesterov;
  double beta1, beta2, eps;   /* adamw; lion takes beta1, beta2 */
  double momentum, dampening; /* sgd */
  double weight_decay;
  double clip_norm; /* 0 = no clipping */
  /* Weights that get no decay: those of rank < decay_min_rank (2: decay on matrices only). */
  uint32_t decay_min_rank;
  uint32_t reserved0;
} tenon_optimizer;
/* out_norm: the global gradient norm before clipping, f32 scalar; may be NULL. */
TENON_API tenon_status* tenon_graph_minimize(tenon_graph* graph, tenon_value loss,
                                             const tenon_optimizer* optimizer,
                                             tenon_value* out_norm);
/* The same step in two graphs over one store, for batches that do not fit at once. accumulate adds
 * the gradients of loss to state "<weight>.grad" and counts in "optimizer.count"; apply, in a graph
 * that has the same trainable weights, takes the mean over the runs counted and begins again from
 * zero. N runs of the one and a run of the other equal one step on the mean of the N losses. */
TENON_API tenon_status* tenon_graph_accumulate(tenon_graph* graph, tenon_value loss);
TENON_API tenon_status* tenon_graph_apply(tenon_graph* graph, const tenon_optimizer* optimizer,
                                          tenon_value* out_norm);

/* ---- Stores
 * -------------------------------------------------------------------------------------------------
 */

/* A tensor in host memory. */
typedef struct tenon_tensor {
  uint64_t struct_size;
  const int64_t* dims;
  const int64_t* strides; /* in elements, NULL = dense */
  void* data;             /* the API only reads it where it is an input */
  uint64_t size;          /* bytes behind data */
  uint32_t rank;
  tenon_dtype dtype;
  uint16_t reserved0;
} tenon_tensor;

TENON_API tenon_status* tenon_store_create(tenon_runtime* runtime, tenon_store** out_store);
TENON_API void tenon_store_destroy(tenon_store* store);
/* Sets or replaces the content of a weight (TENON_SPACE_WEIGHT) or state; copied. Runs under way
 * keep what they have. */
TENON_API tenon_status* tenon_store_set(tenon_store* store, uint32_t space, tenon_str name,
                                        const tenon_tensor* tensor);
/* Copies the content out, after the runs that write it; size must be the content's. */
TENON_API tenon_status* tenon_store_get(tenon_store* store, uint32_t space, tenon_str name,
                                        void* data, uint64_t size);
TENON_API tenon_status* tenon_store_type(tenon_store* store, uint32_t space, tenon_str name,
                                         tenon_tensor_type* out_type);
TENON_API uint32_t tenon_store_count(tenon_store* store, uint32_t space);
/* Names in sorted order. */
TENON_API tenon_status* tenon_store_name(tenon_store* store, uint32_t space, uint32_t index,
                                         tenon_text** out_name);
/* Makes every state of the graph that the store lacks: a weight's f32 master from the weight, zeros
 * for the rest (optimizer moments, caches, counters). */
TENON_API tenon_status* tenon_store_add_missing(tenon_store* store, const tenon_graph* graph);
/* Takes an entry out; runs under way keep what they have, later ones fail by its name. */
TENON_API tenon_status* tenon_store_remove(tenon_store* store, uint32_t space, tenon_str name);

/* safetensors. load sets what the file holds; types and names are the file's. save writes a
 * temporary beside the file and renames: on any failure an older file stays whole. metadata: count
 * pairs of key and value. */
TENON_API tenon_status* tenon_store_load(tenon_store* store, uint32_t space, tenon_str path);
TENON_API tenon_status* tenon_store_save(tenon_store* store, uint32_t space, tenon_str path,
                                         const tenon_str* metadata, uint32_t count);
/* The metadata of a safetensors file as a JSON object. */
TENON_API tenon_status* tenon_safetensors_metadata(tenon_str path, tenon_text** out_json);

/* ---- Executables
 * -------------------------------------------------------------------------------------------- */

#define TENON_FALLBACK_ALLOW \
  UINT32_C(0) /* what the device refuses runs on the cpu plugin, and is reported */
#define TENON_FALLBACK_DENY UINT32_C(1) /* is an error */

#define TENON_COMPILE_NO_SIMPLIFY UINT32_C(1) /* run the graph as it stands; implies NO_FUSE */
#define TENON_COMPILE_DECOMPOSE_ALL \
  UINT32_C(2) /* write every op in primitives (tests); implies NO_FUSE */
#define TENON_COMPILE_NO_FUSE UINT32_C(4) /* join no nodes into composite ops, raise none */

/* When a device's code is generated. */
#define TENON_COMPILE_MODE_JIT UINT32_C(0) /* when it is first wanted: as runs begin */
#define TENON_COMPILE_MODE_AOT UINT32_C(1) /* all of it when the graph is compiled */

typedef struct tenon_executable_options {
  uint64_t struct_size;
  tenon_str device;  /* "auto", "cpu", "cuda:0"; empty = auto */
  uint32_t fallback; /* TENON_FALLBACK_* */
  uint32_t flags;    /* TENON_COMPILE_* */
  /* TENON_EXEC_* (types.h). EAGER is for finding faults: runs do not overlap what enqueues them,
   * also those of tenon_context_run_async. */
  uint32_t exec_mode;
  /* With MULTI_STREAM: at most so many steps run beside each other, 1 to TENON_MAX_LANES, 0 = 4;
   * else 0. It takes more memory than one lane does. A device that runs one lane only is told of in
   * the log and in the report, not refused. */
  uint32_t lanes;
  uint32_t compile_mode; /* TENON_COMPILE_MODE_* */
  uint32_t reserved0;
  /* (optional) How far AOT is, done of total parts; returns 0 to go on, else to stop: what compiles
   * then fails with TENON_CANCELLED, once the parts under way are over. Called in the thread that
   * compiles (which creates the executable, or with symbols starts a run or asks for a report), at
   * first, whenever more is done and about 20 times a second meanwhile, not at all where there is
   * nothing to do. It may not call tenon with this executable or its contexts, and it and
   * progress_user must live as long as all of these. */
  uint32_t (*progress)(void* user, uint32_t done, uint32_t total);
  void* progress_user;
} tenon_executable_options;

/* The graph is copied. With symbols in it, each new set of numbers that a run brings is compiled
 * once and kept. */
TENON_API tenon_status* tenon_executable_create(tenon_runtime* runtime, const tenon_graph* graph,
                                                tenon_store* store,
                                                const tenon_executable_options* options,
                                                tenon_executable** out_executable);
TENON_API void tenon_executable_destroy(tenon_executable* executable);
/* What became of each node, as JSON: nodes [{name, op, device, verdict, reason, note, flops}],
 * regions [{device, steps, transfers_in, lanes, waits, lanes_note}], steps [{region, label, node,
 * scratch, lane, after}], memory [{device, peak, bound, weights, state}], bytes, exec, compile,
 * remarks [text]. flops: of the node's products. bytes: inputs, weights, state and outputs of a
 * run, each moved once. lanes_note: why a region has one lane where more were asked for. after: the
 * steps of other lanes, counted within the region, that a step waits for. exec, compile: the modes.
 * remarks: what the plan as a whole had to choose or do without. With symbols: of the binding given
 * by names and numbers. */
TENON_API tenon_status* tenon_executable_report(tenon_executable* executable,
                                                const tenon_str* symbols, const int64_t* numbers,
                                                uint32_t count, tenon_text** out_json);

/* ---- Runs
 * ---------------------------------------------------------------------------------------------------
 */

TENON_API tenon_status* tenon_context_create(tenon_executable* executable,
                                             tenon_context** out_context);
TENON_API void tenon_context_destroy(tenon_context* context);
/* Sets an input for the runs to come; checked for name, dtype and shape, copied. Not while a run is
 * under way. */
TENON_API tenon_status* tenon_context_set(tenon_context* context, tenon_str input,
                                          const tenon_tensor* tensor);
/* Runs and waits. Runs over one store are ordered by what they read and update, in the order of
 * these calls. */
TENON_API tenon_status* tenon_context_run(tenon_context* context);
/* Enqueues; wait before the context is touched again. */
TENON_API tenon_status* tenon_context_run_async(tenon_context* context);
/* out_done 0 or 1; the returned status is the run's failure once it is done. */
TENON_API tenon_status* tenon_context_query(tenon_context* context, uint32_t* out_done);
/* The failure of the run under way, NULL when there is none or it went well. */
TENON_API tenon_status* tenon_context_wait(tenon_context* context);
/* Type of an output of the last run. */
TENON_API tenon_status* tenon_context_output_type(tenon_context* context, tenon_str output,
                                                  tenon_tensor_type* out_type);
/* Copies an output of the last run; size must be its size in bytes. */
TENON_API tenon_status* tenon_context_get(tenon_context* context, tenon_str output, void* data,
                                          uint64_t size);

#ifdef __cplusplus
}
#endif
#endif
