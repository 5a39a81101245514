// SPDX-License-Identifier: Apache-2.0
// Counts results and writes them: for the reader, as JSON, as JUnit XML.
#pragma once

#include "select.hpp"

namespace tenon::conform {

struct Entry {
  const Chosen* chosen;
  const Case* of;
  Result result;
  const Known* known;  // in the list of known failures, or nullptr

  bool bad() const {
    return result.outcome == Outcome::fail || result.outcome == Outcome::crash ||
           result.outcome == Outcome::hang;
  }
  bool expected_failure() const { return known && bad(); }
  bool unexpected_pass() const { return known && result.outcome == Outcome::pass; }
  Level level() const { return chosen->facts.level; }
  const char* word() const;  // "pass", "fail", "skip", "crash", "hang", "unexpected-pass"
};

// Each result counts in one of these.
struct Totals {
  size_t pass = 0, fail = 0, crash = 0, hang = 0, skip = 0;
  size_t unexpected_pass = 0, expected_failure = 0;
  void add(const Entry& e);
  size_t all() const;
  // The results that make the run fail.
  size_t bad() const { return fail + crash + hang + unexpected_pass; }
};

struct Report {
  const Options& options;
  const Selection& selection;
  std::vector<Entry> entries{};  // in the order of the suite
  size_t not_run = 0;
  int signal = 0;  // that ended the run, or 0
  double seconds = 0;

  Totals totals() const;
  std::vector<std::pair<std::string, Totals>> families() const;  // in the order of the suite
  std::vector<std::pair<std::string, Totals>> levels() const;    // all three
  // Reasons and how many cases have them, the most frequent first.
  std::vector<std::pair<std::string, size_t>> skips() const;
};

const char* name_of(Level level);

// The highest level that the device reaches; README.md has the rules.
struct Reached {
  bool judged = false;  // whether all ops of the kit took part
  std::optional<Level> level{};
  std::string missing{};  // what the next level lacks
};
Reached reached(const Report& report);

std::string line_of(const Entry& entry, const Options& options);  // with a newline
std::string summary_of(const Report& report);
std::string json_of(const Report& report);
std::string junit_of(const Report& report);

// Writes a file as a whole: into a temporary file beside it, which then gets its name. "-" is
// standard output. A device or a pipe is written in place. Throws std::runtime_error, and an older
// file stays as it was.
void write_file(const std::string& option, const std::string& file, const std::string& text);
// Throws if no file can be made there.
void check_writable(const std::string& option, const std::string& file);

}  // namespace tenon::conform
