// SPDX-License-Identifier: Apache-2.0
// Reads requests. Names, forms and ranges are those of OpenAI's reference; top_k, min_p,
// repetition_penalty and ignore_eos are what other servers added to it.
#include "llm/serve/request.hpp"

#include <algorithm>
#include <cstdlib>

#include "llm/json_text.hpp"
#include "llm/serve/fields.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::serve {
namespace {

constexpr int kDepth = 64;        // of the body's JSON
constexpr size_t kKeys = 16'384;  // in its objects; finding one takes time for each of its object
constexpr int64_t kAnswers = 16;  // "n", and prompts of one request
constexpr size_t kStops = 16, kStopBytes = 1024;
constexpr int64_t kTopLogprobs = 20;
constexpr size_t kInputs = 2048;  // of one request for embeddings

std::vector<int32_t> token_list(Fields& f, const std::string& name, const Json& list,
                                int64_t vocabulary) {
  const std::string form = "token ids from 0 to " + std::to_string(vocabulary - 1);
  std::vector<int32_t> tokens;
  tokens.reserve(list.size());
  for (const Json& j : list) {
    if (!j.is_number_integer()) f.refuse_type(name, form);
    if (!is_token(j, vocabulary)) f.refuse_form(name, form);
    tokens.push_back(j.get<int32_t>());
  }
  return tokens;
}

// A string, a list of strings, a list of tokens, or a list of lists of tokens.
std::vector<Prompt> prompts_of(Fields& f, const std::string& name, int64_t vocabulary) {
  constexpr const char* kForm = "a string, a list of strings, or a list of token ids";
  const Json& j = f.need(name, kForm);
  if (j.is_string()) return {j.get<std::string>()};
  if (!j.is_array()) f.refuse_type(name, kForm);
  if (j.empty()) f.refuse_form(name, kForm, "empty_array");
  if (j[0].is_number()) return {token_list(f, name, j, vocabulary)};
  std::vector<Prompt> prompts;
  for (const Json& part : j) {
    if (part.is_string())
      prompts.emplace_back(part.get<std::string>());
    else if (part.is_array())
      prompts.emplace_back(token_list(f, name, part, vocabulary));
    else
      f.refuse_type(name, kForm);
  }
  return prompts;
}

void read_bias(Fields& f, Drawing& drawing, int64_t vocabulary) {
  const Json* bias = f.find("logit_bias");
  if (!bias) return;
  constexpr const char* kForm = "an object of numbers from -100 to 100 by token id";
  if (!bias->is_object()) f.refuse_type("logit_bias", kForm);
  if (bias->size() > 1024) f.refuse_form("logit_bias", kForm);
  for (const auto& [key, value] : bias->items()) {
    char* end = nullptr;
    const long long id = std::strtoll(key.c_str(), &end, 10);
    const bool is_id =
        !key.empty() && key[0] >= '0' && key[0] <= '9' && *end == 0 && id < vocabulary;
    if (!is_id) f.refuse_form("logit_bias", kForm);
    if (!value.is_number()) f.refuse_type("logit_bias", kForm);
    const double b = value.get<double>();
    if (!(b >= -100 && b <= 100)) f.refuse_form("logit_bias", kForm);
    drawing.bias.emplace_back(static_cast<int32_t>(id), b);
  }
}

void read_stop(Fields& f, std::vector<std::string>& stop) {
  const Json* j = f.find("stop");
  if (!j) return;
  const std::string form =
      "a text that is not empty, or a list of up to " + std::to_string(kStops) + " of them";
  if (j->is_string())
    stop.push_back(j->get<std::string>());
  else if (!j->is_array())
    f.refuse_type("stop", form);
  else if (j->size() > kStops)
    f.refuse_form("stop", form, "array_above_max_length");
  else
    for (const Json& s : *j) {
      if (!s.is_string()) f.refuse_type("stop", form);
      stop.push_back(s.get<std::string>());
    }
  for (const std::string& s : stop) {
    if (s.empty()) f.refuse_form("stop", form);
    if (s.size() > kStopBytes)
      f.refuse_value("stop", "a text has at most " + std::to_string(kStopBytes) + " bytes",
                     "string_above_max_length");
  }
}

// "response_format"
void read_format(Fields& f, Wanted& wanted) {
  const Json* j = f.find("response_format");
  if (!j) return;
  Fields format(*j, "response_format");
  const std::string type = format.choice("type", {"text", "json_object", "json_schema"},
                                         "text, json_object or json_schema");
  if (type == "json_object") {
    wanted.schema = Json{{"type", "object"}};
  } else if (type == "json_schema") {
    Fields schema(format.need("json_schema", "an object"), "response_format.json_schema");
    wanted.schema = schema.need("schema", "a JSON schema");
    if (!wanted.schema.is_object()) schema.refuse_type("schema", "an object");
    schema.ignore({"name", "description", "strict"});
    schema.refuse_unknown();
  }
  format.refuse_unknown();
}

void read_common(Fields& f, AnswerRequest& r, int64_t vocabulary) {
  r.model = f.text("model", "");
  r.count = f.integer("n", 1, 1, kAnswers);
  r.stream = f.flag("stream", false);
  if (const Json* options = f.find("stream_options")) {
    if (!r.stream) f.refuse_value("stream_options", "only with stream: true");
    Fields o(*options, "stream_options");
    r.usage_in_stream = o.flag("include_usage", false);
    o.ignore({"include_obfuscation"});
    o.refuse_unknown();
  }
  Drawing& d = r.wanted.drawing;
  d.temperature = f.number("temperature", 1, 0, 2);
  d.top_p = f.number("top_p", 1, 0, 1);
  d.top_k = f.integer("top_k", 0, -1, INT32_MAX);
  if (d.top_k < 0) d.top_k = 0;
  d.min_p = f.number("min_p", 0, 0, 1);
  d.repetition_penalty = f.number("repetition_penalty", 1, 0.01, 100);
  d.presence_penalty = f.number("presence_penalty", 0, -2, 2);
  d.frequency_penalty = f.number("frequency_penalty", 0, -2, 2);
  if (f.find("seed")) d.seed = static_cast<uint64_t>(f.integer("seed", 0, INT64_MIN, INT64_MAX));
  read_bias(f, d, vocabulary);
  read_stop(f, r.wanted.stop);
  read_format(f, r.wanted);
  r.wanted.ignore_end = f.flag("ignore_eos", false);
  // Names of the user and of bookkeeping, and levels of a service that exists only there.
  f.ignore({"user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"});
}

// References of a schema begin at its root; `root` is its place in another schema. names: the keys are
// names, not keywords.
void move_references(Json& schema, const std::string& root, bool names = false) {
  if (schema.is_array())
    for (Json& each : schema) move_references(each, root);
  if (!schema.is_object()) return;
  for (auto& [key, value] : schema.items()) {
    if (names) {
      move_references(value, root);
    } else if (key == "$ref" && value.is_string()) {
      if (const std::string to = value.get<std::string>(); to.starts_with('#'))
        value = root + to.substr(1);
    } else if (key != "const" && key != "enum" && key != "default" && key != "examples") {
      move_references(value, root, key == "properties" || key == "$defs" || key == "definitions");
    }
  }
}

// The schema of the arguments of a function, which are an object.
Json arguments_schema(Fields& f, const Json& function) {
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || parameters->is_null())
    return {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
  Json schema = *parameters;
  if (const auto type = schema.find("type"); type != schema.end()) {
    const Json types = type->is_array() ? *type : Json::array({*type});
    if (std::find(types.begin(), types.end(), "object") == types.end())
      f.refuse_value("tools",
                     "the parameters of '" + function["name"].get<std::string>().substr(0, 80) +
                         "' must have the type \"object\"",
                     "invalid_function_parameters");
    *type = "object";
  } else if (std::ranges::none_of(std::initializer_list<const char*>{"$ref", "anyOf", "oneOf",
                                                                     "allOf", "const", "enum"},
                                  [&](const char* key) { return schema.contains(key); })) {
    schema["type"] = "object";
  }
  return schema;
}

// The schema of a call of one of the tools, as ToolParser reads it. name: of the only one that may be
// called; empty: any.
Json call_schema(Fields& f, const Json& tools, const std::string& name) {
  Json calls = Json::array();
  for (const Json& tool : tools.is_array() ? tools : Json::array()) {
    const Json& function = tool["function"];
    if (!name.empty() && function["name"] != name) continue;
    Json arguments = arguments_schema(f, function);
    move_references(arguments, "#/anyOf/" + std::to_string(calls.size()) + "/properties/arguments");
    calls.push_back(
        {{"type", "object"},
         {"properties", {{"name", {{"const", function["name"]}}}, {"arguments", arguments}}},
         {"required", {"name", "arguments"}},
         {"additionalProperties", false}});
  }
  if (calls.empty())
    f.refuse_value("tool_choice",
                   name.empty() ? "there are no tools" : "no tool '" + name.substr(0, 80) + "'");
  return {{"anyOf", std::move(calls)}};
}

Json tools_of(Fields& f, Wanted& wanted) {
  Json tools = nullptr;
  if (const Json* t = f.find("tools")) {
    if (!t->is_array()) f.refuse_type("tools", "a list");
    for (const Json& tool : *t) {
      Fields one(tool, "tools");
      one.choice("type", {"function"}, "function");
      Fields function(one.need("function", "an object"), "tools.function");
      function.need_text("name");
      if (const Json* p = function.find("parameters"); p && !p->is_object())
        function.refuse_type("parameters", "an object");
    }
    if (!t->empty()) tools = *t;
  }
  f.ignore({"parallel_tool_calls"});
  const Json* choice = f.find("tool_choice");
  if (!choice || *choice == "auto") return tools;
  if (*choice == "none") return nullptr;
  if (!choice->is_object() && *choice != "required") {
    constexpr const char* kForm = "\"auto\", \"none\", \"required\" or an object with a function";
    if (!choice->is_string()) f.refuse_type("tool_choice", kForm);
    f.refuse_form("tool_choice", kForm, "invalid_value");
  }
  std::string name;
  if (choice->is_object()) {
    Fields one(*choice, "tool_choice");
    one.choice("type", {"function"}, "function");
    Fields function(one.need("function", "an object"), "tool_choice.function");
    name = function.need_text("name");
    function.refuse_unknown();
    one.refuse_unknown();
  }
  if (!wanted.schema.is_null())
    f.refuse_value("tool_choice", "a call is wanted, so no response_format but text");
  wanted.schema = call_schema(f, tools, name);
  return tools;
}

// Clients send the arguments of calls as a text of JSON; templates want the object.
void read_arguments(Json& calls) {
  if (!calls.is_array()) return;
  for (Json& call : calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    Json& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    try {
      Json object = parse_json(arguments->get<std::string>(), "arguments");
      if (object.is_object()) *arguments = std::move(object);
    } catch (const Error&) {  // a text that is no JSON stays a text
    }
  }
}

// Messages go to the model's template as they are, but for contents in parts, which templates of
// text models do not know: their texts are joined.
Json messages_of(Fields& f) {
  constexpr const char* kForm = "a list of at least one message";
  Json messages = f.need("messages", kForm);
  if (!messages.is_array()) f.refuse_type("messages", kForm);
  if (messages.empty()) f.refuse_form("messages", kForm, "empty_array");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string where = "messages[" + std::to_string(i) + "]";
    Fields m(messages[i], where);
    m.need_text("role");
    if (const auto calls = messages[i].find("tool_calls"); calls != messages[i].end())
      read_arguments(*calls);
    const Json* content = m.find("content");
    if (!content || content->is_string()) continue;
    if (!content->is_array()) m.refuse_type("content", "a text or a list of parts");
    std::string joined;
    for (const Json& part : *content) {
      Fields p(part, where + ".content");
      p.choice("type", {"text"}, "\"text\": parts of other types are not supported");
      joined += p.text("text", "");
    }
    messages[i]["content"] = joined;
  }
  return messages;
}

}  // namespace

