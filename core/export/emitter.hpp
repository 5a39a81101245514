// SPDX-License-Identifier: Apache-2.0
// Writes the nodes of an ONNX model: unique names, constants, and casts where an op of ONNX does not
// take a dtype.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "import/onnx/model.hpp"
#include "ops/build.hpp"

namespace tenon::core::onnx {

inline constexpr int64_t kExportOpset = 21;

// A value of the ONNX graph; absent by default.
struct Ref {
  std::string name{};
  DType dtype = TENON_DTYPE_NONE;
  explicit operator bool() const { return !name.empty(); }
};

// Thrown inside a rule: the node has no form in ONNX.
struct NoForm {
  std::string reason;
};

// An attribute of an ONNX node.
Attribute attribute(std::string name, int64_t value);
Attribute attribute(std::string name, double value);
Attribute attribute(std::string name, const std::string& value);
Attribute attribute(std::string name, const Ints& value);
Attribute attribute(std::string name, core::onnx::Graph value);
inline Attribute attribute(std::string name, int value) {
  return attribute(std::move(name), int64_t{value});
}
inline Attribute attribute(std::string name, bool value) {
  return attribute(std::move(name), int64_t{value});
}
inline Attribute attribute(std::string name, const char* value) {
  return attribute(std::move(name), std::string(value));
}

class Emitter {
 public:
  // A constant of the model. Weights have a name in the store instead of data.
  struct Constant {
    std::string name{};
    Type type{};
    std::shared_ptr<const Bytes> data{};
    Space space = Space::constant;
    std::string stored{};
  };
  std::vector<Node> nodes{};  // of the graph that is being written
  std::vector<Constant> constants{};

  // A name that nothing has yet: `wanted`, or with a number behind it.
  std::string unique(std::string_view wanted);
  // Prefix of the names that follow: the node of tenon that they come from.
  void begin(std::string_view node) { prefix_ = node; }
  std::string_view prefix() const { return prefix_; }

  // Adds a node; absent inputs at the end are cut off. The row of type_limits.cpp says what dtypes
  // the op takes and gives; others are converted and converted back. Throws NoForm where none holds
  // all numbers.
  Ref add(std::string_view op, std::vector<Ref> inputs, std::vector<Attribute> attributes = {}) {
    return add_all(op, std::move(inputs), std::move(attributes), 1)[0];
  }
  std::vector<Ref> add_all(std::string_view op, std::vector<Ref> inputs,
                           std::vector<Attribute> attributes, size_t outputs);
  // The same without limits, with outputs of these dtypes.
  std::vector<Ref> add_plain(std::string_view op, const std::vector<Ref>& inputs,
                             std::vector<Attribute> attributes, const std::vector<DType>& dtypes);

  Ref constant(const Type& type, std::shared_ptr<const Bytes> data, std::string_view name = {});
  Ref ints(const Ints& values);  // i64, rank 1
  Ref scalar(DType dtype, double value);
  Ref integer(int64_t value);  // i64, rank 0

  // Frequent nodes. Each returns x if nothing changes.
  Ref cast(const Ref& x, DType to);
  Ref widen(const Ref& x) { return cast(x, acc_dtype(x.dtype)); }
  Ref reshape(const Ref& x, const Ints& shape);  // 0 copies a dim, -1 is what is left
  Ref transpose(const Ref& x, const Ints& perm);
  Ref unsqueeze(const Ref& x, const Ints& axes);
  Ref slice(const Ref& x, int64_t axis, int64_t start, int64_t end, int64_t step = 1);
  Ref concat(const std::vector<Ref>& xs, int64_t axis);
  Ref where(const Ref& cond, const Ref& a, const Ref& b) { return add("Where", {cond, a, b}); }
  Ref range(const Ref& count);  // 0, 1, ... as i64; count: a scalar

 private:
  std::set<std::string, std::less<>> taken_{};
  std::map<std::string, int64_t, std::less<>> last_{};
  std::map<std::string, std::string> small_{};  // content of small constants -> name
  std::map<std::pair<const Bytes*, std::string>, std::string> large_{};
  std::string prefix_{};
};

// What an op of opset 21 takes and gives. `in` and `out` have a letter for each position, the last
// of `in` counts for all behind it: T the dtype that is limited, b bool, l i64, w i32, . any.
struct TypeLimits {
  std::string_view op{};
  uint64_t dtypes = 0;  // bit of a dtype: it may be T
  std::string_view in{}, out{};
};
const TypeLimits& type_limits(std::string_view op);
// The dtype in which an op of these limits computes for operands of `dtype`; NONE if there is none.
DType fitting_dtype(const TypeLimits& limits, DType dtype);

}  // namespace tenon::core::onnx
