// SPDX-License-Identifier: Apache-2.0
// A plugin without a device: the op of softcap.hpp, and a kernel for it on the cuda plugin, as a text in CUDA C++. It is
// built without the CUDA toolkit, and loads on a machine without a GPU, where it has no effect but the op.
#include <tenon/cuda_kernel.hpp>
#include <tenon/plugin.hpp>

#include "softcap.hpp"

namespace softcap_cuda {

namespace sdk = tenon::sdk;

namespace my {
using sdk::Function, sdk::Value;
#define TENON_OPS "softcap.def"
#define TENON_OPS_DOMAIN "my"
#include <tenon/op_structs.inl>
}  // namespace my

constexpr const char* kText = R"(
extern "C" __global__ void softcap(const float* x, float* y, long long count, double cap) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  const float c = (float)cap;
  if (i < count) y[i] = c * tanhf(x[i] / c);
}
)";

sdk::CudaKernel make_softcap(const my::softcap& n, const sdk::Node&) {
  if (n.x.type().dtype != TENON_DTYPE_F32) throw sdk::Refusal::dtype("x", n.x.type().dtype);
  const int64_t count = n.x.type().elements();
  return {.text = kText,
          .entry = "softcap",
          .scalars = {sdk::scalar(count), sdk::scalar(n.cap)},
          .blocks = (count + 255) / 256,
          .threads = 256};
}

constexpr sdk::OpDesc kOps[] = {tenon::op_desc<::my::softcap, ::my::kSoftcap>};
constexpr tenon_kernel_row kKernels[] = {sdk::cuda_kernel<my::softcap, make_softcap>()};

constexpr sdk::PluginSpec kSpec{
    .name = "softcap_cuda", .version = "1.0.0", .vendor = "me", .ops = kOps, .kernels = kKernels};

}  // namespace softcap_cuda

TENON_PLUGIN(softcap_cuda::kSpec, "", TENON_ISA_BASELINE)
