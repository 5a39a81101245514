// SPDX-License-Identifier: Apache-2.0
// What makers of kernels share: the choice by dtype, axes and lists, constants, the shapes of the
// norm ops, of matmul, reduce, pad and narrow.
#include <doctest/doctest.h>
#include <tenon/constant.hpp>
#include <tenon/norm_ops.hpp>
#include <tenon/shapes.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon::sdk {
namespace {

Type type_of(tenon_dtype dtype, std::initializer_list<int64_t> dims) {
  Type t{.dtype = dtype, .rank = static_cast<int>(dims.size())};
  std::copy(dims.begin(), dims.end(), t.dims.begin());
  t.set_dense_strides();
  return t;
}

tenon_dtype chosen(tenon_dtype t) {
  return with_type(kFloatTypes + kIntegerTypes + Types<Bool, F8E4M3, F8E5M2, I4, U4>{}, "x", t,
                   []<class T>(T) { return kDtypeOf<T>; });
}
uint64_t bits_of(tenon_dtype t, double x) {
  uint64_t bits = 0;
  std::memcpy(&bits, constant_bytes("x", t, x).data(), 8);
  return bits;
}

}  // namespace

TEST_SUITE("abi/makers") {
  TEST_CASE("with_type: each dtype gives the type that stores it") {
    for (tenon_dtype t = 1; t < TENON_DTYPE_COUNT; ++t) {
      if (is_complex(t)) continue;  // has no storage type
      CHECK_MESSAGE(chosen(t) == t, dtype_name(t));
    }
    CHECK_THROWS_WITH_AS(chosen(TENON_DTYPE_C64), "operand x of dtype c64 is not supported",
                         Refusal);
    CHECK_THROWS_AS(chosen(TENON_DTYPE_COUNT), Refusal);
  }

  TEST_CASE("with_bits: the unsigned integer of an element's size, none for half a byte") {
    const auto size = [](tenon_dtype t) {
      return with_bits("x", t, []<class T>(T) { return sizeof(T); });
    };
    CHECK(size(TENON_DTYPE_BOOL) == 1);
    CHECK(size(TENON_DTYPE_BF16) == 2);
    CHECK(size(TENON_DTYPE_F32) == 4);
    CHECK(size(TENON_DTYPE_C64) == 8);
    CHECK(size(TENON_DTYPE_C128) == 16);
    CHECK_THROWS_WITH_AS(size(TENON_DTYPE_U4), "operand x of dtype u4 is not supported", Refusal);
  }

  TEST_CASE(
      "groups: bool, complex numbers and the small dtypes belong to none that is computed with") {
    CHECK(is_half(TENON_DTYPE_BF16));
    CHECK_FALSE(is_half(TENON_DTYPE_F32));
    CHECK(is_float(TENON_DTYPE_F64));
    CHECK(is_integer(TENON_DTYPE_U64));
    for (const tenon_dtype t : {TENON_DTYPE_BOOL, TENON_DTYPE_C64, TENON_DTYPE_C128, TENON_DTYPE_I4,
                                TENON_DTYPE_U4, TENON_DTYPE_F8E4M3, TENON_DTYPE_NONE}) {
      CHECK_FALSE(is_float(t));
      CHECK_FALSE(is_integer(t));
    }
    CHECK(acc_dtype(TENON_DTYPE_F16) == TENON_DTYPE_F32);
    CHECK(acc_dtype(TENON_DTYPE_F64) == TENON_DTYPE_F64);
    CHECK(element_bytes(TENON_DTYPE_I4) == 0);
    CHECK(element_bytes(TENON_DTYPE_C128) == 16);
    CHECK(complex_dtype(TENON_DTYPE_F64) == TENON_DTYPE_C128);
    CHECK(part_dtype(TENON_DTYPE_C64) == TENON_DTYPE_F32);
    CHECK(dtype_name(TENON_DTYPE_F8E5M2) == "f8e5m2");
    CHECK(dtype_name(TENON_DTYPE_C128) == "c128");
    CHECK(dtype_name(999) == "?");
  }

  TEST_CASE("along_axis: outer, length and inner, negative from the end") {
    const Type t = type_of(TENON_DTYPE_F32, {2, 3, 5, 7});
    const AxisView v = along_axis(t, -2);
    CHECK(v.axis == 2);
    CHECK(v.outer == 6);
    CHECK(v.length == 5);
    CHECK(v.inner == 7);
    CHECK(v.count() == 42);
  }

  TEST_CASE("lists: an empty one stands for its default on every axis") {
    CHECK(entry_of({}, 3, -1) == -1);
    CHECK(entry_of({4, 5}, 1, -1) == 5);
    const auto reduced = [](std::vector<int64_t> axes, bool noop) {
      op::reduce n;
      n.axes = std::move(axes), n.noop_with_empty_axes = noop;
      const auto list = reduced_axes(n, 3);
      return (list[0] ? 4 : 0) + (list[1] ? 2 : 0) + (list[2] ? 1 : 0);
    };
    CHECK(reduced({0, -1}, false) == 5);
    CHECK(reduced({}, false) == 7);
    CHECK(reduced({}, true) == 0);
  }

  TEST_CASE("constants: rounded to nearest even, saturated, in the element's own bytes") {
    CHECK(bits_of(TENON_DTYPE_F32, 1.5) == 0x3FC00000);
    CHECK(bits_of(TENON_DTYPE_F16, 65519.0) == 0x7BFF);
    CHECK(bits_of(TENON_DTYPE_F16, 65520.0) == 0x7C00);
    CHECK(bits_of(TENON_DTYPE_F16, 0x1p-25) == 0);  // half of the least subnormal: to even
    CHECK(bits_of(TENON_DTYPE_F16, 0x1.8p-25) == 1);
    CHECK(bits_of(TENON_DTYPE_BF16, -1 - 0x1p-8) == 0xBF80);  // a tie, to even
    CHECK(bits_of(TENON_DTYPE_BF16, 1 + 0x1.8p-8) == 0x3F81);
    CHECK(bits_of(TENON_DTYPE_BF16, -0.0) == 0x8000);
    CHECK(bits_of(TENON_DTYPE_F16, std::numeric_limits<double>::quiet_NaN()) == 0x7E00);
    CHECK(bits_of(TENON_DTYPE_I8, -1000) == 0x80);
    CHECK(bits_of(TENON_DTYPE_U16, 70000) == 0xFFFF);
    CHECK(bits_of(TENON_DTYPE_I64, 1e30) == 0x7FFFFFFFFFFFFFFF);
    CHECK(bits_of(TENON_DTYPE_I32, std::nan("")) == 0);
    CHECK(bits_of(TENON_DTYPE_BOOL, -3) == 1);
    CHECK(bits_of(TENON_DTYPE_U4, 0) == 0);
    CHECK_THROWS_AS(bits_of(TENON_DTYPE_U4, 1), Refusal);
  }

  TEST_CASE("norm_op: one shape for the four forward ops") {
    const Type x = type_of(TENON_DTYPE_F16, {2, 3, 4});
    op::layer_norm plain;
    plain.axis = 1, plain.x = {&x, 0, nullptr};
    plain.want_inv_std = true;
    const NormOp a = norm_op(plain);
    CHECK_FALSE(a.rms);
    CHECK(a.rows.count == 2);
    CHECK(a.rows.length == 12);
    CHECK(a.sum == -1);
    CHECK(a.mean == -1);
    CHECK(a.inv == 2);
    CHECK_FALSE(a.residual);
    op::residual_rms_norm joined;
    joined.x = {&x, 0, nullptr}, joined.residual = {&x, 1, nullptr};
    joined.want_sum = joined.want_inv_rms = true;
    const NormOp b = norm_op(joined);
    CHECK(b.rms);
    CHECK(b.rows.count == 6);
    CHECK(b.residual.position() == 1);
    CHECK(b.bias.position() == -1);
    CHECK(b.sum == 1);
    CHECK(b.mean == -1);
    CHECK(b.inv == 2);
  }

  TEST_CASE("norm_backward_op: one shape for both backward ops") {
    const Type x = type_of(TENON_DTYPE_F32, {5, 4});
    op::rms_norm_backward n;
    n.x = {&x, 1, nullptr}, n.inv_rms = {&x, 3, nullptr};
    n.want_dgamma = true;
    const NormBackwardOp b = norm_backward_op(n);
    CHECK(b.rms);
    CHECK(b.rows.count == 5);
    CHECK(b.inv.position() == 3);
    CHECK_FALSE(b.mean);
    CHECK(b.dx == -1);
    CHECK(b.dgamma == 1);
    CHECK(b.dbeta == -1);
    CHECK(norm_images_of(type_of(TENON_DTYPE_F32, {2, 3, 5, 7})).pixels == 35);
  }

  TEST_CASE("broadcast_strides, walk: axes that are missing or of length 1 have stride 0") {
    const Type x = type_of(TENON_DTYPE_F32, {3, 1}), y = type_of(TENON_DTYPE_F32, {2, 3, 2});
    const Dims strides = broadcast_strides(x, y);
    CHECK(std::vector(strides.begin(), strides.begin() + 3) == std::vector<int64_t>{0, 1, 0});
    std::vector<int64_t> offsets;
    walk(y, strides, [&](int64_t k, const auto& at) {
      CHECK(k == static_cast<int64_t>(offsets.size()));
      offsets.push_back(at[0]);
    });
    CHECK(offsets == std::vector<int64_t>{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2});
    walk(type_of(TENON_DTYPE_F32, {2, 0}), Dims{}, [](int64_t, const auto&) { CHECK(false); });
  }

  TEST_CASE("joined_axes: the same walk over the fewest axes") {
    const auto joined = [](std::initializer_list<int64_t> dims, const Dims& a, const Dims& b) {
      const Type shape = type_of(TENON_DTYPE_F32, dims);
      const std::array<Dims, 2> strides{a, b};
      const JoinedAxes<2> axes = joined_axes(shape, strides);
      CHECK(axes.count == shape.elements());
      Type fewer{.rank = axes.rank, .dims = axes.dims};
      std::vector<std::array<int64_t, 2>> all, few;
      walk(shape, strides, [&](int64_t, const auto& at) { all.push_back(at); });
      walk(fewer, axes.strides, [&](int64_t, const auto& at) { few.push_back(at); });
      CHECK(all == few);
      return axes.rank;
    };
    CHECK(joined({2, 3, 4}, {12, 4, 1}, {12, 4, 1}) == 1);  // dense
    CHECK(joined({2, 3, 4}, {12, 4, 1}, {0, 0, 1}) == 2);   // one is broadcast
    CHECK(joined({2, 3, 4}, {12, 1, 3}, {12, 4, 1}) == 3);  // one is transposed
    CHECK(joined({2, 1, 4}, {4, 99, 1}, {4, 7, 1}) == 1);   // a stride that nobody uses
    CHECK(joined({1, 1}, {5, 6}, {7, 8}) == 0);
    CHECK(joined({2, 0, 4}, {0, 4, 1}, {0, 4, 1}) >= 1);
  }

  TEST_CASE("matmul_shape: vectors, transposes and batches that are broadcast") {
    const auto shape = [](std::initializer_list<int64_t> a, std::initializer_list<int64_t> b,
                          std::initializer_list<int64_t> y, bool trans_a, bool trans_b) {
      const Type ta = type_of(TENON_DTYPE_F32, a), tb = type_of(TENON_DTYPE_F32, b);
      op::matmul n;
      n.trans_a = trans_a, n.trans_b = trans_b;
      n.a = Value(&ta, 0, nullptr), n.b = Value(&tb, 1, nullptr);
      return matmul_shape(n, type_of(TENON_DTYPE_F32, y));
    };
    const MatmulShape plain = shape({5, 2, 3}, {3, 4}, {5, 2, 4}, false, false);
    CHECK(std::array{plain.m, plain.n, plain.k} == std::array<int64_t, 3>{2, 4, 3});
    CHECK(std::array{plain.a_m, plain.a_k, plain.b_k, plain.b_n} ==
          std::array<int64_t, 4>{3, 1, 4, 1});
    CHECK(plain.batch.elements() == 5);
    CHECK(plain.a_batch[0] == 6);
    CHECK(plain.b_batch[0] == 0);
    const MatmulShape turned = shape({3, 2}, {4, 3}, {2, 4}, true, true);
    CHECK(std::array{turned.m, turned.n, turned.k} == std::array<int64_t, 3>{2, 4, 3});
    CHECK(std::array{turned.a_m, turned.a_k, turned.b_k, turned.b_n} ==
          std::array<int64_t, 4>{1, 2, 1, 3});
    const MatmulShape dot = shape({3}, {3}, {}, false, false);
    CHECK(std::array{dot.m, dot.n, dot.k, dot.batch.elements()} ==
          std::array<int64_t, 4>{1, 1, 3, 1});
  }

  TEST_CASE("reduce_shape: the kept and the reduced axes, with the strides of x") {
    const Type x = type_of(TENON_DTYPE_F32, {2, 3, 4});
    op::reduce n;
    n.axes = {-2};
    const ReduceShape s = reduce_shape(n, x);
    CHECK(s.kept.elements() == 8);
    CHECK(s.kept.strides[0] == 12);
    CHECK(s.kept.strides[1] == 1);
    CHECK(s.reduced.rank == 1);
    CHECK(s.reduced.strides[0] == 4);
  }

  TEST_CASE("pad_source: where each position of padding takes its element from") {
    const auto sources = [](const std::string& mode) {
      std::vector<int64_t> all;
      for (int64_t i = -2; i < 5; ++i) all.push_back(pad_source(pad_mode(mode), i, 3));
      return all;
    };
    CHECK(sources("constant") == std::vector<int64_t>{-1, -1, 0, 1, 2, -1, -1});
    CHECK(sources("edge") == std::vector<int64_t>{0, 0, 0, 1, 2, 2, 2});
    CHECK(sources("reflect") == std::vector<int64_t>{2, 1, 0, 1, 2, 1, 0});
    CHECK(sources("symmetric") == std::vector<int64_t>{1, 0, 0, 1, 2, 2, 1});
    CHECK_THROWS_WITH_AS(pad_mode("wrap"), "attribute mode=wrap is not supported", Refusal);
  }

  TEST_CASE("Call: the position of an absent operand gives nullptr") {
    float x = 1, y = 2;
    void* inputs[] = {&x};
    void* outputs[] = {&y};
    const Call c{.inputs = inputs, .outputs = outputs};
    CHECK(c.in<float>(0) == &x);
    CHECK(c.out<float>(0) == &y);
    CHECK(c.in(-1) == nullptr);
    CHECK(c.out(Value().position()) == nullptr);
  }
}

}  // namespace tenon::sdk
