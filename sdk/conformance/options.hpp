// SPDX-License-Identifier: Apache-2.0
// The command line of tenon_conform.
#pragma once

#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <tenon/tenon.hpp>

namespace tenon::conform {

// Wrong usage: exit status 2.
struct Usage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Isolate : uint8_t { none, group, one };

struct Options {
  RuntimeOptions runtime{.use_environment = false};
  std::string device = "cpu", oracle = "template";
  std::string json, junit, expect;  // files
  std::vector<std::string> families, globs, requirements, case_files;
  ExecutableOptions modes{};
  unsigned jobs = 2;
  unsigned shard = 1, shards = 1;
  size_t joined = 0, own_joined = 0;
  int64_t elements = std::numeric_limits<int64_t>::max();
  Isolate isolate = Isolate::none;
  unsigned timeout = 0;  // seconds; 0: not given
  bool list = false, list_families = false, count_families = false, partial = false;
  bool verbose = false, fusion = false, floors = false, run_only = false, bind = false;
  bool quick = false;
  bool worker = false;  // a child of --isolate, see isolate.cpp
  // The words that say where and how cases run, but not which ones: for children, and for a command
  // that repeats a case.
  std::vector<std::string> how{};

  bool has_elements() const { return elements != std::numeric_limits<int64_t>::max(); }
  // Are the cases of a family all there?
  bool whole_families() const {
    return globs.empty() && requirements.empty() && case_files.empty() && !has_elements() &&
           !quick && shards == 1;
  }
  // Is each op of the kit compared?
  bool all_ops() const {
    return globs.empty() && requirements.empty() && case_files.empty() && families.empty() &&
           shards == 1 && !fusion && !run_only;
  }
  bool all_cases() const { return all_ops() && !has_elements() && !quick; }
  bool wants_family(std::string_view name) const;
};

// * and ? stand for any characters, and for one.
bool matches(const char* glob, const char* s);
// As a shell takes it for one word.
std::string shell_word(const std::string& text);

// Throws Usage. Prints the help and exits for --help.
Options parse(int argc, char** argv);

}  // namespace tenon::conform
