// SPDX-License-Identifier: Apache-2.0
// Makes the kernel of copy.cu: vector width, tiles and index width.
#include "strided_copy.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace tenon::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr int64_t kEach = 4, kMostBytes = 16;  // units of a thread, bytes of a unit

int64_t greatest_power(int64_t of) { return of == 0 ? kMostBytes : of & -of; }

}  // namespace

// Axes of 1 go, neighbours that both sides join become one.
StridedCopy::Axes StridedCopy::joined(std::span<const int64_t> dims, std::span<const int64_t> from,
                                      std::span<const int64_t> to) {
  Axes a;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) continue;
    if (!a.dims.empty() && a.from.back() == from[i] * dims[i] && a.to.back() == to[i] * dims[i]) {
      a.dims.back() *= dims[i];
      a.from.back() = from[i], a.to.back() = to[i];
    } else {
      a.dims.push_back(dims[i]);
      a.from.push_back(from[i]);
      a.to.push_back(to[i]);
    }
  }
  if (a.dims.empty()) a.dims = {1}, a.from = {1}, a.to = {1};
  return a;
}

int64_t StridedCopy::widen(Axes& a, int64_t bytes, uint64_t alignment,
                           std::span<const int64_t> moving) {
  if (a.from.back() != 1 || a.to.back() != 1) return bytes;
  int64_t unit = std::min(greatest_power(a.dims.back() * bytes), kMostBytes);
  unit = std::min(unit, std::max(static_cast<int64_t>(alignment), bytes));
  for (size_t i = 0; i + 1 < a.dims.size(); ++i)
    unit = std::min({unit, greatest_power(a.from[i] * bytes), greatest_power(a.to[i] * bytes)});
  for (const int64_t stride : moving) unit = std::min(unit, greatest_power(stride));
  const int64_t several = unit / bytes;
  if (several <= 1) return bytes;
  a.dims.back() /= several;
  for (size_t i = 0; i + 1 < a.dims.size(); ++i) a.from[i] /= several, a.to[i] /= several;
  return unit;
}

void StridedCopy::fill(const Axes& a) {
  block_.count = 1;
  for (size_t i = 0; i < a.dims.size(); ++i) {
    block_.count *= a.dims[i];
    block_.dims[i] = a.dims[i];
    block_.from[i] = a.from[i], block_.to[i] = a.to[i];
    if (a.dims[i] > 0 && a.dims[i] < kNarrowIndex)
      block_.divisors[i] = Divisor(static_cast<uint32_t>(a.dims[i]));
  }
}

// Where the target runs along its last axis and the source along another.
bool StridedCopy::make_tiles(CudaDevice& device, Axes& a, int64_t bytes, const Side& from,
                             const Side& to) {
  constexpr int64_t kShort = 8;  // shorter axes leave most of a tile empty
  if (a.to.back() != 1 || a.from.back() == 1 || a.dims.back() < kShort) return false;
  const auto last = a.dims.size() - 1;
  size_t along = last;
  for (size_t i = 0; i < last; ++i)
    if (a.from[i] == 1) along = i;
  if (along == last || a.dims[along] < kShort) return false;
  std::rotate(a.dims.begin() + along, a.dims.begin() + along + 1, a.dims.end() - 1);
  std::rotate(a.from.begin() + along, a.from.begin() + along + 1, a.from.end() - 1);
  std::rotate(a.to.begin() + along, a.to.begin() + along + 1, a.to.end() - 1);
  const int64_t most = std::min<int64_t>(kMostBytes / bytes, 8);
  const auto width = [&](const std::vector<int64_t>& strides, size_t axis, uint64_t alignment) {
    bool fits = a.dims[axis] % most == 0 && alignment % static_cast<uint64_t>(most * bytes) == 0 &&
                alignment > 0;
    for (size_t i = 0; i < strides.size(); ++i) fits &= i == axis || strides[i] % most == 0;
    return std::to_string(fits ? most : 1);
  };
  const int64_t tile = bytes >= 8 ? 32 : 64;
  const int64_t columns = blocks_for(a.dims[last], tile), rows = blocks_for(a.dims[last - 1], tile);
  fill(a);
  grid_.threads = kThreads;
  grid_.early = device.properties().early_starts;
  if (block_.count > 0) {
    grid_.blocks = block_.count / a.dims[last] / a.dims[last - 1] * columns * rows;
    if (grid_.blocks >= kNarrowIndex) return false;
    tiles_ = {Divisor(static_cast<uint32_t>(columns)), Divisor(static_cast<uint32_t>(rows))};
  }
  tiled_ = true;
  by_tiles_ = device.code(entries::copy_tiles,
                          {"SIZE=" + std::to_string(bytes), "RANK=" + std::to_string(last + 1),
                           "TILED=1", "READ=" + width(a.from, last - 1, from.alignment),
                           "WRITE=" + width(a.to, last, to.alignment)});
  codes_ = {by_tiles_};
  return true;
}

StridedCopy::StridedCopy(CudaDevice& device, std::span<const int64_t> dims, Side from, Side to,
                         int64_t bytes, std::span<const int64_t> moving, bool dynamic) {
  Axes a = joined(dims, from.strides, to.strides);
  if (!dynamic && make_tiles(device, a, bytes, from, to)) return;
  const uint64_t alignment = std::min(from.alignment, to.alignment);
  const int64_t unit = widen(a, bytes, alignment, moving);
  fill(a);
  grid_ = {.blocks = blocks_for(block_.count, kThreads * kEach),
           .threads = kThreads,
           .early = device.properties().early_starts};
  std::vector<std::string> defines = {
      "SIZE=" + std::to_string(unit), "RANK=" + std::to_string(a.dims.size()),
      std::string("NARROW=") + (block_.count < kNarrowIndex ? "1" : "0")};
  if (!dynamic) {
    codes_ = {straight_ = device.code(entries::copy_block, defines)};
    return;
  }
  defines.emplace_back("DYNAMIC=1");
  moved_ = device.code(entries::copy_moved, defines);
  check_ = device.code(entries::check_start, defines);
  codes_ = {moved_, check_};
}

}  // namespace tenon::cuda
