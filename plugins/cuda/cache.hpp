// SPDX-License-Identifier: Apache-2.0
// What is kept on disk (machine code, tuned choices): one file per key, written aside and renamed,
// so that processes may share a directory. A file that is damaged, of another key, or no regular
// file is as good as none. A directory that others can write is not used. Together files stay
// below a limit: those that were used least recently go first.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hash.hpp"

namespace tenon::cuda {

// What files of one sort are called and begin with.
struct FileSort {
  std::string_view suffix, mark;
};
inline constexpr FileSort kCodeFiles{".cubin", "tenon cuda code 1\n"};
inline constexpr FileSort kChoiceFiles{".choice", "tenon cuda choice 1\n"};

class DiskCache {
 public:
  // Empty: nothing is kept. The directory is made when first written to.
  explicit DiskCache(std::string directory, FileSort sort = kCodeFiles,
                     uint64_t limit = usual_limit())
      : directory_(std::move(directory)), sort_(sort), limit_(limit) {}
  // TENON_CUDA_CACHE ("" = none), else the user's cache directory; none for a privileged process.
  static std::string usual_directory();
  // TENON_CUDA_CACHE_LIMIT, else 1 GiB; bytes of all files of the directory.
  static uint64_t usual_limit();
  // Why a directory that exists is not used; empty where there is no reason.
  static std::string obstacle(const std::string& directory);

  // key: all that the content depends on.
  std::optional<std::string> find(const std::string& key) const;
  // False: it could not be written, which is no failure.
  bool keep(const std::string& key, const std::string& content) const;
  // Keeps it unless another process was first; what is kept then, nothing when it could not be
  // written.
  std::optional<std::string> keep_first(const std::string& key, const std::string& content) const;
  bool writable() const;  // would keep have a place? Makes the directory.
  std::string path_of(const std::string& key) const { return path_of(sha256(key)); }
  uint64_t directory_reads() const { return directory_reads_; }  // to evict; for tests

 private:
  std::string path_of(const Digest& key) const;
  std::optional<std::string> find(const Digest& key) const;
  // A file beside the key's with the whole of it; empty when it could not be written.
  std::string written_aside(const Digest& key, const std::string& content) const;
  std::string header(const Digest& key, std::string_view content) const;
  // Counts bytes that were kept; reads the directory, and evicts if it is over the limit, when they
  // may have filled it.
  void account(uint64_t bytes) const;
  void evict() const;
  std::string directory_;
  FileSort sort_;
  uint64_t limit_;
  // Bytes that may be kept before the directory is read again. 0: it was never read.
  mutable std::atomic<int64_t> allowance_{0};
  mutable std::atomic<uint64_t> directory_reads_{0};
};

}  // namespace tenon::cuda
