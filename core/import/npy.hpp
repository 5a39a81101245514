// SPDX-License-Identifier: Apache-2.0
// NumPy's array files: .npy (one array) and .npz (a ZIP archive of .npy files).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.hpp"

namespace tenon::core {

// A tensor outside of a graph; its content is dense and row-major.
struct NamedTensor {
  std::string name{};
  Type type{};
  Bytes content{};
};

// Versions 1 to 3. Arrays in Fortran's order are transposed, big-endian ones swapped. Refuses
// dtypes that tenon lacks: objects, structs, strings, dates.
NamedTensor read_npy(const std::string& path);
// All arrays of an archive, under their names without ".npy".
std::vector<NamedTensor> read_npz(const std::string& path);

// A tensor to be written; borrows the content.
struct TensorView {
  std::string_view name{};
  Type type{};
  std::span<const std::byte> content{};
};

// Write a temporary file and rename it. Refuse dtypes that NumPy lacks (bf16, f8, i4, u4).
void write_npy(const std::string& path, const TensorView& tensor);
void write_npz(const std::string& path, std::span<const TensorView> tensors, bool deflate);

}  // namespace tenon::core
