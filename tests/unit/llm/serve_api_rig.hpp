// SPDX-License-Identifier: Apache-2.0
// A model whose answers are known: it writes its prompt backwards. A sheet that takes what the server
// writes.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "llm/serve/api.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::serve {

using Tokens = std::vector<int32_t>;

// A token is a letter.
class Backwards final : public Served {
 public:
  class Letters final : public Answer {
   public:
    Letters(Backwards& model, Wanted wanted) : model_(model), wanted_(std::move(wanted)) {
      ++model_.running;
    }
    ~Letters() override { --model_.running; }
    std::optional<Piece> next(std::chrono::milliseconds) override {
      if (model_.breaks && made_ == 1) throw tenon::Error(TENON_DEVICE_LOST, "the device is gone");
      const auto n = static_cast<int64_t>(wanted_.prompt.size());
      Piece p;
      if (!wanted_.texts.empty()) {
        const Tokens& text = wanted_.texts[static_cast<size_t>(made_)];
        p.embedding = {static_cast<float>(text[0]), static_cast<float>(text.size()), 0.5f};
        read_ += static_cast<int64_t>(text.size());
        p.prompt_tokens = read_;
        if (++made_ == static_cast<int64_t>(wanted_.texts.size())) p.finish = Finish::stop;
        return p;
      }
      p.prompt_tokens = n;
      p.tokens_made = ++made_;
      const int32_t token = wanted_.prompt[static_cast<size_t>(n - made_)];
      std::string named(1, static_cast<char>(token));
      p.text = named;
      // A special token, which is not seen, and a byte that is no character.
      if (token == 1) named = "<name>", p.text = "";
      if (token == 2) named = "\x80", p.text = "\ufffd";
      if (wanted_.logprobs >= 0) p.tokens = {{{token, named, -0.5}, {{token, named, -0.5}}}};
      if (made_ == n) p.finish = Finish::stop;
      if (made_ == wanted_.tokens) p.finish = Finish::length;
      return p;
    }

   private:
    Backwards& model_;
    Wanted wanted_;
    int64_t made_ = 0, read_ = 0;
  };

  std::string name() const override { return "backwards"; }
  int64_t context() const override { return 64; }
  int64_t vocabulary() const override { return 128; }
  int64_t created() const override { return 1; }
  int64_t dim() const override { return 3; }
  Tokens tokenize(const std::string& text, bool) const override {
    return {text.begin(), text.end()};
  }
  std::string detokenize(const Tokens& t) const override { return {t.begin(), t.end()}; }
  Tokens chat_tokens(const Json& messages, const Json& tools, const Json&) const override {
    if (messages[0]["role"] == "bad") throw tenon::Error(TENON_INVALID_ARGUMENT, "no such role");
    if (!tools.is_null()) {
      const std::string call = R"({"name":"f","arguments":{"x":1}})";
      return {call.rbegin(), call.rend()};
    }
    return tokenize(messages.back()["content"].get<std::string>(), true);
  }
  std::unique_ptr<Answer> submit(Wanted wanted) override {
    if (full) throw Busy("too many requests wait");
    for (const Tokens* t : {&wanted.prompt, wanted.texts.empty() ? nullptr : &wanted.texts[0]})
      if (t && t->size() > static_cast<size_t>(context())) throw TooLong("longer than the context");
    last = wanted;
    return std::make_unique<Letters>(*this, std::move(wanted));
  }
  ServedNumbers numbers() const override { return {running, 0, 64, 3}; }

  int64_t running = 0;
  bool full = false, breaks = false;
  Wanted last;
};

class Sheet final : public HttpReply {
 public:
  void send(unsigned s, std::string_view, std::string_view b, const Headers& more) override {
    status = s;
    body = std::string(b);
    headers = more;
  }
  void begin(std::string_view, const Headers&) override { status = 200; }
  bool write(std::string_view part) override {
    body += part;
    ++writes;
    return true;
  }
  void end() override { ended = true; }
  bool gone() const override { return writes >= leaves_after; }

  Json json() const { return Json::parse(body); }
  // The JSON of the events, without the final [DONE].
  std::vector<Json> events() const {
    std::vector<Json> out;
    size_t at = 0;
    while (at < body.size()) {
      const size_t end = body.find("\n\n", at);
      const std::string data = body.substr(at + 6, end - at - 6);
      if (data != "[DONE]") out.push_back(Json::parse(data));
      at = end + 2;
    }
    return out;
  }
  unsigned status = 0;
  std::string body;
  Headers headers;
  bool ended = false;
  int writes = 0, leaves_after = 1 << 30;
};

struct Rig {
  Backwards model;
  Api api;
  explicit Rig(const std::string& key = "") : api(model, key) {}
  Sheet ask(const std::string& method, const std::string& path, const std::string& body = "",
            const std::map<std::string, std::string>& headers = {}) {
    Sheet sheet;
    if (api.admit({method, path, headers, {}}, sheet))
      api.answer({method, path, headers, body}, sheet);
    return sheet;
  }
  Sheet post(const std::string& path, const Json& body) { return ask("POST", path, body.dump()); }
  Json chat(Json more = Json::object()) {
    more["messages"] = {{{"role", "user"}, {"content", "abc"}}};
    return more;
  }
};

}  // namespace tenon::llm::serve
