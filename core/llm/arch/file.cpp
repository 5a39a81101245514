// SPDX-License-Identifier: Apache-2.0
// Reads small files of model folders.
#include "llm/arch/file.hpp"

#include <filesystem>
#include <fstream>

#include "tenon/tenon.hpp"

namespace tenon::llm {

std::string read_text(const std::string& path) {
  constexpr uintmax_t kMost = 64 << 20;
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw Error(TENON_NOT_FOUND, path + ": no such file");
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

}  // namespace tenon::llm
