// SPDX-License-Identifier: Apache-2.0
//
// Nodes, and ops of one's own: the part of the C interface that apps and plugins share. C11.
//
// An op is a schema (operands, attributes, outputs) with rules: functions that tell the types of its
// outputs, write a node in other ops, and differentiate it. An app registers ops with
// tenon_op_register() (tenon.h), a plugin with the extension "tenon.ops/1" (below). From then on
// every graph of the process may use them: built, as text, saved and loaded. Kernels come from any
// plugin, whose rows name domain and op. C++: op.hpp, a layer on top of this file.
//
// Only a shape rule is required. Without a decomposition the op runs only where a plugin has a
// kernel for it. Without a gradient the decomposition is differentiated; if that is missing too,
// gradients through the op are refused.

// The layout is made by hand:
// clang-format off
#ifndef TENON_OP_H
#define TENON_OP_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tenon_graph tenon_graph;


// ---- Nodes --------------------------------------------------------------------------------------

// A value of one graph. TENON_NONE = absent.
typedef uint32_t tenon_value;

// The caller sets struct_size.
typedef struct tenon_tensor_type {
  uint64_t struct_size;
  tenon_dtype dtype;          // TENON_DTYPE_NONE: depends on symbols that are not bound yet
  uint16_t rank;
  uint32_t reserved0;
  int64_t dims[TENON_MAX_RANK];
} tenon_tensor_type;

// tenon_arg::type: which field holds the value
#define TENON_ARG_I64      UINT32_C(1)
#define TENON_ARG_F64      UINT32_C(2)
#define TENON_ARG_BOOL     UINT32_C(3)
#define TENON_ARG_STR      UINT32_C(4)
#define TENON_ARG_INTS     UINT32_C(5)
#define TENON_ARG_FLOATS   UINT32_C(6)
#define TENON_ARG_DTYPE    UINT32_C(7)
#define TENON_ARG_FUNCTION UINT32_C(8)

// An attribute of a node.
typedef struct tenon_arg {
  tenon_str name;
  uint32_t type;              // TENON_ARG_*
  uint32_t count;             // INTS, FLOATS: number of elements
  int64_t i64;                // I64, BOOL, DTYPE
  double f64;                 // F64
  tenon_str str;              // STR
  const int64_t* ints;        // INTS
  union {
    const double* floats;         // FLOATS
    const tenon_graph* function;  // FUNCTION: a body; copied
  };
} tenon_arg;
#define TENON_ARG_SIZE_V1 72u

// A node to add. `tenon ops` lists the ops.
typedef struct tenon_node_desc {
  uint64_t struct_size;
  tenon_str domain;             // empty = "tenon"
  tenon_str op;
  const tenon_value* operands;  // in the order of the op: one for an operand, TENON_NONE = absent;
                                // for a list of operands, one for each of its entries
  const uint32_t* lists;        // how many entries each list has; lists behind list_count have none.
                                // NULL: the op's first list has all operands from its position on
  const tenon_arg* attributes;
  uint64_t attribute_stride;    // bytes from one attribute to the next: sizeof(tenon_arg)
  const uint8_t* want;          // one per output: 0 leaves out an optional output. NULL: only the
                                // outputs that are not optional
  tenon_str provenance;         // where the node comes from in the source; appears in messages; may
                                // be empty
  uint32_t version;             // of the op, 0 = the newest
  uint32_t operand_count;
  uint32_t list_count;
  uint32_t attribute_count;
  uint32_t output_count;        // of the op; for a list of outputs, as many as are wanted
  uint32_t reserved0;
} tenon_node_desc;


// ---- Schema -------------------------------------------------------------------------------------

// tenon_op_part::kind
#define TENON_PART_OPERAND          UINT32_C(1)
#define TENON_PART_OPTIONAL_OPERAND UINT32_C(2)
#define TENON_PART_OPERAND_LIST     UINT32_C(3)  // one or more operands
#define TENON_PART_OPTIONAL_LIST    UINT32_C(4)  // any number of operands
#define TENON_PART_ATTRIBUTE        UINT32_C(5)
#define TENON_PART_OUTPUT           UINT32_C(6)
#define TENON_PART_OPTIONAL_OUTPUT  UINT32_C(7)
#define TENON_PART_OUTPUT_LIST      UINT32_C(8)  // the last of the outputs

// An operand, an attribute or an output. Operands have the order of their positions, and so have
// outputs.
typedef struct tenon_op_part {
  tenon_str name;             // a C identifier, unique among operands and attributes, or outputs
  uint32_t kind;              // TENON_PART_*
  uint32_t type;              // of an attribute: TENON_ARG_*
  int64_t default_int;        // I64, BOOL (0, 1), DTYPE
  double default_float;       // F64; NaN: the op chooses the value
  tenon_str default_str;      // STR. An attribute `kind` with an empty default is required.
                              // INTS and FLOATS are empty by default; a FUNCTION is required
  tenon_str values;           // the words that a STR, or the dtypes that a DTYPE accepts, separated
                              // by spaces; empty = all
} tenon_op_part;
#define TENON_OP_PART_SIZE_V1 72u


// ---- Rules --------------------------------------------------------------------------------------

// A call of a rule: the node, and functions of the host. All of it is valid only during the call.
// Rules see bound graphs: all types are numeric.
//
// A function that cannot do what it was asked, and fail(), end the call as failed: the first failure
// counts, functions called after it do nothing, and the host refuses the graph with its text. So a
// rule needs no check after each function.
typedef struct tenon_op_call tenon_op_call;
struct tenon_op_call {
  uint64_t struct_size;
  void* host;                              // not for rules

