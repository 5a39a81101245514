/* SPDX-License-Identifier: Apache-2.0
 * The backend C ABI: what a plugin gives the host (tenon_backend) and what the host gives a plugin
 * (tenon_host).
 *
 * A plugin exports one symbol, tenon_backend_entry, and links nothing of the host. All else goes
 * through the two tables. Authors in C++ rarely see this file: plugin.hpp turns a table "op ->
 * kernel" into all of it.
 *
 * Laws
 *  - Every struct starts with struct_size, set by whoever made it; a reader uses a field only when
 *    struct_size covers it (TENON_HAS). Fields are only ever appended. Arrays of structs carry
 * their stride.
 *  - A function that can fail returns tenon_status*: NULL is success, else the caller releases it
 * with host->release_status. An out-parameter is written only on success.
 *  - *_create and *_open give ownership, the matching *_destroy / *_close / *_release takes it
 * back. What an accessor returns is borrowed and lives as long as its owner.
 *  - No exception, longjmp or signal handler crosses. No pointer of a call is kept after its
 * return, unless said.
 *  - The host checks everything that a plugin says; a plugin may trust the host.
 *  - A null slot in a table means that the feature is absent. Slots marked (required) are all that
 * a host will ever require.
 *
 * Threads. Each slot says from where it may be called:
 *  [load]            one thread, while the plugin is loaded or shut down; no other call is under
 * way [any-thread]      any thread, several at once [object]          any thread, but one at a time
 * per object named first in the call A plugin starts no threads of its own unless
 * host->thread_budget() allows it, and never more than that. */
#ifndef TENON_BACKEND_H
#define TENON_BACKEND_H

#include "types.h"
#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True when the struct behind p is large enough to hold field. */
#define TENON_HAS(type, p, field) ((p)->struct_size >= offsetof(type, field) + sizeof((p)->field))

typedef struct tenon_status tenon_status; /* host-owned: made by host->make_status */
typedef struct tenon_plugin tenon_plugin; /* plugin-owned from here on: what create returned */
typedef struct tenon_device tenon_device;
typedef struct tenon_stream tenon_stream;
typedef struct tenon_event tenon_event;
typedef struct tenon_buffer tenon_buffer;
typedef struct tenon_program tenon_program;
typedef struct tenon_instance tenon_instance;

/* ---- Status
 * -------------------------------------------------------------------------------------------------
 */

#define TENON_STATUS_RETRYABLE \
  UINT32_C(1) /* the same call may succeed later (memory, a busy device) */

/* What a plugin says went wrong. step and index matter for run-time failures: the host turns the
 * step into the node's name. */
typedef struct tenon_status_desc {
  uint64_t struct_size;
  tenon_code code;
  uint16_t reserved0;
  uint32_t flags;      /* TENON_STATUS_* */
  tenon_str text;      /* names the operand, what was expected and what came; copied */
  tenon_str origin;    /* plugin and function; copied */
  tenon_status* cause; /* taken over, may be NULL */
  uint64_t run_id;     /* of the failed run, 0 = none */
  uint32_t step;       /* step of the program, TENON_NONE = none */
  uint32_t reserved1;
  int64_t index; /* first bad flat index, -1 = none */
} tenon_status_desc;

/* ---- The host's table
 * --------------------------------------------------------------------------------------- */

typedef struct tenon_host {
  uint64_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor_min; /* lowest and highest minor that the host speaks */
  uint32_t abi_minor_max;
  uint32_t reserved0;
  tenon_str version; /* of the host program library, for messages; lives as long as the host */

  /* [any-thread] Makes a status. Never fails: without memory it returns a static out-of-memory
   * status. */
  tenon_status* (*make_status)(const tenon_status_desc* desc);
  /* [any-thread] NULL is allowed. */
  void (*release_status)(tenon_status* status);
  /* [any-thread] Code of a status; TENON_OK for NULL. */
  tenon_code (*status_code)(const tenon_status* status);
  /* [any-thread] Text of a status, borrowed. */
  tenon_str (*status_text)(const tenon_status* status);
  /* [load] Called by tenon_backend_entry before it returns NULL: says why it refuses. The text is
   * copied. */
  void (*refuse)(tenon_str reason);
  /* [any-thread] level: 0 debug, 1 info, 2 warning, 3 error. */
  void (*log)(uint32_t level, tenon_str text);
  /* [any-thread] How many threads, the caller's included, a plugin's computing may use at once;
   * >= 1. */
  uint32_t (*thread_budget)(void);
  /* [any-thread] A host extension by id, or NULL. Ids are "tenon.<name>/<revision>", others use
   * reverse DNS. */
  const void* (*get_extension)(tenon_str id);
} tenon_host;

