// SPDX-License-Identifier: Apache-2.0
// Products of bytes with blocks by AVX2, and by AVX-VNNI. Written with intrinsics: Highway 1.0 has no
// such products.
#include <algorithm>
#include <cstring>

#include "../isa.hpp"
#include "dequant_bytes.hpp"
#include "intrinsics.hpp"
#include "qgemm.hpp"

#if TENON_CPU_X86

namespace tenon::cpu {
namespace {

HWY_PUSH_ATTRIBUTES("avx2,fma")
namespace avx2 {

#include "dequant_unit_avx2-inl.h"

#include "dequant_256-inl.h"

}  // namespace avx2
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,avxvnni")
namespace avx_vnni {

#include "dequant_unit_avx_vnni-inl.h"

#include "dequant_256-inl.h"

}  // namespace avx_vnni
HWY_POP_ATTRIBUTES

}  // namespace

const ByteKernels* byte_kernels_avx2(tenon_dtype format) {
  if (q_unit() == QUnit::vnni256) return avx_vnni::kernels(format);
  static const bool has = isa_cap() >= Isa::avx2 && (hwy::SupportedTargets() & HWY_AVX2) != 0;
  return has ? avx2::kernels(format) : nullptr;
}

}  // namespace tenon::cpu

#else

namespace tenon::cpu {
const ByteKernels* byte_kernels_avx2(tenon_dtype) { return nullptr; }
}  // namespace tenon::cpu

#endif
