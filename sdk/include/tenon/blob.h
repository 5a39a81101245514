/* SPDX-License-Identifier: Apache-2.0
 * The graph blob: how a graph crosses the ABI. One flat, little-endian, position-independent run of
 * bytes that can be saved, hashed, fuzzed and sent. This header is the format and its reader, in
 * plain C11.
 *
 * A blob is a list of functions; function 0 is the graph (or region) itself, the others are bodies
 * that attributes refer to (elementwise regions today, control flow later). Values and nodes of a
 * function are indexed from 0; nodes stand in an order in which they may run. Shapes are numbers
 * here, never symbols. Weights stay outside.
 *
 * tenon_blob_open checks everything once (bounds, counts, indices, order, strings), so the
 * accessors below are plain arithmetic and safe on any bytes that it accepted. Offsets are from the
 * blob's start and 8-aligned.
 *
 * Must understand: operands and outputs have fixed positions per op (absent: TENON_NONE), an
 * attribute equal to its default is left out, and who claims a node must know everything that it
 * carries. tenon_node_view keeps marks of what was looked at; tenon_node_unknown says whether
 * anything was left. */
#ifndef TENON_BLOB_H
#define TENON_BLOB_H

#include <string.h>

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_BLOB_MAGIC UINT64_C(0x31424F4C424E5401) /* bytes 01 'T' 'N' 'B' 'L' 'O' 'B' '1' */
#define TENON_BLOB_VERSION UINT32_C(1)
#define TENON_BLOB_MAX_OPERANDS 1024u

/* Attribute types. */
#define TENON_ATTR_I64 UINT32_C(1)    /* bits: the number */
#define TENON_ATTR_F64 UINT32_C(2)    /* bits: the number's bits */
#define TENON_ATTR_BOOL UINT32_C(3)   /* bits: 0 or 1 */
#define TENON_ATTR_STR UINT32_C(4)    /* bits: offset of a string */
#define TENON_ATTR_INTS UINT32_C(5)   /* bits: offset of count i64 */
#define TENON_ATTR_FLOATS UINT32_C(6) /* bits: offset of count f64 */
#define TENON_ATTR_DTYPE UINT32_C(7)  /* bits: tenon_dtype */
#define TENON_ATTR_FUNCTION \
  UINT32_C(8) /* bits: function index, greater than the function it stands in */

/* A string in the blob: u32 size, then the bytes. Offset 0 is the empty string. */

typedef struct tenon_blob_header {
  uint64_t magic;
  uint32_t version;
  uint32_t function_count;
  uint64_t size;        /* of the whole blob */
  uint64_t functions;   /* offset of tenon_blob_function[function_count] */
  uint64_t name;        /* string: for messages */
  uint64_t reserved[3]; /* 0 */
} tenon_blob_header;

typedef struct tenon_blob_function {
  uint64_t name;    /* string */
  uint64_t values;  /* tenon_blob_value[value_count] */
  uint64_t nodes;   /* tenon_blob_node[node_count] */
  uint64_t inputs;  /* u32[input_count]: values that no node makes, in the order of a call */
  uint64_t outputs; /* u32[output_count]: values that leave */
  uint32_t value_count;
  uint32_t node_count;
  uint32_t input_count;
  uint32_t output_count;
} tenon_blob_function;

typedef struct tenon_blob_value {
  uint16_t dtype;  /* TENON_DTYPE_* */
  uint16_t scheme; /* 0 dense; block schemes of weights have numbers of their own */
  uint8_t space;   /* TENON_SPACE_* */
  uint8_t rank;
  uint16_t flags;     /* TENON_VALUE_* */
  uint32_t node;      /* who makes it, TENON_NONE for the other spaces */
  uint32_t output;    /* position among that node's outputs */
  uint64_t dims;      /* i64[rank] */
  uint64_t name;      /* string, for messages */
  uint64_t data;      /* CONSTANT: content (small ones only), 0 = not in the blob */
  uint64_t data_size; /* bytes of a constant's content when data is not 0 */
} tenon_blob_value;
#define TENON_VALUE_UPDATED \
  UINT16_C(1) /* a weight or state that this executable updates: never pack it */

