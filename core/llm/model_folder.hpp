// SPDX-License-Identifier: Apache-2.0
// Files of model folders. A small file is a regular file of at most 64 MiB.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tenon::llm {

// True if the model is a file, which must be a GGUF file, and false if it is a folder. Throws
// NOT_FOUND if nothing is there, and IO_ERROR if it is neither.
bool is_model_file(const std::string& path);

// The content of a small file. Throws NOT_FOUND if it does not exist.
std::string read_text(const std::string& path);
// The same, or nothing if the file does not exist.
std::optional<std::string> read_if_there(const std::string& path);

// The paths of a folder's safetensors files: model.safetensors or, without it, those that
// model.safetensors.index.json names. Throws NOT_FOUND if there is neither, and CORRUPT for an index
// that names other files than .safetensors files of the folder. The named files may be missing.
std::vector<std::string> safetensors_files(const std::string& folder);

}  // namespace tenon::llm
