// SPDX-License-Identifier: Apache-2.0
// Rows of the family quantized.
#include "../kernels.hpp"
#include "quantize.hpp"

namespace tenon::cpu {
namespace {

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::quantize, make_quantize>(),
    sdk::row<sdk::op::dequantize, make_dequantize>(),
};

}  // namespace

std::span<const sdk::Row> quantized_rows() { return kRows; }

}  // namespace tenon::cpu
