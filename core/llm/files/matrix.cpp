// SPDX-License-Identifier: Apache-2.0
// Converts, reorders and encodes numbers.
#include "llm/files/matrix.hpp"

#include <algorithm>
#include <cstring>

#include "llm/threads.hpp"

namespace tenon::llm::files {

std::vector<float> widened(tenon_dtype type, std::span<const std::byte> source) {
  const size_t width = tenon_dtype_bits(type) / 8;
  std::vector<float> out(source.size() / width);
  if (type == f32) {
    if (!out.empty()) std::memcpy(out.data(), source.data(), source.size());
    return out;
  }
  constexpr size_t kPiece = 4096;
  alignas(8) std::byte piece[kPiece * 2];  // aligned to its elements
  for (size_t at = 0; at < out.size(); at += kPiece) {
    const size_t count = std::min(kPiece, out.size() - at);
    std::memcpy(piece, source.data() + at * width, count * width);
    detail::check(tenon_convert(type, piece, f32, out.data() + at, count));
  }
  return out;
}

template <class T>
void permute_rope(std::vector<T>& numbers, int64_t rows, int64_t heads, bool back) {
  if (rows == 0 || heads < 1 || rows % (2 * heads) != 0)
    throw Error(TENON_SHAPE_MISMATCH, std::to_string(rows) + " rows; expected a multiple of 2 * " +
                                          std::to_string(heads) + " heads");
  const size_t columns = numbers.size() / static_cast<size_t>(rows);
  const int64_t half = rows / heads / 2;
  std::vector<T> out(numbers.size());
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < 2 * half; ++i) {
      const int64_t paired = 2 * (i % half) + i / half, first = h * 2 * half;
      const size_t from = static_cast<size_t>(first + (back ? paired : i)) * columns,
                   to = static_cast<size_t>(first + (back ? i : paired)) * columns;
      std::copy_n(numbers.begin() + static_cast<ptrdiff_t>(from), columns,
                  out.begin() + static_cast<ptrdiff_t>(to));
    }
  }
  numbers.swap(out);
}
template void permute_rope(std::vector<float>&, int64_t, int64_t, bool);
template void permute_rope(std::vector<std::byte>&, int64_t, int64_t, bool);

std::vector<std::byte> encoded(const GgufFormat& format, std::span<const float> numbers,
                               int64_t columns, unsigned threads) {
  const uint64_t row = format.size(columns);
  const size_t rows = columns == 0 ? 0 : numbers.size() / static_cast<size_t>(columns);
  std::vector<std::byte> out(rows * row);
  const size_t workers = std::clamp<size_t>(threads, 1, std::max<size_t>(rows, 1));
  in_threads(workers, threads, [&](size_t worker) {
    const size_t from = rows * worker / workers, to = rows * (worker + 1) / workers;
    detail::check(tenon_gguf_encode(
        format.type, numbers.data() + from * static_cast<size_t>(columns), nullptr,
        (to - from) * static_cast<size_t>(columns), out.data() + from * row, (to - from) * row));
  });
  return out;
}

}  // namespace tenon::llm::files
