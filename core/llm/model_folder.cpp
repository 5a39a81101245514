// SPDX-License-Identifier: Apache-2.0
// Reads small files of model folders.
#include "llm/model_folder.hpp"

#include <filesystem>
#include <fstream>

#include "tenon/tenon.hpp"

namespace tenon::llm {

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

}  // namespace tenon::llm