/* ---- Devices
 * ------------------------------------------------------------------------------------------------
 */

#define TENON_DEVICE_HOST_ADDRESSABLE UINT32_C(1) /* buffer_address works */
#define TENON_DEVICE_HOST_THREADS                                           \
  UINT32_C(2) /* computes on the calling thread and the plugin's workers: a \
                 synchronous run costs no hand-over */
#define TENON_DEVICE_REBIND_DEAR \
  UINT32_C(4) /* rebinding an instance is expensive (a captured graph) */
#define TENON_DEVICE_LANES \
  UINT32_C(                \
      8) /* runs the lanes of a binding; else core gives every step the one lane, and says so */

typedef struct tenon_device_info {
  uint64_t struct_size;
  tenon_str kind;          /* "cpu", "cuda": the word before the colon in "cuda:0" */
  tenon_str name;          /* of the hardware, for people */
  tenon_str reason;        /* not empty: the device is seen but cannot be opened, and why */
  uint64_t memory_size;    /* bytes, 0 = unknown */
  uint64_t max_allocation; /* bytes of the largest buffer, 0 = memory_size */
  uint64_t alignment;      /* bytes: every slot's offset is a multiple; a power of two, 0 = 64 */
  uint32_t flags;          /* TENON_DEVICE_* */
  uint32_t reserved0;
} tenon_device_info;

typedef struct tenon_device_list {
  uint64_t struct_size;
  const tenon_device_info* const* devices;
  uint32_t count;
  uint32_t reserved0;
  tenon_str note; /* with count 0: why ("no NVIDIA driver"); else empty or a remark */
} tenon_device_list;

typedef struct tenon_device_options {
  uint64_t struct_size;
  uint32_t threads; /* wanted width, 0 = host->thread_budget() */
  uint32_t reserved0;
} tenon_device_options;

/* ---- Query
 * --------------------------------------------------------------------------------------------------
 */

#define TENON_VERDICT_REFUSED UINT32_C(0)
#define TENON_VERDICT_NATIVE UINT32_C(1)

/* Why a node is refused. */
#define TENON_REASON_NONE UINT32_C(0)
#define TENON_REASON_OP UINT32_C(1) /* no kernel for this op and version */
#define TENON_REASON_DTYPE UINT32_C(2)
#define TENON_REASON_SHAPE UINT32_C(3)
#define TENON_REASON_ATTRIBUTE UINT32_C(4) /* an attribute's value */
#define TENON_REASON_UNKNOWN \
  UINT32_C(5) /* the node carries something that the plugin does not know */
#define TENON_REASON_OTHER UINT32_C(6)

typedef struct tenon_verdict {
  uint32_t verdict; /* TENON_VERDICT_* */
  uint32_t reason;  /* TENON_REASON_* when refused */
  tenon_str text;   /* the reason for people */
  double cost;      /* seconds, estimated; 0 = unknown */
  uint32_t group;   /* nodes of one group are claimed all or none; TENON_NONE = by itself */
  uint32_t reserved0;
} tenon_verdict;

typedef struct tenon_query_result {
  uint64_t struct_size;
  const tenon_verdict* verdicts; /* one per node of function 0, in order */
  uint64_t verdict_stride;       /* bytes from one to the next */
  uint32_t count;
  uint32_t reserved0;
} tenon_query_result;

/* ---- Programs
 * -----------------------------------------------------------------------------------------------
 */

/* A value of a program: a value of the region's graph, or one of the program's own (source
 * TENON_NONE). Only storage and views need be listed, not what a fused step keeps in registers;
 * inputs, weights, constants, state and outputs of the region always. An output that no node makes
 * (an input that leaves) stands twice: as given, and as its copy. */
