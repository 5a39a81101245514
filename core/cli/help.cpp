// SPDX-License-Identifier: Apache-2.0
// Writes the help of options, commands and the command line as a whole.
#include "cli/help.hpp"

#include <algorithm>

#include "cli/terminal.hpp"

namespace tenon::cli {
namespace {

constexpr size_t kLeast = 40;  // minimum width of a help text

// "  left    right", with a wrapped right column.
struct Row {
  std::string left, right;
};
std::string table(const std::vector<Row>& rows, size_t columns) {
  constexpr size_t kGap = 2;
  size_t width = 0;
  for (const Row& r : rows) width = std::max(width, r.left.size());
  // On a narrow terminal, the right column goes below the left one.
  const bool below = width + 2 * kGap + kLeast / 2 > columns;
  const size_t indent = below ? 3 * kGap : width + 2 * kGap;
  std::string text;
  for (const Row& r : rows) {
    std::string left = std::string(kGap, ' ') + r.left;
    if (below)
      left += "\n" + std::string(indent, ' ');
    else
      left.resize(indent, ' ');
    text += left + wrapped(r.right, columns, indent, indent) + "\n";
  }
  return text;
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view w : words) text += (text.empty() ? "" : ", ") + std::string(w);
  return text;
}

Row row_of(const Option& o) {
  Row row{std::string(o.name), std::string(o.help)};
  if (o.name == "--help") row.left = "-h, --help";
  if (!o.value.empty()) row.left += " " + std::string(o.value);
  if (!o.choices.empty()) row.right += ": " + joined(o.choices);
  if (!o.otherwise.empty()) row.right += " [" + std::string(o.otherwise) + "]";
  return row;
}

std::string options_help(const std::vector<Option>& options, size_t columns) {
  std::vector<Row> rows;
  for (const Option& o : options) rows.push_back(row_of(o));
  return table(rows, columns);
}

std::string invocation(const Command& c) {
  return "tenon " + std::string(c.name) + (c.usage.empty() ? "" : " ") + std::string(c.usage);
}

}  // namespace

std::string overview(size_t columns, std::string_view group) {
  columns = std::max(columns, kLeast);
  std::vector<Row> commands;
  for (const Command& c : all_commands())
    if (c.name.starts_with(group))
      commands.push_back({std::string(c.name), std::string(c.summary)});
  return "tenon: runs and trains tensor programs on plugin backends\n\nusage: tenon COMMAND "
         "[options]\n\ncommands:\n" +
         table(commands, columns) + "\n" +
         table({{"tenon help COMMAND", "options and examples of a command (or COMMAND --help)"},
                {"-h, --help", "print this help"},
                {"-V, --version", "versions of the program, the backend ABI and the host API"}},
               columns);
}

std::string help_of(const Command& c, size_t columns) {
  columns = std::max(columns, kLeast);
  std::vector<Option> all = options_of(c);
  const auto own = all.begin() + static_cast<ptrdiff_t>(c.options.size());
  const std::vector<Option> common(own, all.end());
  const std::string title = "tenon " + std::string(c.name) + ": " + std::string(c.summary);
  std::string text = wrapped(title, columns, 0, 0) +
                     "\n\nusage: " + wrapped(invocation(c), columns, 4, 7) + "\n\n";
  if (!c.options.empty()) text += "options:\n" + options_help(c.options, columns) + "\n";
  text += "common options:\n" + options_help(common, columns);
  if (c.examples.empty()) return text;
  text += "\nexamples:\n";
  for (size_t at = 0; at < c.examples.size();) {
    const size_t end = std::min(c.examples.find('\n', at), c.examples.size());
    // not wrapped, so that it can be copied
    text += "  " + std::string(c.examples.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return text;
}

std::string usage_of(const Command& c) {
  return "usage: " + invocation(c) + "\nfor its options and examples: tenon " +
         std::string(c.name) + " --help\n";
}

}  // namespace tenon::cli
