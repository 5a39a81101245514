// SPDX-License-Identifier: Apache-2.0
// Embeddings: the hidden states of a text as one vector.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/arch/config.hpp"

namespace tenon::llm {

// Sequences beside the slots for texts that are read together, where the cache consists of blocks.
inline constexpr int64_t kTextSequences = 32;

// For Engine::embed(). It uses and clears the slot, also if it fails.
struct EmbedOptions {
  int64_t slot = 0;
  std::optional<Pooling> pooling{};  // absent: the model's own
  bool normalize = true;             // to length 1
  // Called while texts are read, with the tokens read and their number in total. Returns false to
  // stop; then embed() throws CANCELLED.
  std::function<bool(int64_t read, int64_t total)> progress{};
};

// "mean", "cls" or "last"; nothing for another text.
std::optional<Pooling> pooling_of_name(std::string_view name);

// Reads the file that sentence-transformers writes beside a model, if it is there.
void read_folder_pooling(const std::string& folder, ModelConfig& config);
// <architecture>.pooling_type of a GGUF file, and the number of a pooling there.
void set_gguf_pooling(int64_t type, ModelConfig& config);
int64_t gguf_pooling(Pooling pooling);

// The pooling of a model. Throws TENON_UNSUPPORTED if its files name one that tenon does not have.
Pooling own_pooling(const ModelConfig& config);

// Makes one vector of the hidden states of a text, as they come.
class Pool {
 public:
  Pool(Pooling pooling, int64_t dim);
  // Rows [tokens, dim] of the next tokens.
  void add(std::span<const float> rows);
  // The vector of the text. The next rows are those of another one.
  std::vector<float> take(bool normalize);

 private:
  Pooling pooling_;
  size_t dim_;
  std::vector<double> sum_;
  int64_t count_ = 0;
};

// "[0.1, -2]": each number in its shortest form.
std::string json_list(std::span<const float> numbers);

// Divides by the length; zeros stay zeros.
void normalize(std::span<float> vector);

}  // namespace tenon::llm
