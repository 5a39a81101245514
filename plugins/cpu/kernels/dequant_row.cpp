// SPDX-License-Identifier: Apache-2.0
// One row of bytes with rows of blocks, by units of 256 bits. A processor with AVX512-VNNI takes
// them for the formats that dequant_vnni_row.cpp lacks.
#include <cstring>
#include <utility>

#include "../isa.hpp"
#include "dequant_bytes.hpp"
#include "intrinsics.hpp"
#include "qgemm.hpp"

#if TENON_CPU_X86

namespace tenon::cpu {
namespace {

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
namespace avx2 {

#include "dequant_unit_avx2-inl.h"

#include "dequant_row-inl.h"

}  // namespace avx2
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avxvnni")
namespace avx_vnni {

#include "dequant_unit_avx_vnni-inl.h"

#include "dequant_row-inl.h"

}  // namespace avx_vnni
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512vl,avx512vnni")
namespace avx512_vnni {

HWY_INLINE __m256i dpbusd(__m256i sum, __m256i w, __m256i x) {
  return _mm256_dpbusd_epi32(sum, w, x);
}
#include "dequant_unit_vnni-inl.h"

#include "dequant_row-inl.h"

}  // namespace avx512_vnni
HWY_POP_ATTRIBUTES

}  // namespace

RowKernels row_kernels(tenon_dtype format) {
  const QUnit unit = q_unit();
  if (unit == QUnit::vnni512) {
    const RowKernels wide = row_kernels_vnni(format);
    return wide.row ? wide : avx512_vnni::kernels(format);
  }
  if (unit == QUnit::vnni256) return avx_vnni::kernels(format);
  static const bool has = isa_cap() >= Isa::avx2 && (hwy::SupportedTargets() & HWY_AVX2) != 0;
  return has ? avx2::kernels(format) : RowKernels{};
}

}  // namespace tenon::cpu

#else

namespace tenon::cpu {
RowKernels row_kernels(tenon_dtype) { return {}; }
}  // namespace tenon::cpu

#endif
