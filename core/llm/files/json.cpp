// SPDX-License-Identifier: Apache-2.0
// Reads small files of model folders.
#include "llm/files/json.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

namespace tenon::llm::files {
namespace {
constexpr int kDeepest = 64;
}

std::optional<std::string> read_text(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return {};
  if (!std::filesystem::is_regular_file(status))
    throw Error(TENON_IO_ERROR, path + ": is no regular file");
  if (std::filesystem::file_size(path, error) > (uint64_t{256} << 20) || error)
    throw Error(TENON_IO_ERROR, path + ": expected a file of at most 256 MiB");
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in) throw Error(TENON_IO_ERROR, path + ": cannot be read");
  return text;
}

std::optional<Json> read_object(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return {};
  // The parser takes any depth, but copies of values are made by recursion.
  const auto shallow = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > kDeepest)
      throw Error(TENON_CORRUPT, path + ": more than " + std::to_string(kDeepest) +
                                     " lists and objects within each other");
    return true;
  };
  Json json = Json::parse(*text, shallow, false);
  if (!json.is_object()) throw Error(TENON_CORRUPT, path + ": expected a JSON object");
  return json;
}

}  // namespace tenon::llm::files
