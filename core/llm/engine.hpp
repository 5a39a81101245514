// SPDX-License-Identifier: Apache-2.0
// Runs a language model: reads prompts into slots, one sequence each, and continues them.
//
//   tenon::Runtime runtime;
//   tenon::llm::Engine engine(runtime, "Llama-3.2-1B", {.device = "cpu"});
//   engine.generate({128000, 791, 6864}, {.tokens = 20}, [](int64_t token) {
//     std::cout << token << '\n';
//     return true;
//   });
//
// An engine is used by one thread at a time. Every failure throws tenon::Error.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llm/arch/config.hpp"
#include "llm/model_files.hpp"
#include "llm/sample/sampler.hpp"
#include "llm/tune/adapter.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {

// Products with weights in blocks.
enum class Products : uint8_t {
  f32,      // as precise as in f32
  compute,  // the device may round weights to the dtype of activations, which many rows gain by
  int8,     // activations are rounded to blocks of 8-bit integers, as llama.cpp does
  device    // int8 on the cpu, compute elsewhere
};

struct EngineOptions {
  std::string device = "auto";
  int64_t context =
      0;              // most tokens of a sequence; 0: 4096, or the model's own limit if it is less
  int64_t slots = 1;  // sequences at a time
  // Tokens that the cache of keys and values has room for, of all slots together; at least `context`.
  // 0: slots * context. Less is possible where slots share blocks of a cache (cache_blocks); each
  // sequence takes whole blocks, of 96 tokens.
  int64_t cache_tokens = 0;
  // Whether the cache is a pool of blocks, which slots share, or each slot has memory for a context.
  // Unset: a pool on the cpu, and on other devices whose attention reads blocks in place if there are
  // several slots or cache_tokens says so. Recurrent models have no pool.
  std::optional<bool> cache_blocks{};
  // Dtype of activations. NONE: f32 on the cpu; elsewhere the dtype of the weights.
  tenon_dtype compute = TENON_DTYPE_NONE;
  // Dtype of the cache of keys and values: f32, f16, bf16, or q8_0 on the cpu and on devices that have
  // kernels for it beside activations of this dtype; models without keys and values refuse q8_0.
  // NONE: that of activations, but on the cpu f16 if the weights are not f32 and `compute` is NONE.
  tenon_dtype cache = TENON_DTYPE_NONE;
  Products products = Products::f32;
  // Whether the logits of a sequence must have the same bits whoever else is served and however its prompt
  // is cut. On the cpu they have, if activations are f32, without experts and
  // recurrent layers. Elsewhere it is a hint to the device (ExecutableOptions). True also makes
  // Products::device f32, and refuses Products::compute. Unset: TENON_LLM_BATCH_INVARIANT_AUTO of
  // tenon_llm.h.
  std::optional<bool> batch_invariant{};
  // Changes of the model, added up. They stay apart from its weights, whatever those are.
  std::vector<AdapterChoice> adapters{};
  // Weights of one dtype that multiply the same values become one weight while a model is loaded:
  // fewer launches. Unset: except on the cpu. No effect with adapters.
  std::optional<bool> stack_weights{};
  // Whether the device selects the most likely tokens when the next token is drawn. Then all logits are
  // copied to the host only if these tokens do not decide the draw. The tokens of a text are the same
  // either way: sample/README.md. Unset: yes, but not on the cpu.
  std::optional<bool> candidates{};
  ExecutableOptions executable{};  // its device is not used
};

struct GenerateOptions {
  int64_t tokens = 256;                      // the most to generate
  SampleOptions sampling{.temperature = 0};  // penalties see the prompt, too
  bool stop_at_end = true;                   // after one of the model's end tokens, or of these
  std::vector<int64_t> end_tokens{};
  int64_t kept = 0;  // so many tokens of the prompt are in slot 0 already, and no others
  // Called while the rest of the prompt is read, with the tokens read and their number in total.
  // Returns false to stop.
  std::function<bool(int64_t read, int64_t total)> progress{};
};

struct EmbedOptions;

enum class Finish : uint8_t { length, end_token, context_full, stopped };