  // The node. Attributes are complete: in the order of the schema, with defaults filled in. Operands
  // and outputs stand at their positions; for lists, see tenon_node_desc.
  const tenon_arg* attributes;
  uint64_t attribute_stride;               // bytes
  const tenon_value* operands;             // values of the graph that the rule extends; TENON_NONE =
                                           // absent
  const tenon_tensor_type* operand_types;  // dtype NONE for an absent operand
  uint64_t type_stride;                    // bytes, of operand_types and output_types
  const uint32_t* lists;                   // how many entries each list of operands has
  const uint8_t* want;                     // one per output, 0 = not wanted
  const tenon_tensor_type* output_types;   // one per output; NULL in a shape rule
  uint32_t attribute_count;
  uint32_t operand_count;                  // with absent operands
  uint32_t list_count;
  uint32_t output_count;                   // with outputs that are not wanted
  tenon_str node;                          // "my:softcap 'layers.0'", for messages

  // For all rules. fail: text says what was expected and what came, without the node's name.
  // value_type: of an operand, or of a value that the rule made.
  void (*fail)(const tenon_op_call* call, tenon_code code, tenon_str text);
  uint32_t (*failed)(const tenon_op_call* call);  // 1 after a failure, else 0
  void (*value_type)(const tenon_op_call* call, tenon_value value, tenon_tensor_type* out_type);

  // For a shape rule: the type of an output. Every output gets one, even if it is not wanted.
  void (*give_type)(const tenon_op_call* call, uint32_t output, const tenon_tensor_type* type);

  // For a decomposition and a gradient: they extend the graph. add_node: out_values gets
  // node->output_count values, if it succeeds. constant: dense data, copied.
  void (*add_node)(const tenon_op_call* call, const tenon_node_desc* node, tenon_value* out_values);
  tenon_value (*constant)(const tenon_op_call* call, const tenon_tensor_type* type,
                          const void* data, uint64_t size);

  // Decomposition: the value of output `position`; every wanted output needs one, of the type that
  // the shape rule gives. A decomposition that gives nothing means that this node has none.
  // Gradient: the gradient of operand `position`, of the operand's type. A second one is added to
  // the first. One that is not wanted is dropped. An operand without one has the gradient zero.
  void (*give)(const tenon_op_call* call, uint32_t position, tenon_value value);

  // Gradient only: the gradient of the loss by an output, TENON_NONE if the loss does not depend on
  // it; an output of the node itself, which becomes wanted; 1 if the operand's gradient is wanted.
  tenon_value (*upstream)(const tenon_op_call* call, uint32_t output);
  tenon_value (*forward)(const tenon_op_call* call, uint32_t output);
  uint32_t (*wants)(const tenon_op_call* call, uint32_t operand);
};

// tenon_op_desc::flags
#define TENON_OP_COMMUTATIVE        UINT32_C(1)  // the first two operands may be exchanged
#define TENON_OP_NOT_DIFFERENTIABLE UINT32_C(2)  // has no gradient, nor has its decomposition

// An op. The host copies it; its rules and `user` must stay valid until the process ends.
//
// Rules are pure: equal nodes get equal answers. They may be called by many threads at the same
// time. They may call functions of tenon.h only on graphs that they create themselves. No exception
// may leave them.
//
// Ops are known by domain, name and version. A new version means all that older versions mean, and
// more; where a meaning changes, the op gets a new name. A graph without a version means the newest.
// Kernels for an older version do not run it.
typedef struct tenon_op_desc {
  uint64_t struct_size;
  tenon_str domain;           // up to 64 of a-z, A-Z, 0-9, '_', '-', '.'; not "tenon"
  tenon_str name;             // likewise
  tenon_str family;           // a heading for lists of ops; empty = the domain
  const tenon_op_part* parts;
  uint64_t part_stride;       // bytes from one part to the next: sizeof(tenon_op_part)
  uint32_t part_count;
  uint32_t version;           // from 1
  uint32_t flags;             // TENON_OP_*
  uint32_t reserved0;
  void* user;                 // passed to the rules

  void (*shape)(void* user, const tenon_op_call* call);      // required
  void (*decompose)(void* user, const tenon_op_call* call);  // may be NULL
  void (*gradient)(void* user, const tenon_op_call* call);   // may be NULL
  // Floating-point operations of the products, two per multiplied pair, and the bytes that a kernel
  // reads and writes at least; finite and >= 0. NULL: 0, and those of all operands and outputs.
  double (*flops)(void* user, const tenon_op_call* call);
  double (*bytes)(void* user, const tenon_op_call* call);
} tenon_op_desc;
#define TENON_OP_DESC_SIZE_V1 136u


// ---- Extension "tenon.ops/1" --------------------------------------------------------------------

// The ops of a plugin. The host registers them when the plugin is loaded; they stay registered when
// it is shut down. A plugin whose ops cannot be registered is not loaded, and the load report says
// why. Two plugins may register the same op if schema, flags and the set of rules are equal; the
// rules of the first one count.
#define TENON_OPS_ID "tenon.ops/1"

typedef struct tenon_ops {
  uint64_t struct_size;
  const tenon_op_desc* ops;
  uint64_t op_stride;         // bytes from one op to the next: sizeof(tenon_op_desc)
  uint32_t op_count;
  uint32_t reserved0;
} tenon_ops;
#define TENON_OPS_SIZE_V1 32u

#ifdef __cplusplus
}
#endif
#endif
