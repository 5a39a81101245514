// SPDX-License-Identifier: Apache-2.0
// A node of tenon as its rule sees it, and the table of rules.
#pragma once

#include <functional>
#include <span>

#include "export/emitter.hpp"

namespace tenon::core::onnx {

// A graph whose nodes are being written. Dims that depend on symbols, or on data, differ between
// `graph` and `other`, which has the same nodes for other sizes.
struct View {
  const core::Graph& graph;
  const core::Graph* other = nullptr;  // null: all dims are numbers
  std::vector<Ref> refs{};             // by value
};

// Attributes of ONNX that are floats are f32.
inline bool fits_f32(double v) { return static_cast<double>(static_cast<float>(v)) == v; }

class Walk;  // export.cpp

class Call {
 public:
  Call(Walk& walk, Emitter& emitter, View& view, const NodeInfo& node)
      : walk(walk), e(emitter), node(node), view_(view) {}
  Walk& walk;
  Emitter& e;
  const NodeInfo& node;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw NoForm{cat(parts...)};
  }

  Ref in(Value v) const;  // absent for an absent operand
  DType dtype(Value v) const { return view_.graph.type(v).dtype; }
  int rank(Value v) const { return view_.graph.type(v).shape.rank(); }
  // A dim, or -1 if it is not the same in all runs.
  int64_t dim(Value v, int axis) const;
  bool is_known(Value v) const;
  // Refuses, with the operand's name, if a dim is no number.
  Ints dims(Value v, std::string_view operand) const;
  // A dim that may be known only when the model runs, as an i64 of rank 1.
  Ref length(Value v, int axis) const;
  // Dims from `first` to before `last`, likewise.
  Ref lengths(Value v, int first, int last) const;

  bool wants(size_t k) const { return k < node.outputs.size() && node.outputs[k]; }
  void out(size_t k, const Ref& r) const;
  void out(const Ref& r) const { out(0, r); }

  const core::Graph& graph() const { return view_.graph; }
  const core::Graph* other() const { return view_.other; }

 private:
  View& view_;
};

struct ExportRule {
  std::string_view op;
  void (*write)(Call&);
};

// clang-format off
#define TENON_EXPORT_RULES(X) \
  X(elementwise) X(matmul) X(reduce) X(norm) X(shape) X(index) X(conv) X(resample) X(control)
// clang-format on
#define TENON_EXPORT_DECLARE(family) std::span<const ExportRule> family##_export_rules();
TENON_EXPORT_RULES(TENON_EXPORT_DECLARE)
#undef TENON_EXPORT_DECLARE

// Null if there is none: the node is decomposed.
const ExportRule* find_export_rule(std::string_view op);

// ---- what rules of several families use

// y = f(x) for a kind of unary.
Ref write_unary(Call& c, const std::string& kind, double alpha, double beta, const Ref& x);
inline int64_t from_front(int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; }
inline Ints count_up(int64_t count, int64_t start = 0) {
  Ints out;
  for (int64_t k = 0; k < count; ++k) out.push_back(start + k);
  return out;
}
// Writes the nodes of a function with these operands. Returns its outputs.
std::vector<Ref> write_function(Call& c, const FunctionAttr& function,
                                const std::vector<Type>& types, const std::vector<Type>& others,
                                const std::vector<Ref>& operands);

}  // namespace tenon::core::onnx
