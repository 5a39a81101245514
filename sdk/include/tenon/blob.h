// SPDX-License-Identifier: Apache-2.0
//
// The graph blob: how a graph crosses the backend ABI. A blob is one block of bytes, little-endian
// and position-independent, that can be saved, hashed, fuzzed and sent. This header defines the
// format and contains its reader. C11.
//
// A blob is a list of functions. Function 0 is the graph or region itself. The others are bodies
// that attributes refer to, such as the body of elementwise_region. Values and nodes of a
// function are indexed from 0; nodes are listed in an order in which they may run. Shapes are
// numbers, never symbols. Weights are not part of the blob.
//
// tenon_blob_open() checks everything once: bounds, counts, indices, order, strings. The other
// accessors rely on it and are safe on any blob that it has accepted. Offsets count from the start
// of the blob and are multiples of 8.
//
// Blobs and readers age apart
//
//   A newer blob  Structs only grow at their end; the header states the stride of each array. A
//                 blob may contain dtypes, schemes, spaces, flags, ranks, attributes and ops that
//                 this header does not know. tenon_blob_open() accepts them. A plugin refuses only
//                 the nodes that touch them; tenon_node_unknown_type() finds them.
//   An older one  A field behind the first version of its struct (TENON_BLOB_*_SIZE_V1) is read
//                 only if the stride covers it.
//   The writer    writes the lowest version of the format, and of each op, that expresses the
//                 graph.
//
// A plugin must understand all of a node that it claims. Operands and outputs have fixed positions
// (TENON_NONE = absent), and an attribute equal to its default is left out. So an older plugin sees
// everything new as something it has not read: tenon_node_view records what was read, and
// tenon_node_unknown() returns what was not.

#ifndef TENON_BLOB_H
#define TENON_BLOB_H

#include <stddef.h>
#include <string.h>

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

// The layout is made by hand:
// clang-format off

#define TENON_BLOB_MAGIC UINT64_C(0x31424F4C424E5401)  // bytes 01 'T' 'N' 'B' 'L' 'O' 'B' '1'
#define TENON_BLOB_VERSION UINT32_C(2)                 // the newest that this header can read

// Limits of what a plugin has to claim. A blob may exceed them: such a node is refused.
#define TENON_BLOB_MAX_OPERANDS 1024u                  // per node; the same limit for outputs
#define TENON_BLOB_MAX_ATTRS 64u                       // per node
#define TENON_BLOB_MAX_NESTING 32                      // bodies in bodies


// ---- The format ---------------------------------------------------------------------------------

// A string is a u32 size followed by the bytes. Offset 0 is the empty string.

// tenon_blob_header::hints: what the app wishes of the whole graph. A plugin may ignore any of
// them, also those that it does not know.
#define TENON_HINT_BATCH_INVARIANT UINT32_C(1)  // a row of a product has the same bits alone and
                                                // among others, and a query of attention the same
                                                // bits whichever other queries come with it

typedef struct tenon_blob_header {
  uint64_t magic;             // TENON_BLOB_MAGIC
  uint32_t version;           // the lowest version of the format that expresses the graph
  uint32_t header_size;       // bytes of this struct
  uint64_t size;              // bytes of the whole blob
  uint64_t functions;         // offset: tenon_blob_function[function_count]
  uint64_t name;              // string, for messages
  uint32_t function_count;    // at least 1
  uint32_t function_stride;   // bytes from one function to the next; all strides are multiples of 8
  uint32_t value_stride;      // bytes from one value to the next
  uint32_t node_stride;       // bytes from one node to the next
  uint32_t attr_stride;       // bytes from one attribute to the next
  uint32_t reserved0;         // 0
  uint32_t hints;             // TENON_HINT_*; older hosts do not write it: see tenon_blob_hints()
  uint32_t reserved1;         // 0
} tenon_blob_header;
#define TENON_BLOB_HEADER_SIZE_V1 64u

