// SPDX-License-Identifier: Apache-2.0
// Reads a TensorProto, without its content.
#pragma once

#include "import/onnx/model.hpp"
#include "import/onnx/wire.hpp"

namespace tenon::core::onnx {

// Bytes of a file beside the model.
struct ExternalData {
  std::string location{};
  uint64_t offset = 0;
  std::optional<uint64_t> size{};  // absent: as many as the tensor has
};

// Where the content of a tensor is. Numbers in typed fields (float_data, ...) are read again from
// the message when the content is asked for.
struct Tensor::Source {
  std::shared_ptr<const Input> input{};
  uint64_t begin = 0, end = 0;        // the TensorProto
  uint64_t raw_at = 0, raw_size = 0;  // raw_data
  std::optional<ExternalData> external{};
  std::string where{};  // the path of fields, for messages
};

Tensor take_tensor(Message m);

// Reads bytes of a file in the folder of the input, or of a folder in it. Refuses absolute paths,
// "..", and links that lead out of the folder.
Bytes read_external(const Input& input, const ExternalData& data, uint64_t size);

// Bounds what a small file can make of memory: many empty messages take few bytes in it.
inline constexpr size_t kMostEntries = 1 << 22;

}  // namespace tenon::core::onnx