typedef struct tenon_program_value {
  uint32_t source;    /* value index in function 0 of the blob, or TENON_NONE */
  uint32_t flags;     /* 0 */
  uint64_t size;      /* bytes; for a value of the graph that is dense: its type's size */
  uint64_t alignment; /* bytes, 0 = the device's */
  /* Not empty: a derived weight (derived_weights.h). source is a weight that the executable
   * does not update, and the slot holds what derive made of it: size bytes of the plugin's own.
   * Equal layouts of equal types hold equal bytes, so that programs share them: the text says all
   * that they depend on. Never written; a source may be listed so beside its plain listing, and
   * once per layout. */
  tenon_str layout;
} tenon_program_value;

/* to may share from's storage. VIEW: to is from's bytes beginning at offset, always (nothing is
 * computed); its layout is the program's own business, a region output is none, no step writes it.
 * IN_PLACE: the step still is right when core gives both the same address, and core may. */
#define TENON_ALIAS_VIEW UINT32_C(1)
#define TENON_ALIAS_IN_PLACE UINT32_C(2)

typedef struct tenon_alias {
  uint32_t kind;
  uint32_t from; /* index into the program's values */
  uint32_t to;
  uint32_t reserved0;
  uint64_t offset; /* bytes, VIEW only */
} tenon_alias;

/* A step runs after the steps before it whose values it touches. Between its first and last step
 * the program touches nothing but what its steps declare. A step writes every byte of what it
 * writes. */
typedef struct tenon_step {
  uint32_t node; /* node index in function 0, TENON_NONE = none or several */
  uint32_t read_count;
  const uint32_t* reads; /* indices into the program's values */
  const uint32_t* writes;
  uint32_t write_count;
  uint32_t alias_count;
  const tenon_alias* aliases;
  uint64_t scratch_size; /* bytes that live only while the step runs */
  tenon_str label;       /* kernel name, for reports */
} tenon_step;

typedef struct tenon_program_info {
  uint64_t struct_size;
  const tenon_program_value* values;
  uint64_t value_stride;
  const tenon_step* steps;
  uint64_t step_stride;
  uint32_t value_count;
  uint32_t step_count;
} tenon_program_info;

#define TENON_COMPILE_AOT                                                                       \
  UINT32_C(1) /* generate all code now; else code may wait for its first use. A plugin that has \
                 tenon.prepare/1 (prepare.h) is asked part by part instead */

typedef struct tenon_compile_options {
  uint64_t struct_size;
  uint32_t flags;
  uint32_t exec_mode;     /* TENON_EXEC_* (types.h); an unknown one is as DEFAULT */
  uint64_t scratch_limit; /* bytes per step, 0 = no limit */
} tenon_compile_options;

/* An address: core does no pointer arithmetic. */
typedef struct tenon_slot {
  tenon_buffer* buffer; /* NULL only for a value or scratch of size 0, or a value nobody touches */
  uint64_t offset;      /* bytes */
} tenon_slot;

/* `step` begins when `after`, an earlier step of another lane, is done. */
typedef struct tenon_lane_wait {
  uint32_t step;
  uint32_t after;
} tenon_lane_wait;

/* Lanes, for a program compiled with MULTI_STREAM on a device that says LANES: core decides which
 * steps may run beside each other, and the addresses stand on it. A lane runs its steps in the
 * program's order; a step begins when all that it waits for is done, and does not count on more:
 * no other order between lanes holds. Every lane begins behind what the run's stream has to do
 * before the run; the run is done, and its stream goes on, when all lanes are done. Which lane runs
 * where is the plugin's business; one that runs all steps in the program's order is right, too. */
typedef struct tenon_binding {
  uint64_t struct_size;
  const tenon_slot* values;  /* one per program value; a view's slot is its base plus its offset */
  const tenon_slot* scratch; /* one per step */
  uint32_t value_count;
  uint32_t step_count;
  const uint32_t* lanes;        /* one per step, below lane_count; NULL: one lane */
  const tenon_lane_wait* waits; /* in the order of their steps */
  uint32_t lane_count;          /* 0 and 1: one lane; at most TENON_MAX_LANES */
  uint32_t wait_count;
} tenon_binding;

