// SPDX-License-Identifier: Apache-2.0
// elementwise_region and batch_elementwise_region: runs a body over the shapes of a node. Each
// thread computes whole tiles in its own scratch area. A final reduction combines the partial
// results of a row in a fixed order.
#include "fused.hpp"

#include <algorithm>
#include <bitset>
#include <new>
#include <string>

#include "../kernels.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Refusal;
using sdk::Type;

// Elements per block; a block runs through all steps before the next one starts. Large enough to
// amortize the calls, small enough that the tiles take part of the first-level cache only.
int64_t block_of(int64_t tiles) {
  constexpr int64_t kLeast = 256, kFirstLevel = 32 << 10;
  const int64_t fits =
      kFirstLevel / static_cast<int64_t>(sizeof(float)) / std::max<int64_t>(tiles, 1);
  return std::clamp(fits / kLeast * kLeast, kLeast, kTile);
}

uint64_t padded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

// Prefetches [from, from + bytes) into the first-level cache while the steps compute on the current
// block. block_of() leaves room for it.
void prefetch(const char* from, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i, 0, 3);
}

// The final reduction: it folds the last axes, `length` elements per result.
struct Rows {
  int64_t count = 0, length = 0;
  int64_t piece = 0;   // elements of a row that are folded at once
  int64_t pieces = 0;  // per row; more than 1 if there are few rows

  // Work items: rows, or pieces of rows.
  int64_t items() const { return count * pieces; }
};

// The body, applied to one set of operands.
class FusedLoop {
 public:
  // `first` and `first_out` are the positions of the set's operands and outputs in the node.
  FusedLoop(std::shared_ptr<const FusedBody> body, const sdk::Node& node, size_t first,
            size_t first_out);

  uint64_t scratch() const {
    return static_cast<uint64_t>(slots_) * area_bytes_ +
           (rows_ && rows_->pieces > 1 ? static_cast<uint64_t>(rows_->items()) * sizeof(Partial)
                                       : 0);
  }
  const std::vector<sdk::InPlace>& in_place() const { return in_place_; }
  void run(const Call& c) const;

 private:
  struct Output {
    int position;
    tenon_dtype dtype;
    int64_t size;
  };
  // The state of one thread: a scratch area, and the current tile of each register.
  class Worker;

  void find_outputs(const sdk::Node& node, size_t first_out);
  void find_rows(const std::vector<int64_t>& shape);
  void find_in_place(const sdk::Node& node, size_t first, size_t first_out);
  // Whether output k may use non-temporal stores, and whether it does in this run.
  bool may_bypass_cache(size_t k) const;
  bool bypasses_cache(const Call& c, size_t k) const;
  void run_rows(const Call& c) const;
  void fold_rows(Worker& worker, const Call& c, int64_t begin, int64_t end) const;
  char* area(const Call& c, int slot) const {
    return static_cast<char*>(c.scratch) + static_cast<uint64_t>(slot) * area_bytes_;
  }

  std::shared_ptr<const FusedBody> body_;
  Loop loop_;
  std::vector<int> inputs_;  // positions
  std::vector<tenon_dtype> input_dtypes_;
  std::array<int64_t, Loop::kMaxOperands> input_sizes_{};  // of an element in a tile
  // large operands, which are not in the second-level cache
  std::bitset<Loop::kMaxOperands> uncached_;
  std::vector<Output> outputs_;
  std::optional<Rows> rows_;
  std::vector<sdk::InPlace> in_place_;
  int slots_ = 1;
  int64_t bytes_ = 0;  // moved per element
  int64_t block_ = 0;  // elements
  uint64_t area_bytes_ = 0;
};

