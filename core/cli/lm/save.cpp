// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/save.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace tenon::lm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStagingPrefix = ".saving-";
constexpr const char* kSaved = ".saved";

[[noreturn]] void fail(const fs::path& path, const std::string& what, const std::string& why) {
  throw Error(TENON_IO_ERROR, path.string() + ": " + what + ": " + why);
}

int open_folder(const fs::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// Renames are on the disk when their folder is. A file system that cannot sync a folder (EINVAL)
// has no more to give.
void sync_folder(const fs::path& path) {
  const int folder = open_folder(path);
  const bool good = folder >= 0 && (::fsync(folder) == 0 || errno == EINVAL);
  const int number = errno;
  if (folder >= 0) ::close(folder);
  if (!good) fail(path, "sync", std::strerror(number));
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  fs::directory_iterator i(folder, error);
  for (const fs::directory_iterator end; !error && i != end; i.increment(error))
    out.push_back(i->path());
  if (error) fail(folder, "list", error.message());
  return out;
}

// Whoever is still writing holds a lock on his folder.
void remove_stale(const fs::path& folder) {
  for (const fs::path& path : entries(folder)) {
    if (!path.filename().string().starts_with(kStagingPrefix)) continue;
    const int lock = open_folder(path);
    if (lock < 0) continue;
    std::error_code error;
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0) fs::remove_all(path, error);
    ::close(lock);
  }
}

}  // namespace

fs::path saved_file(const fs::path& folder, const std::string& name) {
  std::error_code error;
  fs::path saved = folder / kSaved / name;
  return fs::exists(saved, error) ? saved : folder / name;
}

void finish_save(const fs::path& folder) {
  const fs::path saved = folder / kSaved;
  std::error_code error;
  if (!fs::exists(saved, error)) return;
  for (const fs::path& path : entries(saved)) {
    fs::rename(path, folder / path.filename(), error);
    // Another process that reads or goes on may be finishing the same save.
    if (error == std::errc::no_such_file_or_directory) continue;
    if (error)
      fail(folder / path.filename(), "replace",
           error.message() + "; the save is whole, what was not moved is in " + saved.string());
  }
  sync_folder(folder);
  fs::remove(saved, error);
  if (error && error != std::errc::no_such_file_or_directory)
    fail(saved, "remove", error.message());
  sync_folder(folder);
}

Save::Save(const fs::path& folder) : folder_(folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder, "create", error.message());
  finish_save(folder);
  remove_stale(folder);
  std::string name = (folder / (std::string(kStagingPrefix) + "XXXXXX")).string();
  if (!::mkdtemp(name.data())) fail(folder, "create a folder inside", std::strerror(errno));
  path_ = name;
  lock_ = open_folder(path_);
  // Where there are no such locks nothing is taken for stale either.
  if (lock_ >= 0) static_cast<void>(::flock(lock_, LOCK_EX | LOCK_NB));
}

Save::~Save() {
  std::error_code error;
  if (!path_.empty()) fs::remove_all(path_, error);
  if (lock_ >= 0) ::close(lock_);
}

void Save::write(const std::string& name, const std::string& text) {
  const fs::path path = path_ / name;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  size_t written = 0;
  bool good = file >= 0;
  while (good && written < text.size()) {
    const ssize_t n = ::write(file, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    good = n >= 0;
    if (good) written += static_cast<size_t>(n);
  }
  good = good && ::fsync(file) == 0;
  const int number = errno;
  if (file >= 0) ::close(file);
  if (!good) fail(path, "write", std::strerror(number));
}

void Save::commit() {
  sync_folder(path_);
  std::error_code error;
  fs::rename(path_, folder_ / kSaved, error);
  if (error) fail(folder_ / kSaved, "create", error.message());
  path_.clear();
  sync_folder(folder_);
  finish_save(folder_);
}

}  // namespace tenon::lm
