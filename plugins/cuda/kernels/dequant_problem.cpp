// SPDX-License-Identifier: Apache-2.0
// Operands of products with blocks, and tiles of rows of x.
#include "dequant_problem.hpp"

#include <algorithm>

#include "lines.hpp"

namespace tenon::cuda {

using sdk::Refusal;

BlockProblem::BlockProblem(const sdk::op::dequant_matmul& op)
    : n(op.w.type().dims[0]),
      k(op.w.type().dims[1]),
      x(op.x),
      w(op.w),
      bias(op.bias),
      gamma(op.gamma),
      residual(op.residual),
      eps(op.eps),
      gate(op.gate),
      want_sum(op.want_sum) {
  for (int i = 0; i + 1 < x.type().rank; ++i) m *= x.type().dims[i];
  take_types();
}
BlockProblem::BlockProblem(const sdk::op::grouped_dequant_matmul& op)
    : n(op.w.type().dims[1]),
      k(op.w.type().dims[2]),
      x(op.x),
      w(op.w),
      grouped(GroupedProblem(op.x, op.w, op.ids, op.offsets, op.p, true)) {
  m = grouped->rows;
  if (grouped->experts == 0) throw Refusal::shape("no experts");
  take_types();
}

void BlockProblem::take_types() {
  const tenon_dtype dtype = x.type().dtype;
  if (!is_float(dtype) || dtype == TENON_DTYPE_F64) throw Refusal::dtype("x", dtype);
  defines = block_defines(w);
  units = k / unit_of(w.type().dtype);
  if (k >= kNarrowIndex) throw Refusal::shape("2^31 or more elements in a row of w");
  if (m >= kNarrowIndex) throw Refusal::shape("2^31 or more rows of x");
  defines.insert(defines.end(), {"TYPE=" + type_name("x", dtype), bias_define()});
}
std::string BlockProblem::bias_define() const {
  return "BIAS=" + type_name("bias", bias ? bias.type().dtype : TENON_DTYPE_F32);
}
void BlockProblem::add_defines(const TilesOfX& tiles) {
  defines.insert(defines.end(), tiles.defines().begin(), tiles.defines().end());
}

args::BlockProduct BlockProblem::arguments(const sdk::Call& c) const {
  return {.w = c.in<args::u8>(w.position()),
          .x = c.in(x.position()),
          .bias = c.in(bias.position()),
          .y = c.outputs[0],
          .n = n,
          .k = k,
          .m = m,
          .gamma = c.in(gamma.position()),
          .residual = c.in(residual.position()),
          .sum = want_sum ? c.outputs[1] : nullptr,
          .eps = eps};
}
std::vector<std::string> BlockProblem::join_defines(int64_t split) const {
  return {"TYPE=" + type_name("x", x.type().dtype), bias_define(), define("SPLIT", split),
          "GROUPS=0"};
}

sdk::Kernel BlockProblem::kernel(CudaDevice& device, const Entry<args::BlockProduct>& entry,
                                 Grid grid, const TilesOfX& tiles) {
  add_defines(tiles);
  const TypedCode<args::BlockProduct> code(device.code(entry, defines, grid.shared));
  return kernel(tiles, code, grid,
                [code](const sdk::Call& c, const Grid& g, const args::BlockProduct& a) {
                  code.launch(c, g, a);
                });
}
sdk::Kernel BlockProblem::kernel(const TilesOfX& tiles, const Code& code, Grid grid,
                                 Launch launch) const {
  grid.blocks_y = tiles.blocks_y();
  if (tiles.count() == 0) grid.blocks = 0, grid.blocks_y = 1;
  std::vector<Code> codes = tiles.codes();
  codes.push_back(code);
  sdk::Kernel kernel =
      kernel_of(codes, [=, p = *this, launch = std::move(launch)](const sdk::Call& c) {
        args::BlockProduct a = p.arguments(c);
        tiles.run(c, a.groups);
        launch(c, grid, a);
      });
  kernel.scratch = tiles.scratch();
  kernel.can_fail = tiles.can_fail();
  return kernel;
}

bool TilesOfX::alone(const BlockProblem& p) {
  constexpr int64_t kFew = 16;
  return p.grouped && p.grouped->by_ids && p.m <= std::max(kFew, p.grouped->experts / 2);
}

TilesOfX::TilesOfX(const BlockProblem& p, CudaDevice& device, int64_t most)
    : count_(blocks_for(p.m, most)), rows_(std::clamp<int64_t>(p.m, 1, most)) {
  constexpr int64_t kMostDown = 65535;
  if (!p.grouped) {
    defines_ = {"GROUPS=0"};
  } else {
    const GroupedProblem& g = *p.grouped;
    experts_ = g.experts, ids_ = g.list, factors_ = g.p;
    if (factors_ >= 0) defines_.push_back("FACTOR=" + type_name("p", g.p_dtype));
    if (alone(p)) {
      count_ = p.m, rows_ = 1;
      defines_.insert(defines_.end(), {"GROUPS=2", g.wide_list ? "IDS=i64" : "IDS=i32"});
    } else {
      sorted_.emplace(device, g, most, scratch_);
      count_ = sorted_->most_tiles();
      defines_.push_back("GROUPS=1");
    }
  }
  if (count_ > kMostDown) throw Refusal::shape("x has more than 65535 tiles of rows");
}

void TilesOfX::run(const sdk::Call& c, args::GroupsOfRows& groups) const {
  if (ids_ < 0) return;
  groups = {
      .ids = c.in(ids_), .factors = c.in(factors_), .experts = experts_, .sink = error_sink(c)};
  if (!sorted_) return;
  sorted_->run(c);
  groups.tiles = sorted_->tiles(c), groups.order = sorted_->order(c);
}

Spans::Spans(const BlockProblem& p) {
  const tenon_block block = tenon_dtype_block(p.w.type().dtype);
  const int64_t span = kTerms / block.elements * block.bytes;
  whole = span % kVector == 0 && p.k % kTerms == 0;
  const int64_t vectors = whole ? span / kVector : (span + 2 * kVector - 2) / kVector;
  stride = (blocks_for((vectors - 1) * kVector, 128) * 8 + 1) * kVector;
}

int64_t split_of(const BlockProblem& p) {
  constexpr int64_t kAtOnce = 2112;
  const int64_t spans = blocks_for(p.k, Spans::kTerms), blocks = blocks_for(p.n, kRowsOfW);
  int64_t split = 1;
  while (split < kWarps && 2 * split * blocks <= kAtOnce && 2 * split <= spans) split *= 2;
  return split;
}

int64_t stages_that_fit(const CudaDevice& device, int64_t blocks, int64_t bytes, int64_t beside) {
  constexpr int64_t kReserved = 1 << 10;
  const int64_t room = device.properties().shared_per_block / blocks - kReserved - beside;
  return std::min(room / bytes, kMostStages);
}

int64_t summed_elements(tenon_dtype format) {
  switch (format) {
    case TENON_DTYPE_Q2_K:
      return 16;
    case TENON_DTYPE_Q4_1:
    case TENON_DTYPE_Q5_1:
    case TENON_DTYPE_Q4_K:
    case TENON_DTYPE_Q5_K:
      return 32;
    default:
      return 0;
  }
}

}  // namespace tenon::cuda
