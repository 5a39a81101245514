// SPDX-License-Identifier: Apache-2.0
// lu dense_solve cholesky triangular_solve: a warp for each matrix of up to 32 rows, a block for one that fits
// shared memory.
#include <algorithm>
#include <string>

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
  if (n > 4096 || columns > (1 << 16)) throw Refusal::shape("matrices do not fit shared memory");
  args::Solve s{};
  s.matrices = 1, s.columns = columns, s.n = static_cast<int32_t>(n);
  for (int i = 0; i < a.rank - 2; ++i) s.matrices *= a.dims[i];
  s.keeps = policy == "keep", s.fails = policy == "error";
  return s;
}

// What a block needs for n rows beside `more` bytes; refuses what it does not have.
uint32_t block_shared(const CudaDevice& device, const char* entry, int64_t n, int64_t columns,
                      int64_t size, int64_t more) {
  const int64_t shared = n * ((n + columns) | 1) * size + more;
  if (shared > device.properties().shared_room("linalg_block.cu", entry))
    throw Refusal::shape("matrices do not fit shared memory");
  return static_cast<uint32_t>(shared);
}

Kernel factor(const sdk::Type& a, int64_t columns, const std::string& policy, const Places& at,
              const Node& node) {
  const args::Solve s = problem(a, columns, policy);
  const int64_t n = s.n;
  if (n == 0 || s.matrices == 0) return {.run = [](const Call&) {}};
  CudaDevice& device = device_of(node);
  const std::string type = "TYPE=" + type_name("a", a.dtype);
  const auto launcher = [&](const auto& code, const Grid& grid) {
    Kernel kernel = kernel_of({code}, [=](const Call& c) {
      args::Solve now = s;
      now.sink = error_sink(c);
      const auto output = [&](int place) { return place < 0 ? nullptr : c.outputs[place]; };
      code.launch(c, grid, c.inputs[0], c.in(at.b), output(at.x), output(at.lu),
                  static_cast<int32_t*>(output(at.perm)), now);
    });
    kernel.can_fail = s.fails;
    return kernel;
  };
  if (n <= 32) {
    const int64_t rows = n <= 8 ? 8 : n <= 16 ? 16 : 32;
    const auto code = device.code(entries::linalg_warp, {type, define("ROWS", rows)});
    return launcher(code, {.blocks = launchable(blocks_for(s.matrices, 4)), .threads = 128});
  }
  const uint32_t shared = block_shared(device, "block", n, columns, element_bytes(a.dtype), 4 * n);
  const auto code = device.code(entries::linalg_block, {type}, shared);
  return launcher(code, {.blocks = launchable(s.matrices), .threads = 256, .shared = shared});
}

Kernel make_cholesky(const sdk::op::cholesky& n, const Node& node) {
  const sdk::Type& a = n.a.type();
  const args::Solve s = problem(a, 0, n.on_singular);
  if (s.n == 0 || s.matrices == 0) return {.run = [](const Call&) {}};
  CudaDevice& device = device_of(node);
  const uint32_t shared = block_shared(device, "cholesky", s.n, 0, element_bytes(a.dtype), 0);
  const auto code =
      device.code(entries::linalg_cholesky, {"TYPE=" + type_name("a", a.dtype)}, shared);
  const Grid grid{.blocks = launchable(s.matrices), .threads = 256, .shared = shared};
  Kernel kernel = kernel_of({code}, [=](const Call& c) {
    args::Solve now = s;
    now.sink = error_sink(c);
    code.launch(c, grid, c.inputs[0], c.outputs[0], now);
  });
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

// From matrix to matrix of an operand of the batch; refuses batches that broadcast in part.
int64_t step_of(const sdk::Type& x, const sdk::Type& batch) {
  int64_t own = 1, all = 1;
  for (int i = 0; i < x.rank - 2; ++i) own *= x.dims[i];
  for (int i = 0; i < batch.rank - 2; ++i) all *= batch.dims[i];
  if (own == 1) return 0;
  if (own != all) throw Refusal::shape("the batch dims of a and b differ");
  return x.dims[x.rank - 2] * x.dims[x.rank - 1];
}

Kernel make_triangular_solve(const sdk::op::triangular_solve& n, const Node& node) {
  const sdk::Type &a = n.a.type(), &b = n.b.type(), &x = node.out(0).type();
  want_floats(a.dtype);
  const int64_t size = a.dims[a.rank - 1];
  args::TriangleSolve s{};
  s.matrices = 1, s.columns = x.dims[x.rank - 1];
  for (int i = 0; i < x.rank - 2; ++i) s.matrices *= x.dims[i];
  s.a_step = step_of(a, x), s.b_step = step_of(b, x);
  s.row = n.trans_a ? 1 : size, s.column = n.trans_a ? size : 1;
  s.lower = n.upper == n.trans_a, s.unit = n.unit_diagonal;
  CudaDevice& device = device_of(node);
  constexpr int64_t kWarps = 4;
  const int64_t shared = kWarps * size * element_bytes(a.dtype);
  if (shared > device.properties().shared_room("linalg_block.cu", "triangle"))
    throw Refusal::shape("a column does not fit shared memory");
  s.n = static_cast<int32_t>(size);
  const auto code = device.code(entries::linalg_triangle, {"TYPE=" + type_name("a", a.dtype)},
                                static_cast<uint32_t>(shared));
  const int64_t items = size == 0 ? 0 : s.matrices * s.columns;
  const Grid grid{.blocks = launchable(blocks_for(items, kWarps)),
                  .threads = 32 * kWarps,
                  .shared = static_cast<uint32_t>(shared)};
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
