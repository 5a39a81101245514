// SPDX-License-Identifier: Apache-2.0
// Reads the parameters of the rotary embedding and computes its frequencies.
#include "llm/arch/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tenon::llm {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// Fast rotations are kept, slow ones are divided by the factor, with a ramp between them.
double llama3_frequency(const RopeConfig& r, double f) {
  const double turns = static_cast<double>(r.original_context) * f / kTurn;
  const double low = r.low_freq_factor, ramp = r.high_freq_factor - low;
  const double kept = ramp > 0      ? std::clamp((turns - low) / ramp, 0.0, 1.0)
                      : turns > low ? 1.0
                                    : 0.0;
  return kept * f + (1 - kept) * f / r.factor;
}

// YaRN (Peng et al.: arXiv 2309.00071): the pairs between two numbers of rotations form the ramp.
void scale_yarn(const RopeConfig& r, std::vector<double>& frequencies) {
  const auto dims = static_cast<double>(r.dims);
  const auto pair_of = [&](double rotations) {
    return dims * std::log(static_cast<double>(r.original_context) / (rotations * kTurn)) /
           (2 * std::log(r.theta));
  };
  double low = pair_of(r.beta_fast), high = pair_of(r.beta_slow);
  if (r.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dims - 1);
  if (low == high) high += 0.001;  // a step instead of a division by 0
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / r.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

// A number beside the object, which has been read, counts more than that in it.
void read_original_context(ConfigReader& r, RopeConfig& rope, std::optional<int64_t> otherwise) {
  constexpr const char* kKey = "original_max_position_embeddings";
  if (rope.original_context > 0) return r.ignore({kKey});
  rope.original_context = r.size(kKey, otherwise, int64_t{1} << 30);
}

void read_yarn(ConfigReader& r, RopeConfig& rope, int64_t context) {
  rope.type = RopeConfig::Type::yarn;
  read_original_context(r, rope, context);
  rope.factor = r.positive(
      "factor", static_cast<double>(context) / static_cast<double>(rope.original_context));
  rope.beta_fast = r.positive("beta_fast", 32);
  rope.beta_slow = r.positive("beta_slow", 1);
  rope.truncate = r.flag("truncate", true);
  const double mscale = r.number("mscale", 0);
  rope.mscale_all_dim = r.number("mscale_all_dim", 0);
  const double both =
      mscale != 0 && rope.mscale_all_dim != 0
          ? yarn_scale(rope.factor, mscale) / yarn_scale(rope.factor, rope.mscale_all_dim)
          : yarn_scale(rope.factor, 1);
  rope.attention_factor = r.positive("attention_factor", both);
}

void read_longrope(ConfigReader& r, RopeConfig& rope, int64_t context, bool named_amplitudes) {
  rope.type = RopeConfig::Type::longrope;
  read_original_context(r, rope, context);
  rope.short_factor = r.numbers("short_factor");
  rope.long_factor = r.numbers("long_factor");
  rope.factor = r.positive(
      "factor", static_cast<double>(context) / static_cast<double>(rope.original_context));
  const double log_original = std::log(static_cast<double>(rope.original_context));
  const double scale = rope.factor <= 1 || log_original <= 0
                           ? 1.0
                           : std::sqrt(1 + std::log(rope.factor) / log_original);
  rope.attention_factor = r.positive("attention_factor", scale);
  if (!named_amplitudes) return;
  rope.attention_factor = r.positive("short_mscale");
  rope.long_attention_factor = r.positive("long_mscale");
}

}  // namespace

std::vector<double> RopeConfig::frequencies(int64_t context) const {
  if (type == Type::dynamic && context > original_context)
    throw Error(TENON_UNSUPPORTED,
                "rope_type 'dynamic': angles depend on the length beyond the original context; "
                "expected a context of at most " +
                    std::to_string(original_context) + ", got " + std::to_string(context));
  const std::vector<double>& factors = context > original_context ? long_factor : short_factor;
  std::vector<double> out;
  for (int64_t i = 0; i < dims / 2; ++i) {
    double f = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
    if (type == Type::linear || type == Type::proportional) f /= factor;
    if (type == Type::proportional && 2 * i + 1 >= turned_dims) f = 0;
    if (type == Type::llama3) f = llama3_frequency(*this, f);
    if (type == Type::longrope) f /= factors.at(static_cast<size_t>(i));
    out.push_back(f);
  }
  if (type == Type::yarn) scale_yarn(*this, out);
  if (backwards)
    for (double& f : out) f = -f;
  return out;
}

double RopeConfig::softmax_scale() const {
  if (type != Type::yarn || mscale_all_dim == 0) return 1;
  const double scale = yarn_scale(factor, mscale_all_dim);
  return scale * scale;
}

