// SPDX-License-Identifier: Apache-2.0
// tenon ops: the table of ops, from the records.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"

namespace tenon::cli {
namespace {

struct Attribute {
  std::string name;
  std::vector<std::string> values{};  // the allowed ones
};

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(at), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string_view between(std::string_view text, char open, char close) {
  const size_t begin = text.find(open), end = text.find(close, begin);
  if (begin == text.npos || end == text.npos) return {};
  return text.substr(begin + 1, end - begin - 1);
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// The words that an attribute takes. An op's shape rule names them when it is given another one, so
// that there is no second list of them.
std::vector<std::string> allowed_values(const OpEntry& op, const std::string& attribute) {
  std::string inputs, operands;
  for (const std::string& part : split(between(op.signature, '(', ')'), ',')) {
    std::string name(trimmed(part));
    const bool optional = name.ends_with('?');
    if (name.ends_with("...")) name.resize(name.size() - 3);
    if (!optional) inputs += "  input " + name + ": f32[4,4,4,4]\n";
    operands += (operands.empty() ? "" : ", ") + (optional ? "_" : name);
  }
  const std::string text = "graph {\n" + inputs + "  y = " + op.name + "(" + operands + ") {" +
                           attribute + "=\"?\"}\n}\n";
  try {
    static_cast<void>(Graph::parse(text));
  } catch (const Error& e) {
    const std::string message = e.what(), begin = "attribute " + attribute + ": expected one of ";
    const size_t at = message.find(begin), end = message.find(", given '?'");
    if (at == message.npos || end == message.npos) return {};
    return split(std::string_view(message).substr(at + begin.size(), end - at - begin.size()), ' ');
  }
  return {};
}

// Those that take words: their default is one, or they have none.
std::vector<Attribute> word_attributes(const OpEntry& op) {
  std::vector<Attribute> out;
  for (const std::string& part : split(between(op.signature, '{', '}'), ',')) {
    const std::string_view text = trimmed(part);
    const size_t equals = text.find('=');
    if (equals == text.npos || (text.substr(equals + 1) != "?" && text[equals + 1] != '"'))
      continue;
    Attribute a{std::string(text.substr(0, equals))};
    a.values = allowed_values(op, a.name);
    if (!a.values.empty()) out.push_back(std::move(a));
  }
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : " ") + w;
  return text;
}

// All, or those that the command line names.
std::vector<OpEntry> wanted_ops(const Args& args) {
  std::vector<OpEntry> all = list_ops();
  if (args.words().empty()) return all;
  const std::string& name = args.words()[0];
  std::vector<std::string_view> names;
  for (const OpEntry& o : all) names.push_back(o.name);
  if (std::ranges::find(names, name) == names.end())
    throw UsageError("there is no op '" + name + "'" + did_you_mean(name, names));
  std::erase_if(all, [&](const OpEntry& o) { return o.name != name; });
  return all;
}

void print_json(const std::vector<OpEntry>& ops) {
  nlohmann::json j = nlohmann::json::array();
  for (const OpEntry& o : ops) {
    nlohmann::json values = nlohmann::json::object();
    for (const Attribute& a : word_attributes(o)) values[a.name] = a.values;
    j.push_back({{"domain", o.domain},
                 {"name", o.name},
                 {"version", o.version},
                 {"family", o.family},
                 {"level", o.level},
                 {"signature", o.signature},
                 {"values", values},
                 {"gradient", o.has_gradient},
                 {"decomposition", o.has_decomposition}});
  }
  std::cout << j.dump(2) << "\n";
}

void print_markdown(const std::vector<OpEntry>& ops) {
  std::cout << "| family | op | values | level | gradient | decomposition |\n"
               "| --- | --- | --- | --- | --- | --- |\n";
  for (const OpEntry& o : ops) {
    std::string values;
    for (const Attribute& a : word_attributes(o))
      values += (values.empty() ? "" : "; ") + a.name + ": " + joined(a.values);
    std::cout << "| " << o.family << " | `" << o.signature << "` | " << values << " | " << o.level
              << " | " << (o.has_gradient ? "yes" : "-") << " | "
              << (o.has_decomposition ? "yes" : "-") << " |\n";
  }
}

int ops(const Args& args) {
  if (args.has("--json") && args.has("--markdown"))
    throw UsageError("--json and --markdown exclude each other");
  const std::vector<OpEntry> wanted = wanted_ops(args);
  if (args.has("--json")) {
    print_json(wanted);
    return 0;
  }
  if (args.has("--markdown")) {
    print_markdown(wanted);
    return 0;
  }
  std::string family;
  for (const OpEntry& o : wanted) {
    if (o.family != family) std::cout << (family.empty() ? "" : "\n") << o.family << "\n";
    family = o.family;
    std::cout << "  " << o.signature << "\n";
    for (const Attribute& a : word_attributes(o))
      std::cout << "      " << a.name << ": " << joined(a.values) << "\n";
    std::cout << "      " << o.level << ", version " << o.version << ", gradient "
              << (o.has_gradient ? "yes" : "-") << ", decomposition "
              << (o.has_decomposition ? "yes" : "-") << "\n";
  }
  return 0;
}

}  // namespace

Command ops_command() {
  return {.name = "ops",
          .summary = "list the ops, their operands, attributes and outputs",
          .usage = "[OP] [--markdown | --json]",
          .options = {{.name = "--markdown", .help = "print a Markdown table"},
                      {.name = "--json", .help = "print JSON"}},
          .examples = "tenon ops\ntenon ops reduce\ntenon ops --markdown > ops.md\n",
          .words = 1,
          .loads_plugins = false,
          .opens_device = false,
          .run = ops};
}

}  // namespace tenon::cli
