// SPDX-License-Identifier: Apache-2.0
// Reads examples, and orders them.
#include "llm/tune/examples.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "llm/json_text.hpp"
#include "llm/tune/random.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

using Ids = std::vector<TokenId>;

class Reader {
 public:
  Reader(const ModelText& text, int64_t length)
      : text_(text), tokenizer_(text.tokenizer()), most_(static_cast<size_t>(length) + 1) {}

  // A text, in pieces of which each begins with the last token of the one before.
  void add_text(const Ids& ids) {
    for (size_t at = 0; at + 1 < ids.size(); at += most_ - 1) {
      const size_t end = std::min(at + most_, ids.size());
      const auto from = ids.begin() + static_cast<ptrdiff_t>(at);
      const auto to = ids.begin() + static_cast<ptrdiff_t>(end);
      add({{from, to}, std::vector<uint8_t>(end - at, 1)});
    }
  }

  void add_line(const ChatJson& line, const std::string& where) {
    if (!line.is_object()) throw Error(TENON_CORRUPT, where + ": expected an object");
    if (line.contains("messages")) return add_conversation(line, where);
    if (line.contains("prompt") || line.contains("completion")) {
      const std::string prompt = string_of(line, "prompt", where);
      const std::string all = prompt + string_of(line, "completion", where);
      return add_answer(tokenizer_.encode(prompt), with_end(tokenizer_.encode(all)));
    }
    if (line.contains("text"))
      return add_text(with_end(tokenizer_.encode(string_of(line, "text", where))));
    throw Error(TENON_CORRUPT, where +
                                   ": expected the keys 'text', 'prompt' and 'completion', or "
                                   "'messages'");
  }

  Examples take(const std::string& file) {
    if (out_.list.empty())
      throw Error(TENON_INVALID_ARGUMENT,
                  file +
                      ": nothing to learn; expected a text of more than one token, a "
                      "completion, or an answer of the assistant");
    return std::move(out_);
  }
  void checked(const std::string& where) const {
    if (out_.list.size() > UINT32_MAX)
      throw Error(TENON_UNSUPPORTED, where + ": more than 4294967295 examples");
  }

 private:
  static std::string string_of(const ChatJson& line, const char* key, const std::string& where) {
    const auto at = line.find(key);
    if (at == line.end() || !at->is_string())
      throw Error(TENON_CORRUPT, where + ": '" + key + "': expected a string");
    return at->get<std::string>();
  }
  Ids with_end(Ids ids) const {
    if (const auto end = tokenizer_.eos(); end && (ids.empty() || ids.back() != *end))
      ids.push_back(*end);
    return ids;
  }

  static size_t common(const Ids& a, const Ids& b) {
    return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                               a.begin());
  }
  // What is learned are the tokens from the first one on that differs from the prompt's.
  void add_answer(const Ids& prompt, const Ids& all) {
    Example e{all, std::vector<uint8_t>(all.size(), 0)};
    std::fill(e.learned.begin() + static_cast<ptrdiff_t>(common(prompt, all)), e.learned.end(), 1);
    add(std::move(e));
  }

  void add_conversation(const ChatJson& line, const std::string& where) {
    const ChatJson& messages = line["messages"];
    if (!messages.is_array()) throw Error(TENON_CORRUPT, where + ": 'messages': expected a list");
    ChatOptions options;
    if (const auto tools = line.find("tools"); tools != line.end()) options.tools = *tools;
    const auto ids = [&](size_t count, bool asks) {
      options.messages =
          ChatJson(messages.begin(), messages.begin() + static_cast<ptrdiff_t>(count));
      options.add_generation_prompt = asks;
      try {
        return tokenizer_.encode(text_.chat_text(options), {.add_special = false});
      } catch (const Error& e) {
        throw Error(e.code(), where + ": " + e.what());
      }
    };
    // The whole conversation is one example if it begins with each of its answers and what was
    // before. Templates that change earlier messages give one example for each answer.
    Example whole;
    std::vector<std::pair<Ids, Ids>> answers;
    const Ids all = ids(messages.size(), false);
    whole.tokens = all;
    whole.learned.resize(all.size(), 0);
    bool begins = true;
    for (size_t i = 0; i < messages.size(); ++i) {
      const ChatJson& m = messages[i];
      if (!m.is_object() || !m.contains("role"))
        throw Error(TENON_CORRUPT, where + ": 'messages': expected objects with a 'role'");
      if (m["role"] != "assistant") continue;
      answers.emplace_back(ids(i, true), ids(i + 1, false));
      const auto& [before, behind] = answers.back();
      const size_t first = common(before, behind);
      begins = begins && common(behind, all) == behind.size();
      if (begins)
        std::fill(whole.learned.begin() + static_cast<ptrdiff_t>(first),
                  whole.learned.begin() + static_cast<ptrdiff_t>(behind.size()), 1);
    }
    if (begins) return add(std::move(whole));
    for (const auto& [before, behind] : answers) add_answer(before, behind);
  }

  void add(Example e) {
    if (e.tokens.size() > most_) {
      ++out_.cut;
      e.tokens.resize(most_), e.learned.resize(most_);
    }
    const auto learned =
        e.learned.empty() ? 0 : std::count(e.learned.begin() + 1, e.learned.end(), uint8_t{1});
    if (learned == 0) {
      ++out_.without;
      return;
    }
    out_.learned += learned;
    for (size_t i = 0; i < e.tokens.size(); ++i)
      out_.checksum = mix(out_.checksum ^ static_cast<uint64_t>(e.tokens[i]), 2 * i + e.learned[i]);
    out_.list.push_back(std::move(e));
  }

  const ModelText& text_;
  const Tokenizer& tokenizer_;
  const size_t most_;
  Examples out_;
};

bool holds_lines(const std::string& file) {
  const std::string end = std::filesystem::path(file).extension().string();
  return end == ".jsonl" || end == ".ndjson" || end == ".json";
}

}  // namespace

Examples read_examples(const std::string& file, const ModelText& text, int64_t length,
                       const std::function<bool()>& stop) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    throw Error(TENON_IO_ERROR, file + ": expected a file, got a folder");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(TENON_NOT_FOUND, file + ": cannot be opened");
  Reader reader(text, length);
  if (!holds_lines(file)) {
    std::ostringstream all;
    all << in.rdbuf();
    if (in.bad()) throw Error(TENON_IO_ERROR, file + ": read failed");
    reader.add_text(text.tokenizer().encode(all.str()));
    return reader.take(file);
  }
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (stop && stop()) throw Error(TENON_CANCELLED, "interrupted");
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = file + ":" + std::to_string(number);
    reader.add_line(parse_json(line, where), where);
    reader.checked(where);
  }
  if (in.bad()) throw Error(TENON_IO_ERROR, file + ": read failed");
  return reader.take(file);
}

size_t ExampleOrder::operator[](uint64_t index) {
  const uint64_t count = order_.size(), pass = index / count;
  if (pass != pass_) {
    pass_ = pass;
    std::iota(order_.begin(), order_.end(), 0u);
    const uint64_t key = mix(seed_, pass);
    for (uint64_t i = count; i > 1; --i) std::swap(order_[i - 1], order_[mix(key, i) % i]);
  }
  return order_[index % count];
}

}  // namespace tenon::llm
