// SPDX-License-Identifier: Apache-2.0
// Language models in C++: the classes over tenon_llm.h. Header-only; programs link libtenon-llm.
//
//   tenon::Runtime runtime;
//   tenon::llm::Engine engine(runtime, "Llama-3.2-1B-Instruct", {.device = "cpu"});
//   const std::string prompt = engine.apply_chat_template(R"([{"role": "user", "content": "Hi"}])");
//   engine.generate(engine.tokenize(prompt, {.add_special = false}), {.max_tokens = 100},
//                   [](const tenon::llm::Piece& piece) {
//                     std::cout << piece.text << std::flush;
//                     return true;
//                   });
//
// Threads, ownership and errors are as in tenon_llm.h: an engine and its generations are used by one
// thread at a time; tokenize(), detokenize(), apply_chat_template(), facts() and cancel() by any.
// Every failure throws tenon::Error.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llm_generation.hpp"

namespace tenon::llm {

// How activations meet weights in blocks: see TENON_LLM_PRODUCTS_*.
enum class Products : uint32_t {
  device = TENON_LLM_PRODUCTS_DEVICE,
  f32 = TENON_LLM_PRODUCTS_F32,
  int8 = TENON_LLM_PRODUCTS_INT8,
  compute = TENON_LLM_PRODUCTS_COMPUTE
};

// How the hidden states of a text become one vector: see TENON_LLM_POOLING_*.
enum class Pooling : uint32_t {
  model = TENON_LLM_POOLING_MODEL,
  mean = TENON_LLM_POOLING_MEAN,
  cls = TENON_LLM_POOLING_CLS,
  last = TENON_LLM_POOLING_LAST
};

// tenon_llm_options.
struct EngineOptions {
  std::string device{};  // empty: the best one
  int64_t context = 0;   // 0: 4096, or the model's own limit if it is less
  int64_t slots = 1;
  Products products = Products::device;
  // Of activations, and of the cache of keys and values; NONE: see tenon_llm_options.
  tenon_dtype compute = TENON_DTYPE_NONE, cache = TENON_DTYPE_NONE;
  // That the cache has room for, of all slots together; 0: slots * context. See tenon_llm_options.
  int64_t cache_tokens = 0;
  // Whether bits must not depend on other sequences; absent: see TENON_LLM_BATCH_INVARIANT_AUTO.
  std::optional<bool> batch_invariant{};
};

// tenon_llm_facts.
struct Facts {
  std::string architecture{};
  int64_t vocab = 0, layers = 0, dim = 0;
  int64_t context = 0, model_context = 0, slots = 0;
  Tokens end_tokens{};
  std::optional<int32_t> bos_token{};
  bool has_tokenizer = false, has_chat_template = false, recurrent = false;
  std::optional<Pooling> pooling{};  // of embed(); absent: the files name one that tenon lacks
  int64_t cache_tokens = 0;          // that the cache has room for, of all slots together
};

// tenon_llm_embed_options.
struct EmbedOptions {
  int64_t slot = 0;
  Pooling pooling = Pooling::model;
  bool normalize = true;  // to length 1
  // Called while texts are read. Returns false to stop: then embed() throws TENON_CANCELLED. What it
  // throws leaves embed().
  std::function<bool(uint64_t read, uint64_t total)> progress{};
};

struct TokenizeOptions {
  bool add_special = true;    // what the model expects around a text, such as <s>
  bool parse_special = true;  // special tokens that the text spells out are tokens
};

// A message of a conversation. role: system, user, assistant.
struct Message {
  std::string role{}, content{};
};

namespace detail {
using namespace tenon::detail;
inline void append_json(std::string& json, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  json += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      (json += '\\') += c;
    else if (byte < 0x20)
      ((json += "\\u00") += kHex[byte >> 4]) += kHex[byte & 15];
    else
      json += c;
  }
  json += '"';
}
}  // namespace detail

// As JSON, for apply_chat_template().
inline std::string to_json(std::span<const Message> messages) {
  std::string json = "[";
  for (const Message& m : messages) {
    json += json.size() > 1 ? ", {\"role\": " : "{\"role\": ";
    detail::append_json(json, m.role);
    json += ", \"content\": ";
    detail::append_json(json, m.content);
    json += '}';
  }
  return json + "]";
}

