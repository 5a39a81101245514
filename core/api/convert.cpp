// SPDX-License-Identifier: Apache-2.0
// Converts elements between dtypes, as the op cast does.
#include <limits>
#include <type_traits>

#include "api/door.hpp"
#include "ir/type.hpp"
#include "tenon/half.hpp"

using namespace tenon::core;

namespace {

using tenon::BF16, tenon::F16;

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;
struct Boolean {
  uint8_t byte;
};

// Calls f with an element of the C++ type of a dtype. Returns false if there is none.
template <class F>
bool with_element(tenon_dtype t, F&& f) {
  switch (t) {
    case TENON_DTYPE_F16:
      return f(F16()), true;
    case TENON_DTYPE_BF16:
      return f(BF16()), true;
    case TENON_DTYPE_F32:
      return f(float()), true;
    case TENON_DTYPE_F64:
      return f(double()), true;
    case TENON_DTYPE_I8:
      return f(int8_t()), true;
    case TENON_DTYPE_I16:
      return f(int16_t()), true;
    case TENON_DTYPE_I32:
      return f(int32_t()), true;
    case TENON_DTYPE_I64:
      return f(int64_t()), true;
    case TENON_DTYPE_U8:
      return f(uint8_t()), true;
    case TENON_DTYPE_U16:
      return f(uint16_t()), true;
    case TENON_DTYPE_U32:
      return f(uint32_t()), true;
    case TENON_DTYPE_U64:
      return f(uint64_t()), true;
    case TENON_DTYPE_BOOL:
      return f(Boolean()), true;
    default:
      return false;
  }
}

template <class To, class From>
To convert(From x) {
  if constexpr (kIsHalf<From>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<From, Boolean>) {
    return convert<To>(static_cast<uint8_t>(x.byte != 0));
  } else if constexpr (std::is_same_v<To, Boolean>) {
    return {static_cast<uint8_t>(x != 0)};
  } else if constexpr (kIsHalf<To>) {
    return To(x);
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(x);
  } else if constexpr (std::is_floating_point_v<From>) {
    // A limit that is one less than a power of two may round up to it: >= is right in both cases.
    constexpr auto kLowest = std::numeric_limits<To>::lowest();
    constexpr auto kHighest = std::numeric_limits<To>::max();
    if (x != x) return 0;
    if (x <= static_cast<From>(kLowest)) return kLowest;
    if (x >= static_cast<From>(kHighest)) return kHighest;
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);  // wraps
  }
}

template <class To, class From>
void convert_all(const void* source, void* target, uint64_t count) {
  const auto* from = static_cast<const unsigned char*>(source);
  auto* to = static_cast<unsigned char*>(target);
  for (uint64_t i = 0; i < count; ++i, from += sizeof(From), to += sizeof(To)) {
    From x;
    std::memcpy(&x, from, sizeof x);
    const To y = convert<To>(x);
    std::memcpy(to, &y, sizeof y);
  }
}

}  // namespace

tenon_status* tenon_convert(tenon_dtype from, const void* source, tenon_dtype to, void* target,
                            uint64_t count) {
  return door("tenon_convert", [&] {
    const auto refuse = [](std::string_view what, tenon_dtype t) {
      fail(Code::unsupported, "convert ", what, " ", dtype_name(t),
           ": expected a float of 16 bits or more, an integer of 8 bits or more, or bool");
    };
    if (count && (!source || !target))
      fail(Code::invalid_argument, "convert: ", source ? "target" : "source", " is NULL");
    const bool known = with_element(from, [&]<class From>(From) {
      if (!with_element(to, [&]<class To>(To) { convert_all<To, From>(source, target, count); }))
        refuse("to", to);
    });
    if (!known) refuse("from", from);
  });
}
