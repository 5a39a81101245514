// SPDX-License-Identifier: Apache-2.0
// Shared by the records of the spectrum family.
#pragma once

#include "ops/fft.hpp"

namespace tenon::core {

// Checks the attributes of peaks among `bins` of a spectrum of this dtype, and gives the types of
// the three outputs.
template <class Op>
void peaks_shape(Infer& i, const Op& n, DType t, int64_t examples, int64_t bins) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (n.k < 1 || n.k > kMost)
    i.fail(Code::invalid_argument, "attribute k: expected 1 to ", kMost, ", given ", n.k);
  if (n.min_distance < 1)
    i.fail(Code::invalid_argument, "attribute min_distance: expected 1 or more, given ",
           n.min_distance);
  if (!(n.prominence >= 0))
    i.fail(Code::invalid_argument, "attribute prominence: expected 0 or more, given ",
           n.prominence);
  if (bins > kMost)
    i.fail(Code::unsupported, "operand x: expected at most ", kMost, " bins, got ", bins);
  if (n.select == "top_bins") {
    if (n.k > bins)
      i.fail(Code::invalid_argument, "attribute k: expected at most the number of bins, ", bins,
             ", given ", n.k);
    if (!is_unset(n.height) || n.min_distance != 1 || n.prominence != 0)
      i.fail(Code::invalid_argument,
             "attribute select: expected local_maxima with height, min_distance or prominence, "
             "given top_bins");
  }
  const Shape slots = sized(i, {examples, n.k});
  i.out(0, {kI32, slots});
  i.out(1, {t, slots});
  i.out(2, {kI32, {examples}});
}

}  // namespace tenon::core
