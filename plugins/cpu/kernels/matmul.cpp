// SPDX-License-Identifier: Apache-2.0
// matmul and linear: plans the products of a node, and folds batches into one product where
// possible. batch_linear and lora_matmul have their own files.
#include "matmul.hpp"

#include <algorithm>
#include <vector>

#include "../kernels.hpp"
#include "epilogue.hpp"

namespace tenon::cpu {
namespace {

bool is_byte_product(tenon_dtype t) { return t == TENON_DTYPE_I8 || t == TENON_DTYPE_U8; }

int64_t product(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

// Offset in elements of each batch of the result, in an operand whose batch dims broadcast.
std::vector<int64_t> batch_offsets(std::span<const int64_t> result, std::span<const int64_t> dims,
                                   int64_t size) {
  std::vector<int64_t> offsets(1, 0);
  offsets.reserve(product(result));
  const size_t missing = result.size() - dims.size();
  for (size_t i = 0; i < result.size(); ++i) {
    const bool own = i >= missing && dims[i - missing] != 1;
    const int64_t step = own ? product(dims.subspan(i - missing + 1)) * size : 0;
    std::vector<int64_t> next;
    next.reserve(offsets.size() * result[i]);
    for (const int64_t base : offsets)
      for (int64_t j = 0; j < result[i]; ++j) next.push_back(base + j * step);
    offsets = std::move(next);
  }
  return offsets;
}

}  // namespace

Matrix matrix_of(const sdk::Type& t, bool left, bool transposed) {
  if (t.rank == 1) {
    const int64_t n = t.dims[0];
    return left ? Matrix{1, n, {t.dtype, n, 1}, {}} : Matrix{n, 1, {t.dtype, 1, 1}, {}};
  }
  const int64_t rows = t.dims[t.rank - 2], cols = t.dims[t.rank - 1];
  const auto batch = t.shape().first(t.rank - 2);
  if (transposed) return {cols, rows, {t.dtype, 1, cols}, batch};
  return {rows, cols, {t.dtype, cols, 1}, batch};
}

void check_types(const Attributes& at, const sdk::Type& a, const sdk::Type& b, const sdk::Type& y) {
  if (at.precision != "ieee" && at.precision != "tf32")
    throw sdk::Refusal::attribute("f32_precision", at.precision);
  if (is_byte_product(a.dtype)) return;
  if (!is_float(a.dtype)) throw sdk::Refusal::dtype("a", a.dtype);
  // A half beside f32 is widened when it is packed.
  const bool mixed = (a.dtype == TENON_DTYPE_F32 && is_half(b.dtype)) ||
                     (is_half(a.dtype) && b.dtype == TENON_DTYPE_F32);
  if (b.dtype != a.dtype && !mixed) throw sdk::Refusal::dtype("b", b.dtype);
  const bool narrow = y.dtype == a.dtype && y.dtype == b.dtype;
  const bool wide = y.dtype == TENON_DTYPE_F32 && gemm_sum_dtype(a.dtype) == TENON_DTYPE_F32;
  if (!narrow && !wide) throw sdk::Refusal::dtype("y", y.dtype);
}

Products products_of(bool trans_a, bool trans_b, const sdk::Type& a, const sdk::Type& b,
                     const sdk::Type& y) {
  Products p{.a = matrix_of(a, true, trans_a), .b = matrix_of(b, false, trans_b)};
  const int core_dims = (a.rank > 1) + (b.rank > 1);
  std::span<const int64_t> batch = y.shape().first(y.rank - core_dims);
  p.one_b = product(p.b.batch) == 1;
  // If all batches share b, they become rows of one product.
  if (p.one_b && !trans_a && a.rank > 1 && product(p.a.batch) == product(batch)) {
    p.a.rows *= product(batch);
    p.a.batch = batch = {};
  }
  p.a_offsets = batch_offsets(batch, p.a.batch, p.a.rows * p.a.cols);
  p.b_offsets = batch_offsets(batch, p.b.batch, p.b.rows * p.b.cols);
  return p;
}

void Epilogue::take_bias(const sdk::Value& value) {
  bias = value.position(), bias_dtype = value.type().dtype;
}

void Epilogue::run(const sdk::Call& c, const GemmBlock& block, int64_t first_row) const {
  const int64_t size = element_bytes(y), bias_size = element_bytes(bias_dtype);
  for (int64_t i = 0; i < block.rows; ++i) {
    char* sums = static_cast<char*>(block.sums) + i * block.ld * element_bytes(sum);
    const int64_t at = ((first_row + block.i0 + i) * n + block.j0) * size;
    const void* row_bias = bias < 0 ? nullptr : c.in<char>(bias) + block.j0 * bias_size;
    if (row_bias != nullptr || alpha != 1)
      epilogue_scale(sum, sums, alpha, row_bias, bias_dtype, block.cols);
    if (pre_act >= 0) epilogue_store(sum, sums, c.out<char>(pre_act) + at, y, block.cols);
    if (act) activate(sums, block.cols);
    if (residual >= 0) epilogue_add(sum, sums, c.in<char>(residual) + at, y, block.cols);
    epilogue_store(sum, sums, c.out<char>(out) + at, y, block.cols);
  }
}

void Epilogue::activate(void* sums, int64_t count) const {
  const auto tiles = [&](auto* x) {
    for (int64_t i = 0; i < count; i += kTile)
      unary_tile(*act, x + i, x + i, std::min(kTile, count - i));
  };
  if (sum == TENON_DTYPE_F64) {
    tiles(static_cast<double*>(sums));
  } else {
    tiles(static_cast<float*>(sums));
  }
}

namespace {

// A batch of products with the same shape.
struct Batch {
  Gemm gemm;
  std::vector<int64_t> a_offsets, b_offsets;
  int64_t a_size, b_size, y_size;  // bytes of an element
  int64_t m, n;
  int a, b;   // positions
  int slots;  // > 0: products are distributed over threads, each one computed by one thread
  Epilogue epilogue;

