// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/checkpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/lm/chart.hpp"
#include "cli/lm/save.hpp"

namespace tenon::lm {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json read_json(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw Error(errno == ENOENT ? TENON_NOT_FOUND : TENON_IO_ERROR,
                file + ": open: " + std::strerror(errno));
  json j = json::parse(in, nullptr, false);
  if (in.bad()) throw Error(TENON_IO_ERROR, file + ": read failed");
  if (!j.is_object()) throw Error(TENON_CORRUPT, file + ": is no JSON object");
  return j;
}

using Points = decltype(TrainingState::losses);
using Strings = std::vector<std::string>;

// Whether j is a T without loss. json's own conversions cut numbers that do not fit.
template <class T>
bool holds(const json& j) {
  if constexpr (std::is_same_v<T, bool>)
    return j.is_boolean();
  else if constexpr (std::is_same_v<T, uint64_t>)
    return j.is_number_unsigned();
  else if constexpr (std::is_same_v<T, int64_t>)
    return j.is_number_unsigned() ? j.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                  : j.is_number_integer();
  else if constexpr (std::is_same_v<T, double>)
    return j.is_number();
  else if constexpr (std::is_same_v<T, std::string>)
    return j.is_string();
  else if constexpr (std::is_same_v<T, Points::value_type>)
    return j.is_array() && j.size() == 2 && holds<int64_t>(j[0]) && holds<double>(j[1]);
  else
    return j.is_array() && std::all_of(j.begin(), j.end(), [](const json& e) {
             return holds<typename T::value_type>(e);
           });
}

// A field of a JSON object, or a default; of the wrong type it is named.
template <class T>
T field(const json& j, const std::string& file, const char* name, const T* otherwise = nullptr) {
  const auto at = j.find(name);
  if (at == j.end() || at->is_null()) {
    if (otherwise) return *otherwise;
    throw Error(TENON_CORRUPT, file + ": '" + name + "' is missing");
  }
  if (holds<T>(*at)) return at->get<T>();
  // Lists are not shown: how deep they are is up to the file, and dump calls itself for each level.
  const std::string shown =
      at->is_structured() ? std::string("a list or an object") : at->dump().substr(0, 80);
  throw Error(TENON_CORRUPT, file + ": '" + name + "' has the wrong form: " + shown);
}

// PyTorch's names.
const char* dtype_name(tenon_dtype dtype) { return dtype == bf16 ? "bfloat16" : "float32"; }

json config_json(const Config& c) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", c.vocab},
          {"hidden_size", c.dim},
          {"intermediate_size", c.ffn},
          {"num_hidden_layers", c.layers},
          {"num_attention_heads", c.heads},
          {"num_key_value_heads", c.kv_heads},
          {"head_dim", c.head_dim()},
          {"hidden_act", "silu"},
          {"max_position_embeddings", c.context},
          {"rms_norm_eps", c.norm_eps},
          {"rope_theta", c.rope_theta},
          {"tie_word_embeddings", c.tied},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr},
          {"torch_dtype", dtype_name(c.dtype)}};
}

// The printable character that stands for a byte in byte-level tokenizers: itself where it prints,
// else from U+0100 on.
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

json tokenizer_json() {
  json vocab = json::object();
  for (int b = 0; b < 256; ++b) vocab[byte_character(b)] = b;
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", json::array()},
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
            {"merges", json::array()}}}};
}

json training_json(const TrainingState& s) {
  return {{"total_steps", s.total_steps},
          {"done_steps", s.done_steps},
          {"batch", s.batch},
          {"accumulate", s.accumulate},
          {"warmup", s.warmup},
          {"lr", s.lr},
          {"seed", s.seed},
          {"files", s.files},
          {"data_checksum", s.data_checksum},
          {"choices", json::parse(s.choices)},
          {"losses", s.losses},
          {"held_out", s.held_out}};
}

std::string shape_text(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t d : dims) text += (text.empty() ? "" : " x ") + std::to_string(d);
  return text;
}

}  // namespace