typedef struct tenon_blob_node {
  uint64_t domain;     /* string: "tenon" for ops.def */
  uint64_t op;         /* string */
  uint64_t operands;   /* u32[operand_count], TENON_NONE = absent */
  uint64_t outputs;    /* u32[output_count], TENON_NONE = not wanted */
  uint64_t attrs;      /* tenon_blob_attr[attr_count] */
  uint64_t provenance; /* string: where in the source it came from */
  uint32_t version;    /* of the op */
  uint32_t operand_count;
  uint32_t output_count;
  uint32_t attr_count; /* at most 64 */
} tenon_blob_node;

typedef struct tenon_blob_attr {
  uint64_t name;  /* string */
  uint64_t bits;  /* by type */
  uint32_t type;  /* TENON_ATTR_* */
  uint32_t count; /* INTS and FLOATS: elements */
} tenon_blob_attr;

/* Bits of one element of a dtype, 0 for a number that is no dtype. */
static inline uint32_t tenon_dtype_bits(tenon_dtype t) {
  static const uint8_t bits[TENON_DTYPE_COUNT] = {0,  32, 16, 16, 64, 8, 16, 32, 64, 8,
                                                  16, 32, 64, 4,  4,  8, 64, 8,  8};
  return t < TENON_DTYPE_COUNT ? bits[t] : 0;
}

/* An accepted blob. Plain data; copies are fine while the bytes live. */
typedef struct tenon_blob {
  const unsigned char* bytes;
  uint64_t size;
  uint32_t function_count;
  const tenon_blob_function* functions;
} tenon_blob;

static inline const void* tenon_blob_at(const tenon_blob* b, uint64_t offset) {
  return b->bytes + offset;
}
static inline tenon_str tenon_blob_str(const tenon_blob* b, uint64_t offset) {
  tenon_str s = {"", 0};
  if (offset) {
    uint32_t n;
    memcpy(&n, b->bytes + offset, 4);
    s.data = (const char*)b->bytes + offset + 4;
    s.size = n;
  }
  return s;
}
static inline const tenon_blob_value* tenon_blob_values(const tenon_blob* b,
                                                        const tenon_blob_function* f) {
  return (const tenon_blob_value*)tenon_blob_at(b, f->values);
}
static inline const tenon_blob_node* tenon_blob_nodes(const tenon_blob* b,
                                                      const tenon_blob_function* f) {
  return (const tenon_blob_node*)tenon_blob_at(b, f->nodes);
}
static inline const uint32_t* tenon_blob_indices(const tenon_blob* b, uint64_t offset) {
  return (const uint32_t*)tenon_blob_at(b, offset);
}
static inline const int64_t* tenon_blob_dims(const tenon_blob* b, const tenon_blob_value* v) {
  return (const int64_t*)tenon_blob_at(b, v->dims);
}
/* Elements of a value; open has checked that neither this nor the size in bytes overflows 63 bits.
 */
static inline int64_t tenon_blob_elements(const tenon_blob* b, const tenon_blob_value* v) {
  int64_t n = 1;
  for (uint32_t i = 0; i < v->rank; ++i) n *= tenon_blob_dims(b, v)[i];
  return n;
}
static inline uint64_t tenon_dense_bytes(tenon_dtype t, int64_t elements) {
  return ((uint64_t)elements * tenon_dtype_bits(t) + 7) / 8;
}
static inline int tenon_str_is(tenon_str s, const char* literal) {
  const size_t n = strlen(literal);
  return s.size == n && (n == 0 || memcmp(s.data, literal, n) == 0);
}

/* ---- Opening
 * ------------------------------------------------------------------------------------------------
 */

