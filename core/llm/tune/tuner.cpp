// SPDX-License-Identifier: Apache-2.0
// Runs the graphs of a fine-tuning.
#include "llm/tune/tuner.hpp"

#include <algorithm>
#include <map>

#include "llm/model_files.hpp"
#include "llm/tune/random.hpp"
#include "llm/tune/tune_graphs.hpp"

namespace tenon::llm {

struct Tuner::Parts {
  struct Runner {
    Runner(const Runtime& runtime, const Graph& graph, const Store& store,
           const ExecutableOptions& options)
        : executable(runtime, graph, store, options), context(executable) {}
    Executable executable;
    Context context;
  };

  Parts(const Runtime& r, ModelFiles files, const TuneOptions& o)
      : runtime(r),
        config(std::move(files.config)),
        tensors(files.tensors.types),
        weights(std::move(files.tensors)),
        adapter(o.adapter, config),
        store(r),
        options(o) {}

  const Runtime& runtime;
  ModelConfig config;
  std::map<std::string, TensorType, std::less<>> tensors;
  Weights weights;
  TunedAdapter adapter;
  Store store;
  TuneOptions options;
  std::map<std::pair<int64_t, bool>, std::unique_ptr<Runner>> runners;  // by time, trains
  std::unique_ptr<Runner> apply;
  uint64_t runs = 0;  // of dropout

  StepShape shape(int64_t time, bool trains) {
    return {.slots = options.batch,
            .capacity = options.length,
            .batch = options.batch,
            .time = time,
            .all_logits = true,
            .compute = options.compute,
            .cache = options.compute,
            .lora = &adapter,
            .whole = true,
            .checkpoint = trains && options.checkpoint};
  }
  Graph graph(int64_t time, bool trains) {
    // Evaluations have neither gradients nor dropout.
    adapter.trainable = trains;
    adapter.dropout = trains ? adapter.config().dropout : 0;
    return tune_graph(config, shape(time, trains), weights, trains);
  }
  Graph apply_graph() const {
    return tune_apply_graph(adapter, {.kind = TENON_OPTIMIZER_ADAMW,
                                      .beta1 = options.beta1,
                                      .beta2 = options.beta2,
                                      .eps = options.eps,
                                      .weight_decay = options.weight_decay,
                                      .clip_norm = options.clip_norm});
  }
  std::unique_ptr<Runner> compiled(const Graph& g) {
    store.add_missing(g);
    ExecutableOptions executable = options.executable;
    executable.device = options.device;
    return std::make_unique<Runner>(runtime, g, store, executable);
  }
  Context& runner(int64_t time, bool trains) {
    std::unique_ptr<Runner>& r = runners[{time, trains}];
    if (!r) r = compiled(graph(time, trains));
    return r->context;
  }

  // The length of a run whose longest sequence has `need` tokens: few lengths are compiled.
  int64_t time_for(int64_t need) const {
    int64_t time = options.length;
    while (time >= 32 && (time + 1) / 2 >= need) time = (time + 1) / 2;
    return time;
  }

  // Runs some examples, at most a batch.
  double run(const std::vector<const Example*>& examples, bool trains, float scale, int64_t step) {
    size_t need = 2;
    for (const Example* e : examples) need = std::max(need, e->tokens.size());
    const int64_t time = time_for(static_cast<int64_t>(need) - 1);
    const auto count = static_cast<size_t>(options.batch * time);
    std::vector<int64_t> tokens(count, 0), labels(count, kIgnored);
    for (size_t row = 0; row < examples.size(); ++row) {
      const Example& e = *examples[row];
      const size_t first = row * static_cast<size_t>(time);
      for (size_t i = 0; i + 1 < e.tokens.size(); ++i) {
        tokens[first + i] = e.tokens[i];
        if (e.learned[i + 1]) labels[first + i] = e.tokens[i + 1];
      }
    }
    Context& c = runner(time, trains);
    c.set("tokens", {options.batch, time}, tokens);
    c.set("labels", {options.batch, time}, labels);
    if (trains) c.set("scale", scale);
    if (trains && adapter.config().dropout > 0)
      c.set("rng", std::vector<int64_t>{
                       static_cast<int64_t>(mix(options.seed, static_cast<uint64_t>(step)) >> 1),
                       static_cast<int64_t>(runs++ << 20)});
    c.run();
    return c.get_scalar<float>("loss");
  }

