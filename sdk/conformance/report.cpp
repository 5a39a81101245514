// SPDX-License-Identifier: Apache-2.0
// Counts results, judges levels, prints.
#include "report.hpp"

#include <algorithm>
#include <cstdarg>

namespace tenon::conform {
namespace {

constexpr Level kLevels[] = {Level::primitive, Level::core, Level::full};
constexpr size_t kMostReasons = 12, kMostLines = 20;

std::string format(const char* text, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char* text, ...) {
  char out[512];
  va_list list;
  va_start(list, text);
  std::vsnprintf(out, sizeof out, text, list);
  va_end(list);
  return out;
}

std::string counted(size_t n) { return std::to_string(n) + (n == 1 ? " case" : " cases"); }

// As a terminal may show it: control bytes become \xNN.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7f)
      out += format("\\x%02x", byte);
    else
      out += c;
  }
  return out;
}

// The last lines of a child's output.
std::string quoted(const std::string& output) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < output.size();) {
    const size_t end = std::min(output.find('\n', at), output.size());
    lines.push_back(shown(std::string_view(output).substr(at, end - at)));
    at = end + 1;
  }
  const size_t from = lines.size() > kMostLines ? lines.size() - kMostLines : 0;
  std::string out;
  if (from > 0) out += format("       | [%zu lines left out]\n", from);
  for (size_t k = from; k < lines.size(); ++k) out += "       | " + lines[k] + "\n";
  return out;
}

std::string table(const char* what, const std::vector<std::pair<std::string, Totals>>& rows,
                  const Totals& all) {
  struct Column {
    const char* name;
    size_t Totals::*count;
    bool always;
  };
  static constexpr Column kColumns[] = {
      {"pass", &Totals::pass, true},
      {"fail", &Totals::fail, true},
      {"crash", &Totals::crash, false},
      {"hang", &Totals::hang, false},
      {"unexpected", &Totals::unexpected_pass, false},
      {"known", &Totals::expected_failure, false},
      {"skip", &Totals::skip, true},
  };
  std::string out = format("%-20s %8s", what, "cases");
  for (const Column& c : kColumns)
    if (c.always || all.*c.count) out += format(" %10s", c.name);
  for (const auto& [name, totals] : rows) {
    out += format("\n%-20s %8zu", name.c_str(), totals.all());
    for (const Column& c : kColumns)
      if (c.always || all.*c.count) out += format(" %10zu", totals.*c.count);
  }
  return out + "\n";
}

// Empty, or what keeps the device from a level; lower levels are looked at before.
std::string missing(const Report& report, Level level) {
  size_t bad = 0, refused = 0;
  std::set<std::string> passed;
  for (const Entry& e : report.entries) {
    refused += e.result.refused;
    if (e.result.outcome == Outcome::pass && e.of->proof == std::string_view("value"))
      for (const auto& op : e.chosen->facts.ops) passed.insert(op_text(op));
    if (e.level() == level) bad += e.bad();
  }
  if (bad > 0) return counted(bad) + " of this level failed";
  if (report.not_run > 0) return counted(report.not_run) + " did not run";
  std::vector<std::string> without;
  for (const auto& [op, of] : report.selection.ops)
    if (of == level && !passed.contains(op)) without.push_back(op);
  if (!without.empty())
    return "no case passes of " + without.front() +
           (without.size() > 1 ? " and " + std::to_string(without.size() - 1) + " other ops" : "");
  if (level == Level::full && refused > 0) return "the device refuses " + counted(refused);
  return {};
}

std::string level_text(const Report& report) {
  const Reached r = reached(report);
  if (!r.judged) return "level: not judged, only a run over all families can tell\n";
  std::string out = std::string("level: ") + (r.level ? name_of(*r.level) : "none");
  if (!r.missing.empty())
    out += std::string("; not ") +
           name_of(r.level ? kLevels[static_cast<size_t>(*r.level) + 1] : Level::primitive) + ": " +
           r.missing;
  if (!report.options.all_cases())
    out += format(" (of %zu of %zu cases)", report.selection.cases, report.selection.kit);
  return out + "\n";
}

}  // namespace

const char* name_of(Level level) {
  static constexpr const char* kNames[] = {"primitive", "core", "full"};
  return kNames[static_cast<size_t>(level)];
}

const char* Entry::word() const {
  static constexpr const char* kWords[] = {"pass", "fail", "skip", "crash", "hang"};
  return unexpected_pass() ? "unexpected-pass" : kWords[static_cast<size_t>(result.outcome)];
}