static inline int tenon_blob_range_(const tenon_blob* b, uint64_t offset, uint64_t count,
                                    uint64_t each) {
  if (offset % 8 != 0 || offset > b->size) return 0;
  return count <= (b->size - offset) / each;
}
static inline int tenon_blob_str_ok_(const tenon_blob* b, uint64_t offset) {
  uint32_t n;
  if (offset == 0) return 1;
  if (offset > b->size || b->size - offset < 4) return 0;
  memcpy(&n, b->bytes + offset, 4);
  return n <= b->size - offset - 4;
}
static inline const char* tenon_blob_check_value_(const tenon_blob* b, const tenon_blob_function* f,
                                                  const tenon_blob_value* v, uint32_t self) {
  int64_t elements = 1;
  int zero = 0;
  if (tenon_dtype_bits(v->dtype) == 0) return "a value's dtype is unknown";
  if (v->scheme != 0) return "a value's block scheme is unknown";
  if (v->space > TENON_SPACE_STATE) return "a value's space is unknown";
  if (v->rank > TENON_MAX_RANK) return "a value's rank exceeds 8";
  if (!tenon_blob_range_(b, v->dims, v->rank, 8)) return "a value's dims are out of bounds";
  for (uint32_t i = 0; i < v->rank; ++i) {
    const int64_t d = tenon_blob_dims(b, v)[i];
    if (d < 0) return "a value's dim is negative";
    if (d == 0)
      zero = 1;
    else if (elements > (INT64_MAX >> 7) / d)
      return "a value's size overflows";
    else
      elements *= d;
  }
  if (zero) elements = 0;
  if (!tenon_blob_str_ok_(b, v->name)) return "a value's name is out of bounds";
  if (v->data != 0) {
    if (v->space != TENON_SPACE_CONSTANT) return "a value that is no constant has content";
    if (v->data_size != tenon_dense_bytes(v->dtype, elements))
      return "a constant's content has the wrong size";
    if (!tenon_blob_range_(b, v->data, v->data_size, 1))
      return "a constant's content is out of bounds";
  }
  if (v->space == TENON_SPACE_NODE) {
    const tenon_blob_node* n;
    if (v->node >= f->node_count) return "a value's node does not exist";
    n = tenon_blob_nodes(b, f) + v->node;
    if (v->output >= n->output_count || tenon_blob_indices(b, n->outputs)[v->output] != self)
      return "a value and its node disagree";
  } else if (v->node != TENON_NONE) {
    return "a value that no node makes names a node";
  }
  return NULL;
}
static inline const char* tenon_blob_check_node_(const tenon_blob* b, const tenon_blob_function* f,
                                                 uint32_t index) {
  const tenon_blob_node* n = tenon_blob_nodes(b, f) + index;
  if (!tenon_blob_str_ok_(b, n->domain) || !tenon_blob_str_ok_(b, n->op) ||
      !tenon_blob_str_ok_(b, n->provenance))
    return "a node's string is out of bounds";
  if (n->operand_count > TENON_BLOB_MAX_OPERANDS || n->output_count > TENON_BLOB_MAX_OPERANDS)
    return "a node has too many operands or outputs";
  if (n->attr_count > 64) return "a node has too many attributes";
  if (!tenon_blob_range_(b, n->operands, n->operand_count, 4))
    return "a node's operands are out of bounds";
  if (!tenon_blob_range_(b, n->outputs, n->output_count, 4))
    return "a node's outputs are out of bounds";
  if (!tenon_blob_range_(b, n->attrs, n->attr_count, sizeof(tenon_blob_attr)))
    return "a node's attributes are out of bounds";
  for (uint32_t i = 0; i < n->output_count; ++i) {
    const uint32_t v = tenon_blob_indices(b, n->outputs)[i];
    if (v == TENON_NONE) continue;
    if (v >= f->value_count) return "a node's output does not exist";
    if (tenon_blob_values(b, f)[v].space != TENON_SPACE_NODE ||
        tenon_blob_values(b, f)[v].node != index)
      return "a node and its output disagree";
  }
  for (uint32_t i = 0; i < n->attr_count; ++i) {
    const tenon_blob_attr* a = (const tenon_blob_attr*)tenon_blob_at(b, n->attrs) + i;
    if (!tenon_blob_str_ok_(b, a->name)) return "an attribute's name is out of bounds";
    switch (a->type) {
      case TENON_ATTR_STR:
        if (!tenon_blob_str_ok_(b, a->bits)) return "an attribute's string is out of bounds";
        break;
      case TENON_ATTR_INTS:
      case TENON_ATTR_FLOATS:
        if (!tenon_blob_range_(b, a->bits, a->count, 8))
          return "an attribute's list is out of bounds";
        break;
      case TENON_ATTR_FUNCTION:
        if (a->bits >= b->function_count || a->bits <= (uint64_t)(f - b->functions))
          return "an attribute's function does not exist";
        break;
      case TENON_ATTR_BOOL:
        if (a->bits > 1) return "an attribute's bool is neither 0 nor 1";
        break;
      case TENON_ATTR_DTYPE:
        if (a->bits >= TENON_DTYPE_COUNT) return "an attribute's dtype is unknown";
        break;
      default:
        break; /* numbers need no check; a type from the future is refused by who claims the node */
    }
  }
  return NULL;
}
static inline const char* tenon_blob_check_function_(const tenon_blob* b,
                                                     const tenon_blob_function* f) {
  const char* bad = NULL;
  if (!tenon_blob_str_ok_(b, f->name)) return "a function's name is out of bounds";
  if (!tenon_blob_range_(b, f->values, f->value_count, sizeof(tenon_blob_value)))
    return "values are out of bounds";
  if (!tenon_blob_range_(b, f->nodes, f->node_count, sizeof(tenon_blob_node)))
    return "nodes are out of bounds";
  if (!tenon_blob_range_(b, f->inputs, f->input_count, 4)) return "inputs are out of bounds";
  if (!tenon_blob_range_(b, f->outputs, f->output_count, 4)) return "outputs are out of bounds";
  for (uint32_t i = 0; i < f->node_count && !bad; ++i) bad = tenon_blob_check_node_(b, f, i);
  for (uint32_t i = 0; i < f->value_count && !bad; ++i)
    bad = tenon_blob_check_value_(b, f, tenon_blob_values(b, f) + i, i);
  if (bad) return bad;
  for (uint32_t i = 0; i < f->node_count; ++i) {
    const tenon_blob_node* n = tenon_blob_nodes(b, f) + i;
    for (uint32_t k = 0; k < n->operand_count; ++k) {
      const uint32_t v = tenon_blob_indices(b, n->operands)[k];
      if (v == TENON_NONE) continue;
      if (v >= f->value_count) return "a node's operand does not exist";
      if (tenon_blob_values(b, f)[v].space == TENON_SPACE_NODE &&
          tenon_blob_values(b, f)[v].node >= i)
        return "a node reads a value that is made after it";
    }
  }
  for (uint32_t i = 0; i < f->input_count; ++i) {
    const uint32_t v = tenon_blob_indices(b, f->inputs)[i];
    if (v >= f->value_count || tenon_blob_values(b, f)[v].space == TENON_SPACE_NODE)
      return "an input does not exist";
  }
  for (uint32_t i = 0; i < f->output_count; ++i)
    if (tenon_blob_indices(b, f->outputs)[i] >= f->value_count) return "an output does not exist";
  return NULL;
}

