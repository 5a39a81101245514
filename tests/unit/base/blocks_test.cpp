// SPDX-License-Identifier: Apache-2.0
// The table of block formats and the decoders: blocks of known bytes against the numbers of the
// specification, and by hand.
#include "base/blocks.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "tenon/half.hpp"

using namespace tenon::core;

namespace {

using Blob = std::vector<std::byte>;

// Byte b is 37 b + 11. The scales, at the given places, are 0.5 and 0.25.
Blob known_block(const BlockFormat& f, int d, int second) {
  Blob block(f.bytes);
  for (size_t b = 0; b < block.size(); ++b) block[b] = static_cast<std::byte>(37 * b + 11);
  const auto put = [&](int at, uint16_t bits) {
    if (at >= 0) std::memcpy(block.data() + at, &bits, sizeof bits);
  };
  put(d, 0x3800);
  put(second, 0x3400);
  return block;
}

std::vector<float> decoded(const BlockFormat& f, const Blob& blocks) {
  std::vector<float> y(blocks.size() / f.bytes * f.elements);
  decode_blocks(f, blocks, y.data());
  return y;
}

struct Golden {
  const char* name;
  int d, second;  // places of the scales, -1: none
  double y0, y1, y17, last, sum, weighted;
};

constexpr Golden kGolden[] = {
    {"Q4_0", 0, -1, -1.5, 1, -.5, 0, -10.5, -259},
    {"Q4_1", 0, 2, 7.75, 2.25, 6.25, 6.25, 130.5, 2123.5},
    {"Q5_0", 0, -1, 4.5, -1, 0, .5, 7.5, 56},
    {"Q5_1", 0, 2, 9.75, 12.25, 2.75, 2.75, 260.5, 4082.5},
    {"Q8_0", 0, -1, 42.5, 61, -27, -24, -88, -4040},
    {"Q2_K", 80, 82, 16.5, 0, -.75, 2.25, 1029.5, 121565},
    {"Q3_K", 108, -1, 40.5, -54, 64, 21, 479, 88572.5},
    {"Q4_K", 0, 2, 157.75, -12.75, -12.75, 24.25, 27220, 3786420},
    {"Q5_K", 0, 2, 405.75, -12.75, -12.75, 54.25, 58108, 8013724},
    {"Q6_K", 208, -1, -715.5, 848, 256, -30, 2306, 392210},
    {"IQ4_NL", 0, -1, -17.5, 12.5, -5, .5, -128.5, -3459.5},
    {"IQ4_XS", 0, -1, 32.5, -.5, 17.5, -8, -5502.5, -1045567},
    {"TQ1_0", 52, -1, -.5, -.5, 0, -.5, -1, -65.5},
    {"TQ2_0", 64, -1, 1, -.5, -.5, -.5, 64.5, 8622.5},
    {"Q1_0", 0, -1, .5, -.5, .5, .5, 0, -266},
    {"Q2_0", 0, -1, 0, 0, .5, .5, 15, 406.5},
};

void check_golden(const Golden& g, const std::vector<float>& y) {
  CAPTURE(g.name);
  double sum = 0, weighted = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    sum += y[i];
    weighted += static_cast<double>(i + 1) * y[i];
  }
  CHECK(y[0] == g.y0);
  CHECK(y[1] == g.y1);
  CHECK(y[17] == g.y17);
  CHECK(y.back() == g.last);
  CHECK(sum == g.sum);
  CHECK(weighted == g.weighted);
}

uint32_t bits(float f) { return std::bit_cast<uint32_t>(f); }

}  // namespace

