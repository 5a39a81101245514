// SPDX-License-Identifier: Apache-2.0
// tenon_conform: proves the cases of the kit on a device.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <unordered_map>

#include <unistd.h>

#include "report.hpp"
#include "run.hpp"

namespace tenon::conform {
namespace {

// "123/4567 cases, 2 bad", on a terminal only.
class Progress {
 public:
  explicit Progress(size_t total) : total_(total) {}
  void show(size_t done, size_t bad) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - drawn_ < std::chrono::milliseconds(100)) return;
    drawn_ = now;
    shown_ = true;
    std::fprintf(stderr, "\r\033[K%zu/%zu cases, %zu bad", done, total_, bad);
  }
  void clear() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
    shown_ = false;
  }

 private:
  size_t total_;
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  std::chrono::steady_clock::time_point drawn_{};
};

// Takes results as they come, prints them, and keeps them in the order of the suite.
class Collector {
 public:
  Collector(const Options& o, const Selection& selection, const std::vector<Known>& known)
      : o_(o), quiet_(o.json == "-" || o.junit == "-"), progress_(selection.cases) {
    for (const Chosen& c : selection.units)
      for (const Case& one : c.facts.cases) {
        at_.emplace(one.id, entries_.size());
        entries_.push_back({&c, &one, {}, find_known(known, one)});
      }
    arrived_.resize(entries_.size());
  }

  void take(Result r) {
    const size_t k = at_.at(r.id);
    Entry& e = entries_[k];
    arrived_[k] = true;
    ++done_;
    e.result = std::move(r);
    if (e.result.is_void()) return;
    const bool counts = (e.bad() && !e.known) || e.unexpected_pass();
    bad_ += counts;
    if (!quiet_ && (counts || o_.verbose)) {
      progress_.clear();
      std::fputs(line_of(e, o_).c_str(), stdout);
      std::fflush(stdout);
    }
    progress_.show(done_, bad_);
  }

  // Moves the results to the report, without those of cases that had nothing to prove.
  void move_to(Report& report) {
    progress_.clear();
    for (size_t k = 0; k < entries_.size(); ++k) {
      if (!arrived_[k])
        ++report.not_run;
      else if (!entries_[k].result.is_void())
        report.entries.push_back(std::move(entries_[k]));
    }
  }

 private:
  const Options& o_;
  bool quiet_;
  Progress progress_;
  std::vector<Entry> entries_{};
  std::vector<bool> arrived_{};
  std::unordered_map<std::string, size_t> at_{};
  size_t done_ = 0, bad_ = 0;
};

// Enough cases of each family were joined.
bool check_floors(const Options& o, const Suite& suite, const Report& report) {
  bool enough = true;
  const auto least = [&](const std::string& where, std::string_view family, bool Result::*what,
                         size_t floor, const char* name) {
    const auto n = static_cast<size_t>(std::ranges::count_if(report.entries, [&](const Entry& e) {
      return e.result.*what && (family.empty() || e.result.family == family);
    }));
    if (n < floor)
      std::fprintf(stderr, "FAIL %s%s: expected %zu cases or more, got %zu\n", where.c_str(), name,
                   floor, n);
    enough &= n >= floor;
  };
  const auto both = [&](const std::string& where, std::string_view family, const Floor& floor) {
    least(where, family, &Result::joined, floor.joined, "something joined");
    least(where, family, &Result::own_joined, floor.own_joined, "the case's own op joined");
  };
  both("", "", {.joined = o.joined, .own_joined = o.own_joined});
  for (const Family& f : families()) {
    if (!o.floors || !o.wants_family(f.name)) continue;
    const auto floor = suite.floors().find(f.name);
    const std::string where = "family " + std::string(f.name) + ": ";
    if (floor != suite.floors().end()) {
      both(where, f.name, floor->second);
      continue;
    }
    std::fprintf(stderr, "FAIL %sits file names no floor of joined cases\n", where.c_str());
    enough = false;
  }
  return enough;
}

// Each op of a family has a case of it.
bool check_ops(const Options& o) {
  bool all = true;
  for (const OpSchema& op : all_ops()) {
    if (op.level == OpLevel::meta || !o.wants_family(op.family)) continue;
    if (CaseBuilder::remembers(op.name)) continue;
    std::fprintf(stderr, "FAIL op %s: no case of family %s builds it\n",
                 std::string(op.name).c_str(), std::string(op.family).c_str());
    all = false;
  }
  return all;
}

bool check_fusion(const Options& o, const Suite& suite, const Report& report) {
  const auto with = [&](bool Result::*what, const char* name) {
    const auto n =
        std::ranges::count_if(report.entries, [&](const Entry& e) { return e.result.*what; });
    std::fprintf(stderr, "%s: %td of %zu\n", name, n, report.entries.size());
  };
  with(&Result::joined, "something joined");
  with(&Result::own_joined, "the case's own op joined");
  return check_floors(o, suite, report);
}

