// SPDX-License-Identifier: Apache-2.0
// lu dense_solve cholesky triangular_solve: a warp for each matrix of up to 32 rows, a block for a larger one,
// in shared memory where it fits.
#include <algorithm>
#include <string>
#include <tuple>

#include "../device.hpp"
#include "../kernels.hpp"
#include "args.hpp"
#include "entries.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

void want_floats(tenon_dtype t) {
  if (t != TENON_DTYPE_F32 && t != TENON_DTYPE_F64) throw Refusal::dtype("a", t);
}

// Positions of operands and outputs; -1: none.
struct Places {
  int b = -1, x = -1, lu = -1, perm = -1;
};

args::Solve problem(const sdk::Type& a, int64_t columns, const std::string& policy) {
  want_floats(a.dtype);
  const int64_t n = a.dims[a.rank - 1];
  if (n > 4096 || columns > (1 << 16))
    throw Refusal::shape("more than 4096 rows, or 65536 right sides");
  args::Solve s{};
  s.matrices = 1, s.columns = columns, s.n = static_cast<int32_t>(n);
  for (int i = 0; i < a.rank - 2; ++i) s.matrices *= a.dims[i];
  s.keeps = policy == "keep", s.fails = policy == "error";
  return s;
}

// Where the blocks of an entry have their matrices.
struct Tiles {
  std::string define;  // of the text
  Grid grid;
  uint64_t area = 0;  // bytes of a block outside of shared memory
};
// For n rows beside `more` bytes.
Tiles tiles_of(const CudaDevice& device, const char* entry, const args::Solve& s, int64_t size,
               int64_t more) {
  const int64_t bytes = s.n * ((s.n + s.columns) | 1) * size + more;
  if (bytes <= device.properties().shared_room("linalg_block.cu", entry))
    return {
        "AREA=0",
        {.blocks = launchable(s.matrices), .threads = 256, .shared = static_cast<uint32_t>(bytes)}};
  // As many blocks as the device runs at once, if their areas are not too much.
  constexpr int64_t kMostArea = int64_t{1} << 30;
  const int64_t area = (bytes + 15) / 16 * 16;
  const int64_t most = std::min<int64_t>(4 * device.properties().multiprocessors, kMostArea / area);
  return {
      "AREA=1",
      {.blocks = std::clamp<int64_t>(s.matrices, 1, std::max<int64_t>(most, 1)), .threads = 256},
      static_cast<uint64_t>(area)};
}

args::Solve in_area(args::Solve s, const Tiles& tiles) {
  s.area = static_cast<int64_t>(tiles.area);
  return s;
}
args::Solve with_sink(args::Solve s, const Call& c) {
  s.sink = error_sink(c);
  return s;
}

Kernel factor(const sdk::Type& a, int64_t columns, const std::string& policy, const Places& at,
              const Node& node) {
  const args::Solve s = problem(a, columns, policy);
  const int64_t n = s.n;
  if (n == 0 || s.matrices == 0) return {.run = [](const Call&) {}};
  CudaDevice& device = device_of(node);
  const std::string type = "TYPE=" + type_name("a", a.dtype);
  const auto places = [=](const Call& c) {
    const auto output = [&](int place) { return place < 0 ? nullptr : c.outputs[place]; };
    return std::tuple(c.inputs[0], c.in(at.b), output(at.x), output(at.lu),
                      static_cast<int32_t*>(output(at.perm)));
  };
  Kernel kernel;
  if (n <= 32) {
    const int64_t rows = n <= 8 ? 8 : n <= 16 ? 16 : 32;
    const auto code = device.code(entries::linalg_warp, {type, define("ROWS", rows)});
    const Grid grid{.blocks = launchable(blocks_for(s.matrices, 4)), .threads = 128};
    kernel = kernel_of({code}, [=](const Call& c) {
      const auto [a, b, x, lu, perm] = places(c);
      code.launch(c, grid, a, b, x, lu, perm, with_sink(s, c));
    });
  } else {
    const Tiles tiles = tiles_of(device, "block", s, element_bytes(a.dtype), 4 * n);
    const auto code = device.code(entries::linalg_block, {type, tiles.define}, tiles.grid.shared);
    kernel = kernel_of({code}, [=, now = in_area(s, tiles)](const Call& c) {
      const auto [a, b, x, lu, perm] = places(c);
      code.launch(c, tiles.grid, a, b, x, lu, perm, c.scratch, with_sink(now, c));
    });
    kernel.scratch = tiles.area * static_cast<uint64_t>(tiles.grid.blocks);
  }
  kernel.can_fail = s.fails;
  return kernel;
}

