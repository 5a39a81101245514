// SPDX-License-Identifier: Apache-2.0
// A save replaces all files of a model folder at once, wherever it is cut off. The files are
// written into a folder inside the target. Renaming that folder to `.saved` is the moment from
// which they count. Then each file takes its place; until all have, readers find the rest in
// `.saved`.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::lm {

// Every file that a save writes. Nothing else in a folder is ever moved, replaced or removed.
inline constexpr std::array<std::string_view, 10> kModelFiles = {
    "model.safetensors",
    "optimizer.safetensors",
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "training.json",
    "loss.svg",
    // Of llm tune:
    "adapter_model.safetensors",
    "adapter_config.json",
    "tuning.json",
};

// Those of kModelFiles, and `.saved`, that a folder has. Links count, whatever they point to.
std::vector<std::string> model_files_in(const std::filesystem::path& folder);

// The newest whole save's file of that name. A save under way elsewhere may move it: see
// read_saved.
std::filesystem::path saved_file(const std::filesystem::path& folder, const std::string& name);

// read(path) of that file; once more where it was moved in between.
template <class Read>
auto read_saved(const std::filesystem::path& folder, const std::string& name, const Read& read) {
  const auto path = saved_file(folder, name);
  try {
    return read(path.string());
  } catch (const Error&) {
    std::error_code error;
    if (path == folder / name || std::filesystem::exists(path, error)) throw;
  }
  return read((folder / name).string());
}

// Moves the files of a save that was cut off to their places. Throws where `.saved` is a link or
// holds anything but such files.
void finish_save(const std::filesystem::path& folder);

class Save {
 public:
  // Creates the folder where needed, tries to finish a save that was cut off, and removes what
  // was left of saves that never counted.
  explicit Save(const std::filesystem::path& folder);
  ~Save();  // removes what was not committed
  Save(const Save&) = delete;
  Save& operator=(const Save&) = delete;

  const std::filesystem::path& path() const { return path_; }  // where the files are written
  void write(const std::string& name, const std::string& text);
  // All bytes must be on the disk. A failure never loses the save: its message says where it is.
  void commit();

 private:
  void keep_elsewhere(const std::string& why);

  std::filesystem::path folder_, path_;
  std::string blocked_{};  // why the save that was cut off cannot be finished
  int lock_ = -1;
};

}  // namespace tenon::lm
