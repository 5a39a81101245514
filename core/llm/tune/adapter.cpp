// SPDX-License-Identifier: Apache-2.0
// Reads adapters, checks them against a model, and joins them.
#include "llm/tune/adapter.hpp"

#include <algorithm>
#include <cmath>

#include "llm/arch/text_part.hpp"
#include "llm/dims_text.hpp"
#include "llm/files/change.hpp"
#include "llm/files/families.hpp"
#include "llm/files/matrix.hpp"
#include "llm/model_folder.hpp"
#include "llm/tune/module_name.hpp"

namespace tenon::llm {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

std::string config_file(const std::string& folder) { return folder + "/adapter_config.json"; }

// The module of a tensor; empty for tensors that are no A and no B.
std::string module_of(std::string_view name) {
  for (const std::string_view end : {".lora_A.weight", ".lora_B.weight"})
    if (name.starts_with(kPrefix) && name.ends_with(end))
      return std::string(name.substr(kPrefix.size(), name.size() - kPrefix.size() - end.size()));
  return {};
}

// Whether a factor of Falcon-H1 is beside a product that adapters change.
bool has_factors(const ModelConfig& c) {
  const FalconScales& s = c.falcon;
  std::vector<double> all = c.mamba.part_scales;
  all.insert(all.end(),
             {c.mamba.in_scale, s.mixer, s.attention_in, s.attention_out, s.key, s.gate, s.down});
  return std::ranges::any_of(all, [](double factor) { return factor != 1; });
}

}  // namespace

std::string of_expert(std::string module, int64_t expert) {
  if (const size_t at = module.find('#'); expert >= 0 && at != module.npos)
    module.replace(at, 1, std::to_string(expert));
  return module;
}

void reorder_factor(std::vector<float>& factor, const ModelConfig& config,
                    const std::string& module, bool b, const std::vector<int64_t>& dims,
                    bool back) {
  const auto is = [&](const char* name) { return names_module(name, module); };
  if (const DeltaConfig& d = config.delta; d.tiled && d.value_heads > d.key_heads) {
    using files::Order;
    const Order order = !b ? (is("linear_attn.out_proj") ? Order::columns : Order::same)
                        : is("in_proj_qkv") ? Order::rows_behind_keys
                        : is("in_proj_z") || is("in_proj_b") || is("in_proj_a") ? Order::rows
                                                                                : Order::same;
    factor = files::reordered(order, std::move(factor), dims,
                              {d.key_heads, d.value_heads, d.key_dim, d.value_dim}, back, module);
  }
  if (!b) return;
  if (is_qkv(module)) {
    using files::Change;
    const files::HeadRows rows{.heads = config.heads, .key_heads = config.kv_heads};
    factor = back ? files::changed_back(Change::by_part, std::move(factor), dims, rows, module)
                  : files::changed(Change::by_part, std::move(factor), dims, rows);
  }
  // Some models turn neighbours in folders, too.
  if (!config.rope_interleaved || !files::is_permuted(config.architecture->model_type)) return;
  if (is("q_proj")) files::permute_rope(factor, dims[0], config.heads, back);
  if (is("k_proj")) files::permute_rope(factor, dims[0], config.kv_heads, back);
}

// ---- One adapter