typedef struct tenon_run_args {
  uint64_t struct_size;
  uint64_t run_id;      /* goes into the status of a failure */
  tenon_stream* stream; /* NULL: return when the work is done */
  tenon_event* done;    /* NULL, or recorded behind the work; only with a stream */
} tenon_run_args;

/* ---- The plugin's table
 * ------------------------------------------------------------------------------------- */

typedef struct tenon_backend {
  uint64_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor_min; /* what the plugin speaks; the host picks the highest common minor */
  uint32_t abi_minor_max;
  uint32_t reserved0;
  tenon_str name; /* "cpu": lower case, no spaces */
  tenon_str version;
  tenon_str vendor;

  /* (required) [load] Makes the plugin's state. abi_minor is the agreed one. No device work: a
   * missing driver is not a failure here. The host's table lives until shutdown returns. */
  tenon_status* (*create)(const tenon_host* host, uint32_t abi_minor, tenon_plugin** out_plugin);
  /* (required) [load] Every object is gone by now. After it only leaks are allowed, no driver
   * calls. */
  void (*shutdown)(tenon_plugin* plugin);
  /* (required) [load] Cheap. No device is success with count 0 and a note. The list lives until
   * shutdown. */
  tenon_status* (*enumerate)(tenon_plugin* plugin, const tenon_device_list** out_devices);

  /* (required) [any-thread] May be slow and may fail. */
  tenon_status* (*device_open)(tenon_plugin* plugin, uint32_t index,
                               const tenon_device_options* options, tenon_device** out_device);
  /* (required) [any-thread] Waits for what is under way. */
  void (*device_close)(tenon_device* device);

  /* (required) [any-thread] size > 0, at most max_allocation; contents undefined. */
  tenon_status* (*buffer_create)(tenon_device* device, uint64_t size, tenon_buffer** out_buffer);
  /* (required) [any-thread] Nothing under way uses it. */
  void (*buffer_destroy)(tenon_buffer* buffer);
  /* (required) [any-thread] Copies from host memory. With a stream: in stream order, and source
   * must stay unchanged until the stream has passed; without: source is free on return. */
  tenon_status* (*buffer_write)(tenon_buffer* buffer, uint64_t offset, const void* source,
                                uint64_t size, tenon_stream* stream);
  /* (required) [any-thread] Copies to host memory. With a stream: target is valid when the stream
   * has passed. */
  tenon_status* (*buffer_read)(tenon_buffer* buffer, uint64_t offset, void* target, uint64_t size,
                               tenon_stream* stream);
  /* (optional) [any-thread] Host address of a buffer; must be there when the device says
   * HOST_ADDRESSABLE. */
  void* (*buffer_address)(tenon_buffer* buffer);
  /* (optional) [any-thread] Copies within or between buffers of this plugin's devices; ranges do
   * not overlap. */
  tenon_status* (*buffer_copy)(tenon_buffer* target, uint64_t target_offset, tenon_buffer* source,
                               uint64_t source_offset, uint64_t size, tenon_stream* stream);

  /* (required) [any-thread] What of this graph would run here? Pure and deterministic. The blob is
   * valid for the call only. */
  tenon_status* (*query)(tenon_device* device, const void* blob, uint64_t size,
                         const tenon_query_result** out_result);
  /* (required) [any-thread] */
  void (*query_release)(tenon_device* device, const tenon_query_result* result);

  /* (required) [any-thread] Compiles a region whose every node was claimed when queried whole. May
   * fail for want of memory only. */
  tenon_status* (*compile)(tenon_device* device, const void* blob, uint64_t size,
                           const tenon_compile_options* options, tenon_program** out_program);
  /* (required) [any-thread] Values and steps; lives as long as the program. */
  const tenon_program_info* (*program_info)(tenon_program* program);
  /* (required) [any-thread] Its instances are gone. */
  void (*program_destroy)(tenon_program* program);

  /* (required) [any-thread] Fixes every address. Buffers stay alive and in place as long as the
   * instance. */
  tenon_status* (*instantiate)(tenon_program* program, const tenon_binding* binding,
                               tenon_instance** out_instance);
  /* (required) [object] Not while it runs. */
  void (*instance_destroy)(tenon_instance* instance);
  /* (optional) [object] Same program, new addresses; not while it runs. Absent: core instantiates
   * anew. */
  tenon_status* (*rebind)(tenon_instance* instance, const tenon_binding* binding);
  /* (required) [object] Runs all steps. Without a stream: returns when done, with the failure if
   * there is one. With a stream: enqueues; a failure of the data (an index out of range) is
   * reported by the wait on the stream or event behind it, with run_id, step and index. A run that
   * fails to enqueue may leave steps behind on the stream: the host synchronizes it before it uses
   * a buffer again. One run of an instance is under way at a time. */
  tenon_status* (*run)(tenon_instance* instance, const tenon_run_args* args);

  /* Streams and events: all or none of them. A plugin without is called from workers of the host.
   */
  /* (optional) [any-thread] native_handle: adopt a foreign stream (not owned) when not NULL. */
  tenon_status* (*stream_create)(tenon_device* device, void* native_handle,
                                 tenon_stream** out_stream);
  void (*stream_destroy)(tenon_stream* stream); /* waits for its work */
  tenon_status* (*stream_synchronize)(
      tenon_stream* stream); /* first failure since the last synchronization */
  /* (optional) [any-thread] An event is unset until recorded; recording again rearms it. */
  tenon_status* (*event_create)(tenon_device* device, tenon_event** out_event);
  void (*event_destroy)(tenon_event* event); /* work behind it may go on */
  tenon_status* (*event_record)(tenon_event* event, tenon_stream* stream);
  tenon_status* (*stream_wait_event)(tenon_stream* stream, tenon_event* event);
  /* out_done 0 or 1; the returned status is the work's failure once it is done. */
  tenon_status* (*event_query)(tenon_event* event, uint32_t* out_done);
  tenon_status* (*event_wait)(tenon_event* event);
  /* Calls back once when the event's work is done. The callback may do nothing but signal: it may
   * come on any thread, this one included, and may not call into the plugin. */
  tenon_status* (*event_on_done)(tenon_event* event, void (*callback)(void* user), void* user);

  /* (optional) [any-thread] A plugin extension by id, or NULL. Reserved: tenon.profiler/1,
   * tenon.import_memory/1, tenon.derived_weights/1, tenon.prepare/1, tenon.calibrate/1. */
  const void* (*get_extension)(tenon_plugin* plugin, tenon_str id);
} tenon_backend;

