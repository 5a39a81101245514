// SPDX-License-Identifier: Apache-2.0
// reduce: reduced axes that lie apart are taken one after the other, the longest first; where
// results are too few to fill the device, each is made in pieces. Orders depend on shapes and
// device alone.
#include <algorithm>
#include <vector>

#include "../device.hpp"
#include "../kernels.hpp"
#include "reduce.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

struct Group {
  int64_t size;
  bool reduced;
};

// Neighbouring axes of one sort are one; axes of length 1 are none.
std::vector<Group> groups_of(const sdk::op::reduce& op, const sdk::Type& x) {
  const std::array<bool, sdk::kMaxRank> reduced = sdk::reduced_axes(op, x.rank);
  std::vector<Group> groups;
  for (int i = 0; i < x.rank; ++i) {
    if (x.dims[i] == 1) continue;
    const bool r = reduced[static_cast<size_t>(i)];
    if (!groups.empty() && groups.back().reduced == r) {
      groups.back().size *= x.dims[i];
    } else {
      groups.push_back({x.dims[i], r});
    }
  }
  return groups;
}

// Inputs and outputs: -1 is the operand or the result, 0 and 1 are areas of scratch.
struct Step {
  ReduceLaunch launch;
  int from = -1, to = -1;
};

class Plan {
 public:
  Plan(const sdk::op::reduce& op, const Node& node)
      : device_(device_of(node)), x_(op.x), kind_(find_reduction(op.kind, op.x.type().dtype)) {
    std::vector<Group> groups = groups_of(op, op.x.type());
    int64_t count = 1;
    for (const Group& g : groups)
      if (g.reduced) count *= g.size;
    for (;;) {
      auto longest = groups.end();
      for (auto g = groups.begin(); g != groups.end(); ++g)
        if (g->reduced && (longest == groups.end() || g->size > longest->size)) longest = g;
      ReduceStage s{.count = count};
      bool behind = false, more = false;
      for (auto g = groups.begin(); g != groups.end(); ++g) {
        behind |= g == longest;
        (g == longest ? s.n : behind ? s.inner : s.outer) *= g->size;
        more |= g->reduced && g != longest;
      }
      add_stage(s, !more);
      if (!more) break;
      groups.erase(longest);
    }
  }

  Kernel kernel() {
    Kernel k;
    const uint64_t areas[] = {take_scratch(k.scratch, area_[0]), take_scratch(k.scratch, area_[1])};
    std::vector<Code> codes;
    for (const Step& s : steps_) codes.push_back(s.launch.code());
    const uint64_t scratch = k.scratch;
    k = kernel_of(codes, [steps = steps_, first = areas[0], second = areas[1]](const Call& c) {
      for (const Step& s : steps) {
        const void* from = s.from < 0 ? c.inputs[0] : scratch_at(c, s.from == 0 ? first : second);
        void* to = s.to < 0 ? c.outputs[0] : scratch_at(c, s.to == 0 ? first : second);
        s.launch.run(c, from, to);
      }
    });
    k.scratch = scratch;
    return k;
  }

 private:
  // In two where results are few and long.
  void add_stage(ReduceStage s, bool last) {
    cut(s, device_.properties().multiprocessors);
    add_step(s, last && s.pieces == 1);
    if (s.pieces == 1) return;
    s.n = s.piece = s.pieces;
    s.pieces = 1;
    add_step(s, last);
  }

  void add_step(const ReduceStage& s, bool last) {
    const bool first = steps_.empty();
    Step step{.launch = reduce_launch(device_, s, kind_, x_.type().dtype,
                                      first ? x_.alignment() : 256, first, last)};
    if (!first) step.from = steps_.back().to;
    if (!last) {
      step.to = step.from == 0 ? 1 : 0;
      uint64_t& area = area_[step.to];
      area =
          std::max(area, static_cast<uint64_t>(s.outer * s.pieces * s.inner * kind_.partial_bytes));
    }
    steps_.push_back(std::move(step));
  }

  CudaDevice& device_;
  sdk::Value x_;
  Reduction kind_;
  std::vector<Step> steps_;
  uint64_t area_[2] = {0, 0};
};

Kernel make_reduce(const sdk::op::reduce& op, const Node& node) { return Plan(op, node).kernel(); }

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::reduce, make_reduce>()};

}  // namespace

