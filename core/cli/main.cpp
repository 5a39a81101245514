// SPDX-License-Identifier: Apache-2.0
// The `tenon` command: finds the subcommand, parses, runs, turns exceptions into messages and exit
// statuses.
#include <cstdio>
#include <iostream>

#include "cli/command.hpp"

namespace tenon::cli {
namespace {

std::vector<Command> all_commands() {
  return {devices_command(),   ops_command(),      inspect_command(),    bench_command(),
          calibrate_command(), lm_train_command(), lm_generate_command()};
}

// Of the commands whose name begins so.
std::string overview(std::string_view group = "") {
  std::string text =
      "tenon: runs and trains tensor programs on plugin backends\n\nusage: tenon COMMAND "
      "[options]\n\ncommands:\n";
  for (const Command& c : all_commands()) {
    if (!c.name.starts_with(group)) continue;
    std::string left(c.name);
    left.resize(14, ' ');
    text += "  " + left + std::string(c.summary) + "\n";
  }
  return text +
         "\n  tenon COMMAND --help   options and examples of a command\n  tenon --version        "
         "versions of the program, the backend ABI and the host API\n";
}

std::string help_of(const Command& c) {
  return "tenon " + std::string(c.name) + ": " + std::string(c.summary) + "\n\nusage: tenon " +
         std::string(c.name) + " " + std::string(c.usage) + "\n\n" +
         (c.options.empty() ? "" : "options:\n" + options_help(c.options) + "\n") +
         "common options:\n" + options_help(common_options()) + "\nexamples:\n" +
         std::string(c.examples);
}

std::string versions() {
  const auto pair = [](uint32_t v) {
    return std::to_string(v >> 16) + "." + std::to_string(v & 0xFFFF);
  };
  return "tenon " + version() + "\nbackend ABI " + pair(tenon_abi_version()) + "\nhost API " +
         pair(tenon_api_version()) + "\n";
}

int run(const std::vector<std::string>& words) {
  if (words.empty()) {
    std::cerr << overview();
    return kWrongUsage;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    std::cout << overview();
    return 0;
  }
  if (words[0] == "--version") {
    std::cout << versions();
    return 0;
  }
  if (words[0] == "lm" && (words.size() == 1 || words[1] == "--help" || words[1] == "-h")) {
    (words.size() == 1 ? std::cerr : std::cout) << overview("lm ");
    return words.size() == 1 ? static_cast<int>(kWrongUsage) : 0;
  }
  // A command's name is one word or two.
  const std::string two = words.size() > 1 ? words[0] + " " + words[1] : words[0];
  for (const Command& c : all_commands()) {
    const size_t used = c.name == two        ? std::min<size_t>(words.size(), 2)
                        : c.name == words[0] ? 1
                                             : 0;
    if (used == 0) continue;
    std::vector<Option> options = c.options;
    options.insert(options.end(), common_options().begin(), common_options().end());
    const Args args({words.begin() + static_cast<ptrdiff_t>(used), words.end()}, options, c.words);
    if (args.has("--help")) {
      std::cout << help_of(c);
      return 0;
    }
    return c.run(args);
  }
  throw UsageError("unknown command '" + two + "'");
}

}  // namespace
}  // namespace tenon::cli

int main(int argc, char** argv) {
  using namespace tenon::cli;
  try {
    const int status = run(std::vector<std::string>(argv + 1, argv + argc));
    std::cout.flush();
    if (!std::cout) {
      std::cerr << "tenon: standard output: write failed\n";
      return kFailure;
    }
    return status;
  } catch (const UsageError& e) {
    std::cerr << "tenon: " << e.what() << "\ntry 'tenon --help' or 'tenon COMMAND --help'\n";
    return kWrongUsage;
  } catch (const tenon::Error& e) {
    std::cerr << "tenon: " << tenon::code_name(e.code()) << ": " << e.what() << "\n";
    return e.code() == TENON_CANCELLED ? kInterrupted : kFailure;
  } catch (const std::bad_alloc&) {
    std::cerr << "tenon: " << tenon::code_name(TENON_OUT_OF_MEMORY)
              << ": the host has no room for what was asked\n";
    return kFailure;
  } catch (const std::exception& e) {
    std::cerr << "tenon: " << e.what() << "\n";
    return kFailure;
  }
}