/* Accepts bytes (8-aligned, alive while the blob is used) or says why not: NULL is success, else a
 * static text. */
static inline const char* tenon_blob_open(const void* bytes, uint64_t size, tenon_blob* out) {
  tenon_blob b;
  const tenon_blob_header* h = (const tenon_blob_header*)bytes;
  if ((uintptr_t)bytes % 8 != 0) return "the bytes are not 8-aligned";
  if (size < sizeof(tenon_blob_header)) return "the blob is shorter than its header";
  if (h->magic != TENON_BLOB_MAGIC) return "the bytes are not a graph blob";
  if (h->version != TENON_BLOB_VERSION) return "the blob's version is unknown";
  if (h->size != size) return "the blob is truncated or has trailing bytes";
  b.bytes = (const unsigned char*)bytes;
  b.size = size;
  b.function_count = h->function_count;
  if (h->function_count == 0) return "the blob has no function";
  if (!tenon_blob_str_ok_(&b, h->name)) return "the blob's name is out of bounds";
  if (!tenon_blob_range_(&b, h->functions, h->function_count, sizeof(tenon_blob_function)))
    return "functions are out of bounds";
  b.functions = (const tenon_blob_function*)tenon_blob_at(&b, h->functions);
  for (uint32_t i = 0; i < b.function_count; ++i) {
    const char* bad = tenon_blob_check_function_(&b, b.functions + i);
    if (bad) return bad;
  }
  *out = b;
  return NULL;
}

/* ---- One node, with marks of what was looked at
 * ------------------------------------------------------------- */

typedef struct tenon_node_view {
  const tenon_blob* blob;
  const tenon_blob_function* function;
  const tenon_blob_node* node;
  uint64_t attrs_seen;    /* bit i: attribute i */
  uint32_t operands_seen; /* positions below this were looked at */
  uint32_t outputs_seen;
} tenon_node_view;