class Engine {
 public:
  // model: a folder of Hugging Face, with config.json and safetensors files, or a GGUF file.
  Engine(const Runtime& runtime, const std::string& model, const EngineOptions& options = {});
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  const ModelConfig& config() const;
  int64_t context() const;
  int64_t slots() const;
  // Most tokens of a sequence that are read at once: 512 on the cpu, 2048 elsewhere. A longer piece is
  // read in several steps.
  int64_t longest_step() const;
  // Tokens that the cache has room for, of all slots together.
  int64_t cache_tokens() const;
  // Of the weights on the device.
  uint64_t weight_bytes() const;

  // Reads `prompt` into slot 0 and continues it. Each new token goes to `callback`, also an end
  // token; it returns false to stop. The slot has then read all tokens but the last one.
  Finish generate(const std::vector<int64_t>& prompt, const GenerateOptions& options,
                  const std::function<bool(int64_t token)>& callback);

  // ---- Several sequences

  struct Piece {
    int64_t slot = 0;
    std::vector<int64_t> tokens;  // at least one
    float scale = 1;              // of next_logits(): Sampler::scale()
    bool all = false;             // of next_logits(): Sampler::needs_all()
  };
  struct Next {
    int64_t token = 0;          // the most likely one
    std::vector<float> logits;  // of all tokens of the vocabulary; empty unless wanted
  };
  // Appends the tokens of each piece to the sequence of its slot; no slot may come twice. Returns
  // what follows each piece. Pieces of one token are read together. Checks all pieces before it
  // reads any; throws OUT_OF_MEMORY if the cache has no room for them beside the other slots. progress: as in GenerateOptions, for each piece of several tokens, and once before
  // pieces of one token are read together; if it returns false, throws CANCELLED. Each read begins
  // with a call of progress.
  std::vector<Next> step(std::span<const Piece> pieces, bool want_logits,
                         const std::function<bool(int64_t read, int64_t total)>& progress = {});
  // The same for draws: the logits behind each piece, or the candidates of pieces of one token. They
  // are valid until the next call of a function that is not const.
  std::vector<NextLogits> next_logits(
      std::span<const Piece> pieces,
      const std::function<bool(int64_t read, int64_t total)>& progress = {});
  int64_t length(int64_t slot) const;
  void clear(int64_t slot);
  // Forgets what stands behind the first `length` tokens of a slot. False if the model cannot, and
  // the slot is cleared then: the state of a recurrent model has no past.
  bool truncate(int64_t slot, int64_t length);
  // Makes a slot hold the longest beginning of `tokens` that is in the cache: in this slot, in
  // another one, or left by earlier sequences. Never all of them: the last token has to be read.
  // Returns its length. Where slots share blocks, a beginning from elsewhere is a multiple of
  // block() tokens, and is shared, not copied.
  int64_t reuse(int64_t slot, std::span<const int64_t> tokens);
  int64_t block() const;  // tokens of a block; 0: slots have memory of their own
  struct Growth {
    int64_t slot = 0, tokens = 0;
  };
  // True if the cache has room for more tokens of these slots, of all of them together. The context
  // is not looked at.
  bool has_room(std::span<const Growth> growths) const;

  // Logits behind each token of a sequence, [tokens, vocab]. Uses and clears slot 0, also if it
  // fails.
  std::vector<float> all_logits(
      const std::vector<int64_t>& tokens,
      const std::function<bool(int64_t read, int64_t total)>& progress = {});

  // ---- Hidden states

  // Appends the tokens of a piece as step() does. Gives `take` the hidden states behind the last
  // norm, some tokens at a time: rows [tokens, dim].
  void hidden(const Piece& piece, const std::function<void(std::span<const float> rows)>& take,
              const std::function<bool(int64_t read, int64_t total)>& progress = {});
  // One vector [dim] for each text: embedding.hpp. Short texts are read together, in sequences beside
  // the slots or in free slots. The bits are those of each text alone where they do not depend on
  // other sequences: README.md.
  std::vector<float> embed(std::span<const std::vector<int64_t>> texts,
                           const EmbedOptions& options);

 private:
  struct Row {
    size_t piece;
    size_t row;  // of a run's results
  };
  void read(
      std::span<const Piece> pieces, bool candidates,
      const std::function<bool(int64_t read, int64_t total)>& progress,
      const std::function<void(Context& run, int64_t batch, std::span<const Row> rows)>& take);

  struct Parts;
  struct Embedding;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tenon::llm