Config read_config(const std::string& file) {
  const json j = read_json(file);
  const std::string type = field<std::string>(j, file, "model_type");
  if (type != "llama")
    throw Error(TENON_UNSUPPORTED, file + ": model_type is '" + type + "', expected 'llama'");
  Config c;
  c.vocab = field<int64_t>(j, file, "vocab_size");
  c.dim = field<int64_t>(j, file, "hidden_size");
  c.ffn = field<int64_t>(j, file, "intermediate_size");
  c.layers = field<int64_t>(j, file, "num_hidden_layers");
  c.heads = field<int64_t>(j, file, "num_attention_heads");
  c.kv_heads = field<int64_t>(j, file, "num_key_value_heads", &c.heads);
  c.context = field<int64_t>(j, file, "max_position_embeddings");
  c.norm_eps = field<double>(j, file, "rms_norm_eps", &c.norm_eps);
  c.rope_theta = field<double>(j, file, "rope_theta", &c.rope_theta);
  c.tied = field<bool>(j, file, "tie_word_embeddings", &c.tied);
  const std::string no_dtype;
  if (field(j, file, "torch_dtype", &no_dtype) == dtype_name(bf16) ||
      field(j, file, "dtype", &no_dtype) == dtype_name(bf16))
    c.dtype = bf16;
  try {
    c.check();
  } catch (const Error& e) {
    throw Error(e.code(), file + ": " + e.what());
  }
  const int64_t own = c.head_dim();
  if (const int64_t given = field<int64_t>(j, file, "head_dim", &own); given != own)
    throw Error(TENON_UNSUPPORTED,
                file + ": head_dim is " + std::to_string(given) +
                    ", expected hidden_size / num_attention_heads = " + std::to_string(own));
  if (j.contains("rope_scaling") && !j["rope_scaling"].is_null())
    throw Error(TENON_UNSUPPORTED, file + ": rope_scaling is not supported");
  if (c.vocab != 256)
    throw Error(TENON_UNSUPPORTED, file + ": vocab_size is " + std::to_string(c.vocab) +
                                       ", expected 256: tokens are bytes");
  return c;
}

Config load_config(const std::string& folder) {
  return read_saved(folder, "config.json", read_config);
}

Config load_model(const std::string& folder, Store& store) {
  const Config config = load_config(folder);
  const std::string file = read_saved(folder, "model.safetensors", [&](const std::string& path) {
    store.load(TENON_SPACE_WEIGHT, path);
    return path;
  });
  // Before the list of them is made: its length is up to config.json.
  if (const auto count = static_cast<int64_t>(store.names(TENON_SPACE_WEIGHT).size());
      config.layers > count)
    throw Error(TENON_NOT_FOUND, file + ": has " + std::to_string(count) +
                                     " weights, config.json asks for " +
                                     std::to_string(config.layers) + " layers");
  for (const WeightSpec& w : weight_specs(config)) {
    TensorType found;
    try {
      found = store.type(TENON_SPACE_WEIGHT, w.name);
    } catch (const Error&) {
      throw Error(TENON_NOT_FOUND, file + ": weight '" + w.name + "' is missing");
    }
    if (found != TensorType(config.dtype, w.dims))
      throw Error(TENON_SHAPE_MISMATCH, file + ": weight '" + w.name + "' is not the " +
                                            shape_text(w.dims) + " of " + dtype_name(config.dtype) +
                                            " that config.json asks for");
  }
  return config;
}

TrainingState load_training(const std::string& folder, Store& store) {
  std::string file;
  const json j = read_saved(folder, "training.json", [&](const std::string& path) {
    file = path;
    return read_json(path);
  });
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
  if (const auto choices = j.find("choices"); choices != j.end()) {  // older ones have none
    const auto is_list = [](const json& list) { return holds<Strings>(list); };
    if (!choices->is_object() || !std::ranges::all_of(*choices, is_list))
      throw Error(TENON_CORRUPT, file + ": 'choices' has the wrong form");
    s.choices = choices->dump();
  }
  // The limits are those of lm train's options.
  const auto limit = [&](const char* name, auto value, decltype(value) least,
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
    const std::string step = json::parse(metadata).value("step", "?");
    if (step != std::to_string(s.done_steps))
      throw Error(TENON_CORRUPT, part + ": is of step " + step + ", training.json says " +
                                     std::to_string(s.done_steps));
  }
  read_saved(folder, "optimizer.safetensors",
             [&](const std::string& path) { store.load(TENON_SPACE_STATE, path); });
  return s;
}

void check_storable(const TrainingState& state) {
  for (const std::string& file : state.files) {
    try {
      static_cast<void>(json(file).dump());
    } catch (const json::type_error&) {
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
  save.write("config.json", config_json(config).dump(2) + "\n");
  save.write("tokenizer.json", tokenizer_json().dump(1) + "\n");
  save.write("tokenizer_config.json", json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                           {"model_max_length", config.context},
                                           {"clean_up_tokenization_spaces", false}}
                                              .dump(2) +
                                          "\n");
  save.write("loss.svg", loss_chart(state));
  save.write("training.json", training_json(state).dump(1) + "\n");
  save.commit();
}

}  // namespace tenon::lm
