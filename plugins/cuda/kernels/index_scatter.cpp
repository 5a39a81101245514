// SPDX-License-Identifier: Apache-2.0
// scatter, scatter_add, gather_backward, scatter_elements_add and the ops of scatter_reduce: the
// updates are sorted by their rows on the device, so that each row takes its own in order.
#include <algorithm>
#include <bit>
#include <limits>

#include "index.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

constexpr uint32_t kThreads = 256;
constexpr int64_t kDigits = 256, kDigitBits = 8;
constexpr int64_t kLong = 128, kLanes = 32, kLongLanes = 16;  // see scatter.cuh, scatter.cu
// Groups of rows, see scatter_sort.cu.
constexpr int64_t kGroups = kDigits - 1, kGroupRows = 1152;
constexpr uint32_t kGroupThreads = 512;
// Of a warp, see scatter.cu: positions without and with a base, rows.
constexpr int64_t kPositions = 8, kPositionsOnBase = 4, kRest = 8;
// Entries that a thread sorts. Few parts sum each other's counts: no launch in between.
constexpr int64_t kFewKeys = 4, kManyKeys = 16, kFewParts = 64;
constexpr int64_t kColumnBytes = 32;  // of a thread's sums
// So few updates are compared with each other: as when a step appends to the cache of a model.
constexpr int64_t kComparedUpdates = 512;

using Shape = args::Scatter;
using args::LongSegments;

// Positions of the operands; base -1 = zeros.
struct Places {
  int indices, updates, base;
};

uint64_t padded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// As bits of the size of an element.
std::string raw_name(std::string_view operand, tenon_dtype t) {
  type_name(operand, t);  // refuses
  return "u" + std::to_string(8 * element_bytes(t));
}