bool is_token(const Json& j, int64_t vocabulary) {
  if (!j.is_number_integer()) return false;
  return j.is_number_unsigned() ? j.get<uint64_t>() < static_cast<uint64_t>(vocabulary)
                                : j.get<int64_t>() >= 0 && j.get<int64_t>() < vocabulary;
}

Json error_json(const HttpError& e) {
  // A wrong key, model or path is an invalid request, too: only the status and the code differ.
  const char* type = e.status == 429   ? "rate_limit_error"
                     : e.status >= 500 ? "server_error"
                                       : "invalid_request_error";
  return {{"error",
           {{"message", e.message},
            {"type", type},
            {"param", e.param.empty() ? Json(nullptr) : Json(e.param)},
            {"code", e.code.empty() ? Json(nullptr) : Json(e.code)}}}};
}

Json parse_body(const std::string& body) {
  const JsonSize size = json_size(body);
  if (size.depth > kDepth)
    throw HttpError{400, "the body is nested deeper than " + std::to_string(kDepth)};
  if (size.keys > kKeys)
    throw HttpError{400, "the body has more than " + std::to_string(kKeys) + " keys"};
  Json json;
  try {
    json = Json::parse(body);
  } catch (const Json::exception& e) {
    throw HttpError{400, std::string("the body is not JSON: ") + e.what()};
  }
  if (!json.is_object()) throw HttpError{400, "the body must be a JSON object"};
  return json;
}

