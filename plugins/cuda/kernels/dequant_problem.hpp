// SPDX-License-Identifier: Apache-2.0
// Arguments and defines of products with blocks of quantized weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dequant.hpp"
#include "grouped_matmul.hpp"

namespace tenon::cuda {

class TilesOfX;

// x [m,k], w [n,k]; of grouped products w is [experts,n,k].
struct BlockProblem {
  int64_t m = 1, n, k, units;  // units: of a row of w
  sdk::Value x, w, bias;
  // Beside the product, in dequant_row.cu alone: the norm of x, and a gate of both halves of its result.
  sdk::Value gamma, residual;
  double eps = 0;
  std::string gate = "none";
  bool want_sum = false;
  std::optional<GroupedProblem> grouped;
  std::vector<std::string> defines;

  explicit BlockProblem(const sdk::op::dequant_matmul& op);
  explicit BlockProblem(const sdk::op::grouped_dequant_matmul& op);

  bool has_neighbours() const { return gamma || gate != "none"; }
  void add_defines(const TilesOfX& tiles);
  args::BlockProduct arguments(const sdk::Call& c) const;
  // Those of device/dequant_join.cu.
  std::vector<std::string> join_defines(int64_t split) const;
  // One kernel for all tiles: a row of the grid for each.
  sdk::Kernel kernel(CudaDevice& device, const Entry<args::BlockProduct>& entry, Grid grid,
                     const TilesOfX& tiles);
  // The same by `launch`, which launches the code on the grid.
  using Launch = std::function<void(const sdk::Call&, const Grid&, const args::BlockProduct&)>;
  sdk::Kernel kernel(const TilesOfX& tiles, const Code& code, Grid grid, Launch launch) const;

 private:
  void take_types();
  std::string bias_define() const;
};

// The tiles of rows of x that meet the same matrix: device/dequant_groups.cuh.
class TilesOfX {
 public:
  // Does each row likely have an expert of its own? Then rows are not sorted, and each is a tile.
  static bool alone(const BlockProblem& p);
  // most: rows of a tile.
  TilesOfX(const BlockProblem& p, CudaDevice& device, int64_t most);

  int64_t count() const { return count_; }
  uint32_t blocks_y() const { return static_cast<uint32_t>(count_); }
  int64_t rows() const { return rows_; }  // the most that a tile has
  const std::vector<std::string>& defines() const { return defines_; }
  std::vector<Code> codes() const { return sorted_ ? sorted_->codes() : std::vector<Code>{}; }
  uint64_t scratch() const { return scratch_.size(); }
  bool can_fail() const { return ids_ >= 0; }
  // Enqueues the kernels that sort the rows, if they are sorted.
  void run(const sdk::Call& c, args::GroupsOfRows& groups) const;

 private:
  int64_t count_, rows_, experts_ = 1;
  int ids_ = -1, factors_ = -1;  // operands
  std::vector<std::string> defines_;
  Scratch scratch_;
  std::optional<RowGroups> sorted_;
};

// How the kernels on tensor cores copy 256 terms of rows of w to shared memory, in bytes, as in
// device/dequant_spans.cuh.
struct Spans {
  static constexpr int64_t kTerms = 256, kVector = 16;
  bool whole;      // all are whole vectors
  int64_t stride;  // from row to row

  explicit Spans(const BlockProblem& p);
};

// Of kernels on tensor cores: warps of a block of threads, rows of w of a warp, and stages of shared
// memory.
constexpr int64_t kWarps = 8, kRowsOfW = 16;
constexpr int64_t kLeastStages = 2, kMostStages = 4;

// Warps that share the terms of a row of w: as many as run at once on a large device. This decides the
// order of a sum, so it depends on w alone.
int64_t split_of(const BlockProblem& p);
// Stages of `bytes` that fit into shared memory next to `beside` bytes, if `blocks` of threads share it;
// at most kMostStages. Not positive: none does.
int64_t stages_that_fit(const CudaDevice& device, int64_t blocks, int64_t bytes,
                        int64_t beside = 0);
// Elements of x whose sum meets one minimum of w; 0 if the format has no minimums.
int64_t summed_elements(tenon_dtype format);

// One row of x for each matrix, on tensor cores, with the copy engine: by device/dequant_row.cu. None
// where rows of w are not aligned for it, or shared memory is too small.
std::optional<sdk::Kernel> one_row_product(BlockProblem p, CudaDevice& device);
// Many rows of x, whose dtype w is rounded to within the product: by device/dequant_rounded.cu. None
// where that has no kernel, or would not round well.
std::optional<sdk::Kernel> rounded_product(BlockProblem p, CudaDevice& device);

// Many rows of x: w is decoded to x's dtype, and a product of floats follows. Where memory is too short
// for that, `otherwise`. Throws sdk::Refusal if w is too large.
sdk::Kernel decoded_product(const BlockProblem& p, sdk::Kernel otherwise, const sdk::Node& node);

}  // namespace tenon::cuda
