// SPDX-License-Identifier: Apache-2.0
// Checks of the options of examples.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

// Wrong usage; exit status 2.
struct Usage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A whole number of an option, from `least` to `most`.
inline int64_t number(std::string_view name, std::string_view text, int64_t least, int64_t most) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < least || n > most)
    throw Usage(std::string(name) + ": expected a number from " + std::to_string(least) + " to " +
                std::to_string(most) + ", got '" + std::string(text) + "'");
  return n;
}

// --help prints the usage and ends the program.
inline void answer_help(int argc, char** argv, const char* usage) {
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--help") {
      std::fputs(usage, stdout);
      std::exit(0);
    }
}