int prove_all(const Options& o, const Runtime* runtime, const Suite& suite,
              const Selection& selection) {
  std::vector<Known> known;
  if (!o.expect.empty()) known = read_known(o.expect, selection, o.families.empty());
  check_writable("--json", o.json);
  check_writable("--junit", o.junit);
  interrupt::watch();
  Collector collector(o, selection, known);
  bool began = false;
  const Sink sink = [&](Result r) {
    began = true;
    collector.take(std::move(r));
  };
  const auto start = std::chrono::steady_clock::now();
  std::string failure;  // what came before it is reported, if anything did
  try {
    if (o.isolate == Isolate::none)
      run_here(o, *runtime, selection, sink);
    else
      run_isolated(o, selection, sink);
  } catch (const Usage&) {
    throw;
  } catch (const std::exception& e) {
    if (!began) throw;
    failure = e.what();
  }
  Report report{.options = o, .selection = selection, .signal = interrupt::signal()};
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  collector.move_to(report);
  if (!o.json.empty()) write_file("--json", o.json, json_of(report));
  if (!o.junit.empty()) write_file("--junit", o.junit, junit_of(report));
  std::fflush(stdout);
  std::fputs(summary_of(report).c_str(), stderr);
  if (!failure.empty()) std::fprintf(stderr, "tenon_conform: %s\n", failure.c_str());
  if (report.signal) return 128 + report.signal;
  if (!failure.empty()) return 1;
  bool complete = true;
  if (o.fusion)
    complete = check_fusion(o, suite, report);
  else if (o.whole_families())
    complete = check_ops(o);
  return report.totals().bad() > 0 || !complete ? 1 : 0;
}

void print_families(const Selection& selection) {
  std::vector<std::pair<std::string_view, std::array<size_t, 3>>> rows;
  for (const Chosen& c : selection.units) {
    if (rows.empty() || rows.back().first != c.unit.row->family)
      rows.push_back({c.unit.row->family, {}});
    rows.back().second[static_cast<size_t>(c.facts.level)] += c.facts.cases.size();
  }
  std::printf("%-20s %8s %10s %8s %8s\n", "family", "cases", "primitive", "core", "full");
  for (const auto& [family, counts] : rows)
    std::printf("%-20s %8zu %10zu %8zu %8zu\n", std::string(family).c_str(),
                counts[0] + counts[1] + counts[2], counts[0], counts[1], counts[2]);
  std::printf("%zu of %zu cases\n", selection.cases, selection.kit);
}

void print_list(const Selection& selection, bool verbose) {
  for (const Chosen& c : selection.units)
    for (const Case& one : c.facts.cases) {
      std::printf("%-48s %-64s %s\n", one.id.c_str(), one.requirement.c_str(),
                  c.unit.row->row.sentence.c_str());
      if (!verbose) continue;
      const std::string dtype = c.unit.dtype == TENON_DTYPE_NONE ? "-" : dtype_text(c.unit.dtype);
      std::printf("  %s %s %s %s", std::string(c.unit.row->family).c_str(), name_of(c.facts.level),
                  one.proof, dtype.c_str());
      for (const auto& op : c.facts.ops) std::printf(" %s", op_text(op).c_str());
      std::printf("\n");
    }
}

int run(int argc, char** argv) {
  const Options o = parse(argc, argv);
  if (o.worker) return work(o);
  if (o.list_families) {
    for (const Family& f : families()) std::printf("%s\n", std::string(f.name).c_str());
    return 0;
  }
  const bool proves = !o.list && !o.count_families;
  // The plugins first: they register the ops of --cases.
  std::optional<Runtime> runtime;
  if ((proves && o.isolate == Isolate::none) || !o.case_files.empty()) runtime.emplace(o.runtime);
  const Suite suite = suite_of(o);
  const Selection selection = select(o, suite);
  if (selection.cases == 0 && o.shards == 1) throw Usage("no case matches the options");
  if (o.count_families) {
    print_families(selection);
    return 0;
  }
  if (proves) return prove_all(o, runtime ? &*runtime : nullptr, suite, selection);
  print_list(selection, o.verbose);
  return 0;
}

}  // namespace
}  // namespace tenon::conform

int main(int argc, char** argv) {
  try {
    return tenon::conform::run(argc, argv);
  } catch (const tenon::conform::Usage& e) {
    std::fprintf(stderr, "tenon_conform: %s\nhint: tenon_conform --help lists the options\n",
                 e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tenon_conform: %s\n", e.what());
    return 1;
  }
}