typedef struct tenon_blob_function {
  uint64_t name;              // string
  uint64_t values;            // offset: tenon_blob_value[value_count]
  uint64_t nodes;             // offset: tenon_blob_node[node_count]
  uint64_t inputs;            // offset: u32[input_count], the values that no node makes, in the
                              // order of a call
  uint64_t outputs;           // offset: u32[output_count], the values that the function returns
  uint32_t value_count;
  uint32_t node_count;
  uint32_t input_count;
  uint32_t output_count;
} tenon_blob_function;
#define TENON_BLOB_FUNCTION_SIZE_V1 56u

// tenon_blob_value::flags. A reader that does not know a flag refuses the nodes that touch the
// value.
#define TENON_VALUE_UPDATED UINT16_C(1)  // a weight or state that this executable updates; it has
                                         // no derived weights
#define TENON_VALUE_FLAGS UINT16_C(1)    // all flags that this header knows

typedef struct tenon_blob_value {
  uint16_t dtype;             // TENON_DTYPE_*
  uint16_t scheme;            // 0 = dense; other numbers are reserved for block schemes of weights
  uint8_t space;              // TENON_SPACE_*
  uint8_t rank;               // at most TENON_MAX_RANK
  uint16_t flags;             // TENON_VALUE_*
  uint32_t node;              // NODE: the node that makes it; otherwise TENON_NONE
  uint32_t output;            // NODE: position among the outputs of that node
  uint64_t dims;              // offset: i64[rank]
  uint64_t name;              // string, for messages
  uint64_t data;              // CONSTANT: offset of its content if it is small; otherwise 0
  uint64_t data_size;         // bytes of that content
} tenon_blob_value;
#define TENON_BLOB_VALUE_SIZE_V1 48u

// tenon_blob_node::flags: none yet. A reader refuses a node with a flag that it does not know.
#define TENON_NODE_FLAGS UINT32_C(0)

// The operands of a node stand in the order of the op's entry in ops.def. An operand takes one
// position. A list takes as many as operand_lists says: entry k is the size of the op's list k. So
// an op whose last operand is a list can gain operands, which stand behind it. A list of outputs is
// the last of an op's outputs.
typedef struct tenon_blob_node {
  uint64_t domain;            // string: "tenon" for the ops of ops.def
  uint64_t op;                // string
  uint64_t operands;          // offset: u32[operand_count], values; TENON_NONE = absent
  uint64_t outputs;           // offset: u32[output_count], values; TENON_NONE = not wanted
  uint64_t attrs;             // offset: tenon_blob_attr[attr_count]
  uint64_t operand_lists;     // offset: u32[operand_list_count]
  uint64_t output_lists;      // offset: u32[output_list_count]
  uint64_t provenance;        // string: where in the source the node comes from
  uint32_t version;           // the lowest version of the op that expresses the node. A kernel for
                              // a version runs all versions below it
  uint32_t operand_count;
  uint32_t output_count;
  uint32_t attr_count;
  uint32_t operand_list_count;
  uint32_t output_list_count;
  uint32_t flags;             // TENON_NODE_*
  uint32_t reserved0;         // 0
} tenon_blob_node;
#define TENON_BLOB_NODE_SIZE_V1 96u

// tenon_blob_attr::type, and what its bits hold
#define TENON_ATTR_I64      UINT32_C(1)  // the number
#define TENON_ATTR_F64      UINT32_C(2)  // the bits of the number
#define TENON_ATTR_BOOL     UINT32_C(3)  // 0 or 1
#define TENON_ATTR_STR      UINT32_C(4)  // offset of a string
#define TENON_ATTR_INTS     UINT32_C(5)  // offset: i64[count]
#define TENON_ATTR_FLOATS   UINT32_C(6)  // offset: f64[count]
#define TENON_ATTR_DTYPE    UINT32_C(7)  // a tenon_dtype
#define TENON_ATTR_FUNCTION UINT32_C(8)  // index of a function. Each attribute in the blob names a
                                         // later function than the attribute before it, and than
                                         // the function it stands in. So no two share a body

