// SPDX-License-Identifier: Apache-2.0
//
// The host API in C: build or parse a graph, differentiate it, compile it for the devices of the
// machine, run it. C11. Apps in C++ use tenon.hpp, a header-only layer on top of this file. Beside
// it: tenon_debug.h (traces, crashes and hangs, faults on purpose) and tenon_tune.h (measured
// rates, chosen algorithms).
//
// Objects
//
//   tenon_runtime      the loaded plugins and their devices
//   tenon_graph        what to compute
//   tenon_store        named weights and state, shared by executables
//   tenon_tensors      tensors read from a file
//   tenon_executable   a graph compiled for a device, over a store
//   tenon_context      what one run in flight owns: inputs, outputs, working memory
//
// Each *_create transfers ownership to the caller and each *_destroy takes it back; *_destroy
// accepts NULL. An object keeps alive what it depends on, so objects may be destroyed in any order.
//
// Errors
//
//   A function that can fail returns tenon_status*. NULL means success. Otherwise read it with
//   tenon_status_code() and tenon_status_text() and free it with tenon_status_release(). Unless
//   stated otherwise, out-parameters are written only on success. No call crashes on bad
//   arguments, apart from pointers to memory that is not valid.
//
// Threads
//
//   A graph and a context are used by one thread at a time (tenon_context_cancel() excepted). All
//   other objects may be used by many threads at the same time. Each thread that runs an executable
//   creates its own context.
//
// Conventions
//
//   Strings are UTF-8 with a length. Arguments are borrowed during the call; strings that the API
//   returns live as long as the object they came from. Tensors are row-major, rank 0 to 8. Sizes
//   are in bytes; dims and strides are in elements. Structs that can grow start with struct_size,
//   which the caller sets to sizeof the struct.

// The layout is made by hand:
// clang-format off
#ifndef TENON_TENON_H
#define TENON_TENON_H

#include "op.h"
#include "types.h"
#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_API __attribute__((visibility("default")))

typedef struct tenon_status tenon_status;
typedef struct tenon_text tenon_text;
typedef struct tenon_runtime tenon_runtime;
typedef struct tenon_store tenon_store;
typedef struct tenon_tensors tenon_tensors;
typedef struct tenon_safetensors tenon_safetensors;
typedef struct tenon_executable tenon_executable;
typedef struct tenon_context tenon_context;


// ---- Errors, texts, versions, log ---------------------------------------------------------------

// Returns TENON_OK for NULL.
TENON_API tenon_code tenon_status_code(const tenon_status* status);

// Returns what was wrong: where, what was expected, what came.
TENON_API tenon_str tenon_status_text(const tenon_status* status);

// Where a run failed, as far as it is known. The texts live as long as the status.
typedef struct tenon_status_place {
  uint64_t struct_size;
  tenon_str node;             // its name in the report: "layers.0.norm"; empty = unknown
  tenon_str op;               // "rms_norm"
  tenon_str device;           // "cuda:0"
  uint64_t run_id;            // the run, as messages and traces number it; 0 = none
  int64_t index;              // flat index of the first bad element; -1 = unknown
  uint32_t step;              // entry of "steps" in the report; TENON_NONE = unknown, or inside a
                              // function
  uint32_t retryable;         // 1: the same call may succeed later (memory was short)
} tenon_status_place;
TENON_API tenon_status* tenon_status_where(const tenon_status* status,
                                           tenon_status_place* out_place);

TENON_API void tenon_status_release(tenon_status* status);

// Returns the name of a code: "shape_mismatch".
TENON_API tenon_str tenon_code_name(tenon_code code);

// A text that the API made for the caller, who destroys it.
TENON_API tenon_str tenon_text_str(const tenon_text* text);
TENON_API void tenon_text_destroy(tenon_text* text);

// Return the versions of the library in use: "0.1.0"; the API and the backend ABI as
// major << 16 | minor. The numbers in version.h are those the caller was compiled with.
TENON_API tenon_str tenon_version(void);
TENON_API uint32_t tenon_api_version(void);
TENON_API uint32_t tenon_abi_version(void);

// Sends log lines to sink; NULL sends warnings and errors to stderr. level: 0 debug, 1 info,
// 2 warning, 3 error. The sink must not call tenon. Call this before other threads use tenon.
TENON_API void tenon_log_to(void (*sink)(void* user, uint32_t level, tenon_str text), void* user);


// ---- Runtime: plugins and devices ---------------------------------------------------------------

// tenon_runtime_options::flags
#define TENON_RUNTIME_NO_ENVIRONMENT UINT32_C(1)  // ignore TENON_PLUGIN_PATH
#define TENON_RUNTIME_NO_BUILTIN UINT32_C(2)      // do not search the library's own plugin folder

typedef struct tenon_runtime_options {
  uint64_t struct_size;
  const tenon_str* plugin_dirs;   // searched after the library's own folder; a plugin in them
                                  // that fails to load is only reported
  const tenon_str* plugin_files;  // a plugin here that fails to load is an error
  uint32_t plugin_dir_count;
  uint32_t plugin_file_count;
  uint32_t threads;               // computing threads; 0 = CPU affinity or cgroup quota, whichever
                                  // is smaller
  uint32_t flags;                 // TENON_RUNTIME_*
} tenon_runtime_options;

// Loads the plugins. options may be NULL.
TENON_API tenon_status* tenon_runtime_create(const tenon_runtime_options* options,
                                             tenon_runtime** out_runtime);

// The plugins are shut down once the last object that uses them is destroyed.
TENON_API void tenon_runtime_destroy(tenon_runtime* runtime);

