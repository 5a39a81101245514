// SPDX-License-Identifier: Apache-2.0
// scatter, scatter_add, gather_backward and scatter_elements_add: the updates are sorted by their
// rows on the device, so that each row takes its own in order.
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
constexpr int64_t kLong = 128, kLanes = 32;  // see scatter.cu
// Entries that a thread sorts. Few parts sum each other's counts: no launch in between.
constexpr int64_t kFewKeys = 4, kManyKeys = 16, kFewParts = 64;
constexpr int64_t kColumnBytes = 48;  // of a thread's sums

struct Shape {  // scatter.cu has the same, as Scatter
  IndexAxis axis{};
  int64_t outer = 1, rows = 0, inner = 1, padding = -1;
  int32_t position_bits = 0, shift = 0;
  int64_t count = 0;
  struct Elements {
    int64_t step = 0;
    int64_t dims[sdk::kMaxRank] = {}, strides[sdk::kMaxRank] = {};
  } elements{};
};

// Positions of the operands; base -1 = zeros.
struct Places {
  int indices, updates, base;
};

uint64_t padded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// As bits of the size of an element.
std::string raw_name(std::string_view operand, tenon_dtype t) {
  type_name(operand, t);  // refuses
  return "u" + std::to_string(8 * type_bytes(t));
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
  }
  // sum: else the last update replaces, and T is of the size of an element.
  Kernel make(CudaDevice& device, tenon_dtype dtype, int width, const std::string& oob, bool sum,
              int rank) {
    const int64_t bytes = type_bytes(dtype);
    const std::string type = sum ? type_name("updates", dtype) : raw_name("base", dtype);
    const int64_t vectors = s_.inner / std::max(width, 1);
    lanes_ = std::clamp<int64_t>(
        std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(vectors, 1))), 1, kLanes);
    width_ = width;
    // As many vectors of each row at once as registers hold, in rounds of one size.
    const int64_t each = blocks_for(std::max<int64_t>(vectors, 1), lanes_);
    const int64_t most =
        std::max<int64_t>(kColumnBytes / (std::max<int64_t>(bytes, 4) * std::max(width, 1)), 1);
    const int64_t columns = blocks_for(each, blocks_for(each, most));
    std::vector<std::string> defines = {"T=" + type,
                                        define("W", width),
                                        define("LANES", lanes_),
                                        define("COLUMNS", columns),
                                        define("KEYS", keys_),
                                        oob_define(oob),
                                        define("SUM", sum),
                                        define("RANK", std::max(rank, 1)),
                                        define("ELEMENTS", rank > 0),
                                        define("NARROW", s_.count < kNarrowIndex)};
    for (const int fresh : {0, 1}) {
      defines.push_back(define("FRESH", fresh));
      put_[fresh] = device.code("scatter.cu", sum ? "sum_segments" : "put_winners", defines);
      if (fresh == 1) break;
      if (sum) {
        count_ = device.code("scatter.cu", "count_digits", defines);
        scan_ = device.code("scatter.cu", "sum_counts", defines);
        move_ = device.code("scatter.cu", "move_entries", defines);
        find_ = device.code("scatter.cu", "find_segments", defines);
        put_long_ = device.code("scatter.cu", "sum_long_segments", defines);
      } else {
        find_ = device.code("scatter.cu", "find_winners", defines);
      }
      defines.pop_back();
    }
    std::vector<Code> codes = {put_[0], put_[1], find_};
    if (sum) codes.insert(codes.end(), {count_, scan_, move_, put_long_});
    const uint64_t scratch = sum ? 2 * entry_bytes() + count_bytes() + bound_bytes()
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

  Shape shape(const Call& c) const {
    Shape s = s_;
    s.axis = s_.axis.at(c, at_.indices);
    s.shift = s.position_bits;
    return s;
  }
  const void* base(const Call& c) const { return at_.base < 0 ? nullptr : c.inputs[at_.base]; }
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

  uint64_t* sort(const Call& c, Shape s, char* scratch) const {
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
      if (pass == 0 || !few_) count_.launch(c, grid, s, from, counts, next, later);
      if (!few_) scan_.launch(c, {.blocks = kDigits / 32, .threads = 1024}, counts, number);
      move_.launch(c, grid, s, from, a, counts, next, static_cast<uint32_t>(!few_));
      s.shift += kDigitBits;
      from = a;
      std::swap(a, b);
      if (few_) counts = next;
    }
    return b;
  }

  void run_sum(const Call& c) const {
    const Shape s = shape(c);
    if (s.count == 0) return keep(c);
    char* const scratch = static_cast<char*>(c.scratch);
    const uint64_t* entries = sort(c, s, scratch);
    if (y_bytes_ == 0) return;
    char* const bounds = scratch + 2 * entry_bytes() + count_bytes();
    const bool fresh = base(c) != c.outputs[0];
    if (fresh) {
      TENON_CUDA(fill_bytes, reinterpret_cast<Address>(bounds), 0, bound_bytes(),
                 static_cast<Stream>(c.stream));
      find_.launch(c, {.blocks = blocks_for(s.count, kThreads), .threads = kThreads}, s, entries,
                   bounds);
    }
    const int64_t items = (fresh ? s.rows : s.count) * s.outer;
    put_[fresh].launch(c, {.blocks = blocks_for(items * lanes_, kThreads), .threads = kThreads}, s,
                       entries, bounds, c.inputs[at_.updates], base(c), c.outputs[0]);
    const int64_t chunks = blocks_for(s.inner, kLanes * width_);
    if (s.count > kLong)
      put_long_.launch(
          c, {.blocks = blocks_for(s.count, kLong) * chunks * s.outer, .threads = kThreads}, s,
          entries, c.inputs[at_.updates], base(c), c.outputs[0]);
  }

  void run_last(const Call& c) const {
    const Shape s = shape(c);
    if (s.count == 0) return keep(c);
    auto* winners = static_cast<uint32_t*>(c.scratch);
    if (s.rows > 0)
      TENON_CUDA(fill_bytes, reinterpret_cast<Address>(c.scratch), 0,
                 padded(4 * static_cast<uint64_t>(s.rows)), static_cast<Stream>(c.stream));
    find_.launch(c, {.blocks = blocks_for(s.count, kThreads), .threads = kThreads}, s, winners);
    const bool fresh = base(c) != c.outputs[0];
    const int64_t items = s.inner == 0 ? 0 : (fresh ? s.rows : s.count) * s.outer;
    put_[fresh].launch(c, {.blocks = blocks_for(items * lanes_, kThreads), .threads = kThreads}, s,
                       winners, c.inputs[at_.updates], base(c), c.outputs[0]);
  }

  Shape s_;
  Places at_;
  uint64_t y_bytes_;
  int64_t row_bits_ = 1, passes_ = 1, keys_ = 1, lanes_ = 1, width_ = 1;
  bool few_ = false;
  Code count_, scan_, move_, find_, put_[2], put_long_;
};

