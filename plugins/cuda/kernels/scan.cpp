// SPDX-License-Identifier: Apache-2.0
// cumsum: rows in one pass; few long rows in pieces, whose sums are made first.
#include <algorithm>

#include "../device.hpp"
#include "../kernels.hpp"
#include "entries.hpp"
#include "lines.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

// Signed and unsigned sums wrap alike.
tenon_dtype unsigned_dtype(tenon_dtype t) {
  switch (t) {
    case TENON_DTYPE_I8:
      return TENON_DTYPE_U8;
    case TENON_DTYPE_I16:
      return TENON_DTYPE_U16;
    case TENON_DTYPE_I32:
      return TENON_DTYPE_U32;
    case TENON_DTYPE_I64:
      return TENON_DTYPE_U64;
    default:
      return t;
  }
}

Kernel make_cumsum(const sdk::op::cumsum& n, const Node& node) {
  const sdk::Type& x = n.x.type();
  const tenon_dtype dtype = unsigned_dtype(x.dtype);
  if (!is_float(dtype) && !is_integer(dtype)) throw sdk::Refusal::dtype("x", x.dtype);
  CudaDevice& device = device_of(node);
  AxisView lines = along_axis(x, n.axis);
  if (lines.inner > 1) lines = lines_along(x, n.axis);  // a thread counts its column in 32 bits
  const int64_t bytes = element_bytes(dtype), length = lines.length;
  int64_t vec = lines.inner > 1 ? 1 : 16 / bytes;
  if (length % vec != 0 || n.x.alignment() % 16 != 0) vec = 1;
  const int64_t warps = length <= 1024 ? 1 : 8;
  const auto code_of = [&](const auto& entry) {
    return device.code(entry,
                       {"TYPE=" + type_name("x", dtype), define("VEC", vec), define("WARPS", warps),
                        define("EXCLUSIVE", n.exclusive), define("REVERSE", n.reverse)});
  };
  args::ScanShape shape{lines.count(), lines.inner, length, 1, static_cast<uint32_t>(length)};
  Kernel kernel;
  if (lines.inner > 1 || lines.count() == 0 || length == 0) {
    const Grid grid{.blocks = length == 0 ? 0 : blocks_for(lines.count(), 128), .threads = 128};
    const auto columns = code_of(entries::scan_columns);
    kernel = kernel_of({columns}, [=](const Call& c) {
      columns.launch(c, grid, c.inputs[0], c.outputs[0], shape);
    });
    kernel.in_place = {{0, 0}};
    return kernel;
  }
  // Pieces of whole tiles, enough for the device, and so many that 32 bits count in each.
  constexpr int64_t kLeast = 16384, kMost = 1 << 30;
  const int64_t wanted = int64_t{4} * device.properties().multiprocessors;
  int64_t pieces = std::max(
      std::clamp<int64_t>(wanted / lines.count(), 1, std::max<int64_t>(length / kLeast, 1)),
      blocks_for(length, kMost));
  const int64_t piece = (blocks_for(length, pieces) + kLeast - 1) / kLeast * kLeast;
  if (pieces > 1) {
    pieces = blocks_for(length, piece);
    shape.pieces = static_cast<uint32_t>(pieces);
    shape.piece = static_cast<uint32_t>(piece);
  }
  const auto rows = code_of(entries::scan_rows);
  const auto sums = code_of(entries::scan_sums);
  const Grid grid{.blocks = blocks_for(lines.count() * pieces, 8 / warps)},
      sums_grid{.blocks = lines.count() * pieces};
  kernel = kernel_of({rows, sums}, [=](const Call& c) {
    void* const starts = pieces > 1 ? c.scratch : nullptr;
    if (starts) sums.launch(c, sums_grid, c.inputs[0], starts, shape);
    rows.launch(c, grid, c.inputs[0], c.outputs[0], starts, shape);
  });
  if (pieces > 1) kernel.scratch = static_cast<uint64_t>(lines.count() * pieces) * sizeof(double);
  kernel.in_place = {{0, 0}};
  return kernel;
}

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::cumsum, make_cumsum>()};

}  // namespace

std::span<const sdk::Row> scan_rows() { return kRows; }

}  // namespace tenon::cuda
