// SPDX-License-Identifier: Apache-2.0
// random_bits: Philox4x32-10 (Salmon et al., SC 2011).
#include "../element.hpp"
#include "../kernels.hpp"

namespace tenon::sample {

namespace {

using Block = std::array<uint32_t, 4>;

Block philox(Block counter, uint64_t seed) {
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0], p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

}  // namespace

Kernel make_random_bits(const op::random_bits&, const Node& node) {
  const auto run = [count = node.out(0).type().elements()](const sdk::Call& c) {
    const auto seed = static_cast<uint64_t>(c.in<int64_t>(0)[0]),
               offset = static_cast<uint64_t>(c.in<int64_t>(0)[1]);
    auto* out = c.out<uint32_t>(0);
    for (int64_t i = 0; i < count; i += 4) {
      const auto j = static_cast<uint64_t>(i / 4);
      const Block words =
          philox({static_cast<uint32_t>(j), static_cast<uint32_t>(j >> 32),
                  static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32)},
                 seed);
      for (int64_t w = 0; w < 4 && i + w < count; ++w) out[i + w] = words[static_cast<size_t>(w)];
    }
  };
  return {.run = run};
}

}  // namespace tenon::sample
