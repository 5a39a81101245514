// SPDX-License-Identifier: Apache-2.0
// Functions of one byte as tables of 256 entries.
#pragma once

#include <array>
#include <cstdint>

namespace tenon::cpu {

using ByteTable = std::array<uint8_t, 256>;

// y[i] = table[x[i]]. In place is fine.
void look_up(const ByteTable& table, const uint8_t* x, uint8_t* y, int64_t n);

}  // namespace tenon::cpu
