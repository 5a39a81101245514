// SPDX-License-Identifier: Apache-2.0
// Reads a fused body: the function that an attribute refers to, its values and its steps. Steps are
// decoded like nodes for make(). A step that carries anything its op does not know is refused.
#pragma once

#include <algorithm>
#include <deque>

#include "kernel.hpp"

namespace tenon::sdk {

// Fills a Node with the types of one node of a blob.
class NodeReader {
 public:
  static Node make(std::string_view domain, std::string_view op, uint32_t version,
                   Device* device = nullptr, uint32_t abi_minor = TENON_ABI_MINOR,
                   uint32_t hints = 0) {
    Node n(domain, op, version);
    n.device_ = device;
    n.abi_minor_ = abi_minor;
    n.hints_ = hints;
    return n;
  }
  static void add_input(Node& n, const Type* type, const void* content, bool frozen = false,
                        uint64_t alignment = 0) {
    n.inputs_.emplace_back(type, static_cast<int>(n.inputs_.size()), content, frozen, alignment);
  }
  static void add_output(Node& n, const Type* type, uint64_t alignment = 0) {
    n.outputs_.emplace_back(type, static_cast<int>(n.outputs_.size()), nullptr, false, alignment);
  }
};

namespace layer {

inline std::string_view text(tenon_str s) { return {s.data, s.size}; }

// A dense type from the blob.
inline Type type_of(const tenon_blob& blob, const tenon_blob_value& v) {
  Type t{.dtype = v.dtype, .rank = v.rank};
  std::copy_n(tenon_blob_dims(&blob, &v), v.rank, t.dims.begin());
  t.set_dense_strides();
  return t;
}

// Refuses a node without a required operand or output, because make() dereferences them.
inline void check_complete(const OpSchema& schema, tenon_node_view view) {
  const auto present = [&](uint64_t list, uint32_t count, size_t k) {
    return k < count && tenon_blob_indices(view.blob, list)[k] != TENON_NONE;
  };
  const tenon_blob_node& n = *view.node;
  size_t in = 0, out = 0;
  uint32_t list = 0;
  for (const OpPart& part : schema.parts()) {
    using Kind = OpPart::Kind;
    if (part.is_operand_list()) {
      const size_t end = in + tenon_node_operand_list(&view, list++);
      if (in == end && part.kind == Kind::operand_list)
        throw Refusal::shape("operand " + std::string(part.name) + " is missing");
      for (; in < end; ++in)
        if (!present(n.operands, n.operand_count, in))
          throw Refusal::shape("one of operand " + std::string(part.name) + " is missing");
    }
    if (part.kind == Kind::operand && !present(n.operands, n.operand_count, in))
      throw Refusal::shape("operand " + std::string(part.name) + " is missing");
    if (part.kind == Kind::output && !present(n.outputs, n.output_count, out))
      throw Refusal::shape("output " + std::string(part.name) + " is missing");
    in += part.kind == Kind::operand || part.kind == Kind::optional_operand;
    out += part.kind == Kind::output || part.kind == Kind::optional_output;
  }
}

// Refuses what this version of the ABI's headers does not know, before anything relies on it.
inline void check_type(const char* unknown, const std::string& of) {
  if (!unknown) return;
  const bool dtype = std::string_view(unknown) == "dtype";
  throw Refusal(dtype ? TENON_REASON_DTYPE : TENON_REASON_UNKNOWN,
                std::string("the ") + unknown + of + " is unknown to this plugin");
}

// tenon_node_unknown_type() takes an attribute that is a dtype of blocks for unknown, so that plugins
// that do not look refuse it. Rows with kBlocks look.
inline const char* unknown_type(const tenon_node_view& view) {
  const char* const unknown = tenon_node_unknown_type(&view);
  if (!unknown || std::string_view(unknown) != "dtype") return unknown;
  const tenon_blob_node& n = *view.node;
  for (uint32_t k = 0; k < n.operand_count + n.output_count; ++k) {
    const uint32_t v = k < n.operand_count
                           ? tenon_blob_indices(view.blob, n.operands)[k]
                           : tenon_blob_indices(view.blob, n.outputs)[k - n.operand_count];
    if (v != TENON_NONE && tenon_blob_unknown(tenon_blob_value_at(view.blob, view.function, v)))
      return unknown;
  }
  for (uint32_t k = 0; k < n.attr_count; ++k) {
    const tenon_blob_attr& a = *tenon_blob_attr_at(view.blob, view.node, k);
    if (a.type == TENON_ATTR_FUNCTION) return unknown;  // bodies have no blocks
    if (a.type == TENON_ATTR_DTYPE && a.bits >= TENON_DTYPE_COUNT &&
        (a.bits > UINT16_MAX || !is_blocks(static_cast<tenon_dtype>(a.bits))))
      return unknown;
  }
  return nullptr;
}

// Refuses blocks beside an op of tenon whose row, with these flags, does not read them, so that its
// kernels need not look.
inline void check_blocks(const tenon_node_view& view, std::string_view domain, std::string_view op,
                         uint32_t flags) {
  const OpSchema* schema = domain == "tenon" ? find_op(op) : nullptr;
  if (!schema || schema->family == "dequant" || flags & kBlocks) return;
  const tenon_blob_node& n = *view.node;
  for (uint32_t k = 0; k < n.operand_count + n.output_count; ++k) {
    const uint32_t v = k < n.operand_count
                           ? tenon_blob_indices(view.blob, n.operands)[k]
                           : tenon_blob_indices(view.blob, n.outputs)[k - n.operand_count];
    if (v == TENON_NONE) continue;
    const tenon_dtype t = tenon_blob_value_at(view.blob, view.function, v)->dtype;
    if (is_blocks(t))
      throw Refusal(TENON_REASON_DTYPE, "op " + std::string(op) + " does not read blocks, got " +
                                            std::string(dtype_name(t)));
  }
}

// Refuses a node if a part of it was not read.
inline void check_known(const tenon_node_view& view) {
  tenon_str name;
  if (const char* what = tenon_node_unknown(&view, &name))
    throw Refusal::unknown(what,
                           name.size ? text(name) : std::string_view("beyond what the op had"));
}

}  // namespace layer

class Body {
 public:
  // Refuses an absent attribute.
  explicit Body(const Function& f) {
    if (!f) throw Refusal(TENON_REASON_ATTRIBUTE, "the body is missing");
    blob_ = *f.blob;
    number_ = f.index;
    for (uint32_t v = 0; v < function().value_count; ++v) {
      layer::check_type(tenon_blob_unknown(&value(v)), " of a value of the body");
      types_.push_back(layer::type_of(blob_, value(v)));
    }
  }

