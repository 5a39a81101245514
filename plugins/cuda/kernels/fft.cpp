// SPDX-License-Identifier: Apache-2.0
// fft, rfft and irfft of f32 parts. Rows that fit on chip are read and written once; an even number of real numbers
// is transformed as half as many complex ones. The planner decomposes other lengths.
#include "fft.hpp"

#include <bit>

#include "../kernels.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

// KIND of fft.cu.
enum class Rows { complex = 0, to_bins = 1, to_real = 2, odd_to_bins = 3, odd_to_real = 4 };

struct Problem {
  Rows kind;
  int64_t points, rows;
  int64_t in_row, out_row, there;  // elements
  bool inverse;
  double factor;
};

// Transforms of a block: about 256 threads, of which few are idle in the last warp.
int rows_of_block(int lanes) {
  constexpr int kThreads = 256;
  int best = 1;
  double used = 0;
  for (int rows = 1; rows <= std::max(kThreads / lanes, 1); ++rows) {
    const int threads = rows * lanes;
    if (2 * threads < kThreads && 2 * threads + lanes <= kThreads) continue;
    const double now = static_cast<double>(threads) / ((threads + 31) / 32 * 32);
    if (now >= used) used = now, best = rows;
  }
  return best;
}

bool on_pairs(const sdk::Value& v) { return v.alignment() > 0 && v.alignment() % 8 == 0; }

Kernel make_rows(const Problem& p, const sdk::Value& x, const sdk::Value& y, const Node& node) {
  const bool half = p.kind == Rows::to_bins || p.kind == Rows::to_real;
  const FftPlan plan = fft_plan(half ? p.points / 2 : p.points);
  CudaDevice& device = device_of(node);
  const auto room = static_cast<int64_t>(device.properties().shared_room("fft.cu", "rows"));
  const bool keeps = p.kind == Rows::to_bins;  // both parts of the results, to split them
  int rows = rows_of_block(plan.lanes);
  while (rows > 1 && rows * plan.bytes(1, 2) > room) --rows;
  const int parts = plan.bytes(1, 2) <= room ? 2 : 1;
  const int64_t shared = rows * plan.bytes(1, keeps ? 2 : parts);
  if (shared > room)
    throw Refusal::shape("a transform of " + std::to_string(p.points) +
                         " points does not fit shared memory");
  const auto threads = static_cast<uint32_t>(rows * plan.lanes);
  std::vector<std::string> defines = plan.defines(1, parts, threads);
  const bool complex_in =
      p.kind == Rows::complex || p.kind == Rows::to_real || p.kind == Rows::odd_to_real;
  const bool complex_out =
      p.kind == Rows::complex || p.kind == Rows::to_bins || p.kind == Rows::odd_to_bins;
  defines.push_back(define("KIND", static_cast<int>(p.kind)));
  defines.push_back(define("INVERSE", p.inverse));
  defines.push_back(define("IN8", on_pairs(x) && (complex_in || p.in_row % 2 == 0)));
  defines.push_back(define("OUT8", on_pairs(y) && (complex_out || p.out_row % 2 == 0)));
  const auto code = device.code(entries::fft_rows, defines, static_cast<uint32_t>(shared));
  const auto table = std::make_shared<DeviceTable>(device, [=] { return fft_roots(plan, half); });
  const Grid grid{.blocks = launchable(blocks_for(p.rows, rows)),
                  .threads = threads,
                  .shared = static_cast<uint32_t>(shared)};
  const args::FftRows g{.rows = p.rows,
                        .in_row = p.in_row,
                        .out_row = p.out_row,
                        .there = static_cast<int32_t>(p.there),
                        .factor = static_cast<float>(p.factor)};
  return kernel_with({table}, {code}, [=](const Call& c) {
    code.launch(c, grid, c.inputs[0], c.outputs[0], table->at(), g);
  });
}

