// SPDX-License-Identifier: Apache-2.0
// Convolutions and gradients of weights by tiles of products: conv.cu, conv_weight.cu.
#include <algorithm>

#include "conv.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Value;

constexpr int64_t kColumns = 128;                // of a tile on tensor cores
constexpr int64_t kMmaStep = 64, kFmaStep = 16;  // terms that a tile takes at once
constexpr int64_t kMostSplits = 64;
constexpr int64_t kTapBytes = 8, kWideTapBytes = 20;  // Step of conv.cu, with a mask and without
constexpr int64_t kChannelBytes = 12;                 // ChannelEnds of quantized_ends.cuh
constexpr int64_t kWindowBytes = 16;                  // Place of conv_weight.cu
constexpr int64_t kMostTaps = 512;                    // that tiles on tensor cores list

std::string on(const char* name, bool yes) { return define(name, yes); }

// How a product is cut into tiles, and its terms into parts.
struct Tiling {
  bool mma = false, warpgroups = false, point = false;
  bool column_sums = false;  // beside the sums
  int64_t rows = 64, columns = kColumns, splits = 1, split_terms = 0;
  int64_t point_width = 1;
  uint32_t shared = 0;

  // blocks(rows): of tiles of so many rows without splits. steps: of kMmaStep or kFmaStep terms.
  template <class Blocks>
  void choose(const CudaDevice& device, int64_t m, bool wide, int64_t steps, int64_t least_steps,
              Blocks blocks) {
    const int64_t processors = device.properties().multiprocessors;
    // The time of the processor with the most blocks; smaller tiles read their operands more often.
    const auto time = [&](int64_t of, double each) {
      return static_cast<double>(blocks_for(blocks(of), processors) * of) * each;
    };
    // Windows of one pixel have little work for what they read.
    const double small = point ? 1.7 : 1.2;
    constexpr double kAlone = 1.5;
    // Moving the sums of a part takes as long as so many steps.
    const double part_steps = mma ? 10 : 4;
    const bool large = mma ? time(128, 1) <= time(64, small) : blocks(int64_t{128}) >= processors;
    rows = m > 64 && wide && large ? 128 : 64;
    if (!mma) columns = rows;
    const int64_t count = std::max<int64_t>(blocks(rows), 1);
    // In the time of a block without splits. A block alone on its processor hides less latency; the
    // sums of each part are written and read once.
    const double part = part_steps / static_cast<double>(std::max<int64_t>(steps, 1)) *
                        static_cast<double>(count) / static_cast<double>(processors);
    double best = 0;
    for (int64_t s = 1; s <= std::clamp<int64_t>(steps / least_steps, 1, kMostSplits); ++s) {
      const int64_t on_one = blocks_for(count * s, processors);
      const double cost =
          static_cast<double>(on_one) * (on_one == 1 ? kAlone : 1) / static_cast<double>(s) +
          (s > 1 ? part * static_cast<double>(s) : 0);
      if (s == 1 || cost < best) best = cost, splits = s;
    }
    const int64_t each = blocks_for(std::max<int64_t>(steps, 1), splits);
    splits = blocks_for(std::max<int64_t>(steps, 1), each);
    split_terms = each * (mma ? kMmaStep : kFmaStep);
    constexpr int64_t kStages = 3, kRowBytes = 128, kPitch = kColumns + 8;
    const int64_t stages = std::min(each, kStages) * (rows + kColumns) * kRowBytes;
    // Sums go through the same memory in the end.
    const auto sums = (rows * kPitch + (column_sums ? kColumns : 0)) * int64_t{sizeof(float)};
    shared = mma ? static_cast<uint32_t>(std::max(stages, sums)) : 0;
  }
  std::vector<std::string> defines(tenon_dtype dtype) const {
    return {"TYPE=" + type_name("x", dtype), on("MMA", mma),
            on("WARPGROUPS", warpgroups),    on("POINT", point),
            define("XW", point_width),       define("TILE_M", rows)};
  }
};

Tiling tiling_for(const CudaDevice& device, tenon_dtype dtype) {
  constexpr int kWarpgroupsMajor = 9;  // later devices do not have wgmma
  Tiling t;
  t.mma = (is_half(dtype) || is_byte(dtype)) && device.properties().major >= 8;
  t.warpgroups = t.mma && device.properties().major == kWarpgroupsMajor;
  return t;
}

