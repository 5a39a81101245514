// SPDX-License-Identifier: Apache-2.0
// The texts: bytes are tokens. The last tenth of each file is held out; the rest, file after file,
// is trained on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::lm {

class TextData {
 public:
  // Files that are the same after symlinks count once. Pipes are read to their end.
  explicit TextData(const std::vector<std::string>& files);

  // Canonical paths in the order given, each once; a pipe under the name it was given by.
  const std::vector<std::string>& files() const { return files_; }
  int64_t train_size() const { return static_cast<int64_t>(train_.size()); }
  int64_t held_out_size() const { return static_cast<int64_t>(held_out_.size()); }
  uint64_t checksum() const { return checksum_; }  // of all bytes

  // Batch of a step: row r starts at mix(seed, step * batch + r) mod (train_size - context).
  std::vector<int32_t> batch(uint64_t seed, int64_t step, int64_t batch, int64_t context) const;
  // Window w of the held-out text: context + 1 bytes from w * context on.
  int64_t held_out_windows(int64_t context) const;
  std::vector<int32_t> held_out(int64_t first_window, int64_t windows, int64_t context) const;

 private:
  std::vector<std::string> files_;
  std::vector<uint8_t> train_, held_out_;
  uint64_t checksum_ = 0;
};

}  // namespace tenon::lm
