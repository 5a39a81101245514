// SPDX-License-Identifier: Apache-2.0
// Language models: the classes behind tenon.llm. Calls release the GIL, and wait for each other if
// several threads use one model.
#include <atomic>
#include <mutex>
#include <tenon/llm.hpp>
#include <thread>

#include "tensor.hpp"

namespace tenon::python {
namespace {

using llm::Tokens;

// An engine is used by one thread at a time. Taken without the GIL.
struct Turns {
  std::mutex mutex;
  std::atomic<std::thread::id> owner{};
};
class Turn {
 public:
  explicit Turn(Turns& turns) : turns_(turns) {
    if (turns_.owner == std::this_thread::get_id())
      fail(TENON_INVALID_ARGUMENT,
           "llm: the engine is in the middle of a call of this thread; expected no other one, as "
           "from a handler of signals");
    turns_.mutex.lock();
    turns_.owner = std::this_thread::get_id();
  }
  ~Turn() {
    turns_.owner = std::thread::id();
    turns_.mutex.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Turns& turns_;
};

struct PyEngine {
  Kept<llm::Engine> engine;
  std::shared_ptr<Turns> turns = std::make_shared<Turns>();
};

// What Python does while a prompt is read: it handles signals.
struct Signals {
  std::optional<nb::python_error> raised;  // by a handler