class FusedLoop::Worker {
 public:
  Worker(const FusedLoop& loop, const Call& c, int slot) : f_(loop), c_(c) {
    char* at = f_.area(c, slot);
    readers_ = reinterpret_cast<TileReader*>(at);
    for (size_t k = 0; k < f_.inputs_.size(); ++k)
      new (readers_ + k)
          TileReader(f_.loop_, static_cast<int>(k), c.inputs[f_.inputs_[k]], f_.input_dtypes_[k]);
    at += padded(f_.inputs_.size() * sizeof(TileReader));
    const auto registers = f_.body_->registers();
    for (size_t i = 0; i < registers.size(); ++i) {
      using Kind = FusedBody::Register::Kind;
      if (registers[i].kind == Kind::slot)
        tiles_[i] = at + registers[i].index * f_.body_->slot_bytes();
      else if (registers[i].kind == Kind::constant)  // only read
        tiles_[i] = const_cast<void*>(f_.body_->constant(registers[i].index));
    }
    staging_ = at + f_.body_->slot_count() * f_.body_->slot_bytes();
    for (size_t k = 0; k < f_.outputs_.size(); ++k) nontemporal_[k] = f_.bypasses_cache(c, k);
  }
  ~Worker() {
    if (nontemporal_.any()) nontemporal_fence();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Computes elements [flat, flat + n) and their outputs. The operand of a fold remains in its
  // tile.
  void run(int64_t flat, int64_t n) {
    std::array<const char*, Loop::kMaxOperands> inputs;
    for (size_t k = 0; k < f_.inputs_.size(); ++k)
      inputs[k] = static_cast<const char*>(readers_[k].work(flat, n));
    const int64_t block = f_.rows_ ? n : f_.block_;
    for (int64_t at = 0; at < n; at += block) {
      for (size_t k = 0; k < f_.inputs_.size(); ++k)
        tiles_[k] = const_cast<char*>(inputs[k]) + at * f_.input_sizes_[k];
      run_block(flat + at, std::min(block, n - at));
    }
  }

  // Folds n elements of the current tile, from element `at` on.
  Partial fold(int64_t at, int64_t n) const {
    const FusedBody::Fold& f = *f_.body_->fold();
    const tenon_dtype dtype = f_.body_->registers()[static_cast<size_t>(f.operand)].dtype;
    const bool wide = dtype == TENON_DTYPE_F64;
    return reduce_run(
        f.how.kind, wide ? dtype : tenon_dtype{TENON_DTYPE_F32},
        static_cast<char*>(tiles_[static_cast<size_t>(f.operand)]) + at * (wide ? 8 : 4), n);
  }

 private:
  char* place(size_t k, int64_t flat) const {
    return static_cast<char*>(c_.outputs[f_.outputs_[k].position]) + flat * f_.outputs_[k].size;
  }
  char* staging_tile(size_t k) const {
    return staging_ + static_cast<int64_t>(k) * f_.body_->slot_bytes();
  }
  void run_block(int64_t flat, int64_t n) {
    const FusedBody& body = *f_.body_;
    for (size_t k = 0; k < f_.outputs_.size(); ++k) {
      const int reg = body.outputs()[k];
      if (reg >= 0 && !is_half(f_.outputs_[k].dtype))
        tiles_[static_cast<size_t>(reg)] = nontemporal_[k] ? staging_tile(k) : place(k, flat);
    }
    const auto count = static_cast<int64_t>(body.steps().size());
    for (int64_t i = 0; i < count; ++i) {
      prefetch_next(flat + kTile, n * i / count, n * (i + 1) / count);
      FusedBody::run(body.steps()[static_cast<size_t>(i)], tiles_.data(), n);
    }
    for (size_t k = 0; k < f_.outputs_.size(); ++k) {
      const Output& o = f_.outputs_[k];
      const int reg = body.outputs()[k];
      if (reg < 0) continue;
      if (is_half(o.dtype))
        narrow(o.dtype, static_cast<const float*>(tiles_[static_cast<size_t>(reg)]), place(k, flat),
               n);
      else if (nontemporal_[k])
        nontemporal_copy(staging_tile(k), place(k, flat), n * o.size);
    }
  }
  // Prefetches elements [flat + begin, flat + end) of the large operands.
  void prefetch_next(int64_t flat, int64_t begin, int64_t end) const {
    end = std::min(end, f_.loop_.count - flat);
    if (begin >= end) return;
    for (size_t k = 0; k < f_.inputs_.size(); ++k) {
      if (!f_.uncached_[k]) continue;
      const int64_t size = element_bytes(f_.input_dtypes_[k]);
      prefetch(static_cast<const char*>(c_.inputs[f_.inputs_[k]]) + (flat + begin) * size,
               (end - begin) * size);
    }
  }

  const FusedLoop& f_;
  const Call& c_;
  TileReader* readers_;
  char* staging_;  // one tile per output
  std::bitset<FusedBody::kMaxRegisters> nontemporal_;
  std::array<void*, FusedBody::kMaxRegisters> tiles_{};
};

// Broadcasts the shapes of all operands, as NumPy does. The rank is at least `rank`.
std::vector<int64_t> common_shape(const sdk::Node& node, size_t first, size_t count, int rank) {
  for (size_t k = 0; k < count; ++k) rank = std::max(rank, node.in(first + k).type().rank);
  std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
  for (size_t k = 0; k < count; ++k) {
    const Type& t = node.in(first + k).type();
    for (int i = 0; i < t.rank; ++i)
      if (int64_t& d = shape[static_cast<size_t>(i + rank - t.rank)]; d == 1) d = t.dims[i];
  }
  return shape;
}

FusedLoop::FusedLoop(std::shared_ptr<const FusedBody> body, const sdk::Node& node, size_t first,
                     size_t first_out)
    : body_(std::move(body)) {
  const auto count = static_cast<size_t>(body_->input_count());
  std::vector<const Type*> types;
  for (size_t k = 0; k < count; ++k) {
    const Type& t = node.in(first + k).type();
    types.push_back(&t);
    inputs_.push_back(static_cast<int>(first + k));
    input_dtypes_.push_back(t.dtype);
    input_sizes_[k] = is_half(t.dtype) ? 4 : element_bytes(t.dtype);
    bytes_ += element_bytes(t.dtype);
  }
  const std::vector<int64_t> shape = common_shape(node, first, count, body_->least_rank());
  loop_ = make_loop(shape, types);
  find_outputs(node, first_out);
  if (body_->fold()) find_rows(shape);
  find_in_place(node, first, first_out);
  slots_ = widest_arena();
  constexpr int64_t kUncached = 1 << 20;
  for (size_t k = 0; k < count; ++k)
    uncached_[k] = loop_.dense[k] && loop_.count * element_bytes(input_dtypes_[k]) >= kUncached;
  int64_t tiles = body_->slot_count();
  for (size_t k = 0; k < outputs_.size(); ++k)
    if (may_bypass_cache(k)) tiles = body_->slot_count() + static_cast<int64_t>(k) + 1;
  block_ = block_of(static_cast<int64_t>(count) + tiles);
  area_bytes_ =
      padded(count * sizeof(TileReader)) + static_cast<uint64_t>(tiles * body_->slot_bytes());
}

bool FusedLoop::may_bypass_cache(size_t k) const {
  const Output& o = outputs_[k];
  return body_->outputs()[k] >= 0 && !is_half(o.dtype) && beyond_cache(loop_.count * bytes_);
}
bool FusedLoop::bypasses_cache(const Call& c, size_t k) const {
  if (!may_bypass_cache(k)) return false;
  return std::ranges::none_of(
      inputs_, [&](int from) { return c.inputs[from] == c.outputs[outputs_[k].position]; });
}

void FusedLoop::find_outputs(const sdk::Node& node, size_t first_out) {
  for (size_t k = 0; k < body_->outputs().size(); ++k) {
    const Type& t = node.out(first_out + k).type();
    const int reg = body_->outputs()[k];
    outputs_.push_back(
        {static_cast<int>(first_out + k), t.dtype, int64_t{tenon_dtype_bits(t.dtype)} / 8});
    if (reg >= 0) bytes_ += outputs_.back().size;
  }
}

void FusedLoop::find_rows(const std::vector<int64_t>& shape) {
  const FusedBody::Fold& f = *body_->fold();
  const auto rank = static_cast<int64_t>(shape.size());
  std::vector<bool> folded(shape.size(), f.all);
  for (int64_t axis : f.axes) folded[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
  Rows rows{.count = 1, .length = 1};
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (!folded[i] && rows.length != 1)
      throw Refusal::shape("the reduced axes of the body are not the last ones");
    (folded[i] ? rows.length : rows.count) *= shape[i];
  }
  // Few rows are split into pieces of a fixed size, independent of the number of threads.
  constexpr int64_t kFewRows = 64, kPiece = 32 * kTile;
  rows.piece = rows.count < kFewRows ? std::min(kPiece, rows.length) : rows.length;
  rows.piece = std::max<int64_t>(rows.piece, 1);
  rows.pieces = std::max<int64_t>((rows.length + rows.piece - 1) / rows.piece, 1);
  rows_ = rows;
}

// An output may overwrite an operand only if no later step reads that operand.
void FusedLoop::find_in_place(const sdk::Node& node, size_t first, size_t first_out) {
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const int reg = body_->outputs()[k];
    if (reg < 0) continue;
    const auto& made = body_->registers()[static_cast<size_t>(reg)];
    for (size_t j = 0; j < inputs_.size(); ++j) {
      if (!replaceable(node.in(first + j).type(), node.out(first_out + k).type())) continue;
      if (is_half(made.dtype) || body_->registers()[j].last <= made.made)
        in_place_.push_back({inputs_[j], outputs_[k].position});
    }
  }
}