  void run_one(const sdk::Call& c, int64_t index, void* scratch, bool serial) const {
    const auto sink = [&](const GemmBlock& block) { epilogue.run(c, block, index * m); };
    const auto nothing = [](const GemmBlock&) {};
    gemm.run(c.in<char>(a) + a_offsets[index] * a_size, c.in<char>(b) + b_offsets[index] * b_size,
             c.out<char>(0) + index * m * n * y_size, scratch,
             epilogue.plain() ? GemmSink(nothing) : GemmSink(sink), serial);
  }
  void run(const sdk::Call& c) const {
    const int64_t count = static_cast<int64_t>(a_offsets.size());
    if (slots == 0) {
      for (int64_t i = 0; i < count; ++i) run_one(c, i, c.scratch, false);
      return;
    }
    const int64_t grain =
        std::max<int64_t>(1, static_cast<int64_t>(500e3 / std::max(gemm.flops(), 1.0)));
    parallel_for_slots(count, grain, slots, [&](int slot, int64_t begin, int64_t end) {
      void* scratch = static_cast<char*>(c.scratch) + slot * gemm.serial_scratch();
      for (int64_t i = begin; i < end; ++i) run_one(c, i, scratch, true);
    });
  }
};

sdk::Kernel make_product(const Attributes& at, const sdk::Value& a, const sdk::Value& b,
                         const sdk::Type& y, Epilogue epilogue) {
  check_types(at, a.type(), b.type(), y);
  Products products = products_of(at.trans_a, at.trans_b, a.type(), b.type(), y);
  const Matrix &left = products.a, &right = products.b;

  Batch work;
  work.a_offsets = std::move(products.a_offsets);
  work.b_offsets = std::move(products.b_offsets);
  work.a_size = element_bytes(a.type().dtype);
  work.b_size = element_bytes(b.type().dtype);
  work.y_size = element_bytes(y.dtype);
  work.m = left.rows, work.n = right.cols;
  work.a = a.position(), work.b = b.position();
  epilogue.sum = gemm_sum_dtype(a.type().dtype), epilogue.y = y.dtype;
  epilogue.alpha = at.alpha, epilogue.n = right.cols;
  work.epilogue = epilogue;
  work.gemm = Gemm(left.rows, right.cols, left.cols, left.layout, right.layout,
                   epilogue.sum == y.dtype, widest_arena(), at.f32_precision(), 0, b.frozen());
  const bool spread = work.a_offsets.size() > 1 && work.gemm.flops() < 32e6;
  work.slots = spread ? widest_arena() : 0;

  sdk::Kernel kernel;
  // A weight that no run changes is packed once, for all runs.
  if (b.frozen() && products.one_b && work.gemm.wants_packed_b()) {
    const Gemm packer = work.gemm;
    work.gemm.take_packed_b();
    kernel.derived.push_back(
        {b.position(), packer.packed_layout(), packer.packed_bytes(),
         [packer](const void* dense, void* packed) { packer.pack_b(dense, packed); }});
  }
  kernel.scratch = spread ? work.slots * work.gemm.serial_scratch() : work.gemm.scratch();
  kernel.cost = work.gemm.flops() * static_cast<double>(work.a_offsets.size()) / 1e11;
  kernel.run = [work = std::move(work)](const sdk::Call& c) { work.run(c); };
  return kernel;
}

sdk::Kernel make_matmul(const sdk::op::matmul& n, const sdk::Node& node) {
  if (sdk::is_integer(n.a.type().dtype) && !is_byte_product(n.a.type().dtype))
    return make_integer_matmul(n, node);
  return make_product({n.trans_a, n.trans_b, n.alpha, n.out_dtype, n.f32_precision}, n.a, n.b,
                      node.out(0).type(), {});
}

sdk::Kernel make_linear(const sdk::op::linear& n, const sdk::Node& node) {
  const sdk::Type& y = node.out(0).type();
  Epilogue epilogue{};
  if (is_byte_product(n.a.type().dtype)) throw sdk::Refusal::dtype("a", n.a.type().dtype);
  if (n.act != "none") epilogue.act = make_activation(n.act, n.act_alpha, n.act_beta);
  if (n.bias) epilogue.take_bias(n.bias);
  epilogue.residual = n.residual.position();
  if (n.want_pre_act) epilogue.pre_act = node.out(1).position();
  return make_product({n.trans_a, n.trans_b, n.alpha, n.out_dtype, n.f32_precision}, n.a, n.b, y,
                      epilogue);
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::matmul, make_matmul>(),
    sdk::row<sdk::op::linear, make_linear>(),
    sdk::row<sdk::op::batch_linear, make_batch_linear>(),
    sdk::row<sdk::op::lora_matmul, make_lora_matmul>(),
};

}  // namespace

std::span<const sdk::Row> matmul_rows() { return kRows; }

}  // namespace tenon::cpu