Reduction find_reduction(const std::string& given, tenon_dtype dtype) {
  Reduction k{.name = given};
  const auto known = [&](std::initializer_list<const char*> names) {
    if (std::ranges::none_of(names, [&](const char* n) { return given == n; }))
      throw Refusal::attribute("kind", given);
  };
  if (dtype == TENON_DTYPE_BOOL) {
    known({"any", "all", "max", "min"});
    if (given == "max") k.name = "any";
    if (given == "min") k.name = "all";
    return k;
  }
  k.partial_bytes = is_integer(dtype) || dtype == TENON_DTYPE_F64 ? 8 : 4;
  if (is_integer(dtype)) {
    known({"sum", "mean", "max", "min", "prod", "sum_square", "l1"});
  } else if (is_float(dtype)) {
    known({"sum", "mean", "max", "min", "prod", "sum_square", "l1", "l2", "logsumexp"});
  } else {
    throw Refusal::dtype("x", dtype);
  }
  if (given == "logsumexp") k.partial_bytes *= 2;
  if (given == "mean") k.name = "sum", k.mean = true;
  if (given == "l2") k.name = "sum_square", k.root = true;
  return k;
}

void cut(ReduceStage& s, int multiprocessors) {
  auto& [outer, n, inner, pieces, piece, count] = s;
  const int64_t wanted = int64_t{16} * multiprocessors;
  constexpr int64_t kLeast = 4096;  // elements of a piece of a row, or of all columns of a tile
  const int64_t width = std::clamp<int64_t>(inner, 1, 128);
  const int64_t tiles = outer * ((inner + width - 1) / width);
  const int64_t fitting = std::clamp<int64_t>(n * width / kLeast, 1, 1024);
  pieces = std::clamp<int64_t>(wanted / std::max<int64_t>(tiles, 1), 1, fitting);
  pieces = std::max(pieces, (n + (1 << 30) - 1) >> 30);
  piece = (std::max<int64_t>(n, 1) + pieces - 1) / pieces;
  if (pieces > 1) piece = (piece + 63) / 64 * 64;
  pieces = std::max<int64_t>((n + piece - 1) / piece, 1);
}

ReduceLaunch reduce_launch(CudaDevice& device, const ReduceStage& stage, const Reduction& how,
                           tenon_dtype dtype, uint64_t alignment, bool first, bool last) {
  const ReduceStage& s = stage;
  const int64_t bytes = first ? element_bytes(dtype) : how.partial_bytes;
  ReduceLaunch launch{.stage = s};
  int64_t lanes = 256, vec = 1;
  if (s.inner == 1) {
    lanes = s.piece * bytes <= 32 ? 1 : s.piece * bytes <= 256 ? 8 : s.piece <= 1024 ? 32 : 256;
    launch.grid = line_grid(s.outer * s.pieces, lanes);
  } else {
    for (vec = 16 / bytes; vec > 1; vec /= 2)
      if (s.inner % vec == 0 && alignment % static_cast<uint64_t>(vec * bytes) == 0) break;
    vec = std::max<int64_t>(vec, 1);
    const int64_t columns = (s.inner + vec - 1) / vec, across = reduce_across(columns);
    launch.across = static_cast<uint32_t>(across);
    launch.grid = {.blocks = launchable(s.outer * s.pieces * blocks_for(columns, across)),
                   .threads = 256};
  }
  launch.grid.early = device.properties().early_starts;
  const std::vector<std::string> defines = {
      "TYPE=" + type_name("x", dtype),  "KIND=" + how.name,
      define("FIRST", first),           define("LAST", last),
      define("MEAN", last && how.mean), define("ROOT", last && how.root),
      define("LANES", lanes),           define("VEC", vec)};
  if (s.inner == 1)
    launch.rows = device.code(entries::reduce_rows, defines);
  else
    launch.columns = device.code(entries::reduce_columns, defines);
  return launch;
}

void ReduceLaunch::run(const Call& c, const void* from, void* to) const {
  if (across == 0)
    rows.launch(c, grid, from, to, stage);
  else
    columns.launch(c, grid, from, to, stage, across);
}

std::span<const sdk::Row> reduce_rows() { return kRows; }

}  // namespace tenon::cuda
