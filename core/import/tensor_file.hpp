// SPDX-License-Identifier: Apache-2.0
// Files that hold tensors, whatever their format: .npy, .npz, and ONNX's TensorProto (.pb).
#pragma once

#include "import/npy.hpp"

namespace tenon::core {

// The format is that of the content. The tensor of a .npy file has no name.
std::vector<NamedTensor> read_tensors(const std::string& path);

// By the end of the path: one tensor to .npy, any number to .npz (deflated on request).
void write_tensors(const std::string& path, std::span<const TensorView> tensors, bool deflate);

}  // namespace tenon::core
