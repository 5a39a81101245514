// SPDX-License-Identifier: Apache-2.0
// The training texts. Bytes are tokens. The last tenth of each file is held out; the rest is used
// for training.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::lm {

class TextData {
 public:
  // Files that are the same after resolving symlinks count once. Pipes are read to their end.
  explicit TextData(const std::vector<std::string>& files);

  // Canonical paths in the order given, each once. Pipes keep their given names.
  const std::vector<std::string>& files() const { return files_; }
  int64_t train_size() const { return static_cast<int64_t>(train_.size()); }
  int64_t held_out_size() const { return static_cast<int64_t>(held_out_.size()); }
  uint64_t checksum() const { return checksum_; }  // over all bytes

  // The batch of a step: row r starts at mix(seed, step * batch + r) mod (train_size - context).
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
