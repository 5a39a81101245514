// SPDX-License-Identifier: Apache-2.0
// Reads sizes of buckets, pads contents and cuts them.
#include "exec/buckets.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace tenon::core {
namespace {

int64_t size_in(std::string_view text, std::string_view word, std::string_view who) {
  int64_t size = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
  if (error != std::errc{} || end != word.data() + word.size() || size < 1)
    fail(Code::invalid_argument, who, ": expected exact, pow2, pow2:LEAST..MOST or sizes such as ",
         "64,128,512, got '", text, "'");
  return size;
}

// Calls run(offset in the smaller value, offset in the larger one, count) for each piece that lies
// in one part in both, in elements. Along an axis, indices of the larger value beyond the smaller
// one stand for its last index if `edges`, else they are left out.
template <class Run>
void for_pieces(const Shape& small, const Shape& large, bool edges, const Run& run) {
  int whole = small.rank();  // from here on, axes are equal
  while (whole > 0 && small[whole - 1] == large[whole - 1]) --whole;
  int64_t each = 1;
  for (int i = whole; i < small.rank(); ++i) each *= small[i];
  const auto walk = [&](auto& self, int axis, int64_t at_small, int64_t at_large) -> void {
    if (axis == whole) return run(at_small * each, at_large * each, each);
    // Rows of the last of these axes follow each other in both.
    if (axis == whole - 1) {
      run(at_small * small[axis] * each, at_large * large[axis] * each, small[axis] * each);
      for (int64_t i = small[axis]; edges && i < large[axis]; ++i)
        run((at_small * small[axis] + small[axis] - 1) * each, (at_large * large[axis] + i) * each,
            each);
      return;
    }
    const int64_t end = edges ? large[axis] : small[axis];
    for (int64_t i = 0; i < end; ++i)
      self(self, axis + 1, at_small * small[axis] + std::min(i, small[axis] - 1),
           at_large * large[axis] + i);
  };
  if (small.elements() != 0) walk(walk, 0, 0, 0);
}

// Copies elements of 4 bits or whole bytes.
void copy_elements(DType t, const std::byte* from, int64_t from_at, std::byte* to, int64_t to_at,
                   int64_t count) {
  const auto bits = static_cast<int64_t>(tenon_dtype_bits(t));
  if (bits % 8 == 0) {
    const int64_t size = bits / 8;
    std::memcpy(to + to_at * size, from + from_at * size, static_cast<size_t>(count * size));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t a = from_at + i, b = to_at + i;
    const std::byte nibble = (from[a / 2] >> (a % 2 ? 4 : 0)) & std::byte{0x0f};
    to[b / 2] = b % 2 ? (to[b / 2] & std::byte{0x0f}) | (nibble << 4)
                      : (to[b / 2] & std::byte{0xf0}) | nibble;
  }
}

}  // namespace

Buckets Buckets::parse(std::string_view text, std::string_view who) {
  Buckets out;
  constexpr std::string_view kPow2 = "pow2", kTo = "..";
  if (text == "exact") return out;
  if (text == kPow2 || text.starts_with("pow2:")) {
    out.kind_ = Kind::powers_of_two;
    if (text == kPow2) return out;
    const std::string_view range = text.substr(kPow2.size() + 1);
    const size_t to = range.find(kTo);
    if (to == std::string_view::npos || range.size() == kTo.size()) size_in(text, "", who);
    const std::string_view least = range.substr(0, to), most = range.substr(to + kTo.size());
    if (!least.empty()) out.least_ = size_in(text, least, who);
    if (!most.empty()) out.most_ = size_in(text, most, who);
    if (out.least_ > out.most_)
      fail(Code::invalid_argument, who, ": expected LEAST not above MOST, got '", text, "'");
    return out;
  }
  out.kind_ = Kind::list;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(',', from), text.size());
    out.sizes_.push_back(size_in(text, text.substr(from, to - from), who));
    from = to + 1;
  }
  std::ranges::sort(out.sizes_);
  return out;
}

int64_t Buckets::size_for(int64_t number) const {
  if (number <= 0) return number;
  switch (kind_) {
    case Kind::exact:
      break;
    case Kind::powers_of_two: {
      constexpr int64_t kLargest = int64_t{1} << 62;
      const int64_t least = std::max(number, least_);
      if (number > most_ || least > kLargest) break;
      return std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(least))), most_);
    }
    case Kind::list:
      if (const auto at = std::ranges::lower_bound(sizes_, number); at != sizes_.end()) return *at;
      break;
  }
  return number;
}

Bytes pad_edges(const Type& from, std::span<const std::byte> content, const Type& to) {
  Bytes out(type_bytes(to));
  for_pieces(from.shape, to.shape, true, [&](int64_t small, int64_t large, int64_t count) {
    copy_elements(from.dtype, content.data(), small, out.data(), large, count);
  });
  return out;
}

void cut_front(const Type& from, std::span<const std::byte> content, const Type& to,
               std::span<std::byte> out) {
  for_pieces(to.shape, from.shape, false, [&](int64_t small, int64_t large, int64_t count) {
    copy_elements(to.dtype, content.data(), large, out.data(), small, count);
  });
}

bool front_is_dense(const Shape& whole, const Shape& front) {
  int64_t outer = 1;
  for (int i = 0; i < whole.rank(); ++i) {
    if (whole[i] != front[i] && outer != 1) return false;
    outer *= front[i];
  }
  return true;
}

}  // namespace tenon::core