// A device of a loaded plugin.
typedef struct tenon_device_entry {
  uint64_t struct_size;
  tenon_str id;               // "cpu:0"
  tenon_str kind;             // "cpu"
  tenon_str name;             // the hardware, for people
  tenon_str plugin;
  tenon_str reason;           // not empty: the device cannot be used, and why
  uint64_t memory_size;       // bytes, 0 = unknown
  uint64_t max_allocation;    // bytes of the largest allocation
  uint32_t host_addressable;  // 1: its memory is host memory
  uint32_t reserved0;
  uint32_t device_class;      // 0 = unknown, 1 = cpu, 2 = integrated, 3 = discrete, 4 = accelerator
  uint32_t reserved1;
} tenon_device_entry;

// Opens a device and returns the alignment, in bytes, of memory that it imports from the app; 0 if
// it imports none. An address must also be a multiple of the size of an element.
TENON_API tenon_status* tenon_runtime_import_alignment(tenon_runtime* runtime, tenon_str device,
                                                       uint64_t* out_alignment);

TENON_API uint32_t tenon_runtime_device_count(const tenon_runtime* runtime);
TENON_API tenon_status* tenon_runtime_device(const tenon_runtime* runtime, uint32_t index,
                                             tenon_device_entry* out_entry);

// A file of the load report: every file that was considered as a plugin.
typedef struct tenon_plugin_entry {
  uint64_t struct_size;
  tenon_str path;
  tenon_str stage;            // the last stage reached: permissions, manifest, dlopen, symbol,
                              // negotiate, create, enumerate, ops, loaded
  tenon_str text;             // why loading stopped there; for a loaded plugin its note
  tenon_str name;             // empty if unknown
  tenon_str version;          // empty if unknown
  tenon_code code;            // TENON_OK if loaded
  uint16_t reserved0;
  uint32_t device_count;
} tenon_plugin_entry;

TENON_API uint32_t tenon_runtime_plugin_count(const tenon_runtime* runtime);
TENON_API tenon_status* tenon_runtime_plugin(const tenon_runtime* runtime, uint32_t index,
                                             tenon_plugin_entry* out_entry);

// Returns the bytes that this process may still take of the host's memory: available memory and
// free swap of the machine, or what its control groups leave if that is less; 0 if unknown.
TENON_API uint64_t tenon_available_memory(void);


// ---- Ops ----------------------------------------------------------------------------------------

typedef struct tenon_op_entry {
  uint64_t struct_size;
  tenon_str domain;
  tenon_str name;
  tenon_str family;
  tenon_str level;            // "primitive", "core", "meta" or "control"
  tenon_str signature;        // "rms_norm(x, gamma, beta?) {axis=-1, eps=1e-05} -> (y, inv_rms?)"
  uint32_t version;
  uint32_t has_gradient;
  uint32_t has_decomposition;
  uint32_t reserved0;
  tenon_str values;           // what string and dtype attributes accept: "kind=sum|mean|max"
  tenon_str origin;           // who registered it: "tenon", "the app", or the name of a plugin
  const tenon_op_part* parts; // operands, attributes and outputs
  uint64_t part_stride;       // bytes from one part to the next
  uint32_t part_count;
  uint32_t reserved1;
} tenon_op_entry;

// The ops of tenon, then registered ones in the order of registration. An index never changes its
// meaning, and the texts live as long as the process.

TENON_API uint32_t tenon_op_count(void);
TENON_API tenon_status* tenon_op(uint32_t index, tenon_op_entry* out_entry);

// Registers an op of the app's own, for all graphs of the process. Fails if the description is not
// valid, or if an op with other parts, flags or another set of rules is registered under the same
// domain, name and version. Registering an equal one again does nothing: the rules of the first one
// count. There is no way back: graphs may use the op.
TENON_API tenon_status* tenon_op_register(const tenon_op_desc* op);


// ---- Graphs -------------------------------------------------------------------------------------

TENON_API tenon_status* tenon_graph_create(tenon_str name, tenon_graph** out_graph);
TENON_API void tenon_graph_destroy(tenon_graph* graph);

// Parses the text form of a graph. file_name appears in error messages.
TENON_API tenon_status* tenon_graph_parse(tenon_str text, tenon_str file_name,
                                          tenon_graph** out_graph);

// Prints the text form of a graph. tenon_graph_parse() reads it.
TENON_API tenon_status* tenon_graph_print(const tenon_graph* graph, tenon_text** out_text);

// Returns a symbolic dim for the shapes of inputs: a negative number. Equal names give the same
// symbol.
TENON_API tenon_status* tenon_graph_symbol(tenon_graph* graph, tenon_str name, int64_t* out_dim);

// Returns the name of a symbolic dim. TENON_NOT_FOUND if it is no symbol of the graph.
TENON_API tenon_status* tenon_graph_symbol_name(const tenon_graph* graph, int64_t dim,
                                                tenon_str* out_name);

// Adds an input: a tensor that is passed to each run.
TENON_API tenon_status* tenon_graph_input(tenon_graph* graph, tenon_str name, tenon_dtype dtype,
                                          uint32_t rank, const int64_t* dims,
                                          tenon_value* out_value);

// Adds a weight, whose content is in the store. trainable: 1 if the optimizer updates it.
TENON_API tenon_status* tenon_graph_weight(tenon_graph* graph, tenon_str name, tenon_dtype dtype,
                                           uint32_t rank, const int64_t* dims, uint32_t trainable,
                                           tenon_value* out_value);

