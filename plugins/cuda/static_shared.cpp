// SPDX-License-Identifier: Apache-2.0
// How many bytes of static shared memory each kernel may declare: an upper bound for all its variants.
#include "static_shared.hpp"

#include <cstdlib>

namespace tenon::cuda {
namespace {

struct Bound {
  std::string_view file, entry;
  uint32_t bytes;
};
constexpr Bound kBounds[] = {
    {"attention_backward.cu", "queries", 0},
    {"attention_backward.cu", "keys", 2048},  // with MMA: Row of 64 queries
    {"fft.cu", "rows", 0},
    {"fft_columns.cu", "columns", 0},
    {"fft_frames.cu", "frames", 2048},  // the maximum of each thread
    {"gate.cu", "route", 0},
    {"linalg_block.cu", "block", 16},  // the row of a pivot
    {"linalg_block.cu", "cholesky", 16},
    {"linalg_block.cu", "triangle", 16},
    {"loss.cu", "forward", 1024},  // a partial result of each warp
    {"loss.cu", "backward", 1024},
    {"loss_long.cu", "forward", 256},
    {"loss_long.cu", "backward", 256},
    {"matmul_few_rows.cu", "multiply_few_rows", 1024},  // barriers, and the alignment behind them
    {"norm.cu", "backward", 1024},
    {"softmax.cu", "softmax", 1024},
    {"softmax.cu", "softmax_backward", 1024},
    {"softmax_long.cu", "softmax", 256},
    {"sort.cu", "whole", 256},
};

// The value of a define that is a number; 0 where it is missing.
uint32_t number_of(std::span<const std::string> defines, std::string_view name) {
  for (const std::string& d : defines)
    if (d.starts_with(name) && d.size() > name.size() && d[name.size()] == '=')
      return static_cast<uint32_t>(std::atoi(d.c_str() + name.size() + 1));
  return 0;
}

}  // namespace

uint32_t static_shared(std::string_view file, std::string_view entry,
                       std::span<const std::string> defines) {
  if (file == "layer_norm2d.cu" && entry == "backward" && number_of(defines, "AHEAD") != 0)
    return 3 * number_of(defines, "THREADS") * number_of(defines, "VEC") * uint32_t{sizeof(float)};
  if (file == "attention_backward.cu" && number_of(defines, "MMA") == 0) return 0;
  for (const Bound& b : kBounds)
    if (b.file == file && b.entry == entry) return b.bytes;
  return 0;
}

}  // namespace tenon::cuda
