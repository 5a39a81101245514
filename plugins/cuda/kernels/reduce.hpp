// SPDX-License-Identifier: Apache-2.0
// Reductions as the host sees them: their kinds, and how one is cut into pieces
// (device/reduce.cuh, reduce.cu).
#pragma once

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "../device.hpp"
#include "entries.hpp"
#include "lines.hpp"

namespace tenon::cuda {

// Defines KIND, MEAN and ROOT of a kind of reduce.
struct Reduction {
  std::string name;
  bool mean = false, root = false;
  int64_t partial_bytes = 4;
};
// Refuses a kind that the dtype does not have.
Reduction find_reduction(const std::string& kind, tenon_dtype dtype);

using args::ReduceStage;
// Several pieces where results are few and long.
void cut(ReduceStage& stage, int multiprocessors);

// Threads side by side for so many vectors of columns.
inline int64_t reduce_across(int64_t columns) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(columns, 1, 32))));
}

// One launch: from terms (first) or partial results to results (last) or partial ones.
struct ReduceLaunch {
  ReduceStage stage{};
  CodeFor<entries::reduce_rows> rows{};
  CodeFor<entries::reduce_columns> columns{};  // where there are several columns
  Grid grid{};
  uint32_t across = 0;  // of columns

  Code code() const { return across == 0 ? Code(rows) : Code(columns); }
  void run(const sdk::Call& c, const void* from, void* to) const;
};
// dtype: of the operand and the result; alignment: of what is read.
ReduceLaunch reduce_launch(CudaDevice& device, const ReduceStage& stage, const Reduction& how,
                           tenon_dtype dtype, uint64_t alignment, bool first, bool last);

}  // namespace tenon::cuda
