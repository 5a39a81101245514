// SPDX-License-Identifier: Apache-2.0
// concat, pad, iota. narrow, transpose, expand and reshape are the SDK's views, copy is its strided
// copy.
#include <tenon/axis.hpp>

#include <cstring>

#include "../element.hpp"
#include "../kernels.hpp"

namespace tenon::sample {

Kernel make_concat(const op::concat& n, const Node& node) {
  const Type& y = node.out(0).type();
  const AxisView l = along_axis(y, n.axis);
  if (is_nibble(y.dtype)) throw Refusal::dtype("xs", y.dtype);
  std::vector<uint64_t> pieces;  // bytes of each operand for one outer index
  for (const sdk::Value& x : n.xs)
    pieces.push_back(
        static_cast<uint64_t>(x.type().dims[l.axis] * l.inner * element_bytes(y.dtype)));
  const auto run = [pieces, outer = l.outer](const sdk::Call& c) {
    auto* to = c.out<unsigned char>(0);
    for (int64_t o = 0; o < outer; ++o) {
      for (size_t i = 0; i < pieces.size(); ++i) {
        const auto* from =
            c.in<unsigned char>(static_cast<int>(i)) + static_cast<uint64_t>(o) * pieces[i];
        std::memcpy(to, from, pieces[i]);
        to += pieces[i];
      }
    }
  };
  return {.run = run};
}

Kernel make_pad(const op::pad& n, const Node& node) {
  const Type &x = n.x.type(), &y = node.out(0).type();
  const PadMode mode = pad_mode(n.mode);
  const Dims before = pad_before(n, x);
  return with_type(kPlainTypes, "x", x.dtype, [&]<class T>(T) {
    const auto run = [=, x = x, y = y, value = narrow<T>(n.value)](const sdk::Call& c) {
      // One walk per axis of y is enough to know where each position comes from: offsets add up.
      Type at{.rank = y.rank, .dims = y.dims};
      std::array<Dims, sdk::kMaxRank> steps{};
      for (int i = 0; i < y.rank; ++i) steps[static_cast<size_t>(i)][i] = 1;
      walk(at, steps, [&](int64_t k, const auto& position) {
        int64_t offset = 0;
        bool inside = true;
        for (int i = 0; i < y.rank && inside; ++i) {
          const auto axis = static_cast<size_t>(i);
          const int64_t from = pad_source(mode, position[axis] - before[axis], x.dims[axis]);
          inside = from >= 0;
          offset += from * x.strides[axis];
        }
        c.out<T>(0)[k] = inside ? c.in<T>(0)[offset] : value;
      });
    };
    return Kernel{.run = run};
  });
}

Kernel make_iota(const op::iota& n, const Node& node) {
  const Type& y = node.out(0).type();
  const AxisView l = along_axis(y, n.axis);
  const auto make = [&]<class T>(T) {
    using Number = std::conditional_t<kIsFloat<T>, double, uint64_t>;  // integers wrap
    const auto number = [](double v) -> Number {
      if constexpr (kIsFloat<T>) {
        return v;
      } else {
        return static_cast<uint64_t>(narrow<int64_t>(v));
      }
    };
    const auto run = [l, start = number(n.start), step = number(n.step)](const sdk::Call& c) {
      for (int64_t k = 0; k < l.outer * l.length * l.inner; ++k) {
        c.out<T>(0)[k] = narrow<T>(start + step * static_cast<Number>(k / l.inner % l.length));
      }
    };
    return Kernel{.run = run};
  };
  return with_type(kNumberTypes, "y", y.dtype, make);
}

}  // namespace tenon::sample
