// SPDX-License-Identifier: Apache-2.0
// tenon llm embed: texts as vectors, by the hidden states of a language model.
#include <filesystem>
#include <iostream>

#include "cli/command.hpp"
#include "cli/input.hpp"
#include "cli/interrupt.hpp"
#include "cli/llm/options.hpp"
#include "cli/progress.hpp"
#include "cli/terminal.hpp"
#include "llm/embedding.hpp"
#include "llm/model_text.hpp"

namespace tenon::cli {
namespace {

// One thing to embed, and what messages call it.
struct Text {
  std::string name;
  std::vector<int64_t> ids;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}

std::vector<Text> texts_of(const Args& args, const std::string& model) {
  const std::span<const std::string> words = std::span(args.words()).subspan(1);
  if (args.has("--ids")) {
    if (!words.empty()) throw UsageError("--ids: expected no text beside it");
    args.refuse({"--file"}, "--ids are the whole text");
    return {{"--ids", ids_of(args.text("--ids"))}};
  }
  std::vector<std::string> texts(words.begin(), words.end());
  std::string where = "text ";
  if (args.has("--file")) {
    if (!words.empty()) throw UsageError("--file: expected no text beside it");
    texts = lines_of(read_input(args.text("--file")));
    where = args.text("--file") + ": line ";
  }
  if (texts.empty()) throw UsageError("expected texts behind the model, or --file FILE");
  const llm::ModelText reader = text_of(model);
  std::vector<Text> out;
  for (const std::string& text : texts) {
    Text t{.name = where + std::to_string(out.size() + 1), .ids = {}};
    if (text.empty()) throw UsageError(t.name + " is empty; expected a text");
    t.ids = reader.text_ids(text);
    out.push_back(std::move(t));
  }
  return out;
}

int embed(const Args& args) {
  const std::string& model = model_of(args);
  const std::vector<Text> texts = texts_of(args, model);
  const std::string output = args.text("--output");
  if (args.has("--output") && !output.ends_with(".npy"))
    throw UsageError("--output: expected a name that ends with .npy, got '" + output + "'");
  llm::EmbedOptions options{.normalize = !args.has("--no-normalize")};
  if (args.has("--pooling")) options.pooling = llm::pooling_of_name(args.text("--pooling"));
  const InterruptFlag interrupt;
  const Runtime& runtime = open_runtime(args);
  llm::Engine engine(runtime, model, engine_options(args, 1));
  int64_t total = 0, done = 0;  // tokens
  for (const Text& t : texts) {
    const auto size = static_cast<int64_t>(t.ids.size());
    if (size > engine.context())
      throw Error(TENON_INVALID_ARGUMENT, t.name + ": expected at most " +
                                              std::to_string(engine.context()) +
                                              " tokens, the context, got " + std::to_string(size) +
                                              "; hint: --context, or a shorter text");
    total += size;
  }
  TraceFile trace(runtime, args);
  Progress progress(0, total);
  options.progress = [&](int64_t read, int64_t) {
    progress.show(done + read, "tokens");
    return !interrupt.raised();
  };
  std::vector<float> all;
  const auto dim = static_cast<size_t>(engine.config().dim);
  // Some at a time: results come soon, and short texts are read together.
  constexpr size_t kTogether = 64;
  for (size_t first = 0; first < texts.size() && std::cout; first += kTogether) {
    const size_t count = std::min(kTogether, texts.size() - first);
    std::vector<std::vector<int64_t>> ids;
    for (size_t i = first; i < first + count; ++i) ids.push_back(texts[i].ids);
    std::vector<float> vectors;
    try {
      vectors = engine.embed(ids, options);
    } catch (const Error& e) {
      if (interrupt.raised()) return kInterrupted;
      // Messages count texts from the first of these on.
      const std::string more = count > 1 ? " and those behind it" : "";
      throw Error(e.code(), texts[first].name + more + ": " + e.what());
    }
    for (const auto& text : ids) done += static_cast<int64_t>(text.size());
    if (!output.empty()) {
      all.insert(all.end(), vectors.begin(), vectors.end());
      continue;
    }
    progress.clear();
    for (size_t i = 0; i < count; ++i)
      std::cout << "{\"index\": " << first + i << ", \"tokens\": " << ids[i].size()
                << ", \"embedding\": " << llm::json_list(std::span(vectors).subspan(i * dim, dim))
                << "}\n";
    std::cout << std::flush;
  }
  progress.clear();
  trace.save();
  if (output.empty()) return 0;
  const auto count = static_cast<int64_t>(texts.size());
  write_tensors(output, {{"embeddings", Tensor({count, engine.config().dim}, all)}});
  std::cout << "wrote " << without_control_bytes(output) << ": f32[" << count << ", "
            << engine.config().dim << "]\n";
  return 0;
}

}  // namespace

Command llm_embed_command() {
  return {
      .name = "llm embed",
      .summary = "turn texts into vectors with a language model",
      .usage = "MODEL TEXT... [options] | MODEL --file FILE [options]",
      .options = with_engine_options({
          {.name = "--file",
           .value = "FILE",
           .help = "read the texts from FILE, one a line (- is standard input)",
           .completes = Completes::file},
          {.name = "--ids", .value = "N,...", .help = "one text as token ids; needs no tokenizer"},
          {.name = "--pooling",
           .value = "KIND",
           .help = "vector of a text: the mean over its tokens, or its first or last token",
           .otherwise = "as the model's files say, else mean",
           .choices = {"mean", "cls", "last"}},
          {.name = "--no-normalize", .help = "keep the length of the vectors; else it is 1"},
          {.name = "--output",
           .value = "FILE.npy",
           .help = "write all vectors to FILE.npy, f32[texts, dims] [print a line of JSON for "
                   "each text]",
           .completes = Completes::file},
          trace_option(),
      }),
      .examples =
          "tenon llm embed Qwen3-Embedding-0.6B.gguf 'a text' 'another one'\n"
          "tenon llm embed Qwen3-Embedding-0.6B.gguf --file texts.txt --output vectors.npy\n",
      .words = 1 << 20,
      .completes = Completes::file,
      .run = embed};
}

}  // namespace tenon::cli