// Adds state: content of the store that runs update (a cache, a counter).
TENON_API tenon_status* tenon_graph_state(tenon_graph* graph, tenon_str name, tenon_dtype dtype,
                                          uint32_t rank, const int64_t* dims,
                                          tenon_value* out_value);

// Adds a constant. data: dense, size bytes, copied.
TENON_API tenon_status* tenon_graph_constant(tenon_graph* graph, tenon_dtype dtype, uint32_t rank,
                                             const int64_t* dims, const void* data, uint64_t size,
                                             tenon_value* out_value);

// Adds a node. out_values: output_count values, TENON_NONE for outputs left out. Types are checked
// now if they are known, otherwise when symbols are bound.
TENON_API tenon_status* tenon_graph_add_node(tenon_graph* graph, const tenon_node_desc* node,
                                             tenon_value* out_values);

// Makes a value an output of the graph.
TENON_API tenon_status* tenon_graph_output(tenon_graph* graph, tenon_str name, tenon_value value);

// Updates a weight or state: after the run, `target` holds `value`. At most one update per target.
TENON_API tenon_status* tenon_graph_update(tenon_graph* graph, tenon_value target,
                                           tenon_value value);

TENON_API tenon_status* tenon_graph_type(const tenon_graph* graph, tenon_value value,
                                         tenon_tensor_type* out_type);

// Returns the dtype of a value, also while its type depends on symbols: it is inferred with numbers
// in their place. TENON_UNSUPPORTED if a node refuses all numbers that were tried.
TENON_API tenon_status* tenon_graph_dtype(tenon_graph* graph, tenon_value value,
                                          tenon_dtype* out_dtype);

// Return what a graph reads. space: TENON_SPACE_INPUT, TENON_SPACE_WEIGHT or TENON_SPACE_STATE.
TENON_API uint32_t tenon_graph_count(const tenon_graph* graph, uint32_t space);
TENON_API tenon_status* tenon_graph_name(const tenon_graph* graph, uint32_t space, uint32_t index,
                                         tenon_str* out_name, tenon_value* out_value,
                                         uint32_t* out_trainable);

// Return the outputs of a graph, in the order in which they were added. out_value may be NULL.
TENON_API uint32_t tenon_graph_output_count(const tenon_graph* graph);
TENON_API tenon_status* tenon_graph_output_name(const tenon_graph* graph, uint32_t index,
                                                tenon_str* out_name, tenon_value* out_value);

// Returns a new graph in primitives: symbols replaced by numbers, gradients expanded, composite ops
// and fused bodies decomposed, also inside functions. Inputs, weights, state, outputs and updates
// keep their names. An op without a decomposition stays. Results are the same up to rounding.
// symbols and numbers: one number for each symbol of the graph.
TENON_API tenon_status* tenon_graph_decompose(const tenon_graph* graph, const tenon_str* symbols,
                                              const int64_t* numbers, uint32_t count,
                                              tenon_graph** out_graph);


// ---- Training -----------------------------------------------------------------------------------

// Adds the gradients of a loss, which has one element. Each gradient has the type of its value.
// Values that do not affect the loss get zeros.
TENON_API tenon_status* tenon_graph_gradients(tenon_graph* graph, tenon_value loss,
                                              const tenon_value* wrt, uint32_t count,
                                              tenon_value* out_gradients);

// Adds the directional derivatives of outputs along tangents of inputs (forward mode): J·t for
// each output, where J is its Jacobian. All are floats. tangents: one for each input, of its type.
// out_tangents: output_count values of the types of the outputs; zeros where no input reaches.
// Every op on the path needs a second derivative. Otherwise compiling fails and names the op.
TENON_API tenon_status* tenon_graph_jvp(tenon_graph* graph, const tenon_value* outputs,
                                        uint32_t output_count, const tenon_value* inputs,
                                        const tenon_value* tangents, uint32_t input_count,
                                        tenon_value* out_tangents);

// Marks nodes for recomputation: those that depend on `from` and that `to` depends on, one layer of
// a network, for example. Gradients taken in this graph recompute their values instead of keeping
// them, which takes less memory and more time, and gives the same bits. A value is kept if a node
// outside the marked set reads it. If several calls cover a node, the first one counts.
TENON_API tenon_status* tenon_graph_checkpoint(tenon_graph* graph, const tenon_value* from,
                                               uint32_t from_count, const tenon_value* to,
                                               uint32_t to_count);

// tenon_optimizer::kind
#define TENON_OPTIMIZER_SGD   UINT32_C(1)
#define TENON_OPTIMIZER_ADAMW UINT32_C(2)
#define TENON_OPTIMIZER_LION  UINT32_C(3)

typedef struct tenon_optimizer {
  uint64_t struct_size;
  uint32_t kind;              // TENON_OPTIMIZER_*
  uint32_t skip_nonfinite;    // 1: a step whose gradient norm is not finite changes nothing
  tenon_value learning_rate;  // f32 scalar of the graph: an input, or computed
  uint32_t nesterov;          // sgd: 1 = Nesterov momentum
  double beta1, beta2;        // adamw, lion
  double eps;                 // adamw
  double momentum, dampening; // sgd
  double weight_decay;
  double clip_norm;           // largest global norm of the gradients, 0 = no clipping
  uint32_t decay_min_rank;    // weights of a lower rank get no decay; 2: only matrices decay
  uint32_t reserved0;
  tenon_str name;             // of the step counter, empty = "optimizer"; a graph may have several
                              // optimizers of different names, each with weights of its own
  const tenon_value* weights; // (optional) those to update, each once; NULL: all trainable ones
  uint32_t weight_count;
  uint32_t reserved1;
} tenon_optimizer;

