// SPDX-License-Identifier: Apache-2.0
// Reads and writes the files of the disk cache, with checksums.
#include "cache.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "hash.hpp"

namespace tenon::cuda {
namespace {

namespace fs = std::filesystem;

}  // namespace

// A file: the mark, the key's digest, the content's digest, the content.
std::string DiskCache::header(const std::string& key, std::string_view content) const {
  std::string text(sort_.mark);
  for (const Digest& d : {sha256(key), sha256(content)})
    text.append(reinterpret_cast<const char*>(d.data()), d.size());
  return text;
}

std::string DiskCache::usual_directory() {
  if (const char* given = secure_getenv("TENON_CUDA_CACHE")) return given;
  if (const char* base = secure_getenv("XDG_CACHE_HOME"); base && *base == '/')
    return (fs::path(base) / "tenon" / "cuda").string();
  if (const char* home = secure_getenv("HOME"); home && *home == '/')
    return (fs::path(home) / ".cache" / "tenon" / "cuda").string();
  return {};
}

std::string DiskCache::path_of(const std::string& key) const {
  return (fs::path(directory_) / (hex(sha256(key)) + std::string(sort_.suffix))).string();
}

std::optional<std::string> DiskCache::find(const std::string& key) const {
  if (directory_.empty()) return std::nullopt;
  std::ifstream file(path_of(key), std::ios::binary);
  if (!file) return std::nullopt;
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const size_t start = sort_.mark.size() + 2 * sizeof(Digest);
  if (bytes.size() <= start) return std::nullopt;
  std::string content = bytes.substr(start);
  if (bytes.compare(0, start, header(key, content)) != 0) return std::nullopt;
  return content;
}

bool DiskCache::writable() const {
  if (directory_.empty()) return false;
  std::error_code failure;
  fs::create_directories(directory_, failure);
  return access(directory_.c_str(), W_OK | X_OK) == 0;
}

std::string DiskCache::written_aside(const std::string& key, const std::string& content) const {
  if (directory_.empty()) return {};
  static std::atomic<unsigned> counter{0};
  std::error_code failure;
  fs::create_directories(directory_, failure);
  std::string aside =
      path_of(key) + "." + std::to_string(getpid()) + "." + std::to_string(counter.fetch_add(1));
  std::ofstream file(aside, std::ios::binary | std::ios::trunc);
  file << header(key, content) << content;
  file.close();
  if (file) return aside;
  fs::remove(aside, failure);
  return {};
}

bool DiskCache::keep(const std::string& key, const std::string& content) const {
  const std::string aside = written_aside(key, content);
  if (aside.empty()) return false;
  std::error_code failure;
  fs::rename(aside, path_of(key), failure);
  if (!failure) return true;
  fs::remove(aside, failure);
  return false;
}

std::optional<std::string> DiskCache::keep_first(const std::string& key,
                                                 const std::string& content) const {
  const std::string aside = written_aside(key, content);
  if (aside.empty()) return std::nullopt;
  std::error_code failure;
  // Unlike a rename a link never takes another's place.
  fs::create_hard_link(aside, path_of(key), failure);
  const bool first = !failure;
  std::optional<std::string> theirs;
  if (!first) theirs = find(key);
  if (!first && !theirs) {  // damaged, or a file system without links
    fs::rename(aside, path_of(key), failure);
    if (!failure) return content;
  }
  const bool lost = !first && !theirs;
  fs::remove(aside, failure);
  if (lost) return std::nullopt;
  return first ? content : theirs;
}

}  // namespace tenon::cuda
