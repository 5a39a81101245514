// SPDX-License-Identifier: Apache-2.0
// matmul: rows of double sums, one rounding at the end. Sums of integers are exact, or wrap.
#include <algorithm>

#include "../element.hpp"
#include "../kernels.hpp"

namespace tenon::sample {

namespace {

template <class Sum, class A, class B, class Y>
Kernel kernel_of(const MatmulShape& p, double alpha = 1) {
  const auto run = [p, alpha](const sdk::Call& c) {
    auto* sums = static_cast<Sum*>(c.scratch);
    walk(p.batch, std::array{p.a_batch, p.b_batch}, [&](int64_t batch, const auto& at) {
      for (int64_t m = 0; m < p.m; ++m) {
        const A* a = c.in<A>(0) + at[0] + m * p.a_m;
        std::fill_n(sums, p.n, Sum{0});
        for (int64_t k = 0; k < p.k; ++k) {
          const Sum factor = static_cast<Sum>(widen(a[k * p.a_k]));
          const B* b = c.in<B>(1) + at[1] + k * p.b_k;
          for (int64_t n = 0; n < p.n; ++n)
            sums[n] += factor * static_cast<Sum>(widen(b[n * p.b_n]));
        }
        Y* y = c.out<Y>(0) + (batch * p.m + m) * p.n;
        for (int64_t n = 0; n < p.n; ++n) {
          if constexpr (std::same_as<Sum, double>) {
            y[n] = narrow<Y>(alpha * sums[n]);
          } else {
            y[n] = narrow<Y>(sums[n]);
          }
        }
      }
    });
  };
  return {.run = run, .scratch = static_cast<uint64_t>(p.n) * sizeof(Sum)};
}

}  // namespace

Kernel make_matmul(const op::matmul& n, const Node& node) {
  const Type &a = n.a.type(), &b = n.b.type(), &y = node.out(0).type();
  if (n.f32_precision != "ieee" && n.f32_precision != "tf32") {
    throw Refusal::attribute("f32_precision", n.f32_precision);
  }
  const MatmulShape p = matmul_shape(n, y);
  if (is_float(a.dtype) && a.dtype != b.dtype) {  // a half beside f32
    if (y.dtype != TENON_DTYPE_F32) throw Refusal::attribute("out_dtype", sdk::dtype_name(y.dtype));
    if (a.dtype == TENON_DTYPE_F32)
      return with_type(Types<F16, BF16>{}, "b", b.dtype, [&]<class B>(B) -> Kernel {
        return kernel_of<double, float, B, float>(p, n.alpha);
      });
    if (b.dtype != TENON_DTYPE_F32) throw Refusal::dtype("b", b.dtype);
    return with_type(Types<F16, BF16>{}, "a", a.dtype, [&]<class A>(A) -> Kernel {
      return kernel_of<double, A, float, float>(p, n.alpha);
    });
  }
  if (is_float(a.dtype)) {
    return with_type(kFloatTypes, "a", a.dtype, [&]<class T>(T) -> Kernel {
      if (y.dtype == TENON_DTYPE_F32) return kernel_of<double, T, T, float>(p, n.alpha);
      if (y.dtype == a.dtype) return kernel_of<double, T, T, T>(p, n.alpha);
      throw Refusal::attribute("out_dtype", sdk::dtype_name(y.dtype));
    });
  }
  if (n.alpha != 1) throw Refusal::attribute("alpha", std::to_string(n.alpha));
  if (element_bytes(a.dtype) >= 4) {
    if (b.dtype != a.dtype) throw Refusal::dtype("b", b.dtype);
    if (y.dtype != a.dtype) throw Refusal::attribute("out_dtype", sdk::dtype_name(y.dtype));
    return with_type(Types<int32_t, int64_t, uint32_t, uint64_t>{}, "a", a.dtype,
                     [&]<class T>(T) -> Kernel { return kernel_of<uint64_t, T, T, T>(p); });
  }
  if (y.dtype != TENON_DTYPE_I32) throw Refusal::attribute("out_dtype", sdk::dtype_name(y.dtype));
  return with_type(Types<int8_t, uint8_t>{}, "a", a.dtype, [&]<class A>(A) {
    return with_type(Types<int8_t, uint8_t>{}, "b", b.dtype,
                     [&]<class B>(B) -> Kernel { return kernel_of<int64_t, A, B, int32_t>(p); });
  });
}

}  // namespace tenon::sample