  // Values: inputs in the order of a call, constants of one element, and results of steps.
  uint32_t value_count() const { return function().value_count; }
  const Type& type(uint32_t v) const { return types_[v]; }
  uint32_t space(uint32_t v) const { return value(v).space; }
  // The bytes of a constant, or nullptr if the blob does not contain them.
  const void* content(uint32_t v) const {
    return value(v).data ? tenon_blob_at(&blob_, value(v).data) : nullptr;
  }
  std::vector<uint32_t> inputs() const {
    std::vector<uint32_t> list;
    for (uint32_t v : indices(function().inputs, function().input_count))
      if (value(v).space == TENON_SPACE_INPUT) list.push_back(v);
    return list;
  }
  std::span<const uint32_t> outputs() const {
    return indices(function().outputs, function().output_count);
  }

  uint32_t step_count() const { return function().node_count; }
  // Empty if the op belongs to another domain.
  std::string_view op(uint32_t step) const {
    if (layer::text(tenon_blob_str(&blob_, node(step).domain)) != "tenon") return {};
    return layer::text(tenon_blob_str(&blob_, node(step).op));
  }
  // Value numbers; TENON_NONE for absent operands.
  std::span<const uint32_t> operands(uint32_t step) const {
    return indices(node(step).operands, node(step).operand_count);
  }
  std::span<const uint32_t> outputs(uint32_t step) const {
    return indices(node(step).outputs, node(step).output_count);
  }
  // Decodes a step. Refuses other versions of the op, and parts that the op does not know.
  template <class Op>
  Op as(uint32_t step) const {
    if (node(step).version > Op::kVersion)
      throw Refusal(TENON_REASON_OP, std::string(Op::kName) + " version " +
                                         std::to_string(node(step).version) + " in a body");
    tenon_node_view view = tenon_node_at(&blob_, number_, step);
    layer::check_complete(*find_op(Op::kName), view);
    Node n = NodeReader::make("tenon", Op::kName, node(step).version);
    for (uint32_t v : operands(step))
      NodeReader::add_input(n, v == TENON_NONE ? nullptr : &types_[v],
                            v == TENON_NONE ? nullptr : content(v));
    for (uint32_t v : outputs(step))
      NodeReader::add_output(n, v == TENON_NONE ? nullptr : &types_[v]);
    Op op;
    visit(op, Decoder(view, n));
    layer::check_known(view);
    return op;
  }

 private:
  const tenon_blob_function& function() const { return *tenon_blob_function_at(&blob_, number_); }
  const tenon_blob_node& node(uint32_t i) const {
    return *tenon_blob_node_at(&blob_, &function(), i);
  }
  const tenon_blob_value& value(uint32_t v) const {
    return *tenon_blob_value_at(&blob_, &function(), v);
  }
  std::span<const uint32_t> indices(uint64_t offset, uint32_t count) const {
    return {tenon_blob_indices(&blob_, offset), count};
  }

  tenon_blob blob_{};
  uint32_t number_ = 0;
  std::deque<Type> types_{};  // the Values of an op struct point into it
};

}  // namespace tenon::sdk