  bool go_on() {
    const Acquired gil;
    if (!gil) return false;
    deliver_log();
    if (PyErr_CheckSignals() == 0) return true;
    raised.emplace();
    return false;
  }
};

struct PyGeneration {
  std::shared_ptr<Signals> signals;
  Kept<llm::Generation> generation;
  std::shared_ptr<Turns> turns;
};

constexpr const char* kFinish[] = {"",           "end_token",    "stop_string", "complete",
                                   "max_tokens", "context_full", "cancelled"};

llm::Products products_of(std::string_view name) {
  if (name == "auto") return llm::Products::device;
  if (name == "f32") return llm::Products::f32;
  if (name == "int8") return llm::Products::int8;
  if (name == "compute") return llm::Products::compute;
  fail(TENON_INVALID_ARGUMENT, "llm: products='" + std::string(name) +
                                   "'; expected \"auto\", \"f32\", \"int8\" or \"compute\"");
}

llm::Pooling pooling_of(std::string_view name) {
  if (name == "auto") return llm::Pooling::model;
  if (name == "mean") return llm::Pooling::mean;
  if (name == "cls") return llm::Pooling::cls;
  if (name == "last") return llm::Pooling::last;
  fail(TENON_INVALID_ARGUMENT, "llm: pooling='" + std::string(name) +
                                   "'; expected \"auto\", \"mean\", \"cls\" or \"last\"");
}

const char* name_of(llm::Pooling pooling) {
  return pooling == llm::Pooling::mean ? "mean" : pooling == llm::Pooling::cls ? "cls" : "last";
}

tenon_dtype dtype_of(std::string_view name, const char* what,
                     std::initializer_list<tenon_dtype> choices, const char* expected) {
  for (const tenon_dtype d : choices)
    if (name == sdk::dtype_name(d)) return d;
  if (!name.empty())
    fail(TENON_INVALID_ARGUMENT,
         std::string("llm: ") + what + "='" + std::string(name) + "'; expected " + expected);
  return TENON_DTYPE_NONE;
}

void open(PyEngine* self, const Kept<Runtime>& runtime, const std::string& path, std::string device,
          int64_t context, int64_t slots, std::string_view compute, std::string_view cache,
          std::string_view products, int64_t cache_tokens, std::optional<bool> batch_invariant) {
  llm::EngineOptions o;
  if (device != "auto") o.device = std::move(device);
  o.context = context, o.slots = slots, o.cache_tokens = cache_tokens;
  o.products = products_of(products);
  o.batch_invariant = batch_invariant;
  o.compute = dtype_of(compute, "compute", {f32, f16, bf16}, "f32, f16 or bf16");
  o.cache = dtype_of(cache, "cache", {f32, f16, bf16, TENON_DTYPE_Q8_0}, "f32, f16, bf16 or q8_0");
  const Runtime& r = *runtime;
  const Unlocked unlocked;
  new (self) PyEngine{Kept<llm::Engine>(r, path, o)};
}

nb::dict facts(const PyEngine& e) {
  const llm::Facts f = e.engine->facts();
  nb::dict out;
  out["architecture"] = f.architecture;
  out["vocab"] = f.vocab;
  out["layers"] = f.layers;
  out["dim"] = f.dim;
  out["context"] = f.context;
  out["model_context"] = f.model_context;
  out["slots"] = f.slots;
  out["cache_tokens"] = f.cache_tokens;
  out["end_tokens"] = nb::tuple(nb::cast(f.end_tokens));
  out["bos_token"] = f.bos_token;
  out["has_tokenizer"] = f.has_tokenizer;
  out["has_chat_template"] = f.has_chat_template;
  out["recurrent"] = f.recurrent;
  out["pooling"] = f.pooling ? nb::cast(name_of(*f.pooling)) : nb::none();
  return out;
}

PyGeneration* generate(const PyEngine& e, const Tokens& prompt, int64_t slot, int64_t max_tokens,
                       double temperature, int64_t top_k, double top_p, double min_p,
                       double repetition_penalty, double presence_penalty, double frequency_penalty,
                       int64_t penalty_window, uint64_t seed,
                       std::vector<std::pair<int32_t, float>> logit_bias,
                       std::vector<std::string> stop, std::string json_schema, std::string regex,
                       bool ignore_end, bool logprobs, uint32_t top_logprobs) {
  auto signals = std::make_shared<Signals>();
  llm::GenerateOptions o;
  o.slot = slot, o.max_tokens = max_tokens;
  o.temperature = temperature, o.top_k = top_k, o.top_p = top_p, o.min_p = min_p;
  o.repetition_penalty = repetition_penalty;
  o.presence_penalty = presence_penalty, o.frequency_penalty = frequency_penalty;
  o.penalty_window = penalty_window, o.seed = seed;
  o.logit_bias = std::move(logit_bias), o.stop = std::move(stop);
  o.json_schema = std::move(json_schema), o.regex = std::move(regex);
  o.ignore_end = ignore_end, o.logprobs = logprobs, o.top_logprobs = top_logprobs;
  o.progress = [s = signals.get()](uint64_t, uint64_t) { return s->go_on(); };
  llm::Engine& engine = *e.engine;
  const Unlocked unlocked;
  const Turn turn(*e.turns);
  return new PyGeneration{signals, Kept<llm::Generation>(engine.generate(prompt, o)), e.turns};
}

// (text, token, logprob, finish, stop, prompt_tokens, cached_tokens, top_logprobs)
nb::tuple next(PyGeneration& g) {
  llm::Piece piece;
  std::string text;
  std::vector<std::pair<int32_t, float>> top;
  {
    llm::Generation& generation = *g.generation;
    const Unlocked unlocked;
    const Turn turn(*g.turns);
    piece = generation.next();
    text = piece.text;  // a view that the next call, maybe of another thread, invalidates
    for (size_t i = 0; i < piece.top_tokens.size(); ++i)
      top.emplace_back(piece.top_tokens[i], piece.top_logprobs[i]);
  }
  if (g.signals->raised) {
    nb::python_error raised = std::move(*g.signals->raised);
    g.signals->raised.reset();
    throw raised;
  }
  const nb::object stop = piece.stop == TENON_NONE ? nb::none() : nb::cast(piece.stop);
  return nb::make_tuple(nb::str(text.data(), text.size()), piece.token, piece.logprob,
                        kFinish[static_cast<uint32_t>(piece.finish)], stop, piece.prompt_tokens,
                        piece.cached_tokens, std::move(top));
}

// f32 [texts, dim]
PyTensor embed(const PyEngine& e, const std::vector<Tokens>& texts, std::string_view pooling,
               bool normalize, int64_t slot) {
  llm::Engine& engine = *e.engine;
  Signals signals;
  llm::EmbedOptions o;
  o.slot = slot;
  o.pooling = pooling_of(pooling);
  o.normalize = normalize;
  o.progress = [&](uint64_t, uint64_t) { return signals.go_on(); };
  std::vector<uint64_t> counts;
  Tokens tokens;
  for (const Tokens& text : texts) {
    counts.push_back(text.size());
    tokens.insert(tokens.end(), text.begin(), text.end());
  }
  const int64_t dim = engine.facts().dim;
  PyTensor out = new_tensor(TENON_DTYPE_F32, {static_cast<int64_t>(texts.size()), dim});
  try {
    const Unlocked unlocked;
    const Turn turn(*e.turns);
    engine.embed(tokens.data(), counts, o,
                 {static_cast<float*>(out.view.data), texts.size() * static_cast<size_t>(dim)});
  } catch (const Error&) {
    if (!signals.raised) throw;
  }
  if (signals.raised) throw std::move(*signals.raised);
  return out;
}

PyTensor logits(const PyEngine& e, const Tokens& tokens) {
  llm::Engine& engine = *e.engine;
  const llm::Facts f = engine.facts();
  const int64_t vocab = f.vocab;
  const auto count = static_cast<int64_t>(tokens.size());
  if (count > f.context)
    fail(TENON_INVALID_ARGUMENT, "logits: expected at most " + std::to_string(f.context) +
                                     " tokens, the context, got " + std::to_string(count));
  PyTensor out = new_tensor(TENON_DTYPE_F32, {count, vocab});
  const Unlocked unlocked;
  const Turn turn(*e.turns);
  detail::check(tenon_llm_logits(engine.handle(), tokens.data(), tokens.size(),
                                 static_cast<float*>(out.view.data),
                                 tokens.size() * static_cast<uint64_t>(vocab)));
  return out;
}

// (the most likely tokens, logits [parts, vocab] or None)
nb::tuple step(const PyEngine& e, const std::vector<std::pair<int64_t, Tokens>>& parts,
               bool want_logits) {
  llm::Engine& engine = *e.engine;
  const auto count = static_cast<int64_t>(parts.size());
  const int64_t vocab = want_logits ? engine.facts().vocab : 0;
  std::vector<int64_t> slots;
  std::vector<uint64_t> counts;
  Tokens tokens, most_likely(parts.size());
  for (const auto& [slot, ids] : parts) {
    slots.push_back(slot);
    counts.push_back(ids.size());
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  PyTensor out = new_tensor(TENON_DTYPE_F32, {count, vocab});
  {
    const Unlocked unlocked;
    const Turn turn(*e.turns);
    detail::check(tenon_llm_step(engine.handle(), slots.data(), counts.data(),
                                 static_cast<uint32_t>(count), tokens.data(), most_likely.data(),
                                 want_logits ? static_cast<float*>(out.view.data) : nullptr,
                                 static_cast<uint64_t>(count * vocab)));
  }
  return nb::make_tuple(most_likely, want_logits ? nb::cast(out) : nb::none());
}

int64_t truncate(const PyEngine& e, int64_t slot, int64_t length) {
  llm::Engine& engine = *e.engine;
  const Unlocked unlocked;
  const Turn turn(*e.turns);
  return engine.truncate(slot, length);
}

int64_t length(const PyEngine& e, int64_t slot) {
  llm::Engine& engine = *e.engine;
  const Unlocked unlocked;
  const Turn turn(*e.turns);
  return engine.length(slot);
}

}  // namespace

void add_llm(nb::module_& m) {
  nb::class_<PyEngine>(m, "_LlmEngine", nb::is_weak_referenceable())
      .def("__init__", open, nb::arg("runtime"), nb::arg("path"), nb::arg("device"),
           nb::arg("context"), nb::arg("slots"), nb::arg("compute"), nb::arg("cache"),
           nb::arg("products"), nb::arg("cache_tokens"), nb::arg("batch_invariant").none())
      .def("facts", facts)
      .def(
          "tokenize",
          [](const PyEngine& e, std::string_view text, bool add_special, bool parse_special) {
            const llm::Engine& engine = *e.engine;
            const Unlocked unlocked;
            return engine.tokenize(text, {add_special, parse_special});
          },
          nb::arg("text"), nb::arg("add_special"), nb::arg("parse_special"))
      .def(
          "detokenize",
          [](const PyEngine& e, const Tokens& tokens, bool skip_special) {
            const llm::Engine& engine = *e.engine;
            const Unlocked unlocked;
            return engine.detokenize(tokens, skip_special);
          },
          nb::arg("tokens"), nb::arg("skip_special"))
      .def(
          "apply_chat_template",
          [](const PyEngine& e, std::string_view messages, std::string_view tools,
             std::string_view variables, bool start_answer) {
            const llm::Engine& engine = *e.engine;
            const Unlocked unlocked;
            return engine.apply_chat_template(messages, tools, variables, start_answer);
          },
          nb::arg("messages"), nb::arg("tools"), nb::arg("variables"), nb::arg("start_answer"))
      .def("generate", generate, nb::arg("prompt"), nb::kw_only(), nb::arg("slot"),
           nb::arg("max_tokens"), nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"),
           nb::arg("min_p"), nb::arg("repetition_penalty"), nb::arg("presence_penalty"),
           nb::arg("frequency_penalty"), nb::arg("penalty_window"), nb::arg("seed"),
           nb::arg("logit_bias"), nb::arg("stop"), nb::arg("json_schema"), nb::arg("regex"),
           nb::arg("ignore_end"), nb::arg("logprobs"), nb::arg("top_logprobs"))
      .def("embed", embed, nb::arg("texts"), nb::arg("pooling"), nb::arg("normalize"),
           nb::arg("slot"))
      .def("logits", logits, nb::arg("tokens"))
      .def("step", step, nb::arg("parts"), nb::arg("want_logits"))
      .def("length", length, nb::arg("slot"))
      .def("truncate", truncate, nb::arg("slot"), nb::arg("length"))
      .def("cancel", [](const PyEngine& e) { e.engine->cancel(); });
  nb::class_<PyGeneration>(m, "_LlmGeneration")
      .def("next", next)
      .def("cancel", [](PyGeneration& g) { g.generation->cancel(); });
}

}  // namespace tenon::python