  // Forgets the sums of gradients of a step that was not made.
  void forget_sums() {
    const Graph sums = graph(options.length, true);
    for (const auto& s : sums.named(TENON_SPACE_STATE)) store.remove(TENON_SPACE_STATE, s.name);
    store.add_missing(sums);
  }
};

Tuner::Tuner(const Runtime& runtime, const std::string& model, const TuneOptions& options) {
  const bool on_cpu = runs_on_cpu(runtime, options.device);
  parts_ = std::make_unique<Parts>(
      runtime, open_model(model, {.on_cpu = on_cpu, .compute = options.compute}), options);
  Parts& p = *parts_;
  if (p.config.falcon.in_weights) {
    // Such an adapter fits files alone, and tells it (Adapter::check_model).
    if (!is_of_gguf(model))
      throw Error(TENON_UNSUPPORTED,
                  model +
                      ": expected a name that ends with .gguf: by it, adapters tell that they "
                      "fit files of Falcon-H1, whose weights are not those of folders");
    p.adapter.set_base_model(model);
  }
  if (p.options.compute == TENON_DTYPE_NONE)
    p.options.compute = on_cpu || p.config.dtype == f16 ? tenon_dtype{f32} : p.config.dtype;
  if (options.length == 0) p.options.length = std::min<int64_t>(512, p.config.context);
  if (options.length > p.config.context)
    throw Error(TENON_INVALID_ARGUMENT,
                model + ": expected a length of at most " + std::to_string(p.config.context) +
                    ", the model's context, got " + std::to_string(options.length));
  try {
    // Names and checks all weights before any content is read.
    p.graph(p.options.length, false);
    p.weights.check_unused(
        [&](const std::string& name) { return is_harmless_tensor(name, p.config); });
    p.adapter.finish();
    p.graph(p.options.length, true);
    p.apply_graph();
  } catch (const Error& e) {
    throw Error(e.code(), model + ": " + e.what());
  }
}

Tuner::~Tuner() = default;

Tuner::Facts Tuner::facts() const {
  const Parts& p = *parts_;
  Facts f{.architecture = std::string(p.config.architecture->model_type),
          .adapter_numbers = p.adapter.numbers(),
          .weight_bytes = p.weights.bytes(),
          .compute = p.options.compute,
          .length = p.options.length};
  for (const auto& [name, type] : p.tensors) f.model_numbers += type.elements();
  return f;
}

const AdapterConfig& Tuner::adapter() const { return parts_->adapter.config(); }

AdapterConfig Tuner::stored_adapter() const { return parts_->adapter.stored_config(); }

void Tuner::check(const Examples& all) const {
  const int64_t vocab = parts_->config.vocab;
  for (const Example& e : all.list)
    for (const int32_t token : e.tokens)
      if (token < 0 || token >= vocab)
        throw Error(TENON_INVALID_ARGUMENT, "the tokenizer gives the token " +
                                                std::to_string(token) + ", the model has " +
                                                std::to_string(vocab) + " tokens");
}

void Tuner::begin() {
  Parts& p = *parts_;
  p.weights.load(p.store);
  p.adapter.set_first_values(p.store, p.options.seed);
  p.apply = p.compiled(p.apply_graph());
}

std::optional<Tuner::Result> Tuner::step(const Examples& all, int64_t step, double learning_rate,
                                         const std::function<bool()>& stop) {
  Parts& p = *parts_;
  const auto batch = static_cast<uint64_t>(p.options.batch);
  const auto parts = static_cast<uint64_t>(p.options.accumulate);
  ExampleOrder order(p.options.seed, all.list.size());
  std::vector<std::vector<const Example*>> runs(parts);
  Result result;
  for (uint64_t i = 0; i < batch * parts; ++i) {
    const Example& e = all.list[order[static_cast<uint64_t>(step) * batch * parts + i]];
    runs[i / batch].push_back(&e);
    result.tokens += std::count(e.learned.begin() + 1, e.learned.end(), uint8_t{1});
  }
  // The mean of the runs is then the mean over all tokens of the step.
  const auto scale =
      static_cast<float>(static_cast<double>(parts) / static_cast<double>(result.tokens));
  p.runs = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i > 0 && stop && stop()) {
      p.forget_sums();
      return {};
    }
    result.loss += p.run(runs[i], true, scale, step);
  }
  result.loss /= static_cast<double>(result.tokens);
  p.apply->context.set("lr", static_cast<float>(learning_rate));
  p.apply->context.run();
  result.norm = p.apply->context.get_scalar<float>("norm");
  return result;
}

std::optional<double> Tuner::evaluate(const Examples& all, const std::function<bool()>& stop) {
  Parts& p = *parts_;
  const auto batch = static_cast<size_t>(p.options.batch);
  double sum = 0;
  for (size_t at = 0; at < all.list.size(); at += batch) {
    if (stop && stop()) return {};
    std::vector<const Example*> examples;
    for (size_t i = at; i < std::min(at + batch, all.list.size()); ++i)
      examples.push_back(&all.list[i]);
    sum += p.run(examples, false, 1, 0);
  }
  return sum / static_cast<double>(all.learned);
}

void Tuner::save(const std::string& adapter_file, const std::string& state_file,
                 int64_t step) const {
  const std::vector<std::pair<std::string, std::string>> metadata = {
      {"format", "pt"}, {"step", std::to_string(step)}};
  parts_->adapter.save(parts_->runtime, parts_->store, adapter_file, metadata);
  parts_->store.save(TENON_SPACE_STATE, state_file, metadata);
}

void Tuner::load(const std::string& adapter_file, const std::string& state_file) {
  Parts& p = *parts_;
  p.weights.load(p.store);
  p.adapter.load(p.store, adapter_file);
  // A training that goes on needs all of its state; none is made up.
  const auto tensors = safetensors_tensors(state_file);
  const Graph apply = p.apply_graph();
  for (const auto& s : apply.named(TENON_SPACE_STATE)) {
    const auto at = tensors.find(s.name);
    if (at == tensors.end())
      throw Error(TENON_NOT_FOUND, state_file + ": state '" + s.name + "' is missing");
    if (at->second != apply.type(s.value))
      throw Error(TENON_SHAPE_MISMATCH,
                  state_file + ": state '" + s.name + "' does not fit the model");
  }
  p.store.load(TENON_SPACE_STATE, state_file);
  p.apply = p.compiled(apply);
}

}  // namespace tenon::llm