Kernel make_cholesky(const sdk::op::cholesky& n, const Node& node) {
  const sdk::Type& a = n.a.type();
  const args::Solve s = problem(a, 0, n.on_singular);
  if (s.n == 0 || s.matrices == 0) return {.run = [](const Call&) {}};
  CudaDevice& device = device_of(node);
  const Tiles tiles = tiles_of(device, "cholesky", s, element_bytes(a.dtype), 0);
  const auto code =
      device.code(entries::linalg_cholesky, {"TYPE=" + type_name("a", a.dtype), tiles.define},
                  tiles.grid.shared);
  Kernel kernel = kernel_of({code}, [=, now = in_area(s, tiles)](const Call& c) {
    code.launch(c, tiles.grid, c.inputs[0], c.outputs[0], c.scratch, with_sink(now, c));
  });
  kernel.scratch = tiles.area * static_cast<uint64_t>(tiles.grid.blocks);
  kernel.can_fail = s.fails;
  return kernel;
}

Kernel make_lu(const sdk::op::lu& n, const Node& node) {
  return factor(n.a.type(), 0, n.on_singular,
                {.lu = node.out(0).position(), .perm = node.out(1).position()}, node);
}

Kernel make_dense_solve(const sdk::op::dense_solve& n, const Node& node) {
  const sdk::Type &a = n.a.type(), &b = n.b.type();
  const bool vectors = b.rank == a.rank - 1;
  bool same = vectors || a.rank == b.rank;
  for (int i = 0; same && i < a.rank - 2; ++i) same = a.dims[i] == b.dims[i];
  if (!same) throw Refusal::shape("the batch dims of a and b differ");
  return factor(a, vectors ? 1 : b.dims[b.rank - 1], n.on_singular,
                {.b = n.b.position(),
                 .x = node.out(0).position(),
                 .lu = node.out(1).position(),
                 .perm = node.out(2).position()},
                node);
}

// From matrix to matrix of an operand along each dim of the batch: 0 where it repeats.
void set_steps(const sdk::Type& x, int rank, int64_t* steps) {
  int64_t step = x.dims[x.rank - 2] * x.dims[x.rank - 1];
  for (int i = rank - 1, k = x.rank - 3; i >= 0; --i, --k) {
    const int64_t dim = k < 0 ? 1 : x.dims[k];
    steps[i] = dim == 1 ? 0 : step;
    step *= dim;
  }
}

Kernel make_triangular_solve(const sdk::op::triangular_solve& n, const Node& node) {
  const sdk::Type &a = n.a.type(), &b = n.b.type(), &x = node.out(0).type();
  want_floats(a.dtype);
  const int64_t size = a.dims[a.rank - 1];
  args::TriangleSolve s{};
  s.matrices = 1, s.columns = x.dims[x.rank - 1];
  s.rank = x.rank - 2;
  for (int i = 0; i < s.rank; ++i) s.matrices *= s.dims[i] = x.dims[i];
  set_steps(a, s.rank, s.a_steps), set_steps(b, s.rank, s.b_steps);
  s.row = n.trans_a ? 1 : size, s.column = n.trans_a ? size : 1;
  s.lower = n.upper == n.trans_a, s.unit = n.unit_diagonal;
  CudaDevice& device = device_of(node);
  constexpr int64_t kWarps = 4;
  const int64_t column = kWarps * size * element_bytes(a.dtype);
  const bool fits = column <= device.properties().shared_room("linalg_block.cu", "triangle");
  const auto shared = static_cast<uint32_t>(fits ? column : 0);
  if (size >= kNarrowIndex / 2) throw Refusal::shape("more than 2^30 rows");
  s.n = static_cast<int32_t>(size);
  const auto code =
      device.code(entries::linalg_triangle,
                  {"TYPE=" + type_name("a", a.dtype), fits ? "AREA=0" : "AREA=1"}, shared);
  const int64_t items = size == 0 ? 0 : s.matrices * s.columns;
  const Grid grid{
      .blocks = launchable(blocks_for(items, kWarps)), .threads = 32 * kWarps, .shared = shared};
  const int left = n.a.position(), right = n.b.position();
  return kernel_of({code}, [=](const Call& c) {
    code.launch(c, grid, c.inputs[left], c.inputs[right], c.outputs[0], s);
  });
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::lu, make_lu>(),
    sdk::row<sdk::op::dense_solve, make_dense_solve>(),
    sdk::row<sdk::op::cholesky, make_cholesky>(),
    sdk::row<sdk::op::triangular_solve, make_triangular_solve>(),
};

}  // namespace

std::span<const sdk::Row> linalg_rows() { return kRows; }

}  // namespace tenon::cuda
