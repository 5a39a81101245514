// SPDX-License-Identifier: Apache-2.0
//
// Ops and nodes in C++: types, values, one struct per op, and their conversion to op.h. Shared by
// apps (tenon.hpp) and by rules of ops (op.hpp). Header-only, without a function of libtenon.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "half.hpp"
#include "op.h"
#include "ops.hpp"

namespace tenon {

inline constexpr tenon_dtype f32 = TENON_DTYPE_F32, f16 = TENON_DTYPE_F16, bf16 = TENON_DTYPE_BF16,
                             f64 = TENON_DTYPE_F64, i8 = TENON_DTYPE_I8, i16 = TENON_DTYPE_I16,
                             i32 = TENON_DTYPE_I32, i64 = TENON_DTYPE_I64, u8 = TENON_DTYPE_U8,
                             u16 = TENON_DTYPE_U16, u32 = TENON_DTYPE_U32, u64 = TENON_DTYPE_U64,
                             boolean = TENON_DTYPE_BOOL;

// Where a run failed, as far as it is known: tenon_status_place in tenon.h.
struct FailurePlace {
  std::string node{}, op{}, device{};
  uint64_t run_id = 0;
  int64_t index = -1;
  uint32_t step = TENON_NONE;
  bool retryable = false;
};

class Error : public std::runtime_error {
 public:
  Error(tenon_code code, const std::string& text, FailurePlace place = {})
      : std::runtime_error(text), code_(code), place_(std::move(place)) {}
  tenon_code code() const { return code_; }
  const FailurePlace& place() const { return place_; }

 private:
  tenon_code code_;
  FailurePlace place_;
};

namespace detail {
inline tenon_str str(std::string_view s) { return {s.data(), s.size()}; }
inline std::string string(tenon_str s) { return {s.data ? s.data : "", s.size}; }
// values: what a string or dtype attribute accepts.
inline tenon_op_part c_part(const OpPart& p, std::string_view values) {
  tenon_op_part out{};
  out.name = str(p.name);
  out.kind = static_cast<uint32_t>(p.kind);
  out.type = p.attr_type;
  out.default_int = p.default_int;
  out.default_float = p.default_float;
  out.default_str = str(p.default_str);
  out.values = str(values);
  return out;
}
template <class T>
constexpr tenon_dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return TENON_DTYPE_F32;
  else if constexpr (std::is_same_v<T, double>)
    return TENON_DTYPE_F64;
  else if constexpr (std::is_same_v<T, F16>)
    return TENON_DTYPE_F16;
  else if constexpr (std::is_same_v<T, BF16>)
    return TENON_DTYPE_BF16;
  else if constexpr (std::is_same_v<T, bool>)
    return TENON_DTYPE_BOOL;
  else if constexpr (std::is_integral_v<T>) {
    constexpr tenon_dtype of_signed[] = {TENON_DTYPE_I8, TENON_DTYPE_I16, TENON_DTYPE_I32,
                                         TENON_DTYPE_I64};
    constexpr tenon_dtype of_unsigned[] = {TENON_DTYPE_U8, TENON_DTYPE_U16, TENON_DTYPE_U32,
                                           TENON_DTYPE_U64};
    constexpr int k = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? of_signed[k] : of_unsigned[k];
  } else {
    static_assert(sizeof(T) == 0, "no dtype of tenon has this C++ type; pass bytes and a dtype");
  }
}
}  // namespace detail

// A dtype and a shape.
struct TensorType {
  tenon_dtype dtype = TENON_DTYPE_NONE;
  std::vector<int64_t> dims{};

