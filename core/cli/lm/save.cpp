// SPDX-License-Identifier: Apache-2.0
// Replaces the files of a folder all at once, and repairs a replacement that was cut off.
#include "cli/lm/save.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tenon::lm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStagingPrefix = ".saving-";
constexpr const char* kSaved = ".saved";

[[noreturn]] void fail(const fs::path& path, const std::string& what, const std::string& why) {
  throw Error(TENON_IO_ERROR, path.string() + ": " + what + ": " + why);
}

// A folder by its descriptor, never through a link: what is checked is what is changed.
class Folder {
 public:
  explicit Folder(const fs::path& path, int flags = 0)
      : number_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags)) {}
  ~Folder() {
    if (number_ >= 0) ::close(number_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }
  bool has_file(const std::string& name) const {
    struct stat info {};
    return ::fstatat(number_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(info.st_mode);
  }

 private:
  int number_;
};

// Renames are on the disk when their folder is. A file system that cannot sync a folder (EINVAL)
// has no more to give.
void sync_folder(const fs::path& path) {
  const Folder folder(path);
  if (!folder || (::fsync(folder.number()) != 0 && errno != EINVAL))
    fail(path, "sync", std::strerror(errno));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code error;
  fs::directory_iterator i(folder, error);
  for (const fs::directory_iterator end; !error && i != end; i.increment(error))
    out.push_back(i->path().filename().string());
  if (error) fail(folder, "list", error.message());
  return out;
}

bool is_model_file(std::string_view name) {
  return std::ranges::find(kModelFiles, name) != kModelFiles.end();
}

// What a save writes: its files, and the temporary files that become them.
bool is_of_a_save(std::string_view name) {
  if (name.ends_with(".tmp"))
    return std::ranges::any_of(kModelFiles, [&](std::string_view file) {
      return name.starts_with(file) && name.substr(file.size()).starts_with('.');
    });
  return is_model_file(name);
}

// Anything else in it stays, and so does the folder then.
void remove_staging(const fs::path& path) {
  const Folder folder(path, O_NOFOLLOW);
  if (!folder) return;
  for (const std::string& name : names_in(path))
    if (is_of_a_save(name) && folder.has_file(name)) ::unlinkat(folder.number(), name.c_str(), 0);
  ::rmdir(path.c_str());
}

// Whoever is still writing holds a lock on his folder.
void remove_stale(const fs::path& folder) {
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with(kStagingPrefix)) continue;
    const Folder staging(folder / name, O_NOFOLLOW);
    if (staging && ::flock(staging.number(), LOCK_EX | LOCK_NB) == 0) remove_staging(folder / name);
  }
}

}  // namespace

std::vector<std::string> model_files_in(const fs::path& folder) {
  std::vector<std::string> found;
  const auto look = [&](std::string_view name) {
    std::error_code error;
    if (fs::symlink_status(folder / name, error).type() != fs::file_type::not_found)
      found.emplace_back(name);
  };
  std::ranges::for_each(kModelFiles, look);
  look(kSaved);
  return found;
}

fs::path saved_file(const fs::path& folder, const std::string& name) {
  const Folder saved(folder / kSaved, O_NOFOLLOW);
  return saved && saved.has_file(name) ? folder / kSaved / name : folder / name;
}

void finish_save(const fs::path& folder) {
  const fs::path path = folder / kSaved;
  std::error_code error;
  if (fs::symlink_status(path, error).type() == fs::file_type::not_found) return;
  const Folder target(folder), saved(path, O_NOFOLLOW);
  if (!saved) {
    if (errno == ENOENT) return;  // another process finished it
    fail(path, "open",
         "expected the folder of a save that was cut off, got a link or another file; remove it "
         "or rename it");
  }
  for (const std::string& name : names_in(path)) {
    if (!is_model_file(name) || !saved.has_file(name)) {
      // Another process that reads or goes on may be finishing the same save.
      if (is_model_file(name) && !fs::exists(fs::symlink_status(path / name, error))) continue;
      fail(path / name, "finish the save",
           "expected nothing but files of a model; move it elsewhere");
    }
  }
  for (const std::string_view name : kModelFiles) {
    const std::string file(name);
    if (::renameat(saved.number(), file.c_str(), target.number(), file.c_str()) == 0) continue;
    if (errno == ENOENT) continue;
    fail(folder / file, "replace",
         std::string(std::strerror(errno)) + "; the save is whole, what was not moved is in " +
             path.string());
  }
  sync_folder(folder);
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) fail(path, "remove", std::strerror(errno));
  sync_folder(folder);
}

Save::Save(const fs::path& folder) : folder_(folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder, "create", error.message());
  try {
    finish_save(folder);
  } catch (const Error& e) {
    blocked_ = e.what();
  }
  remove_stale(folder);
  std::string name = (folder / (std::string(kStagingPrefix) + "XXXXXX")).string();
  if (!::mkdtemp(name.data())) fail(folder, "create a folder inside", std::strerror(errno));
  path_ = name;
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Where there are no such locks nothing is taken for stale either.
  if (lock_ >= 0) static_cast<void>(::flock(lock_, LOCK_EX | LOCK_NB));
}

Save::~Save() {
  try {
    if (!path_.empty()) remove_staging(path_);
  } catch (const std::exception&) {  // it is found stale later
  }
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

// The bytes are on the disk and only their place is taken: they stay, under a name that no later
// training removes. One such folder for each process is enough.
void Save::keep_elsewhere(const std::string& why) {
  static fs::path last;
  if (!last.empty()) remove_staging(last);
  std::string name = path_.filename().string();
  name.replace(0, kStagingPrefix.size(), "saved-");
  last = folder_ / name;
  if (std::rename(path_.c_str(), last.c_str()) != 0) last = path_;
  path_.clear();
  throw Error(TENON_IO_ERROR, why + "; the save is whole, in " + last.string());
}

void Save::commit() {
  sync_folder(path_);
  const fs::path saved = folder_ / kSaved;
  if (!blocked_.empty()) keep_elsewhere(blocked_);
  // rename would replace an empty folder of that name, and nothing else.
  if (std::rename(path_.c_str(), saved.c_str()) != 0)
    keep_elsewhere(saved.string() + ": create: " + std::strerror(errno));
  path_.clear();
  sync_folder(folder_);
  finish_save(folder_);
}

}  // namespace tenon::lm