TEST_SUITE("base/blocks") {
  TEST_CASE("block_format: every type of the table by id and by name, others not") {
    const auto* q4 = block_format("q4_k");
    REQUIRE(q4);
    CHECK(q4->gguf_type == 12);
    CHECK(q4->elements == 256);
    CHECK(q4->bytes == 144);
    for (const BlockFormat& f : block_formats()) {
      CHECK(block_format(f.gguf_type) == &f);
      CHECK(block_format(f.name) == &f);
      CHECK(f.plain() == (f.elements == 1));
    }
    CHECK(block_formats().size() == 35);
    for (const uint32_t retired : {4, 5, 31, 32, 33, 36, 37, 38, 43, 255})
      CHECK(block_format(retired) == nullptr);
    CHECK(block_format("Q4") == nullptr);
    CHECK(block_format("") == nullptr);
    // A dtype of blocks, but no format of GGUF files.
    CHECK(block_format("f8e4m3_128") == nullptr);
    CHECK(block_format(TENON_DTYPE_F8E4M3_128 - TENON_DTYPE_BLOCKS) == nullptr);
  }

  TEST_CASE("block_bytes: whole blocks only, no overflow") {
    const BlockFormat& q6 = *block_format("Q6_K");
    CHECK(block_bytes(q6, 0) == 0);
    CHECK(block_bytes(q6, 512) == 420);
    CHECK_THROWS_WITH_AS(block_bytes(q6, 100), "Q6_K: 100 elements; expected a multiple of 256",
                         Error);
    CHECK_THROWS_AS(block_bytes(*block_format("F64"), uint64_t{1} << 61), Error);
  }

  TEST_CASE("decode_blocks: known bytes give the numbers of the specification") {
    for (const Golden& g : kGolden) {
      const BlockFormat& f = *block_format(g.name);
      check_golden(g, decoded(f, known_block(f, g.d, g.second)));
    }
  }

  TEST_CASE("decode_blocks: formats whose scales are no f16") {
    const BlockFormat &q8 = *block_format("Q8_K"), &mx = *block_format("MXFP4"),
                      &nv = *block_format("NVFP4");
    Blob block = known_block(q8, -1, -1);
    const float half = 0.5F;
    std::memcpy(block.data(), &half, sizeof half);
    check_golden({"Q8_K", 0, 0, -48.5, -30, 10, 61, -64, 22720}, decoded(q8, block));
    block = known_block(mx, -1, -1);
    block[0] = std::byte{127};
    check_golden({"MXFP4", 0, 0, 0, 3, 3, 3, 12.5, 319}, decoded(mx, block));
    block = known_block(nv, -1, -1);
    const unsigned char scales[] = {0x38, 0x30, 0x40, 0x28};
    std::memcpy(block.data(), scales, sizeof scales);
    check_golden({"NVFP4", 0, 0, -6, 2, -1, .125, -36.125, -1247.875}, decoded(nv, block));
  }

  TEST_CASE("decode_blocks: ends of the scales of MXFP4 and NVFP4") {
    Blob mx(17, std::byte{0x11});  // all 0.5
    const BlockFormat& m = *block_format("MXFP4");
    mx[0] = std::byte{0};
    CHECK(bits(decoded(m, mx)[0]) == 0x00200000);  // 2^-128, subnormal
    mx[0] = std::byte{1};
    CHECK(bits(decoded(m, mx)[0]) == 0x00400000);
    mx[0] = std::byte{254};
    CHECK(decoded(m, mx)[31] == 0x1p126F);
    mx[0] = std::byte{255};
    CHECK(decoded(m, mx)[31] == 0x1p127F);
    Blob nv(36, std::byte{0x22});  // all 1
    const unsigned char scales[] = {0x00, 0x7f, 0x7e, 0x01};
    std::memcpy(nv.data(), scales, sizeof scales);
    const auto y = decoded(*block_format("NVFP4"), nv);
    CHECK(y[0] == 0);
    CHECK(y[16] == 0);
    CHECK(y[32] == 448);
    CHECK(y[48] == 0x1p-9F);
    Blob zero(17, std::byte{0x88});  // a zero has no sign
    zero[0] = std::byte{127};
    CHECK(bits(decoded(m, zero)[5]) == 0);
  }

  TEST_CASE("decode_blocks: Q8_1 reads its codes behind the sum") {
    Blob block(36);
    block[1] = std::byte{0x3c};  // d = 1
    block[4] = std::byte{0x80};
    block[35] = std::byte{5};
    const auto y = decoded(*block_format("Q8_1"), block);
    CHECK(y[0] == -128);
    CHECK(y[31] == 5);
  }

  TEST_CASE("decode_blocks: halves and doubles round once, overflow of f16 gives infinity") {
    const BlockFormat& f = *block_format("Q4_K");
    Blob block = known_block(f, 0, 2);
    std::vector<float> wide = decoded(f, block);
    for (const bool large : {false, true}) {
      if (large) block[1] = std::byte{0x7b};  // d = 57344
      wide = decoded(f, block);
      std::vector<tenon::F16> h(256);
      std::vector<tenon::BF16> b(256);
      std::vector<double> d(256);
      decode_blocks(f, block, TENON_DTYPE_F16, h.data());
      decode_blocks(f, block, TENON_DTYPE_BF16, b.data());
      decode_blocks(f, block, TENON_DTYPE_F64, d.data());
      for (size_t i = 0; i < 256; ++i) {
        CHECK(h[i].bits == tenon::F16(wide[i]).bits);
        CHECK(b[i].bits == tenon::BF16(wide[i]).bits);
        CHECK(d[i] == wide[i]);
      }
      CHECK((h[0].bits == 0x7c00) == large);
    }
    CHECK_THROWS_WITH_AS(decode_blocks(f, block, TENON_DTYPE_I32, wide.data()),
                         "Q4_K: expected f32, f16, bf16 or f64 to decode to, got i32", Error);
  }

  TEST_CASE("decode_blocks: many blocks, plain types, parts of blocks and codebook formats") {
    const BlockFormat& f = *block_format("Q8_0");
    Blob blocks = known_block(f, 0, -1);
    const Blob one = blocks;
    for (int i = 0; i < 99; ++i) blocks.insert(blocks.end(), one.begin(), one.end());
    std::vector<tenon::F16> h(3200);
    decode_blocks(f, blocks, TENON_DTYPE_F16, h.data());
    CHECK(float(h[0]) == 42.5F);
    CHECK(float(h[3199]) == -24);
    blocks.pop_back();
    CHECK_THROWS_WITH_AS(decoded(f, blocks), "Q8_0: 3399 bytes; expected a multiple of 34", Error);

    const int16_t numbers[] = {-3, 32767};
    Blob plain(4);
    std::memcpy(plain.data(), numbers, 4);
    CHECK(decoded(*block_format("I16"), plain) == std::vector<float>{-3, 32767});
    const int64_t large = (int64_t{1} << 53) - 1;  // no float
    double wide = 0;
    decode_blocks(*block_format("I64"), std::as_bytes(std::span(&large, 1)), TENON_DTYPE_F64,
                  &wide);
    CHECK(wide == 9007199254740991);
    const double above_tie = 1 + 0x1p-11 + 0x1p-40;  // a tie of f16 once it is a float
    decode_blocks(*block_format("F64"), std::as_bytes(std::span(&above_tie, 1)), TENON_DTYPE_F16,
                  h.data());
    CHECK(h[0].bits == 0x3c01);

    for (const char* name : {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"}) {
      const BlockFormat& codebook = *block_format(name);
      const std::string text =
          std::string(name) + ": is a codebook format, which tenon does not decode";
      CHECK_THROWS_WITH_AS(decoded(codebook, Blob(codebook.bytes)), text.c_str(), Error);
    }
  }
}
