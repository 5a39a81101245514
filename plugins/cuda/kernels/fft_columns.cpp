// SPDX-License-Identifier: Apache-2.0
// fft along an axis that is not the last one, and of rows that are too long for one block: two steps, whose operands
// and results are columns and rows of a matrix.
#include <algorithm>

#include "fft.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Refusal;

constexpr int64_t kMostSteps = int64_t{1} << 24;  // points; f32 counts them exactly
constexpr int64_t kMostInStep = 4096;             // of one of two steps

// How a block transforms columns: `columns` of them at once.
struct Tile {
  FftPlan plan;
  int columns = 0, parts = 0;
  uint32_t threads() const { return static_cast<uint32_t>(plan.lanes * columns); }
  uint32_t shared() const { return static_cast<uint32_t>(plan.bytes(columns, parts)); }
};
// most: there are no more columns. None if a block cannot have so many points.
std::optional<Tile> try_tile(const CudaDevice& device, int64_t points, int64_t most) {
  const std::optional<FftPlan> plan = try_fft_plan(points);
  if (!plan) return std::nullopt;
  const auto room =
      static_cast<int64_t>(device.properties().shared_room("fft_columns.cu", "columns"));
  struct Limit {
    int least, threads, parts;
    int64_t bytes;
  };
  // Accesses of 32 bytes at least; better two blocks of a multiprocessor.
  const Limit limits[] = {{8, 512, 2, room / 2}, {8, 1024, 2, room}, {4, 1024, 2, room},
                          {4, 1024, 1, room},    {2, 1024, 2, room}, {2, 1024, 1, room}};
  for (const Limit& l : limits)
    for (int columns = 128; columns >= l.least; columns /= 2) {
      if (columns > l.least && columns / 2 >= most) continue;
      const Tile tile{*plan, columns, l.parts};
      if (plan->lanes * columns <= l.threads && plan->bytes(columns, l.parts) <= l.bytes)
        return tile;
    }
  return std::nullopt;
}

struct Step {
  CodeFor<entries::fft_columns> code{};
  std::shared_ptr<DeviceTable> table{};
  uint32_t threads = 0, shared = 0;
  bool early = false;

  Step(CudaDevice& device, const Tile& tile, int step, const FftJob& job, int next)
      : threads(tile.threads()), shared(tile.shared()), early(device.properties().early_starts) {
    std::vector<std::string> defines = tile.plan.defines(tile.columns, tile.parts, threads);
    for (const std::string& d :
         {define("STEP", step), define("INVERSE", job.inverse), define("NEXT", next),
          define("IN8", job.in_pairs), define("OUT8", job.out_pairs)})
      defines.push_back(d);
    code = device.code(entries::fft_columns, defines, shared);
    table = std::make_shared<DeviceTable>(device,
                                          [plan = tile.plan] { return fft_roots(plan, false); });
  }
  void launch(const Call& c, int64_t outer, const void* x, void* y,
              const args::FftColumns& g) const {
    const Grid grid{
        .blocks = outer * g.groups, .threads = threads, .shared = shared, .early = early};
    code.launch(c, grid, x, y, table->at(), g);
  }
};

// The two factors of a long row, as equal as possible; 0 where there are none.
struct Factors {
  std::optional<Tile> first{}, second{};
  explicit operator bool() const { return first && second; }
};
Factors factors_of(const CudaDevice& device, int64_t points) {
  for (auto small = static_cast<int64_t>(std::sqrt(static_cast<double>(points)));
       small > 1 && points / small <= kMostInStep; --small) {
    if (points % small != 0) continue;
    const Factors f{try_tile(device, small, points), try_tile(device, points / small, points)};
    if (f) return f;
  }
  return {};
}

// Transforms that take both steps before the next ones do. Fewer would leave the results of the first step in L2, but
// each launch ends with idle multiprocessors: on an H200, 64 transforms of 2^20 points take 638 us at once, 730 in fours.
int64_t rows_at_once(int64_t blocks, int64_t area) {
  constexpr int64_t kPoint = 8, kMostScratch = 512 << 20, kMostBlocks = int64_t{1} << 20;
  return std::max<int64_t>(std::min(kMostScratch / (area * kPoint), kMostBlocks / blocks), 1);
}

}  // namespace

Kernel fft_along_axis(CudaDevice& device, const FftJob& job, int64_t inner) {
  fft_plan(job.points);  // says what is wrong with the length
  const std::optional<Tile> tile = try_tile(device, job.points, inner);
  if (!tile)
    throw Refusal::shape("columns of " + std::to_string(job.points) +
                         " points do not fit shared memory");
  const Step step(device, *tile, 0, job, 1);
  const auto groups = launchable(blocks_for(inner, tile->columns));
  const int64_t outer = job.rows / std::max<int64_t>(inner, 1);
  launchable(outer * groups);
  const args::FftColumns g{.columns = inner,
                           .in_outer = job.length * inner,
                           .out_outer = job.points * inner,
                           .groups = static_cast<uint32_t>(groups),
                           .there = static_cast<int32_t>(std::min(job.length, job.points)),
                           .factor = static_cast<float>(job.factor),
                           .points = 1,
                           .inverse = 1};
  return kernel_with({step.table}, {step.code},
                     [=](const Call& c) { step.launch(c, outer, c.inputs[0], c.outputs[0], g); });
}

Kernel fft_in_steps(CudaDevice& device, const FftJob& job) {
  if (job.points > kMostSteps)
    throw Refusal::shape("a transform of more than " + std::to_string(kMostSteps) + " points");
  if (job.length != job.points) throw Refusal::attribute("n", std::to_string(job.points));
  const Factors f = factors_of(device, job.points);
  if (!f)
    throw Refusal::shape("a transform of " + std::to_string(job.points) +
                         " points, which are no product of two numbers with prime factors from 2 "
                         "to 13 that fit a block");
  const int64_t rows = f.first->plan.points, row = f.second->plan.points;
  const int next = f.second->columns;
  const Step first(device, *f.first, 1, job, next), second(device, *f.second, 2, job, next);
  const int64_t groups = blocks_for(rows, next), area = groups * next * row;
  const auto points = static_cast<float>(job.points);
  const args::FftColumns columns{.columns = row,
                                 .in_outer = job.points,
                                 .out_outer = area,
                                 .groups = static_cast<uint32_t>(blocks_for(row, f.first->columns)),
                                 .there = static_cast<int32_t>(rows),
                                 .factor = 1,
                                 .points = points,
                                 .inverse = 1 / points};
  const args::FftColumns lines{.columns = rows,
                               .in_outer = area,
                               .out_outer = job.points,
                               .groups = static_cast<uint32_t>(groups),
                               .there = static_cast<int32_t>(row),
                               .factor = static_cast<float>(job.factor),
                               .points = points,
                               .inverse = 1 / points};
  constexpr int64_t kPoint = 8;  // bytes
  const int64_t part = std::min(rows_at_once(groups, area), std::max<int64_t>(job.rows, 1));
  Kernel kernel =
      kernel_with({first.table, second.table}, {first.code, second.code}, [=](const Call& c) {
        for (int64_t from = 0; from < job.rows; from += part) {
          const int64_t count = std::min(part, job.rows - from), at = from * job.points * kPoint;
          first.launch(c, count, static_cast<const char*>(c.inputs[0]) + at, c.scratch, columns);
          second.launch(c, count, c.scratch, static_cast<char*>(c.outputs[0]) + at, lines);
        }
      });
  kernel.scratch = static_cast<uint64_t>(part * area * kPoint);
  return kernel;
}

}  // namespace tenon::cuda