void FusedLoop::run(const Call& c) const {
  if (rows_) return run_rows(c);
  parallel_for_slots(
      loop_.count, tile_grain(bytes_), slots_, [&](int slot, int64_t begin, int64_t end) {
        Worker worker(*this, c, slot);
        for_tiles(loop_, begin, end, [&](int64_t flat, int64_t n) { worker.run(flat, n); });
      });
}

void FusedLoop::run_rows(const Call& c) const {
  const FusedBody::Fold& f = *body_->fold();
  const Output& out = outputs_[static_cast<size_t>(f.output)];
  parallel_for_slots(rows_->items(), grain_for(bytes_ * rows_->piece), slots_,
                     [&](int slot, int64_t begin, int64_t end) {
                       Worker worker(*this, c, slot);
                       fold_rows(worker, c, begin, end);
                     });
  if (rows_->pieces == 1) return;
  const auto* partials = reinterpret_cast<const Partial*>(area(c, slots_));
  for (int64_t r = 0; r < rows_->count; ++r) {
    Partial all = partials[r * rows_->pieces];
    for (int64_t p = 1; p < rows_->pieces; ++p)
      all = f.how.join(all, partials[r * rows_->pieces + p]);
    store_reduced(out.dtype, f.how.finish(all, rows_->length), c.outputs[out.position], r);
  }
}

