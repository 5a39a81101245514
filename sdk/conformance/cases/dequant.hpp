// SPDX-License-Identifier: Apache-2.0
// Formats of blocks, names of cases and error scales, shared by the case files of the family.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cases/families.hpp"

namespace tenon::conform {

// All formats that are decoded.
inline std::vector<tenon_dtype> block_formats() {
  std::vector<tenon_dtype> all;
  for (tenon_dtype t = TENON_DTYPE_BLOCKS; t < TENON_DTYPE_BLOCKS_END; ++t)
    if (sdk::is_decodable(t)) all.push_back(t);
  return all;
}
inline std::string kebab(tenon_dtype format) {
  std::string name = dtype_text(format);
  std::ranges::replace(name, '_', '-');
  return name;
}
inline int64_t block_of(tenon_dtype format) { return tenon_dtype_block(format).elements; }

// |w|, for error scales.
inline Value sizes_of(CaseBuilder& b, Value w) {
  return b.abs(b.graph().add(op::dequantize_blocks{.to = b.dtype(), .w = w}));
}

// The sum over K of an error that is the same share of every product.
inline constexpr Tolerance kOfBytes{.factor = 4e5};

// dequant_matmul with a norm before it and a gate behind it, in one format.
void dequant_neighbour_rows(Suite& s, tenon_dtype format);

}  // namespace tenon::conform
