// SPDX-License-Identifier: Apache-2.0
// The frame around a BodyText: one thread per vector of the result, operands read as they lie.
#pragma once

#include <vector>

#include "../device.hpp"
#include "body_text.hpp"

namespace tenon::cuda {

// The kernel that writes all outputs of `text` (dense, of `shape`, at positions first_out and on)
// from operands `in`, which broadcast to it. Unless any_strides, refuses those that would waste
// most of each access; then the layer makes dense copies.
sdk::Kernel elementwise_kernel(CudaDevice& device, const std::string& name, const BodyText& text,
                               const std::vector<sdk::Value>& in, std::span<const int64_t> shape,
                               int first_out = 0, bool any_strides = false);

// The text of that kernel, whose entry is `elementwise`.
std::string elementwise_text(const BodyText& text, const std::vector<sdk::Value>& in,
                             std::span<const int64_t> shape);

}  // namespace tenon::cuda
