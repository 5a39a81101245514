// SPDX-License-Identifier: Apache-2.0
// Machine code on disk: one file per key, written aside and renamed, so that processes may share a
// directory. A file that is damaged, or of another key, is as good as none.
#pragma once

#include <optional>
#include <string>

namespace tenon::cuda {

class DiskCache {
 public:
  // Empty: nothing is kept. The directory is made when first written to.
  explicit DiskCache(std::string directory) : directory_(std::move(directory)) {}
  // TENON_CUDA_CACHE ("" = none), else the user's cache directory; none for a privileged process.
  static std::string usual_directory();

  // key: all that the code depends on.
  std::optional<std::string> find(const std::string& key) const;
  // A cache that cannot be written is no failure.
  void keep(const std::string& key, const std::string& code) const;
  std::string path_of(const std::string& key) const;

 private:
  std::string directory_;
};

}  // namespace tenon::cuda
