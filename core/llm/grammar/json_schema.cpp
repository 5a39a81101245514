// SPDX-License-Identifier: Apache-2.0
// Translates JSON schemas.
#include "llm/grammar/json_schema.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "llm/grammar/number_range.hpp"
#include "llm/grammar/regex.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostDepth = 40, kMostJsonDepth = 200;
constexpr int64_t kMostCount = 100'000;
constexpr size_t kMostRules = 20'000;

// Keywords that describe and do not constrain.
const std::set<std::string> kNotes = {"$schema",     "$id",         "$comment", "$defs",
                                      "definitions", "title",       "default",  "examples",
                                      "readOnly",    "description", "format",   "writeOnly",
                                      "deprecated",  "strict",      "$anchor"};

class Translator {
 public:
  explicit Translator(const Json& root) : root_(root) {}

  std::vector<Part> run() {
    check_depth();
    const uint32_t whole = add_rule();
    rules_[whole] = of(root_, "#", 0);
    return std::move(rules_);
  }

 private:
  [[noreturn]] static void fail(const std::string& path, const std::string& what) {
    throw Error(TENON_INVALID_ARGUMENT, "JSON schema, " + path + ": " + what);
  }
  [[noreturn]] static void refuse(const std::string& path, const std::string& keyword) {
    throw Error(TENON_UNSUPPORTED, "JSON schema, " + path + ": '" + keyword + "' is not supported");
  }

  // The JSON library copies and prints values by recursion.
  void check_depth() const {
    std::vector<std::pair<const Json*, int>> pending = {{&root_, 0}};
    while (!pending.empty()) {
      const auto [value, depth] = pending.back();
      pending.pop_back();
      if (depth > kMostJsonDepth) fail("#", "nested too deeply");
      if (value->is_structured())
        for (const Json& each : *value) pending.emplace_back(&each, depth + 1);
    }
  }

  uint32_t add_rule() {
    if (rules_.size() >= kMostRules)
      throw Error(TENON_INVALID_ARGUMENT,
                  "JSON schema: expected at most " + std::to_string(kMostRules) + " rules");
    rules_.emplace_back();
    return static_cast<uint32_t>(rules_.size() - 1);
  }
  Part named(const std::string& name, auto&& make) {
    const auto found = named_.find(name);
    if (found != named_.end()) return rule(found->second);
    const uint32_t index = add_rule();
    named_.emplace(name, index);
    Part made = make();
    rules_[index] = std::move(made);
    return rule(index);
  }

  // A part that is used several times, as a rule unless it is small: nested copies would double at each
  // level.
  Part shared(Part part) {
    if (part->kind == Expression::rule || part->height <= 2) return part;
    const uint32_t index = add_rule();
    rules_[index] = std::move(part);
    return rule(index);
  }

  // Throws for a keyword that none of these lists has.
  static void check_keywords(const Json& schema, const std::string& path,
                             std::initializer_list<const char*> known) {
    for (const auto& item : schema.items())
      if (!kNotes.contains(item.key()) && item.key() != "type" &&
          std::find(known.begin(), known.end(), item.key()) == known.end())
        refuse(path, item.key());
  }

  static int64_t count(const Json& schema, const char* name, int64_t otherwise,
                       const std::string& path) {
    const auto at = schema.find(name);
    if (at == schema.end()) return otherwise;
    const bool fits = at->is_number_integer() && *at >= 0 && *at <= kMostCount;
    if (!fits)
      fail(path, std::string("'") + name + "': expected an integer from 0 to " +
                     std::to_string(kMostCount));
    return at->get<int64_t>();
  }

  // White space between tokens: none, a space, or a new line with an indent.
  Part space() {
    return named("white space", [] {
      return optional(choice({text(" "), sequence({text("\n"), repeat(text(" "), 0, 24)})}));
    });
  }
  Part with_space(std::string_view symbol) { return sequence({text(symbol), space()}); }

