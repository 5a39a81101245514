// SPDX-License-Identifier: Apache-2.0
// Reads all that the accessors of tenon/blob.h reach in a blob that was accepted, as a plugin may.
#pragma once

#include <tenon/blob.h>

#include "check.hpp"

namespace tenon::fuzz {

inline void read(tenon_str s) { read(s.data, s.size); }

inline void read_value(const tenon_blob& b, const tenon_blob_value* v) {
  if (!v) return;
  read(tenon_blob_str(&b, v->name));
  read(tenon_blob_dims(&b, v), v->rank * sizeof(int64_t));
  const int64_t elements = tenon_blob_elements(&b, v);
  must(elements >= 0, "a value has fewer than no elements");
  if (!v->data) return;
  if (!tenon_blob_unknown(v))
    must(v->data_size == tenon_dense_bytes(v->dtype, elements), "a constant has another size");
  read(tenon_blob_at(&b, v->data), v->data_size);
}

// Each attribute as the type that it says it has.
inline void read_attr(tenon_node_view& n, const tenon_blob_attr& a) {
  const tenon_blob& b = *n.blob;
  const tenon_str name = tenon_blob_str(&b, a.name);
  read(name);
  switch (a.type) {
    case TENON_ATTR_STR:
      read(tenon_blob_str(&b, a.bits));
      break;
    case TENON_ATTR_INTS:
    case TENON_ATTR_FLOATS:
      read(tenon_blob_at(&b, a.bits), a.count * uint64_t{8});
      break;
    case TENON_ATTR_FUNCTION:
      must(a.bits < b.header->function_count &&
               tenon_blob_function_at(&b, static_cast<uint32_t>(a.bits)) > n.function,
           "a function refers to itself or to none");
      break;
    default:
      break;
  }
}

inline void read_node(const tenon_blob& b, uint32_t function, uint32_t node) {
  tenon_node_view n = tenon_node_at(&b, function, node);
  read(tenon_blob_str(&b, n.node->domain));
  read(tenon_blob_str(&b, n.node->op));
  read(tenon_blob_str(&b, n.node->provenance));
  for (uint32_t k = 0; k <= n.node->operand_count; ++k) read_value(b, tenon_node_operand(&n, k));
  for (uint32_t k = 0; k <= n.node->output_count; ++k) read_value(b, tenon_node_output(&n, k));
  uint32_t listed = 0;
  for (uint32_t k = 0; k <= n.node->operand_list_count; ++k)
    listed += tenon_node_operand_list(&n, k);
  must(listed <= n.node->operand_count, "lists hold more than the operands");
  listed = 0;
  for (uint32_t k = 0; k <= n.node->output_list_count; ++k) listed += tenon_node_output_list(&n, k);
  must(listed <= n.node->output_count, "lists hold more than the outputs");
  for (uint32_t i = 0; i < n.node->attr_count; ++i)
    read_attr(n, *tenon_blob_attr_at(&b, n.node, i));
  tenon_node_i64(&n, "axis", 0);
  tenon_node_f64(&n, "eps", 0);
  tenon_node_bool(&n, "causal", 0);
  const bool known = tenon_node_unknown_type(&n) == nullptr;
  must(tenon_node_dtype(&n, "dtype", 0) < TENON_DTYPE_COUNT || !known,
       "an unknown dtype of an attribute is not told");
  read(tenon_node_str(&n, "kind", "none"));
  uint32_t count = 0;
  const int64_t* axes = tenon_node_ints(&n, "axes", &count);
  if (axes) read(axes, count * sizeof(int64_t));
  tenon_str unknown;
  tenon_node_unknown(&n, &unknown);
  read(unknown);
}

inline void read_blob(const void* bytes, uint64_t size) {
  tenon_blob b;
  if (tenon_blob_open(bytes, size, &b) != nullptr) return;
  for (uint32_t f = 0; f < b.header->function_count; ++f) {
    const tenon_blob_function* function = tenon_blob_function_at(&b, f);
    read(tenon_blob_str(&b, function->name));
    for (uint32_t i = 0; i < function->input_count; ++i)
      read_value(b, tenon_blob_value_at(&b, function, tenon_blob_indices(&b, function->inputs)[i]));
    for (uint32_t i = 0; i < function->output_count; ++i)
      read_value(b,
                 tenon_blob_value_at(&b, function, tenon_blob_indices(&b, function->outputs)[i]));
    for (uint32_t v = 0; v < function->value_count; ++v)
      read_value(b, tenon_blob_value_at(&b, function, v));
    for (uint32_t n = 0; n < function->node_count; ++n) read_node(b, f, n);
  }
}

}  // namespace tenon::fuzz
