// SPDX-License-Identifier: Apache-2.0
// tenon_conform: proves the cases of the kit on a device.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "own_cases.hpp"
#include "proof.hpp"

namespace tenon::conform {
namespace {

constexpr const char* kUsage =
    "usage: tenon_conform [options]\n"
    "  --plugin FILE           loads this plugin; repeatable\n"
    "  --device ID             the device to judge (cpu)\n"
    "  --oracle-device ID      the reference (template)\n"
    "  --family NAME           only this family; repeatable\n"
    "  --case GLOB             only cases whose id matches, * and ?; repeatable\n"
    "  --cases FILE            the cases of this file instead of the kit's own: ops of the loaded\n"
    "                          plugins; repeatable\n"
    "  --elements N            only cases with no more in any input or output\n"
    "  --list                  prints their ids and sentences, proves nothing\n"
    "  --list-families         prints the names of the families, proves nothing\n"
    "  --json FILE             writes every result, - for standard output\n"
    "  --jobs N                cases at once (2)\n"
    "  --fusion                instead of the other proofs: each case among neighbours that "
    "fusion\n"
    "                          may take (elementwise makers of its operands, a bias, an "
    "activation,\n"
    "                          a residual, a second copy) gives the same with fusion and without\n"
    "  --joined N              with --fusion: fails when fewer cases than N had something joined\n"
    "  --own-joined N          with --fusion: fails when fewer than N had their own op in it\n"
    "  --floors                with --fusion: take both numbers from the files of the families\n"
    "  --exec MODE             of the judged device: stream, graph, eager, multi-stream:N\n"
    "  --compile MODE          likewise: jit or aot\n"
    "  --bind                  puts inputs and outputs of the judged device in memory of the\n"
    "                          app, at the least alignment that the device accepts\n"
    "  --run-only              each case compiles and runs on the device, with nothing compared;\n"
    "                          what it refuses is skipped\n"
    "  --partial               a case that the device refuses is skipped, not failed\n"
    "  --verbose               prints each case\n"
    "Exit status: 0 all pass, 1 a case fails, 2 wrong usage.\n";

bool matches(const char* glob, const char* s) {
  for (; *glob; ++glob, ++s) {
    if (*glob == '*') {
      for (;; ++s) {
        if (matches(glob + 1, s)) return true;
        if (!*s) return false;
      }
    }
    if (!*s || (*glob != '?' && *glob != *s)) return false;
  }
  return !*s;
}

struct Options {
  RuntimeOptions runtime{.use_environment = false};
  std::string device = "cpu", oracle = "template", json;
  std::vector<std::string> families, globs, case_files;
  ExecutableOptions modes{};
  unsigned jobs = 2;
  size_t joined = 0, own_joined = 0;
  int64_t elements = std::numeric_limits<int64_t>::max();
  bool list = false, list_families = false, partial = false, verbose = false, fusion = false;
  bool floors = false, run_only = false, bind = false;

  // Are the cases of a family all there?
  bool whole_families() const {
    return globs.empty() && case_files.empty() && elements == std::numeric_limits<int64_t>::max();
  }
  bool wants_family(std::string_view name) const {
    return families.empty() || std::ranges::find(families, name) != families.end();
  }