class Scatter {
 public:
  Scatter(const Shape& s, const Places& places, uint64_t y_bytes)
      : s_(s), at_(places), y_bytes_(y_bytes) {
    s_.position_bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(s.count, 1)));
    row_bits_ = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(s.rows, 1)));
    if (s_.position_bits + row_bits_ > 64)
      throw Refusal::shape("more indices and rows than 64 bits can pair");
    if (s.count >= kNarrowIndex) throw Refusal::shape("more than 2^31 indices");
    few_ = blocks_for(s.count, kFewKeys * kThreads) <= kFewParts;
    keys_ = few_ ? kFewKeys : kManyKeys;
    passes_ = blocks_for(row_bits_, kDigitBits);
    by_groups_ = few_ && s.rows < kGroups * kGroupRows;
    groups_ = static_cast<uint32_t>(std::min(s.rows + 1, kGroups));
  }
  // fold: how an update joins what its row has (scatter.cu). Empty: the last update replaces it, and
  // T is of the size of an element.
  Kernel make(CudaDevice& device, tenon_dtype dtype, int width, const std::string& oob,
              const std::string& fold, int rank) {
    const bool sum = !fold.empty();
    const int64_t bytes = element_bytes(dtype);
    const bool raw = !sum || dtype == TENON_DTYPE_BOOL;  // bools compare as bytes
    const std::string type = raw ? raw_name("base", dtype) : type_name("updates", dtype);
    const int64_t vectors = s_.inner / std::max(width, 1);
    lanes_ = std::clamp<int64_t>(
        std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(vectors, 1))), 1, kLanes);
    width_ = width;
    // As many vectors of each row at once as registers hold, in rounds of one size.
    const int64_t each = blocks_for(std::max<int64_t>(vectors, 1), lanes_);
    const int64_t most =
        std::max<int64_t>(kColumnBytes / (std::max<int64_t>(bytes, 4) * std::max(width, 1)), 1);
    columns_ = blocks_for(each, blocks_for(each, most));
    by_positions_ = sum && by_groups_ && lanes_ == kLanes;
    std::vector<Code> codes;
    const auto put = [&](const auto& entry, int fresh) {
      std::vector<std::string> defines = {"T=" + type,
                                          define("W", width),
                                          define("LANES", lanes_),
                                          define("COLUMNS", columns_),
                                          define("BASE", at_.base >= 0),
                                          sum ? "OOB=0" : oob_define(oob),
                                          define("SUM", sum),
                                          define("FRESH", fresh)};
      if (sum) defines.push_back("FOLD=" + fold);
      const auto code = device.code(entry, defines);
      codes.push_back(code);
      return code;
    };
    if (by_positions_) {
      sum_positions_ = put(entries::sum_by_positions, 1);
    } else {
      for (const int fresh : {1, 0}) {
        if (!fresh && at_.base < 0) continue;
        if (sum)
          sum_segments_[fresh] = put(entries::sum_segments, fresh);
        else
          put_winners_[fresh] = put(entries::put_winners, fresh);
      }
    }
    if (sum) {
      const auto sort = [&](const auto& entry) {
        const auto code = device.code(
            entry, {define("KEYS", keys_), oob_define(oob), define("RANK", std::max(rank, 1)),
                    define("ELEMENTS", rank > 0), define("NARROW", s_.count < kNarrowIndex)});
        codes.push_back(code);
        return code;
      };
      if (by_groups_) {
        split_ = sort(entries::split_entries);
        group_ = sort(entries::sort_groups);
      } else {
        count_ = sort(entries::count_digits);
        scan_ = sort(entries::sum_counts);
        move_ = sort(entries::move_entries);
        find_ = sort(entries::find_segments);
      }
    } else {
      find_winners_ = put(entries::find_winners, 1);
      compares_ = at_.base >= 0 && s_.count <= kComparedUpdates &&
                  s_.count * s_.outer <= kComparedUpdates * lanes_;
      if (compares_) put_last_ = put(entries::put_last, 0);
    }
    early_ = device.properties().early_starts;
    long_blocks_ = std::min(2 * int64_t{device.properties().multiprocessors},
                            s_.count / kLong * chunks() * s_.outer);
    const uint64_t scratch =
        sum ? 2 * entry_bytes() + count_bytes() + bound_bytes() + long_bytes() + head_bytes()
            : padded(4 * static_cast<uint64_t>(s_.rows));
    Kernel kernel = kernel_of(std::move(codes), [self = *this, sum](const Call& c) {
      if (sum)
        self.run_sum(c);
      else
        self.run_last(c);
    });
    kernel.scratch = scratch;
    kernel.can_fail = true;
    if (at_.base >= 0) kernel.in_place = {{at_.base, 0}};
    return kernel;
  }

 private:
  int64_t parts() const { return blocks_for(s_.count, keys_ * kThreads); }
  uint64_t entry_bytes() const { return padded(8 * static_cast<uint64_t>(s_.count)); }
  // Of each pass, or of one at a time and behind them what all parts have.
  uint64_t count_bytes() const {
    const int64_t sets = few_ ? parts() * passes_ : parts() + 1;
    return padded(4 * static_cast<uint64_t>(kDigits * sets));
  }
  uint64_t bound_bytes() const { return padded(8 * static_cast<uint64_t>(s_.rows)); }
  uint64_t long_bytes() const { return padded(8 * static_cast<uint64_t>(s_.count / kLong + 1)); }
  uint64_t head_bytes() const {
    return by_positions_ ? padded(16 * static_cast<uint64_t>(s_.count)) : 0;
  }
  // Of the columns of a row: what a block sums of a long segment.
  int64_t chunks() const { return blocks_for(s_.inner, kLongLanes * std::max<int64_t>(width_, 1)); }

  Shape shape(const Call& c) const {
    Shape s = s_;
    s.axis = axis_at(s_.axis, c, at_.indices);
    s.shift = s.position_bits;
    return s;
  }
  const void* base(const Call& c) const { return c.in(at_.base); }
  // Nothing is updated: base or zeros.
  void keep(const Call& c) const {
    const auto to = reinterpret_cast<Address>(c.outputs[0]);
    const auto stream = static_cast<Stream>(c.stream);
    if (y_bytes_ == 0 || base(c) == c.outputs[0]) return;
    if (at_.base < 0)
      TENON_CUDA(fill_bytes, to, 0, y_bytes_, stream);
    else
      TENON_CUDA(copy_on_device, to, reinterpret_cast<Address>(c.inputs[at_.base]), y_bytes_,
                 stream);
  }

  uint64_t* sort(const Call& c, Shape s, char* scratch, uint32_t* long_numbers) const {
    auto* a = reinterpret_cast<uint64_t*>(scratch);
    auto* b = reinterpret_cast<uint64_t*>(scratch + entry_bytes());
    auto* counts = reinterpret_cast<uint32_t*>(scratch + 2 * entry_bytes());
    const Grid grid{.blocks = parts(), .threads = kThreads};
    const auto number = static_cast<uint32_t>(parts());
    const auto later = static_cast<uint32_t>(few_ ? passes_ - 1 : 0);
    uint32_t* const none = nullptr;
    const uint64_t* from = nullptr;
    for (int64_t pass = 0; pass < passes_; ++pass) {
      uint32_t* const next = few_ && pass + 1 < passes_ ? counts + kDigits * parts() : none;
      if (pass == 0 || !few_) count_.launch(c, grid, s, from, counts, next, later, long_numbers);
      if (!few_) scan_.launch(c, {.blocks = kDigits / 32, .threads = 1024}, counts, number);
      move_.launch(c, grid, s, from, a, counts, next, static_cast<uint32_t>(!few_));
      s.shift += kDigitBits;
      from = a;
      std::swap(a, b);
      if (few_) counts = next;
    }
    return b;
  }

  const uint64_t* sort_by_groups(const Call& c, const Shape& s, char* scratch, char* bounds,
                                 char* heads, const LongSegments& longs) const {
    auto* a = reinterpret_cast<uint64_t*>(scratch);
    auto* b = reinterpret_cast<uint64_t*>(scratch + entry_bytes());
    auto* starts = reinterpret_cast<uint32_t*>(scratch + 2 * entry_bytes());
    const auto number = static_cast<uint32_t>(parts());
    split_.launch(c, {.blocks = parts(), .threads = kThreads, .early = early_}, s, Divisor(groups_),
                  a, starts, longs.number);
    group_.launch(c, {.blocks = groups_, .threads = kGroupThreads, .early = early_}, s,
                  Divisor(groups_), number, a, starts, b, bounds, heads, longs);
    return b;
  }

  void run_sum(const Call& c) const {
    const Shape s = shape(c);
    if (s.count == 0) return keep(c);
    char* const scratch = static_cast<char*>(c.scratch);
    char* const bounds = scratch + 2 * entry_bytes() + count_bytes();
    char* const longs_at = bounds + bound_bytes();
    char* const heads = by_positions_ ? longs_at + long_bytes() : nullptr;
    const LongSegments longs{reinterpret_cast<uint32_t*>(longs_at), longs_at + 8};
    const bool fresh = base(c) != c.outputs[0];
    const uint64_t* entries = nullptr;
    if (by_groups_) {
      entries = sort_by_groups(c, s, scratch, bounds, heads, longs);
    } else {
      entries = sort(c, s, scratch, longs.number);
      char* const found = fresh ? bounds : nullptr;
      if (fresh)
        TENON_CUDA(fill_bytes, reinterpret_cast<Address>(bounds), 0, bound_bytes(),
                   static_cast<Stream>(c.stream));
      if (y_bytes_ > 0 && (fresh || long_blocks_ > 0))
        find_.launch(c, {.blocks = blocks_for(s.count, kThreads), .threads = kThreads}, s, entries,
                     found, longs);
    }
    if (y_bytes_ == 0) return;
    const auto long_blocks = static_cast<uint32_t>(long_blocks_);
    const void* const updates = c.inputs[at_.updates];
    Grid grid{.threads = kThreads, .early = early_ && by_groups_};
    if (by_positions_) {
      const int64_t warps = kThreads / kLanes, each = at_.base < 0 ? kPositions : kPositionsOnBase;
      const int64_t chunks = blocks_for(s.inner, kLanes * width_ * columns_);
      const int64_t heads_of = blocks_for(s.count, each) * s.outer * chunks;
      const int64_t rest = fresh ? blocks_for(s.rows, kRest) * s.outer : 0;
      const auto position_blocks = static_cast<uint32_t>(blocks_for(heads_of, warps));
      grid.blocks = 2 * long_blocks_ + position_blocks + blocks_for(rest, warps);
      sum_positions_.launch(c, grid, s, entries, bounds, heads, longs, long_blocks, position_blocks,
                            updates, base(c), c.outputs[0]);
      return;
    }
    // Rows of y that get nothing are passed by where entries are not fewer by far.
    const bool by_rows = fresh || (by_groups_ && s.rows <= 2 * s.count);
    const int64_t items = (by_rows ? s.rows : s.count) * s.outer;
    grid.blocks = 2 * long_blocks_ + blocks_for(items * lanes_, kThreads);
    sum_segments_[by_rows].launch(c, grid, s, entries, bounds, longs, long_blocks, updates, base(c),
                                  c.outputs[0]);
  }

  void run_last(const Call& c) const {
    const Shape s = shape(c);
    if (s.count == 0) return keep(c);
    const bool fresh = base(c) != c.outputs[0];
    if (compares_ && !fresh && s.inner > 0 && s.outer > 0) {
      const int64_t blocks = blocks_for(s.count * s.outer * lanes_, kThreads);
      put_last_.launch(c, {.blocks = blocks, .threads = kThreads, .early = early_}, s,
                       c.inputs[at_.updates], c.outputs[0]);
      return;
    }
    auto* winners = static_cast<uint32_t*>(c.scratch);
    if (s.rows > 0)
      TENON_CUDA(fill_bytes, reinterpret_cast<Address>(c.scratch), 0,
                 padded(4 * static_cast<uint64_t>(s.rows)), static_cast<Stream>(c.stream));
    find_winners_.launch(c, {.blocks = blocks_for(s.count, kThreads), .threads = kThreads}, s,
                         winners);
    const int64_t items = s.inner == 0 ? 0 : (fresh ? s.rows : s.count) * s.outer;
    put_winners_[fresh].launch(
        c, {.blocks = blocks_for(items * lanes_, kThreads), .threads = kThreads}, s, winners,
        c.inputs[at_.updates], base(c), c.outputs[0]);
  }

  Shape s_;
  Places at_;
  uint64_t y_bytes_;
  int64_t row_bits_ = 1, passes_ = 1, keys_ = 1, lanes_ = 1, width_ = 1, columns_ = 1;
  int64_t long_blocks_ = 0;
  uint32_t groups_ = 1;
  bool few_ = false, by_groups_ = false, by_positions_ = false, early_ = false, compares_ = false;
  CodeFor<entries::count_digits> count_;
  CodeFor<entries::sum_counts> scan_;
  CodeFor<entries::move_entries> move_;
  CodeFor<entries::find_segments> find_;
  CodeFor<entries::split_entries> split_;
  CodeFor<entries::sort_groups> group_;
  CodeFor<entries::sum_by_positions> sum_positions_;
  CodeFor<entries::find_winners> find_winners_;
  CodeFor<entries::put_last> put_last_;
  // onto the base, and fresh
  CodeFor<entries::sum_segments> sum_segments_[2];
  CodeFor<entries::put_winners> put_winners_[2];
};