Adapter::Adapter(const std::string& folder)
    : folder_(folder),
      file_(folder + "/adapter_model.safetensors"),
      config_(parse_adapter_config(read_text(config_file(folder)), config_file(folder))),
      tensors_(file_) {
  std::set<std::string> seen;
  for (Safetensors::Entry& entry : tensors_.entries()) {
    const std::string module = module_of(entry.name);
    if (module.empty())
      throw Error(TENON_UNSUPPORTED, file_ + ": tensor '" + entry.name +
                                         "': expected names base_model.model.<module>."
                                         "lora_A.weight and lora_B.weight");
    if (!config_.targets_module(module))
      throw Error(TENON_CORRUPT, file_ + ": tensor '" + entry.name +
                                     "' is not of target_modules in " + config_file(folder));
    const tenon_dtype t = entry.type.dtype;
    if ((t != f32 && t != f16 && t != bf16) || entry.type.dims.size() != 2)
      throw Error(TENON_UNSUPPORTED, file_ + ": tensor '" + entry.name +
                                         "': expected a matrix of f32, f16 or bf16, got " +
                                         std::string(sdk::dtype_name(t)) +
                                         dims_text(entry.type.dims));
    seen.insert(module);
    const std::string own = text_tensor(module);
    if (own.empty()) continue;  // it changes what reads images or sounds
    std::string name = entry.name;
    name.replace(kPrefix.size(), module.size(), own);
    const auto [at, is_new] = factors_.try_emplace(std::move(name), std::move(entry), module);
    if (!is_new)
      throw Error(TENON_CORRUPT, file_ + ": tensor '" + at->second.tensor.name +
                                     "': the file has it twice, also of module '" + module + "'");
  }
  if (!seen.empty() && factors_.empty())
    throw Error(TENON_UNSUPPORTED, file_ +
                                       ": changes only what reads images or sounds, which "
                                       "tenon does not run");
  for (const std::string& target : config_.targets)
    if (std::ranges::none_of(seen, [&](const std::string& m) { return names_module(target, m); }))
      throw Error(TENON_NOT_FOUND, file_ + ": has no tensor of the module '" + target +
                                       "' of target_modules in " + config_file(folder));
}

const Adapter::Factor* Adapter::find(const std::string& module, bool b) const {
  const auto at = factors_.find(b ? lora_b_name(module) : lora_a_name(module));
  if (at != factors_.end()) return &at->second;
  // Adapters of base models lack the first part of names.
  const std::string rest = module.substr(module.find('.') + 1);
  const auto short_at = factors_.find(b ? lora_b_name(rest) : lora_a_name(rest));
  return short_at == factors_.end() ? nullptr : &short_at->second;
}

int64_t Adapter::rank(const std::string& module, int64_t in, int64_t out, int64_t experts) {
  if (experts > 0) {
    int64_t common = 0;
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t r = rank(of_expert(module, e), in, out, 0);
      if (r > 0 && common > 0 && r != common)
        throw Error(TENON_UNSUPPORTED, file_ + ": module '" + of_expert(module, e) + "': rank " +
                                           std::to_string(r) + ", expected " +
                                           std::to_string(common) + " as of other experts");
      common = std::max(common, r);
    }
    return common;
  }
  const Factor *a = find(module, false), *b = find(module, true);
  if (!a && !b) return 0;
  if (!a || !b)
    throw Error(TENON_NOT_FOUND,
                file_ + ": module '" + module + "': lora_" + (a ? "B" : "A") + " is missing");
  const int64_t r = config_.rank_of(a->module);
  const auto check = [&](const Factor& factor, const std::vector<int64_t>& dims) {
    const Safetensors::Entry& entry = factor.tensor;
    if (entry.type.dims != dims)
      throw Error(TENON_SHAPE_MISMATCH, file_ + ": tensor '" + entry.name + "': expected " +
                                            dims_text(dims) + " by the model and r, got " +
                                            dims_text(entry.type.dims));
    used_.insert(entry.name);
  };
  check(*a, {r, in});
  check(*b, {out, r});
  return r;
}

std::vector<float> Adapter::numbers(const std::string& module, bool b, int64_t expert) const {
  const Factor* factor = find(of_expert(module, expert), b);
  if (!factor) return {};
  return files::widened(factor->tensor.type.dtype, factor->tensor.data);
}

double Adapter::scale_of(const std::string& module) const {
  const Factor* a = find(module, false);
  return config_.scale_of(a ? a->module : module);
}

void Adapter::check_used() const {
  for (const auto& [name, factor] : factors_)
    if (!used_.contains(factor.tensor.name))
      throw Error(TENON_UNSUPPORTED, file_ + ": tensor '" + factor.tensor.name +
                                         "': the model has no product of this name that an "
                                         "adapter may change");
}

