// SPDX-License-Identifier: Apache-2.0
// gather, scatter, scatter_add, scatter_reduce, dynamic_slice, dynamic_update_slice. With oob=error
// every index is checked before anything is written.
#include <algorithm>
#include <cstring>

#include "../element.hpp"
#include "../kernels.hpp"

namespace tenon::sample {

namespace {

enum class Oob { error, clamp, skip };
Oob oob_of(const std::string& name, bool can_skip) {
  if (name == "error") return Oob::error;
  if (name == "clamp") return Oob::clamp;
  if (name == "skip" && can_skip) return Oob::skip;
  throw Refusal::attribute("oob", name);
}

// The integer operand `position` of a call: i32 or i64.
class Indices {
 public:
  explicit Indices(const sdk::Value& v)
      : position_(v.position()),
        wide_(v.type().dtype == TENON_DTYPE_I64),
        count_(v.type().elements()) {}
  int64_t count() const { return count_; }
  int64_t get(const sdk::Call& c, int64_t k) const {
    return wide_ ? c.in<int64_t>(position_)[k] : c.in<int32_t>(position_)[k];
  }

 private:
  int position_;
  bool wide_;
  int64_t count_;
};

// Index k on an axis of length d, from the end when negative; -1 = skip.
int64_t resolve(const Indices& indices, const sdk::Call& c, int64_t k, int64_t d, Oob oob) {
  const int64_t given = indices.get(c, k), index = given < 0 ? given + d : given;
  if (index >= 0 && index < d) return index;
  if (oob == Oob::skip) return -1;
  if (oob == Oob::clamp && d > 0) return index < 0 ? 0 : d - 1;
  throw sdk::Failure(TENON_INDEX_OUT_OF_RANGE,
                     "index " + std::to_string(given) + " at position " + std::to_string(k) +
                         " is outside [" + std::to_string(-d) + ", " + std::to_string(d) + ")",
                     k);
}
void check_all(const Indices& indices, const sdk::Call& c, int64_t d, Oob oob) {
  for (int64_t k = 0; k < indices.count(); ++k) resolve(indices, c, k, d, oob);
}

// out = base, unless they are the same memory.
void copy_base(const sdk::Call& c, int base, uint64_t bytes) {
  if (bytes != 0 && c.inputs[base] != c.outputs[0])
    std::memcpy(c.outputs[0], c.inputs[base], bytes);
}

// Bytes of so many elements. Of a dtype of blocks, they are whole blocks.
uint64_t row_bytes(const char* operand, tenon_dtype d, int64_t elements) {
  if (is_nibble(d)) throw Refusal::dtype(operand, d);
  return tenon_dense_bytes(d, elements);
}

}  // namespace

Kernel make_gather(const op::gather& n, const Node&) {
  const Type& data = n.data.type();
  const AxisView l = along_axis(data, n.axis);
  const Indices indices(n.indices);
  const Oob oob = oob_of(n.oob, true);
  const uint64_t row = row_bytes("data", data.dtype, l.inner);
  const auto run = [=](const sdk::Call& c) {
    check_all(indices, c, l.length, oob);
    const auto* from = c.in<unsigned char>(0);
    auto* to = c.out<unsigned char>(0);
    for (int64_t o = 0; o < l.outer; ++o) {
      for (int64_t k = 0; k < indices.count(); ++k, to += row) {
        const int64_t index = resolve(indices, c, k, l.length, oob);
        if (index < 0) {
          std::memset(to, 0, row);
        } else {
          std::memcpy(to, from + static_cast<uint64_t>(o * l.length + index) * row, row);
        }
      }
    }
  };
  return {.run = run};
}

Kernel make_scatter(const op::scatter& n, const Node&) {
  const Type& base = n.base.type();
  const AxisView l = along_axis(base, n.axis);
  const Indices indices(n.indices);
  const Oob oob = oob_of(n.oob, true);
  const uint64_t row = row_bytes("base", base.dtype, l.inner);
  const auto run = [=, bytes = base.bytes()](const sdk::Call& c) {
    check_all(indices, c, l.length, oob);
    copy_base(c, 0, bytes);
    const auto* from = c.in<unsigned char>(2);
    for (int64_t o = 0; o < l.outer; ++o) {
      for (int64_t k = 0; k < indices.count(); ++k, from += row) {
        const int64_t index = resolve(indices, c, k, l.length, oob);
        if (index < 0) continue;
        std::memcpy(c.out<unsigned char>(0) + static_cast<uint64_t>(o * l.length + index) * row,
                    from, row);
      }
    }
  };
  return {.run = run, .in_place = {{0, 0}}};
}

// Sums live in scratch, as doubles or wrapping integers, and are rounded once.
Kernel make_scatter_add(const op::scatter_add& n, const Node& node) {
  const Type& y = node.out(0).type();
  const AxisView l = along_axis(y, n.axis);
  const Indices indices(n.indices);
  const Oob oob = oob_of(n.oob, true);
  const bool has_base = static_cast<bool>(n.base);
  const auto make = [&]<class T>(T) {
    using Sum = std::conditional_t<kIsFloat<T>, double, uint64_t>;
    const auto run = [=, count = y.elements()](const sdk::Call& c) {
      check_all(indices, c, l.length, oob);
      auto* sums = static_cast<Sum*>(c.scratch);
      for (int64_t k = 0; k < count; ++k)
        sums[k] = has_base ? static_cast<Sum>(widen(c.in<T>(2)[k])) : Sum{0};
      const T* from = c.in<T>(0);
      for (int64_t o = 0; o < l.outer; ++o) {
        for (int64_t k = 0; k < indices.count(); ++k, from += l.inner) {
          const int64_t index = resolve(indices, c, k, l.length, oob);
          if (index < 0) continue;
          Sum* to = sums + (o * l.length + index) * l.inner;
          for (int64_t i = 0; i < l.inner; ++i) to[i] += static_cast<Sum>(widen(from[i]));
        }
      }
      for (int64_t k = 0; k < count; ++k) c.out<T>(0)[k] = narrow<T>(sums[k]);
    };
    return Kernel{.run = run,
                  .scratch = static_cast<uint64_t>(y.elements()) * sizeof(Sum),
                  .in_place = {{2, 0}}};
  };
  return with_type(kNumberTypes, "updates", y.dtype, make);
}

namespace {

// One update onto what its place has: floats as doubles, integers wrap. NaN wins.
template <class V>
V folded(const std::string& kind, V a, V b) {
  if (kind == "mul") {
    if constexpr (std::integral<V>)
      return static_cast<V>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
  if (a != a || b != b) return a != a ? a : b;
  return kind == "max" ? std::max(a, b) : std::min(a, b);
}

}  // namespace

Kernel make_scatter_reduce(const op::scatter_reduce& n, const Node&) {
  const Type& base = n.base.type();
  const AxisView l = along_axis(base, n.axis);
  const Indices indices(n.indices);
  const Oob oob = oob_of(n.oob, true);
  if (n.kind != "mul" && n.kind != "max" && n.kind != "min")
    throw Refusal::attribute("kind", n.kind);
  const auto make = [&]<class T>(T) -> Kernel {
    using V = decltype(widen(T{}));
    if (std::same_as<T, Bool> && n.kind == "mul") throw Refusal::dtype("base", base.dtype);
    const auto run = [=, kind = n.kind, count = base.elements()](const sdk::Call& c) {
      check_all(indices, c, l.length, oob);
      auto* results = static_cast<V*>(c.scratch);
      for (int64_t k = 0; k < count; ++k) results[k] = widen(c.in<T>(0)[k]);
      const T* from = c.in<T>(2);
      for (int64_t o = 0; o < l.outer; ++o) {
        for (int64_t k = 0; k < indices.count(); ++k, from += l.inner) {
          const int64_t index = resolve(indices, c, k, l.length, oob);
          if (index < 0) continue;
          V* to = results + (o * l.length + index) * l.inner;
          for (int64_t i = 0; i < l.inner; ++i) to[i] = folded(kind, to[i], widen(from[i]));
        }
      }
      for (int64_t k = 0; k < count; ++k) c.out<T>(0)[k] = narrow<T>(results[k]);
    };
    return {.run = run,
            .scratch = static_cast<uint64_t>(base.elements()) * sizeof(V),
            .in_place = {{0, 0}}};
  };
  return with_type(kPlainTypes, "base", base.dtype, make);
}

namespace {

// Where a block of shape `block` begins inside `whole`, in elements; start holds one index per
// axis, never from the end.
int64_t block_offset(const sdk::Call& c, const Indices& start, const Type& whole, const Type& block,
                     Oob oob) {
  int64_t offset = 0;
  for (int i = 0; i < whole.rank; ++i) {
    const int64_t room = whole.dims[i] - block.dims[i], given = start.get(c, i);
    if (oob == Oob::error && (given < 0 || given > room)) {
      throw sdk::Failure(TENON_INDEX_OUT_OF_RANGE,
                         "start " + std::to_string(given) + " on axis " + std::to_string(i) +
                             " is outside [0, " + std::to_string(room) + "]",
                         i);
    }
    offset += std::clamp<int64_t>(given, 0, room) * whole.strides[i];
  }
  return offset;
}

}  // namespace

Kernel make_dynamic_slice(const op::dynamic_slice& n, const Node& node) {
  const Type &x = n.x.type(), &y = node.out(0).type(), &s = n.start.type();
  const Oob oob = oob_of(n.oob, false);
  if (!s.dense()) throw Refusal::shape("operand start must be dense");
  const Indices start(n.start);
  return with_bits("x", x.dtype, [&]<class T>(T) {
    const auto run = [=, x = x, y = y](const sdk::Call& c) {
      const T* from = c.in<T>(0) + block_offset(c, start, x, y, oob);
      T* to = c.out<T>(0);
      walk(y, x.strides, [&](int64_t k, const auto& at) { to[k] = from[at[0]]; });
    };
    return Kernel{.run = run};
  });
}

Kernel make_dynamic_update_slice(const op::dynamic_update_slice& n, const Node&) {
  const Type &base = n.base.type(), &update = n.update.type();
  const Oob oob = oob_of(n.oob, false);
  const Indices start(n.start);
  Kernel kernel = with_bits("base", base.dtype, [&]<class T>(T) {
    const auto run = [=, base = base, update = update](const sdk::Call& c) {
      const int64_t offset = block_offset(c, start, base, update, oob);
      copy_base(c, 0, base.bytes());
      const T* from = c.in<T>(1);
      T* to = c.out<T>(0) + offset;
      walk(update, base.strides, [&](int64_t k, const auto& at) { to[at[0]] = from[k]; });
    };
    return Kernel{.run = run};
  });
  kernel.in_place = {{0, 0}};
  return kernel;
}

}  // namespace tenon::sample