static inline tenon_node_view tenon_node_at(const tenon_blob* b, uint32_t function, uint32_t node) {
  tenon_node_view v = {b, b->functions + function, NULL, 0, 0, 0};
  v.node = tenon_blob_nodes(b, v.function) + node;
  return v;
}
/* Value at operand position k, NULL when absent. */
static inline const tenon_blob_value* tenon_node_operand(tenon_node_view* n, uint32_t k) {
  uint32_t v;
  if (k >= n->operands_seen) n->operands_seen = k + 1;
  if (k >= n->node->operand_count) return NULL;
  v = tenon_blob_indices(n->blob, n->node->operands)[k];
  return v == TENON_NONE ? NULL : tenon_blob_values(n->blob, n->function) + v;
}
/* Value at output position k, NULL when not wanted. */
static inline const tenon_blob_value* tenon_node_output(tenon_node_view* n, uint32_t k) {
  uint32_t v;
  if (k >= n->outputs_seen) n->outputs_seen = k + 1;
  if (k >= n->node->output_count) return NULL;
  v = tenon_blob_indices(n->blob, n->node->outputs)[k];
  return v == TENON_NONE ? NULL : tenon_blob_values(n->blob, n->function) + v;
}
/* Attribute by name and type; NULL when left out (or of another type, which then stays unseen). */
static inline const tenon_blob_attr* tenon_node_attr(tenon_node_view* n, const char* name,
                                                     uint32_t type) {
  const tenon_blob_attr* a = (const tenon_blob_attr*)tenon_blob_at(n->blob, n->node->attrs);
  for (uint32_t i = 0; i < n->node->attr_count; ++i)
    if (a[i].type == type && tenon_str_is(tenon_blob_str(n->blob, a[i].name), name)) {
      n->attrs_seen |= UINT64_C(1) << i;
      return a + i;
    }
  return NULL;
}
static inline int64_t tenon_node_i64(tenon_node_view* n, const char* name, int64_t otherwise) {
  const tenon_blob_attr* a = tenon_node_attr(n, name, TENON_ATTR_I64);
  return a ? (int64_t)a->bits : otherwise;
}
static inline double tenon_node_f64(tenon_node_view* n, const char* name, double otherwise) {
  const tenon_blob_attr* a = tenon_node_attr(n, name, TENON_ATTR_F64);
  if (a) memcpy(&otherwise, &a->bits, 8);
  return otherwise;
}
static inline int tenon_node_bool(tenon_node_view* n, const char* name, int otherwise) {
  const tenon_blob_attr* a = tenon_node_attr(n, name, TENON_ATTR_BOOL);
  return a ? (int)a->bits : otherwise;
}
static inline tenon_dtype tenon_node_dtype(tenon_node_view* n, const char* name,
                                           tenon_dtype otherwise) {
  const tenon_blob_attr* a = tenon_node_attr(n, name, TENON_ATTR_DTYPE);
  return a ? (tenon_dtype)a->bits : otherwise;
}
static inline tenon_str tenon_node_str(tenon_node_view* n, const char* name,
                                       const char* otherwise) {
  const tenon_blob_attr* a = tenon_node_attr(n, name, TENON_ATTR_STR);
  tenon_str s = {otherwise, strlen(otherwise)};
  return a ? tenon_blob_str(n->blob, a->bits) : s;
}
static inline const int64_t* tenon_node_ints(tenon_node_view* n, const char* name,
                                             uint32_t* out_count) {
  const tenon_blob_attr* a = tenon_node_attr(n, name, TENON_ATTR_INTS);
  *out_count = a ? a->count : 0;
  return a ? (const int64_t*)tenon_blob_at(n->blob, a->bits) : NULL;
}
/* The function that an attribute names, or TENON_NONE. */
static inline uint32_t tenon_node_function(tenon_node_view* n, const char* name) {
  const tenon_blob_attr* a = tenon_node_attr(n, name, TENON_ATTR_FUNCTION);
  return a ? (uint32_t)a->bits : TENON_NONE;
}
/* NULL when everything that the node carries was looked at; else what was not: "attribute" (its
 * name in out_name), "operand" or "output". */
static inline const char* tenon_node_unknown(const tenon_node_view* n, tenon_str* out_name) {
  const tenon_blob_attr* a = (const tenon_blob_attr*)tenon_blob_at(n->blob, n->node->attrs);
  out_name->data = "";
  out_name->size = 0;
  for (uint32_t i = 0; i < n->node->attr_count; ++i)
    if (!(n->attrs_seen >> i & 1)) {
      *out_name = tenon_blob_str(n->blob, a[i].name);
      return "attribute";
    }
  for (uint32_t i = n->operands_seen; i < n->node->operand_count; ++i)
    if (tenon_blob_indices(n->blob, n->node->operands)[i] != TENON_NONE) return "operand";
  for (uint32_t i = n->outputs_seen; i < n->node->output_count; ++i)
    if (tenon_blob_indices(n->blob, n->node->outputs)[i] != TENON_NONE) return "output";
  return NULL;
}

#ifdef __cplusplus
}
#endif
#endif