// Updates [outer, count, inner] go to rows of y [outer, length, inner].
Shape make_shape(const sdk::Type& y, int64_t axis, const sdk::Type& indices) {
  const AxisView view = along_axis(y, axis);
  Shape s;
  s.axis = index_axis(view.length, indices);
  s.outer = view.outer, s.rows = view.length, s.inner = view.inner;
  s.count = s.axis.count;
  return s;
}

void check_number(std::string_view operand, tenon_dtype t) {
  if (!is_float(t) && !is_integer(t)) throw Refusal::dtype(operand, t);
}

void check_fold(const std::string& kind, tenon_dtype t) {
  if (kind != "mul" && kind != "max" && kind != "min") throw Refusal::attribute("kind", kind);
  if (t != TENON_DTYPE_BOOL || kind == "mul") check_number("base", t);
}

// Of ops with the operands base, indices and updates.
template <class Op>
Kernel make_onto_base(const Op& n, const Node& node, const std::string& fold) {
  const sdk::Type& y = n.base.type();
  Shape s = make_shape(y, n.axis, n.indices.type());
  const Units u = units_of("base", y.dtype, s.inner);
  s.inner = u.count;
  const int width = common_width(element_bytes(u.dtype), s.inner, {n.base, n.updates, node.out(0)});
  return Scatter(s, {n.indices.position(), n.updates.position(), n.base.position()}, y.bytes())
      .make(device_of(node), u.dtype, width, n.oob, fold, 0);
}

