// SPDX-License-Identifier: Apache-2.0
// Reads and writes the files of the disk cache, with checksums.
#include "cache.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace tenon::cuda {
namespace {

namespace fs = std::filesystem;

// Makes the directory and those above it, for this user alone.
bool make_directories(const fs::path& directory) {
  std::error_code failure;
  if (directory.empty() || fs::is_directory(directory, failure)) return true;
  if (!make_directories(directory.parent_path())) return false;
  return mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST;
}

// The whole of a regular file, marked as used now. Another file gives nothing: to open a FIFO would
// wait for a writer, and what a link leads to is not the cache's.
std::optional<std::string> read_and_mark(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return std::nullopt;
  std::string bytes;
  struct stat found {};
  bool good = fstat(file, &found) == 0 && S_ISREG(found.st_mode);
  if (good) bytes.resize(static_cast<size_t>(found.st_size));
  for (size_t done = 0; good && done < bytes.size();) {
    const ssize_t count = ::read(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    good = count > 0;
    done += good ? static_cast<size_t>(count) : 0;
  }
  if (good) futimens(file, nullptr);
  ::close(file);
  return good ? std::optional(std::move(bytes)) : std::nullopt;
}

// A file of the cache, of either sort.
struct Kept {
  fs::path path;
  uint64_t bytes;
  timespec used;
  bool is_choice;  // a small file, without which results may differ in their last bits
};
// Machine code first, then the one that was used least recently.
bool goes_before(const Kept& a, const Kept& b) {
  if (a.is_choice != b.is_choice) return b.is_choice;
  if (a.used.tv_sec != b.used.tv_sec) return a.used.tv_sec < b.used.tv_sec;
  return a.used.tv_nsec < b.used.tv_nsec;
}

// Files of the directory. Those that a process left half-written an hour ago are removed.
std::vector<Kept> files_in(const std::string& directory) {
  constexpr time_t kAbandoned = 3600;
  std::vector<Kept> list;
  std::error_code failure;
  for (fs::directory_iterator at(directory, failure), end; !failure && at != end;
       at.increment(failure)) {
    struct stat file {};
    if (lstat(at->path().c_str(), &file) != 0 || !S_ISREG(file.st_mode)) continue;
    const std::string name = at->path().filename().string();
    const bool code = name.ends_with(kCodeFiles.suffix),
               choice = name.ends_with(kChoiceFiles.suffix);
    const auto within = [&](const FileSort& sort) {
      return name.find(std::string(sort.suffix) + ".") != name.npos;
    };
    if (code || choice)
      list.push_back({at->path(), static_cast<uint64_t>(file.st_size), file.st_mtim, choice});
    else if ((within(kCodeFiles) || within(kChoiceFiles)) &&
             time(nullptr) - file.st_mtim.tv_sec > kAbandoned)
      unlink(at->path().c_str());
  }
  return list;
}

}  // namespace

std::string DiskCache::usual_directory() {
  if (const char* given = secure_getenv("TENON_CUDA_CACHE")) return given;
  if (const char* base = secure_getenv("XDG_CACHE_HOME"); base && *base == '/')
    return (fs::path(base) / "tenon" / "cuda").string();
  if (const char* home = secure_getenv("HOME"); home && *home == '/')
    return (fs::path(home) / ".cache" / "tenon" / "cuda").string();
  return {};
}

uint64_t DiskCache::usual_limit() {
  uint64_t bytes = uint64_t{1} << 30;
  if (const char* text = secure_getenv("TENON_CUDA_CACHE_LIMIT"))
    std::from_chars(text, text + std::strlen(text), bytes);
  return bytes;
}

std::string DiskCache::obstacle(const std::string& directory) {
  struct stat found {};
  if (directory.empty() || stat(directory.c_str(), &found) != 0) return {};
  if (!S_ISDIR(found.st_mode)) return directory + ": it is no directory";
  if (found.st_uid != geteuid())
    return directory + ": it belongs to user " + std::to_string(found.st_uid) + ", not to user " +
           std::to_string(geteuid());
  if (found.st_mode & (S_IWGRP | S_IWOTH))
    return directory + ": others can write to it; hint: chmod go-w";
  return {};
}

// A file: the mark, the key's digest, the content's digest, the content.
std::string DiskCache::header(const Digest& key, std::string_view content) const {
  std::string text(sort_.mark);
  for (const Digest& d : {key, sha256(content)})
    text.append(reinterpret_cast<const char*>(d.data()), d.size());
  return text;
}

std::string DiskCache::path_of(const Digest& key) const {
  return (fs::path(directory_) / (hex(key) + std::string(sort_.suffix))).string();
}

std::optional<std::string> DiskCache::find(const std::string& key) const {
  return find(sha256(key));
}

std::optional<std::string> DiskCache::find(const Digest& key) const {
  if (directory_.empty() || !obstacle(directory_).empty()) return std::nullopt;
  const std::optional<std::string> bytes = read_and_mark(path_of(key));
  const size_t start = sort_.mark.size() + 2 * sizeof(Digest);
  if (!bytes || bytes->size() <= start) return std::nullopt;
  std::string content = bytes->substr(start);
  if (bytes->compare(0, start, header(key, content)) != 0) return std::nullopt;
  return content;
}

bool DiskCache::writable() const {
  return !directory_.empty() && make_directories(directory_) && obstacle(directory_).empty() &&
         access(directory_.c_str(), W_OK | X_OK) == 0;
}

std::string DiskCache::written_aside(const Digest& key, const std::string& content) const {
  if (!writable()) return {};
  static std::atomic<unsigned> counter{0};
  std::string aside =
      path_of(key) + "." + std::to_string(getpid()) + "." + std::to_string(counter.fetch_add(1));
  unlink(aside.c_str());  // of an earlier process with this id
  std::ofstream file(aside, std::ios::binary | std::ios::trunc);
  file << header(key, content) << content;
  file.close();
  if (file) return aside;
  std::error_code failure;
  fs::remove(aside, failure);
  return {};
}

bool DiskCache::keep(const std::string& key, const std::string& content) const {
  const Digest digest = sha256(key);
  const std::string aside = written_aside(digest, content);
  if (aside.empty()) return false;
  std::error_code failure;
  fs::rename(aside, path_of(digest), failure);
  if (failure) {
    fs::remove(aside, failure);
    return false;
  }
  account(content.size());
  return true;
}

std::optional<std::string> DiskCache::keep_first(const std::string& key,
                                                 const std::string& content) const {
  const Digest digest = sha256(key);
  const std::string aside = written_aside(digest, content);
  if (aside.empty()) return std::nullopt;
  std::error_code failure;
  // Unlike a rename a link never takes another's place.
  fs::create_hard_link(aside, path_of(digest), failure);
  const bool first = !failure;
  std::optional<std::string> theirs;
  if (!first) theirs = find(digest);
  if (!first && !theirs) {  // damaged, or a file system without links
    fs::rename(aside, path_of(digest), failure);
    if (!failure) return content;
  }
  const bool lost = !first && !theirs;
  fs::remove(aside, failure);
  if (lost) return std::nullopt;
  account(content.size());
  return first ? content : theirs;
}

void DiskCache::account(uint64_t bytes) const {
  if (allowance_.fetch_sub(static_cast<int64_t>(bytes)) <= static_cast<int64_t>(bytes)) evict();
}

// Evicts down to three quarters of the limit, so that the next eviction is far off. The allowance
// is a quarter of what is then free: up to four processes together stay within the limit.
void DiskCache::evict() const {
  ++directory_reads_;
  std::vector<Kept> files = files_in(directory_);
  uint64_t sum = 0;
  for (const Kept& f : files) sum += f.bytes;
  if (sum > limit_) {
    std::ranges::sort(files, goes_before);
    for (const Kept& f : files) {
      if (sum <= limit_ / 4 * 3) break;
      unlink(f.path.c_str());  // another process may have done it
      sum -= f.bytes;
    }
  }
  allowance_ = sum < limit_ ? static_cast<int64_t>((limit_ - sum) / 4) : 0;
}

}  // namespace tenon::cuda
