// SPDX-License-Identifier: Apache-2.0
// Reads and writes the files of a model folder.
#include "cli/lm/checkpoint.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "cli/input.hpp"
#include "cli/lm/chart.hpp"
#include "cli/lm/config.hpp"
#include "cli/lm/json_file.hpp"
#include "cli/lm/save.hpp"

namespace tenon::lm {
namespace {

namespace fs = std::filesystem;

// The printable character for a byte in byte-level tokenizers: the byte itself if it is printable,
// else one from U+0100 on.
std::string byte_character(int byte) {
  const auto prints = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  int code = byte;
  if (!prints(byte)) {
    code = 0x100;
    for (int b = 0; b < byte; ++b) code += !prints(b);
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

Json tokenizer_json() {
  Json vocab = Json::object();
  for (int b = 0; b < 256; ++b) vocab[byte_character(b)] = b;
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", Json::array()}}}};
}

// The tokenizer must equal the one above, because bytes are used as tokens without consulting it.
void check_tokenizer(const std::string& file) {
  const Json j = parse_object(cli::read_file(file), file);
  const Json none = Json::object();
  const auto part = [&](const Json& from, const char* name) -> const Json& {
    const auto at = from.find(name);
    return at != from.end() && at->is_object() ? *at : none;
  };
  const Json &model = part(j, "model"), &vocab = part(model, "vocab");
  const Json known = tokenizer_json();
  const auto merges = model.find("merges");
  if (vocab != known["model"]["vocab"] || (merges != model.end() && !merges->empty()))
    throw Error(TENON_UNSUPPORTED,
                file + ": is another tokenizer; expected one whose 256 tokens are the bytes");
}

Json training_json(const TrainingState& s) {
  return {{"total_steps", s.total_steps},
          {"done_steps", s.done_steps},
          {"batch", s.batch},
          {"accumulate", s.accumulate},
          {"warmup", s.warmup},
          {"lr", s.lr},
          {"seed", s.seed},
          {"files", s.files},
          {"data_checksum", s.data_checksum},
          {"options", s.options},
          {"choices", Json::parse(s.choices)},
          {"losses", s.losses},
          {"held_out", s.held_out}};
}

std::string shape_text(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t d : dims) text += (text.empty() ? "" : " x ") + std::to_string(d);
  return text;
}

using Tensors = std::map<std::string, TensorType, std::less<>>;

[[noreturn]] void refuse_unused(const std::string& file, const char* what,
                                const std::set<std::string_view>& unused) {
  throw Error(
      TENON_UNSUPPORTED,
      file + ": " + what + " '" + std::string(*unused.begin()) + "'" +
          (unused.size() > 1 ? " and " + std::to_string(unused.size() - 1) + " more are" : " is") +
          " not used by the model that config.json describes");
}

// The weights of a file are those of the model, no more and no less.
void check_weights(const std::string& file, const Tensors& tensors, const Config& config) {
  // Checked before the list of names is built, because config.json determines its length.
  const auto count = static_cast<int64_t>(tensors.size());
  if (config.layers > count)
    throw Error(TENON_NOT_FOUND, file + ": has " + std::to_string(count) +
                                     " weights, config.json asks for " +
                                     std::to_string(config.layers) + " layers");
  std::set<std::string_view> unused;
  for (const auto& [name, type] : tensors) unused.insert(name);
  for (const WeightSpec& w : weight_specs(config)) {
    const auto found = tensors.find(w.name);
    if (found == tensors.end())
      throw Error(TENON_NOT_FOUND, file + ": weight '" + w.name + "' is missing");
    unused.erase(found->first);
    if (found->second != TensorType(w.dtype, w.dims))
      throw Error(TENON_SHAPE_MISMATCH, file + ": weight '" + w.name + "' is not the " +
                                            shape_text(w.dims) + " of " + torch_name(w.dtype) +
                                            " that config.json asks for");
  }
  if (!unused.empty()) refuse_unused(file, "weight", unused);
}

Tensors tensors_in(const Store& store, uint32_t space) {
  Tensors tensors;
  for (std::string& name : store.names(space)) {
    TensorType type = store.type(space, name);
    tensors.emplace(std::move(name), std::move(type));
  }
  return tensors;
}

}  // namespace

Config load_model(const std::string& folder, Store& store,
                  const std::function<void(const Config&)>& before_contents) {
  const Config config = load_config(folder);
  const std::string file = read_saved(folder, "model.safetensors", [&](const std::string& path) {
    check_weights(path, safetensors_tensors(path), config);
    if (before_contents) before_contents(config);
    store.load(TENON_SPACE_WEIGHT, path);
    return path;
  });
  // Checked again on what was loaded: the file may have been replaced in between.
  check_weights(file, tensors_in(store, TENON_SPACE_WEIGHT), config);
  try {
    read_saved(folder, "tokenizer.json", check_tokenizer);
  } catch (const Error& e) {
    if (e.code() != TENON_NOT_FOUND) throw;  // without a tokenizer, bytes are used as well
  }
  return config;
}

namespace {
// The file that was read, and its content.
std::pair<std::string, Json> read_training(const std::string& folder) {
  return read_saved(folder, "training.json", [](const std::string& path) {
    return std::pair(path, parse_object(cli::read_file(path), path));
  });
}
}  // namespace

Strings load_options(const std::string& folder) {
  const auto [file, j] = read_training(folder);
  const Strings none;
  return field<Strings>(j, file, "options", &none);
}

bool load_accumulates(const std::string& folder) {
  const auto [file, j] = read_training(folder);
  const int64_t one = 1;
  return field(j, file, "accumulate", &one) > 1;
}

// A save replaces all files at once (save.hpp). If training.json is the same before and after
// `read`, all files that `read` saw are of one save.
void read_one_save(const std::string& folder, const std::function<void()>& read) {
  constexpr int kMostTries = 100;
  for (int tries = 1;; ++tries) {
    const Json before = read_training(folder).second;
    try {
      read();
      if (read_training(folder).second == before) return;
    } catch (const Error&) {
      if (tries == kMostTries || read_training(folder).second == before) throw;
    }
    if (tries == kMostTries)
      throw Error(TENON_IO_ERROR,
                  folder + ": another training saves to it more often than it can be read");
  }
}

TrainingState load_training(const std::string& folder, Store& store) {
  const auto [file, j] = read_training(folder);
  TrainingState s;
  s.total_steps = field<int64_t>(j, file, "total_steps");
  s.done_steps = field<int64_t>(j, file, "done_steps");
  s.batch = field<int64_t>(j, file, "batch");
  const int64_t one = 1;
  s.accumulate = field(j, file, "accumulate", &one);
  s.warmup = field<int64_t>(j, file, "warmup");
  s.lr = field<double>(j, file, "lr");
  s.seed = field<uint64_t>(j, file, "seed");
  s.files = field<Strings>(j, file, "files");
  s.data_checksum = field<uint64_t>(j, file, "data_checksum");
  s.losses = field<Points>(j, file, "losses");
  s.held_out = field<Points>(j, file, "held_out");
  const Strings none;  // older files have neither options nor choices
  s.options = field<Strings>(j, file, "options", &none);
  if (const auto choices = j.find("choices"); choices != j.end()) {
    const auto is_list = [](const Json& list) { return holds<Strings>(list); };
    if (!choices->is_object() || !std::ranges::all_of(*choices, is_list))
      throw Error(TENON_CORRUPT, file + ": 'choices' has the wrong form");
    s.choices = choices->dump();
  }
  // The limits of lm train's options.
  const auto limit = [&, &file = file](const char* name, auto value, decltype(value) least,
                                       decltype(value) most) {
    if (!(value >= least && value <= most))
      throw Error(TENON_CORRUPT, file + ": '" + name + "' is " + std::to_string(value) +
                                     ", expected " + std::to_string(least) + " to " +
                                     std::to_string(most));
  };
  limit("total_steps", s.total_steps, int64_t{0}, int64_t{1} << 30);
  limit("done_steps", s.done_steps, int64_t{0}, s.total_steps);
  limit("batch", s.batch, int64_t{1}, int64_t{1} << 20);
  limit("accumulate", s.accumulate, int64_t{1}, int64_t{1} << 20);
  limit("warmup", s.warmup, int64_t{0}, int64_t{1} << 30);
  limit("lr", s.lr, 0.0, 1e3);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    std::string part;
    const auto metadata = read_saved(folder, name, [&](const std::string& path) {
      part = path;
      return safetensors_metadata(path);
    });
    const std::string step = Json::parse(metadata).value("step", "?");
    if (step != std::to_string(s.done_steps))
      throw Error(TENON_CORRUPT, part + ": is of step " + step + ", training.json says " +
                                     std::to_string(s.done_steps));
  }
  read_saved(folder, "optimizer.safetensors",
             [&](const std::string& path) { store.load(TENON_SPACE_STATE, path); });
  return s;
}

void check_state_names(const std::string& folder, const Config& config) {
  // Sums of gradients (--accumulate) are not saved, so the graph without them has all states.
  const Graph graph = train_graph(config, {.batch = 1});
  read_saved(folder, "optimizer.safetensors", [&](const std::string& path) {
    const Tensors tensors = safetensors_tensors(path);
    std::set<std::string_view> unused;
    for (const auto& [name, type] : tensors) unused.insert(name);
    for (const auto& state : graph.named(TENON_SPACE_STATE)) unused.erase(state.name);
    if (!unused.empty()) refuse_unused(path, "state", unused);
    return path;
  });
}

void check_storable(const TrainingState& state) {
  for (const std::string& file : state.files) {
    try {
      static_cast<void>(Json(file).dump());
    } catch (const Json::type_error&) {
      throw Error(TENON_INVALID_ARGUMENT,
                  file + ": the file's name is not UTF-8, and training.json must name it");
    }
  }
}

void save_checkpoint(const std::string& folder, const Config& config, const TrainingState& state,
                     const Store& store) {
  Save save(folder);
  const fs::path& at = save.path();
  const std::string step = std::to_string(state.done_steps);
  store.save(TENON_SPACE_WEIGHT, (at / "model.safetensors").string(),
             {{"format", "pt"}, {"step", step}});
  store.save(TENON_SPACE_STATE, (at / "optimizer.safetensors").string(), {{"step", step}});
  save.write("config.json", config_text(config));
  save.write("tokenizer.json", tokenizer_json().dump(1) + "\n");
  save.write("tokenizer_config.json", Json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                           {"model_max_length", config.context},
                                           {"clean_up_tokenization_spaces", false}}
                                              .dump(2) +
                                          "\n");
  save.write("loss.svg", loss_chart(state));
  save.write("training.json", training_json(state).dump(1) + "\n");
  save.commit();
}

}  // namespace tenon::lm