// One index per element: each element of y is a row.
template <class Op>
Kernel make_elements(const Op& n, const Node& node, const std::string& fold) {
  const sdk::Type &y = node.out(0).type(), &indices = n.indices.type();
  const AxisView view = along_axis(y, n.axis);
  Shape s;
  s.axis = index_axis(view.length, indices);
  s.rows = y.elements();
  s.count = s.axis.count;
  s.elements.step = view.inner;
  sdk::Type whole = y;
  whole.set_dense_strides();
  for (int k = 0; k < y.rank; ++k) {
    s.elements.dims[k] = indices.dims[k];
    s.elements.strides[k] = k == view.axis ? 0 : whole.strides[k];
  }
  return Scatter(s, {n.indices.position(), n.updates.position(), n.base.position()}, y.bytes())
      .make(device_of(node), y.dtype, 1, n.oob, fold, y.rank);
}

}  // namespace

Kernel make_scatter(const sdk::op::scatter& n, const Node& node) {
  return make_onto_base(n, node, "");
}

Kernel make_scatter_reduce(const sdk::op::scatter_reduce& n, const Node& node) {
  check_fold(n.kind, n.base.type().dtype);
  return make_onto_base(n, node, n.kind);
}

Kernel make_scatter_add(const sdk::op::scatter_add& n, const Node& node) {
  const sdk::Type& y = n.base ? n.base.type() : node.out(0).type();
  check_number("updates", y.dtype);
  const Shape s = make_shape(y, n.axis, n.indices.type());
  const sdk::Value also = n.base ? n.base : n.updates;
  const int width = common_width(element_bytes(y.dtype), s.inner, {also, n.updates, node.out(0)});
  return Scatter(s, {n.indices.position(), n.updates.position(), n.base.position()}, y.bytes())
      .make(device_of(node), y.dtype, width, n.oob, "add", 0);
}

Kernel make_gather_backward(const sdk::op::gather_backward& n, const Node& node) {
  const sdk::Type& y = node.out(0).type();
  check_number("dy", y.dtype);
  Shape s = make_shape(y, n.axis, n.indices.type());
  constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
  if (n.padding_idx != kNone) s.padding = n.padding_idx + (n.padding_idx < 0 ? s.rows : 0);
  const int width = common_width(element_bytes(y.dtype), s.inner, {n.dy, node.out(0)});
  return Scatter(s, {n.indices.position(), n.dy.position(), -1}, y.bytes())
      .make(device_of(node), y.dtype, width, n.oob, "add", 0);
}

Kernel make_scatter_elements_add(const sdk::op::scatter_elements_add& n, const Node& node) {
  check_number("updates", node.out(0).type().dtype);
  return make_elements(n, node, "add");
}

Kernel make_scatter_elements_reduce(const sdk::op::scatter_elements_reduce& n, const Node& node) {
  check_fold(n.kind, n.base.type().dtype);
  return make_elements(n, node, n.kind);
}

}  // namespace tenon::cuda
