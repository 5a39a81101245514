// SPDX-License-Identifier: Apache-2.0
// dequant_matmul: the bits of a row of y do not depend on the other rows of x.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

// Where blocks have scales of f16, and how many.
struct HalfScales {
  int at, count;
};
HalfScales half_scales(tenon_dtype format) {
  switch (format) {
    case TENON_DTYPE_Q2_K:
      return {80, 2};
    case TENON_DTYPE_Q3_K:
    case TENON_DTYPE_Q6_K:
    case TENON_DTYPE_TQ1_0:
    case TENON_DTYPE_TQ2_0:
      return {tenon_dtype_block(format).bytes - 2, 1};
    case TENON_DTYPE_Q4_1:
    case TENON_DTYPE_Q5_1:
    case TENON_DTYPE_Q4_K:
    case TENON_DTYPE_Q5_K:
      return {0, 2};
    case TENON_DTYPE_NVFP4:  // no f16: eight bits, all finite
    case TENON_DTYPE_F8E4M3_128:
      return {0, 0};
    default:
      return {0, 1};
  }
}

// Bytes of any kind, but scales that are finite. Most of f16 are between 1/64 and 1/32; one of seven
// is subnormal, one negative.
Tensor blocks_of(tenon_dtype format, int64_t rows, int64_t columns) {
  Tensor w(TensorType(format, {rows, columns}));
  auto* const bytes = static_cast<uint8_t*>(w.data());
  uint32_t state = 1;
  for (size_t k = 0; k < w.size(); ++k) {
    state = state * 1664525 + 1013904223;
    bytes[k] = static_cast<uint8_t>(state >> 24);
  }
  const tenon_block block = tenon_dtype_block(format);
  if (format == TENON_DTYPE_MXFP4) {
    // One byte: from 1/128 to 1, and subnormal ones.
    for (size_t at = 0; at < w.size(); at += block.bytes)
      bytes[at] = static_cast<uint8_t>(at % 7 == 3 ? at % 2 : 121 + at % 8);
    return w;
  }
  if (format == TENON_DTYPE_F8E4M3_128)
    for (size_t at = 0; at < w.size(); at += block.bytes) {
      const float scale = at % 7 == 5 ? -0x1p-6f : 0x1p-7f * static_cast<float>(1 + at % 3);
      std::memcpy(bytes + at, &scale, sizeof scale);
      for (size_t k = at + 4; k < at + block.bytes; ++k)
        if ((bytes[k] & 0x7f) == 0x7f) bytes[k] ^= 1;  // the largest number in place of NaN
    }
  const HalfScales scales = half_scales(format);
  for (size_t at = 0; at < w.size(); at += block.bytes)
    for (int k = 0; k < scales.count; ++k) {
      const size_t index = at / block.bytes + static_cast<size_t>(k);
      const size_t bits = index % 7 == 3 ? 0x3ff : 0x2400 + index % 512 + (index % 7 == 5) * 0x8000;
      const auto scale = static_cast<uint16_t>(bits);
      std::memcpy(bytes + at + scales.at + 2 * k, &scale, 2);
    }
  return w;
}

std::vector<float> rows_of_x(int64_t rows, int64_t columns) {
  std::vector<float> x(static_cast<size_t>(rows * columns));
  for (size_t k = 0; k < x.size(); ++k)
    x[k] = static_cast<float>(static_cast<int>(k * 7919 % 65537 % 257) - 128) / 64;
  return x;
}

}  // namespace

