// SPDX-License-Identifier: Apache-2.0
// A plugin without a device: an op that ops of tenon cannot express, and a kernel for it on the cpu plugin. Where there
// is no such kernel, graphs with the op are refused.
#include <algorithm>
#include <numeric>
#include <span>

#include <tenon/op.hpp>
#include <tenon/plugin.hpp>

// The list of ops, as rules see it: operands are values of a graph.
namespace text {
using tenon::Function, tenon::Value;
#define TENON_OPS "edit_distance.def"
#define TENON_OPS_DOMAIN "text"
#include <tenon/op_structs.inl>

void shape(tenon::rules::Shape& s, const edit_distance& n) {
  s.want_dtype(n.a, "a", tenon::i32);
  s.want_dtype(n.b, "b", tenon::i32);
  s.want_rank(n.a, "a", 2);
  s.want_rank(n.b, "b", 2);
  s.want_shape(n.b, "b", {s.shape(n.a)[0], s.shape(n.b)[1]});
  s.out(0, {tenon::i64, {s.shape(n.a)[0]}});
}

constexpr tenon::OpRules<edit_distance> kRules{.shape = shape,
                                               .flags = TENON_OP_NOT_DIFFERENTIABLE};
}  // namespace text

// The same list, as kernels see it: operands have types and positions.
namespace text_kernels {
namespace sdk = tenon::sdk;
using sdk::Function, sdk::Value;
#define TENON_OPS "edit_distance.def"
#define TENON_OPS_DOMAIN "text"
#include <tenon/op_structs.inl>

using Tokens = std::span<const int32_t>;

Tokens cut(Tokens row, int64_t padding) {
  return row.first(static_cast<size_t>(std::ranges::find(row, padding) - row.begin()));
}

// costs: b.size() + 1 numbers; costs[j] leads from the tokens of a so far to the first j of b.
int64_t distance(Tokens a, Tokens b, int64_t* costs) {
  std::iota(costs, costs + b.size() + 1, int64_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t diagonal = costs[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t changed = diagonal + (a[i] != b[j]);
      diagonal = costs[j + 1];
      costs[j + 1] = std::min({changed, costs[j] + 1, costs[j + 1] + 1});
    }
  }
  return costs[b.size()];
}

// A maker inspects one node, and returns its kernel. The shape rule has checked the types.
sdk::Kernel make(const edit_distance& n, const sdk::Node&) {
  const int64_t rows = n.a.type().dims[0];
  const auto width_a = static_cast<size_t>(n.a.type().dims[1]),
             width_b = static_cast<size_t>(n.b.type().dims[1]);
  sdk::Kernel kernel;
  kernel.scratch = (width_b + 1) * sizeof(int64_t);
  kernel.run = [=, padding = n.padding](const sdk::Call& c) {
    const int32_t *a = c.in<int32_t>(0), *b = c.in<int32_t>(1);
    for (int64_t r = 0; r < rows; ++r, a += width_a, b += width_b)
      c.out<int64_t>(0)[r] = distance(cut({a, width_a}, padding), cut({b, width_b}, padding),
                                      static_cast<int64_t*>(c.scratch));
  };
  return kernel;
}

constexpr sdk::OpDesc kOps[] = {tenon::op_desc<text::edit_distance, text::kRules>};
constexpr tenon_kernel_row kKernels[] = {sdk::host_kernel<edit_distance, make>("cpu")};

constexpr sdk::PluginSpec kSpec{
    .name = "edit_distance", .version = "1.0.0", .vendor = "me", .ops = kOps, .kernels = kKernels};

}  // namespace text_kernels

TENON_PLUGIN(text_kernels::kSpec, "", TENON_ISA_BASELINE)
