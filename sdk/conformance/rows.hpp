// SPDX-License-Identifier: Apache-2.0
// Rows, numbers and error scales that several families share.
#pragma once

#include <string>
#include <vector>

#include "kit.hpp"

namespace tenon::conform {

// Numbers a few units apart, all shifted by the same offset; exact in f32, and in f16 up to 1e3.
struct Offset {
  const char* id;
  double value;
  DTypes dtypes;
  std::vector<double> numbers() const;
};
const std::vector<Offset>& offsets();

// What ops that only move elements are tried with: dtypes of every size, and data of each.
const DTypes& movable();
Fill content(const CaseBuilder& b);

// The error scale of e^(x - max): the rounding of the exponent grows with the distance to the
// maximum over `axes`.
Value distance_scale(CaseBuilder& b, Value x, const Dims& axes);

}  // namespace tenon::conform
