// SPDX-License-Identifier: Apache-2.0
// sort: a few lanes for a tiny line, a block where it holds one, else a pass over memory for each
// digit of the keys.
#include <algorithm>
#include <bit>

#include "order.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;

constexpr int64_t kTiny = 32, kDigits = 256, kDigitBits = 8;

uint64_t sort_shared(const OrderBlock& b, int64_t bytes) {
  return static_cast<uint64_t>(b.threads * b.items * (bytes + 2) +
                               b.threads / 32 * kDigits * int64_t{sizeof(uint32_t)});
}

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Kernel sort_tiny(const OrderProblem& p) {
  const int64_t lanes = static_cast<int64_t>(std::bit_ceil(p.lines.n));
  const auto code =
      p.device->code(entries::sort_tiny, joined(p.defines(), {define("LANES", lanes)}));
  return kernel_of({code}, [=, s = p.lines](const Call& c) {
    code.launch(c, line_grid(s.lines, lanes), c.inputs[0], c.outputs[0], c.outputs[1], s);
  });
}

Kernel sort_long(const OrderProblem& p) {
  OrderLines s = p.lines;
  s.part = p.bytes == 8 ? 2048 : 4096;  // sort_long.cu's kPart
  s.parts = static_cast<uint32_t>(blocks_for(s.n, s.part));
  const int64_t lanes = s.parts <= 16 ? 1 : s.parts <= 256 ? 32 : 256;
  const int passes = static_cast<int>(p.bytes);
  struct Pass {
    CodeFor<entries::sort_count> count;
    CodeFor<entries::sort_sum> sum;
    CodeFor<entries::sort_move> move;
  };
  std::vector<Pass> list;
  std::vector<Code> codes;
  for (int i = 0; i < passes; ++i) {
    const std::vector<std::string> defines =
        joined(p.defines(),
               {define("FROM", i > 0), define("LAST", i + 1 == passes), define("LANES", lanes)});
    list.push_back({p.device->code(entries::sort_count, defines),
                    p.device->code(entries::sort_sum, defines),
                    p.device->code(entries::sort_move, defines)});
    codes.insert(codes.end(), {list.back().count, list.back().sum, list.back().move});
  }
  const auto elements = static_cast<uint64_t>(s.lines * s.n);
  uint64_t scratch = 0;
  struct Area {
    uint64_t keys, places;
  } areas[2] = {};
  for (int i = 0; i < std::min(passes - 1, 2); ++i)
    areas[i] = {take_scratch(scratch, elements * static_cast<uint64_t>(p.bytes)),
                take_scratch(scratch, elements * sizeof(uint32_t))};
  const auto digits = static_cast<uint64_t>(s.lines * kDigits);
  const uint64_t counts_at = take_scratch(scratch, digits * s.parts * sizeof(uint32_t));
  const uint64_t totals_at = take_scratch(scratch, digits * sizeof(uint32_t));
  const Grid grid{.blocks = s.lines * s.parts}, sum_grid = line_grid(s.lines * kDigits, lanes);
  Kernel kernel = kernel_of(std::move(codes), [=](const Call& c) {
    const auto entries = [&](int i) {
      return Entries{scratch_at(c, areas[i].keys), scratch_at<uint32_t>(c, areas[i].places)};
    };
    auto *const counts = scratch_at<uint32_t>(c, counts_at), *const totals =
                                                                 scratch_at<uint32_t>(c, totals_at);
    Entries from{}, to = entries(0);
    for (int i = 0; i < passes; ++i) {
      const auto shift = static_cast<int32_t>(i * kDigitBits);
      const Pass& pass = list[static_cast<size_t>(i)];
      pass.count.launch(c, grid, c.inputs[0], from, counts, s, shift);
      pass.sum.launch(c, sum_grid, counts, totals, s);
      pass.move.launch(c, grid, c.inputs[0], from, to, c.outputs[0], c.outputs[1], counts, totals,
                       s, shift);
      from = to;
      to = entries((i + 1) % 2);
    }
  });
  kernel.scratch = scratch;
  return kernel;
}

}  // namespace

OrderProblem order_problem(const sdk::Type& x, int64_t axis, int64_t k, bool down,
                           const sdk::Node& node) {
  const bool has_order = is_float(x.dtype) || is_integer(x.dtype) || x.dtype == TENON_DTYPE_BOOL;
  if (!has_order) throw sdk::Refusal::dtype("x", x.dtype);
  const AxisView l = lines_along(x, axis);
  if (l.count() >= kNarrowIndex) throw sdk::Refusal::shape("more than 2^31 lines");
  const auto n = static_cast<uint32_t>(l.length);
  return {&device_of(node),
          {l.count(), l.inner, n, static_cast<uint32_t>(k), 1, n},
          type_name("x", x.dtype),
          element_bytes(x.dtype),
          down};
}

OrderBlock order_block(int64_t elements) {
  const auto wanted = static_cast<uint64_t>(std::max<int64_t>(blocks_for(elements, 8), 1));
  const int64_t threads = std::clamp<int64_t>(static_cast<int64_t>(std::bit_ceil(wanted)), 32, 512);
  const int64_t items = blocks_for(elements, threads);
  return {threads, std::max<int64_t>((items + 1) / 2 * 2, 2)};
}

int64_t sortable(const OrderProblem& p) {
  int64_t most = kOrderMost;
  const uint64_t room = p.device->properties().shared_room("sort.cu", "whole");
  while (sort_shared(order_block(most), p.bytes) > room) most /= 2;
  return most;
}

WholeSort::WholeSort(const OrderProblem& p, int64_t count, bool from_entries) : lines(p.lines) {
  const OrderBlock block = order_block(count);
  lines.part = static_cast<uint32_t>(count);
  const uint64_t shared = sort_shared(block, p.bytes);
  code =
      p.device->code(entries::sort_whole,
                     joined(joined(p.defines(), block.defines()), {define("FROM", from_entries)}),
                     static_cast<uint32_t>(shared));
  grid = {.blocks = lines.lines,
          .threads = static_cast<uint32_t>(block.threads),
          .shared = static_cast<uint32_t>(shared)};
}

Kernel sort_lines(const OrderProblem& p) {
  if (p.lines.k == 0 || p.lines.lines == 0) return {.run = [](const Call&) {}};
  if (p.lines.n <= kTiny) return sort_tiny(p);
  if (p.lines.n > sortable(p)) return sort_long(p);
  const WholeSort whole(p, p.lines.n, false);
  return kernel_of({whole.code}, [whole](const Call& c) { whole.launch(c, {}); });
}

Kernel make_sort(const sdk::op::sort& n, const sdk::Node& node) {
  const sdk::Type& x = n.x.type();
  return sort_lines(order_problem(x, n.axis, along_axis(x, n.axis).length, n.descending, node));
}

}  // namespace tenon::cuda