typedef struct tenon_blob_attr {
  uint64_t name;              // string
  uint64_t bits;              // depends on type
  uint32_t type;              // TENON_ATTR_*
  uint32_t count;             // INTS, FLOATS: number of elements
} tenon_blob_attr;
#define TENON_BLOB_ATTR_SIZE_V1 24u

// clang-format on

// ---- Reading ------------------------------------------------------------------------------------

// Returns the bits of one element, 0 for an unknown dtype and for one of blocks.
static inline uint32_t tenon_dtype_bits(tenon_dtype t) {
  static const uint8_t bits[TENON_DTYPE_COUNT] = {0,  32, 16, 16, 64, 8, 16, 32, 64, 8,
                                                  16, 32, 64, 4,  4,  8, 64, 8,  8,  128};
  return t < TENON_DTYPE_COUNT ? bits[t] : 0;
}

// A block of a dtype of blocks. elements is 0 for every other dtype.
typedef struct tenon_block {
  uint16_t elements;
  uint16_t bytes;
} tenon_block;
static inline tenon_block tenon_dtype_block(tenon_dtype t) {
  enum { count = TENON_DTYPE_Q2_0 + 1 - TENON_DTYPE_BLOCKS };
  static const tenon_block blocks[count] = {
      {0, 0},    {0, 0},    {32, 18},  {32, 20},   {0, 0},     {0, 0},     {32, 22},   {32, 24},
      {32, 34},  {32, 36},  {256, 84}, {256, 110}, {256, 144}, {256, 176}, {256, 210}, {256, 292},
      {256, 66}, {256, 74}, {256, 98}, {256, 50},  {32, 18},   {256, 110}, {256, 82},  {256, 136},
      {0, 0},    {0, 0},    {0, 0},    {0, 0},     {0, 0},     {256, 56},  {0, 0},     {0, 0},
      {0, 0},    {0, 0},    {256, 54}, {256, 66},  {0, 0},     {0, 0},     {0, 0},     {32, 17},
      {64, 36},  {128, 18}, {64, 18}};
  static const tenon_block none = {0, 0}, f8e4m3_128 = {128, 132};
  const int in_table = t >= TENON_DTYPE_BLOCKS && t < TENON_DTYPE_BLOCKS + count;
  return in_table                      ? blocks[t - TENON_DTYPE_BLOCKS]
         : t == TENON_DTYPE_F8E4M3_128 ? f8e4m3_128
                                       : none;
}
static inline int tenon_dtype_known(tenon_dtype t) {
  return tenon_dtype_bits(t) != 0 || tenon_dtype_block(t).elements != 0;
}

// A blob that tenon_blob_open() has accepted. May be copied; borrows the bytes.
typedef struct tenon_blob {
  const unsigned char* bytes;
  uint64_t size;
  const tenon_blob_header* header;
} tenon_blob;

