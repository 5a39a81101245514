// SPDX-License-Identifier: Apache-2.0
// Collapsing of dims, gathering of runs, and strided copies.
#include "loops.hpp"

#include <string>

#include "transpose.hpp"

namespace tenon::cpu {
namespace {

using sdk::Dims;

// Whole cache lines at a time: std::fill_n stores element by element.
template <class T>
void fill_run(T value, int64_t n, T* to) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  T line[kLine];
  std::fill_n(line, kLine, value);
  for (; n >= kLine; n -= kLine, to += kLine) std::memcpy(to, line, sizeof(line));
  for (int64_t i = 0; i < n; ++i) to[i] = value;
}

template <class T>
void copy_run(const T* from, int64_t stride, int64_t n, T* to) {
  if (stride == 1) {
    if (n >= 16) {
      std::memcpy(to, from, n * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = from[i];
    }
  } else if (stride == 0) {
    fill_run(*from, n, to);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
}

template <class T>
void gather_run_of(const Loop& loop, int k, const T* base, int64_t flat, int64_t n, T* to) {
  const Dims& strides = loop.strides[k];
  const int last = loop.rank - 1;
  Dims at{};
  int64_t offset = 0, rest = flat;
  for (int i = last; i >= 0; --i) {
    at[i] = rest % loop.dims[i];
    rest /= loop.dims[i];
    offset += at[i] * strides[i];
  }
  while (n > 0) {
    const int64_t run = std::min(n, loop.dims[last] - at[last]);
    copy_run(base + offset, strides[last], run, to);
    to += run;
    if ((n -= run) == 0) return;
    offset -= at[last] * strides[last];
    at[last] = 0;
    for (int i = last - 1; i >= 0; --i) {
      offset += strides[i];
      if (++at[i] < loop.dims[i]) break;
      offset -= at[i] * strides[i];
      at[i] = 0;
    }
  }
}

}  // namespace

int64_t Loop::offset(int k, int64_t flat) const {
  int64_t offset = 0;
  for (int i = rank - 1; i >= 0; --i) {
    offset += flat % dims[i] * strides[k][i];
    flat /= dims[i];
  }
  return offset;
}

Loop make_loop(std::span<const int64_t> shape, std::span<const sdk::Type* const> operands) {
  Loop loop;
  const int rank = static_cast<int>(shape.size());
  const int operand_count = static_cast<int>(operands.size());
  loop.count = 1;
  for (const int64_t d : shape) loop.count *= d;
  loop.rank = 0;
  for (int i = 0; i < rank; ++i) {
    if (shape[i] == 1) continue;
    std::array<int64_t, Loop::kMaxOperands> stride{};
    int k = 0;
    for (const sdk::Type* t : operands) {
      const int own = i - (rank - t->rank);
      stride[k++] = own < 0 || t->dims[own] == 1 ? 0 : t->strides[own];
    }
    // Merges an outer dim into this one if, for all operands, its stride equals the extent of this
    // dim.
    bool merge = loop.rank > 0;
    for (k = 0; merge && k < operand_count; ++k)
      merge = loop.strides[k][loop.rank - 1] == stride[k] * shape[i];
    if (!merge) loop.dims[loop.rank++] = 1;
    loop.dims[loop.rank - 1] *= shape[i];
    for (k = 0; k < operand_count; ++k) loop.strides[k][loop.rank - 1] = stride[k];
  }
  if (loop.rank == 0) loop.rank = 1, loop.dims[0] = 1;
  for (int k = 0; k < operand_count; ++k) {
    loop.dense[k] = loop.scalar[k] = true;
    int64_t expected = 1;
    for (int i = loop.rank - 1; i >= 0; --i) {
      if (loop.dims[i] != 1) loop.dense[k] &= loop.strides[k][i] == expected;
      loop.scalar[k] &= loop.strides[k][i] == 0;
      expected *= loop.dims[i];
    }
    if (loop.dense[k]) loop.scalar[k] = false;
  }
  return loop;
}

void gather_run(const Loop& loop, int k, const void* base, size_t size, int64_t flat, int64_t n,
                void* to) {
  with_size(static_cast<int64_t>(size), [&]<class T>(T) {
    const T* from = static_cast<const T*>(base);
    if (loop.scalar[k]) {
      fill_run(*from, n, static_cast<T*>(to));
    } else {
      gather_run_of(loop, k, from, flat, n, static_cast<T*>(to));
    }
  });
}

namespace {

// 16 bytes are two elements of 8.
sdk::Type halved(const sdk::Type& type) {
  if (element_bytes(type.dtype) <= 8) return type;
  if (type.rank == sdk::kMaxRank) throw sdk::Refusal::shape("no copy of this rank and dtype");
  sdk::Type halves = type;
  halves.dtype = TENON_DTYPE_U64;
  for (int i = 0; i < type.rank; ++i) halves.strides[i] *= 2;
  halves.dims[type.rank] = 2;
  halves.strides[type.rank] = 1;
  halves.rank = type.rank + 1;
  return halves;
}

}  // namespace

StridedCopy::StridedCopy(const sdk::Type& given) {
  const sdk::Type type = halved(given);
  loop_ = make_loop(type.shape(), {&type});
  size_ = element_bytes(type.dtype);
  bytes_ = static_cast<int64_t>(type.bytes());
  const Dims& strides = loop_.strides[0];
  const int last = loop_.rank - 1;
  if (strides[last] == 0 || strides[last] == 1) return;
  constexpr int64_t kPairs = 16;  // that are worth a call
  if (last > 0 && loop_.dims[last] == 2 && strides[last - 1] == 1 && loop_.dims[last - 1] >= kPairs)
    fast_ = last - 1;
  if (loop_.dims[last] < 4) return;
  for (int i = 0; i < last; ++i)
    if (strides[i] == 1 && loop_.dims[i] >= 4) fast_ = i;
}

void StridedCopy::run(const void* in, void* out) const {
  if (bytes_ == 0) return;
  if (loop_.dense[0]) {
    parallel_for(bytes_, 256 << 10, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(out) + begin, static_cast<const char*>(in) + begin,
                  end - begin);
    });
  } else if (fast_ >= 0) {
    run_transposed(in, out);
  } else {
    parallel_for(loop_.count, tile_grain(2 * size_), [&](int64_t begin, int64_t end) {
      gather_run(loop_, 0, in, size_, begin, end - begin, static_cast<char*>(out) + begin * size_);
    });
  }
}

