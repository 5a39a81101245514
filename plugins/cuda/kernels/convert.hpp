// SPDX-License-Identifier: Apache-2.0
// A number of an attribute as the bytes of one element.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tenon/types.h"

namespace tenon::cuda {

// Rounded once, or saturated. Refuses, as of `operand`, what has no such number.
std::array<uint8_t, 8> constant_bytes(std::string_view operand, tenon_dtype dtype, double value);

}  // namespace tenon::cuda
