// SPDX-License-Identifier: Apache-2.0
// Unpacks blocks of each format to levels, scales and adds (dequant.hpp). Per target, as simd-inl.h.
#if defined(TENON_CPU_DEQUANT_UNPACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_DEQUANT_UNPACK_INL_H_
#undef TENON_CPU_DEQUANT_UNPACK_INL_H_
#else
#define TENON_CPU_DEQUANT_UNPACK_INL_H_
#endif

#include <hwy/highway.h>

#include "dequant_k-inl.h"
#include "dequant_small-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Unpacks `count` elements, whole blocks.
template <tenon_dtype kFormat, int kFlip>
HWY_INLINE void unpack_as(const uint8_t* from, int64_t count, Unpacked& to) {
  const tenon_block block = tenon_dtype_block(kFormat);
  const int blocks = static_cast<int>(count / block.elements);
  if constexpr (requires { &Format<kFormat>::scales; }) Format<kFormat>::scales(from, blocks, to);
  for (int b = 0; b < blocks; ++b, from += block.bytes)
    Format<kFormat>::template block<kFlip>(from, b, to);
  if (count == kUnpacked) return;
  for (int64_t g = count / 16; g < kUnpacked / 16; ++g) to.scale[g] = to.add[g] = 0;
}
// Unpacks elements [from, from + count) of a row, kUnpacked at a time.
template <tenon_dtype kFormat, int kFlip>
HWY_INLINE void unpack_row_as(const uint8_t* row, int64_t from, int64_t count, Unpacked* to) {
  const uint64_t bytes = tenon_dense_bytes(kFormat, kUnpacked);
  row += tenon_dense_bytes(kFormat, from);
  for (; count >= kUnpacked; count -= kUnpacked, row += bytes)
    unpack_as<kFormat, kFlip>(row, kUnpacked, *to++);
  if (count > 0) unpack_as<kFormat, kFlip>(row, count, *to);
}

// Calls f with the format as a constant.
template <class F>
HWY_INLINE void with_format(tenon_dtype t, const F& f) {
#define TENON_FORMAT(name) \
  case TENON_DTYPE_##name: \
    return f(std::integral_constant<tenon_dtype, TENON_DTYPE_##name>());
  switch (t) {
    TENON_FORMAT(Q4_0)
    TENON_FORMAT(Q4_1)
    TENON_FORMAT(Q5_0)
    TENON_FORMAT(Q5_1)
    TENON_FORMAT(Q8_0)
    TENON_FORMAT(Q8_1)
    TENON_FORMAT(Q2_K)
    TENON_FORMAT(Q3_K)
    TENON_FORMAT(Q4_K)
    TENON_FORMAT(Q5_K)
    TENON_FORMAT(Q6_K)
    TENON_FORMAT(Q8_K)
    TENON_FORMAT(IQ4_NL)
    TENON_FORMAT(IQ4_XS)
    TENON_FORMAT(TQ1_0)
    TENON_FORMAT(TQ2_0)
    TENON_FORMAT(MXFP4)
    TENON_FORMAT(NVFP4)
    TENON_FORMAT(Q1_0)
    TENON_FORMAT(Q2_0)
    TENON_FORMAT(F8E4M3_128)
  }
#undef TENON_FORMAT
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