// Adds a training step: gradients of the loss, clipping, optimizer, updates. The optimizer's state
// is named "<weight>.m" and so on, its step counter "<name>.step"; tenon_store_add_missing()
// creates it. A half-precision weight has an f32 master as state "<weight>.master": the step
// updates the master and writes its rounded value to the weight.
// out_norm, which may be NULL, gets the global norm of the gradients before clipping, an f32
// scalar.
TENON_API tenon_status* tenon_graph_minimize(tenon_graph* graph, tenon_value loss,
                                             const tenon_optimizer* optimizer,
                                             tenon_value* out_norm);

// Divide a training step between two graphs over one store, for batches that do not fit at once.
// accumulate() adds the gradients of the loss to state "<weight>.grad" and counts its runs in
// "optimizer.count". apply(), in a graph with the same trainable weights, divides by that count,
// does the optimizer's step and resets both. N runs of the first graph and one of the second equal
// one step on the mean of the N losses. Several optimizers: one apply() for each, all in the second
// graph, because they share the count. Together they name all trainable weights: each resets the
// sums of its own.
TENON_API tenon_status* tenon_graph_accumulate(tenon_graph* graph, tenon_value loss);
TENON_API tenon_status* tenon_graph_apply(tenon_graph* graph, const tenon_optimizer* optimizer,
                                          tenon_value* out_norm);


// ---- Stores -------------------------------------------------------------------------------------

// tenon_tensor::flags
#define TENON_TENSOR_READ_ONLY UINT32_C(1)       // nobody may write the data

// A tensor in memory of the app.
typedef struct tenon_tensor {
  uint64_t struct_size;
  const int64_t* dims;
  const int64_t* strides;     // in elements; NULL = dense
  void* data;                 // in host memory, or as the device's own code addresses it. Only read
                              // where the tensor is passed in, except by tenon_context_bind()
  uint64_t size;              // bytes at data
  uint32_t rank;
  tenon_dtype dtype;
  uint16_t reserved0;
  tenon_str device;           // where the data is: an id such as "cuda:0", empty = host memory.
                              // Data on a device must be dense. Before the app passes it to a call
                              // that copies, the work that writes it must have ended
  uint32_t flags;             // TENON_TENSOR_*
  uint32_t reserved1;
} tenon_tensor;

// Converts `count` dense elements from one dtype to another as the op cast does: to a float it
// rounds to nearest even, from a float to an integer it truncates and saturates (NaN gives 0), from
// integer to integer it wraps, to bool it is x != 0. Dtypes: f16, bf16, f32, f64, integers of 8
// bits or more, bool. The memory of source and target does not overlap.
TENON_API tenon_status* tenon_convert(tenon_dtype from, const void* source, tenon_dtype to,
                                      void* target, uint64_t count);

TENON_API tenon_status* tenon_store_create(tenon_runtime* runtime, tenon_store** out_store);
TENON_API void tenon_store_destroy(tenon_store* store);

// Sets or replaces a weight (TENON_SPACE_WEIGHT) or state (TENON_SPACE_STATE). The data is copied.
// Runs in flight keep the previous content.
TENON_API tenon_status* tenon_store_set(tenon_store* store, uint32_t space, tenon_str name,
                                        const tenon_tensor* tensor);

// Like tenon_store_set(), without a copy: devices that import memory (tenon_runtime_import_alignment())
// read it in place, others copy it once. It is dense host memory, and nobody may write it until
// release(user) is called: when the last run that reads it has ended, after the entry was set,
// updated or removed, or the store destroyed. Runs that update the entry update a copy. release may
// be NULL; it may come on any thread and must not call tenon. On failure it is not called.
TENON_API tenon_status* tenon_store_borrow(tenon_store* store, uint32_t space, tenon_str name,
                                           const tenon_tensor* tensor,
                                           void (*release)(void* user), void* user);

// Copies the content out after all runs that write it. size: exactly the bytes of the content.
TENON_API tenon_status* tenon_store_get(tenon_store* store, uint32_t space, tenon_str name,
                                        void* data, uint64_t size);

TENON_API tenon_status* tenon_store_type(tenon_store* store, uint32_t space, tenon_str name,
                                         tenon_tensor_type* out_type);

// Return the names in a space, sorted. The list is made once and kept until a name is added or
// removed.
TENON_API uint32_t tenon_store_count(tenon_store* store, uint32_t space);
TENON_API tenon_status* tenon_store_name(tenon_store* store, uint32_t space, uint32_t index,
                                         tenon_text** out_name);

// Creates the state of the graph that the store lacks: the f32 master of a weight from the weight,
// everything else (moments, caches, counters) as zeros.
TENON_API tenon_status* tenon_store_add_missing(tenon_store* store, const tenon_graph* graph);

// Removes an entry. Runs in flight keep its content; later runs that need it fail.
TENON_API tenon_status* tenon_store_remove(tenon_store* store, uint32_t space, tenon_str name);

// Sets every tensor of a safetensors file, with the names and types of the file.
TENON_API tenon_status* tenon_store_load(tenon_store* store, uint32_t space, tenon_str path);

// Writes a space to a safetensors file. Writes a temporary file first and renames it, so an
// existing file survives a failure. metadata: count pairs of key and value.
TENON_API tenon_status* tenon_store_save(tenon_store* store, uint32_t space, tenon_str path,
                                         const tenon_str* metadata, uint32_t count);

