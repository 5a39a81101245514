// SPDX-License-Identifier: Apache-2.0
// qmatmul: products of matrices of 8-bit integers by tiles on tensor cores (qmatmul.cu). Both operands
// are first laid out with their terms side by side, in whole pieces of 16 bytes.
#include <algorithm>

#include "conv.hpp"
#include "loop.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

constexpr int64_t kRows = 128;  // of y, in a tile
constexpr int64_t kPieces = 8;  // that a tile takes at once
constexpr int64_t kLeastSteps = 4, kMostSplits = 64;

// Rows of bytes as they are, or with zeros behind them up to a whole piece.
struct PaddedRows {
  CodeFor<entries::conv_filters> code{};
  args::ConvFilters shape{};
  bool copies = false;
  int input = -1;
  uint64_t at = 0;

  PaddedRows(CudaDevice& device, const sdk::Value& v, int64_t rows, int64_t length, int64_t pieces,
             ConvScratch& scratch)
      : copies(length % 16 != 0 || v.alignment() < 16), input(v.position()) {
    if (!copies) return;
    if (rows * pieces >= kNarrowIndex / 8) throw Refusal::shape("a matrix of more than 2^32 bytes");
    const auto narrow = [](int64_t n) { return static_cast<uint32_t>(n); };
    shape = {.count = rows * pieces * 16,
             .m = narrow(rows),
             .c = narrow(length),
             .taps = 1,
             .padded = narrow(pieces * 16),
             .step_m = narrow(length),
             .step_c = 1,
             .step_group = 0};
    code = device.code(entries::conv_filters,
                       {"TYPE=" + type_name("a", v.type().dtype), "XW=1", "BY_M=0", "YW=1"});
    at = scratch.add(static_cast<uint64_t>(shape.count));
  }
  const void* get(const Call& c) const {
    if (!copies) return c.in(input);
    void* const to = scratch_at(c, at);
    code.launch(c, {.blocks = blocks_for(shape.count, 256 * 8), .threads = 256}, c.in(input), to,
                shape);
    return to;
  }
};

// Columns of matrices as rows of pieces, and their sums: made in each run, or once if the matrices are
// frozen.
struct Columns {
  ConvStaging staging{};
  ByteRowSums sums{};
  uint64_t sums_at = 0, at = 0;
  bool frozen = false;
  int input = -1;

  Columns(const Node& node, const sdk::Value& v, int64_t matrices, int64_t length, int64_t columns,
          bool wants_sums, ConvScratch& scratch)
      : staging(node, v, matrices, 1, length, columns),
        sums_at(staging.bytes()),
        frozen(v.frozen()),
        input(v.position()) {
    if (wants_sums)
      sums = ByteRowSums(device_of(node), v.type().dtype, matrices * columns, staging.pieces());
    if (!frozen) at = scratch.add(bytes());
  }
  uint64_t bytes() const { return sums_at + sums.bytes(); }
  void make(const Call& c, const void* from, void* to) const {
    staging.run(c, from, to);
    if (sums.rows > 0) sums.run(c, to, static_cast<char*>(to) + sums_at);
  }
  const void* get(const Call& c) const {
    if (frozen) return c.in(input);
    make(c, c.in(input), scratch_at(c, at));
    return scratch_at(c, at);
  }
  const void* sums_of(const void* made) const {
    return sums.rows > 0 ? static_cast<const char*>(made) + sums_at : nullptr;
  }
  void add_to(std::vector<Code>& codes) const {
    if (frozen) return;
    codes.push_back(staging.code);
    if (sums.rows > 0) codes.push_back(sums.code);
  }
  void add_to(Kernel& kernel) const {
    if (!frozen) return;
    kernel.derived.push_back(
        {.input = input,
         .layout = sums.rows > 0 ? "bytes by columns with sums" : "bytes by columns",
         .size = bytes(),
         .enqueue = [columns = *this](const Call& c) {
           columns.staging.code.prepare();
           if (columns.sums.rows > 0) columns.sums.code.prepare();
           columns.make(c, c.inputs[0], c.outputs[0]);
         }});
  }
};

int64_t product(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

// Axes before the last two, with steps in matrices.
sdk::Type batch_type(const sdk::Type& t) {
  sdk::Type batch;
  batch.rank = t.rank - 2;
  std::ranges::copy(t.shape().first(static_cast<size_t>(batch.rank)), batch.dims.begin());
  batch.set_dense_strides();
  return batch;
}

}  // namespace

