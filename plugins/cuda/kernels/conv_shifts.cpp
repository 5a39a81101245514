// SPDX-License-Identifier: Apache-2.0
// 2d convolutions and their transposes of halves on sm_90: conv_shifts.cu.
#include <algorithm>

#include "conv.hpp"
#include "tensor_map.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

// Along one axis: window j of a phase reads pixel j·step + at.
struct Tap {
  int32_t at, kernel;
};
struct Line {
  int32_t origin, count;  // of the phase's windows: the first pixel, and how many
  std::vector<Tap> taps{};
};
std::vector<Line> lines_of(const args::ConvAxis& a, bool transposed) {
  std::vector<Line> lines;
  for (int32_t q = 0; q < (transposed ? std::min(a.stride, a.in) : 1); ++q) {
    Line line{.origin = q, .count = transposed ? (a.in - q - 1) / a.stride + 1 : a.out};
    for (int32_t k = 0; k < a.kernel; ++k) {
      const int32_t from = q + a.before - k * a.dilation;
      if (!transposed)
        line.taps.push_back({k * a.dilation - a.before, k});
      else if (from % a.stride == 0)
        line.taps.push_back({from / a.stride, k});
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

// The grid along one axis: position i of part k is pixel i·step + k + first.
struct Axis {
  int32_t step, first = 0, pitch = 1;  // pitch: positions of a line

  int32_t part(const Tap& tap) const { return (tap.at - first) % step; }
  int32_t shift(const Tap& tap) const { return (tap.at - first) / step; }

  // The pitch is the least for which what is read beyond a line's end is padding, there and at the
  // begin of the next line. size: pixels.
  Axis(const std::vector<Line>& lines, int32_t step_, int32_t size) : step(step_) {
    bool any = false;
    for (const Line& line : lines) {
      pitch = std::max(pitch, line.count);
      for (const Tap& tap : line.taps) first = any ? std::min(first, tap.at) : tap.at, any = true;
    }
    const auto is_padding = [&](int32_t i, int32_t of_part) {
      const int64_t pixel = int64_t{i} * step + of_part + first;
      return pixel < 0 || pixel >= size;
    };
    const auto fits = [&](const Line& line, const Tap& tap) {
      for (int32_t i = pitch; i < line.count + shift(tap); ++i)
        if (!is_padding(i, part(tap)) || !is_padding(i - pitch, part(tap))) return false;
      return true;
    };
    for (const Line& line : lines)
      for (const Tap& tap : line.taps)
        while (!fits(line, tap)) ++pitch;
  }
};

constexpr int64_t kMostBox = 256;  // of a copy

// How a tile is cut, and how many slots its pipelines have.
struct Form {
  int64_t columns = 256, down = 2, weave = 1, channels = 64, x_stages = 2, w_stages = 4;
  int64_t advance = 256;  // positions from warpgroup to warpgroup, at most `columns`

  int64_t positions() const { return 2 / down * advance; }
  int64_t filters() const { return down * 64; }
  // Copies of a stage, and the positions of each. halo: the farthest shift.
  int64_t boxes(int64_t halo) const {
    return blocks_for(positions() - advance + columns + halo, kMostBox);
  }
  int64_t rows(int64_t halo) const {
    return blocks_for(positions() - advance + columns + halo, boxes(halo) * 8) * 8;
  }
  // As Layout of the text.
  int64_t shared(int64_t halo) const {
    constexpr int64_t kRow = 128, kWarps = 8, kBarriers = 16;
    return rows(halo) * boxes(halo) * x_stages * kRow + w_stages * filters() * kRow +
           kWarps * 8 * (columns * weave + 8) * 2 + kBarriers * (x_stages + w_stages);
  }
  std::vector<std::string> defines() const {
    return {define("COLUMNS", columns),   define("DOWN", down),
            define("WEAVE", weave),       define("CHANNELS", channels),
            define("X_STAGES", x_stages), define("W_STAGES", w_stages)};
  }
};
// Blocks of a form, and cycles that a multiprocessor takes for all.
struct Cost {
  int64_t tiles_m = 0, tiles_n = 0;
  double cycles = 0;
};
Cost cost_of(const Form& f, const args::ConvShifts& a, int64_t halo, int64_t processors) {
  // Of all phases: taps, and copies of pixels.
  int64_t taps = 0, planes = 0;
  for (const args::ConvShiftPlane& plane : a.planes) taps += plane.taps;
  for (uint32_t k = 0; k < a.phases * f.weave; k += static_cast<uint32_t>(f.weave))
    planes += f.weave > 1 ? 1 : a.phase[k].planes;
  Cost c{blocks_for(a.m, f.filters()), blocks_for(a.positions, f.positions())};
  const int64_t tiles = c.tiles_m * c.tiles_n * a.phases * a.groups;
  // Sums that are stored meanwhile keep the tensor cores waiting.
  const auto columns = static_cast<double>(f.columns), phases = static_cast<double>(a.phases);
  constexpr double kRowBytes = 128, kBytes = 26;  // that come to a multiprocessor in a cycle
  const double product = static_cast<double>(f.channels) / 16 * columns *
                         std::max(1.0, (4096.0 + 64 * columns) / 128 / columns),
               stored = 400 + 6 * columns * static_cast<double>(f.weave),
               copied =
                   static_cast<double>(planes * f.rows(halo) * f.boxes(halo) + taps * f.filters()) *
                   kRowBytes / kBytes;
  const double sums = static_cast<double>(blocks_for(a.c, 64)) / phases *
                      std::max(static_cast<double>(taps) * product, copied);
  c.cycles = static_cast<double>(blocks_for(tiles, processors)) * (sums + stored) + 3000;
  return c;
}

// Makes the phases of a line of the result one, as the kernel stores them.
void weave(args::ConvShifts& a) {
  a.phases /= 2;
  for (uint32_t row = 0; row < a.phases; ++row) {
    args::ConvShiftPhase& phase = a.phase[row * 2];
    phase.columns = a.out_columns;
    phase.by_row = Divisor(static_cast<uint32_t>(a.out_columns));
    phase.by_image = Divisor(static_cast<uint32_t>(std::max(phase.rows * a.out_columns, 1)));
  }
  a.by_line = Divisor(a.by_line.value * 2), a.by_image = Divisor(a.by_image.value * 2);
}

}  // namespace

std::optional<ConvShiftPlan> conv_shift_plan(const ConvProblem& p) {
  const ConvGeometry& g = p.geometry;
  const auto& [depth, height, width] = g.axes;
  if (depth.in != 1 || depth.out != 1 || depth.kernel != 1 || depth.before != 0) return {};
  // Bounds that no window of use reaches.
  constexpr int32_t kMostStride = 4, kMostReach = 256;
  for (const args::ConvAxis* a : {&height, &width})
    if (a->stride > kMostStride || a->kernel > args::kMostShiftTaps || a->before > kMostReach ||
        int64_t{a->kernel} * a->dilation > kMostReach)
      return {};
  if (height.stride != width.stride) return {};
  ConvShiftPlan plan;
  args::ConvShifts& s = plan.shifts;
  args::ConvGrid& grid = plan.grid;
  const args::ConvShape shape = p.shape();
  // Groups lie side by side in a position, in whole pieces of 8 channels.
  if (g.n == 0 || (shape.groups > 1 && shape.c % 8 != 0)) return {};
  s.c = shape.c, s.m = shape.m, s.groups = shape.groups, s.batch = static_cast<int32_t>(g.n);
  s.c_padded = (s.c + 7) / 8 * 8;
  s.spread = p.transposed ? height.stride : 1;
  s.out_columns = p.transposed ? width.in : width.out;
  s.plane = p.plane();
  grid.rows = p.transposed ? height.out : height.in;
  grid.columns = p.transposed ? width.out : width.in;
  grid.step = p.transposed ? 1 : height.stride;
  const std::vector<Line> rows = lines_of(height, p.transposed),
                          columns = lines_of(width, p.transposed);
  const Axis down(rows, grid.step, grid.rows), across(columns, grid.step, grid.columns);
  const int64_t image = int64_t{down.pitch} * across.pitch;
  const int64_t most_rows = std::ranges::max(rows, {}, &Line::count).count;
  const int64_t positions = s.batch * image;
  if (grid.step * grid.step * positions >= kNarrowIndex / 2) return {};
  const auto narrow = [](int64_t v) { return static_cast<uint32_t>(v); };
  const auto divisor = [&](int64_t v) { return Divisor(narrow(std::max<int64_t>(v, 1))); };
  grid.row0 = down.first, grid.column0 = across.first;
  grid.batch = narrow(g.n), grid.channels = narrow(int64_t{s.groups} * s.c);
  grid.padded = narrow(int64_t{s.groups} * s.c_padded);
  grid.by_image = s.by_image = divisor(image), grid.by_line = s.by_line = divisor(across.pitch);
  grid.by_row = divisor(grid.columns);
  grid.positions = narrow(positions);
  s.positions = narrow((s.batch - 1) * image + most_rows * across.pitch);
  uint32_t planes = 0, taps = 0;
  s.phases = 0;
  for (const Line& row : rows)
    for (const Line& column : columns) {
      if (s.phases == args::kMostShiftPlanes) return {};
      args::ConvShiftPhase& phase = s.phase[s.phases++];
      phase.rows = row.count, phase.columns = column.count;
      phase.row = row.origin, phase.column = column.origin;
      phase.by_image = divisor(int64_t{row.count} * column.count);
      phase.by_row = divisor(column.count);
      phase.first_plane = planes;
      for (int32_t part = 0; part < grid.step * grid.step; ++part) {
        const uint32_t first_tap = taps;
        for (const Tap& y : row.taps)
          for (const Tap& x : column.taps) {
            if (down.part(y) * grid.step + across.part(x) != part) continue;
            if (taps == args::kMostShiftTaps) return {};
            s.taps[taps++] = {down.shift(y) * across.pitch + across.shift(x),
                              y.kernel * width.kernel + x.kernel};
          }
        if (taps == first_tap) continue;
        if (planes == args::kMostShiftPlanes) return {};
        s.planes[planes++] = {static_cast<uint32_t>(part), first_tap, taps - first_tap};
      }
      phase.planes = planes - phase.first_plane;
    }
  return plan;
}

ConvPositions::ConvPositions(const args::ConvGrid& grid, const sdk::Value& from,
                             ConvScratch& scratch)
    : grid_(grid), from_(from.position()) {
  const int64_t plane = int64_t{grid.rows} * grid.columns;
  grid_.pixel_tiles = static_cast<uint32_t>(blocks_for(plane, 64));
  grid_.channel_tiles = static_cast<uint32_t>(blocks_for(grid.padded, 64));
  width_ = common_width(2, plane, {from});
  at_ = scratch.add(static_cast<uint64_t>(parts() * grid.positions) * grid.padded * 2);
}
args::TensorMap ConvPositions::map(const Call& call, tenon_dtype dtype, int64_t groups,
                                   int64_t rows) const {
  const int64_t padded = grid_.padded / groups;
  return tensor_map<4>(place(call), dtype, {padded, groups, grid_.positions, parts()},
                       {padded, grid_.padded, int64_t{grid_.positions} * grid_.padded},
                       {64, 1, rows, 1});
}

ConvFiller::ConvFiller(CudaDevice& device, std::span<const ConvPositions> positions,
                       const ConvFilterOrder* filters)
    : positions_(positions.begin(), positions.end()) {
  if (filters) filters_ = *filters;
  int64_t blocks = filters ? blocks_for(filters->work().count, 8 * 256) : 0, width = 8;
  for (const ConvPositions& p : positions_) {
    const args::ConvGrid& g = p.grid_;
    blocks += int64_t{g.batch} * g.pixel_tiles * g.channel_tiles +
              blocks_for(p.parts() * g.positions, 256);
    width = std::min(width, p.width_);
  }
  grid_ = {.blocks = launchable(blocks), .threads = 256, .early = device.properties().early_starts};
  code_ = device.code(entries::conv_grid, {define("XW", width)});
}
void ConvFiller::run(const Call& call) const {
  args::ConvFill fill;
  for (size_t k = 0; k < positions_.size(); ++k)
    fill.images[k] = {call.in(positions_[k].from_), positions_[k].place(call), positions_[k].grid_};
  if (filters_) {
    fill.filters = filters_->work();
    fill.w = call.in(filters_->input()), fill.ordered = filters_->place(call);
  }
  code_.launch(call, grid_, fill);
}

std::optional<Kernel> conv_by_shifts(const Node& node, const ConvProblem& p) {
  constexpr int kWarpgroupsMajor = 9;  // later devices do not have wgmma
  constexpr int64_t kFewChannels = 16, kFewFilters = 32;
  CudaDevice& device = device_of(node);
  const ConvGeometry& g = p.geometry;
  if (!is_half(g.dtype) || device.properties().major != kWarpgroupsMajor) return {};
  if (g.pointwise() || p.shape().c < kFewChannels || p.shape().m < kFewFilters) return {};
  // Phases have few taps each, and their pixels are not side by side, but those of two can be woven.
  const bool strided = p.transposed && (g.axes[1].stride > 1 || g.axes[2].stride > 1);
  if (strided && (g.axes[2].stride != 2 || g.axes[2].in < 2)) return {};
  std::optional<ConvShiftPlan> plan = conv_shift_plan(p);
  if (!plan) return {};
  args::ConvShifts a = plan->shifts;
  int64_t halo = 0;
  for (const args::ConvShiftTap& tap : a.taps) halo = std::max<int64_t>(halo, tap.shift);
  // Pairs are stored where possible. The lanes of a warp read them without bank conflicts.
  const int64_t woven = strided ? 2 : 1, pitch = a.by_line.value,
                padding = pitch - a.phase[0].columns;
  if (strided) weave(a);
  int64_t width = 2;
  for (const sdk::Value& v : p.ending.aligned)
    if (v) width = std::min<int64_t>(width, common_width(2, a.out_columns, {v}));

  const int64_t room = device.properties().shared_per_block,
                processors = device.properties().multiprocessors;
  std::optional<Form> form;
  Cost best;
  for (const int64_t columns : {256, 240, 224, 192, 160, 128, 96, 64})
    for (const int64_t down : {2, 1})
      for (const int64_t w_stages : {4, 3}) {
        if (columns * woven > 256) break;
        Form f{.columns = columns, .down = down, .weave = woven, .w_stages = w_stages};
        f.channels = std::min<int64_t>(blocks_for(a.c, 16) * 16, 64);
        // Whole lines, so that a tile begins with a whole vector of windows.
        const int64_t whole = (columns + padding) / pitch * pitch;
        f.advance = width > 1 && whole * 10 >= columns * 9 ? std::min(columns, whole) : columns;
        if (f.shared(halo) > room) continue;
        const Cost c = cost_of(f, a, halo, processors);
        if (!form || c.cycles < best.cycles) form = f, best = c;
        break;
      }
  if (!form) return {};
  const auto narrow = [](int64_t v) { return static_cast<uint32_t>(v); };
  a.tiles_m = narrow(best.tiles_m), a.tiles_n = narrow(best.tiles_n);
  const int64_t tiles = launchable(best.tiles_m * best.tiles_n * a.phases * a.groups);
  // Too few tiles: others split the terms.
  if (tiles * 2 < processors) return {};
  a.tiles = narrow(tiles), a.advance = narrow(form->advance);
  a.rows = narrow(form->rows(halo)), a.boxes = narrow(form->boxes(halo));

  std::vector<std::string> d = form->defines();
  d.push_back("TYPE=" + type_name("x", g.dtype));
  d.push_back(define("YW", width));
  d.push_back(define("EDGES", width > 1 && form->advance % pitch != 0));
  std::ranges::copy(p.ending.defines(), std::back_inserter(d));
  const Grid blocks{.blocks = std::min(tiles, processors),
                    .threads = 384,
                    .shared = static_cast<uint32_t>(form->shared(halo)),
                    .early = device.properties().early_starts};
  const auto code = device.code(entries::conv_shifts, d, blocks.shared);

  ConvScratch scratch;
  const ConvFilterOrder filters(device, p, true, scratch);
  const ConvPositions x(plan->grid, p.from, scratch);
  const ConvFiller filler(device, {&x, 1}, &filters);
  const int64_t rows_of_w = int64_t{a.groups} * a.m, padded = filters.padded(), taps = g.taps();
  Kernel kernel = kernel_of({filler.code(), code}, [=, ending = p.ending, dtype = g.dtype,
                                                    box = form->filters()](const Call& c) {
    args::ConvShifts shifts = a;
    const void* const w = filters.place(c);
    filler.run(c);
    shifts.ends = ending.of(c);
    shifts.x = x.map(c, dtype, a.groups, a.rows);
    shifts.w = tensor_map<4>(w, dtype, {padded, taps, rows_of_w, 1},
                             {padded, padded * taps, padded * taps * rows_of_w}, {64, 1, box, 1});
    code.launch(c, blocks, shifts);
  });
  kernel.scratch = scratch.size();
  filters.add_to(kernel);
  return kernel;
}

}  // namespace tenon::cuda
