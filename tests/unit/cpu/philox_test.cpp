// SPDX-License-Identifier: Apache-2.0
// The generator against the vectors published with it (Random123, kat_vectors: philox4x32 10).
#include "kernels/philox.hpp"

#include <doctest/doctest.h>

using tenon::cpu::philox;
using tenon::cpu::PhiloxBlock;
using tenon::cpu::Rng;
using tenon::cpu::uniform53;

TEST_SUITE("cpu/philox") {
  TEST_CASE("philox: gives the published words") {
    CHECK(philox({0, 0, 0, 0}, {0, 0}) ==
          PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
          PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  }

  TEST_CASE(
      "rng: block number, offset and seed are the counter's and the key's halves, low first") {
    const Rng rng{.seed = 0x299f31d0a4093822, .offset = 0x0370734413198a2e};
    CHECK(rng.block(0x85a308d3243f6a88) ==
          PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  }

  TEST_CASE("uniform53: from 0 to just below 1") {
    CHECK(uniform53(0, 0) == 0.0);
    CHECK(uniform53(0xffffffff, 0xffffffff) == 1 - 0x1p-53);
    CHECK(uniform53(0x80000000, 0) == 0.5);
    CHECK(uniform53(31, 63) == 0.0);  // the low bits are dropped
    CHECK(uniform53(32, 64) == 0x1p-27 + 0x1p-53);
  }
}
