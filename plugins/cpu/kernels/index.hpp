// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the index family.
#pragma once

#include <string_view>
#include <type_traits>

#include "axis.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

// How scatters join an update with what its place has.
enum class Fold : uint8_t { add, mul, max, min };

inline Fold parse_fold(std::string_view kind) {
  if (kind == "mul") return Fold::mul;
  if (kind == "max") return Fold::max;
  if (kind == "min") return Fold::min;
  throw sdk::Refusal::attribute("kind", kind);
}

// Returns f(T{}, std::integral_constant of fold). T is the storage type of a float dtype; of an
// integer dtype it is the unsigned type where results wrap, and the type itself where they are
// compared. Bools are compared as bytes. Refuses other dtypes.
template <class F>
auto with_fold(std::string_view operand, tenon_dtype dtype, Fold fold, F&& f) {
  const auto of = [&]<Fold kind>() {
    return [&]<class T>(T v) { return f(v, std::integral_constant<Fold, kind>{}); };
  };
  constexpr auto kOrdered = sdk::kFloatTypes + sdk::kIntegerTypes;
  const tenon_dtype ordered = dtype == TENON_DTYPE_BOOL ? TENON_DTYPE_U8 : dtype;
  switch (fold) {
    case Fold::add:
      return with_number(operand, dtype, of.template operator()<Fold::add>());
    case Fold::mul:
      return with_number(operand, dtype, of.template operator()<Fold::mul>());
    case Fold::max:
      return with_type(kOrdered, operand, ordered, of.template operator()<Fold::max>());
    default:
      return with_type(kOrdered, operand, ordered, of.template operator()<Fold::min>());
  }
}

sdk::Kernel make_gather_backward(const sdk::op::gather_backward& n, const sdk::Node& node);
sdk::Kernel make_scatter(const sdk::op::scatter& n, const sdk::Node& node);
sdk::Kernel make_scatter_add(const sdk::op::scatter_add& n, const sdk::Node& node);
sdk::Kernel make_scatter_reduce(const sdk::op::scatter_reduce& n, const sdk::Node& node);

}  // namespace tenon::cpu
