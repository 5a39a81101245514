// SPDX-License-Identifier: Apache-2.0
// The `tenon` command: finds the subcommand, parses, runs, turns exceptions into messages and exit
// statuses.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "cli/help.hpp"
#include "cli/interrupt.hpp"
#include "cli/terminal.hpp"
#include "cli/watch.hpp"

namespace tenon::cli {
namespace {

using Words = std::vector<std::string>;

bool is_version(const std::string& word) { return word == "--version" || word == "-V"; }

int print_versions() {
  const auto pair = [](uint32_t v) {
    return std::to_string(v >> 16) + "." + std::to_string(v & 0xFFFF);
  };
  std::cout << "tenon " << version() << "\nbackend ABI " << pair(tenon_abi_version())
            << "\nhost API " << pair(tenon_api_version()) << "\n";
  return 0;
}

// The command at the start of the words, and the number of words in its name.
struct Found {
  const Command* command = nullptr;
  size_t words = 0;
};
Found find_command(const Words& words) {
  for (const Command& c : all_commands()) {
    if (!words.empty() && c.name == words[0]) return {&c, 1};
    if (words.size() > 1 && c.name == words[0] + " " + words[1]) return {&c, 2};
  }
  return {};
}

// A first word that several commands share: "lm".
bool is_group(const std::string& word) {
  return std::ranges::any_of(all_commands(), [&](const Command& c) {
    return c.name.size() > word.size() && c.name.starts_with(word) && c.name[word.size()] == ' ';
  });
}

[[noreturn]] void unknown_command(const Words& words) {
  std::vector<std::string_view> names;
  if (words[0].starts_with("-")) {
    throw UsageError("unknown option '" + words[0] + "'" +
                     did_you_mean(words[0], {"--help", "--version"}));
  }
  for (const Command& c : all_commands()) names.push_back(c.name);
  std::string said = words[0];
  std::string_view meant;
  if (words.size() > 1 && !words[1].starts_with("-"))
    if (meant = nearest(words[0] + " " + words[1], names); !meant.empty() || is_group(words[0]))
      said += " " + words[1];
  if (meant.empty()) meant = nearest(words[0], names);
  // "train" means "lm train".
  for (const std::string_view name : names)
    if (meant.empty() && !nearest(words[0], {name.substr(name.find(' ') + 1)}).empty())
      meant = name;
  throw UsageError("unknown command '" + said + "'" +
                   (meant.empty() ? "" : "; did you mean 'tenon " + std::string(meant) + "'?"));
}

bool asks_for_help(const std::string& word) {
  return word == "--help" || word == "-h" || word == "help";
}

// help, help COMMAND, COMMAND --help
int print_help(const Words& words) {
  const size_t columns = terminal_width(STDOUT_FILENO);
  const Found found = find_command(words);
  if (words.empty())
    std::cout << overview(columns);
  else if (found.command && found.words == words.size())
    std::cout << help_of(*found.command, columns);
  else if (words.size() == 1 && is_group(words[0]))
    std::cout << overview(columns, words[0] + " ");
  else
    unknown_command(words);
  return 0;
}

int run(const Words& words) {
  const size_t error_columns = terminal_width(STDERR_FILENO);
  if (words.empty()) {
    std::cerr << overview(error_columns);
    return kWrongUsage;
  }
  if (asks_for_help(words[0])) return print_help({words.begin() + 1, words.end()});
  if (is_version(words[0])) return print_versions();
  if (is_group(words[0])) {
    if (words.size() == 1) {
      std::cerr << overview(error_columns, words[0] + " ");
      return kWrongUsage;
    }
    if (words.size() == 2 && is_version(words[1])) return print_versions();
    if (asks_for_help(words[1])) return print_help({words[0]});
  }
  const Found found = find_command(words);
  if (!found.command) unknown_command(words);
  const Command& c = *found.command;
  const Words rest(words.begin() + static_cast<ptrdiff_t>(found.words), words.end());
  // Prints help even if other words of the line are wrong.
  for (const std::string& word : rest) {
    if (word == "--") break;
    if (word == "--help" || word == "-h") {
      std::cout << help_of(c, terminal_width(STDOUT_FILENO));
      return 0;
    }
  }
  try {
    return c.run(Args(rest, options_of(c), c.words));
  } catch (const UsageError& e) {
    std::cerr << "tenon " << c.name << ": " << without_control_bytes(e.what()) << "\n\n"
              << usage_of(c);
    return kWrongUsage;
  }
}

// Returns the exit status, or a failure if standard output could not be written.
int flushed(int status) {
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && !std::ferror(stdout)) return status;
  std::cerr << "tenon: standard output: write failed\n";
  return status == 0 ? kFailure : status;
}

// Turns exceptions into a message and a status.
int run_and_tell(int argc, char** argv) {
  try {
    return run(Words(argv + std::min(argc, 1), argv + argc));
  } catch (const UsageError& e) {
    std::cerr << "tenon: " << without_control_bytes(e.what())
              << "\n\nusage: tenon COMMAND [options]\nfor the commands: tenon --help\n";
    return kWrongUsage;
  } catch (const tenon::Error& e) {
    std::cerr << "tenon: " << tenon::code_name(e.code()) << ": " << e.what() << "\n";
    return e.code() == TENON_CANCELLED ? kInterrupted : kFailure;
  } catch (const std::bad_alloc&) {
    std::cerr << "tenon: " << tenon::code_name(TENON_OUT_OF_MEMORY)
              << ": not enough host memory for this request\n";
    return kFailure;
  } catch (const std::exception& e) {
    std::cerr << "tenon: " << e.what() << "\n";
    return kFailure;
  }
}

}  // namespace
}  // namespace tenon::cli

int main(int argc, char** argv) {
  using namespace tenon::cli;
  tenon_status_release(tenon_report_crashes());  // if it fails, only the message is lost
  name_calls_on_signals();
  ignore_size_limit();
  // Output is written line by line, because a plugin may crash the process at any time.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const int status = flushed(run_and_tell(argc, argv));
  close_runtimes();
  return status;
}
