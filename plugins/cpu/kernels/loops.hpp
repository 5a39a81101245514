// SPDX-License-Identifier: Apache-2.0
// Loops over strided and broadcast operands beside a dense result. Dims are collapsed once, in
// make. A run visits the result in flat order, tile by tile; each operand provides a tile as
// contiguous elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <type_traits>

#include "../parallel.hpp"
#include "convert.hpp"
#include "nontemporal.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

// Elements per tile. Tiles of operands, results and intermediate values fit the first-level cache.
inline constexpr int64_t kTile = 1024;

using sdk::with_size;

// The loop over a dense result and up to kMaxOperands operands that broadcast to it.
struct Loop {
  static constexpr int kMaxOperands = 16;  // inputs of a fused body (ops.def)

  int rank = 1;       // after collapsing, >= 1
  int64_t count = 0;  // elements of the result
  sdk::Dims dims{};
  std::array<sdk::Dims, kMaxOperands> strides{};  // in elements, 0 on broadcast dims
  std::array<bool, kMaxOperands> dense{};         // the operand has the layout of the result
  std::array<bool, kMaxOperands> scalar{};        // the operand is one element

  int64_t inner() const { return dims[rank - 1]; }
  int64_t offset(int k, int64_t flat) const;  // operand k's offset for the result's element `flat`
};

// Operands broadcast to `shape`, aligned to its last dim as in NumPy.
Loop make_loop(std::span<const int64_t> shape, std::span<const sdk::Type* const> operands);
inline Loop make_loop(std::span<const int64_t> shape,
                      std::initializer_list<const sdk::Type*> operands) {
  return make_loop(shape, std::span(operands.begin(), operands.size()));
}

// True if the operand is dense and has the result's shape, so that the result may overwrite it.
inline bool replaceable(const sdk::Type& operand, const sdk::Type& result) {
  return operand.dtype == result.dtype && operand.same_shape(result) && operand.dense();
}

// Copies elements [flat, flat + n) of operand k, of `size` bytes each, to contiguous memory.
void gather_run(const Loop& loop, int k, const void* base, size_t size, int64_t flat, int64_t n,
                void* to);

// Calls body(flat, n) for tiles of at most kTile elements over [begin, end). If the inner dim is
// long, no tile crosses its end, so that operands broadcast over the outer dims are read in place.
template <class Body>
void for_tiles(const Loop& loop, int64_t begin, int64_t end, Body&& body) {
  const int64_t inner = loop.inner();
  if (loop.rank == 1 || inner < kTile / 4) {
    for (int64_t i = begin; i < end; i += kTile) body(i, std::min(kTile, end - i));
    return;
  }
  const int64_t tile = (inner - 1) / ((inner + kTile - 1) / kTile) + 1;
  for (int64_t i = begin; i < end;) {
    const int64_t at = i % inner;
    const int64_t n = std::min({tile - at % tile, inner - at, end - i});
    body(i, n);
    i += n;
  }
}

// The grain of parallel_for over a loop: whole tiles; each element moves `bytes` bytes.
inline int64_t tile_grain(int64_t bytes) { return (grain_for(bytes) + kTile - 1) / kTile * kTile; }

// Provides the tiles of one operand. Lives on the stack of one piece of work.
class TileReader {
 public:
  TileReader(const Loop& loop, int k, const void* base, tenon_dtype dtype)
      : loop_(loop),
        k_(k),
        base_(static_cast<const char*>(base)),
        dtype_(dtype),
        size_(element_bytes(dtype)) {}

