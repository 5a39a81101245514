// SPDX-License-Identifier: Apache-2.0
// The plugin's description and its one exported symbol. Nothing is loaded before devices are asked
// for; what was loaded stays.
#include "device.hpp"
#include "guest_text.hpp"
#include "kernels.hpp"

namespace tenon::cuda {
namespace {

constexpr sdk::PluginSpec kSpec{.name = "cuda",
                                .version = TENON_CUDA_VERSION,
                                .vendor = "tenon",
                                .families = kFamilies,
                                .devices = devices,
                                .note = note,
                                .open = open,
                                .streams = true,
                                .native_streams = true,
                                .kernel_form = TENON_CUDA_KERNEL_ID,
                                .adopt = adopt_text};

}  // namespace
}  // namespace tenon::cuda

TENON_STREAM_PLUGIN(tenon::cuda::kSpec, "cuda", TENON_ISA_BASELINE)