CompletionRequest completion_request(const Json& body, int64_t vocabulary) {
  Fields f(body, "");
  CompletionRequest r;
  read_common(f, r, vocabulary);
  r.prompts = prompts_of(f, "prompt", vocabulary);
  if (static_cast<int64_t>(r.prompts.size()) * r.count > kAnswers)
    f.refuse_value("prompt", "at most " + std::to_string(kAnswers) + " answers in one request");
  r.wanted.tokens = f.integer("max_tokens", 16, 0, INT32_MAX);
  r.wanted.logprobs = f.integer("logprobs", -1, 0, kTopLogprobs);
  r.echo = f.flag("echo", false);
  if (r.echo && r.wanted.logprobs >= 0)
    f.refuse_value("echo", "logprobs of the prompt are not supported", "unsupported_value");
  if (f.integer("best_of", r.count, 1, kAnswers) != r.count)
    f.refuse_value("best_of", "only the value of n is supported", "unsupported_value");
  if (!f.text("suffix", "").empty())
    f.refuse_value("suffix", "not supported", "unsupported_parameter");
  f.refuse_unknown();
  return r;
}

EmbeddingsRequest embeddings_request(const Json& body, int64_t vocabulary, int64_t dim) {
  Fields f(body, "");
  EmbeddingsRequest r;
  r.model = f.text("model", "");
  r.inputs = prompts_of(f, "input", vocabulary);
  if (r.inputs.size() > kInputs)
    f.refuse_value("input",
                   "at most " + std::to_string(kInputs) + " inputs in one request, got " +
                       std::to_string(r.inputs.size()),
                   "array_above_max_length");
  for (const Prompt& p : r.inputs)
    if (std::visit([](const auto& content) { return content.empty(); }, p))
      f.refuse_value("input", "an input must not be empty");
  r.base64 = f.choice("encoding_format", {"float", "base64"}, "\"float\" or \"base64\"", "float") ==
             "base64";
  r.dimensions = f.integer("dimensions", 0, 1, dim);
  f.ignore({"user"});
  f.refuse_unknown();
  return r;
}