// Calls each for every tensor of a safetensors file, sorted by name. Reads the header and no
// contents. each must not call tenon.
TENON_API tenon_status* tenon_safetensors_tensors(tenon_str path,
                                                  void (*each)(void* user, tenon_str name,
                                                               const tenon_tensor_type* type),
                                                  void* user);

// Returns the metadata of a safetensors file as a JSON object.
TENON_API tenon_status* tenon_safetensors_metadata(tenon_str path, tenon_text** out_json);

// Opens a safetensors file and maps it: contents are read when they are used. The file must not
// become shorter while it is open.
TENON_API tenon_status* tenon_safetensors_open(tenon_str path, tenon_safetensors** out_file);

// What tenon_safetensors_load() has put into a store keeps the file mapped.
TENON_API void tenon_safetensors_destroy(tenon_safetensors* file);
TENON_API uint32_t tenon_safetensors_count(const tenon_safetensors* file);

// Returns a tensor and its name, sorted by name. The name, the dims and the data, which is read-only
// and may not be aligned to its elements, live as long as the file is open.
TENON_API tenon_status* tenon_safetensors_get(const tenon_safetensors* file, uint32_t index,
                                              tenon_str* out_name, tenon_tensor* out_tensor);

// Sets a tensor as an entry of a store, without a copy (tenon_store_borrow()).
TENON_API tenon_status* tenon_safetensors_load(const tenon_safetensors* file, uint32_t index,
                                               tenon_store* store, uint32_t space, tenon_str name);


// ---- Files of models and tensors ----------------------------------------------------------------

typedef struct tenon_graph_import_options {
  uint64_t struct_size;

  // (optional) Patterns of names of weights: * stands for any characters, ? for one. Weights that
  // match one of them are trainable; all others are not. TENON_NOT_FOUND if one matches none.
  const tenon_str* trainable;

  // (optional) Inputs that become constants, and their content in host memory. Models whose shapes
  // depend on the content of an input need that. Parallel arrays. TENON_NOT_FOUND if the model lacks
  // an input of one of these names.
  const tenon_str* fixed_names;
  const tenon_tensor* const* fixed_tensors;

  uint32_t trainable_count;
  uint32_t fixed_count;
} tenon_graph_import_options;

// Reads a model file as a graph: ONNX, opsets 7 and later. Inputs and outputs keep their names, and
// dims with names become symbols. The weights are set in the store under their names in the file;
// small ones that are not trainable become constants. store may be NULL, then contents of weights
// are not read. External data is read from the folder of the file and nowhere else. options may be
// NULL. Fails with TENON_UNSUPPORTED and a list of all nodes that have no translation, each with
// the reason; the store is unchanged then.
TENON_API tenon_status* tenon_graph_import(tenon_str path,
                                           const tenon_graph_import_options* options,
                                           tenon_store* store, tenon_graph** out_graph);

// tenon_graph_export_options::external_data: where weights and constants are written
#define TENON_EXTERNAL_DATA_AUTO   UINT32_C(0)   // in the model if all take less than about 2 GiB
#define TENON_EXTERNAL_DATA_ALWAYS UINT32_C(1)   // those of 1 KiB or more in the file PATH.data

typedef struct tenon_graph_export_options {
  uint64_t struct_size;

  // (optional) The outputs to export, with what they need: updates and unused inputs are left out.
  // NULL: all outputs and inputs; a graph with updates is refused then.
  const tenon_str* outputs;

  // (optional) Numbers for all symbols of the graph; a part of them is refused. Parallel arrays.
  // Without them, symbols become dims with names. Requests for gradients, vmap, and most
  // decompositions (attention, for example) need numbers.
  const tenon_str* symbols;
  const int64_t* numbers;

  uint32_t output_count;
  uint32_t symbol_count;
  uint32_t external_data;     // TENON_EXTERNAL_DATA_*
  uint32_t reserved0;
} tenon_graph_export_options;

// Writes a graph as an ONNX model of opset 21; one that was read from ONNX with symbols is written in
// its own opset, without doc strings and metadata. Inputs and outputs keep their names. Weights and state
// become initializers with their content in the store; store may be NULL if there are none. Nodes
// without an op in ONNX are decomposed. Writes temporary files first and renames them. options may be
// NULL. Fails with TENON_UNSUPPORTED and a list of all nodes that have no form in ONNX, each with the
// reason, and without outputs with TENON_INVALID_ARGUMENT. If the process dies between the two
// renames, PATH.data is new and the model is not: export again.
TENON_API tenon_status* tenon_graph_export(const tenon_graph* graph, tenon_store* store,
                                           tenon_str path,
                                           const tenon_graph_export_options* options);

// Reads all tensors of a file: .npy and .npz of NumPy, or a TensorProto of ONNX (.pb). The content
// of the file decides which it is.
TENON_API tenon_status* tenon_tensors_read(tenon_str path, tenon_tensors** out_tensors);
TENON_API void tenon_tensors_destroy(tenon_tensors* tensors);
TENON_API uint32_t tenon_tensors_count(const tenon_tensors* tensors);

// Returns a tensor and its name, which is empty in a .npy file. The name, the dims and the data,
// which is read-only, live as long as `tensors`.
TENON_API tenon_status* tenon_tensors_get(const tenon_tensors* tensors, uint32_t index,
                                          tenon_str* out_name, tenon_tensor* out_tensor);

// Writes tensors in host memory to a file of NumPy: one to PATH.npy, any number to PATH.npz. Writes
// a temporary file first and renames it. names: may be NULL for .npy. deflate: 1 compresses the
// members of .npz. Fails with TENON_UNSUPPORTED for dtypes that NumPy lacks.
TENON_API tenon_status* tenon_tensors_write(tenon_str path, const tenon_str* names,
                                            const tenon_tensor* const* tensors, uint32_t count,
                                            uint32_t deflate);


