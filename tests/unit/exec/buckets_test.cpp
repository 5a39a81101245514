// SPDX-License-Identifier: Apache-2.0
// Sizes of buckets, and contents that are padded and cut.
#include "exec/buckets.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>

using namespace tenon::core;

namespace {

std::vector<int64_t> sizes(std::string_view text, std::initializer_list<int64_t> numbers) {
  const Buckets buckets = Buckets::parse(text, "test");
  std::vector<int64_t> out;
  for (int64_t n : numbers) out.push_back(buckets.size_for(n));
  return out;
}
using Sizes = std::vector<int64_t>;

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes out;
  for (int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

}  // namespace

TEST_SUITE("exec/buckets") {
  TEST_CASE("the size for a number") {
    CHECK(sizes("exact", {0, 1, 7}) == Sizes{0, 1, 7});
    CHECK(sizes("pow2", {0, 1, 2, 3, 4, 5, 1000}) == Sizes{0, 1, 2, 4, 4, 8, 1024});
    CHECK(sizes("pow2:16..", {0, 1, 16, 17}) == Sizes{0, 16, 16, 32});
    CHECK(sizes("pow2:12..", {1, 13}) == Sizes{16, 16});
    CHECK(sizes("pow2:..100", {3, 65, 100, 101}) == Sizes{4, 100, 100, 101});
    CHECK(sizes("pow2:8..24", {1, 9, 17, 25}) == Sizes{8, 16, 24, 25});
    CHECK(sizes("64,16,128", {0, 1, 16, 17, 65, 128, 129}) == Sizes{0, 16, 16, 64, 128, 128, 129});
    constexpr int64_t kTop = int64_t{1} << 62;
    CHECK(sizes("pow2", {kTop - 1, kTop, kTop + 1, INT64_MAX}) ==
          Sizes{kTop, kTop, kTop + 1, INT64_MAX});
  }

  TEST_CASE("edges are repeated along each axis, and what is in front comes back") {
    const Type small{kI8, {2, 1, 3}}, large{kI8, {3, 2, 4}};
    const Bytes content = bytes_of({1, 2, 3, 4, 5, 6});
    const Bytes padded = pad_edges(small, content, large);
    CHECK(padded ==
          bytes_of({1, 2, 3, 3, 1, 2, 3, 3, 4, 5, 6, 6, 4, 5, 6, 6, 4, 5, 6, 6, 4, 5, 6, 6}));
    Bytes back(6);
    cut_front(large, padded, small, back);
    CHECK(back == content);
  }

  TEST_CASE("an inner axis stays whole; wide and narrow elements") {
    std::vector<int64_t> numbers(6);
    std::iota(numbers.begin(), numbers.end(), 1);
    const auto* at = reinterpret_cast<const std::byte*>(numbers.data());
    const Bytes padded = pad_edges({kI64, {3, 2}}, {at, 48}, {kI64, {5, 2}});
    std::vector<int64_t> got(10);
    REQUIRE(padded.size() == 80);
    std::memcpy(got.data(), padded.data(), 80);
    CHECK(got == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 5, 6, 5, 6});

    const DType i4 = TENON_DTYPE_I4;
    const Bytes nibbles = pad_edges({i4, {2, 3}}, bytes_of({0x21, 0x43, 0x65}), {i4, {2, 5}});
    CHECK(nibbles == bytes_of({0x21, 0x33, 0x43, 0x65, 0x66}));
    Bytes back(3);
    cut_front({i4, {2, 5}}, nibbles, {i4, {2, 3}}, back);
    CHECK(back == bytes_of({0x21, 0x43, 0x65}));
  }

  TEST_CASE("scalars and equal shapes are copied") {
    CHECK(pad_edges({kI8, {}}, bytes_of({9}), {kI8, {}}) == bytes_of({9}));
    CHECK(pad_edges({kI8, {2}}, bytes_of({8, 9}), {kI8, {2}}) == bytes_of({8, 9}));
  }

  TEST_CASE("where the front is dense") {
    CHECK(front_is_dense({8, 2}, {5, 2}));
    CHECK(front_is_dense({1, 8, 2}, {1, 5, 2}));
    CHECK(front_is_dense({4}, {4}));
    CHECK(!front_is_dense({2, 8}, {2, 5}));
    CHECK(!front_is_dense({8, 8}, {5, 5}));
    CHECK(front_is_dense({8, 8}, {1, 5}));
    CHECK(front_is_dense({}, {}));
  }
}