TEST_CASE("a row of a product with blocks has the same bits alone and among others") {
  constexpr int64_t kColumns = 5 * 256, kRows = 52;
  for (const std::string& device : control_devices())
    for (const tenon_dtype format :
         {TENON_DTYPE_Q4_K, TENON_DTYPE_Q5_K, TENON_DTYPE_Q6_K, TENON_DTYPE_Q3_K, TENON_DTYPE_Q8_0,
          TENON_DTYPE_Q4_0, TENON_DTYPE_F8E4M3_128})
      for (const tenon_dtype dtype : {tenon_dtype{f32}, tenon_dtype{f16}, tenon_dtype{bf16}}) {
        CAPTURE(device);
        CAPTURE(sdk::dtype_name(format));
        CAPTURE(sdk::dtype_name(dtype));
        Store store(runtime());
        store.set(TENON_SPACE_WEIGHT, "w", blocks_of(format, kRows, kColumns));
        const auto product = [&](const std::vector<float>& x) {
          const auto rows = static_cast<int64_t>(x.size()) / kColumns;
          Graph g("product");
          const Value w = g.weight("w", {format, {kRows, kColumns}}, false);
          const Value in = g.add(op::cast{.to = dtype, .x = g.input("x", {f32, {rows, kColumns}})});
          const Value y = g.add(op::dequant_matmul{.x = in, .w = w});
          g.output("y", g.add(op::cast{.to = f32, .x = y}));
          const Executable executable(runtime(), g, store, {.device = device});
          Context run(executable);
          run.set("x", {rows, kColumns}, x);
          run.run();
          return run.get<float>("y");
        };
        const std::vector<float> x = rows_of_x(150, kColumns);
        const auto rows_of = [&](int64_t from, int64_t count) {
          const auto begin = x.begin() + from * kColumns;
          return product({begin, begin + count * kColumns});
        };
        // With more rows of f32, w is decoded on cuda, and a library adds the terms.
        for (const int64_t rows : {2, 8, 9, 17, 64, 65, 150}) {
          if (dtype == f32 && rows > 65 && device.starts_with("cuda")) continue;
          CAPTURE(rows);
          const std::vector<float> among = rows_of(0, rows);
          REQUIRE(among.size() == static_cast<size_t>(rows * kRows));
          for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
            CAPTURE(row);
            const std::vector<float> alone = rows_of(row, 1);
            for (const float v : alone) REQUIRE(std::isfinite(v));
            CHECK(std::memcmp(alone.data(), among.data() + row * kRows, kRows * sizeof(float)) ==
                  0);
          }
        }
      }
}

TEST_CASE("a row of a grouped product with blocks has the bits of a product with its expert") {
  constexpr int64_t kColumns = 5 * 256, kRows = 52, kExperts = 3, kMost = 200;
  for (const std::string& device : control_devices())
    for (const tenon_dtype format : {TENON_DTYPE_Q4_K, TENON_DTYPE_Q6_K, TENON_DTYPE_Q8_0})
      for (const tenon_dtype dtype : {tenon_dtype{f32}, tenon_dtype{f16}, tenon_dtype{bf16}}) {
        CAPTURE(device);
        CAPTURE(sdk::dtype_name(format));
        CAPTURE(sdk::dtype_name(dtype));
        const Tensor all = blocks_of(format, kExperts * kRows, kColumns);
        const std::vector<float> x = rows_of_x(kMost, kColumns);
        // Rows [from, from + count) by `experts` of them; one: by expert `expert` alone.
        const auto product = [&](int64_t from, int64_t count, int64_t experts, int64_t expert) {
          Store store(runtime());
          Graph g("product");
          std::vector<int64_t> dims{kRows, kColumns};
          if (experts > 1) dims.insert(dims.begin(), experts);
          Tensor w(TensorType(format, dims));
          const auto* const bytes = static_cast<const std::byte*>(all.data());
          std::memcpy(w.data(), bytes + static_cast<size_t>(expert) * all.size() / size_t{kExperts},
                      w.size());
          store.set(TENON_SPACE_WEIGHT, "w", std::move(w));
          const Value of = g.weight("w", {format, dims}, false);
          const Value in =
              g.add(op::cast{.to = dtype, .x = g.input("x", {f32, {count, kColumns}})});
          Value y;
          if (experts > 1) {
            std::vector<int64_t> ids;
            for (int64_t r = from; r < from + count; ++r) ids.push_back(r * r % kExperts);
            y = g.add(
                op::grouped_dequant_matmul{.x = in, .w = of, .ids = g.constant({count}, ids)});
          } else {
            y = g.add(op::dequant_matmul{.x = in, .w = of});
          }
          g.output("y", g.add(op::cast{.to = f32, .x = y}));
          const Executable executable(runtime(), g, store, {.device = device});
          Context run(executable);
          const auto begin = x.begin() + from * kColumns;
          run.set("x", {count, kColumns}, std::vector<float>(begin, begin + count * kColumns));
          run.run();
          return run.get<float>("y");
        };
        for (const int64_t rows : std::initializer_list<int64_t>{1, 5, 16, 17, 40, 100, kMost}) {
          CAPTURE(rows);
          const std::vector<float> grouped = product(0, rows, kExperts, 0);
          for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
            CAPTURE(row);
            const std::vector<float> alone = product(row, 1, 1, row * row % kExperts);
            for (const float v : alone) REQUIRE(std::isfinite(v));
            CHECK(std::memcmp(alone.data(), grouped.data() + row * kRows, kRows * sizeof(float)) ==
                  0);
          }
        }
      }
}