void check_rope(const RopeConfig& rope, const std::string& where) {
  const auto refuse = [&](const std::string& text) {
    throw Error(TENON_INVALID_ARGUMENT, where + ": " + text);
  };
  if (rope.dims < 2 || rope.dims % 2 != 0)
    refuse("the rotated part of a head must have an even number of dims, at least 2; got " +
           std::to_string(rope.dims));
  if (rope.type == RopeConfig::Type::llama3 && rope.high_freq_factor < rope.low_freq_factor)
    refuse("high_freq_factor must be at least low_freq_factor");
  if (rope.type == RopeConfig::Type::yarn && rope.theta == 1)
    refuse("rope_theta must differ from 1 with rope_type 'yarn'");
  if (rope.type == RopeConfig::Type::longrope)
    for (const auto* factors : {&rope.short_factor, &rope.long_factor}) {
      if (static_cast<int64_t>(factors->size()) != rope.dims / 2)
        refuse("short_factor and long_factor: expected " + std::to_string(rope.dims / 2) +
               " numbers, one per pair, got " + std::to_string(factors->size()));
      if (!std::ranges::all_of(*factors, [](double f) { return std::isfinite(f) && f > 0; }))
        refuse("short_factor and long_factor: expected numbers above 0");
    }
}

void read_rope_object(ConfigReader& r, RopeConfig& rope, int64_t context, const RopeForm& form) {
  rope.theta = r.positive("rope_theta", rope.theta);
  const double part = r.positive("partial_rotary_factor", 1);
  if (part > 1) r.refuse("partial_rotary_factor", "at most 1");
  const std::string old_name = r.text("type", "default");
  std::string name = r.text("rope_type", old_name);
  constexpr std::string_view kDeepseek = "deepseek_yarn";
  if (form.deepseek_yarn && (name == kDeepseek || old_name == kDeepseek)) name = "yarn";
  const auto turned = static_cast<int64_t>(static_cast<double>(rope.dims) * part);
  if (name == "proportional") {
    rope.type = RopeConfig::Type::proportional;
    rope.factor = r.positive("factor", 1);
    rope.turned_dims = turned;
  } else {
    rope.dims = turned;
  }
  if (name == "linear") {
    rope.type = RopeConfig::Type::linear;
    rope.factor = r.positive("factor");
  } else if (name == "dynamic") {
    rope.type = RopeConfig::Type::dynamic;
    rope.factor = r.positive("factor");
    rope.original_context = r.size("original_max_position_embeddings", context, int64_t{1} << 30);
  } else if (name == "llama3") {
    rope.type = RopeConfig::Type::llama3;
    rope.factor = r.positive("factor");
    rope.low_freq_factor = r.positive("low_freq_factor");
    rope.high_freq_factor = r.positive("high_freq_factor");
    read_original_context(r, rope, {});
  } else if (name == "yarn") {
    read_yarn(r, rope, context);
  } else if (name == "longrope" || name == "su") {
    read_longrope(r, rope, context, form.named_amplitudes);
  } else if (name != "default" && name != "proportional") {
    r.refuse(r.has("rope_type") ? "rope_type" : "type",
             "'default', 'linear', 'dynamic', 'llama3', 'yarn', 'longrope' or 'proportional'");
  }
  if (r.has("llama_4_scaling_beta")) {
    rope.query_beta = r.number("llama_4_scaling_beta");
    if (!std::isfinite(rope.query_beta) || rope.query_beta < 0 || rope.original_context < 1)
      r.refuse("llama_4_scaling_beta", "a number from 0 on, and original_max_position_embeddings");
    r.ignore({"max_position_embeddings"});
  }
  r.ignore({"mrope_section", "mrope_interleaved"});  // positions of text are equal in all sections
  r.refuse_unread();
}

void refuse_partial(const ConfigReader& r) {
  r.refuse("partial_rotary_factor", "1 for this model_type");
}

RopeConfig read_rope(ConfigReader& r, int64_t dims, int64_t context, double theta,
                     double usual_part, const RopeForm& form) {
  RopeConfig rope;
  rope.dims = dims;
  rope.theta = r.positive("rope_theta", theta);
  const double part = r.positive("partial_rotary_factor", usual_part > 0 ? usual_part : 1);
  if (part > 1) r.refuse("partial_rotary_factor", "at most 1");
  // rope_parameters since transformers 5; before, rope_theta and rope_scaling.
  if (r.has("rope_parameters") && r.has("rope_scaling"))
    r.refuse("rope_scaling", "only one of rope_scaling and rope_parameters");
  constexpr std::string_view kOldKey = "rope_scaling";
  const std::string_view key = r.has("rope_parameters") ? "rope_parameters" : kOldKey;
  r.ignore({"rope_parameters", "rope_scaling"});
  // Phi-3 has this beside the object, and others may.
  if (r.has("original_max_position_embeddings"))
    rope.original_context = r.size("original_max_position_embeddings", {}, int64_t{1} << 30);
  std::optional<ConfigReader> object = r.object(key);
  if (!object || !object->has("partial_rotary_factor"))
    rope.dims = static_cast<int64_t>(static_cast<double>(dims) * part);
  if (object)
    read_rope_object(*object, rope, context,
                     {.named_amplitudes = form.named_amplitudes,
                      .deepseek_yarn = form.deepseek_yarn && key == kOldKey});
  if (usual_part == 0 && rope.dims != dims)
    refuse_partial(object && object->has("partial_rotary_factor") ? *object : r);
  check_rope(rope, r.where());
  return rope;
}

}  // namespace tenon::llm