// Updates [outer, count, inner] go to rows of y [outer, length, inner].
Shape make_shape(const sdk::Type& y, int64_t axis, const sdk::Type& indices,
                 const sdk::Type& updates) {
  const AxisView view = along_axis(y, axis);
  Shape s;
  s.axis = index_axis(view.length, indices);
  s.outer = view.outer, s.rows = view.length, s.inner = view.inner;
  s.count = s.axis.count;
  if (updates.dtype != y.dtype) throw Refusal::dtype("updates", updates.dtype);
  if (updates.elements() != s.outer * s.count * s.inner)
    throw Refusal::shape("updates have " + std::to_string(updates.elements()) +
                         " elements where indices and axis ask for " +
                         std::to_string(s.outer * s.count * s.inner));
  return s;
}

void check_number(std::string_view operand, tenon_dtype t) {
  if (!is_float(t) && !is_integer(t)) throw Refusal::dtype(operand, t);
}

}  // namespace

Kernel make_scatter(const sdk::op::scatter& n, const Node& node) {
  const sdk::Type& y = n.base.type();
  const Shape s = make_shape(y, n.axis, n.indices.type(), n.updates.type());
  const int width = common_width(type_bytes(y.dtype), s.inner, {n.base, n.updates, node.out(0)});
  return Scatter(s, {n.indices.position(), n.updates.position(), n.base.position()}, y.bytes())
      .make(device_of(node), y.dtype, width, n.oob, false, 0);
}

Kernel make_scatter_add(const sdk::op::scatter_add& n, const Node& node) {
  const sdk::Type& y = n.base ? n.base.type() : node.out(0).type();
  check_number("updates", y.dtype);
  const Shape s = make_shape(y, n.axis, n.indices.type(), n.updates.type());
  const sdk::Value also = n.base ? n.base : n.updates;
  const int width = common_width(type_bytes(y.dtype), s.inner, {also, n.updates, node.out(0)});
  return Scatter(s, {n.indices.position(), n.updates.position(), n.base ? n.base.position() : -1},
                 y.bytes())
      .make(device_of(node), y.dtype, width, n.oob, true, 0);
}

Kernel make_gather_backward(const sdk::op::gather_backward& n, const Node& node) {
  const sdk::Type& y = node.out(0).type();
  check_number("dy", y.dtype);
  Shape s = make_shape(y, n.axis, n.indices.type(), n.dy.type());
  constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
  if (n.padding_idx != kNone) s.padding = n.padding_idx + (n.padding_idx < 0 ? s.rows : 0);
  const int width = common_width(type_bytes(y.dtype), s.inner, {n.dy, node.out(0)});
  return Scatter(s, {n.indices.position(), n.dy.position(), -1}, y.bytes())
      .make(device_of(node), y.dtype, width, n.oob, true, 0);
}

Kernel make_scatter_elements_add(const sdk::op::scatter_elements_add& n, const Node& node) {
  const sdk::Type &y = node.out(0).type(), &indices = n.indices.type();
  check_number("updates", y.dtype);
  if (n.updates.type().dtype != y.dtype) throw Refusal::dtype("updates", n.updates.type().dtype);
  if (!n.updates.type().same_shape(indices))
    throw Refusal::shape("updates must have the shape of indices");
  if (n.base && (n.base.type().dtype != y.dtype || !n.base.type().same_shape(y)))
    throw Refusal::shape("base must have the type of y");
  const AxisView view = along_axis(y, n.axis);
  check_elements(y, indices, view.axis);
  // Each element of y is a row.
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
  return Scatter(s, {n.indices.position(), n.updates.position(), n.base ? n.base.position() : -1},
                 y.bytes())
      .make(device_of(node), y.dtype, 1, n.oob, true, y.rank);
}

}  // namespace tenon::cuda
