// SPDX-License-Identifier: Apache-2.0
//
// A kernel for devices of the cuda plugin, as a text in CUDA C++ (cuda_kernel.h):
//
//   CudaKernel make_softcap(const my::softcap& n, const Node&) {
//     const int64_t count = n.x.type().elements();
//     return {.text = kText, .entry = "softcap", .scalars = {scalar(count), scalar(n.cap)},
//             .blocks = (count + 255) / 256, .threads = 256};
//   }
//   constexpr tenon_kernel_row kKernels[] = {cuda_kernel<my::softcap, make_softcap>()};
//   constexpr PluginSpec kSpec{..., .kernels = kKernels};
#pragma once

#include <bit>

#include "cuda_kernel.h"
#include "plugin.hpp"

namespace tenon::sdk {

struct CudaKernel {
  std::string text{};
  std::string entry{};              // extern "C" __global__
  std::vector<uint64_t> scalars{};  // made by scalar()
  int64_t blocks = 0;               // 0: nothing is launched
  uint32_t threads = 256;
  uint32_t blocks_y = 1, blocks_z = 1;
  uint32_t shared = 0;   // bytes of dynamic shared memory of a block
  uint64_t scratch = 0;  // bytes of device memory
};

// A parameter of an entry: a long long or a double.
inline uint64_t scalar(int64_t v) { return static_cast<uint64_t>(v); }
inline uint64_t scalar(double v) { return std::bit_cast<uint64_t>(v); }

namespace layer {
template <class Op, CudaKernel (*make)(const Op&, const Node&)>
void make_cuda_kernel(const void*, const tenon_kernel_request* r) noexcept {
  with_request<Op>(r, [&](const Op& op, const Node& node) {
    const CudaKernel k = make(op, node);
    if (k.blocks < 0) throw Refusal::shape("a grid of " + std::to_string(k.blocks) + " blocks");
    tenon_cuda_kernel out{};
    out.struct_size = sizeof out;
    out.name = str(Op::kName);
    out.text = str(k.text);
    out.entry = str(k.entry);
    out.scalars = k.scalars.data();
    out.scalar_count = static_cast<uint32_t>(k.scalars.size());
    out.threads = k.threads;
    out.blocks = static_cast<uint64_t>(k.blocks);
    out.blocks_y = k.blocks_y;
    out.blocks_z = k.blocks_z;
    out.shared = k.shared;
    out.scratch = k.scratch;
    r->give(r, &out);
  });
}
}  // namespace layer

template <class Op, CudaKernel (*make)(const Op&, const Node&)>
constexpr tenon_kernel_row cuda_kernel(std::string_view device_kind = "cuda") {
  return layer::kernel_row<Op>(device_kind, TENON_CUDA_KERNEL_ID,
                               layer::make_cuda_kernel<Op, make>);
}

}  // namespace tenon::sdk