// ---- Executables --------------------------------------------------------------------------------

// tenon_executable_options::fallback: what happens to a node that all named devices refuse
#define TENON_FALLBACK_ALLOW UINT32_C(0)         // it runs on the cpu plugin, and is reported
#define TENON_FALLBACK_DENY  UINT32_C(1)         // compiling fails

// tenon_executable_options::flags. TENON_COMPILE_AOT of backend.h is no such flag: it is what a
// plugin's compile() gets. For tests and debugging:
#define TENON_COMPILE_NO_SIMPLIFY   UINT32_C(1)  // run the graph as it is; implies NO_FUSE
#define TENON_COMPILE_DECOMPOSE_ALL UINT32_C(2)  // write every op in primitives; implies NO_FUSE
#define TENON_COMPILE_NO_FUSE       UINT32_C(4)  // neither fuse nodes nor recognize composite ops
// A hint: a row of a product has the same bits alone and among others, and a query of attention has
// the same bits whichever other queries come with it. Each device does what it can for this, which
// may cost time; what cuda does is in the README of that plugin, "Batch invariance". The cpu plugin
// does not need it for the graphs of language models.
#define TENON_COMPILE_BATCH_INVARIANT UINT32_C(8)

// tenon_executable_options::compile_mode: when the code of a device is generated
#define TENON_COMPILE_MODE_JIT UINT32_C(0)       // when it is first needed: as runs begin
#define TENON_COMPILE_MODE_AOT UINT32_C(1)       // all of it when the graph is compiled

typedef struct tenon_executable_options {
  uint64_t struct_size;
  tenon_str device;           // "auto", "cpu", "cuda:0", or several: "cuda:0,cuda:1" (see below);
                              // empty = "auto"
  uint32_t fallback;          // TENON_FALLBACK_*
  uint32_t flags;             // TENON_COMPILE_NO_SIMPLIFY, _DECOMPOSE_ALL, _NO_FUSE,
                              // _BATCH_INVARIANT
  uint32_t exec_mode;         // TENON_EXEC_* (types.h). EAGER helps to find the step that
                              // fails: tenon_context_run_async() waits for the run as well
  uint32_t lanes;             // MULTI_STREAM: the most steps that may overlap, 1 to
                              // TENON_MAX_LANES, 0 = 4; more lanes need more memory. A device
                              // without lanes runs one; the log and the report state this. Must be
                              // 0 in other modes
  uint32_t compile_mode;      // TENON_COMPILE_MODE_*
  uint32_t reserved0;

  // (optional) Reports the progress of AOT: parts done, parts in total. Return 0 to continue. After
  // any other value, compiling finishes the parts in progress and fails with TENON_CANCELLED.
  //
  // Called in the compiling thread at the start, after progress, and about 20 times a second; not
  // called if there is nothing to do. The compiling thread is the one that creates the executable,
  // or, with symbols, the one that starts a run or asks for a report. The callback must not use
  // this executable or its contexts. It and progress_user must outlive them.
  uint32_t (*progress)(void* user, uint32_t done, uint32_t total);
  void* progress_user;

  // (optional) Pins: put nodes on a device of the list. Parallel arrays: patterns of names as in
  // fnmatch(3) ("layers.1?.*"), and ids of devices, or kinds: the first of that kind in the list. A
  // node's name is its provenance, or that of its first output, in the graph as it was built; where
  // several patterns match, the first counts. A node without a name that reads neither weights nor
  // state goes with the last node whose result it reads, if that one is pinned. Gradients go with
  // the node that they are of. The log and the report name patterns that match no node.
  const tenon_str* pin_patterns;
  const tenon_str* pin_devices;

  // (optional) The most bytes that the graph may need on a device: weights and state, including
  // those shared with other executables, intermediates, constants, inputs and outputs. One number
  // for each device of the list, or one for all; 0 = no limit. A cpu that the list does not name
  // has no limit. If no plan is found that keeps the limits, compiling fails with
  // TENON_OUT_OF_MEMORY.
  const uint64_t* memory_limits;
  uint32_t memory_limit_count;
  uint32_t pin_count;

  // (optional) Buckets: sizes to which the numbers of symbols are rounded up, so that runs of many
  // sizes share a few plans. Parallel arrays: symbols of the graph, each at most once, and for each
  // one of these texts:
  //
  //   "exact"             a plan for each number, as without a bucket
  //   "pow2"              powers of two
  //   "pow2:LEAST..MOST"  powers of two from LEAST on, and MOST in the place of those above it; one
  //                       of both may be left out
  //   "64,128,512"        these sizes
  //
  // A number above all sizes, and 0, gets a plan of its own. Inputs and outputs have their own
  // sizes, without padding. Padding counts nowhere: results differ from those of exact sizes by
  // rounding at most. Where an op does not allow that, or the graph does not take a size, the run
  // fails by name (TENON_UNSUPPORTED). An index that is out of range is reported with the padding
  // added to it. If inputs or outputs are bound to memory of the app, a run uses exact sizes.
  const tenon_str* bucket_symbols;
  const tenon_str* bucket_sizes;
  uint32_t bucket_count;
  uint32_t reserved1;
} tenon_executable_options;