static inline const void* tenon_blob_at(const tenon_blob* b, uint64_t offset) {
  return b->bytes + offset;
}
static inline uint32_t tenon_blob_hints(const tenon_blob* b) {
  const tenon_blob_header* h = b->header;
  return h->header_size >= offsetof(tenon_blob_header, hints) + sizeof h->hints ? h->hints : 0;
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
// Return function, value, node or attribute i.
static inline const tenon_blob_function* tenon_blob_function_at(const tenon_blob* b, uint32_t i) {
  const uint64_t stride = b->header->function_stride;
  return (const tenon_blob_function*)tenon_blob_at(b, b->header->functions + i * stride);
}
static inline const tenon_blob_value* tenon_blob_value_at(const tenon_blob* b,
                                                          const tenon_blob_function* f,
                                                          uint32_t i) {
  const uint64_t stride = b->header->value_stride;
  return (const tenon_blob_value*)tenon_blob_at(b, f->values + i * stride);
}
static inline const tenon_blob_node* tenon_blob_node_at(const tenon_blob* b,
                                                        const tenon_blob_function* f, uint32_t i) {
  const uint64_t stride = b->header->node_stride;
  return (const tenon_blob_node*)tenon_blob_at(b, f->nodes + i * stride);
}
static inline const tenon_blob_attr* tenon_blob_attr_at(const tenon_blob* b,
                                                        const tenon_blob_node* n, uint32_t i) {
  const uint64_t stride = b->header->attr_stride;
  return (const tenon_blob_attr*)tenon_blob_at(b, n->attrs + i * stride);
}
static inline const uint32_t* tenon_blob_indices(const tenon_blob* b, uint64_t offset) {
  return (const uint32_t*)tenon_blob_at(b, offset);
}
static inline const int64_t* tenon_blob_dims(const tenon_blob* b, const tenon_blob_value* v) {
  return (const int64_t*)tenon_blob_at(b, v->dims);
}
// Returns NULL if this header knows what the value is. Otherwise returns what it does not know:
// "dtype", "block scheme", "space", "rank" (more than TENON_MAX_RANK) or "flags".
static inline const char* tenon_blob_unknown(const tenon_blob_value* v) {
  if (!tenon_dtype_known(v->dtype)) return "dtype";
  if (v->scheme != 0) return "block scheme";
  if (v->space > TENON_SPACE_STATE) return "space";
  if (v->rank > TENON_MAX_RANK) return "rank";
  if (v->flags & ~TENON_VALUE_FLAGS) return "flags";
  return NULL;
}
// Returns the number of elements. tenon_blob_open() has checked that neither this nor the size in
// bytes overflows.
static inline int64_t tenon_blob_elements(const tenon_blob* b, const tenon_blob_value* v) {
  int64_t n = 1;
  for (uint32_t i = 0; i < v->rank; ++i) n *= tenon_blob_dims(b, v)[i];
  return n;
}
// elements: of a dtype of blocks, a multiple of a block.
static inline uint64_t tenon_dense_bytes(tenon_dtype t, int64_t elements) {
  const tenon_block block = tenon_dtype_block(t);
  if (block.elements) return (uint64_t)elements / block.elements * block.bytes;
  return ((uint64_t)elements * tenon_dtype_bits(t) + 7) / 8;
}
static inline int tenon_str_is(tenon_str s, const char* literal) {
  const size_t n = strlen(literal);
  return s.size == n && (n == 0 || memcmp(s.data, literal, n) == 0);
}

// ---- Opening ------------------------------------------------------------------------------------

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
static inline int tenon_blob_blocks_ok_(const tenon_blob* b, const tenon_blob_value* v) {
  const tenon_block block = tenon_dtype_block(v->dtype);
  if (!block.elements || v->scheme != 0) return 1;
  return v->rank != 0 && tenon_blob_dims(b, v)[v->rank - 1] % block.elements == 0;
}
static inline const char* tenon_blob_check_value_(const tenon_blob* b, const tenon_blob_function* f,
                                                  const tenon_blob_value* v, uint32_t self) {
  int64_t elements = 1;
  int zero = 0;
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
  if (!tenon_blob_blocks_ok_(b, v)) return "a value's last dim is no multiple of its block";
  if (!tenon_blob_str_ok_(b, v->name)) return "a value's name is out of bounds";
  if (v->data != 0) {
    const int dense = tenon_dtype_known(v->dtype) && v->scheme == 0;
    if (v->space < TENON_SPACE_CONSTANT || v->space == TENON_SPACE_STATE)
      return "a value that is no constant has content";
    if (dense && v->data_size != tenon_dense_bytes(v->dtype, elements))
      return "a constant's content has the wrong size";
    if (!tenon_blob_range_(b, v->data, v->data_size, 1))
      return "a constant's content is out of bounds";
  }
  if (v->space == TENON_SPACE_NODE) {
    const tenon_blob_node* n;
    if (v->node >= f->node_count) return "a value's node does not exist";
    n = tenon_blob_node_at(b, f, v->node);
    if (v->output >= n->output_count || tenon_blob_indices(b, n->outputs)[v->output] != self)
      return "a value and its node disagree";
  } else if (v->space <= TENON_SPACE_STATE && v->node != TENON_NONE) {
    return "a value that no node makes names a node";
  }
  return NULL;
}
// Checks the sizes of a node's lists: they fit into its positions.
static inline int tenon_blob_lists_ok_(const tenon_blob* b, uint64_t lists, uint32_t count,
                                       uint32_t positions) {
  if (!tenon_blob_range_(b, lists, count, 4)) return 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t size = tenon_blob_indices(b, lists)[i];
    if (size > positions) return 0;
    positions -= size;
  }
  return 1;
}
// last_body: the last function that an attribute has named; the node's attributes move it.
static inline const char* tenon_blob_check_node_(const tenon_blob* b, const tenon_blob_function* f,
                                                 uint32_t index, uint64_t* last_body) {
  const tenon_blob_node* n = tenon_blob_node_at(b, f, index);
  if (!tenon_blob_str_ok_(b, n->domain) || !tenon_blob_str_ok_(b, n->op) ||
      !tenon_blob_str_ok_(b, n->provenance))
    return "a node's string is out of bounds";
  if (!tenon_blob_range_(b, n->operands, n->operand_count, 4))
    return "a node's operands are out of bounds";
  if (!tenon_blob_range_(b, n->outputs, n->output_count, 4))
    return "a node's outputs are out of bounds";
  if (!tenon_blob_range_(b, n->attrs, n->attr_count, b->header->attr_stride))
    return "a node's attributes are out of bounds";
  if (!tenon_blob_lists_ok_(b, n->operand_lists, n->operand_list_count, n->operand_count) ||
      !tenon_blob_lists_ok_(b, n->output_lists, n->output_list_count, n->output_count))
    return "a node's lists do not fit its operands or outputs";
  for (uint32_t i = 0; i < n->output_count; ++i) {
    const uint32_t v = tenon_blob_indices(b, n->outputs)[i];
    if (v == TENON_NONE) continue;
    if (v >= f->value_count) return "a node's output does not exist";
    if (tenon_blob_value_at(b, f, v)->space != TENON_SPACE_NODE ||
        tenon_blob_value_at(b, f, v)->node != index)
      return "a node and its output disagree";
  }
  for (uint32_t i = 0; i < n->attr_count; ++i) {
    const tenon_blob_attr* a = tenon_blob_attr_at(b, n, i);
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
        if (a->bits >= b->header->function_count || a->bits <= *last_body)
          return "an attribute's function does not exist or is out of order";
        *last_body = a->bits;
        break;
      case TENON_ATTR_BOOL:
        if (a->bits > 1) return "an attribute's bool is neither 0 nor 1";
        break;
      case TENON_ATTR_DTYPE:
        if (a->bits > UINT16_MAX) return "an attribute's dtype is no dtype";
        break;
      default:
        break;  // numbers need no check; a plugin that does not know a type refuses the node
    }
  }
  return NULL;
}
static inline const char* tenon_blob_check_function_(const tenon_blob* b, uint32_t index,
                                                     uint64_t* last_body) {
  const tenon_blob_function* f = tenon_blob_function_at(b, index);
  const char* bad = NULL;
  if (!tenon_blob_str_ok_(b, f->name)) return "a function's name is out of bounds";
  if (!tenon_blob_range_(b, f->values, f->value_count, b->header->value_stride))
    return "values are out of bounds";
  if (!tenon_blob_range_(b, f->nodes, f->node_count, b->header->node_stride))
    return "nodes are out of bounds";
  if (!tenon_blob_range_(b, f->inputs, f->input_count, 4)) return "inputs are out of bounds";
  if (!tenon_blob_range_(b, f->outputs, f->output_count, 4)) return "outputs are out of bounds";
  if (*last_body < index) *last_body = index;
  for (uint32_t i = 0; i < f->node_count && !bad; ++i)
    bad = tenon_blob_check_node_(b, f, i, last_body);
  for (uint32_t i = 0; i < f->value_count && !bad; ++i)
    bad = tenon_blob_check_value_(b, f, tenon_blob_value_at(b, f, i), i);
  if (bad) return bad;
  for (uint32_t i = 0; i < f->node_count; ++i) {
    const tenon_blob_node* n = tenon_blob_node_at(b, f, i);
    for (uint32_t k = 0; k < n->operand_count; ++k) {
      const uint32_t v = tenon_blob_indices(b, n->operands)[k];
      if (v == TENON_NONE) continue;
      if (v >= f->value_count) return "a node's operand does not exist";
      if (tenon_blob_value_at(b, f, v)->space == TENON_SPACE_NODE &&
          tenon_blob_value_at(b, f, v)->node >= i)
        return "a node reads a value that is made after it";
    }
  }
  for (uint32_t i = 0; i < f->input_count; ++i) {
    const uint32_t v = tenon_blob_indices(b, f->inputs)[i];
    if (v >= f->value_count || tenon_blob_value_at(b, f, v)->space == TENON_SPACE_NODE)
      return "an input does not exist";
  }
  for (uint32_t i = 0; i < f->output_count; ++i)
    if (tenon_blob_indices(b, f->outputs)[i] >= f->value_count) return "an output does not exist";
  return NULL;
}