class Engine {
 public:
  // path: a folder with config.json and safetensors files, or a GGUF file: see tenon_llm_open().
  Engine(const Runtime& runtime, std::string_view path, const EngineOptions& options = {}) {
    tenon_llm_options o{};
    o.struct_size = sizeof o;
    o.device = detail::str(options.device);
    o.context = options.context;
    o.slots = options.slots;
    o.products = static_cast<uint32_t>(options.products);
    o.compute = options.compute;
    o.cache = options.cache;
    o.cache_tokens = options.cache_tokens;
    o.batch_invariant = !options.batch_invariant   ? TENON_LLM_BATCH_INVARIANT_AUTO
                        : *options.batch_invariant ? TENON_LLM_BATCH_INVARIANT_YES
                                                   : TENON_LLM_BATCH_INVARIANT_NO;
    tenon_llm* handle = nullptr;
    detail::check(tenon_llm_open(runtime.handle(), detail::str(path), &o, &handle));
    handle_.reset(handle);
  }
  tenon_llm* handle() const { return handle_.get(); }

  Facts facts() const {
    tenon_llm_facts f{};
    f.struct_size = sizeof f;
    detail::check(tenon_llm_get_facts(handle(), &f));
    Facts out;
    out.architecture = detail::string(f.architecture);
    out.vocab = f.vocab, out.layers = f.layers, out.dim = f.dim;
    out.context = f.context, out.model_context = f.model_context, out.slots = f.slots;
    out.end_tokens.assign(f.end_tokens, f.end_tokens + f.end_token_count);
    if (f.bos_token >= 0) out.bos_token = f.bos_token;
    out.has_tokenizer = f.has_tokenizer != 0;
    out.has_chat_template = f.has_chat_template != 0;
    out.recurrent = f.recurrent != 0;
    if (f.pooling) out.pooling = static_cast<Pooling>(f.pooling);
    out.cache_tokens = f.cache_tokens;
    return out;
  }

  // ---- Text and tokens

  Tokens tokenize(std::string_view text, const TokenizeOptions& options = {}) const {
    tenon_llm_tokens* made = nullptr;
    detail::check(tenon_llm_tokenize(handle(), detail::str(text),
                                     (options.add_special ? TENON_LLM_ADD_SPECIAL : 0) |
                                         (options.parse_special ? TENON_LLM_PARSE_SPECIAL : 0),
                                     &made));
    const detail::Handle<tenon_llm_tokens, tenon_llm_tokens_destroy> owned(made);
    const int32_t* ids = tenon_llm_tokens_data(made);
    return {ids, ids + tenon_llm_tokens_count(made)};
  }
  std::string detokenize(std::span<const int32_t> tokens, bool skip_special = false) const {
    tenon_text* text = nullptr;
    detail::check(tenon_llm_detokenize(handle(), tokens.data(), tokens.size(),
                                       skip_special ? TENON_LLM_SKIP_SPECIAL : 0, &text));
    return detail::take(text);
  }
  Decoder decoder(bool skip_special = true) const { return {handle(), skip_special}; }

  // messages, tools, variables: JSON. Returns text, whose tokens are those of
  // tokenize(text, {.add_special = false}). start_answer: with what starts the assistant's answer.
  std::string apply_chat_template(std::string_view messages, std::string_view tools = {},
                                  std::string_view variables = {}, bool start_answer = true) const {
    tenon_llm_chat chat{};
    chat.struct_size = sizeof chat;
    chat.messages = detail::str(messages);
    chat.tools = detail::str(tools);
    chat.variables = detail::str(variables);
    chat.closed = start_answer ? 0 : 1;
    tenon_text* text = nullptr;
    detail::check(tenon_llm_apply_chat_template(handle(), &chat, &text));
    return detail::take(text);
  }
  std::string apply_chat_template(std::span<const Message> messages) const {
    return apply_chat_template(to_json(messages));
  }

  // ---- Generating

  // See tenon_llm_generate().
  Generation generate(std::span<const int32_t> prompt, const GenerateOptions& options = {}) {
    return {handle(), prompt, options};
  }
  // Calls callback(piece) for each token until the end, or until it returns false: then the result
  // is Finish::cancelled.
  template <class Callback>
  requires std::is_invocable_r_v<bool, Callback, const Piece&> Finish
  generate(std::span<const int32_t> prompt, const GenerateOptions& options, Callback&& callback) {
    Generation generation = generate(prompt, options);
    for (;;) {
      const Piece piece = generation.next();
      const bool goes_on = callback(piece);
      if (piece.finish != Finish::running) return piece.finish;
      if (!goes_on) return Finish::cancelled;
    }
  }
  Answer complete(std::span<const int32_t> prompt, const GenerateOptions& options = {}) {
    Answer out;
    out.finish = generate(prompt, options, [&](const Piece& p) {
      out.text += p.text;
      if (p.token >= 0) out.tokens.push_back(p.token);
      return true;
    });
    return out;
  }
  // Of text, which the tokenizer gives its special tokens.
  Answer complete(std::string_view prompt, const GenerateOptions& options = {}) {
    return complete(tokenize(prompt), options);
  }
  // From any thread: see tenon_llm_cancel().
  void cancel() { tenon_llm_cancel(handle()); }

