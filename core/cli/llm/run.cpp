// SPDX-License-Identifier: Apache-2.0
// tenon llm run: answers or continues a prompt with a language model of a Hugging Face folder
// or a GGUF file.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <optional>

#include "cli/command.hpp"
#include "cli/input.hpp"
#include "cli/interrupt.hpp"
#include "cli/llm/options.hpp"
#include "cli/progress.hpp"
#include "cli/terminal.hpp"
#include "llm/model_text.hpp"

namespace tenon::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Ids = std::vector<int64_t>;

const std::vector<Option>& run_options() {
  static const std::vector<Option> options = with_engine_options({
      {.name = "--prompt",
       .value = "TEXT",
       .help = "question to answer, or text to continue [read from standard input]"},
      {.name = "--prompt-file",
       .value = "FILE",
       .help = "read the prompt from FILE (- is standard input); a final newline is removed",
       .completes = Completes::file},
      {.name = "--system", .value = "TEXT", .help = "system message in front of the prompt"},
      {.name = "--raw", .help = "continue the prompt as it is, without the model's chat template"},
      {.name = "--ids",
       .value = "N,...",
       .help = "prompt as token ids; the answer is printed as token ids, too"},
      {.name = "--tokens", .value = "N", .help = "most tokens to generate", .otherwise = "256"},
      {.name = "--greedy", .help = "always select the most likely token"},
      {.name = "--temperature",
       .value = "X",
       .help = "sampling temperature; 0 is --greedy",
       .otherwise = "0.8"},
      {.name = "--top-k",
       .value = "N",
       .help = "sample from the N most likely tokens; 0: from all",
       .otherwise = "0"},
      {.name = "--top-p",
       .value = "X",
       .help = "sample from the most likely tokens whose probabilities sum to X",
       .otherwise = "1"},
      {.name = "--min-p",
       .value = "X",
       .help = "sample from tokens with at least X times the probability of the most likely one",
       .otherwise = "0"},
      {.name = "--repeat-penalty",
       .value = "X",
       .help = "above 1: makes tokens of the prompt and the answer less likely to come again",
       .otherwise = "1"},
      {.name = "--seed", .value = "N", .help = "sampling seed", .otherwise = "0"},
      {.name = "--ignore-end", .help = "continue after an end token"},
      trace_option(),
  });
  return options;
}

// The prompt of the command line or of a file. Nothing: the user types a conversation.
std::optional<std::string> prompt_of(const Args& args) {
  if (args.has("--prompt")) {
    args.refuse({"--prompt-file"}, "--prompt is given already");
    return args.text("--prompt");
  }
  if (!args.has("--prompt-file") && is_terminal(STDIN_FILENO)) return {};
  std::string prompt = read_input(args.text("--prompt-file", "-"));
  if (prompt.ends_with('\n')) prompt.pop_back();
  return prompt;
}

llm::SampleOptions sampling_of(const Args& args) {
  if (args.has("--greedy")) args.refuse({"--temperature"}, "has no effect with --greedy");
  const double temperature = args.has("--greedy") ? 0 : args.number("--temperature", 0.8, 0, 1e6);
  if (temperature == 0)
    args.refuse({"--top-k", "--top-p", "--min-p", "--seed"},
                "has no effect with --greedy or --temperature 0");
  return {.temperature = temperature,
          .top_k = args.integer("--top-k", 0, 0, INT32_MAX),
          .top_p = args.number("--top-p", 1, 1e-9, 1),
          .min_p = args.number("--min-p", 0, 0, 1),
          .repetition_penalty = args.number("--repeat-penalty", 1, 1e-3, 1e3),
          .seed = static_cast<uint64_t>(args.integer("--seed", 0, 0, INT64_MAX))};
}

// Prints an answer as it comes: text, or ids between commas.
class Answer {
 public:
  // text: nothing to print ids.
  explicit Answer(const llm::ModelText* text) {
    if (!text) return;
    text_ = &text->tokenizer();
    words_.emplace(*text_);
  }
  void put(int64_t token) {
    if (words_) {
      // Models may have more logits than the vocabulary has tokens.
      if (text_->has(static_cast<llm::TokenId>(token)))
        show(words_->push(static_cast<llm::TokenId>(token)));
    } else {
      std::cout << (first_ ? "" : ",") << token << std::flush;
    }
    first_ = false;
  }
  // What has been printed, as text.
  std::string end() {
    if (words_) show(words_->flush());
    if (!first_) std::cout << (terminal_ ? safe_.end() : "") << "\n" << std::flush;
    return said_;
  }

 private:
  void show(const std::string& text) {
    said_ += text;
    for (const char c : text) std::cout << (terminal_ ? safe_.add(c) : std::string(1, c));
    std::cout << std::flush;
  }

  const llm::Tokenizer* text_ = nullptr;
  std::optional<llm::Detokenizer> words_;
  std::string said_;
  bool first_ = true, terminal_ = is_terminal(STDOUT_FILENO);
  SafeText safe_;
};

// Runs prompts one after the other on one engine.
class Session {
 public:
  Session(const Args& args, const Runtime& runtime, const llm::ModelText* text)
      : text_(text),
        tokens_(args.integer("--tokens", 256, 0, int64_t{1} << 30)),
        sampling_(sampling_of(args)),
        stop_at_end_(!args.has("--ignore-end")),
        engine_(runtime, model_of(args), engine_options(args, 1)) {}

