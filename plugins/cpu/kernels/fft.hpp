// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of the fft family.
#pragma once

#include <cmath>
#include <string>

#include "tenon/kernel.hpp"

namespace tenon::cpu {

// What a transform of n points is multiplied by.
inline double norm_factor(const std::string& norm, bool inverse, int64_t n) {
  const auto count = static_cast<double>(n);
  if (norm == "ortho") return 1 / std::sqrt(count);
  if (norm != "backward" && norm != "forward") throw sdk::Refusal::attribute("norm", norm);
  return (norm == "forward") != inverse ? 1 / count : 1;
}

// Of a row, for grain_for.
inline int64_t transform_cost(int64_t n) {
  return static_cast<int64_t>(static_cast<double>(n) * (8 + std::log2(static_cast<double>(n))));
}

sdk::Kernel make_stft(const sdk::op::stft& n, const sdk::Node& node);
sdk::Kernel make_istft(const sdk::op::istft& n, const sdk::Node& node);

}  // namespace tenon::cpu
