// SPDX-License-Identifier: Apache-2.0
// tenon llm convert: between Hugging Face folders and GGUF files, and of quantized folders to plain ones.

#include <filesystem>
#include <iostream>
#include <optional>

#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/llm/options.hpp"
#include "cli/progress.hpp"
#include "cli/terminal.hpp"
#include "llm/files/mix.hpp"
#include "llm/tune/merged.hpp"

namespace tenon::cli {
namespace {

bool is_gguf_name(const std::string& path) {
  std::string end = std::filesystem::path(path).extension().string();
  for (char& c : end)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return end == ".gguf";
}

// Only --force replaces a model.
void check_new_folder(const Args& args, const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (args.has("--force") || fs::equivalent(from, to, error)) return;
  for (const char* name :
       {"config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"})
    if (fs::exists(to + "/" + name, error))
      throw Error(TENON_INVALID_ARGUMENT, to + ": expected a new or empty folder, got one with " +
                                              name + "; hint: --force replaces the model");
}

int convert(const Args& args) {
  if (args.words().size() != 2)
    throw UsageError("expected a model folder or a GGUF file, and what to write");
  const std::string &from = args.words()[0], &to = args.words()[1];
  std::error_code error;
  const bool folder = std::filesystem::is_directory(from, error);
  const bool to_folder = !folder || !is_gguf_name(to);
  if (!to_folder && std::filesystem::is_directory(to, error))
    throw UsageError(to + ": expected a file to write, got a folder");
  if (to_folder && std::filesystem::is_regular_file(to, error))
    throw UsageError(to + (folder ? ": expected a folder to write, or the name of a file that ends "
                                    "with .gguf; this file exists"
                                  : ": expected a folder to write, got a file"));
  if (to_folder) {
    args.refuse({"--pre"}, "applies to a model folder that becomes a GGUF file");
    check_new_folder(args, from, to);
  }
  llm::MergedAdapters adapters(adapters_of(args));
  const InterruptFlag interrupt;
  std::optional<Progress> progress;
  llm::files::ConvertOptions options{
      .type = args.text("--type"),
      .pre = args.text("--pre"),
      .changes = &adapters,
      .threads = static_cast<unsigned>(args.integer("--threads", 0, 0, 4096))};
  options.progress = [&](uint64_t done, uint64_t total, const std::string& tensor) {
    if (interrupt.raised()) throw Error(TENON_CANCELLED, "interrupted");
    if (!progress) progress.emplace(0, static_cast<int64_t>(total >> 20));
    progress->show(static_cast<int64_t>(done >> 20), "MiB  " + without_control_bytes(tensor));
  };
  const llm::files::Converted done = !folder     ? llm::files::gguf_to_folder(from, to, options)
                                     : to_folder ? llm::files::folder_to_folder(from, to, options)
                                                 : llm::files::folder_to_gguf(from, to, options);
  progress.reset();
  for (const std::string& note : done.notes)
    std::cerr << "tenon: note: " << without_control_bytes(note) << "\n";
  std::cout << "wrote " << without_control_bytes(to) << ": " << counted(done.tensors, "tensor")
            << ", " << size_text(done.bytes) << "\n";
  return 0;
}

}  // namespace

Command llm_convert_command() {
  return {
      .name = "llm convert",
      .summary =
          "convert a language model: a Hugging Face folder or a GGUF file to the other, or to a "
          "plain folder",
      .usage = "MODEL_DIR FILE.gguf | FILE.gguf MODEL_DIR | MODEL_DIR NEW_DIR [options]",
      .options = {{.name = "--type",
                   .value = "TYPE",
                   .help = "format of the matrices; for a folder F32, F16 or BF16",
                   .otherwise = "that of the source; quantized weights stay in Q4_0, Q5_0 or "
                                "Q8_0 where these have the same numbers; F16 for a folder "
                                "of a file with blocks",
                   .choices = {std::begin(llm::files::kMixes), std::end(llm::files::kMixes)}},
                  {.name = "--pre",
                   .value = "NAME",
                   .help = "how GGUF names the pre-tokenizer of a byte-level model, such as "
                           "llama-bpe or qwen2",
                   .otherwise = "recognized by its expression"},
                  lora_option("make an adapter (LoRA, as PEFT saves it) a part of the "
                              "weights; may be repeated"),
                  {.name = "--force",
                   .help = "replace the model in an existing folder; an existing GGUF file is "
                           "replaced without it"},
                  {.name = "--threads",
                   .value = "N",
                   .help = "number of threads that encode",
                   .otherwise = "all processors"}},
      .examples =
          "tenon llm convert Llama-3.2-1B model.gguf --type Q4_K_M\n"
          "tenon llm convert model.gguf folder --type BF16\n"
          "tenon llm convert Llama-3.2-1B tuned.gguf --lora adapter --type Q8_0\n"
          "tenon llm convert Llama-3.2-1B-GPTQ plain --type BF16\n",
      .words = 2,
      .completes = Completes::file,
      .loads_plugins = false,
      .opens_device = false,
      .run = convert};
}

}  // namespace tenon::cli
