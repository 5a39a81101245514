// SPDX-License-Identifier: Apache-2.0
// The options of the engine: one table, one reading.
#include "cli/llm/options.hpp"

#include <charconv>
#include <cmath>
#include <filesystem>

#include "cli/modes.hpp"

namespace tenon::cli {
namespace {

tenon_dtype dtype_of(const Args& args, std::string_view option) {
  const std::string name = args.text(option);
  return name.empty() ? tenon_dtype{TENON_DTYPE_NONE} : sdk::dtype_named(name);
}

llm::Products products_of(const Args& args) {
  const std::string kind = args.text("--products");
  return kind.empty()        ? llm::Products::device
         : kind == "int8"    ? llm::Products::int8
         : kind == "compute" ? llm::Products::compute
                             : llm::Products::f32;
}

std::optional<bool> invariance_of(const Args& args) {
  const std::string answer = args.text("--batch-invariant");
  return answer.empty() ? std::nullopt : std::optional(answer == "yes");
}

// "DIR" or "DIR:SCALE". A folder of the whole name counts first.
llm::AdapterChoice adapter_of(const std::string& text) {
  std::error_code error;
  const size_t colon = text.rfind(':');
  if (colon == text.npos || std::filesystem::exists(text, error)) return {.folder = text};
  const std::string number = text.substr(colon + 1);
  double scale = 0;
  const auto [end, bad] = std::from_chars(number.data(), number.data() + number.size(), scale);
  if (bad != std::errc() || end != number.data() + number.size() || !std::isfinite(scale))
    throw UsageError("--lora " + text + ": expected a folder, or a folder, ':' and a number");
  return {.folder = text.substr(0, colon), .scale = scale};
}

}  // namespace

Option lora_option(std::string_view help) {
  return {.name = "--lora",
          .value = "DIR[:SCALE]",
          .help = help,
          .completes = Completes::folder,
          .repeats = true};
}

std::vector<llm::AdapterChoice> adapters_of(const Args& args) {
  std::vector<llm::AdapterChoice> out;
  for (const std::string& text : args.list("--lora")) out.push_back(adapter_of(text));
  return out;
}

std::vector<Option> with_engine_options(std::vector<Option> own) {
  const Option shared[] = {
      {.name = "--context",
       .value = "N",
       .help = "most tokens of a prompt and its answer together",
       .otherwise = "4096, or the model's own limit"},
      {.name = "--compute",
       .value = "DTYPE",
       .help = "dtype of activations",
       .otherwise = "f32 on the cpu, elsewhere that of the weights",
       .choices = {"f32", "f16", "bf16"}},
      {.name = "--cache",
       .value = "DTYPE",
       .help =
           "dtype of the cache of keys and values; q8_0, blocks of 8-bit integers, takes about "
           "half the memory of f16: for heads of a multiple of 32 numbers, on GPUs with --compute "
           "f16 or bf16",
       .otherwise = "--compute; else f16 on the cpu unless the weights are f32",
       .choices = {"f32", "f16", "bf16", "q8_0"}},
      {.name = "--products",
       .value = "KIND",
       .help =
           "products with quantized weights: int8 rounds activations to blocks of 8-bit integers, "
           "except beside fp8 weights; compute may round weights to the dtype of --compute",
       .otherwise = "int8 on the cpu, elsewhere compute, or f32 with --batch-invariant yes",
       .choices = {"int8", "compute", "f32"}},
      {.name = "--batch-invariant",
       .value = "ANSWER",
       .help = "whether answers have the same bits whichever other sequences run at the same time, "
               "where "
               "the device can: GPUs of sm_90; except on the cpu, yes also means --products f32",
       .otherwise = "yes for weights of f16 or bf16, if every op of the model can be so",
       .choices = {"yes", "no"}},
      lora_option(
          "run with an adapter (LoRA, as PEFT saves it) beside the weights; may be repeated"),
      memory_option(),
      pin_option(),
      exec_option(),
      compile_option(),
  };
  own.insert(own.end(), std::begin(shared), std::end(shared));
  return own;
}

llm::EngineOptions engine_options(const Args& args, int64_t slots) {
  return {.device = device_of(args),
          .context = args.integer("--context", 0, 2, int64_t{1} << 24),
          .slots = slots,
          .compute = dtype_of(args, "--compute"),
          .cache = dtype_of(args, "--cache"),
          .products = products_of(args),
          .batch_invariant = invariance_of(args),
          .adapters = adapters_of(args),
          .executable = executable_options(args)};
}

std::vector<int64_t> ids_of(const std::string& text) {
  std::vector<int64_t> ids;
  for (const std::string& word : list_of(text)) {
    size_t end = 0;
    int64_t id = -1;
    try {
      id = std::stoll(word, &end);
    } catch (const std::exception&) {
      end = 0;
    }
    if (word.empty() || end != word.size() || id < 0)
      throw UsageError("--ids: expected numbers separated by commas, got '" + word + "'");
    ids.push_back(id);
  }
  return ids;
}

llm::ModelText text_of(const std::string& model) {
  try {
    return llm::ModelText::read(model);
  } catch (const Error& e) {
    std::error_code error;
    if (e.code() != TENON_NOT_FOUND || !std::filesystem::exists(model + "/config.json", error))
      throw;
    throw Error(e.code(), e.what() + std::string("; hint: --ids needs no tokenizer"));
  }
}

const std::string& model_of(const Args& args) {
  if (args.words().empty()) throw UsageError("expected a model: a folder or a GGUF file");
  return args.words()[0];
}

}  // namespace tenon::cli