  static Part digits(int64_t least, int64_t most) { return repeat(bytes('0', '9'), least, most); }
  Part integer() {
    return named("integer", [] {
      return sequence(
          {optional(text("-")), choice({text("0"), sequence({bytes('1', '9'), digits(0, 15)})})});
    });
  }
  Part number() {
    return named("number", [&] {
      return sequence(
          {integer(), optional(sequence({text("."), digits(1, 16)})),
           optional(sequence({choice({text("e"), text("E")}),
                              optional(choice({text("+"), text("-")})), digits(1, 3)}))});
    });
  }

  // One character in any of its forms; \u without surrogates.
  Part any_char() {
    return named("character", [] {
      const auto hex = choice({bytes('0', '9'), bytes('a', 'f'), bytes('A', 'F')});
      const auto not_d = choice(
          {bytes('0', '9'), bytes('a', 'c'), bytes('A', 'C'), bytes('e', 'f'), bytes('E', 'F')});
      const auto code =
          choice({sequence({not_d, repeat(hex, 3, 3)}),
                  sequence({choice({text("d"), text("D")}), bytes('0', '7'), hex, hex})});
      std::vector<Part> escapes = {sequence({text("u"), code})};
      for (const char c : std::string_view("\"\\/bfnrt")) escapes.push_back(text({&c, 1}));
      return choice({one_of(without({{0x20, kLastChar}}, {{'"', '"'}, {'\\', '\\'}})),
                     sequence({text("\\"), choice(std::move(escapes))})});
    });
  }
  static Part quoted(Part content) {
    return sequence({text("\""), std::move(content), text("\"")});
  }
  Part string() {
    return named("string", [&] { return quoted(repeat(any_char(), 0, -1)); });
  }

  Part list_of(const Part& item, int64_t least, int64_t most) {
    const Part open = with_space("["), close = text("]");
    const Part next = sequence({space(), with_space(","), item});
    std::vector<Part> forms;
    if (least == 0) forms.push_back(sequence({open, close}));
    if (most != 0)
      forms.push_back(sequence(
          {open, item, repeat(next, std::max<int64_t>(least - 1, 0), most < 0 ? -1 : most - 1),
           space(), close}));
    return choice(std::move(forms));
  }

  Part map_of(const Part& value) {
    const Part pair = sequence({string(), space(), with_space(":"), value});
    const Part more = repeat(sequence({space(), with_space(","), pair}), 0, -1);
    return sequence({with_space("{"), optional(sequence({pair, more, space()})), text("}")});
  }

  Part any_value() {
    return named("value", [&] {
      const Part self = rule(named_.at("value"));
      return choice({string(), number(), text("true"), text("false"), text("null"),
                     list_of(self, 0, -1), map_of(self)});
    });
  }

  Part of(const Json& schema, const std::string& path, int depth) {
    if (depth > kMostDepth) fail(path, "nested too deeply");
    if (schema.is_boolean()) return schema.get<bool>() ? any_value() : choice({});
    if (!schema.is_object())
      fail(path, std::string("expected an object, got ") + schema.type_name());
    if (schema.contains("$ref")) return reference(schema, path, depth);
    if (schema.contains("const")) {
      check_keywords(schema, path, {"const"});
      return literal(schema["const"]);
    }
    if (schema.contains("enum")) return values(schema, path);
    for (const char* name : {"anyOf", "oneOf", "allOf"})
      if (schema.contains(name)) return combined(schema, name, path, depth);
    const auto type = schema.find("type");
    if (type == schema.end()) return of_keywords(schema, path, depth);
    if (type->is_string()) return of_type(schema, type->get<std::string>(), path, depth);
    if (!type->is_array()) fail(path, "'type': expected a name or a list of names");
    std::vector<Part> forms;
    for (const Json& each : *type) {
      if (!each.is_string()) fail(path, "'type': expected names");
      forms.push_back(of_type(schema, each.get<std::string>(), path, depth, type->size() > 1));
    }
    return choice(std::move(forms));
  }

