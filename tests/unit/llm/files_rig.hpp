// SPDX-License-Identifier: Apache-2.0
// Configurations of folders that become keys of GGUF and back.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

#include "llm/files/config_keys.hpp"

namespace tenon::llm::files {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/tenon-files-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

inline Json config(const Json& changes) {
  Json out{{"hidden_size", 64},        {"intermediate_size", 96},        {"num_hidden_layers", 12},
           {"num_attention_heads", 4}, {"num_key_value_heads", 2},       {"vocab_size", 32},
           {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 4096}};
  out.update(changes);
  return out;
}

// config.json of the file that the configuration becomes.
inline Json there_and_back(const std::string& model_type, const Json& changes) {
  const Folder folder;
  const std::string path = folder.path + "/m.gguf", file = "config.json";
  const Family& family = family_of_folder(model_type, file);
  Json from = config(changes);
  from["model_type"] = model_type;
  GgufWriter out(path);
  out.set("general.architecture", family.gguf);
  set_config_keys(out, family, from, file);
  for (const RopeTensor& t : rope_tensors(from, file))
    out.add(t.name, gguf_format("F32"), {static_cast<int64_t>(t.numbers.size())});
  for (const RopeTensor& t : rope_tensors(from, file))
    out.content(std::as_bytes(std::span(t.numbers)));
  out.commit();
  const Gguf model(path);
  CHECK((family.gguf == "llama" || family_of_gguf(model, path).model_type == model_type));
  return config_from_keys(model, family, "float32", path);
}

inline std::string refusal(const std::string& model_type, const Json& changes) {
  try {
    there_and_back(model_type, changes);
  } catch (const Error& e) {
    return e.what();
  }
  return "converted";
}

}  // namespace tenon::llm::files
