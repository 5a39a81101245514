// SPDX-License-Identifier: Apache-2.0
// Folders whose weights are quantized as a source of tensors.
#include "llm/arch/joint_experts.hpp"
#include "llm/arch/quantized_folder.hpp"
#include "llm/model_folder.hpp"

namespace tenon::llm {
namespace {

// The folder, if it has a matrix for each expert: only mxfp4 has tensors of all of them.
const std::string& without_joint(const std::string& path, const Quantization& q) {
  for (const std::string& file : safetensors_files(path))
    for (const Safetensors::Entry& t : Safetensors(file).entries())
      if (is_joint(t.name))
        throw Error(TENON_UNSUPPORTED, path + ": quant_method '" + q.method +
                                           "': expected a tensor for each matrix of each expert, "
                                           "got those of all experts in " +
                                           described(t));
  return path;
}

struct Source {
  Source(const std::string& path, const Quantization& q, const DecodeOptions& o)
      : folder(without_joint(path, q), q),
        options(o),
        transposed(o.inputs_are_rows && q.layout != Quantization::Layout::scaled) {
    for (const auto& [name, weight] : folder.encoded) {
      const bool plain = weight->blocks == TENON_DTYPE_NONE || o.inputs_are_rows;
      dtypes.emplace(name, plain ? o.dtype : weight->blocks);
    }
  }

  TensorType type(const std::string& name) const {
    const EncodedWeight& e = *folder.encoded.at(name);
    return {dtypes.at(name),
            transposed ? std::vector{e.columns, e.rows} : std::vector{e.rows, e.columns}};
  }

  void load(Store& store) const {
    for (const auto& [name, weight] : folder.encoded)
      store.borrow(TENON_SPACE_WEIGHT, name,
                   std::make_shared<Tensor>(weight->tensor(dtypes.at(name), transposed)));
  }

  const QuantizedFolder folder;
  const DecodeOptions options;
  const bool transposed;
  std::map<std::string, tenon_dtype, std::less<>> dtypes;  // of encoded weights in the store
};

}  // namespace

TensorSource quantized_tensors(const std::string& folder, const Quantization& quantization,
                               const DecodeOptions& options) {
  const auto source = std::make_shared<Source>(folder, quantization, options);
  TensorSource out = tensors_of(source);
  out.unneeded = source->folder.empty_biases();
  return out;
}

}  // namespace tenon::llm
