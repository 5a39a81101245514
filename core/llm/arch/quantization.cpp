// SPDX-License-Identifier: Apache-2.0
// quantization_config of config.json: its keys, and what of them is supported.
#include "llm/arch/quantization.hpp"

#include <algorithm>
#include <optional>

#include "llm/arch/joint_experts.hpp"

namespace tenon::llm {
namespace {

constexpr int64_t kMost = int64_t{1} << 20;  // of the dims of blocks and groups

void read_block_size(ConfigReader& r, std::string_view key, Quantization& q) {
  const std::vector<int64_t> dims = r.integers(key);
  if (dims.size() != 2 || dims[0] < 1 || dims[1] < 1 || dims[0] > kMost || dims[1] > kMost)
    r.refuse(key, "two numbers from 1 to " + std::to_string(kMost));
  q.block_rows = dims[0], q.block_columns = dims[1];
  q.may_be_rows = false;
}

void expect_text(ConfigReader& r, std::string_view key,
                 std::initializer_list<std::string_view> values) {
  if (!r.has(key)) return;
  const std::string given = r.text(key);
  std::string expected;
  for (const std::string_view v : values) {
    if (v == given) return;
    expected += (expected.empty() ? "'" : " or '") + std::string(v) + "'";
  }
  r.refuse(key, expected);
}

// FP8 with a scale per block of the weight, as DeepSeek-V3 has it, or per weight.
void read_fp8(ConfigReader& r, Quantization& q) {
  q.layout = Quantization::Layout::scaled;
  expect_text(r, "fmt", {"e4m3", "e4m3fn", "float8_e4m3fn"});
  // How the rounding of activations would choose its scales; tenon does not round them.
  expect_text(r, "activation_scheme", {"dynamic", "static"});
  expect_text(r, "scale_fmt", {"float", "ue8m0"});
  expect_text(r, "expert_dtype", {"fp8"});
  if (r.has("weight_block_size")) {
    read_block_size(r, "weight_block_size", q);
  } else if (!r.is_null("weight_block_size")) {  // not there: the default of transformers
    q.block_rows = q.block_columns = 128;
  }
  r.ignore({"weight_block_size", "dequantize", "modules_to_convert", "ignored_layers"});
}

// Integers in words: a scale for each output, of all inputs or of each group of them.
void read_packed_weights(ConfigReader& w, Quantization& q) {
  if (!w.has("type") || w.text("type") != "int") w.refuse("type", "'int' by the format");
  q.bits = w.integer("num_bits", 8);
  if (q.bits != 4 && q.bits != 8) w.refuse("num_bits", "4 or 8");
  const std::string strategy = w.text("strategy", w.has("group_size") ? "group" : "channel");
  if (strategy != "group" && strategy != "channel") w.refuse("strategy", "'group' or 'channel'");
  q.group = w.integer("group_size", -1);
  if (strategy == "group" ? q.group < 1 || q.group > kMost : q.group != -1)
    w.refuse("group_size", strategy == "group" ? "1 to " + std::to_string(kMost)
                                               : "null or -1 by the strategy 'channel'");
  // The other orders change which inputs a group has.
  if (w.is_text("actorder"))
    expect_text(w, "actorder", {"weight", "static"});
  else
    w.expect("actorder", false);
}

void read_group_of_layers(ConfigReader& r, Quantization& q) {
  r.ignore({"targets", "input_activations", "format"});
  r.expect_nothing("output_activations");
  auto weights = r.object("weights");
  if (!weights) r.refuse("weights", "an object");
  ConfigReader& w = *weights;
  w.expect("symmetric", true);
  w.expect("dynamic", false);
  w.ignore({"block_structure", "observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  if (q.layout == Quantization::Layout::packed) {
    read_packed_weights(w, q);
  } else {
    expect_text(w, "type", {"float", "int"});
    q.integers = w.text("type", "float") == "int";
    if (w.integer("num_bits", 8) != 8) w.refuse("num_bits", "8");
    expect_text(w, "strategy", {"tensor", "channel", "block"});
    if (w.text("strategy", "tensor") == "block") read_block_size(w, "block_structure", q);
    w.expect_nothing("actorder");
    w.expect_nothing("group_size");
  }
  w.refuse_unread();
  r.refuse_unread();
}

void read_compressed(ConfigReader& r, Quantization& q) {
  constexpr std::string_view kFormats[] = {"float-quantized", "int-quantized", "naive-quantized",
                                           "pack-quantized"};
  const std::string format = r.text("format", "");
  if (std::ranges::find(kFormats, format) == std::end(kFormats))
    r.refuse("format", "'float-quantized', 'int-quantized', 'naive-quantized' or 'pack-quantized'");
  q.layout =
      format == "pack-quantized" ? Quantization::Layout::packed : Quantization::Layout::scaled;
  expect_text(r, "quantization_status", {"compressed", "frozen"});  // older files say frozen
  if (auto sparsity = r.object("sparsity_config")) {
    expect_text(*sparsity, "format", {"dense"});
    if (sparsity->has("format"))
      sparsity->ignore({"ignore", "targets", "registry_requires_subclass", "sparsity_structure",
                        "global_sparsity"});
    sparsity->refuse_unread();
  }
  auto groups = r.object("config_groups");
  const std::vector<std::string> names = groups ? groups->keys() : std::vector<std::string>();
  if (names.empty()) r.refuse("config_groups", "an object with at least one group");
  std::optional<Quantization> first;
  for (const std::string& name : names) {
    Quantization group = q;
    auto object = groups->object(name);
    read_group_of_layers(*object, group);
    if (first && group != *first)
      groups->refuse(name, "type, num_bits, strategy and dims as in '" + names[0] + "'");
    first = group;
  }
  q = *first;
  if ((format == "float-quantized" || format == "int-quantized") &&
      q.integers != (format == "int-quantized"))
    r.refuse("format", "the type of the weights of 'config_groups'");
  r.ignore({"ignore", "global_compression_ratio", "version"});
}

// Keys of gptq and awq about how the weights were found, and which kernel shall multiply them.
void ignore_calibration(ConfigReader& r) {
  r.ignore({"act_group_aware",
            "amp",
            "autoround_version",
            "backend",
            "batch_size",
            "block_name_to_quantize",
            "cache_block_outputs",
            "damp_auto_increment",
            "damp_percent",
            "dataset",
            "disable_exllama",
            "do_fuse",
            "enable_minmax_tuning",
            "enable_norm_bias_tuning",
            "enable_quanted_input",
            "exllama_config",
            "fuse_max_seq_len",
            "gradient_accumulate_steps",
            "iters",
            "lm_head",
            "low_gpu_mem_usage",
            "lr",
            "max_input_length",
            "meta",
            "minmax_lr",
            "method",
            "model_file_base_name",
            "model_name_or_path",
            "model_seqlen",
            "module_name_preceding_first_block",
            "modules_in_block_to_quantize",
            "modules_to_fuse",
            "mse",
            "nsamples",
            "pad_token_id",
            "provider",
            "scale_dtype",
            "seqlen",
            "static_groups",
            "sym",
            "tokenizer",
            "true_sequential",
            "use_cuda_fp16",
            "use_exllama"});
}

void read_packing(ConfigReader& r, Quantization& q, const char* bits, const char* group) {
  q.bits = r.integer(bits, 4);
  q.group = r.integer(group, 128);
  if (q.group != -1 && (q.group < 1 || q.group > kMost))
    r.refuse(group, "-1, or 1 to " + std::to_string(kMost));
  expect_text(r, "pack_dtype", {"int32"});
  expect_text(r, "data_type", {"int"});
  ignore_calibration(r);
}

void read_gptq(ConfigReader& r, Quantization& q) {
  q.layout = Quantization::Layout::gptq;
  read_packing(r, q, "bits", "group_size");
  if (q.bits != 4 && q.bits != 8) r.refuse("bits", "4 or 8");
  r.flag("desc_act", false);  // g_idx says whether the order of inputs was changed
  for (const char* key : {"format", "checkpoint_format"}) expect_text(r, key, {"gptq", "gptq_v2"});
  q.zero_minus_one = r.text("checkpoint_format", r.text("format", "gptq")) == "gptq";
  r.expect("is_marlin_format", false);
}

void read_awq(ConfigReader& r, Quantization& q) {
  q.layout = Quantization::Layout::awq;
  const char* const bits = r.has("w_bit") ? "w_bit" : "bits";
  expect_text(r, "backend",
              {"auto", "autoawq", "legacy_awq", "auto_trainable", "machete", "marlin", "exllama_v2",
               "exllama_v1", "gemm", "gemm_triton", "torch_awq", "torch_fused_awq"});
  read_packing(r, q, bits, r.has("q_group_size") ? "q_group_size" : "group_size");
  if (q.bits != 4) r.refuse(bits, "4");
  for (const char* key : {"format", "version"}) expect_text(r, key, {"gemm", "GEMM"});
  r.expect("zero_point", true);
  r.expect("desc_act", false);
}

}  // namespace

Quantization read_quantization(ConfigReader& r) {
  Quantization q;
  auto object = r.object("quantization_config");
  if (!object) return q;
  ConfigReader& c = *object;
  const std::string method = c.text("quant_method"), type = r.text("model_type", "");
  if (method == "fp8")
    read_fp8(c, q);
  else if (method == "fbgemm_fp8")
    q.layout = Quantization::Layout::scaled, c.ignore({"activation_scale_ub"});
  else if (method == "compressed-tensors")
    read_compressed(c, q);
  else if (method == "gptq")
    read_gptq(c, q);
  else if (method == "awq")
    read_awq(c, q);
  else if (method == "mxfp4" && joint_layout(type) == JointLayout::turns)
    q.layout = Quantization::Layout::mxfp4, c.ignore({"dequantize"});
  else
    c.refuse("quant_method",
             "'fp8', 'fbgemm_fp8', 'compressed-tensors', 'gptq' or 'awq' for model_type '" + type +
                 "', or 'mxfp4' for 'gpt_oss'");
  q.method = method;
  c.ignore({"quant_method", "modules_to_not_convert"});  // the tensors of a module say what it has
  c.refuse_unread();
  return q;
}

}  // namespace tenon::llm
