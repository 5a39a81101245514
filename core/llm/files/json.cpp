// SPDX-License-Identifier: Apache-2.0
// Reads small files of model folders.
#include "llm/files/json.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "llm/json_text.hpp"

namespace tenon::llm::files {

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
  return parse_object(*text, path);
}

}  // namespace tenon::llm::files
