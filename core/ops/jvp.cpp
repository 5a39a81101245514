// SPDX-License-Identifier: Apache-2.0
// Writes two requests for gradients.
#include "ops/jvp.hpp"

#include "ops/build.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kWhere = "jvp";

class Writer {
 public:
  Writer(Graph& graph, DTypes& dtypes) : graph_(graph), dtypes_(dtypes) {}

  DType float_dtype(Value v, std::string_view what) {
    const DType dtype = dtypes_.of(graph_, v);
    if (dtype == TENON_DTYPE_NONE)
      fail(Code::unsupported, "jvp: ", what,
           ": its dtype depends on symbols, and a node before it "
           "refuses the numbers that were tried for them");
    if (!is_float(dtype))
      fail(Code::dtype_mismatch, "jvp: ", what, ": expected a float, got ", dtype_name(dtype));
    return dtype;
  }
  // Zeros of the type of v, which may depend on symbols. Finite where v is not.
  Value zeros_like(Value v, DType dtype) {
    Builder b(graph_);
    return add(op::where{.cond = b.scalar_int(kBool, 0), .a = v, .b = b.scalar(dtype, 0)});
  }
  // Fails once shapes are numbers, unless they are equal. Nothing reads the node, so it never runs.
  void want_same_shape(Value x, Value t, const std::string& who) {
    graph_.add(op::activation_backward{.kind = "neg", .x = x, .dy = t}, who);
  }
  // Σ of a·b over all pairs and elements, as one element of the first dtype. Only its gradient is
  // ever computed.
  Value inner(std::span<const Value> as, std::span<const Value> bs, std::span<const DType> dtypes) {
    Value sum;
    for (size_t k = 0; k < as.size(); ++k) {
      const Value product = add(op::binary{.kind = "mul", .a = as[k], .b = bs[k]});
      Value part = add(op::reduce{.kind = "sum", .x = product});
      if (dtypes[k] != dtypes[0]) part = add(op::cast{.to = dtypes[0], .x = part});
      sum = sum ? add(op::binary{.kind = "add", .a = sum, .b = part}) : part;
    }
    return sum;
  }
  std::vector<Value> gradients(Value loss, std::span<const Value> wrt) {
    const NodeId n = graph_.add(op::grad{.loss = loss, .wrt = {wrt.begin(), wrt.end()}}, kWhere);
    return graph_[n].outputs;
  }

 private:
  template <class Op>
  Value add(const Op& op) {
    return graph_[graph_.add(op, kWhere)].outputs[0];
  }
  Graph& graph_;
  DTypes& dtypes_;
};

}  // namespace

std::vector<Value> jvp(Graph& graph, DTypes& dtypes, std::span<const Value> ys,
                       std::span<const Value> xs, std::span<const Value> tangents) {
  if (ys.empty() || xs.empty())
    fail(Code::invalid_argument, "jvp: expected at least one output and one input");
  Writer write(graph, dtypes);
  // Refused before anything is written.
  std::vector<DType> of_xs, of_ys;
  std::vector<bool> known;
  for (size_t k = 0; k < xs.size(); ++k) {
    const DType x = write.float_dtype(xs[k], cat("input ", k));
    const DType t = write.float_dtype(tangents[k], cat("tangent ", k));
    of_xs.push_back(x);
    const Type &wanted = graph.type(xs[k]), &given = graph.type(tangents[k]);
    if (x != t)
      fail(Code::dtype_mismatch, "jvp: tangent ", k, ": expected ", dtype_name(x),
           " as its input, got ", dtype_name(t));
    known.push_back(wanted.dtype != TENON_DTYPE_NONE && given.dtype != TENON_DTYPE_NONE);
    if (known[k] && wanted != given)
      fail(Code::shape_mismatch, "jvp: tangent ", k, ": expected ", wanted.text(),
           " as its input, got ", given.text());
  }
  for (size_t k = 0; k < ys.size(); ++k)
    of_ys.push_back(write.float_dtype(ys[k], cat("output ", k)));

  for (size_t k = 0; k < xs.size(); ++k)
    if (!known[k]) write.want_same_shape(xs[k], tangents[k], cat("jvp: tangent ", k));
  std::vector<Value> us;
  for (size_t k = 0; k < ys.size(); ++k) us.push_back(write.zeros_like(ys[k], of_ys[k]));
  const std::vector<Value> by_xs = write.gradients(write.inner(ys, us, of_ys), xs);
  return write.gradients(write.inner(by_xs, tangents, of_xs), us);
}

}  // namespace tenon::core
