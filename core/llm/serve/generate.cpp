// SPDX-License-Identifier: Apache-2.0
// Requests that generate: several answers at once, whole or as a stream of events.
#include <algorithm>
#include <optional>

#include "llm/serve/api.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::serve {
namespace {

using std::chrono::milliseconds;

// nginx's number for "the client went away"; it is only counted, nobody reads the answer.
constexpr unsigned kClientGone = 499;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// One of the answers of a request.
struct Running {
  Running(int64_t index, std::unique_ptr<Answer> a, const Json& tools)
      : answer(std::move(a)), parser(tools) {
    all.index = index;
  }
  std::unique_ptr<Answer> answer;  // null once it has ended
  ToolParser parser;
  Choice all;              // so far
  int64_t characters = 0;  // of its text
  Usage usage;
  Clock::time_point last = Clock::now();
  bool begun = false;   // some text has come
  bool opened = false;  // a chunk was sent
};

}  // namespace

// All answers of one request, and where they go.
struct Api::Batch {
  Batch(const AnswerRequest& r, AnswerHead h, HttpReply& to, Metrics& m)
      : request(r), head(std::move(h)), reply(to), metrics(m) {}

  const AnswerRequest& request;
  AnswerHead head;
  HttpReply& reply;
  Metrics& metrics;
  std::vector<Running> answers;

  bool logprobs() const { return request.wanted.logprobs >= 0; }

  Usage usage() const {
    Usage sum;
    // Answers to one prompt share it: n answers cost its tokens once.
    for (size_t i = 0; i < answers.size(); ++i) {
      const Usage& u = answers[i].usage;
      sum.made += u.made;
      if (i % static_cast<size_t>(request.count) > 0) continue;
      sum.prompt += u.prompt;
      sum.cached += u.cached;
    }
    return sum;
  }

  void take(Running& r, Piece piece) {
    (r.begun ? metrics.between_tokens : metrics.first_token).add(seconds_since(r.last));
    r.begun = true;
    r.last = Clock::now();
    // At each piece, for the client may leave before the last one.
    metrics.tokens(piece.prompt_tokens - r.usage.prompt, piece.cached_tokens - r.usage.cached,
                   piece.tokens_made - r.usage.made);
    r.usage = {piece.prompt_tokens, piece.cached_tokens, piece.tokens_made};
    Choice part;
    part.index = r.all.index;
    part.text = r.parser.push(piece.text);
    part.tokens = std::move(piece.tokens);
    part.finish = piece.finish;
    if (piece.finish != Finish::none) {
      part.text += r.parser.finish();
      part.calls = r.parser.calls();
      r.answer.reset();
    }
    place(r, part);
    if (request.stream) send(r, part);
    r.all.text += part.text;
    if (request.stream) return;
    r.all.offsets.insert(r.all.offsets.end(), part.offsets.begin(), part.offsets.end());
    r.all.tokens.insert(r.all.tokens.end(), part.tokens.begin(), part.tokens.end());
    r.all.calls = part.calls;
    r.all.finish = part.finish;
  }

  // A piece has the text of its tokens, which have parts of characters, or text that nobody sees.
  static void place(Running& r, Choice& part) {
    const int64_t end = r.characters + characters(part.text);
    int64_t at = r.characters;
    for (const DrawnToken& t : part.tokens) {
      part.offsets.push_back(std::min(at, end));
      at += characters(t.drawn.text);
    }
    r.characters = end;
  }

  void send(Running& r, const Choice& part) {
    const bool empty = part.text.empty() && part.tokens.empty() && part.finish == Finish::none;
    if (empty && r.opened) return;
    reply.write(event(chunk(head, part, !r.opened, logprobs(), request.usage_in_stream)));
    r.opened = true;
  }

