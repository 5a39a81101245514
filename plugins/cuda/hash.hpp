// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for keys and checksums of the kernel cache.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::cuda {

using Digest = std::array<uint8_t, 32>;
Digest sha256(std::string_view bytes);
std::string hex(const Digest& digest);

}  // namespace tenon::cuda
