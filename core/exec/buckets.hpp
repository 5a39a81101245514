// SPDX-License-Identifier: Apache-2.0
// Buckets: the sizes to which numbers of symbols are rounded up, so that few plans serve many
// numbers, and the padding of what goes in and comes out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"

namespace tenon::core {

// For one symbol.
class Buckets {
 public:
  // "exact", "pow2", "pow2:LEAST..MOST" (one of them may be missing), or sizes: "64,128,512". Fails
  // with invalid_argument; messages start with `who`.
  static Buckets parse(std::string_view text, std::string_view who);
  // The smallest size that is not below the number; the number itself if there is none, and for 0.
  int64_t size_for(int64_t number) const;

 private:
  enum class Kind : uint8_t { exact, powers_of_two, list };
  Kind kind_ = Kind::exact;
  int64_t least_ = 1, most_ = INT64_MAX;  // of powers of two
  std::vector<int64_t> sizes_;            // of a list, ascending
};

// A dense value of type `from` as one of a larger shape: along each axis, copies of the last element
// follow. No axis of `from` that is shorter is empty.
Bytes pad_edges(const Type& from, std::span<const std::byte> content, const Type& to);
// The elements in front: a dense value of type `to` out of one of a larger shape.
void cut_front(const Type& from, std::span<const std::byte> content, const Type& to,
               std::span<std::byte> out);
// Do the elements in front lie in one piece at the start of a dense value?
bool front_is_dense(const Shape& whole, const Shape& front);

}  // namespace tenon::core
