// SPDX-License-Identifier: Apache-2.0
// Reads and writes config.json of the recurrent models: one list of keys serves both.
#include "cli/lm/recurrent_config.hpp"

#include <optional>
#include <set>

#include "cli/lm/config.hpp"

namespace tenon::lm {
namespace {

constexpr std::string_view kPrefix = "tenon-";

// Calls visit(key, field) for each number and switch of the architecture.
template <class C, class Visit>
void visit_fields(C& c, const Visit& visit) {
  visit("vocab_size", c.vocab);
  visit("hidden_size", c.dim);
  visit("num_hidden_layers", c.layers);
  visit("max_position_embeddings", c.context);
  visit("expand", c.expand);
  visit("conv_kernel", c.conv_width);
  if (c.arch == Arch::mamba) visit("state_size", c.state_size);
  if (c.arch == Arch::delta) visit("num_attention_heads", c.heads);
  if (c.arch == Arch::delta) visit("intermediate_size", c.ffn);
  visit("initializer_range", c.init_range);
  visit("rms_norm_eps", c.norm_eps);
  visit("tie_word_embeddings", c.tied);
}

std::string model_type(const Config& c) { return std::string(kPrefix) + c.arch_name(); }

// None: of another program.
std::optional<Arch> arch_of(const Json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return {};
  for (const Arch arch : {Arch::mamba, Arch::delta})
    if (type->get<std::string>() == model_type({.arch = arch})) return arch;
  return {};
}

}  // namespace

bool is_recurrent(const Json& config) { return arch_of(config).has_value(); }

Config read_recurrent(const Json& config, const std::string& file) {
  Config c{.arch = *arch_of(config)};
  std::set<std::string, std::less<>> known = {"model_type", "dtype"};
  visit_fields(c, [&]<class T>(const char* key, T& to) {
    to = field<T>(config, file, key);
    known.insert(key);
  });
  const auto dtype = field<std::string>(config, file, "dtype");
  if (dtype != torch_name(f32) && dtype != torch_name(bf16))
    throw Error(TENON_UNSUPPORTED, file + ": dtype is '" + dtype.substr(0, 80) +
                                       "', expected 'float32' or 'bfloat16'");
  c.dtype = dtype == torch_name(bf16) ? bf16 : f32;
  for (const auto& [key, value] : config.items())
    if (!known.contains(key))
      throw Error(TENON_UNSUPPORTED, file + ": '" + key.substr(0, 80) + "' is " + shown(value) +
                                         ", a key that a model of type '" + model_type(c) +
                                         "' does not have");
  if (c.vocab != 256)
    throw Error(TENON_UNSUPPORTED, file + ": vocab_size is " + std::to_string(c.vocab) +
                                       ", expected 256: tokens are bytes");
  try {
    c.check();
  } catch (const Error& e) {
    throw Error(e.code(), file + ": " + e.what());
  }
  return c;
}

Json recurrent_json(const Config& config) {
  Json j = {{"model_type", model_type(config)}, {"dtype", torch_name(config.dtype)}};
  visit_fields(config, [&](const char* key, const auto& value) { j[key] = value; });
  return j;
}

}  // namespace tenon::lm