void FusedLoop::fold_rows(Worker& worker, const Call& c, int64_t begin, int64_t end) const {
  const FusedBody::Fold& f = *body_->fold();
  const Output& out = outputs_[static_cast<size_t>(f.output)];
  const int64_t length = rows_->length;
  const auto store = [&](int64_t row, Partial p) {
    store_reduced(out.dtype, f.how.finish(p, length), c.outputs[out.position], row);
  };
  if (rows_->pieces == 1 && length <= kTile / 2 && length > 0) {  // several rows per tile
    const int64_t block = kTile / length;
    for (int64_t row = begin; row < end; row += block) {
      const int64_t rows = std::min(block, end - row);
      worker.run(row * length, rows * length);
      for (int64_t i = 0; i < rows; ++i) store(row + i, worker.fold(i * length, length));
    }
    return;
  }
  auto* partials = reinterpret_cast<Partial*>(area(c, slots_));
  for (int64_t item = begin; item < end; ++item) {
    const int64_t row = item / rows_->pieces, from = item % rows_->pieces * rows_->piece;
    const int64_t first = row * length + from;
    std::optional<Partial> all;
    for_tiles(loop_, first, first + std::min(rows_->piece, length - from),
              [&](int64_t flat, int64_t n) {
                worker.run(flat, n);
                const Partial p = worker.fold(0, n);
                all = all ? f.how.join(*all, p) : p;
              });
    if (!all) all = reduce_run(f.how.kind, TENON_DTYPE_F32, nullptr, 0);
    if (rows_->pieces > 1)
      partials[item] = *all;
    else
      store(row, *all);
  }
}

Kernel make_fused(const sdk::Function& function, size_t sets, const sdk::Node& node) {
  const auto body = std::make_shared<const FusedBody>(sdk::Body(function));
  const auto inputs = static_cast<size_t>(body->input_count()), outputs = body->outputs().size();
  std::vector<std::shared_ptr<const FusedLoop>> loops;
  Kernel kernel;
  for (size_t s = 0; s < sets; ++s) {
    loops.push_back(std::make_shared<const FusedLoop>(body, node, s * inputs, s * outputs));
    kernel.scratch = std::max(kernel.scratch, loops.back()->scratch());
    const auto& in_place = loops.back()->in_place();
    kernel.in_place.insert(kernel.in_place.end(), in_place.begin(), in_place.end());
  }
  kernel.run = [loops = std::move(loops)](const Call& c) {
    for (const auto& loop : loops) loop->run(c);
  };
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::elementwise_region, make_elementwise_region>(sdk::kStrided),
    sdk::row<sdk::op::batch_elementwise_region, make_batch_elementwise_region>(sdk::kStrided),
};

}  // namespace

Kernel make_elementwise_region(const sdk::op::elementwise_region& n, const sdk::Node& node) {
  return make_fused(n.body, 1, node);
}
Kernel make_batch_elementwise_region(const sdk::op::batch_elementwise_region& n,
                                     const sdk::Node& node) {
  return make_fused(n.body, static_cast<size_t>(n.sets), node);
}

std::span<const sdk::Row> fused_rows() { return kRows; }

}  // namespace tenon::cpu
