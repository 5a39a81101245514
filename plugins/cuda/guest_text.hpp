// SPDX-License-Identifier: Apache-2.0
// Kernels of other plugins: texts that come through tenon/cuda_kernel.h.
#pragma once

#include "tenon/cuda_kernel.h"
#include "tenon/kernel.hpp"

namespace tenon::cuda {

// given: a tenon_cuda_kernel of any version. Throws sdk::Refusal if it is not valid, or if there is no
// compiler. A text that does not compile is a Failure of Kernel::prepare.
sdk::Kernel adopt_text(const void* given, const sdk::Node& node);

}  // namespace tenon::cuda