Kernel make_qmatmul(const sdk::op::qmatmul& n, const Node& node) {
  const sdk::Type &a = n.a.type(), &b = n.b.type(), &y = node.out(0).type();
  if (y.elements() == 0) return {.run = [](const Call&) {}};
  CudaDevice& device = device_of(node);
  const int64_t depth = a.dims[a.rank - 1], columns = b.dims[b.rank - 1];
  const QuantizedEnding ending(n, n.a, n.a_zero, n.b, n.b_zero, node, depth);
  if (device.properties().major < 8)
    throw Refusal::shape(
        "8-bit integers are summed on tensor cores of compute capability 8.0 or higher");
  args::ByteProduct p;
  int64_t rows = a.dims[a.rank - 2];
  const sdk::Type batch_a = batch_type(a), batch_b = batch_type(b);
  auto batch = y.shape().first(static_cast<size_t>(y.rank - 2));
  const int64_t matrices_b = product(batch_b.shape());
  int64_t batches = product(batch);
  if (matrices_b == 1 && product(batch_a.shape()) == batches) {
    // One b for all: the batch becomes rows.
    rows *= batches, batches = 1;
  } else {
    const Loop loop = make_loop(batch, {&batch_a, &batch_b});
    p.batch_rank = static_cast<int32_t>(loop.dims.size());
    if (loop.dims.size() > std::size(p.batch_dims)) throw Refusal::shape("too many batch axes");
    std::ranges::copy(loop.dims, p.batch_dims);
    std::ranges::copy(loop.strides[0], p.a_steps), std::ranges::copy(loop.strides[1], p.b_steps);
  }
  const int64_t rows_of_a = a.elements() / depth, pieces = blocks_for(depth, 16);
  if (std::max(rows_of_a, matrices_b * columns) >= kNarrowIndex / pieces)
    throw Refusal::shape("operands of more than 2^35 bytes");

  ConvScratch scratch;
  const PaddedRows left(device, n.a, rows_of_a, depth, pieces, scratch);
  const Columns right(node, n.b, matrices_b, depth, columns, ending.x_zero >= 0, scratch);
  const bool column_sums = ending.w_zero >= 0;
  const int64_t processors = device.properties().multiprocessors;
  const auto blocks = [&](int64_t tile) {
    return blocks_for(rows, kRows) * blocks_for(columns, tile) * batches;
  };
  const int64_t tile = columns > 64 && blocks(128) >= processors ? 128 : 64;
  const int64_t steps = blocks_for(pieces, kPieces);
  const int64_t each = blocks_for(
      steps, std::clamp<int64_t>(processors / std::max<int64_t>(blocks(tile), 1), 1,
                                 std::clamp<int64_t>(steps / kLeastSteps, 1, kMostSplits)));
  const auto narrow = [](int64_t v) { return static_cast<uint32_t>(v); };
  p.count = y.elements();
  p.m = narrow(rows), p.n = narrow(columns), p.pieces = narrow(pieces);
  p.tiles_m = narrow(blocks_for(rows, kRows)), p.tiles_n = narrow(blocks_for(columns, tile));
  p.splits = narrow(blocks_for(steps, each)), p.split_pieces = narrow(each * kPieces);
  const bool split = p.splits > 1;
  const int64_t width = std::min(8, common_width(element_bytes(y.dtype), columns, {node.out(0)}));
  constexpr int kWarpgroupsMajor = 9;  // later devices do not have wgmma
  const bool warpgroups = device.properties().major == kWarpgroupsMajor && !column_sums;
  constexpr int64_t kStages = 3, kRowBytes = 128;
  const int64_t stages = std::min(each, kStages) * (tile + kRows) * kRowBytes;
  const int64_t sums = kRows * (tile + 4 + (column_sums ? 1 : 0)) * int64_t{sizeof(float)};
  const auto shared = narrow(std::max(stages, sums));
  std::vector<std::string> d = ending.defines();
  for (std::string& text : std::vector<std::string>{
           "TYPE=" + type_name("a", a.dtype), "MMA=1", define("WARPGROUPS", warpgroups),
           define("TILE_M", tile), define("SPLIT", split), define("COLUMNS", column_sums),
           define("YW", width)})
    d.push_back(std::move(text));
  const auto code = device.code(entries::byte_product, d, shared);
  std::vector<Code> codes{code};
  CodeFor<entries::byte_finish> finish;
  uint64_t parts_at = 0;
  if (split) {
    finish = device.code(entries::byte_finish, d);
    codes.push_back(finish);
    parts_at = scratch.add(uint64_t{p.splits} * static_cast<uint64_t>(p.count) * 4);
  }
  if (left.copies) codes.push_back(left.code);
  right.add_to(codes);
  const Grid grid{.blocks = launchable(int64_t{p.tiles_m} * p.tiles_n * p.splits * batches),
                  .threads = 256,
                  .shared = shared};
  Kernel kernel = kernel_of(std::move(codes), [=](const Call& c) {
    args::ByteProduct t = p;
    t.a = left.get(c), t.b = right.get(c);
    t.ends = ending.of(c, right.sums_of(t.b));
    if (split) t.parts = static_cast<uint32_t*>(scratch_at(c, parts_at));
    code.launch(c, grid, t);
    if (split) {
      t.ends.w_sums = nullptr;  // in the parts
      finish.launch(c, {.blocks = blocks_for(t.count, 256 * width), .threads = 256}, t.parts,
                    t.ends, args::ByteFinish{t.count, t.n, t.splits});
    }
  });
  kernel.scratch = scratch.size();
  right.add_to(kernel);
  constexpr double kRate = 6e14, kBandwidth = 3e12;
  kernel.cost =
      3e-6 + std::max(2.0 * static_cast<double>(p.count) * static_cast<double>(depth) / kRate,
                      static_cast<double>(a.elements() + b.elements() + p.count) / kBandwidth);
  return kernel;
}

}  // namespace tenon::cuda