void StridedCopy::run_transposed(const void* in, void* out) const {
  const Dims& strides = loop_.strides[0];
  const int last = loop_.rank - 1;
  const int64_t rows = loop_.dims[fast_], columns = loop_.dims[last];
  // The other dims with the blocks of rows and columns as the innermost are one flat range of work.
  constexpr int64_t kColumns = 1024;
  constexpr uint64_t kNontemporal = 4 << 20;
  const int64_t block = 512 / size_, row_blocks = (rows + block - 1) / block;
  const int64_t blocks = row_blocks * ((columns + kColumns - 1) / kColumns);
  const bool nontemporal = static_cast<uint64_t>(bytes_) >= kNontemporal;
  Dims out_strides{};
  int64_t step = 1;
  for (int i = last; i >= 0; --i) out_strides[i] = step, step *= loop_.dims[i];
  const int64_t work = loop_.count / rows / columns * blocks;
  const int64_t cost = 2 * size_ * std::min(block, rows) * std::min(kColumns, columns);
  parallel_for(work, grain_for(cost), [&](int64_t begin, int64_t end) {
    for (int64_t w = begin; w < end; ++w) {
      const int64_t row = w % row_blocks * block, column = w % blocks / row_blocks * kColumns;
      int64_t from = row + column * strides[last], to = row * out_strides[fast_] + column;
      int64_t rest = w / blocks;
      for (int i = last - 1; i >= 0; --i) {
        if (i == fast_) continue;
        from += rest % loop_.dims[i] * strides[i];
        to += rest % loop_.dims[i] * out_strides[i];
        rest /= loop_.dims[i];
      }
      transpose(static_cast<const char*>(in) + from * size_, strides[last],
                static_cast<char*>(out) + to * size_, out_strides[fast_],
                std::min(block, rows - row), std::min(kColumns, columns - column), size_,
                nontemporal);
    }
  });
}

}  // namespace tenon::cpu