ChatRequest chat_request(const Json& body, int64_t vocabulary) {
  Fields f(body, "");
  ChatRequest r;
  read_common(f, r, vocabulary);
  r.messages = messages_of(f);
  r.tools = tools_of(f, r.wanted);
  if (const Json* m = f.find("modalities"); m && *m != Json::array({"text"}))
    f.refuse_value("modalities", "only text is supported", "unsupported_value");
  // Without a value these ask for nothing.
  f.ignore_null(
      {"audio", "function_call", "functions", "prediction", "verbosity", "web_search_options"});
  const int64_t old_name = f.integer("max_tokens", -1, 1, INT32_MAX);
  r.wanted.tokens = f.integer("max_completion_tokens", old_name, 1, INT32_MAX);
  const bool logprobs = f.flag("logprobs", false);
  r.wanted.logprobs = f.integer("top_logprobs", 0, 0, kTopLogprobs);
  if (!logprobs) {
    if (r.wanted.logprobs > 0) f.refuse_value("top_logprobs", "only with logprobs: true");
    r.wanted.logprobs = -1;
  }
  const Json* variables = f.find("chat_template_kwargs");
  if (variables && !variables->is_object()) f.refuse_type("chat_template_kwargs", "an object");
  r.variables = variables ? *variables : Json::object();
  if (const Json* effort = f.find("reasoning_effort")) r.variables["reasoning_effort"] = *effort;
  f.refuse_unknown();
  return r;
}

}  // namespace tenon::llm::serve
