// SPDX-License-Identifier: Apache-2.0
// Reads small files of model folders, and finds their safetensors files.
#include "llm/model_folder.hpp"

#include <filesystem>
#include <fstream>
#include <set>

#include "llm/json_text.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

// The files that the index names, without a path in them.
std::set<std::string> indexed_files(const std::string& index) {
  const nlohmann::json json = parse_object(read_text(index), index);
  const auto bad = [&](const std::string& what) {
    throw Error(TENON_CORRUPT, index + ": " + what);
  };
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) bad("expected an object 'weight_map'");
  std::set<std::string> files;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) bad("'weight_map': '" + name.substr(0, 80) + "': expected a file name");
    const std::string text = file.get<std::string>();
    if (std::filesystem::path(text).filename() != text || !text.ends_with(".safetensors"))
      bad("'weight_map': expected names of .safetensors files in the folder, got '" +
          text.substr(0, 80) + "'");
    files.insert(text);
  }
  return files;
}

}  // namespace

bool is_model_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found)
    throw Error(TENON_NOT_FOUND, path + ": no such file or folder");
  if (error) throw Error(TENON_IO_ERROR, path + ": " + error.message());
  if (std::filesystem::is_directory(status)) return false;
  if (std::filesystem::is_regular_file(status)) return true;
  throw Error(TENON_IO_ERROR, path + ": expected a folder or a GGUF file");
}

std::optional<std::string> read_if_there(const std::string& path) {
  constexpr uintmax_t kMost = 64 << 20;
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return {};
  // A pipe or a device could make the read hang.
  if (!std::filesystem::is_regular_file(status))
    throw Error(TENON_IO_ERROR, path + ": expected a regular file");
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) throw Error(TENON_IO_ERROR, path + ": " + error.message());
  if (size > kMost)
    throw Error(TENON_UNSUPPORTED,
                path + ": expected at most 64 MiB, got " + std::to_string(size) + " bytes");
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<size_t>(size), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size())))
    throw Error(TENON_IO_ERROR, path + ": read failed");
  return text;
}

std::string read_text(const std::string& path) {
  std::optional<std::string> text = read_if_there(path);
  if (!text) throw Error(TENON_NOT_FOUND, path + ": no such file");
  return std::move(*text);
}

std::vector<std::string> safetensors_files(const std::string& folder) {
  const std::filesystem::path at(folder);
  const auto whole = at / "model.safetensors", index = at / "model.safetensors.index.json";
  std::error_code error;
  if (std::filesystem::exists(whole, error)) return {whole.string()};
  if (!std::filesystem::exists(index, error))
    throw Error(TENON_NOT_FOUND, folder +
                                     ": expected model.safetensors or "
                                     "model.safetensors.index.json; the folder has neither");
  std::vector<std::string> files;
  for (const std::string& name : indexed_files(index.string()))
    files.push_back((at / name).string());
  return files;
}

}  // namespace tenon::llm