/* The one exported symbol. Returns a table that lives as long as the image, or NULL after
 * host->refuse(). Does no device work. [load] */
const tenon_backend* tenon_backend_entry(const tenon_host* host);
typedef const tenon_backend* (*tenon_backend_entry_fn)(const tenon_host* host);
#define TENON_BACKEND_ENTRY_NAME "tenon_backend_entry"

/* Frozen layout: moving a field is a break, and does not compile. */
#if defined(__cplusplus)
#define TENON_STATIC_ASSERT static_assert
#else
#define TENON_STATIC_ASSERT _Static_assert
#endif
TENON_STATIC_ASSERT(sizeof(void*) == 8, "tenon's ABI is for 64-bit platforms");
TENON_STATIC_ASSERT(offsetof(tenon_backend, create) == 72, "tenon_backend moved");
TENON_STATIC_ASSERT(offsetof(tenon_backend, run) == 224, "tenon_backend moved");
TENON_STATIC_ASSERT(sizeof(tenon_slot) == 16, "tenon_slot moved");
TENON_STATIC_ASSERT(sizeof(tenon_verdict) == 40, "tenon_verdict moved");
TENON_STATIC_ASSERT(sizeof(tenon_program_value) == 40, "tenon_program_value moved");
TENON_STATIC_ASSERT(sizeof(tenon_step) == 64, "tenon_step moved");
TENON_STATIC_ASSERT(sizeof(tenon_lane_wait) == 8, "tenon_lane_wait moved");

#ifdef __cplusplus
}
#endif
#endif