  // Elements [flat, flat + n), n <= kTile, in their own dtype.
  const void* raw(int64_t flat, int64_t n) {
    if (loop_.dense[k_]) return base_ + flat * size_;
    if (loop_.scalar[k_]) {
      if (filled_ < n) gather_run(loop_, k_, base_, size_, flat, kTile, raw_), filled_ = kTile;
      return raw_;
    }
    const int64_t stride = loop_.strides[k_][loop_.rank - 1];
    const bool in_row = (stride == 0 || stride == 1) && flat % loop_.inner() + n <= loop_.inner();
    if (in_row && stride == 1) return base_ + loop_.offset(k_, flat) * size_;
    if (in_row) {
      // One element for the whole row, of which the tiles before had the start.
      const int64_t element = loop_.offset(k_, flat);
      if (element != element_ || filled_ < n) {
        gather_run(loop_, k_, base_, size_, flat, n, raw_);
        element_ = element, filled_ = n;
      }
      return raw_;
    }
    element_ = -1;
    gather_run(loop_, k_, base_, size_, flat, n, raw_);
    return raw_;
  }
  // The same as T: float for f32, f16 and bf16, else the dtype's own type.
  template <class T>
  const T* as(int64_t flat, int64_t n) {
    if constexpr (std::is_same_v<T, float>) {
      if (dtype_ != TENON_DTYPE_F32) {
        if (loop_.scalar[k_] && filled_ == kTile) return wide_;
        widen(dtype_, raw(flat, n), wide_, loop_.scalar[k_] ? kTile : n);
        return wide_;
      }
    }
    return static_cast<const T*>(raw(flat, n));
  }
  // The same in the form that a TileOp takes.
  const void* work(int64_t flat, int64_t n) {
    return is_half(dtype_) ? as<float>(flat, n) : raw(flat, n);
  }

 private:
  const Loop& loop_;
  int k_;
  const char* base_;
  tenon_dtype dtype_;
  int64_t size_;
  int64_t filled_ = 0;    // elements of raw_ that hold one and the same element of the operand
  int64_t element_ = -1;  // which one, if the operand has several
  alignas(64) char raw_[kTile * 8];
  alignas(64) float wide_[kTile];
};

// Writes the tiles of a dense result: directly if T is the result's own type, rounded from float
// for f16 and bf16. `nontemporal` selects non-temporal stores.
class TileWriter {
 public:
  TileWriter(void* base, tenon_dtype dtype, bool nontemporal = false)
      : base_(static_cast<char*>(base)),
        dtype_(dtype),
        size_(element_bytes(dtype)),
        nontemporal_(nontemporal && !is_half(dtype)) {}
  ~TileWriter() {
    if (nontemporal_) nontemporal_fence();
  }
  TileWriter(const TileWriter&) = delete;
  TileWriter& operator=(const TileWriter&) = delete;

  template <class T>
  T* at(int64_t flat) {
    if constexpr (std::is_same_v<T, float>)
      if (dtype_ != TENON_DTYPE_F32) return reinterpret_cast<float*>(tile_);
    return reinterpret_cast<T*>(nontemporal_ ? tile_ : base_ + flat * size_);
  }
  // The tile in the form that a TileOp writes.
  void* work(int64_t flat) {
    return is_half(dtype_) || nontemporal_ ? tile_ : base_ + flat * size_;
  }
  // Call it when the tile from at() or work() is complete.
  void commit(int64_t flat, int64_t n) {
    if (nontemporal_) return nontemporal_copy(tile_, base_ + flat * size_, n * size_);
    if (is_half(dtype_)) narrow(dtype_, reinterpret_cast<float*>(tile_), base_ + flat * size_, n);
  }

 private:
  char* base_;
  tenon_dtype dtype_;
  int64_t size_;
  bool nontemporal_;
  alignas(64) char tile_[kTile * 8];
};

// Makes a strided view dense: copies runs, transposes in blocks. Elements have 1, 2, 4, 8 or 16 bytes.
// 4-bit elements must be dense.
class StridedCopy {
 public:
  explicit StridedCopy(const sdk::Type& given);
  // `in` is the address of the view's first element.
  void run(const void* in, void* out) const;

 private:
  void run_transposed(const void* in, void* out) const;

  Loop loop_;
  int64_t size_ = 0;   // bytes of an element
  int64_t bytes_ = 0;  // of the result
  int fast_ = -1;      // the contiguous dim of the view, unless it is the last one
};

}  // namespace tenon::cpu
