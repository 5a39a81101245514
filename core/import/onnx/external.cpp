// SPDX-License-Identifier: Apache-2.0
// External data of tensors: finds the file within the model's folder, checks the range, reads it.
#include <filesystem>
#include <system_error>

#include "import/onnx/tensor.hpp"

namespace tenon::core::onnx {
namespace {

namespace fs = std::filesystem;

// The real path of a file within the folder.
std::string inside(const std::string& folder, const std::string& location) {
  const fs::path relative(location);
  if (location.empty()) fail(Code::corrupt, "external data without a location");
  if (relative.is_absolute())
    fail(Code::invalid_argument, "external data '", location,
         "': expected a path relative to the model's folder");
  for (const fs::path& part : relative)
    if (part == "..")
      fail(Code::invalid_argument, "external data '", location, "': leaves the model's folder");
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) fail(Code::io_error, folder, ": ", error.message());
  const fs::path real = fs::canonical(root / relative, error);
  if (error)
    fail(error == std::errc::no_such_file_or_directory ? Code::not_found : Code::io_error,
         "external data '", location, "' in ", folder, ": ", error.message());
  const fs::path within = real.lexically_relative(root);
  if (within.empty() || *within.begin() == "..")
    fail(Code::invalid_argument, "external data '", location, "': a link leads out of ", folder);
  return real.string();
}

}  // namespace

Bytes read_external(const Input& input, const ExternalData& data, uint64_t size) {
  if (input.folder().empty())
    fail(Code::invalid_argument, "external data '", data.location,
         "': the model is in memory; expected a folder for it");
  if (data.size && *data.size != size)
    fail(Code::corrupt, "external data '", data.location, "': length ", *data.size, "; expected ",
         size, " bytes");
  const FileReader file(inside(input.folder(), data.location));
  if (data.offset > file.size() || size > file.size() - data.offset)
    fail(Code::corrupt, "external data '", data.location, "': ", size, " bytes from offset ",
         data.offset, " leave the file of ", file.size(), " bytes");
  Bytes out(size);
  file.read(data.offset, out.data(), out.size());
  return out;
}

}  // namespace tenon::core::onnx
