// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder: config.json, and the tensors of its safetensors files, mapped.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "llm/files/json.hpp"

namespace tenon::llm::files {

class ModelFolder {
 public:
  explicit ModelFolder(const std::string& path);

  using Entry = Safetensors::Entry;
  const std::string& path() const { return path_; }
  const Json& config() const { return config_; }
  std::string config_file() const { return path_ + "/config.json"; }
  // Null if the folder has no such tensor.
  const Entry* find(const std::string& name) const;
  const std::map<std::string, Entry>& tensors() const { return tensors_; }

 private:
  std::string path_;
  Json config_;
  std::vector<Safetensors> files_;
  std::map<std::string, Entry> tensors_;
};

}  // namespace tenon::llm::files
