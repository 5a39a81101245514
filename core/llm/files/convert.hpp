// SPDX-License-Identifier: Apache-2.0
// Converts language models: Hugging Face folders, also quantized ones, to GGUF files or plain folders,
// and GGUF files to folders.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tenon::llm {
struct ModelConfig;
}

namespace tenon::llm::files {

// Changes of weights on their way, such as adapters. Names and the order of rows are those of folders.
class WeightChanges {
 public:
  virtual ~WeightChanges() = default;
  // Asked first for models whose weights differ between folders and files: throws if the changes are not
  // those of the source.
  virtual void check_model(const ModelConfig& model) const = 0;
  // Asked for each tensor before contents are read: whether it changes. Matrices are [outputs, inputs],
  // or with inputs_are_rows [inputs, outputs].
  virtual bool plan(const std::string& tensor, const std::vector<int64_t>& dims,
                    bool inputs_are_rows) = 0;
  // After the last tensor: throws if there are changes of what the model does not have.
  virtual void check_used() const = 0;
  // Changes the numbers of a tensor that plan() was asked for.
  virtual void add(const std::string& tensor, const std::vector<int64_t>& dims,
                   std::vector<float>& numbers) const = 0;
};

struct ConvertOptions {
  // Of a GGUF file: one of kMixes (mix.hpp). Of a folder: F32, F16 or BF16. Empty: what the source
  // has; for a folder of blocks, F16. Quantized weights of a folder stay in blocks that have the same
  // numbers if the type is empty or that of the blocks.
  std::string type{};
  std::string pre{};  // name of the pre-tokenizer, empty: recognized
  WeightChanges* changes = nullptr;
  uint64_t file_bytes = uint64_t{2} << 30;  // of tensors in one file of a folder, about
  unsigned threads = 0;                     // that encode; 0: as many as the processor has
  // Called before each tensor: how many bytes of the source are done, of how many, and its name. To
  // end the conversion, throw.
  std::function<void(uint64_t done, uint64_t total, const std::string& tensor)> progress{};
};

struct Converted {
  uint64_t tensors = 0, bytes = 0;   // of contents that were written
  std::vector<std::string> notes{};  // what the user should know
};

// Writes a temporary file, which takes its name when it is complete.
Converted folder_to_gguf(const std::string& folder, const std::string& file,
                         const ConvertOptions& options);
// Creates the folder. In one that exists, the model is replaced: its tensors, configuration, tokenizer
// and templates.
Converted gguf_to_folder(const std::string& file, const std::string& folder,
                         const ConvertOptions& options);
// The same model with plain weights, which may be quantized before. The configuration must be of an
// architecture that the engine runs. `to` is another folder; tokenizer and templates are copied.
Converted folder_to_folder(const std::string& from, const std::string& to,
                           const ConvertOptions& options);

}  // namespace tenon::llm::files