  // ---- Embeddings

  // A vector for each text, [texts, dim]: see tenon_llm_embed(). Clears the slot of the options.
  std::vector<float> embed(std::span<const Tokens> texts, const EmbedOptions& options = {}) {
    std::vector<uint64_t> counts;
    Tokens tokens;
    for (const Tokens& text : texts) {
      counts.push_back(text.size());
      tokens.insert(tokens.end(), text.begin(), text.end());
    }
    std::vector<float> out(texts.size() * static_cast<size_t>(facts().dim));
    embed(tokens.data(), counts, options, out);
    return out;
  }
  // Of texts, which the tokenizer gives their special tokens.
  std::vector<float> embed(std::span<const std::string> texts, const EmbedOptions& options = {}) {
    std::vector<Tokens> tokens;
    for (const std::string& text : texts) tokens.push_back(tokenize(text));
    return embed(std::span<const Tokens>(tokens), options);
  }
  std::vector<float> embed(std::string_view text, const EmbedOptions& options = {}) {
    const Tokens tokens = tokenize(text);
    return embed(std::span(&tokens, 1), options);
  }
  // The same into memory of the caller: tokens of all texts, one after the other.
  void embed(const int32_t* tokens, std::span<const uint64_t> counts, const EmbedOptions& options,
             std::span<float> out) {
    tenon_llm_embed_options o{};
    o.struct_size = sizeof o;
    o.slot = options.slot;
    o.pooling = static_cast<uint32_t>(options.pooling);
    o.flags = options.normalize ? 0 : TENON_LLM_NOT_NORMALIZED;
    Generation::Progress progress{options.progress, nullptr};
    if (options.progress) {
      o.progress = Generation::on_progress;
      o.progress_user = &progress;
    }
    tenon_status* status =
        tenon_llm_embed(handle(), tokens, counts.data(), static_cast<uint32_t>(counts.size()), &o,
                        out.data(), out.size());
    if (progress.thrown) {
      tenon_status_release(status);
      std::rethrow_exception(progress.thrown);
    }
    detail::check(status);
  }

  // ---- Several sequences: see tenon_llm_step().

  struct Part {
    int64_t slot = 0;
    Tokens tokens{};  // at least one
  };
  struct Next {
    int32_t token = 0;            // the most likely one
    std::vector<float> logits{};  // of all tokens; empty unless wanted
  };
  std::vector<Next> step(std::span<const Part> parts, bool want_logits = false) {
    std::vector<int64_t> slots;
    std::vector<uint64_t> counts;
    Tokens tokens;
    for (const Part& p : parts) {
      slots.push_back(p.slot);
      counts.push_back(p.tokens.size());
      tokens.insert(tokens.end(), p.tokens.begin(), p.tokens.end());
    }
    const size_t vocab = want_logits ? static_cast<size_t>(facts().vocab) : 0;
    Tokens next(parts.size());
    std::vector<float> logits(parts.size() * vocab);
    detail::check(tenon_llm_step(handle(), slots.data(), counts.data(),
                                 static_cast<uint32_t>(parts.size()), tokens.data(), next.data(),
                                 want_logits ? logits.data() : nullptr, logits.size()));
    std::vector<Next> out(parts.size());
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].token = next[i];
      const auto row = logits.begin() + static_cast<ptrdiff_t>(i * vocab);
      out[i].logits.assign(row, row + static_cast<ptrdiff_t>(vocab));
    }
    return out;
  }
  // Logits behind each token, [tokens, vocab]. Uses and clears slot 0.
  std::vector<float> logits(std::span<const int32_t> tokens) {
    const auto most = static_cast<uint64_t>(facts().context);
    if (tokens.size() > most)
      throw Error(TENON_INVALID_ARGUMENT, "logits: expected at most " + std::to_string(most) +
                                              " tokens, the context, got " +
                                              std::to_string(tokens.size()));
    std::vector<float> out(tokens.size() * static_cast<size_t>(facts().vocab));
    detail::check(tenon_llm_logits(handle(), tokens.data(), tokens.size(), out.data(), out.size()));
    return out;
  }
  int64_t length(int64_t slot = 0) const {
    int64_t length = 0;
    detail::check(tenon_llm_length(handle(), slot, &length));
    return length;
  }
  // Returns the tokens that are left: see tenon_llm_truncate().
  int64_t truncate(int64_t slot, int64_t length) {
    int64_t left = 0;
    detail::check(tenon_llm_truncate(handle(), slot, length, &left));
    return left;
  }
  void clear(int64_t slot = 0) { truncate(slot, 0); }

 private:
  detail::Handle<tenon_llm, tenon_llm_destroy> handle_;
};

}  // namespace tenon::llm