  // Prints the answer and the speed. Returns the answer's text.
  std::string answer(const Ids& prompt) {
    // A conversation goes on behind what the engine has read of it.
    const bool goes_on =
        prompt.size() > read_.size() && std::equal(read_.begin(), read_.end(), prompt.begin());
    const size_t kept = goes_on ? read_.size() : 0;
    Progress progress(0, static_cast<int64_t>(prompt.size() - kept));
    const llm::GenerateOptions options{.tokens = tokens_,
                                       .sampling = sampling_,
                                       .stop_at_end = stop_at_end_,
                                       .end_tokens = text_ ? text_->end_ids() : Ids(),
                                       .kept = static_cast<int64_t>(kept),
                                       .progress = [&](int64_t read, int64_t) {
                                         progress.show(read, "tokens of the prompt");
                                         return !interrupt_.raised();
                                       }};
    Answer out(text_);
    Ids generated;
    const Clock::time_point start = Clock::now();
    Clock::time_point first = start;
    const llm::Finish finish = engine_.generate(prompt, options, [&](int64_t token) {
      if (generated.empty()) progress.clear(), first = Clock::now();
      generated.push_back(token);
      out.put(token);
      return std::cout && !interrupt_.raised();
    });
    progress.clear();
    std::string said = out.end();
    report(finish, prompt.size() - kept, generated.size(), first - start, Clock::now() - first);
    read_ = prompt;
    read_.insert(read_.end(), generated.begin(), generated.end());
    read_.resize(static_cast<size_t>(engine_.length(0)));
    return said;
  }

  bool interrupted() const { return interrupt_.raised(); }

 private:
  void report(llm::Finish finish, size_t read, size_t generated, Clock::duration reading,
              Clock::duration writing) const {
    if (finish == llm::Finish::context_full)
      std::cerr << "tenon: the context of " << engine_.context()
                << " tokens is full; hint: --context\n";
    if (generated == 0) return;
    const auto rate = [](size_t count, Clock::duration time) {
      return std::llround(static_cast<double>(count) /
                          std::max(std::chrono::duration<double>(time).count(), 1e-9));
    };
    std::cerr << counted(read, "token") << " read, " << rate(read, reading) << " tokens/s; "
              << counted(generated, "token") << " generated";
    if (generated > 1) std::cerr << ", " << rate(generated - 1, writing) << " tokens/s";
    std::cerr << "\n";
  }

  const llm::ModelText* text_;
  int64_t tokens_;
  llm::SampleOptions sampling_;
  bool stop_at_end_;
  InterruptFlag interrupt_;
  llm::Engine engine_;
  Ids read_;  // what slot 0 of the engine has read
};

// Lines of the user and answers in turn, until the end of input.
void converse(Session& session, const llm::ModelText& text, std::vector<llm::Message> messages) {
  std::string line;
  while (!session.interrupted()) {
    std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    messages.push_back({"user", line});
    messages.push_back({"assistant", session.answer(text.chat_ids(messages))});
  }
  std::cerr << "\n";
}

int run(const Args& args) {
  const std::string& model = model_of(args);
  const bool as_ids = args.has("--ids");
  if (as_ids)
    args.refuse({"--prompt", "--prompt-file", "--system", "--raw"}, "--ids is the whole prompt");
  if (args.has("--raw")) args.refuse({"--system"}, "is a part of the chat template");
  std::optional<llm::ModelText> text;
  Ids prompt = as_ids ? ids_of(args.text("--ids")) : Ids();
  std::vector<llm::Message> messages;
  bool typed = false;
  if (!as_ids) {
    text.emplace(text_of(model));
    const bool chat = text->has_chat() && !args.has("--raw");
    if (args.has("--system")) {
      if (!chat) throw UsageError("--system: the model has no chat template");
      messages.push_back({"system", args.text("--system")});
    }
    const std::optional<std::string> question = prompt_of(args);
    typed = !question;
    if (typed && !chat)
      throw UsageError("--prompt is missing; expected a text that the model continues");
    if (question && chat) messages.push_back({"user", *question});
    if (question) prompt = chat ? text->chat_ids(messages) : text->text_ids(*question);
  }
  const Runtime& runtime = open_runtime(args);
  Session session(args, runtime, text ? &*text : nullptr);
  TraceFile trace(runtime, args);
  if (typed)
    converse(session, *text, std::move(messages));
  else
    session.answer(prompt);
  trace.save();
  return session.interrupted() ? kInterrupted : 0;
}

}  // namespace

Command llm_run_command() {
  return {.name = "llm run",
          .summary = "answer a prompt with a language model",
          .usage = "MODEL [--prompt TEXT] [options]",
          .options = run_options(),
          .examples =
              "tenon llm run Llama-3.2-1B-Instruct --prompt 'Why is the sky blue?'\n"
              "tenon llm run Llama-3.2-1B --raw --prompt 'The sky is' --greedy\n"
              "tenon llm run Llama-3.2-1B --ids 128000,791,13180 --tokens 20\n",
          .words = 1,
          .completes = Completes::file,
          .run = run};
}

}  // namespace tenon::cli
