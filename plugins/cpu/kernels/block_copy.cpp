// SPDX-License-Identifier: Apache-2.0
// Copies strided blocks of bytes: merges axes at compile time, distributes the runs over threads at
// run time.
#include "block_copy.hpp"

#include <algorithm>
#include <cstring>

#include "../parallel.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kPiece = 256 << 10;  // longer runs are split among threads

// One type per frequent length, so that the compiler copies through a register.
template <int64_t bytes>
struct Fixed {
  static void move(char* dst, const char* src, int64_t) { std::memcpy(dst, src, bytes); }
};
struct Any {
  static void move(char* dst, const char* src, int64_t n) {
    std::memcpy(dst, src, static_cast<size_t>(n));
  }
};

template <class Run>
void copy_rows(const BlockCopy& c, const char* src, char* dst, int64_t begin, int64_t end) {
  sdk::Dims at{};
  int64_t rest = begin;
  for (int i = c.rank - 1; i >= 0; --i) {
    at[i] = rest % c.dims[i];
    rest /= c.dims[i];
    src += at[i] * c.src_strides[i];
    dst += at[i] * c.dst_strides[i];
  }
  const int last = c.rank - 1;
  for (int64_t left = end - begin; left > 0;) {
    const int64_t count = last < 0 ? 1 : std::min(left, c.dims[last] - at[last]);
    const int64_t src_step = last < 0 ? 0 : c.src_strides[last];
    const int64_t dst_step = last < 0 ? 0 : c.dst_strides[last];
    for (int64_t i = 0; i < count; ++i, src += src_step, dst += dst_step)
      Run::move(dst, src, c.run);
    left -= count;
    if (left == 0) return;
    at[last] += count;
    for (int i = last; i > 0 && at[i] == c.dims[i]; --i) {
      src += c.src_strides[i - 1] - c.dims[i] * c.src_strides[i];
      dst += c.dst_strides[i - 1] - c.dims[i] * c.dst_strides[i];
      at[i] = 0;
      ++at[i - 1];
    }
  }
}

using CopyRows = void (*)(const BlockCopy&, const char*, char*, int64_t, int64_t);

CopyRows rows_for(int64_t run) {
  switch (run) {
    case 1:
      return copy_rows<Fixed<1>>;
    case 2:
      return copy_rows<Fixed<2>>;
    case 4:
      return copy_rows<Fixed<4>>;
    case 8:
      return copy_rows<Fixed<8>>;
    case 16:
      return copy_rows<Fixed<16>>;
    default:
      return copy_rows<Any>;
  }
}

}  // namespace

void BlockCopy::operator()(const void* src, void* dst) const {
  int64_t rows = 1;
  for (int i = 0; i < rank; ++i) rows *= dims[i];
  if (rows == 0 || run == 0) return;
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  if (rank == 0) return copy_bytes(from, to, run);
  const CopyRows copy = rows_for(run);
  parallel_for(rows, grain_for(2 * run),
               [&](int64_t begin, int64_t end) { copy(*this, from, to, begin, end); });
}

BlockCopy block_copy(std::span<const int64_t> dims, std::span<const int64_t> src_strides,
                     std::span<const int64_t> dst_strides, int64_t bytes) {
  BlockCopy c;
  c.run = bytes;
  // From the last axis to the first; the remaining axes are collected in reverse.
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 1) continue;
    const int64_t src = src_strides[i] * bytes, dst = dst_strides[i] * bytes;
    if (c.rank == 0 && src == c.run && dst == c.run) {
      c.run *= dims[i];
      continue;
    }
    if (c.rank > 0) {
      const int k = c.rank - 1;
      if (src == c.src_strides[k] * c.dims[k] && dst == c.dst_strides[k] * c.dims[k]) {
        c.dims[k] *= dims[i];
        continue;
      }
    }
    c.dims[c.rank] = dims[i];
    c.src_strides[c.rank] = src;
    c.dst_strides[c.rank++] = dst;
  }
  std::reverse(c.dims.begin(), c.dims.begin() + c.rank);
  std::reverse(c.src_strides.begin(), c.src_strides.begin() + c.rank);
  std::reverse(c.dst_strides.begin(), c.dst_strides.begin() + c.rank);
  return c;
}

void copy_bytes(const void* src, void* dst, int64_t bytes) {
  parallel_for(bytes, kPiece, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(dst) + begin, static_cast<const char*>(src) + begin,
                static_cast<size_t>(end - begin));
  });
}

void zero_bytes(void* dst, int64_t bytes) {
  parallel_for(bytes, kPiece, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(dst) + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace tenon::cpu