  // Without a type, a keyword of one type says which values are meant.
  Part of_keywords(const Json& schema, const std::string& path, int depth) {
    for (const char* name : {"properties", "required", "additionalProperties"})
      if (schema.contains(name)) return of_type(schema, "object", path, depth);
    for (const char* name : {"items", "prefixItems", "minItems", "maxItems"})
      if (schema.contains(name)) return of_type(schema, "array", path, depth);
    for (const char* name : {"pattern", "minLength", "maxLength"})
      if (schema.contains(name)) return of_type(schema, "string", path, depth);
    check_keywords(schema, path, {});
    return any_value();
  }

  // Of several types, each takes the keywords that are its own.
  Part of_type(const Json& schema, const std::string& type, const std::string& path, int depth,
               bool one_of_many = false) {
    static const std::map<std::string, std::vector<std::string>> kOwn = {
        {"string", {"pattern", "minLength", "maxLength"}},
        {"array", {"items", "prefixItems", "minItems", "maxItems"}},
        {"object", {"properties", "required", "additionalProperties"}},
        {"integer", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
        {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
        {"boolean", {}},
        {"null", {}},
    };
    const auto own = kOwn.find(type);
    if (own == kOwn.end()) fail(path, "'type': unknown type '" + type + "'");
    for (const auto& item : schema.items()) {
      const auto is_own = [&](const auto& row) {
        return std::find(row.second.begin(), row.second.end(), item.key()) != row.second.end();
      };
      const bool known = kNotes.contains(item.key()) || item.key() == "type" || is_own(*own) ||
                         (one_of_many && std::any_of(kOwn.begin(), kOwn.end(), is_own));
      if (!known) refuse(path, item.key());
    }
    if (type == "string") return string_of(schema, path);
    if (type == "integer" || type == "number") {
      const NumberRange r = range_of(schema, path);
      if (type == "integer") return r.is_bounded() ? integers(r) : integer();
      return r.is_bounded() ? numbers(r) : number();
    }
    if (type == "boolean") return choice({text("true"), text("false")});
    if (type == "null") return text("null");
    return type == "array" ? array_of(schema, path, depth) : object_of(schema, path, depth);
  }

  static Part literal(const Json& value) {
    return text(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  Part values(const Json& schema, const std::string& path) {
    check_keywords(schema, path, {"enum"});
    const Json& list = schema["enum"];
    if (!list.is_array() || list.empty()) fail(path, "'enum': expected values");
    std::vector<Part> forms;
    for (const Json& value : list) forms.push_back(literal(value));
    return choice(std::move(forms));
  }

  Part combined(const Json& schema, const char* name, const std::string& path, int depth) {
    check_keywords(schema, path, {name});
    const Json& list = schema[name];
    const bool all = std::string_view(name) == "allOf";
    if (!list.is_array() || list.empty())
      fail(path, std::string("'") + name + "': expected schemas");
    if (schema.contains("type")) refuse(path, std::string(name) + "' beside 'type");
    if (all && list.size() > 1)
      throw Error(TENON_UNSUPPORTED,
                  "JSON schema, " + path + ": 'allOf' of several schemas is not supported");
    std::vector<Part> forms;
    for (size_t i = 0; i < list.size(); ++i)
      forms.push_back(of(list[i], path + "/" + name + "/" + std::to_string(i), depth + 1));
    return choice(std::move(forms));
  }

  Part reference(const Json& schema, const std::string& path, int depth) {
    check_keywords(schema, path, {"$ref"});
    const Json& ref = schema["$ref"];
    const std::string target = ref.is_string() ? ref.get<std::string>() : std::string();
    if (!target.starts_with('#')) fail(path, "'$ref': expected a place in this schema ('#/...')");
    const Json* found = nullptr;
    try {
      found = &root_.at(Json::json_pointer(target.substr(1)));
    } catch (const Json::exception&) {
      fail(path, "'$ref': nothing is at '" + target.substr(0, 200) + "'");
    }
    if (found == &root_) return rule(0);
    // A new path: only references that are still open can nest without end, and these are rules already.
    return named("$ref " + target, [&] { return of(*found, target, depth + 1); });
  }

  Part string_of(const Json& schema, const std::string& path) {
    const int64_t least = count(schema, "minLength", 0, path);
    const int64_t most = count(schema, "maxLength", -1, path);
    if (most >= 0 && most < least) fail(path, "'maxLength' is below 'minLength'");
    const auto pattern = schema.find("pattern");
    if (pattern == schema.end())
      return least == 0 && most < 0 ? string() : quoted(repeat(any_char(), least, most));
    if (!pattern->is_string()) fail(path, "'pattern': expected a string");
    if (least > 0 || most >= 0) refuse(path, "pattern' beside 'minLength' or 'maxLength");
    return quoted(regex_in_json_string(pattern->get<std::string>()));
  }

  static NumberRange range_of(const Json& schema, const std::string& path) {
    NumberRange out;
    const auto read = [&](const char* name, double sign, bool open, double& bound, bool& is_open) {
      const auto at = schema.find(name);
      if (at == schema.end()) return;
      if (!at->is_number()) fail(path, std::string("'") + name + "': expected a number");
      const double v = at->get<double>();
      if (sign * v < sign * bound || (v == bound && is_open)) return;
      bound = v, is_open = open;
    };
    read("minimum", 1, false, out.low, out.low_open);
    read("exclusiveMinimum", 1, true, out.low, out.low_open);
    read("maximum", -1, false, out.high, out.high_open);
    read("exclusiveMaximum", -1, true, out.high, out.high_open);
    return out;
  }

  Part array_of(const Json& schema, const std::string& path, int depth) {
    if (schema.contains("prefixItems")) refuse(path, "prefixItems");
    const int64_t least = count(schema, "minItems", 0, path);
    const int64_t most = count(schema, "maxItems", -1, path);
    if (most >= 0 && most < least) fail(path, "'maxItems' is below 'minItems'");
    const auto items = schema.find("items");
    return list_of(
        items == schema.end() ? any_value() : shared(of(*items, path + "/items", depth + 1)), least,
        most);
  }

  Part object_of(const Json& schema, const std::string& path, int depth) {
    const auto more = schema.find("additionalProperties");
    const Json properties = schema.value("properties", Json::object());
    const Json required = schema.value("required", Json::array());
    if (!properties.is_object()) fail(path, "'properties': expected an object");
    if (!required.is_array()) fail(path, "'required': expected a list of names");
    std::set<std::string> needed;
    for (const Json& name : required) {
      if (!name.is_string()) fail(path, "'required': expected a list of names");
      needed.insert(name.get<std::string>());
    }
    struct Member {
      Part pair;
      bool needed;
    };
    std::vector<Member> members;
    const auto add = [&](const std::string& name, Part value) {
      members.push_back(
          {sequence({literal(name), space(), with_space(":"), shared(std::move(value))}),
           needed.erase(name) > 0});
    };
    for (const auto& item : properties.items())
      add(item.key(), of(item.value(), path + "/properties/" + item.key(), depth + 1));
    const bool open = more == schema.end() || !more->is_boolean() || more->get<bool>();
    const Part other = more == schema.end() || more->is_boolean()
                           ? any_value()
                           : shared(of(*more, path + "/additionalProperties", depth + 1));
    if (members.empty() && needed.empty())
      return open ? map_of(other) : sequence({with_space("{"), text("}")});
    for (const std::string& name : std::set<std::string>(needed))
      add(name, open ? other : choice({}));
    // rest[e]: what may follow a member; e says whether one was written before.
    Part rest[2] = {text("}"), sequence({space(), text("}")})};
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
      Part both[2];
      for (const bool before : {false, true}) {
        const Part pair =
            before ? sequence({space(), with_space(","), member->pair}) : member->pair;
        const Part taken = sequence({pair, rest[1]});
        const Part form = member->needed ? taken : choice({taken, rest[before]});
        const uint32_t index = add_rule();
        rules_[index] = form;
        both[before] = rule(index);
      }
      rest[0] = both[0];
      rest[1] = both[1];
    }
    return sequence({with_space("{"), rest[0]});
  }

  const Json& root_;
  std::vector<Part> rules_;
  std::map<std::string, uint32_t> named_;
};

}  // namespace

std::vector<Part> json_schema(const nlohmann::ordered_json& schema) {
  return Translator(schema).run();
}

}  // namespace tenon::llm
