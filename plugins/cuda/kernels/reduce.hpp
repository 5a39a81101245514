// SPDX-License-Identifier: Apache-2.0
// Reductions as the host sees them: their kinds, and how one is cut into pieces
// (device/reduce.cuh, reduce.cu).
#pragma once

#include <string>
#include <vector>

#include "../device.hpp"
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

// device/reduce.cu mirrors it.
struct ReduceStage {
  int64_t outer = 1, n = 1, inner = 1, pieces = 1, piece = 1, count = 1;

  // Several pieces where results are few and long.
  void cut(int multiprocessors);
};

// Lanes for a row of n elements of so many bytes.
inline int64_t reduce_lanes(int64_t n, int64_t bytes) {
  return n * bytes <= 32 ? 1 : n * bytes <= 256 ? 8 : n <= 1024 ? 32 : 256;
}

// The kernel that makes the results, of dtype `result`, from s.n partial ones each.
struct ReduceEnd {
  Code code;
  Grid grid;
};
ReduceEnd reduce_end(CudaDevice& device, const ReduceStage& s, const Reduction& how,
                     tenon_dtype result);

}  // namespace tenon::cuda
