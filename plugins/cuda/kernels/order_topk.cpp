// SPDX-License-Identifier: Apache-2.0
// topk: blocks select the first k of parts of lines, until a block holds what is left of a line;
// where most of a line is wanted it is sorted.
#include <algorithm>
#include <functional>

#include "order.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;

constexpr int64_t kMostTop = 256;  // topk.cu's kMost
constexpr int64_t kLeastPart = 2048;

std::vector<std::string> defines_of(const OrderProblem& p, int64_t elements, bool from_entries) {
  std::vector<std::string> list = p.defines();
  for (std::string& d : order_block(elements).defines()) list.push_back(std::move(d));
  list.push_back(define("FROM", from_entries));
  list.push_back(define("DIGIT", elements <= 1024 || p.bytes < 4 ? 8 : 11));
  return list;
}

// A launch that selects from `n` elements or entries of each line `made` entries.
struct Round {
  Code code;
  Grid grid;
  OrderLines lines;
  uint32_t n, made;
  uint64_t keys, places;  // where its entries lie in the scratch

  Entries entries(const Call& c) const { return {scratch_at(c, keys), scratch_at(c, places)}; }
};

Round select_round(const OrderProblem& p, int64_t n, bool from_entries, uint64_t& scratch) {
  const int64_t k = p.lines.k,
                wanted = blocks_for(2 * p.device->properties().multiprocessors, p.lines.lines);
  const int64_t part = std::clamp(blocks_for(n, wanted), std::max(kLeastPart, 4 * k), kOrderMost);
  const int64_t parts = blocks_for(n, part);
  Round r{.code = p.device->code("topk.cu", "select", defines_of(p, part, from_entries)),
          .grid = {.blocks = p.lines.lines * parts,
                   .threads = static_cast<uint32_t>(order_block(part).threads)},
          .lines = p.lines,
          .n = static_cast<uint32_t>(n),
          .made = static_cast<uint32_t>((parts - 1) * k + std::min(k, n - (parts - 1) * part)),
          .keys = 0,
          .places = 0};
  r.lines.parts = static_cast<uint32_t>(parts);
  r.lines.part = static_cast<uint32_t>(part);
  const auto entries = static_cast<uint64_t>(p.lines.lines * r.made);
  r.keys = take_scratch(scratch, entries * static_cast<uint64_t>(p.bytes));
  r.places = take_scratch(scratch, entries * sizeof(uint32_t));
  return r;
}

}  // namespace

Kernel make_topk(const sdk::op::topk& n, const sdk::Node& node) {
  const sdk::Type& x = n.x.type();
  const int64_t length = along_axis(x, n.axis).length;
  if (n.k < 0 || n.k > length) throw sdk::Refusal::attribute("k", std::to_string(n.k));
  const OrderProblem p = order_problem(x, n.axis, n.k, n.largest, node);
  // Rounds end when a block holds a line. One leaves at most a quarter, else a sort is as good.
  const bool by_top = n.k <= kMostTop;
  const int64_t most = by_top ? kOrderMost : sortable(p);
  constexpr int64_t kShort = 128;
  const bool fits = length <= most;
  const bool selects = by_top ? length > kShort : !fits && 4 * n.k <= most;
  if (!selects || n.k == 0 || p.lines.lines == 0) return sort_lines(p);

  std::vector<Round> rounds;
  std::vector<Code> codes;
  uint64_t scratch = 0;
  int64_t left = length;
  while (left > most) {
    rounds.push_back(select_round(p, left, !rounds.empty(), scratch));
    codes.push_back(rounds.back().code);
    left = rounds.back().made;
  }
  const bool from_entries = !rounds.empty();
  const auto selected = [rounds](const Call& c) {
    Entries from{};
    for (const Round& r : rounds) {
      r.code.launch(c, r.grid, c.inputs[0], from, r.entries(c), r.lines, r.n, r.made);
      from = r.entries(c);
    }
    return from;
  };
  std::function<void(const Call&)> finish;
  if (by_top) {
    const Code top = p.device->code("topk.cu", "top", defines_of(p, left, from_entries));
    const Grid grid{.blocks = p.lines.lines,
                    .threads = static_cast<uint32_t>(order_block(left).threads)};
    OrderLines lines = p.lines;
    lines.part = static_cast<uint32_t>(left);
    codes.push_back(top);
    finish = [=](const Call& c) {
      top.launch(c, grid, c.inputs[0], selected(c), c.outputs[0], c.outputs[1], lines, lines.part);
    };
  } else {
    const WholeSort whole(p, left, from_entries);
    codes.push_back(whole.code);
    finish = [=](const Call& c) { whole.launch(c, selected(c)); };
  }
  Kernel kernel = kernel_of(std::move(codes), std::move(finish));
  kernel.scratch = scratch;
  return kernel;
}

}  // namespace tenon::cuda
