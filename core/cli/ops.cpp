// SPDX-License-Identifier: Apache-2.0
// tenon ops: lists the ops.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/terminal.hpp"

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

// Attributes that accept words or dtypes, with what they accept.
std::vector<Attribute> attributes_with_values(const OpEntry& op) {
  std::vector<Attribute> out;
  for (const std::string& part : split(op.values, ' ')) {
    const size_t equals = std::min(part.find('='), part.size() - 1);
    out.push_back({part.substr(0, equals), split(std::string_view(part).substr(equals + 1), '|')});
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
  open_runtime(args);  // plugins register ops
  std::vector<OpEntry> all = list_ops();
  if (args.words().empty()) return all;
  const std::string& name = args.words()[0];
  std::vector<std::string_view> names;
  std::vector<std::string> full;
  for (const OpEntry& o : all) full.push_back(o.full_name());
  names.assign(full.begin(), full.end());
  if (std::ranges::find(names, name) == names.end())
    throw UsageError("there is no op '" + name + "'" + did_you_mean(name, names));
  std::erase_if(all, [&](const OpEntry& o) { return o.full_name() != name; });
  return all;
}

void print_json(const std::vector<OpEntry>& ops) {
  nlohmann::json j = nlohmann::json::array();
  for (const OpEntry& o : ops) {
    nlohmann::json values = nlohmann::json::object();
    for (const Attribute& a : attributes_with_values(o)) values[a.name] = a.values;
    j.push_back({{"domain", o.domain},
                 {"name", o.name},
                 {"version", o.version},
                 {"family", o.family},
                 {"level", o.level},
                 {"signature", o.signature},
                 {"values", values},
                 {"gradient", o.has_gradient},
                 {"decomposition", o.has_decomposition},
                 {"origin", o.origin}});
  }
  std::cout << j.dump(2) << "\n";
}

void print_markdown(const std::vector<OpEntry>& ops) {
  std::cout << "| family | op | values | level | gradient | decomposition |\n"
               "| --- | --- | --- | --- | --- | --- |\n";
  for (const OpEntry& o : ops) {
    std::string values;
    for (const Attribute& a : attributes_with_values(o))
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
  // A pipe gets whole lines, which can be searched.
  const size_t columns = isatty(STDOUT_FILENO) ? terminal_width(STDOUT_FILENO) : std::string::npos;
  const auto line = [&](const std::string& text, size_t indent, size_t hang) {
    std::cout << std::string(indent, ' ') << wrapped(text, columns, hang, indent) << "\n";
  };
  std::string family;
  for (const OpEntry& o : wanted) {
    if (o.family != family) std::cout << (family.empty() ? "" : "\n") << o.family << "\n";
    family = o.family;
    line(o.signature, 2, 6);
    for (const Attribute& a : attributes_with_values(o))
      line(a.name + ": " + joined(a.values), 6, 10);
    line(o.level + ", version " + std::to_string(o.version) + ", gradient " +
             (o.has_gradient ? "yes" : "-") + ", decomposition " +
             (o.has_decomposition ? "yes" : "-") +
             (o.domain == "tenon" ? "" : ", of plugin " + o.origin),
         6, 6);
  }
  return 0;
}

}  // namespace

Command ops_command() {
  return {.name = "ops",
          .summary = "list the ops, of tenon and of plugins: operands, attributes, outputs",
          .usage = "[OP] [--markdown | --json]",
          .options = {{.name = "--markdown", .help = "print a Markdown table"},
                      {.name = "--json", .help = "print JSON"}},
          .examples = "tenon ops\ntenon ops reduce\ntenon ops --markdown > ops.md\n",
          .words = 1,
          .opens_device = false,
          .run = ops};
}

}  // namespace tenon::cli
