// SPDX-License-Identifier: Apache-2.0
// topk: blocks select the first k of parts of lines, until a block walks what is left of a line, or
// a sort takes it; where most of a line is wanted it is sorted.
#include <algorithm>
#include <functional>

#include "order.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;

constexpr int64_t kMostStream = 256;  // topk.cu's kMost
constexpr int64_t kLeastPart = 2048;
constexpr int64_t kTileThreads = 256, kTileItems = 16, kTileBytes = 64;  // of a thread

// The code of a block that takes `elements` of each line, and its threads.
template <class Code>
struct Selection {
  Code code;
  uint32_t threads;
};
// stream: of any number of elements, tile by tile. vec: elements that lie together and aligned.
template <class... Parameters>
Selection<TypedCode<Parameters...>> selection(const OrderProblem& p,
                                              const Entry<Parameters...>& entry, int64_t elements,
                                              bool from_entries, bool stream, int vec) {
  const int64_t most = std::min(kTileItems, kTileBytes / p.bytes);
  OrderBlock b = order_block(elements);
  if (stream && (from_entries || elements > kLeastPart)) {
    const int64_t items = (blocks_for(elements, kTileThreads) + 1) / 2 * 2;
    b = {kTileThreads, std::clamp<int64_t>(items, 2, most)};
  }
  while (b.items % vec != 0) vec /= 2;
  std::vector<std::string> list = p.defines();
  for (std::string& d : b.defines()) list.push_back(std::move(d));
  list.push_back(define("FROM", from_entries));
  list.push_back(define("DIGIT", elements <= 1024 || p.bytes < 4 ? 8 : 11));
  list.push_back(define("VEC", vec));
  list.push_back(define("STREAM", stream));
  return {p.device->code(entry, list), static_cast<uint32_t>(b.threads)};
}

// A launch that selects from `n` elements or entries of each line `made` entries.
struct Round {
  Selection<CodeFor<entries::topk_select>> selection;
  int64_t blocks;
  OrderLines lines;
  uint32_t n, made;
  uint64_t keys, places;  // where its entries lie in the scratch

  Entries kept(const Call& c) const {
    return {scratch_at(c, keys), scratch_at<uint32_t>(c, places)};
  }
  void launch(const Call& c, const Entries& from) const {
    selection.code.launch(c, {.blocks = blocks, .threads = selection.threads}, c.inputs[0], from,
                          kept(c), lines, n, made);
  }
};

// part: elements or entries of a block, at most.
Round select_round(const OrderProblem& p, int64_t n, int64_t part, bool from_entries, bool stream,
                   int vec, uint64_t& scratch) {
  // Of one size, so that no block is left with a little, and aligned where the line is.
  constexpr int64_t kStep = 16;
  part = blocks_for(blocks_for(n, blocks_for(n, part)), kStep) * kStep;
  const int64_t k = p.lines.k, parts = blocks_for(n, part);
  Round r{.selection = selection(p, entries::topk_select, part, from_entries, stream,
                                 from_entries ? 1 : vec),
          .blocks = p.lines.lines * parts,
          .lines = p.lines,
          .n = static_cast<uint32_t>(n),
          .made = static_cast<uint32_t>((parts - 1) * k + std::min(k, n - (parts - 1) * part)),
          .keys = 0,
          .places = 0};
  r.lines.parts = static_cast<uint32_t>(parts);
  r.lines.part = static_cast<uint32_t>(part);
  const auto count = static_cast<uint64_t>(p.lines.lines * r.made);
  r.keys = take_scratch(scratch, count * static_cast<uint64_t>(p.bytes));
  r.places = take_scratch(scratch, count * sizeof(uint32_t));
  return r;
}

// Into how many parts a line of n goes: blocks run in waves, and each costs something at its ends,
// as does another launch for the entries of several.
int64_t stream_parts(const OrderProblem& p, int64_t n) {
  constexpr int64_t kBlocks = 4, kEnds = 8192;  // of a multiprocessor; in elements
  const int64_t lines = p.lines.lines, k = p.lines.k,
                slots = kBlocks * p.device->properties().multiprocessors;
  const int64_t most = std::min(n / std::max<int64_t>(2 * kLeastPart, 4 * k), 4 * slots / lines);
  int64_t best = 1, least = blocks_for(lines, slots) * (n + kEnds);
  for (int64_t parts = 2; parts <= most; ++parts) {
    const int64_t cost = blocks_for(lines * parts, slots) * (blocks_for(n, parts) + kEnds) +
                         blocks_for(lines, slots) * (parts * k + kEnds);
    if (cost < least) best = parts, least = cost;
  }
  return best;
}

// A part of a line whose selected are sorted: rounds end when a block holds a line.
int64_t digits_part(const OrderProblem& p, int64_t n) {
  const int64_t wanted = blocks_for(2 * p.device->properties().multiprocessors, p.lines.lines);
  return std::clamp(blocks_for(n, wanted), std::max(kLeastPart, 4 * int64_t{p.lines.k}),
                    kOrderMost);
}

}  // namespace

Kernel make_topk(const sdk::op::topk& n, const sdk::Node& node) {
  const sdk::Type& x = n.x.type();
  const int64_t length = along_axis(x, n.axis).length;
  const OrderProblem p = order_problem(x, n.axis, n.k, n.largest, node);
  // A round leaves at most a quarter, else a sort is as good.
  const bool stream = n.k <= kMostStream;
  constexpr int64_t kShort = 128;
  const bool selects = stream ? length > kShort : length > sortable(p) && 4 * n.k <= sortable(p);
  if (!selects || n.k == 0 || p.lines.lines == 0) return sort_lines(p);

  std::vector<Round> rounds;
  std::vector<Code> codes;
  uint64_t scratch = 0;
  int64_t left = length;
  const int vec = p.lines.inner == 1 ? common_width(p.bytes, length, {n.x}) : 1;
  for (;;) {
    const int64_t parts = stream ? stream_parts(p, left) : 1;
    if (stream ? parts == 1 : left <= sortable(p)) break;
    const int64_t part = stream ? blocks_for(left, parts) : digits_part(p, left);
    rounds.push_back(select_round(p, left, part, !rounds.empty(), stream, vec, scratch));
    codes.push_back(rounds.back().selection.code);
    left = rounds.back().made;
  }
  const bool from_entries = !rounds.empty();
  const auto selected = [rounds](const Call& c) {
    Entries from{};
    for (const Round& r : rounds) {
      r.launch(c, from);
      from = r.kept(c);
    }
    return from;
  };
  std::function<void(const Call&)> finish;
  if (stream) {
    const auto top =
        selection(p, entries::topk_top, left, from_entries, true, from_entries ? 1 : vec);
    OrderLines lines = p.lines;
    lines.part = static_cast<uint32_t>(left);
    codes.push_back(top.code);
    finish = [=](const Call& c) {
      top.code.launch(c, {.blocks = lines.lines, .threads = top.threads}, c.inputs[0], selected(c),
                      c.outputs[0], c.outputs[1], lines, lines.part);
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
