// SPDX-License-Identifier: Apache-2.0
// cumsum. Floats are carried in long double, integers wrap.
#include "../element.hpp"
#include "../kernels.hpp"

namespace tenon::sample {

Kernel make_cumsum(const op::cumsum& n, const Node&) {
  const Type& x = n.x.type();
  const AxisView l = along_axis(x, n.axis);
  const auto make = [&]<class T>(T) {
    using Sum = std::conditional_t<kIsFloat<T>, long double, uint64_t>;
    const auto run = [l, exclusive = n.exclusive, reverse = n.reverse](const sdk::Call& c) {
      for (int64_t line = 0; line < l.outer * l.inner; ++line) {
        const int64_t base = line / l.inner * l.length * l.inner + line % l.inner;
        const T* x = c.in<T>(0) + base;
        T* y = c.out<T>(0) + base;
        Sum sum = 0;
        for (int64_t i = 0; i < l.length; ++i) {
          const int64_t at = (reverse ? l.length - 1 - i : i) * l.inner;
          const Sum before = sum;
          sum += static_cast<Sum>(widen(x[at]));
          y[at] = narrow<T>(exclusive ? before : sum);
        }
      }
    };
    return Kernel{.run = run};
  };
  return with_type(kNumberTypes, "x", x.dtype, make);
}

}  // namespace tenon::sample