void Adapter::check_model(const ModelConfig& model) const {
  if (model.architecture->model_type != "falcon_h1") return;
  const bool of_file = is_of_gguf(config_.base_model);
  const std::string at = config_file(folder_) + ": base_model_name_or_path: ";
  if (model.falcon.in_weights && !of_file)
    throw Error(TENON_UNSUPPORTED,
                at + "expected a GGUF file: those of Falcon-H1 have the factors of the model in "
                     "their weights, adapters of folders do not; hint: run the folder, or convert "
                     "it with --lora");
  if (!model.falcon.in_weights && of_file && has_factors(model))
    throw Error(TENON_UNSUPPORTED,
                at + "expected no GGUF file: those of Falcon-H1 have the factors of the model in "
                     "their weights, this folder does not; hint: run the file");
}

// ---- Several

Adapters::Adapters(const std::vector<AdapterChoice>& choices, const ModelConfig& config)
    : config_(config) {
  for (const AdapterChoice& c : choices) {
    if (!std::isfinite(c.scale))
      throw Error(TENON_INVALID_ARGUMENT, c.folder + ": expected a finite scale");
    adapters_.emplace_back(c.folder);
    adapters_.back().check_model(config);
    scales_.push_back(c.scale);
  }
}

LowRank Adapters::of(const std::string& module, int64_t in, int64_t out, int64_t experts) {
  const auto [at, is_new] = products_.try_emplace(module, Product{in, out, experts, 0, {}});
  Product& p = at->second;
  if (is_new)
    for (Adapter& a : adapters_) {
      p.ranks.push_back(a.rank(module_in_folder(module), in, out, experts));
      p.rank += p.ranks.back();
    }
  return {.rank = p.rank, .scale = 1};
}

void Adapters::check_used() const {
  for (const Adapter& a : adapters_) a.check_used();
}

void Adapters::load(Store& store) const {
  for (const auto& [module, p] : products_) {
    if (p.rank == 0) continue;
    const std::string name = module_in_folder(module);
    const auto in = static_cast<size_t>(p.in), out = static_cast<size_t>(p.out);
    const auto all = static_cast<size_t>(p.rank);
    const auto experts = static_cast<size_t>(std::max<int64_t>(p.experts, 1));
    std::vector<float> a(experts * all * in), b(experts * out * all);
    for (size_t e = 0; e < experts; ++e) {
      size_t first = 0;  // of the adapter's part of the rank
      for (size_t i = 0; i < adapters_.size(); ++i) {
        const auto rank = static_cast<size_t>(p.ranks[i]);
        const int64_t expert = p.experts > 0 ? static_cast<int64_t>(e) : -1;
        std::vector<float> from_a = adapters_[i].numbers(name, false, expert);
        std::vector<float> from_b = adapters_[i].numbers(name, true, expert);
        if (!from_a.empty()) {
          const double scale = scales_[i] * adapters_[i].scale_of(of_expert(name, expert));
          reorder_factor(from_a, config_, module, false, {p.ranks[i], p.in}, false);
          reorder_factor(from_b, config_, module, true, {p.out, p.ranks[i]}, false);
          std::ranges::copy(from_a, a.begin() + static_cast<ptrdiff_t>((e * all + first) * in));
          for (size_t o = 0; o < out; ++o)
            for (size_t r = 0; r < rank; ++r)
              b[(e * out + o) * all + first + r] = static_cast<float>(scale * from_b[o * rank + r]);
        }
        first += rank;
      }
    }
    const auto set = [&](const std::string& weight, std::vector<int64_t> dims,
                         const std::vector<float>& numbers) {
      if (p.experts > 0) dims.insert(dims.begin(), p.experts);
      store.set(TENON_SPACE_WEIGHT, weight, dims, numbers);
    };
    set(lora_a_name(module), {p.rank, p.in}, a);
    set(lora_b_name(module), {p.out, p.rank}, b);
  }
}

}  // namespace tenon::llm