  bool wants(const std::string& id) const {
    return globs.empty() || std::ranges::any_of(globs, [&](const std::string& glob) {
             return matches(glob.c_str(), id.c_str());
           });
  }
};

struct Usage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void set_exec(ExecutableOptions& options, const std::string& mode) {
  static constexpr std::string_view kMode = "multi-stream", kLanes = "multi-stream:";
  if (mode == "stream")
    options.exec_mode = TENON_EXEC_STREAM;
  else if (mode == "graph")
    options.exec_mode = TENON_EXEC_GRAPH;
  else if (mode == "eager")
    options.exec_mode = TENON_EXEC_EAGER;
  else if (mode == kMode)
    options.exec_mode = TENON_EXEC_MULTI_STREAM;
  else if (mode.starts_with(kLanes)) {
    const std::string count = mode.substr(kLanes.size());
    const bool digits = count.find_first_not_of("0123456789") == count.npos;
    const bool number = digits && !count.empty() && count.size() < 4;
    options.lanes = number ? static_cast<uint32_t>(std::stoul(count)) : 0;
    if (options.lanes >= 1 && options.lanes <= TENON_MAX_LANES)
      options.exec_mode = TENON_EXEC_MULTI_STREAM;
  }
  if (options.exec_mode == TENON_EXEC_DEFAULT)
    throw Usage("--exec: expected stream, graph, eager or multi-stream[:N] with N of 1 to " +
                std::to_string(TENON_MAX_LANES) + ", got '" + mode + "'");
}

Options parse(int argc, char** argv) {
  Options o;
  const auto number = [](const std::string& name, const std::string& text, unsigned long most) {
    const bool digits = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    const unsigned long n = digits && text.size() < 10 ? std::stoul(text) : 0;
    if (n < 1 || n > most)
      throw Usage(name + ": expected 1 to " + std::to_string(most) + ", got '" + text + "'");
    return n;
  };
  for (int k = 1; k < argc; ++k) {
    const std::string name = argv[k];
    const auto value = [&]() -> std::string {
      if (k + 1 >= argc) throw Usage(name + ": its value is missing");
      return argv[++k];
    };
    if (name == "--plugin")
      o.runtime.plugin_files.push_back(std::filesystem::absolute(value()));
    else if (name == "--device")
      o.device = value();
    else if (name == "--oracle-device")
      o.oracle = value();
    else if (name == "--family")
      o.families.push_back(value());
    else if (name == "--case")
      o.globs.push_back(value());
    else if (name == "--cases")
      o.case_files.push_back(value());
    else if (name == "--elements")
      o.elements = static_cast<int64_t>(number(name, value(), 999999999));
    else if (name == "--json")
      o.json = value();
    else if (name == "--jobs")
      o.jobs = static_cast<unsigned>(number(name, value(), 256));
    else if (name == "--fusion")
      o.fusion = true;
    else if (name == "--joined")
      o.joined = number(name, value(), 1000000);
    else if (name == "--own-joined")
      o.own_joined = number(name, value(), 1000000);
    else if (name == "--floors")
      o.floors = true;
    else if (name == "--exec")
      set_exec(o.modes, value());
    else if (name == "--compile") {
      const std::string mode = value();
      if (mode != "jit" && mode != "aot")
        throw Usage("--compile: expected jit or aot, got '" + mode + "'");
      o.modes.aot = mode == "aot";
    } else if (name == "--list")
      o.list = true;
    else if (name == "--list-families")
      o.list_families = true;
    else if (name == "--run-only")
      o.run_only = true;
    else if (name == "--bind")
      o.bind = true;
    else if (name == "--partial")
      o.partial = true;
    else if (name == "--verbose")
      o.verbose = true;
    else if (name == "--help") {
      std::cout << kUsage;
      std::exit(0);
    } else
      throw Usage(name + ": no such option");
  }
  for (const std::string& f : o.families)
    if (std::none_of(families().begin(), families().end(),
                     [&](const Family& k) { return k.name == f; }))
      throw Usage("--family: no family '" + f + "'");
  if (!o.fusion && (o.floors || o.joined + o.own_joined > 0))
    throw Usage(std::string(o.floors   ? "--floors"
                            : o.joined ? "--joined"
                                       : "--own-joined") +
                " needs --fusion");
  if (o.floors && !o.whole_families())
    throw Usage("--floors counts whole families; expected no --case, --cases and --elements");
  if (!o.families.empty() && !o.case_files.empty())
    throw Usage("--family names families of the kit; expected no --cases");
  return o;
}

Suite suite_of(const Options& o) {
  Suite suite;
  for (const std::string& file : o.case_files) add_cases(suite, file);
  for (const Family& f : families()) {
    if (!o.case_files.empty() || !o.wants_family(f.name)) continue;
    suite.begin(f.name);
    f.cases(suite);
  }
  std::set<std::string> ids;
  for (const Unit& u : units_of(suite, o.fusion))
    for (const std::string& id : u.ids())
      if (!ids.insert(id).second) throw std::logic_error("two cases are called " + id);
  return suite;
}

void print(const Result& r, bool verbose) {
  static constexpr const char* words[] = {"pass", "FAIL", "skip"};
  if (r.outcome == Outcome::pass && !verbose) return;
  if (r.outcome == Outcome::skip && !verbose) return;
  std::printf("%s %s: %s%s%s\n", words[static_cast<int>(r.outcome)], r.id.c_str(),
              r.sentence.c_str(), r.reason.empty() ? "" : "\n       ", r.reason.c_str());
}

void write_json(const std::string& file, const Options& o, const std::vector<Result>& results) {
  static constexpr const char* words[] = {"pass", "fail", "skip"};
  nlohmann::json out{
      {"device", o.device}, {"oracle", o.oracle}, {"cases", nlohmann::json::array()}};
  for (const Result& r : results)
    out["cases"].push_back({{"id", r.id},
                            {"family", r.family},
                            {"sentence", r.sentence},
                            {"result", words[static_cast<int>(r.outcome)]},
                            {"reason", r.reason},
                            {"joined", r.joined},
                            {"own_joined", r.own_joined},
                            {"milliseconds", r.milliseconds}});
  const std::string text = out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (file == "-") {
    std::cout << text << "\n";
    return;
  }
  std::ofstream stream(file);
  stream << text << "\n";
  if (!stream.flush()) throw std::runtime_error("--json: cannot write " + file);
}

// What the options leave of the suite; of a unit that is there all ids count.
std::vector<Unit> units_of(const Options& o, const Suite& suite) {
  std::vector<Unit> units = units_of(suite, o.fusion);
  std::erase_if(units, [&](const Unit& u) {
    const auto ids = u.ids();
    return (o.run_only && u.dtype == TENON_DTYPE_NONE) ||  // gradients are the reference's
           (!o.globs.empty() &&
            std::ranges::none_of(ids, [&](const auto& id) { return o.wants(id); })) ||
           (o.elements < std::numeric_limits<int64_t>::max() && u.elements() > o.elements);
  });
  return units;
}

// A device that is not there is one mistake, not a failure of every case.
void check_device(const Runtime& runtime, const std::string& id) {
  std::string known;
  for (const DeviceEntry& d : runtime.devices()) {
    if (d.id == id || (d.kind == id && d.id == d.kind + ":0")) {
      if (d.reason.empty()) return;
      throw std::runtime_error("device " + id + " cannot be used: " + d.reason);
    }
    known += " " + d.id;
  }
  throw std::runtime_error("no device " + id + "; there are:" + (known.empty() ? " none" : known));
}

// Enough cases of each family were joined.
bool check_floors(const Options& o, const Suite& suite, const std::vector<Result>& results) {
  bool enough = true;
  const auto least = [&](const std::string& where, std::string_view family, bool Result::*what,
                         size_t floor, const char* name) {
    const auto n = static_cast<size_t>(std::ranges::count_if(results, [&](const Result& r) {
      return r.*what && (family.empty() || r.family == family);
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

int prove_all(const Options& o, const Runtime& runtime, const Suite& suite) {
  const std::function<bool(const std::string&)> wanted = [&](const std::string& id) {
    return o.wants(id);
  };
  check_device(runtime, o.device);
  if (!o.run_only) check_device(runtime, o.oracle);
  std::optional<Rooms> rooms;
  try {
    if (o.bind) rooms.emplace(runtime, o.device);
  } catch (const Error& e) {
    throw Usage(std::string("--bind: ") + e.what());
  }
  const Bench bench{
      runtime, o.device, o.oracle, o.partial, o.fusion, o.run_only, rooms ? &*rooms : nullptr,
      o.modes};
  const Store nothing(runtime);
  const Executable open(runtime, Graph("open"), nothing, {.device = o.device});  // until the end
  const std::vector<Unit> units = units_of(o, suite);
  std::vector<std::vector<Result>> per_unit(units.size());
  std::atomic<size_t> next = 0;
  std::mutex printing;
  const auto work = [&] {
    for (size_t k; (k = next++) < units.size();) {
      per_unit[k] = prove(bench, units[k], wanted);
      const std::lock_guard lock(printing);
      if (o.json != "-")
        for (const Result& r : per_unit[k]) print(r, o.verbose);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned k = 1; k < o.jobs; ++k) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  std::vector<Result> results;
  size_t counts[3] = {};
  for (auto& some : per_unit)
    for (Result& r : some) {
      if (r.outcome == Outcome::skip && r.reason.empty()) continue;  // nothing to prove
      ++counts[static_cast<size_t>(r.outcome)];
      results.push_back(std::move(r));
    }
  if (!o.json.empty()) write_json(o.json, o, results);
  std::fprintf(stderr, "%s: %zu passed, %zu failed, %zu skipped\n", o.device.c_str(), counts[0],
               counts[1], counts[2]);
  if (counts[0] + counts[1] + counts[2] == 0) throw Usage("no case has such an id");
  bool complete = true;
  if (o.fusion) {
    const auto with = [&](bool Result::*what, const char* name) {
      std::fprintf(stderr, "%s: %td of %zu\n", name, std::ranges::count(results, true, what),
                   results.size());
    };
    with(&Result::joined, "something joined");
    with(&Result::own_joined, "the case's own op joined");
    complete = check_floors(o, suite, results);
  } else if (o.whole_families()) {
    complete = check_ops(o);
  }
  return counts[1] || !complete ? 1 : 0;
}

int run(int argc, char** argv) {
  const Options o = parse(argc, argv);
  if (o.list_families) {
    for (const Family& f : families()) std::printf("%s\n", std::string(f.name).c_str());
    return 0;
  }
  // The plugins first: they register the ops of --cases.
  std::optional<Runtime> runtime;
  if (!o.list || !o.case_files.empty()) runtime.emplace(o.runtime);
  const Suite suite = suite_of(o);
  if (!o.list) return prove_all(o, *runtime, suite);
  for (const Unit& u : units_of(o, suite))
    for (const std::string& id : u.ids())
      if (o.wants(id)) std::printf("%-48s %s\n", id.c_str(), u.row->row.sentence.c_str());
  return 0;
}

}  // namespace
}  // namespace tenon::conform

int main(int argc, char** argv) {
  try {
    return tenon::conform::run(argc, argv);
  } catch (const tenon::conform::Usage& e) {
    std::fprintf(stderr, "tenon_conform: %s\n%s", e.what(), tenon::conform::kUsage);
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tenon_conform: %s\n", e.what());
    return 1;
  }
}