// Windows of one pixel that a tile may read as they are: so many at once, 0: not so.
int64_t point_width(const ConvGeometry& g, std::initializer_list<Value> values) {
  if (!g.pointwise()) return 0;
  const int64_t width = common_width(element_bytes(g.dtype), g.pixels(), values);
  return width >= 4 ? width : 0;
}

// Kernels of floats and of 8-bit integers, which differ in what follows the sums.
constexpr const auto& sums_of(const ConvEnding&) { return entries::conv_sums; }
constexpr const auto& sums_of(const QuantizedEnding&) { return entries::qconv_sums; }
constexpr const auto& finish_of(const ConvEnding&) { return entries::conv_finish; }
constexpr const auto& finish_of(const QuantizedEnding&) { return entries::qconv_finish; }

template <class Ending>
Kernel conv_with(const Node& node, const ConvProblem& p, const Ending& ending) {
  using Ends = decltype(ends_of(ending, std::declval<const Call&>(), nullptr));
  CudaDevice& device = device_of(node);
  const ConvGeometry& g = p.geometry;
  const args::ConvShape s = p.shape();
  // Phases differ by at most one window and one tap along each axis; the first has the most windows.
  int64_t phases = 1, windows = g.n, most_taps = 1;
  for (const args::ConvAxis& axis : s.axes) {
    phases *= p.transposed ? std::min(axis.stride, axis.in) : 1;
    windows *= p.transposed ? blocks_for(axis.in, axis.stride) : axis.out;
    most_taps *= p.transposed ? blocks_for(axis.kernel, axis.stride / axis.common) : axis.kernel;
  }
  Tiling t = tiling_for(device, g.dtype);
  t.mma = t.mma && s.c > 0 && most_taps <= kMostTaps;
  if (p.quantized && !t.mma)
    throw Refusal::shape(
        "8-bit integers are summed on tensor cores of compute capability 8.0 or "
        "higher, of at most 512 taps");
  t.column_sums = p.quantized && p.quantized->w_zero >= 0;
  if (t.mma) t.point_width = point_width(g, {p.from});
  t.point = t.mma && t.point_width > 0;
  // wgmma takes bytes side by side alone.
  t.warpgroups = t.warpgroups && t.mma && !t.column_sums && !(t.point && p.quantized);
  if (!t.point) t.point_width = t.mma ? 8 : 1;

  ConvScratch scratch;
  const ConvFilterOrder filters(device, p, t.mma, scratch, t.point && p.quantized.has_value());
  // Tensor cores take 16 bytes as a piece of 8 terms, whatever the dtype.
  const int64_t pieces = filters.padded() / piece_of(g.dtype);
  const int64_t steps = t.mma ? blocks_for(most_taps * pieces * 8, kMmaStep)
                              : blocks_for(most_taps * filters.padded(), kFmaStep);
  t.choose(device, s.m, element_bytes(g.dtype) <= 4, steps, t.mma ? 4 : 16, [&](int64_t rows) {
    return blocks_for(s.m, rows) * blocks_for(windows, t.mma ? kColumns : rows) * phases * g.groups;
  });

  args::ConvSumsOf<Ends> a;
  a.shape = s;
  a.count = p.count();
  a.tiles_m = static_cast<uint32_t>(blocks_for(s.m, t.rows));
  a.tiles_n = static_cast<uint32_t>(blocks_for(windows, t.columns));
  a.splits = static_cast<uint32_t>(t.splits);
  a.split_terms = static_cast<uint32_t>(t.split_terms);
  a.phases = static_cast<uint32_t>(phases);
  a.pieces = static_cast<int32_t>(pieces);
  // The list of taps, and how many bits tell which of them are inside.
  const int64_t mask = !t.mma || t.point ? 0 : most_taps <= 32 ? 32 : most_taps <= 64 ? 64 : 0;
  a.steps_at = t.shared;
  if (t.mma && !t.point)
    t.shared += static_cast<uint32_t>(most_taps * (mask > 0 ? kTapBytes : kWideTapBytes));
  if (p.quantized) a.ends_at = t.shared, t.shared += static_cast<uint32_t>(t.rows * kChannelBytes);
  const Grid grid{
      .blocks = launchable(int64_t{a.tiles_m} * a.tiles_n * t.splits * phases * g.groups),
      .threads = 256,
      .shared = t.shared};

  // How many neighbours are stored at once: tiles of FMAs take 4 or 1.
  const auto stored = [&](int64_t most) {
    int64_t width = phases == 1 ? most : 1;
    for (const Value& v : p.ending.aligned)
      if (v)
        width =
            std::min<int64_t>(width, common_width(element_bytes(v.type().dtype), p.plane(), {v}));
    return width;
  };
  const int64_t width = t.mma ? stored(8) : stored(4) == 4 ? 4 : 1;
  const bool split = t.splits > 1;
  std::vector<std::string> d = t.defines(g.dtype), ends = ending.defines();
  d.push_back(on("BACK", p.transposed));
  d.push_back(define("MASK", mask));
  d.push_back(on("WHOLE", !t.mma && s.c > 0 && s.c % kFmaStep == 0));
  d.push_back(on("SPLIT", split));
  d.push_back(define("YW", width));
  if (p.quantized) {
    const bool pads = std::ranges::any_of(s.axes, [](const args::ConvAxis& axis) {
      return axis.before > 0 || int64_t{axis.out - 1} * axis.stride - axis.before +
                                        int64_t{axis.kernel - 1} * axis.dilation >=
                                    axis.in;
    });
    d.push_back(on("OUTSIDE", pads && p.quantized->x_zero >= 0));
    d.push_back(on("COLUMNS", t.column_sums));
  }
  if (!split || p.quantized) std::ranges::copy(ends, std::back_inserter(d));
  const auto code = device.code(sums_of(ending), d, t.shared);
  std::vector<Code> codes{code};

  decltype(typed_code(finish_of(ending))) finish;
  const args::ConvFinish finish_shape{a.count, p.plane(), static_cast<uint32_t>(s.groups * s.m),
                                      a.splits};
  const int64_t finish_width = stored(8);
  if (split) {
    std::vector<std::string> f{"TYPE=" + type_name("x", g.dtype), "XW=1", "BY_M=0",
                               define("YW", finish_width)};
    std::ranges::copy(ends, std::back_inserter(f));
    finish = device.code(finish_of(ending), f);
    codes.push_back(finish);
  }

  ConvStaging staging;
  const bool stages = t.mma && !t.point;
  uint64_t staged_at = 0, parts_at = 0;
  if (stages) {
    staging = ConvStaging(node, p.from, g.n, g.groups, s.c, p.source());
    staged_at = scratch.add(staging.bytes());
    codes.push_back(staging.code);
  }
  filters.add_to(codes);
  const int64_t sum_bytes = p.quantized ? 4 : element_bytes(acc_dtype(g.dtype));
  if (split) parts_at = scratch.add(static_cast<uint64_t>(t.splits * a.count * sum_bytes));

  Kernel kernel = kernel_of(std::move(codes), [=, from = p.from.position()](const Call& c) {
    args::ConvSumsOf<Ends> arguments = a;
    arguments.x = c.in(from), arguments.w = filters.get(c);
    arguments.ends = ends_of(ending, c, filters.sums(c));
    if (stages) {
      arguments.x = scratch_at(c, staged_at);
      staging.run(c, c.in(from), scratch_at(c, staged_at));
    }
    if (split) arguments.parts = scratch_at(c, parts_at);
    code.launch(c, grid, arguments);
    if (split)
      finish.launch(c, {.blocks = blocks_for(a.count, 256 * finish_width), .threads = 256},
                    static_cast<const void*>(arguments.parts), arguments.ends, finish_shape);
  });
  kernel.scratch = scratch.size();
  filters.add_to(kernel);
  return kernel;
}

}  // namespace