static inline int tenon_blob_stride_ok_(uint32_t stride, uint32_t least) {
  return stride >= least && stride % 8 == 0 && stride <= UINT16_MAX;
}
// Checks a blob. Returns NULL and sets *out, or returns what is wrong (a static string). bytes: any
// content, aligned to 8; must outlive the blob.
static inline const char* tenon_blob_open(const void* bytes, uint64_t size, tenon_blob* out) {
  tenon_blob b;
  uint64_t last_body = 0;
  const tenon_blob_header* h = (const tenon_blob_header*)bytes;
  if ((uintptr_t)bytes % 8 != 0) return "the bytes are not 8-aligned";
  if (size < TENON_BLOB_HEADER_SIZE_V1) return "the blob is shorter than its header";
  if (h->magic != TENON_BLOB_MAGIC) return "the bytes are not a graph blob";
  if (h->version < 2) return "the blob's version is too old";
  if (h->version > TENON_BLOB_VERSION) return "the blob's version is newer than this reader";
  if (h->size != size) return "the blob is truncated or has trailing bytes";
  if (h->header_size < TENON_BLOB_HEADER_SIZE_V1 || h->header_size > size)
    return "the size of the blob's header is wrong";
  if (!tenon_blob_stride_ok_(h->function_stride, TENON_BLOB_FUNCTION_SIZE_V1) ||
      !tenon_blob_stride_ok_(h->value_stride, TENON_BLOB_VALUE_SIZE_V1) ||
      !tenon_blob_stride_ok_(h->node_stride, TENON_BLOB_NODE_SIZE_V1) ||
      !tenon_blob_stride_ok_(h->attr_stride, TENON_BLOB_ATTR_SIZE_V1))
    return "a stride of the blob is wrong";
  b.bytes = (const unsigned char*)bytes;
  b.size = size;
  b.header = h;
  if (h->function_count == 0) return "the blob has no function";
  if (!tenon_blob_str_ok_(&b, h->name)) return "the blob's name is out of bounds";
  if (!tenon_blob_range_(&b, h->functions, h->function_count, h->function_stride))
    return "functions are out of bounds";
  for (uint32_t i = 0; i < h->function_count; ++i) {
    const char* bad = tenon_blob_check_function_(&b, i, &last_body);
    if (bad) return bad;
  }
  *out = b;
  return NULL;
}

