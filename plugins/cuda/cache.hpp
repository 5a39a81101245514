// SPDX-License-Identifier: Apache-2.0
// What is kept on disk (machine code, tuned choices): one file per key, written aside and renamed,
// so that processes may share a directory. A file that is damaged, or of another key, is as good as
// none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

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
  explicit DiskCache(std::string directory, FileSort sort = kCodeFiles)
      : directory_(std::move(directory)), sort_(sort) {}
  // TENON_CUDA_CACHE ("" = none), else the user's cache directory; none for a privileged process.
  static std::string usual_directory();

  // key: all that the content depends on.
  std::optional<std::string> find(const std::string& key) const;
  // False: it could not be written, which is no failure.
  bool keep(const std::string& key, const std::string& content) const;
  // Keeps it unless another process was first; what is kept then, nothing when it could not be
  // written.
  std::optional<std::string> keep_first(const std::string& key, const std::string& content) const;
  bool writable() const;  // would keep have a place? Makes the directory.
  std::string path_of(const std::string& key) const;

 private:
  // A file beside the key's with the whole of it; empty when it could not be written.
  std::string written_aside(const std::string& key, const std::string& content) const;
  std::string header(const std::string& key, std::string_view content) const;
  std::string directory_;
  FileSort sort_;
};

}  // namespace tenon::cuda