void Totals::add(const Entry& e) {
  static constexpr size_t Totals::*kCounts[] = {&Totals::pass, &Totals::fail, &Totals::skip,
                                                &Totals::crash, &Totals::hang};
  if (e.expected_failure())
    ++expected_failure;
  else if (e.unexpected_pass())
    ++unexpected_pass;
  else
    ++(this->*kCounts[static_cast<size_t>(e.result.outcome)]);
}
size_t Totals::all() const {
  return pass + fail + crash + hang + skip + unexpected_pass + expected_failure;
}

Totals Report::totals() const {
  Totals out;
  for (const Entry& e : entries) out.add(e);
  return out;
}
std::vector<std::pair<std::string, Totals>> Report::families() const {
  std::vector<std::pair<std::string, Totals>> out;
  for (const Entry& e : entries) {
    auto at = std::ranges::find(out, e.result.family, &std::pair<std::string, Totals>::first);
    if (at == out.end()) at = out.emplace(at, std::string(e.result.family), Totals{});
    at->second.add(e);
  }
  return out;
}
std::vector<std::pair<std::string, Totals>> Report::levels() const {
  std::vector<std::pair<std::string, Totals>> out;
  for (const Level level : kLevels) {
    out.emplace_back(name_of(level), Totals{});
    for (const Entry& e : entries)
      if (e.level() == level) out.back().second.add(e);
  }
  return out;
}
std::vector<std::pair<std::string, size_t>> Report::skips() const {
  std::map<std::string, size_t> counts;
  for (const Entry& e : entries)
    if (e.result.outcome == Outcome::skip) ++counts[e.result.reason];
  std::vector<std::pair<std::string, size_t>> out(counts.begin(), counts.end());
  std::ranges::stable_sort(out, std::greater<>(), &std::pair<std::string, size_t>::second);
  return out;
}

Reached reached(const Report& report) {
  Reached out{.judged = report.options.all_ops()};
  if (!out.judged) return out;
  for (const Level level : kLevels) {
    out.missing = missing(report, level);
    if (!out.missing.empty()) return out;
    out.level = level;
  }
  return out;
}

std::string line_of(const Entry& e, const Options& o) {
  static constexpr const char* kWords[] = {"pass", "FAIL", "skip", "CRASH", "HANG"};
  const Result& r = e.result;
  std::string out = e.expected_failure()  ? "known"
                    : e.unexpected_pass() ? "UNEXPECTED"
                                          : kWords[static_cast<size_t>(r.outcome)];
  out += " " + r.id + ": " + r.sentence + "\n";
  if (e.unexpected_pass()) out += "       passes, but --expect lists it: " + e.known->glob + "\n";
  if (!r.reason.empty()) out += "       " + shown(r.reason) + "\n";
  if (e.expected_failure() && !e.known->reason.empty())
    out += "       known: " + shown(e.known->reason) + "\n";
  if (!e.bad() && !e.unexpected_pass()) return out;
  out += quoted(r.output);
  out += "       requirement: " + e.of->requirement + "\n       alone: tenon_conform";
  for (const std::string& word : o.how) out += " " + shell_word(word);
  return out + " --case " + shell_word(r.id) + "\n";
}

std::string summary_of(const Report& report) {
  const Totals all = report.totals();
  std::string out = table("family", report.families(), all) + "\n";
  out += table("level", report.levels(), all) + "\n";
  const auto skips = report.skips();
  if (!skips.empty()) out += "skipped, by reason:\n";
  size_t left_out = 0;
  for (size_t k = 0; k < skips.size(); ++k) {
    if (k < kMostReasons || skips.size() == kMostReasons + 1)
      out += format("%8zu  ", skips[k].second) + shown(skips[k].first) + "\n";
    else
      left_out += skips[k].second;
  }
  if (left_out > 0)
    out += format("%8zu  %zu other reasons, see --json\n", left_out, skips.size() - kMostReasons);
  if (report.options.case_files.empty() && !report.options.fusion && !report.options.run_only)
    out += level_text(report);
  if (report.signal) out += "interrupted: " + counted(report.not_run) + " did not run\n";
  out += report.options.device +
         format(": %zu passed, %zu failed, %zu skipped", all.pass, all.fail, all.skip);
  const auto more = [&](size_t n, const char* what) {
    if (n > 0) out += format(", %zu %s", n, what);
  };
  more(all.crash, "crashed");
  more(all.hang, "hung");
  more(all.unexpected_pass, "passed unexpectedly");
  more(all.expected_failure, "failed as expected");
  return out + "\n";
}

}  // namespace tenon::conform
