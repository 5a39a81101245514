// SPDX-License-Identifier: Apache-2.0
// knn of points: all distances, tile by tile, with a list of the nearest candidates of each point.
// Many coordinates are multiplied first: products choose candidates, whose distances are then
// computed; points whose neighbours may not be among them are compared with all others.
#include <algorithm>
#include <string>

#include "../device.hpp"
#include "../kernels.hpp"
#include "args.hpp"
#include "entries.hpp"
#include "lines.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

constexpr int64_t kList = 32;                       // entries of a list
constexpr int64_t kScanRows = 16, kNearRows = 128;  // of a block
constexpr uint32_t kNearBytes = 51712;              // of Area in knn_near.cu

int32_t metric_of(const std::string& name) {
  return name == "euclidean" ? 1 : name == "cosine" ? 2 : name == "inner" ? 3 : 0;
}

// Parts of the candidates, so that all multiprocessors work where there are few points.
int32_t parts_of(int64_t blocks, int64_t others, const CudaDevice& device) {
  const int64_t wanted = 2 * int64_t{device.properties().multiprocessors};
  const int64_t most = std::min<int64_t>(blocks_for(others, 512), 64);
  return static_cast<int32_t>(std::clamp(wanted / std::max<int64_t>(blocks, 1), int64_t{1}, most));
}

sdk::Kernel make_knn(const sdk::op::knn& n, const sdk::Node& node) {
  if (!n.x) throw Refusal::shape("given distances are decomposed");
  const sdk::Type& type = n.x.type();
  const sdk::Type& right = n.y ? n.y.type() : type;
  if (!is_float(type.dtype) || type.dtype == TENON_DTYPE_F64) throw Refusal::dtype("x", type.dtype);
  if (n.k > kList) throw Refusal::attribute("k", std::to_string(n.k));
  int64_t batch = 1;
  for (int i = 0; i < type.rank - 2; ++i) batch *= type.dims[i];
  if (type.dims[type.rank - 1] >= kNarrowIndex / kNearRows)
    throw Refusal::shape("points of more than 2^24 coordinates");
  args::Knn s{.rows = type.dims[type.rank - 2],
              .others = right.dims[right.rank - 2],
              .batch = batch,
              .coords = static_cast<int32_t>(type.dims[type.rank - 1]),
              .k = static_cast<int32_t>(n.k),
              .metric = metric_of(n.metric),
              .own = !n.y,
              .excluded = !n.y && n.exclude_self};
  CudaDevice& device = device_of(node);
  const bool inner = s.metric == 3, unit = s.metric == 2;
  const bool copies = unit || type.dtype != TENON_DTYPE_F32;
  const bool near = !inner && batch == 1 && s.coords > 32 && s.k <= 24 && s.rows >= 32 &&
                    s.rows < kNarrowIndex - 1 && s.others >= 512 &&
                    kNearBytes <= device.properties().shared_room("knn_near.cu", "near");
  const int64_t blocks = batch * blocks_for(s.rows, near ? kNearRows : kScanRows);
  s.parts = parts_of(blocks, s.others, device);

  uint64_t scratch = 0;
  const auto area = [&](bool wanted, int64_t bytes) {
    return take_scratch(scratch, wanted ? static_cast<uint64_t>(bytes) : 0);
  };
  const int64_t points = batch * s.rows, candidates = batch * s.others;
  const bool norms = near || unit, apart = bool(n.y);
  const uint64_t x_at = area(copies, points * s.coords * 4);
  const uint64_t y_at = area(copies && apart, candidates * s.coords * 4);
  const uint64_t x_norm_at = area(norms, points * 4);
  const uint64_t y_norm_at = area(norms && apart, candidates * 4);
  const uint64_t lists_at = area(near || s.parts > 1, points * s.parts * kList * 8);
  const uint64_t unsure_at = area(near, (points + 1) * 4);

  const std::vector<std::string> defines = {"TYPE=" + type_name("x", type.dtype),
                                            define("INNER", inner)};
  const bool vectors =
      s.coords % 4 == 0 && (copies || (on_vectors(n.x) && (!apart || on_vectors(n.y))));
  const std::vector<std::string> width = {define("VEC", vectors ? 4 : 1)};
  const auto prepare = device.code(entries::knn_prepare, defines);
  const auto scan = device.code(entries::knn_scan, defines);
  const auto scan_unsure = device.code(entries::knn_scan_unsure, defines);
  const auto join = device.code(entries::knn_join, defines);
  std::vector<Code> codes = {prepare, scan, scan_unsure, join};
  CodeFor<entries::knn_near> search;
  CodeFor<entries::knn_choose> choose;
  if (near) {
    search = device.code(entries::knn_near, width, kNearBytes);
    choose = device.code(entries::knn_choose, width);
    codes.push_back(search), codes.push_back(choose);
  }
  const Grid grid{.blocks = launchable(blocks * s.parts), .threads = 128};
  const Grid near_grid{.blocks = grid.blocks, .threads = 256, .shared = kNearBytes};
  const Grid unsure_grid{.blocks = launchable(blocks_for(s.rows, kScanRows)), .threads = 128};
  sdk::Kernel kernel =
      kernel_of(codes, [=, x = n.x.position(), y = n.y.position()](const sdk::Call& c) {
        args::Knn own = s;
        const auto points_of = [&](int operand, int64_t count, uint64_t at, uint64_t norm_at,
                                   const float** to, const float** norm) {
          float* const copy = copies ? scratch_at<float>(c, at) : nullptr;
          float* const norm_to = norms ? scratch_at<float>(c, norm_at) : nullptr;
          if (copies || norms)
            prepare.launch(c, {.blocks = blocks_for(count, 4), .threads = 128}, c.in(operand), copy,
                           norm_to, count, s.coords, unit);
          *to = copies ? copy : c.in<float>(operand);
          *norm = norm_to;
        };
        points_of(x, points, x_at, x_norm_at, &own.x, &own.x_norm);
        own.y = own.x, own.y_norm = own.x_norm;
        if (y >= 0) points_of(y, candidates, y_at, y_norm_at, &own.y, &own.y_norm);
        own.lists = scratch_at<args::u64>(c, lists_at);
        auto* const index = static_cast<int32_t*>(c.outputs[0]);
        auto* const distance = static_cast<float*>(c.outputs[1]);
        const Grid rows_grid{.blocks = blocks_for(points, 4), .threads = 128};
        if (near) {
          own.unsure = scratch_at<int32_t>(c, unsure_at);
          search.launch(c, near_grid, own);
          choose.launch(c, rows_grid, own, index, distance);
          own.parts = 1;
          scan_unsure.launch(c, unsure_grid, own, index, distance);
          return;
        }
        scan.launch(c, grid, own, index, distance);
        if (own.parts > 1) join.launch(c, rows_grid, own, index, distance);
      });
  kernel.scratch = scratch;
  return kernel;
}

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::knn, make_knn>()};

}  // namespace

std::span<const sdk::Row> knn_rows() { return kRows; }

}  // namespace tenon::cuda
