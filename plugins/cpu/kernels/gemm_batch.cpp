// SPDX-License-Identifier: Apache-2.0
// Plans and runs several products with the same left operand.
#include "gemm_batch.hpp"

#include <algorithm>
#include <new>

#include "blocks.hpp"

namespace tenon::cpu {

// Layout of scratch: bits of the shared operands, the shared operands, one area per slot.
struct GemmBatch::Run {
  const GemmBatch& batch;
  const void* a;
  const void* const* b;
  void* const* c;
  std::atomic<uint32_t>* bits;  // one per product
  char* shared;                 // a, or each b
  char* slots;
  Sink sink;

  // Calls body with the work of product t. with_a: a is shared; with_b: b is shared.
  template <class Body>
  void with_a(size_t t, Body&& body) const {
    with(t, shared, bits[0], body);
  }
  template <class Body>
  void with_b(size_t t, Body&& body) const {
    char* place = shared;
    for (size_t i = 0; i < t; ++i) place += batch.shared(i);
    with(t, place, bits[t], body);
  }

 private:
  template <class Body>
  void with(size_t t, char* place, std::atomic<uint32_t>& of_shared, Body&& body) const {
    const auto own_sink = [&](const GemmBlock& block) { sink(t, block); };
    body(batch.products_[t], Gemm::Work{a, b[t], c[t], place, own_sink, false, of_shared});
  }
};

GemmBatch::GemmBatch(int64_t m, int64_t k, GemmOperand a, std::span<const Part> parts, bool direct,
                     F32Precision precision) {
  const auto make = [&](int64_t columns) {
    products_.clear();
    for (const Part& p : parts)
      products_.emplace_back(m, p.n, k, a, p.b, direct, widest_arena(), precision, columns,
                             p.row_bits);
  };
  // First try the plan that each product would have alone. If the plans differ, try the plan for
  // all columns together.
  make(0);
  fused_ = have_equal_plans();
  if (!fused_) {
    int64_t columns = 0;
    for (const Part& p : parts) columns += p.n;
    make(columns);
    fused_ = have_equal_plans();
  }
  if (!fused_) {
    make(0);
    return;
  }
  int64_t units = 0;
  for (const Gemm& g : products_) ends_.push_back(units += g.n_ == 0 ? 0 : g.units());
}

// True if all products read a in the same form and split the same side.
bool GemmBatch::have_equal_plans() {
  first_ = 0;
  while (first_ < products_.size() && products_[first_].n_ == 0) ++first_;
  if (first_ == products_.size()) return false;
  const Gemm& first = products_[first_];
  return std::ranges::all_of(products_, [&](const Gemm& g) {
    if (g.n_ == 0) return true;
    const bool has_pieces = g.method_ == Gemm::Method::share_a ||
                            g.method_ == Gemm::Method::share_b ||
                            (g.method_ == Gemm::Method::skinny && !g.swapped_);
    return has_pieces && g.method_ == first.method_ && g.unit_ == first.unit_ &&
           g.steps_ == first.steps_ && g.lanes_ == first.lanes_;
  });
}

// Bytes of the shared data: a for all products, or each b.
uint64_t GemmBatch::shared(size_t t) const {
  const bool each = products_[t].method_ == Gemm::Method::share_b;
  return each || t == first_ ? products_[t].shared_ : 0;
}

// Bytes per slot.
uint64_t GemmBatch::own() const {
  uint64_t largest = 0;
  for (const Gemm& g : products_) largest = std::max(largest, g.pack_ + g.sums_);
  return largest;
}

uint64_t GemmBatch::scratch() const {
  uint64_t sum = 0, largest = 0;
  for (size_t t = 0; t < products_.size(); ++t) {
    sum += shared(t);
    largest = std::max(largest, products_[t].scratch());
  }
  if (!fused_) return largest;
  const auto slots = static_cast<uint64_t>(products_[0].slots_);
  return aligned(products_.size() * sizeof(std::atomic<uint32_t>)) + sum + slots * own();
}

double GemmBatch::flops() const {
  double sum = 0;
  for (const Gemm& g : products_) sum += g.flops();
  return sum;
}

void GemmBatch::run(const void* a, const void* const* b, void* const* c, void* scratch,
                    Sink sink) const {
  if (!fused_) {
    for (size_t t = 0; t < products_.size(); ++t)
      products_[t].run(
          a, b[t], c[t], scratch, [&](const GemmBlock& block) { sink(t, block); }, false);
    return;
  }
  auto* const bits = static_cast<std::atomic<uint32_t>*>(scratch);
  for (size_t t = 0; t < products_.size(); ++t) new (bits + t) std::atomic<uint32_t>{0};
  Run run{*this, a, b, c, bits, static_cast<char*>(scratch), nullptr, sink};
  run.shared += aligned(products_.size() * sizeof *bits);
  run.slots = run.shared;
  for (size_t t = 0; t < products_.size(); ++t) run.slots += shared(t);
  products_[first_].method_ == Gemm::Method::share_b ? run_over_rows(run) : run_over_columns(run);
}

// Pieces are columns of all products, one product after another.
void GemmBatch::run_over_columns(const Run& run) const {
  const Gemm& like = products_[first_];
  const bool skinny = like.method_ == Gemm::Method::skinny;
  run.with_a(first_, [&](const Gemm& g, const Gemm::Work& work) {
    skinny ? g.pack_few(work) : g.pack_whole(work, AmxSide::a, work.scratch);
  });
  const uint64_t bytes = own();
  const auto piece = [&](int slot, int64_t begin, int64_t end) {
    char* const place = run.slots + static_cast<uint64_t>(slot) * bytes;
    for (size_t t = 0; t < products_.size(); ++t) {
      const int64_t before = t == 0 ? 0 : ends_[t - 1];
      const int64_t from = std::max(begin, before) - before, to = std::min(end, ends_[t]) - before;
      if (from >= to) continue;
      run.with_a(t, [&](const Gemm& g, const Gemm::Work& work) {
        skinny ? g.skinny_piece(work, from, to, place) : g.share_a_piece(work, from, to, place);
      });
    }
  };
  // Reading many rows of b is bound by memory: smaller pieces balance the threads.
  const int64_t grain = like.grain(0);
  const bool finer = skinny && ends_.back() > grain;
  parallel_for_slots(ends_.back(), finer ? std::max<int64_t>(1, grain / 4) : grain, like.slots_,
                     piece);
}

// Pieces are rows of a. Each is packed once and multiplied by every b.
void GemmBatch::run_over_rows(const Run& run) const {
  int64_t columns = 0;
  for (size_t t = 0; t < products_.size(); ++t) {
    columns += products_[t].n_;
    if (products_[t].n_ == 0 || products_[t].b_packed_) continue;
    run.with_b(t, [&](const Gemm& g, const Gemm::Work& work) {
      g.pack_whole(work, AmxSide::b, work.scratch);
    });
  }
  const Gemm& like = products_[first_];
  const uint64_t bytes = own();
  const auto rows_at = [&](int64_t i, int64_t rows, char* packed) {
    uint32_t bits[Gemm::kBlockPanels] = {};
    run.with_b(first_, [&](const Gemm& g, const Gemm::Work& work) {
      g.pack_rows(work, i, rows, packed, bits);
    });
    for (size_t t = 0; t < products_.size(); ++t) {
      if (products_[t].n_ == 0) continue;
      run.with_b(t, [&](const Gemm& g, const Gemm::Work& work) {
        g.share_b_rows(work, i, rows, packed, bits);
      });
    }
  };
  const auto piece = [&](int slot, int64_t begin, int64_t end) {
    const int64_t last = std::min(like.m_, end * like.row_panel_);
    for (int64_t i = begin * like.row_panel_; i < last; i += like.block_rows_)
      rows_at(i, std::min(like.block_rows_, last - i),
              run.slots + static_cast<uint64_t>(slot) * bytes);
  };
  parallel_for_slots(like.units(), like.grain(columns), like.slots_, piece);
}

}  // namespace tenon::cpu