// The axis must be the last one.
void want_last(int64_t axis, const sdk::Type& x) {
  if (axis != -1 && axis != x.rank - 1) throw Refusal::attribute("axis", std::to_string(axis));
  if (x.rank == 0 || x.dims[x.rank - 1] < 1)
    throw Refusal::shape("operand x: an axis without elements");
}
void want_dtype(const sdk::Type& x, tenon_dtype wanted) {
  if (x.dtype != wanted) throw Refusal::dtype("x", x.dtype);
}

// Does a row stay on chip?
bool fits(const CudaDevice& device, int64_t points) {
  const std::optional<FftPlan> plan = try_fft_plan(points);
  return plan && plan->bytes(1, 1) <= device.properties().shared_room("fft.cu", "rows");
}

Kernel make_fft(const sdk::op::fft& n, const Node& node) {
  const sdk::Type& x = n.x.type();
  want_dtype(x, TENON_DTYPE_C64);
  if (n.axes.size() > 1) throw Refusal::attribute("axes", "of several");
  const AxisView view = along_axis(x, n.axes.empty() ? -1 : n.axes[0]);
  if (view.length < 1) throw Refusal::shape("operand x: an axis without elements");
  const int64_t points = n.n.empty() ? view.length : n.n[0];
  const FftJob job{.points = points,
                   .length = view.length,
                   .rows = view.outer * view.inner,
                   .inverse = n.inverse,
                   .factor = fft_factor(n.norm, n.inverse, points),
                   .in_pairs = on_pairs(n.x),
                   .out_pairs = on_pairs(node.out(0))};
  CudaDevice& device = device_of(node);
  Kernel kernel = view.inner > 1         ? fft_along_axis(device, job, view.inner)
                  : fits(device, points) ? make_rows({.kind = Rows::complex,
                                                      .points = points,
                                                      .rows = job.rows,
                                                      .in_row = view.length,
                                                      .out_row = points,
                                                      .there = std::min(view.length, points),
                                                      .inverse = n.inverse,
                                                      .factor = job.factor},
                                                     n.x, node.out(0), node)
                                         : fft_in_steps(device, job);
  // A block reads all that it transforms before it writes.
  if (view.length == points) kernel.in_place = {{0, 0}};
  return kernel;
}

Kernel make_rfft(const sdk::op::rfft& n, const Node& node) {
  const sdk::Type& x = n.x.type();
  want_dtype(x, TENON_DTYPE_F32);
  want_last(n.axis, x);
  const int64_t length = x.dims[x.rank - 1], points = n.n == 0 ? length : n.n;
  return make_rows({.kind = points % 2 == 0 ? Rows::to_bins : Rows::odd_to_bins,
                    .points = points,
                    .rows = x.elements() / length,
                    .in_row = length,
                    .out_row = points / 2 + 1,
                    .there = std::min(length, points),
                    .inverse = false,
                    .factor = fft_factor(n.norm, false, points)},
                   n.x, node.out(0), node);
}

Kernel make_irfft(const sdk::op::irfft& n, const Node& node) {
  const sdk::Type& x = n.x.type();
  want_dtype(x, TENON_DTYPE_C64);
  want_last(n.axis, x);
  const int64_t bins = x.dims[x.rank - 1], points = n.n == 0 ? 2 * (bins - 1) : n.n;
  if (points < 1) throw Refusal::attribute("n", std::to_string(n.n));
  return make_rows({.kind = points % 2 == 0 ? Rows::to_real : Rows::odd_to_real,
                    .points = points,
                    .rows = x.elements() / bins,
                    .in_row = bins,
                    .out_row = points,
                    .there = std::min(bins, points / 2 + 1),
                    .inverse = true,
                    .factor = fft_factor(n.norm, true, points)},
                   n.x, node.out(0), node);
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::fft, make_fft>(),
    sdk::row<sdk::op::rfft, make_rfft>(),
    sdk::row<sdk::op::irfft, make_irfft>(),
    sdk::row<sdk::op::stft, make_stft>(),
};

}  // namespace

std::span<const sdk::Row> fft_rows() { return kRows; }

}  // namespace tenon::cuda
