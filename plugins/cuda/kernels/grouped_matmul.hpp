// SPDX-License-Identifier: Apache-2.0
// Rows sorted by expert on the device, and products of rows with the matrices of their experts:
// what grouped_matmul and its gradients share.
#pragma once

#include <vector>

#include "../device.hpp"
#include "args.hpp"
#include "entries.hpp"

namespace tenon::cuda {

// Areas of scratch, one after the other.
class Scratch {
 public:
  // Offset of a new area.
  uint64_t take(int64_t count, int64_t bytes) {
    const uint64_t at = size_;
    size_ += (static_cast<uint64_t>(count * bytes) + 255) / 256 * 256;
    return at;
  }
  uint64_t size() const { return size_; }

 private:
  uint64_t size_ = 0;
};
template <class T = void>
T* area(const sdk::Call& c, uint64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(c.scratch) + offset);
}

// The operands that both ops have; the constructor refuses what does not fit.
struct GroupedProblem {
  GroupedProblem(const sdk::Value& x, const sdk::Value& w, const sdk::Value& ids,
                 const sdk::Value& offsets, const sdk::Value& p, bool trans_w);
  int64_t rows = 0, experts = 0;
  int64_t in = 0, out = 0;  // lengths of a row of x and of y
  bool trans_w = false;
  tenon_dtype dtype{}, sum{}, p_dtype = TENON_DTYPE_NONE;
  int x = -1, w = -1, list = -1, p = -1;  // operands; list: ids or offsets
  uint64_t x_alignment = 0, w_alignment = 0;
  bool by_ids = false;
  int32_t wide_list = 0;  // of i64

  int64_t matrix() const { return in * out; }
  bool tensor_cores(const CudaDevice& device) const {
    return is_half(dtype) && device.properties().major >= 8;
  }
  std::vector<std::string> defines() const;  // of dtypes
  const void* factors(const sdk::Call& c) const { return c.in(p); }
  double seconds(int products) const;  // estimated
};

// device/row_groups.cu: enqueues the sorting, then the addresses may be used.
class RowGroups {
 public:
  // tile: the most rows of one tile.
  RowGroups(CudaDevice& device, const GroupedProblem& problem, int64_t tile, Scratch& scratch);
  std::vector<Code> codes() const { return {codes_.begin(), codes_.end()}; }
  void run(const sdk::Call& c) const;
  // order is null where rows lie as they are.
  const int32_t* order(const sdk::Call& c) const {
    return by_ids_ ? area<int32_t>(c, order_) : nullptr;
  }
  const int32_t* starts(const sdk::Call& c) const { return area<int32_t>(c, starts_); }
  const args::RowTile* tiles(const sdk::Call& c) const { return area<args::RowTile>(c, tiles_); }
  int64_t most_tiles() const { return most_tiles_; }

 private:
  int64_t rows_, experts_, tile_, most_tiles_, parts_ = 1, part_rows_ = 0;
  int list_;
  int32_t wide_;
  bool by_ids_;
  uint64_t counts_ = 0, starts_, tile_starts_, order_ = 0, tiles_;  // in scratch
  std::vector<TypedCode<args::RowGroups>> codes_;
};

// device/grouped_matmul.cu: y[i] = p[i]·a[i]·w[e], and terms of (a[i]·w[e])·x[i].
class RowsProduct {
 public:
  struct Form {
    int64_t n, k;  // columns of y, terms
    bool trans;    // w is [expert, column, term]
    bool store, dot;
    uint64_t a_alignment;
  };
  struct Pointers {
    const void *a, *w, *p, *x;
    void *y, *dots;
  };
  // A good size of a tile.
  static int64_t tile_for(const CudaDevice& device, const GroupedProblem& problem, int64_t n);
  RowsProduct(CudaDevice& device, const GroupedProblem& problem, const Form& form, int64_t tile,
              int64_t most_tiles);
  const Code& code() const { return code_; }
  void run(const sdk::Call& c, const RowGroups& groups, const Pointers& p) const;
  int64_t dots() const { return tiles_n_ * dots_per_tile_; }  // terms of a row

 private:
  int64_t n_, k_, experts_, tiles_m_, tiles_n_, dots_per_tile_;
  uint32_t shared_ = 0;
  CodeFor<entries::grouped_product> code_;
};

// y[i] = p[i]·x[i]·w[e], or with w[e]ᵀ, of operands that lie as `problem` says.
sdk::Kernel make_grouped_product(CudaDevice& device, const GroupedProblem& problem);

sdk::Kernel make_grouped_matmul_backward(const sdk::op::grouped_matmul_backward& n,
                                         const sdk::Node& node);

}  // namespace tenon::cuda