// Several devices, of any plugins, each named once:
//   - Neighbours of one kind share the graph by memory: each gets a run of consecutive nodes, in
//     the order in which the graph was built, so that weights, state and intermediates take equal
//     parts of the devices' memory. A run of nodes ends where few bytes have to be copied.
//   - What neighbours have no room for goes to the devices behind them.
//   - A node that its device refuses goes to the first device of the list that takes it, or to the
//     cheapest if the rates of all are measured.
//   - Parts that do not depend on each other run at the same time.
//   - Executables with a list that share a store place each weight and state on the device where
//     the first of them put it. If a limit forbids that, a later one keeps copies elsewhere; the
//     log and the report say so.

// Compiles a graph, which is copied. A graph with symbols is compiled once for each set of sizes
// that runs bring, rounded up where symbols have buckets. options may be NULL.
TENON_API tenon_status* tenon_executable_create(tenon_runtime* runtime, const tenon_graph* graph,
                                                tenon_store* store,
                                                const tenon_executable_options* options,
                                                tenon_executable** out_executable);
TENON_API void tenon_executable_destroy(tenon_executable* executable);

// Returns what became of each node, as JSON. symbols and numbers: for a graph with symbols, the
// sizes to report on.
//
//   nodes     name, op, device, verdict (native, decomposed, fallback), reason, note (what was
//             fused), flops (of matrix products)
//   regions   device, steps, transfers_in, lanes, waits, lanes_note (why there is only one lane)
//   steps     region, label, node, scratch, lane, after (the steps of other lanes, counted within
//             the region, that it waits for)
//   memory    device, peak, bound (the lower bound for this order of steps), weights,
//             derived_weights (copies of weights in a layout of the plugin), state, constants,
//             inputs, outputs, limit (0 = none)
//   bytes     inputs, weights, state and outputs of a run, each counted once
//   exec      execution mode
//   compile   compile mode
//   remarks   what the plan as a whole had to choose or do without
TENON_API tenon_status* tenon_executable_report(tenon_executable* executable,
                                                const tenon_str* symbols, const int64_t* numbers,
                                                uint32_t count, tenon_text** out_json);


// ---- Runs ---------------------------------------------------------------------------------------

TENON_API tenon_status* tenon_context_create(tenon_executable* executable,
                                             tenon_context** out_context);
TENON_API void tenon_context_destroy(tenon_context* context);

// Sets an input for the following runs. Its name, dtype and shape are checked; the data is copied.
// Ends a binding of the input. A call during a run takes effect after that run, so an app can
// prepare the next batch while the device works; the last call counts. An input may be left out if
// no output, no update and no ordered node needs it, unless it alone gives a symbol its number, or
// the graph is compiled with TENON_COMPILE_NO_SIMPLIFY and a node reads it.
TENON_API tenon_status* tenon_context_set(tenon_context* context, tenon_str input,
                                          const tenon_tensor* tensor);

// Runs and waits.
//
// Runs whose executables share a store are ordered where they touch the same entry: a run that
// reads or updates an entry waits for all earlier runs that update it, and a run that updates an
// entry waits for all earlier runs that read it. The earlier run is the one for which
// tenon_context_run() or tenon_context_run_async() was called first. Other runs may overlap.
TENON_API tenon_status* tenon_context_run(tenon_context* context);

// Starts a run and returns. Wait for it before the context is used again. Fails with
// TENON_OUT_OF_MEMORY if there is no thread for it and the system creates none.
//
// If the context uses a stream of the app (tenon_context_use_stream), or the run waits for an event
// of the app or records one (tenon_context_wait_event, tenon_context_record_event), the calling
// thread enqueues the run before this function returns: what the app enqueues on the stream
// afterwards comes after the run, and the event is recorded. The call first waits for earlier runs
// that must come before this one. These runs have ended when it returns:
//   - those of several regions, and those on a device without streams
//   - those with control flow
//   - those that copy bound memory
//   - those whose update is also an output
TENON_API tenon_status* tenon_context_run_async(tenon_context* context);

// Sets a callback for the end of following asynchronous runs; NULL removes it. It gets the code of
// the run's failure, or TENON_OK. It comes once per run, on any thread, before tenon_context_wait()
// returns and before runs that wait for this one begin. It should only signal: it must not call
// tenon. The context is still in flight then: call tenon_context_wait() before using it again. The
// callback does not come if tenon_context_run_async() itself fails. Setting it fails while a run is
// in flight.
TENON_API tenon_status* tenon_context_on_end(tenon_context* context,
                                             void (*callback)(void* user, tenon_code code),
                                             void* user);

// Asks the run in flight to end before its next step; it then fails with TENON_CANCELLED. Weights
// and state that it would have updated are undefined, unless it had not begun. Steps that were
// enqueued on a device still run. Has no effect if no run is in flight or if the run is past its
// last step. [any-thread], also during any other call with this context except
// tenon_context_destroy().
TENON_API void tenon_context_cancel(tenon_context* context);

// Sets *out_done to 1 if the run is done, else to 0. If the run is done and failed, sets *out_done
// to 1 and returns the failure.
TENON_API tenon_status* tenon_context_query(tenon_context* context, uint32_t* out_done);

// Waits for the run in flight, if there is one, and returns its failure, if any.
TENON_API tenon_status* tenon_context_wait(tenon_context* context);

// Returns the type of an output of the last run.
TENON_API tenon_status* tenon_context_output_type(tenon_context* context, tenon_str output,
                                                  tenon_tensor_type* out_type);

// Copies an output of the last run. size: exactly its size in bytes.
TENON_API tenon_status* tenon_context_get(tenon_context* context, tenon_str output, void* data,
                                          uint64_t size);


