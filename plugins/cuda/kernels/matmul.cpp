// SPDX-License-Identifier: Apache-2.0
// matmul, linear and batch_linear: from a node's shapes to a batch of products. Of some shapes our own
// kernels are faster; of others cuBLASLt computes what it can, else our own tiles. What cuBLASLt cannot
// do after a product is a kernel over its sums.
#include "matmul.hpp"

#include <algorithm>
#include <optional>

#include "../kernels.hpp"
#include "blas_product.hpp"
#include "joined_product.hpp"
#include "loop.hpp"

namespace tenon::cuda {
namespace {

using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

// What both ops share; matmul leaves the rest absent.
struct Attributes {
  bool trans_a, trans_b;
  double alpha;
  std::string_view precision;
};

// An operand's last two dims as a matrix, and its batch dims.
struct Matrix {
  int64_t rows, cols, ld;
  std::span<const int64_t> batch;
};

Matrix matrix_of(const sdk::Type& t, bool left, bool transposed) {
  if (t.rank == 1) {
    const int64_t n = t.dims[0];
    return left ? Matrix{1, n, n, {}} : Matrix{n, 1, 1, {}};
  }
  const int64_t rows = t.dims[t.rank - 2], cols = t.dims[t.rank - 1];
  const auto batch = t.shape().first(static_cast<size_t>(t.rank - 2));
  if (transposed) return {cols, rows, cols, batch};
  return {rows, cols, cols, batch};
}

int64_t product(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

bool is_byte(tenon_dtype t) { return t == TENON_DTYPE_I8 || t == TENON_DTYPE_U8; }
// Sums of integers wrap; those of signed ones are made of unsigned ones.
tenon_dtype sum_dtype(tenon_dtype t) {
  if (is_byte(t)) return TENON_DTYPE_I32;
  if (t == TENON_DTYPE_I32) return TENON_DTYPE_U32;
  if (t == TENON_DTYPE_I64) return TENON_DTYPE_U64;
  return acc_dtype(t);
}

void check_types(const Attributes& at, const sdk::Type& a, const sdk::Type& b, const sdk::Type& y) {
  if (at.precision != "ieee" && at.precision != "tf32")
    throw Refusal::attribute("f32_precision", at.precision);
  if (is_byte(a.dtype)) return;
  const bool word = is_integer(a.dtype) && element_bytes(a.dtype) >= 4;
  if (!is_float(a.dtype) && !word) throw Refusal::dtype("a", a.dtype);
  if (b.dtype != a.dtype) throw Refusal::dtype("b", b.dtype);
  if (y.dtype != a.dtype && !(is_half(a.dtype) && y.dtype == TENON_DTYPE_F32))
    throw Refusal::dtype("y", y.dtype);
}

// The batch dims of an operand as a tensor of matrices.
sdk::Type batch_type(const Matrix& m) {
  sdk::Type t;
  t.rank = static_cast<int>(m.batch.size());
  std::ranges::copy(m.batch, t.dims.begin());
  t.set_dense_strides();
  for (int i = 0; i < t.rank; ++i) t.strides[i] *= m.rows * m.cols;
  return t;
}

ProductProblem problem_of(const Attributes& at, const sdk::Value& a, const sdk::Value& b,
                          const sdk::Type& y) {
  check_types(at, a.type(), b.type(), y);
  Matrix left = matrix_of(a.type(), true, at.trans_a && a.type().rank > 1),
         right = matrix_of(b.type(), false, at.trans_b && b.type().rank > 1);
  const int core_dims = (a.type().rank > 1) + (b.type().rank > 1);
  std::span<const int64_t> batch = y.shape().first(static_cast<size_t>(y.rank - core_dims));
  // One b for all: the batch becomes rows.
  if (product(right.batch) == 1 && !at.trans_a && a.type().rank > 1 &&
      product(left.batch) == product(batch)) {
    left.rows *= product(batch);
    left.batch = right.batch = batch = {};
  }
  ProductProblem p;
  p.a = a.type().dtype, p.b = b.type().dtype, p.y = y.dtype;
  p.sum = sum_dtype(p.a);
  p.m = left.rows, p.n = right.cols, p.k = left.cols;
  p.lda = left.ld, p.ldb = right.ld;
  p.trans_a = at.trans_a && a.type().rank > 1, p.trans_b = at.trans_b && b.type().rank > 1;
  p.alpha = at.alpha, p.tf32 = at.precision == "tf32";
  p.a_alignment = a.alignment(), p.b_alignment = b.alignment(), p.frozen = b.frozen();
  const sdk::Type of_a = batch_type(left), of_b = batch_type(right);
  const Loop loop = make_loop(batch, {&of_a, &of_b});
  if (loop.count != 1)
    p.batch = loop.dims, p.a_steps = loop.strides[0], p.b_steps = loop.strides[1];
  return p;
}

// One product with all that follows it, in the way that was chosen.
struct Product {
  BlasProduct library;
  TileProduct tiles;
  ProductFinish finish;
  bool fused = true;       // the library does all of it
  bool sums_in_y = false;  // else in scratch
  uint64_t sums_bytes = 0;
  ProductPlaces places;
  bool own = false;  // the library knows no algorithm

  uint64_t bytes_beside_workspace() const { return fused || sums_in_y ? 0 : sums_bytes; }
  // Bytes of scratch, at most so many.
  uint64_t tune(uint64_t most) {
    const uint64_t beside = bytes_beside_workspace();
    own = most < beside || !library.tune(most - beside);
    return own ? 0 : beside + library.workspace();
  }
  void prepare() {
    if (own)
      tiles.code().prepare();
    else if (!fused)
      finish.code().prepare();
  }
  void run(const sdk::Call& c) const {
    const ProductPointers p = places.of(c);
    if (own) return tiles.run(c, p);
    if (fused) return library.run(c, p, c.scratch);
    void* sums = sums_in_y ? p.y : c.scratch;
    library.run(c, {.a = p.a, .b = p.b, .y = sums}, static_cast<char*>(c.scratch) + sums_bytes);
    finish.run(c, sums, p);
  }
};

uint64_t aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// Below this many terms our own tiles with all of it in one kernel beat the library's sums, which
// go through memory.
constexpr int64_t kShortSum = 700;

// The library's sums in f32 and a kernel that reads them move more bytes than a product of halves and
// an elementwise node behind it, or the norm that reads it: these may stay apart. Small ones cost the
// same either way. But two nodes round twice and one kernel rounds once, so where rows have the same
// bits alone and among others, the number of rows must not decide: small ones stay apart, too. So does a
// residual, of which a norm behind it then reads the sum in f32.
bool is_better_apart(CudaDevice& device, const ProductProblem& p) {
  constexpr int64_t kSmall = 1 << 15;
  const bool chain = is_chain(p);
  if (!is_half(p.y) || p.pre_act) return false;
  if (chain && p.residual != TENON_DTYPE_NONE) return true;
  if (BlasProduct::takes(device, p) || (is_half(p.a) && p.k < kShortSum)) return false;
  ProductProblem first = p;
  first.residual = TENON_DTYPE_NONE;
  first.act.clear(), first.act_kind.clear();
  return (chain || p.m * p.n * p.batches() >= kSmall) && BlasProduct::takes(device, first);
}

}  // namespace

Kernel make_product(const Node& node, ProductProblem p, const ProductPlaces& places) {
  CudaDevice& device = device_of(node);
  p.alike = is_batch_invariant(node);
  Kernel kernel;
  if (is_chain(p) && is_better_apart(device, p))
    throw Refusal{TENON_REASON_OTHER,
                  "not all kernels of such a product round as one with what follows it does: batch "
                  "invariant products stay apart"};
  if (JoinedProduct::takes(device, p)) {
    const JoinedProduct joined(device, {p});
    kernel = kernel_of({joined.code()},
                       [joined, places](const sdk::Call& c) { joined.run(c, {places.of(c)}); });
    kernel.cost = p.seconds();
    return kernel;
  }
  if (DotsProduct::takes(p)) {
    const DotsProduct dots(device, p);
    kernel =
        kernel_of({dots.code()}, [dots, places](const sdk::Call& c) { dots.run(c, places.of(c)); });
    kernel.cost = p.seconds();
    return kernel;
  }
  const auto by = [&](const auto& rows) {
    kernel =
        kernel_of({rows.code()}, [rows, places](const sdk::Call& c) { rows.run(c, places.of(c)); });
    kernel.cost = p.seconds();
    return kernel;
  };
  try {
    if (RowProduct::takes(device, p)) return by(RowProduct(device, p));
    if (FewRowsProduct::takes(device, p)) return by(FewRowsProduct(device, p));
  } catch (const Refusal&) {  // no compiler: the library may have it
  }
  // Our own tiles stand in where the library knows no algorithm. Without code of them and without
  // a compiler the product is claimed only if the library surely has one.
  TileProduct tiles;
  std::optional<Refusal> no_tiles;
  try {
    tiles = TileProduct(device, p);
  } catch (const Refusal& refusal) {
    no_tiles = refusal;
  }
  // Without what the library cannot do.
  ProductProblem plain = p;
  const bool fused = BlasProduct::takes(device, p);
  if (!fused) {
    if (is_chain(p)) plain.alpha = 1;  // what follows multiplies by it, as our own tiles do
    plain.bias = plain.residual = TENON_DTYPE_NONE;
    plain.pre_act = false;
    plain.act.clear(), plain.act_kind.clear();
    plain.y = p.sum;
  }
  if (!BlasProduct::takes(device, plain) || (!fused && is_half(p.a) && p.k < kShortSum)) {
    if (no_tiles) throw *no_tiles;
    kernel = kernel_of({tiles.code()},
                       [tiles, places](const sdk::Call& c) { tiles.run(c, places.of(c)); });
  } else {
    if (!fused && is_better_apart(device, p))
      throw Refusal{TENON_REASON_OTHER,
                    "no kernel does all in one launch: the product and what follows it are faster"};
    auto work = std::make_shared<Product>();
    work->library = BlasProduct(device, plain);
    if (no_tiles && !(fused && work->library.is_certain())) throw *no_tiles;
    work->tiles = tiles;
    work->fused = fused;
    work->places = places;
    if (!fused) {
      work->finish = ProductFinish(device, p);
      work->sums_in_y = p.sum == p.y;
      if (!work->sums_in_y)
        work->sums_bytes =
            aligned(static_cast<uint64_t>(p.m * p.n * p.batches() * element_bytes(p.sum)));
    }
    kernel.scratch = work->bytes_beside_workspace() + BlasProduct::kMostWorkspace;
    kernel.tune = [work](uint64_t most) { return work->tune(most); };
    kernel.prepare = [work] { work->prepare(); };
    kernel.run = [work](const sdk::Call& c) { work->run(c); };
  }
  kernel.cost = p.seconds();
  return kernel;
}

namespace {

Kernel make_matmul(const sdk::op::matmul& n, const Node& node) {
  const ProductProblem p =
      problem_of({n.trans_a, n.trans_b, n.alpha, n.f32_precision}, n.a, n.b, node.out(0).type());
  return make_product(node, p, {n.a.position(), n.b.position()});
}

Kernel make_linear(const sdk::op::linear& n, const Node& node) {
  const sdk::Type& y = node.out(0).type();
  if (!is_float(n.a.type().dtype)) throw Refusal::dtype("a", n.a.type().dtype);
  ProductProblem p = problem_of({n.trans_a, n.trans_b, n.alpha, n.f32_precision}, n.a, n.b, y);
  ProductPlaces places{n.a.position(), n.b.position()};
  if (n.act != "none")
    p.act = activation_text(n.act, n.act_alpha, n.act_beta, p.sum,
                            is_half(y.dtype) || (p.tf32 && p.a == TENON_DTYPE_F32)),
    p.act_kind = n.act;
  if (n.bias) {
    places.bias = n.bias.position(), p.bias = n.bias.type().dtype;
    p.bias_alignment = n.bias.alignment();
  }
  if (n.residual) {
    places.residual = n.residual.position(), p.residual = n.residual.type().dtype;
    p.residual_alignment = n.residual.alignment();
  }
  if (n.want_pre_act) p.pre_act = true, places.pre_act = node.out(1).position();
  return make_product(node, p, places);
}

// What one launch does; other products are as fast one by one.
Kernel make_batch_linear(const sdk::op::batch_linear& n, const Node& node) {
  CudaDevice& device = device_of(node);
  const size_t count = node.output_count();
  if (count > JoinedProduct::kMostSets) throw Refusal::shape("too many products for one launch");
  std::vector<ProductProblem> problems;
  std::vector<ProductPlaces> places;
  double cost = 0;
  for (size_t t = 0; t < count; ++t) {
    if (!node.out(t)) throw Refusal::shape("every result must be wanted");
    const sdk::Type& y = node.out(t).type();
    if (!is_float(n.a.type().dtype)) throw Refusal::dtype("a", n.a.type().dtype);
    ProductProblem p =
        problem_of({n.trans_a, n.trans_b, n.alpha, n.f32_precision}, n.a, n.bs[t], y);
    ProductPlaces at{n.a.position(), n.bs[t].position()};
    at.y = static_cast<int>(t);
    if (!n.biases.empty()) {
      const sdk::Value& bias = n.biases[t];
      at.bias = bias.position(), p.bias = bias.type().dtype;
      p.bias_alignment = bias.alignment();
      if (p.bias != n.biases[0].type().dtype) throw Refusal::dtype("bias", p.bias);
    }
    if (n.bs[t].type().rank != 2 || !JoinedProduct::takes(device, p))
      throw Refusal::shape(
          "no kernel does all in one launch: one product after the other is as fast");
    cost += p.seconds();
    problems.push_back(std::move(p));
    places.push_back(at);
  }
  const JoinedProduct joined(device, problems);
  Kernel kernel = kernel_of({joined.code()}, [joined, places](const sdk::Call& c) {
    std::vector<ProductPointers> pointers;
    for (const ProductPlaces& at : places) pointers.push_back(at.of(c));
    joined.run(c, pointers);
  });
  kernel.cost = cost / static_cast<double>(count);
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::matmul, make_matmul>(),
    sdk::row<sdk::op::linear, make_linear>(),
    sdk::row<sdk::op::lora_matmul, make_lora_matmul>(),
    sdk::row<sdk::op::batch_linear, make_batch_linear>(),
};

}  // namespace

std::span<const sdk::Row> matmul_rows() { return kRows; }

}  // namespace tenon::cuda
