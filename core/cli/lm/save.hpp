// SPDX-License-Identifier: Apache-2.0
// Files that replace others all at once, whatever is cut off when. They are written into a folder
// inside the target; renaming that folder to `.saved` is the moment from which they count; then
// each takes its place. Until all have, readers find the rest there.
#pragma once

#include <filesystem>
#include <string>

#include "tenon/tenon.hpp"

namespace tenon::lm {

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
    if (path == folder / name || std::filesystem::exists(path)) throw;
  }
  return read((folder / name).string());
}

// Puts the files of a save that was cut off in their places.
void finish_save(const std::filesystem::path& folder);

class Save {
 public:
  // Creates the folder where need be, finishes a save that was cut off and takes away what one left
  // that never counted.
  explicit Save(const std::filesystem::path& folder);
  ~Save();  // what was not committed is gone
  Save(const Save&) = delete;
  Save& operator=(const Save&) = delete;

  const std::filesystem::path& path() const { return path_; }  // where the files are written
  void write(const std::string& name, const std::string& text);
  // All bytes must be on the disk. A failure after the moment says that the save is whole.
  void commit();

 private:
  std::filesystem::path folder_, path_;
  int lock_ = -1;
};

}  // namespace tenon::lm