// ---- Memory of the app, without a copy ----------------------------------------------------------
//
// Devices of a plugin with tenon.import_memory/1 (cpu and cuda have it) read inputs and write
// outputs in memory of the app. A trace shows no write, copy or read for them. Other memory (host
// memory for a run on a GPU, a device that cannot import) is copied once in each run.

// Binds an input or output of this name to memory of the app, for the following runs. Its dtype,
// shape and alignment are checked (tenon_runtime_import_alignment(), and the size of an element);
// strides, if given, are those of a dense tensor. Fails with TENON_NOT_FOUND if there is no such
// name, and with TENON_INVALID_ARGUMENT if an output is read-only or overlaps other bound memory.
// An output whose type depends on symbols is checked when a run begins. Fails while a run is in
// flight.
//
// Each run reads the input when it begins; on a stream of the app, when the stream reaches the run.
// Until the run has ended, the app changes the input only by work that it enqueues behind the run
// on that stream. The memory must stay valid until one of these:
//   - the name is set or unbound
//   - the first run after the name was bound to other memory has ended
//   - the context is destroyed
//
// After an output is bound to other memory or unbound, the last result in the former memory can no
// longer be read through the context. A device with captured graphs (TENON_EXEC_GRAPH) captures
// again after a binding has changed; an app that alternates between buffers keeps a context for
// each. Binding the same memory again changes nothing.
TENON_API tenon_status* tenon_context_bind(tenon_context* context, tenon_str name,
                                           const tenon_tensor* tensor);

// Ends a binding. The input must be set or bound before the next run; the output is in memory of
// the context again. Fails while a run is in flight.
TENON_API tenon_status* tenon_context_unbind(tenon_context* context, tenon_str name);

// Describes the place of an output of the last run: the bound memory, else memory of the context.
// data is NULL if it has no elements. Dims, device and, unless it is bound, the data belong to the
// context and are valid until the next run begins. Fails with TENON_UNSUPPORTED if the plugin gives
// no addresses.
TENON_API tenon_status* tenon_context_output(tenon_context* context, tenon_str output,
                                             tenon_tensor* out_tensor);

// DLPack (version 1 of its managed tensors) exchanges tensors with PyTorch, NumPy, JAX, CuPy and
// others. DLManagedTensorVersioned is declared in their dlpack.h.
struct DLManagedTensorVersioned;

// Like tenon_context_bind(). On success the context owns the tensor and calls its deleter when no
// run uses it any more: when the name is set or unbound, when the first run after another
// tenon_context_bind() has begun, or when the context is destroyed. The deleter may come on any
// thread and must not call tenon. On failure the caller keeps the tensor.
TENON_API tenon_status* tenon_context_bind_dlpack(tenon_context* context, tenon_str name,
                                                  struct DLManagedTensorVersioned* tensor);

// Passes an output of the last run on as a DLPack tensor, without a copy. The receiver calls its
// deleter, on any thread, also after all objects of tenon are destroyed. Until then the content
// does not change: runs write to other memory. Work on a device that still reads the tensor must be
// done when the deleter is called, or ordered before later runs. Fails with TENON_INVALID_ARGUMENT
// if the output is bound to memory of the app, and with TENON_UNSUPPORTED if DLPack has no name for
// the device or the dtype.
TENON_API tenon_status* tenon_context_output_dlpack(tenon_context* context, tenon_str output,
                                                    struct DLManagedTensorVersioned** out_tensor);

// Describes a DLPack tensor, for tenon_context_set() or tenon_store_set(), which copy. Dims and
// data are those of `tensor`, which stays the caller's; the device is a text of the runtime.
TENON_API tenon_status* tenon_tensor_from_dlpack(tenon_runtime* runtime,
                                                 const struct DLManagedTensorVersioned* tensor,
                                                 tenon_tensor* out_tensor);


// ---- Streams and events of the app --------------------------------------------------------------
//
// For apps that use a device themselves, such as a CUDA app (streams are CUstream, events CUevent).
// device is one of the executable's ("cuda:0"). The functions fail with TENON_UNSUPPORTED if its
// plugin lacks tenon.native_streams/1, as cpu does, and while a run is in flight.

// Makes following runs use a stream of the app, which stays the app's and must outlive its use
// here; NULL ends that. CUDA's default stream is CU_STREAM_LEGACY or CU_STREAM_PER_THREAD. These
// calls wait for all work of the app's stream: changing the stream, destroying the context, and
// starting a run that fails or is cancelled while it is enqueued. The stream must not be under
// capture during these calls, or when a run is started.
TENON_API tenon_status* tenon_context_use_stream(tenon_context* context, tenon_str device,
                                                 void* native_stream);

// Returns the stream that runs of this context use on a device: one of the app, or one of tenon, to
// which a DLPack producer can be told to order its work. It lives as long as the context.
TENON_API tenon_status* tenon_context_stream(tenon_context* context, tenon_str device,
                                             void** out_native_stream);

// Makes the next run wait for an event of the app. May be called several times before a run. Each
// call applies to one attempt to start a run, even if that run does not start. The app may record
// or destroy the event once tenon_context_run_async() has returned, or the run has ended.
TENON_API tenon_status* tenon_context_wait_event(tenon_context* context, tenon_str device,
                                                 void* native_event);

// Makes the next run record an event of the app after its work. If the run fails, the event may
// never be recorded. May be called several times before a run.
TENON_API tenon_status* tenon_context_record_event(tenon_context* context, tenon_str device,
                                                   void* native_event);

#ifdef __cplusplus
}
#endif
#endif