Kernel conv_by_tiles(const Node& node, const ConvProblem& p) {
  return p.quantized ? conv_with(node, p, *p.quantized) : conv_with(node, p, p.ending);
}

Kernel conv_weight_by_tiles(const Node& node, const ConvGeometry& g, const Value& dy,
                            const Value& x) {
  CudaDevice& device = device_of(node);
  args::ConvWeightSums a;
  a.shape = g.shape(false);
  const int64_t c = a.shape.c, m = a.shape.m, taps = g.taps();
  Tiling t = tiling_for(device, g.dtype);
  if (t.mma) t.point_width = point_width(g, {dy, x});
  t.point = t.mma && t.point_width > 0;
  if (!t.point) t.point_width = t.mma ? 8 : 1;

  const int64_t padded = (c + 7) / 8 * 8, columns = t.mma ? taps * padded : c * taps;
  const int64_t windows = g.n * g.windows();
  const int64_t steps = blocks_for(windows, t.mma ? kMmaStep : kFmaStep);
  t.choose(device, m, element_bytes(g.dtype) <= 4, steps, t.mma ? 4 : 16, [&](int64_t rows) {
    return blocks_for(m, rows) * blocks_for(columns, t.mma ? kColumns : rows) * g.groups;
  });
  // Parts need no more memory than this, but for the first.
  constexpr int64_t kMostParts = 64 << 20;  // elements
  if (const int64_t most = kMostParts / std::max<int64_t>(g.m * columns, 1); t.splits > most) {
    const int64_t step = t.mma ? kMmaStep : kFmaStep;
    const int64_t each = blocks_for(std::max<int64_t>(steps, 1), std::max<int64_t>(most, 1));
    t.splits = blocks_for(std::max<int64_t>(steps, 1), each), t.split_terms = each * step;
  }
  const auto narrow = [](int64_t v) { return static_cast<uint32_t>(v); };
  const auto divisor = [&](int64_t v) { return Divisor(narrow(v)); };
  a.tiles_m = narrow(blocks_for(m, t.rows)), a.tiles_n = narrow(blocks_for(columns, t.columns));
  a.splits = narrow(t.splits), a.split_terms = narrow(t.split_terms);
  a.columns = narrow(columns);
  a.m_pieces = static_cast<int32_t>((m + 7) / 8), a.c_pieces = static_cast<int32_t>(padded / 8);
  const auto& [a0, a1, a2] = a.shape.axes;
  a.windows = divisor(g.windows()), a.rows = divisor(int64_t{a1.out} * a2.out);
  a.lines = divisor(a2.out);
  a.by_taps = divisor(taps), a.by_line = divisor(int64_t{a1.kernel} * a2.kernel);
  a.by_tap = divisor(a2.kernel);
  // The windows of four stages are listed in shared memory.
  a.corners_at = t.shared;
  if (t.mma && !t.point) t.shared += 4 * kMmaStep * kWindowBytes;
  const Grid grid{.blocks = launchable(int64_t{a.tiles_m} * a.tiles_n * t.splits * g.groups),
                  .threads = 256,
                  .shared = t.shared};
  const auto code = device.code(entries::conv_weight_sums, t.defines(g.dtype), t.shared);
  const ConvWeightFinish finish(node, g, t.splits, columns, t.mma ? padded : 0);
  std::vector<Code> codes{code, finish.code};

  ConvScratch scratch;
  ConvStaging stage_dy, stage_x;
  const bool stages = t.mma && !t.point && windows > 0;
  uint64_t dy_at = 0, x_at = 0;
  if (stages) {
    stage_dy = ConvStaging(node, dy, g.n, g.groups, m, g.windows());
    stage_x = ConvStaging(node, x, g.n, g.groups, c, g.pixels());
    dy_at = scratch.add(stage_dy.bytes()), x_at = scratch.add(stage_x.bytes());
    codes.push_back(stage_dy.code), codes.push_back(stage_x.code);
  }
  const uint64_t parts_at = scratch.add(finish.bytes());
  Kernel kernel = kernel_of(
      std::move(codes), [=, from_dy = dy.position(), from_x = x.position()](const Call& call) {
        args::ConvWeightSums arguments = a;
        arguments.dy = call.in(from_dy), arguments.x = call.in(from_x);
        if (stages) {
          arguments.dy = scratch_at(call, dy_at), arguments.x = scratch_at(call, x_at);
          stage_dy.run(call, call.in(from_dy), scratch_at(call, dy_at));
          stage_x.run(call, call.in(from_x), scratch_at(call, x_at));
        }
        arguments.parts = scratch_at(call, parts_at);
        code.launch(call, grid, arguments);
        finish.run(call, arguments.parts);
      });
  kernel.scratch = scratch.size();
  return kernel;
}

}  // namespace tenon::cuda
