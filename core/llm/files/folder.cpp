// SPDX-License-Identifier: Apache-2.0
// Opens model folders.
#include "llm/files/folder.hpp"

#include "llm/model_folder.hpp"

namespace tenon::llm::files {

ModelFolder::ModelFolder(const std::string& path) : path_(path) {
  auto config = read_object(config_file());
  if (!config) throw Error(TENON_NOT_FOUND, path + ": expected a folder with config.json");
  config_ = std::move(*config);
  for (const std::string& file : safetensors_files(path)) {
    files_.emplace_back(file);
    for (Entry& e : files_.back().entries())
      if (const std::string tensor = e.name; !tensors_.emplace(tensor, std::move(e)).second)
        throw Error(TENON_CORRUPT, file + ": tensor '" + tensor + "' is also in another file");
  }
}

const ModelFolder::Entry* ModelFolder::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

}  // namespace tenon::llm::files
