// SPDX-License-Identifier: Apache-2.0
// Shared by the records of the resample family: images and their padding.
#pragma once

#include "ops/check.hpp"
#include "ops/padded.hpp"

namespace tenon::core {

// The least and the most spatial axes of x, and at least one pixel on each.
inline void want_images(const Infer& i, Value x, std::string_view operand, int least, int most) {
  const Shape& s = i.shape(x);
  if (s.rank() < least + 2 || s.rank() > most + 2)
    i.fail(Code::shape_mismatch, "operand ", operand, ": expected rank ", least + 2,
           least == most ? "" : cat(" to ", most + 2), ", got ", i.type(x).text());
  for (int k = 2; k < s.rank(); ++k)
    if (s[k] < 1)
      i.fail(Code::invalid_argument, "operand ", operand, ": expected at least one pixel on axis ",
             k, ", got ", i.type(x).text());
}

inline int64_t product_of(const Shape& s, int first, int end) {
  int64_t n = 1;
  for (int k = first; k < end; ++k) n *= s[k];
  return n;
}

// Images are needed whole: their edges are where their pixels end.
inline bool whole_images(Padded& p, Value x) {
  return p.any_from(x, 2) ? p.refuse("its images are padded") : true;
}

}  // namespace tenon::core
