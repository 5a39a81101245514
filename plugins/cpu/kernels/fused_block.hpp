// SPDX-License-Identifier: Apache-2.0
// Common steps of fused bodies as plain functions over blocks of float. A step over a few vectors
// then costs no more than a call.
#pragma once

#include "elementwise.hpp"

namespace tenon::cpu {

// y = op(a, b), op(a, scalar), op(scalar, b) or op(a), of n elements. In place is fine.
using BlockRun = void (*)(const float* a, const float* b, float scalar, float* y, int64_t n);
enum class BlockForm : uint8_t { tiles, right, left };  // which operand is the scalar

// nullptr if there is no such function.
BlockRun block_binary(BinaryKind kind, BlockForm form);
BlockRun block_unary(const Activation& f);

}  // namespace tenon::cpu