  // Until all have ended, or the client has gone: then false.
  bool pump() {
    for (;;) {
      const auto left = std::count_if(answers.begin(), answers.end(),
                                      [](const Running& r) { return r.answer != nullptr; });
      if (left == 0) return true;
      if (reply.gone()) return false;
      const milliseconds wait(left == 1 ? 100 : 2);
      for (Running& r : answers) {
        if (!r.answer) continue;
        if (std::optional<Piece> piece = r.answer->next(wait)) take(r, std::move(*piece));
      }
    }
  }

  unsigned whole_answer() {
    if (!pump()) return kClientGone;
    std::vector<Choice> choices;
    for (Running& r : answers) choices.push_back(std::move(r.all));
    reply.send(200, "application/json", dumped(whole(head, choices, usage(), logprobs())));
    return 200;
  }

  unsigned stream() {
    reply.begin("text/event-stream; charset=utf-8", {{"X-Accel-Buffering", "no"}});
    try {
      for (Running& r : answers) {
        // A chat's role, and a prompt that is echoed, are there before the first token.
        if (!head.chat && r.all.text.empty()) continue;
        Choice opening;
        opening.index = r.all.index;
        opening.text = std::exchange(r.all.text, {});
        send(r, opening);
        r.all.text = opening.text;
      }
      if (!pump()) return kClientGone;
    } catch (const std::exception& e) {
      // The status has been sent: what failed is told in an event, as other servers do.
      reply.write(event(error_json({500, e.what()})));
      reply.end();
      return 500;
    }
    if (request.usage_in_stream) reply.write(event(usage_chunk(head, usage())));
    reply.write("data: [DONE]\n\n");
    reply.end();
    return 200;
  }
};

unsigned Api::generate(const AnswerRequest& request, bool chat, const Json& tools,
                       const std::vector<std::vector<int32_t>>& prompts,
                       const std::vector<std::string>& echoes, HttpReply& reply) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  AnswerHead head{random_id(chat ? "chatcmpl-" : "cmpl-"), served_.name(),
                  std::chrono::duration_cast<std::chrono::seconds>(now).count(), chat};
  Batch batch(request, std::move(head), reply, metrics_);
  for (size_t p = 0; p < prompts.size(); ++p)
    for (int64_t i = 0; i < request.count; ++i) {
      Wanted wanted = request.wanted;
      wanted.prompt = prompts[p];
      // The answers to one prompt differ, and do so again with the same seed.
      if (wanted.drawing.seed) *wanted.drawing.seed += static_cast<uint64_t>(i);
      const auto index = static_cast<int64_t>(p) * request.count + i;
      std::unique_ptr<Answer> answer;
      if (wanted.tokens != 0) answer = served_.submit(std::move(wanted));
      Running& r = batch.answers.emplace_back(index, std::move(answer), tools);
      r.all.text = echoes[p];
      r.characters = characters(echoes[p]);
      if (!r.answer) {
        r.all.finish = Finish::length;
        r.usage.prompt = static_cast<int64_t>(prompts[p].size());
      }
    }
  return request.stream ? batch.stream() : batch.whole_answer();
}

unsigned Api::complete(const Json& body, HttpReply& reply) {
  const CompletionRequest r = completion_request(body, served_.vocabulary());
  check_model(r.model);
  if (r.wanted.tokens == 0 && r.stream)
    throw HttpError{400, "max_tokens: at least 1 with stream: true", "max_tokens",
                    "integer_below_min_value"};
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::string> echoes;
  for (const Prompt& p : r.prompts) {
    prompts.push_back(tokens_of(p));
    const std::string* text = std::get_if<std::string>(&p);
    echoes.push_back(!r.echo ? "" : text ? *text : served_.detokenize(prompts.back()));
  }
  return generate(r, false, nullptr, prompts, echoes, reply);
}

unsigned Api::chat(const Json& body, HttpReply& reply) {
  const ChatRequest r = chat_request(body, served_.vocabulary());
  check_model(r.model);
  return generate(r, true, r.tools, {served_.chat_tokens(r.messages, r.tools, r.variables)}, {""},
                  reply);
}

}  // namespace tenon::llm::serve
