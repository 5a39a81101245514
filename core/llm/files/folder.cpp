// SPDX-License-Identifier: Apache-2.0
// Opens model folders.
#include "llm/files/folder.hpp"

#include <filesystem>
#include <set>

namespace tenon::llm::files {
namespace {

// The files that an index names, which are in the folder itself.
std::set<std::string> indexed_files(const Json& index, const std::string& path) {
  const auto map = field<Json>(index, "weight_map", path);
  if (!map) throw Error(TENON_CORRUPT, path + ": 'weight_map' is missing");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || std::filesystem::path(name).filename() != name)
      throw Error(TENON_CORRUPT, path + ": 'weight_map': '" + tensor +
                                     "': expected the name of a file in the folder");
    names.insert(name);
  }
  return names;
}

}  // namespace

ModelFolder::ModelFolder(const std::string& path) : path_(path) {
  auto config = read_object(config_file());
  if (!config) throw Error(TENON_NOT_FOUND, path + ": expected a folder with config.json");
  config_ = std::move(*config);
  const std::string one = path + "/model.safetensors", index = one + ".index.json";
  std::set<std::string> names;
  if (const auto list = read_object(index))
    names = indexed_files(*list, index);
  else
    names = {"model.safetensors"};
  for (const std::string& name : names) {
    files_.emplace_back(path + "/" + name);
    for (Entry& e : files_.back().entries())
      if (const std::string tensor = e.name; !tensors_.emplace(tensor, std::move(e)).second)
        throw Error(TENON_CORRUPT,
                    path + "/" + name + ": tensor '" + tensor + "' is in another file, too");
  }
}

const ModelFolder::Entry* ModelFolder::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

}  // namespace tenon::llm::files