// ---- Nodes --------------------------------------------------------------------------------------

// A node, and what was read of it.
typedef struct tenon_node_view {
  const tenon_blob* blob;
  const tenon_blob_function* function;
  const tenon_blob_node* node;
  uint64_t attrs_seen;     // bit i: attribute i was read
  uint32_t operands_seen;  // operands at positions below this were read
  uint32_t outputs_seen;   // outputs at positions below this were read
  uint32_t lists_seen;     // sizes of operand lists below this were read
  uint32_t reserved0;
} tenon_node_view;

static inline tenon_node_view tenon_node_at(const tenon_blob* b, uint32_t function, uint32_t node) {
  tenon_node_view v = {b, tenon_blob_function_at(b, function), NULL, 0, 0, 0, 0, 0};
  v.node = tenon_blob_node_at(b, v.function, node);
  return v;
}
// Returns operand k, NULL if absent.
static inline const tenon_blob_value* tenon_node_operand(tenon_node_view* n, uint32_t k) {
  uint32_t v;
  if (k >= n->operands_seen) n->operands_seen = k + 1;
  if (k >= n->node->operand_count) return NULL;
  v = tenon_blob_indices(n->blob, n->node->operands)[k];
  return v == TENON_NONE ? NULL : tenon_blob_value_at(n->blob, n->function, v);
}
// Returns output k, NULL if not wanted.
static inline const tenon_blob_value* tenon_node_output(tenon_node_view* n, uint32_t k) {
  uint32_t v;
  if (k >= n->outputs_seen) n->outputs_seen = k + 1;
  if (k >= n->node->output_count) return NULL;
  v = tenon_blob_indices(n->blob, n->node->outputs)[k];
  return v == TENON_NONE ? NULL : tenon_blob_value_at(n->blob, n->function, v);
}
// Return the size of operand list or output list k of the op, 0 if the node does not have it. Ask
// for the size of a list, even if it is the last operand: a later version of the op may have
// operands behind it.
static inline uint32_t tenon_node_operand_list(tenon_node_view* n, uint32_t k) {
  if (k >= n->lists_seen) n->lists_seen = k + 1;
  if (k >= n->node->operand_list_count) return 0;
  return tenon_blob_indices(n->blob, n->node->operand_lists)[k];
}
static inline uint32_t tenon_node_output_list(const tenon_node_view* n, uint32_t k) {
  if (k >= n->node->output_list_count) return 0;
  return tenon_blob_indices(n->blob, n->node->output_lists)[k];
}
// Returns an attribute by name and type, NULL if it is left out. An attribute of another type stays
// marked as not read.
static inline const tenon_blob_attr* tenon_node_attr(tenon_node_view* n, const char* name,
                                                     uint32_t type) {
  for (uint32_t i = 0; i < n->node->attr_count && i < TENON_BLOB_MAX_ATTRS; ++i) {
    const tenon_blob_attr* a = tenon_blob_attr_at(n->blob, n->node, i);
    if (a->type == type && tenon_str_is(tenon_blob_str(n->blob, a->name), name)) {
      n->attrs_seen |= UINT64_C(1) << i;
      return a;
    }
  }
  return NULL;
}
// Return the value of an attribute, or `otherwise` if it is left out.
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
static inline const double* tenon_node_floats(tenon_node_view* n, const char* name,
                                              uint32_t* out_count) {
  const tenon_blob_attr* a = tenon_node_attr(n, name, TENON_ATTR_FLOATS);
  *out_count = a ? a->count : 0;
  return a ? (const double*)tenon_blob_at(n->blob, a->bits) : NULL;
}
// Returns the index of the function that an attribute refers to, or TENON_NONE.
static inline uint32_t tenon_node_function(tenon_node_view* n, const char* name) {
  const tenon_blob_attr* a = tenon_node_attr(n, name, TENON_ATTR_FUNCTION);
  return a ? (uint32_t)a->bits : TENON_NONE;
}
// depth: how many bodies may still nest, so that a hostile blob does not overflow the stack.
static inline const char* tenon_body_unknown_(const tenon_blob* b, uint32_t function, int depth);
static inline const char* tenon_attrs_unknown_(const tenon_blob* b, const tenon_blob_node* n,
                                               int depth) {
  if (n->attr_count > TENON_BLOB_MAX_ATTRS) return "number of attributes";
  for (uint32_t i = 0; i < n->attr_count; ++i) {
    const tenon_blob_attr* a = tenon_blob_attr_at(b, n, i);
    const char* unknown = NULL;
    if (a->type == TENON_ATTR_DTYPE && a->bits >= TENON_DTYPE_COUNT) return "dtype";
    if (a->type == TENON_ATTR_FUNCTION) unknown = tenon_body_unknown_(b, (uint32_t)a->bits, depth);
    if (unknown) return unknown;
  }
  return n->flags & ~TENON_NODE_FLAGS ? "flags" : NULL;
}
static inline const char* tenon_body_unknown_(const tenon_blob* b, uint32_t function, int depth) {
  const tenon_blob_function* f = tenon_blob_function_at(b, function);
  const char* unknown = depth == 0 ? "nesting" : NULL;
  for (uint32_t i = 0; i < f->value_count && !unknown; ++i)
    unknown = tenon_blob_unknown(tenon_blob_value_at(b, f, i));
  for (uint32_t i = 0; i < f->node_count && !unknown; ++i)
    unknown = tenon_attrs_unknown_(b, tenon_blob_node_at(b, f, i), depth - 1);
  return unknown;
}
// Returns NULL if this header knows the types and flags of everything that the node touches: its
// operands, outputs and attributes, and all values of its bodies. Otherwise returns what it does
// not know, as tenon_blob_unknown() does, or the limit that the node exceeds: "number of operands",
// "number of attributes" or "nesting". Call it before anything of the node is used: a dtype that is
// unknown may be no index of a table, and a rank may exceed TENON_MAX_RANK.
static inline const char* tenon_node_unknown_type(const tenon_node_view* n) {
  if (n->node->operand_count > TENON_BLOB_MAX_OPERANDS ||
      n->node->output_count > TENON_BLOB_MAX_OPERANDS)
    return "number of operands";
  for (uint32_t i = 0; i < n->node->operand_count + n->node->output_count; ++i) {
    const uint32_t in = n->node->operand_count;
    const uint32_t v = i < in ? tenon_blob_indices(n->blob, n->node->operands)[i]
                              : tenon_blob_indices(n->blob, n->node->outputs)[i - in];
    const char* unknown =
        v == TENON_NONE ? NULL : tenon_blob_unknown(tenon_blob_value_at(n->blob, n->function, v));
    if (unknown) return unknown;
  }
  return tenon_attrs_unknown_(n->blob, n->node, TENON_BLOB_MAX_NESTING);
}
// Returns NULL if everything of the node was read. Otherwise returns what was not: "attribute" (its
// name in *out_name), "list" (its size), "operand" or "output".
static inline const char* tenon_node_unknown(const tenon_node_view* n, tenon_str* out_name) {
  out_name->data = "";
  out_name->size = 0;
  for (uint32_t i = 0; i < n->node->attr_count; ++i)
    if (i >= TENON_BLOB_MAX_ATTRS || !(n->attrs_seen >> i & 1)) {
      *out_name = tenon_blob_str(n->blob, tenon_blob_attr_at(n->blob, n->node, i)->name);
      return "attribute";
    }
  for (uint32_t i = n->lists_seen; i < n->node->operand_list_count; ++i)
    if (tenon_blob_indices(n->blob, n->node->operand_lists)[i] != 0) return "list";
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
