// SPDX-License-Identifier: Apache-2.0
// Routes, checks that all requests share, and the requests that generate nothing.
#include "llm/serve/api.hpp"

#include "llm/serve/fields.hpp"
#include "llm/serve/page.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::serve {
namespace {

constexpr std::string_view kJson = "application/json";

// The comparison takes equally long wherever the texts differ, so that its time tells nothing.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return difference == 0;
}

unsigned status_of(const Error& e) {
  switch (e.code()) {
    case TENON_INVALID_ARGUMENT:
    case TENON_SHAPE_MISMATCH:
    case TENON_UNSUPPORTED:
    case TENON_CORRUPT:
      return 400;
    case TENON_NOT_FOUND:
      return 404;
    case TENON_CANCELLED:  // the server is stopping
    case TENON_OUT_OF_MEMORY:
      return 503;
    default:
      return 500;
  }
}

// "a%20b" to "a b". What is no code stays.
std::string percent_decoded(const std::string& text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool code =
        text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    out += code ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    if (code) i += 2;
  }
  return out;
}

std::string without_version(const std::string& path) {
  return path.starts_with("/v1/") ? path.substr(3) : path;
}

// What must be GET or POST; empty: no such path.
std::string_view method_of(const std::string& path) {
  if (path == "/" || path == "/health" || path == "/metrics" || path == "/models" ||
      path.starts_with("/models/"))
    return "GET";
  if (path == "/chat/completions" || path == "/completions" || path == "/embeddings" ||
      path == "/tokenize" || path == "/detokenize")
    return "POST";
  return "";
}

// The field that holds what the model reads.
const char* prompt_field(const std::string& path) {
  return path == "/chat/completions" ? "messages" : path == "/completions" ? "prompt" : "input";
}

}  // namespace

unsigned Api::json(HttpReply& reply, const Json& body) {
  reply.send(200, kJson, dumped(body));
  return 200;
}

bool Api::has_key(const HttpRequest& head) const {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = head.header("authorization");
  return key_.empty() ||
         (given.starts_with(kBearer) && same_secret(given.substr(kBearer.size()), key_));
}

void Api::check_model(const std::string& asked) const {
  // Clients that know one model only send nothing, or the name that their library forces on them.
  if (asked.empty() || asked == "default" || asked == served_.name()) return;
  throw HttpError{
      404, "no model '" + asked.substr(0, 200) + "': this server has '" + served_.name() + "'",
      "model", "model_not_found"};
}

std::vector<int32_t> Api::tokens_of(const Prompt& prompt) const {
  if (const auto* tokens = std::get_if<std::vector<int32_t>>(&prompt)) return *tokens;
  return served_.tokenize(std::get<std::string>(prompt), true);
}

bool Api::admit(const HttpRequest& head, HttpReply& reply) {
  const std::string path = without_version(head.path);
  const std::string method(method_of(path));
  const auto refuse = [&](const HttpError& e, const HttpReply::Headers& more = {}) {
    reply.send(e.status, kJson, dumped(error_json(e)), more);
    count(path, e.status);
    return false;
  };
  if (method.empty())
    return refuse({404, "no such path: " + head.path.substr(0, 200), "", "unknown_url"});
  if (head.method != method)
    return refuse({405, head.path + " takes " + method + ", not " + head.method.substr(0, 20)},
                  {{"Allow", method}});
  if (path != "/" && path != "/health" && !has_key(head))
    return refuse({401, "the API key is missing or wrong", "", "invalid_api_key"},
                  {{"WWW-Authenticate", "Bearer"}});
  return true;
}

void Api::answer(const HttpRequest& request, HttpReply& reply) {
  const std::string path = without_version(request.path);
  unsigned status = 500;
  const auto refuse = [&](const HttpError& e, const HttpReply::Headers& more = {}) {
    status = e.status;
    reply.send(status, kJson, dumped(error_json(e)), more);
  };
  try {
    status = route(request, path, reply);
  } catch (const HttpError& e) {
    refuse(e);
  } catch (const Busy& e) {
    refuse({429, e.what(), "", "rate_limit_exceeded"}, {{"Retry-After", "1"}});
  } catch (const TooLong& e) {
    refuse({400, e.what(), prompt_field(path), "context_length_exceeded"});
  } catch (const Error& e) {
    refuse({status_of(e), e.what()});
  }
  count(path, status);
}

void Api::count(const std::string& path, unsigned status) {
  // Paths that do not exist are one entry, else anyone could fill the memory with them.
  const bool known = !method_of(path).empty();
  metrics_.answered(known ? (path.starts_with("/models/") ? "/models" : path) : "other", status);
}

unsigned Api::route(const HttpRequest& request, const std::string& path, HttpReply& reply) {
  if (path == "/") {
    reply.send(200, "text/html; charset=utf-8", kPage,
               {{"Content-Security-Policy",
                 "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                 "connect-src 'self'; frame-ancestors 'none'"}});
    return 200;
  }
  if (path == "/health") return json(reply, {{"status", "ok"}});
  if (path == "/metrics") {
    reply.send(200, "text/plain; version=0.0.4; charset=utf-8", metrics_.text(served_.numbers()));
    return 200;
  }
  if (path.starts_with("/models")) return models(path, reply);
  const Json body = parse_body(request.body);
  if (path == "/tokenize") return tokenize(body, reply);
  if (path == "/detokenize") return detokenize(body, reply);
  if (path == "/embeddings") return embed(body, reply);
  return path == "/completions" ? complete(body, reply) : chat(body, reply);
}

unsigned Api::models(const std::string& path, HttpReply& reply) {
  const Json model{{"id", served_.name()},
                   {"object", "model"},
                   {"created", served_.created()},
                   {"owned_by", "tenon"},
                   {"meta", {{"n_ctx", served_.context()}, {"n_vocab", served_.vocabulary()}}}};
  if (path == "/models") return json(reply, {{"object", "list"}, {"data", Json::array({model})}});
  check_model(percent_decoded(path.substr(std::string_view("/models/").size())));
  return json(reply, model);
}

unsigned Api::tokenize(const Json& body, HttpReply& reply) {
  Fields f(body, "");
  f.need("content", "a text");
  const std::string text = f.text("content", "");
  const bool special = f.flag("add_special", false);
  f.refuse_unknown();
  return json(reply, {{"tokens", served_.tokenize(text, special)}});
}

unsigned Api::detokenize(const Json& body, HttpReply& reply) {
  Fields f(body, "");
  const std::string form =
      "a list of token ids from 0 to " + std::to_string(served_.vocabulary() - 1);
  const Json& list = f.need("tokens", form.c_str());
  if (!list.is_array()) f.refuse_type("tokens", form);
  std::vector<int32_t> tokens;
  for (const Json& j : list) {
    if (!j.is_number_integer()) f.refuse_type("tokens", form);
    if (!is_token(j, served_.vocabulary())) f.refuse_form("tokens", form);
    tokens.push_back(j.get<int32_t>());
  }
  f.refuse_unknown();
  return json(reply, {{"content", served_.detokenize(tokens)}});
}

}  // namespace tenon::llm::serve
