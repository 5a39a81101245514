// SPDX-License-Identifier: Apache-2.0
// Reads texts, splits them, and draws batches.
#include "cli/lm/data.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "cli/input.hpp"
#include "llm/tune/random.hpp"
#include "tenon/tenon.hpp"

namespace tenon::lm {

using llm::mix;

TextData::TextData(const std::vector<std::string>& files) {
  for (const std::string& f : files) {
    std::string name = f;
    if (cli::can_be_read_again(f)) {
      std::error_code error;
      name = std::filesystem::canonical(f, error).string();
      if (error) throw Error(TENON_NOT_FOUND, f + ": " + error.message());
    }
    if (std::find(files_.begin(), files_.end(), name) != files_.end()) continue;
    files_.push_back(name);
    const std::string text = cli::read_input(name);
    const auto* begin = reinterpret_cast<const uint8_t*>(text.data());
    const std::span<const uint8_t> bytes(begin, text.size());
    const auto held = static_cast<ptrdiff_t>(bytes.size() / 10);
    train_.insert(train_.end(), bytes.begin(), bytes.end() - held);
    held_out_.insert(held_out_.end(), bytes.end() - held, bytes.end());
    checksum_ = mix(checksum_, bytes.size());
    for (size_t i = 0; i < bytes.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
      checksum_ = mix(checksum_ ^ word, i);
    }
  }
}

std::vector<int32_t> TextData::batch(uint64_t seed, int64_t step, int64_t batch,
                                     int64_t context) const {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(batch * (context + 1)));
  const auto starts = static_cast<uint64_t>(train_size() - context);
  for (int64_t r = 0; r < batch; ++r) {
    const auto at =
        static_cast<ptrdiff_t>(mix(seed, static_cast<uint64_t>(step * batch + r)) % starts);
    tokens.insert(tokens.end(), train_.begin() + at, train_.begin() + at + context + 1);
  }
  return tokens;
}

int64_t TextData::held_out_windows(int64_t context) const {
  return held_out_size() > context ? (held_out_size() - 1) / context : 0;
}

std::vector<int32_t> TextData::held_out(int64_t first, int64_t windows, int64_t context) const {
  std::vector<int32_t> tokens;
  for (int64_t w = first; w < first + windows; ++w)
    tokens.insert(tokens.end(), held_out_.begin() + w * context,
                  held_out_.begin() + w * context + context + 1);
  return tokens;
}

}  // namespace tenon::lm