// By experts: row r of x goes to expert r % 2, so expert 0 has one row where there are one or two.
TEST_CASE("a row of bytes has the same bits alone, among others, and among rows of experts") {
  constexpr int64_t kRows = 37;
  for (const tenon_dtype format :
       {TENON_DTYPE_Q4_K, TENON_DTYPE_Q5_K, TENON_DTYPE_Q6_K, TENON_DTYPE_Q3_K, TENON_DTYPE_Q2_K,
        TENON_DTYPE_Q8_0, TENON_DTYPE_Q4_0, TENON_DTYPE_Q4_1, TENON_DTYPE_Q5_0, TENON_DTYPE_Q5_1,
        TENON_DTYPE_IQ4_NL, TENON_DTYPE_IQ4_XS, TENON_DTYPE_MXFP4, TENON_DTYPE_NVFP4,
        TENON_DTYPE_TQ1_0, TENON_DTYPE_TQ2_0, TENON_DTYPE_F8E4M3_128})
    for (const int64_t columns : {256, 3 * 256, 6 * 256, 35 * 256, 17 * 32, 28 * 32}) {
      if (columns % tenon_dtype_block(format).elements != 0) continue;
      CAPTURE(sdk::dtype_name(format));
      CAPTURE(columns);
      const Tensor w = blocks_of(format, 2 * kRows, columns);
      const std::vector<float> x = rows_of_x(19, columns);
      // The result of rows [from, from + count) for w as two experts, or for its first rows.
      const auto product = [&](int64_t from, int64_t count, bool experts) {
        Store store(runtime());
        Graph g("product");
        std::vector<int64_t> dims{kRows, columns};
        if (experts) dims.insert(dims.begin(), 2);
        Tensor weight(TensorType(format, dims));
        std::memcpy(weight.data(), w.data(), weight.size());
        store.set(TENON_SPACE_WEIGHT, "w", std::move(weight));
        const Value of = g.weight("w", {format, dims}, false);
        const Value in = g.input("x", {f32, {count, columns}});
        if (experts) {
          std::vector<int64_t> ids;
          for (int64_t r = from; r < from + count; ++r) ids.push_back(r % 2);
          g.output("y", g.add(op::grouped_dequant_matmul{
                            .compute = "int8", .x = in, .w = of, .ids = g.constant({count}, ids)}));
        } else {
          g.output("y", g.add(op::dequant_matmul{.compute = "int8", .x = in, .w = of}));
        }
        const Executable executable(runtime(), g, store, {.device = "cpu:0"});
        Context run(executable);
        const auto begin = x.begin() + from * columns;
        run.set("x", {count, columns}, std::vector<float>(begin, begin + count * columns));
        run.run();
        return run.get<float>("y");
      };
      const auto same = [=](const std::vector<float>& alone, const std::vector<float>& among,
                            int64_t row) {
        for (const float v : alone) REQUIRE(std::isfinite(v));
        REQUIRE(alone.size() == kRows);
        return std::memcmp(alone.data(), among.data() + row * kRows, kRows * sizeof(float)) == 0;
      };
      for (const int64_t rows : {2, 3, 5, 19}) {
        CAPTURE(rows);
        const std::vector<float> among = product(0, rows, false), grouped = product(0, rows, true);
        for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
          CAPTURE(row);
          CHECK(same(product(row, 1, false), among, row));
          CHECK(same(product(row, 1, true), grouped, row));
          if (row % 2 == 0) CHECK(same(product(row, 1, false), grouped, row));
        }
      }
    }
}
