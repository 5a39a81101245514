// SPDX-License-Identifier: Apache-2.0
// Weights that a folder has as small integers or 8-bit floats with scales, decoded row by row.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "llm/arch/quantization.hpp"

namespace tenon::llm {

// A weight [rows, columns]: outputs and inputs of a product. The files must stay mapped.
class EncodedWeight {
 public:
  virtual ~EncodedWeight() = default;
  int64_t rows = 0, columns = 0;
  // A dtype of blocks with the same numbers; NONE if there is none. The columns are a multiple of
  // its block then.
  tenon_dtype blocks = TENON_DTYPE_NONE;

  // Reads scales and zero points before rows are decoded.
  virtual void open() {}
  virtual void close() {}
  // Rows `first` to `first + count` as f32. `first` is a multiple of 64; count, too, or the rest.
  virtual void decode(int64_t first, int64_t count, float* to) const = 0;
  // The same in blocks.
  virtual void decode_blocks(int64_t /*first*/, int64_t /*count*/, std::byte* /*to*/) const {}

  // Where the numbers without their scales are in a mapped file; empty if others share this place.
  virtual std::span<const std::byte> source() const { return {}; }

  // All rows, by several threads; then the pages of source() leave memory. dtype: `blocks`, or f32,
  // f16 or bf16. transposed: [columns, rows].
  Tensor tensor(tenon_dtype dtype, bool transposed);
};

// A tensor of the folder. Null if there is none of this name.
using FindTensor = std::function<const Safetensors::Entry*(const std::string& name)>;

// The numbers of `weight` times a scale.
std::unique_ptr<EncodedWeight> scaled_weight(const Safetensors::Entry& weight,
                                             const Safetensors::Entry& scale,
                                             const Quantization& quantization);
// What the names of the integers end with.
std::string_view packed_end(Quantization::Layout layout);
// module: the name in front of packed_end(). The tensor of that name must be there.
std::unique_ptr<EncodedWeight> packed_weight(const std::string& module, const FindTensor& find,
                                             const Quantization& quantization);

// "'NAME' f16[2, 3]", for messages.
std::string described(const Safetensors::Entry& tensor);
// Throws unless a tensor of scales has one of the dtypes of as_floats().
void check_scales(const Safetensors::Entry& tensor);
// Numbers of f32, f16 or bf16, which need not be aligned.
std::vector<float> as_floats(const Safetensors::Entry& tensor);

}  // namespace tenon::llm
