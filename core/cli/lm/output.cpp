// SPDX-License-Identifier: Apache-2.0
// Checks the folder of a training, and saves to it while the training goes on.
#include "cli/lm/output.hpp"

#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "cli/lm/save.hpp"

namespace tenon::lm {

namespace fs = std::filesystem;

void take_folder(const std::string& folder, std::optional<FolderLock>& lock) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(TENON_IO_ERROR, folder + ": create: " + error.message());
  if (::access(folder.c_str(), W_OK) != 0)
    throw Error(TENON_IO_ERROR, folder + ": cannot be written");
  lock.emplace(folder);
}

void check_places(const std::string& folder) {
  std::error_code error;
  for (const std::string& f : model_files_in(folder))
    if (f != ".saved" && fs::is_directory(fs::symlink_status(fs::path(folder) / f, error)))
      throw Error(TENON_INVALID_ARGUMENT, folder + "/" + f + ": is a directory, expected a file");
}

void save_meanwhile(cli::Progress& progress, int64_t step, const std::function<void()>& save) {
  try {
    save();
  } catch (const Error& e) {
    if (e.code() != TENON_IO_ERROR) throw;
    progress.clear();
    std::cerr << "tenon: step " << step << " was not saved: " << e.what()
              << "; the training continues\n";
  }
}

}  // namespace tenon::lm
