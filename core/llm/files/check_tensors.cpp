// SPDX-License-Identifier: Apache-2.0
// Asks for the weights of one step, as the engine does.
#include "llm/files/check_tensors.hpp"

#include "llm/arch/step.hpp"
#include "llm/model_files.hpp"

namespace tenon::llm::files {

std::set<std::string, std::less<>> check_tensors(
    const ModelFolder& folder, const ModelConfig& config,
    const std::function<tenon_dtype(const ModelFolder::Entry&)>& dtype_of) {
  TensorSource source;
  for (const auto& [name, entry] : folder.tensors())
    source.types.emplace(name, TensorType(dtype_of(entry), entry.type.dims));
  std::set<std::string, std::less<>> left_out;
  try {
    Weights weights(std::move(source));
    step_graph(config, {.capacity = 1, .hidden = config.headless}, weights);
    weights.check_unused([&](const std::string& name) {
      if (folder.is_empty_bias(name)) left_out.insert(name);
      return left_out.contains(name) || is_harmless_tensor(name, config);
    });
  } catch (const Error& e) {
    throw Error(e.code(), folder.path() + ": " + e.what());
  }
  return left_out;
}

ModelConfig engine_config(const ModelFolder& folder) {
  return parse_config(folder.config().dump(-1, ' ', false, Json::error_handler_t::replace),
                      folder.config_file());
}

}  // namespace tenon::llm::files
