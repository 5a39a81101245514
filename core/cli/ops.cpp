// SPDX-License-Identifier: Apache-2.0
// tenon ops: the table of ops, from the records.
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"

namespace tenon::cli {
namespace {

int ops(const Args& args) {
  args.refuse({"--device", "--threads", "--plugin", "--plugin-dir"},
              "the ops are the same on every device; nothing is loaded");
  if (args.has("--json") && args.has("--markdown"))
    throw UsageError("--json and --markdown exclude each other");
  const std::vector<OpEntry> all = list_ops();
  if (args.has("--json")) {
    nlohmann::json j = nlohmann::json::array();
    for (const OpEntry& o : all)
      j.push_back({{"domain", o.domain},
                   {"name", o.name},
                   {"version", o.version},
                   {"family", o.family},
                   {"level", o.level},
                   {"signature", o.signature},
                   {"gradient", o.has_gradient},
                   {"decomposition", o.has_decomposition}});
    std::cout << j.dump(2) << "\n";
    return 0;
  }
  const bool markdown = args.has("--markdown");
  if (markdown)
    std::cout
        << "| family | op | level | gradient | decomposition |\n| --- | --- | --- | --- | --- |\n";
  std::string family;
  for (const OpEntry& o : all) {
    const char* gradient = o.has_gradient ? "yes" : "-";
    const char* decomposition = o.has_decomposition ? "yes" : "-";
    if (markdown) {
      std::cout << "| " << o.family << " | `" << o.signature << "` | " << o.level << " | "
                << gradient << " | " << decomposition << " |\n";
      continue;
    }
    if (o.family != family) std::cout << (family.empty() ? "" : "\n") << o.family << "\n";
    family = o.family;
    std::cout << "  " << o.signature << "\n      " << o.level << ", version " << o.version
              << ", gradient " << gradient << ", decomposition " << decomposition << "\n";
  }
  return 0;
}

}  // namespace

Command ops_command() {
  return {.name = "ops",
          .summary = "list the ops, their operands, attributes and outputs",
          .usage = "[--markdown | --json]",
          .options = {{"--markdown", "", "as a Markdown table"}, {"--json", "", "as JSON"}},
          .examples = "  tenon ops\n  tenon ops --markdown > ops.md\n",
          .run = ops};
}

}  // namespace tenon::cli
