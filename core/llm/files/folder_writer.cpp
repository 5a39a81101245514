// SPDX-License-Identifier: Apache-2.0
// Safetensors files of a folder and their index.
#include "llm/files/folder_writer.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

#include "llm/files/json.hpp"

namespace tenon::llm::files {
namespace {

// The file of each tensor, by number.
std::vector<size_t> shards_of(const std::vector<FolderTensor>& tensors, uint64_t file_bytes) {
  std::vector<size_t> out;
  size_t shard = 0;
  uint64_t in_shard = 0;
  for (const FolderTensor& t : tensors) {
    if (in_shard > 0 && in_shard + t.type.bytes() > file_bytes) ++shard, in_shard = 0;
    in_shard += t.type.bytes();
    out.push_back(shard);
  }
  return out;
}

// model.safetensors or model-00001-of-00002.safetensors?
bool is_of_a_model(const std::string& name) {
  constexpr std::string_view kBegin = "model", kEnd = ".safetensors", kMiddle = "-of-";
  if (name.size() < kBegin.size() + kEnd.size() || !name.starts_with(kBegin) ||
      !name.ends_with(kEnd))
    return false;
  const std::string_view middle =
      std::string_view(name).substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  return middle.empty() || (middle.starts_with("-") && middle.find(kMiddle) != middle.npos &&
                            middle.find_first_not_of("-of0123456789") == middle.npos);
}

// Of an earlier model.
void remove_others(const std::string& folder, const std::set<std::string>& written) {
  std::error_code error;
  std::vector<std::filesystem::path> others;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (const std::string name = entry.path().filename().string();
        is_of_a_model(name) && !written.contains(name))
      others.push_back(entry.path());
  for (const auto& path : others) std::filesystem::remove(path, error);
  if (written.size() <= 1) std::filesystem::remove(folder + "/model.safetensors.index.json", error);
}

}  // namespace

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(TENON_IO_ERROR, folder + ": create: " + error.message());
  // Readers would take files of an earlier model for files of this one.
  for (const char* name : {"tokenizer.json", "chat_template.jinja", "1_Pooling/config.json"})
    std::filesystem::remove(folder + "/" + name, error);
}

uint64_t write_tensors(const std::string& folder, const std::vector<FolderTensor>& tensors,
                       const ConvertOptions& options) {
  const std::vector<size_t> shard_of = shards_of(tensors, options.file_bytes);
  const size_t shards = shard_of.empty() ? 0 : shard_of.back() + 1;
  uint64_t total = 0, done = 0;
  for (const FolderTensor& t : tensors) total += t.type.bytes();
  // Only to hold tensors and to write them: no plugin is needed.
  const Runtime runtime(RuntimeOptions{.use_environment = false, .use_builtin_dir = false});
  Json map = Json::object();
  std::set<std::string> written;
  size_t next = 0;
  for (size_t shard = 0; shard < shards; ++shard) {
    std::string name = "model.safetensors";
    if (shards > 1) {
      char text[64];
      std::snprintf(text, sizeof text, "model-%05zu-of-%05zu.safetensors", shard + 1, shards);
      name = text;
    }
    Store store(runtime);
    for (; next < tensors.size() && shard_of[next] == shard; ++next) {
      const FolderTensor& t = tensors[next];
      if (options.progress) options.progress(done, total, t.name);
      store.borrow(TENON_SPACE_WEIGHT, t.name, t.make());
      done += t.type.bytes();
      map[t.name] = name;
    }
    store.save(TENON_SPACE_WEIGHT, folder + "/" + name, {{"format", "pt"}});
    written.insert(name);
  }
  if (shards > 1)
    write_text(folder, "model.safetensors.index.json",
               Json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n");
  remove_others(folder, written);
  return total;
}

void write_text(const std::string& folder, const std::string& name, const std::string& text) {
  const std::string path = folder + "/" + name, temporary = path + ".tmp";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(temporary, path, error);
  if (!out || error) throw Error(TENON_IO_ERROR, path + ": write failed");
}

}  // namespace tenon::llm::files