  TensorType() = default;
  TensorType(tenon_dtype dtype_, std::vector<int64_t> dims_)
      : dtype(dtype_), dims(std::move(dims_)) {}
  explicit TensorType(const tenon_tensor_type& t) : dtype(t.dtype), dims(t.dims, t.dims + t.rank) {}
  // Throws if the shape has symbols, or if the number of elements overflows.
  int64_t elements() const {
    int64_t n = 1;
    bool zero = false;
    for (int64_t d : dims) {
      if (d < 0) throw Error(TENON_INVALID_ARGUMENT, "elements of a type with symbols");
      if (d == 0)
        zero = true;
      else if (n > (INT64_MAX >> 7) / d)
        throw Error(TENON_INVALID_ARGUMENT, "a shape whose size overflows");
      else
        n *= d;
    }
    return zero ? 0 : n;
  }
  uint64_t bytes() const { return tenon_dense_bytes(dtype, elements()); }
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// A value of a graph; absent by default. It is valid as long as its graph. Values of a Graph
// (tenon.hpp) have operators: a + b, 2 * a, -a. == tells whether two are the same value.
struct Value {
  tenon_value id = TENON_NONE;
  tenon_graph* graph = nullptr;  // that made it; nullptr in rules (op.hpp)
  Value() = default;
  explicit Value(tenon_value id_, tenon_graph* graph_ = nullptr) : id(id_), graph(graph_) {}
  explicit operator bool() const { return id != TENON_NONE; }
  friend bool operator==(Value, Value) = default;
};

// The outputs of a new node. Converts to the first one.
struct Node {
  std::vector<Value> outputs{};
  operator Value() const { return (*this)[0]; }  // NOLINT: implicit on purpose
  Value operator[](size_t k) const {
    if (k >= outputs.size())
      throw Error(TENON_INVALID_ARGUMENT, "output " + std::to_string(k) + " of a node: it has " +
                                              std::to_string(outputs.size()));
    return outputs[k];
  }
};

class Graph;

// A graph as an attribute, for example a fused body. The graph must live until the node is added.
struct Function {
  const tenon_graph* graph = nullptr;
  Function() = default;
  Function(const Graph& body);  // NOLINT: implicit on purpose
};

// The ops: one struct each, see op_structs.inl.
namespace op {
#include "op_structs.inl"
}  // namespace op

namespace detail {
// Converts an op struct to a tenon_node_desc. Leaves out attributes that
// equal their default. Refuses values of another graph than `graph`.
struct NodeEncoder {
  template <class Op>
  explicit NodeEncoder(const Op& op, tenon_graph* graph = nullptr) : graph_(graph) {
    visit(op, *this);
  }
  // The description points into this object, the op and the provenance.
  template <class Op>
  tenon_node_desc desc(const Op&, std::string_view provenance) const {
    tenon_node_desc desc{};
    desc.struct_size = sizeof desc;
    desc.domain = str(Op::kDomain);
    desc.op = str(Op::kName);
    desc.version = Op::kVersion;
    desc.operands = operands.data();
    desc.operand_count = static_cast<uint32_t>(operands.size());
    desc.lists = lists.data();
    desc.list_count = static_cast<uint32_t>(lists.size());
    desc.attributes = args.data();
    desc.attribute_stride = sizeof(tenon_arg);
    desc.attribute_count = static_cast<uint32_t>(args.size());
    desc.want = want.data();
    desc.output_count = static_cast<uint32_t>(want.size());
    desc.provenance = str(provenance);
    return desc;
  }

  std::vector<tenon_value> operands{};
  std::vector<uint32_t> lists{};
  std::vector<tenon_arg> args{};
  std::vector<uint8_t> want{};

  tenon_arg& arg(const char* name, uint32_t type) {
    tenon_arg a{};
    a.name = str(name);
    a.type = type;
    return args.emplace_back(a);
  }
  void attr(const char* name, const std::string& v, const std::string& otherwise) {
    if (v != otherwise) arg(name, TENON_ARG_STR).str = str(v);
  }
  void attr(const char* name, int64_t v, int64_t otherwise) {
    if (v != otherwise) arg(name, TENON_ARG_I64).i64 = v;
  }
  void attr(const char* name, double v, double otherwise) {
    if (v != otherwise && !(is_unset(v) && is_unset(otherwise))) arg(name, TENON_ARG_F64).f64 = v;
  }
  void attr(const char* name, bool v, bool otherwise) {
    if (v != otherwise) arg(name, TENON_ARG_BOOL).i64 = v;
  }
  void attr(const char* name, tenon_dtype v, tenon_dtype otherwise) {
    if (v != otherwise) arg(name, TENON_ARG_DTYPE).i64 = v;
  }
  void attr(const char* name, const std::vector<int64_t>& v, const std::vector<int64_t>&) {
    if (v.empty()) return;
    tenon_arg& a = arg(name, TENON_ARG_INTS);
    a.ints = v.data();
    a.count = static_cast<uint32_t>(v.size());
  }
  void attr(const char* name, const std::vector<double>& v, const std::vector<double>&) {
    if (v.empty()) return;
    tenon_arg& a = arg(name, TENON_ARG_FLOATS);
    a.floats = v.data();
    a.count = static_cast<uint32_t>(v.size());
  }
  void attr(const char* name, const Function& v, const Function&) {
    if (v.graph) arg(name, TENON_ARG_FUNCTION).function = v.graph;
  }
  void operand(const char* name, Value v) {
    if (v.graph && graph_ && v.graph != graph_)
      throw Error(TENON_INVALID_ARGUMENT,
                  "operand " + std::string(name) + ": expected a value of this graph");
    operands.push_back(v.id);
  }
  void optional(const char* name, Value v) { operand(name, v); }
  void list(const char* name, const std::vector<Value>& vs) {
    for (Value v : vs) operand(name, v);
    lists.push_back(static_cast<uint32_t>(vs.size()));
  }
  void output(const char*, bool wanted = true) { want.push_back(wanted); }
  void output_list(const char* name, size_t count) {
    if (count > TENON_BLOB_MAX_OPERANDS)
      throw Error(TENON_INVALID_ARGUMENT, "count_" + std::string(name) + ": expected at most " +
                                              std::to_string(TENON_BLOB_MAX_OPERANDS) + ", got " +
                                              std::to_string(count));
    want.insert(want.end(), count, 1);
  }

 private:
  tenon_graph* graph_;
};
}  // namespace detail

}  // namespace tenon
