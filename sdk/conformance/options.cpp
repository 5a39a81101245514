// SPDX-License-Identifier: Apache-2.0
// Reads the command line.
#include "options.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "kit.hpp"

namespace tenon::conform {
namespace {

constexpr unsigned kTimeout = 120;

constexpr const char* kUsage = R"(usage: tenon_conform [options]

Device:
  --plugin FILE           load this plugin; repeatable
  --device ID             the device to judge [cpu]
  --oracle-device ID      the reference [template]
  --exec MODE             how it runs: stream, graph, eager or multi-stream:N [its default]
  --compile MODE          how it compiles: jit or aot [its default]
  --bind                  put inputs and outputs in memory of the app, at the least alignment that
                          the device accepts
  --partial               skip a case that the device refuses; without it, the case fails
  --run-only              compile and run each case, compare nothing; implies --partial

Which cases:
  --family NAME           only this family; repeatable
  --case GLOB             only cases whose id matches; * and ? are wildcards; repeatable
  --requirement GLOB      only cases whose requirement id matches; repeatable
  --elements N            only cases with at most N elements in each input and output
  --cases FILE            the cases of this file instead of the kit's own; repeatable
  --quick                 about 6 % of the kit's cases, the smallest that have each family, op,
                          kind of an op and proof at least once, and each op in each of its dtypes
  --shard I/N             the I-th of N parts, I from 1; each case is in exactly one part
  --fusion                instead of the other proofs: each case among neighbours that may be fused
                          with it, with fusion and without
  --joined N              with --fusion: fail if something was fused in fewer than N cases
  --own-joined N          with --fusion: fail if the case's own op was fused in fewer than N cases
  --floors                with --fusion: take both numbers from the files of the families

Running:
  --jobs N                cases at once, 1 to 256 [2]
  --isolate case|group    run each case, or each row with all its dtypes and proofs, in a process of
                          its own; a crash or a hang is then a result and the run goes on
  --timeout SECONDS       with --isolate: kill a process whose case takes longer [120]
  --expect FILE           known failures, one GLOB and a reason per line; they do not fail the run,
                          but a pass of such a case does

Output:
  --list                  print case id, requirement id and sentence of each case; run nothing.
                          With --verbose, a second line has family, level, proof, dtype and ops
  --families              print the number of cases per family and level; run nothing
  --list-families         print the names of all families; run nothing
  --json FILE             write all results as JSON; - is standard output
  --junit FILE            write all results as JUnit XML; - is standard output
  --verbose               print each case, not only failures
  --help                  print this text

Exit status:
  0    each case passed, was skipped, or failed as --expect says
  1    a case failed, crashed, hung or passed unexpectedly; or the run itself failed
  2    wrong usage
  130  ended by Ctrl-C (143: by SIGTERM); the totals are those of the cases that ran
)";

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

unsigned long number(const std::string& name, const std::string& text, unsigned long most) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  const unsigned long n = digits && text.size() < 10 ? std::stoul(text) : 0;
  if (n < 1 || n > most)
    throw Usage(name + ": expected 1 to " + std::to_string(most) + ", got '" + text + "'");
  return n;
}

void set_shard(Options& o, const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == text.npos) throw Usage("--shard: expected I/N, for example 1/4, got '" + text + "'");
  o.shards = static_cast<unsigned>(number("--shard: N", text.substr(slash + 1), 10000));
  o.shard = static_cast<unsigned>(number("--shard: I", text.substr(0, slash), o.shards));
}

void set_isolate(Options& o, const std::string& text) {
  if (text != "case" && text != "group")
    throw Usage("--isolate: expected case or group, got '" + text + "'");
  o.isolate = text == "case" ? Isolate::one : Isolate::group;
}

// Options that go to children too. Returns false for others.
bool read_how(Options& o, const std::string& name, const std::function<std::string()>& value) {
  std::vector<std::string> words = {name};
  const auto take = [&]() -> const std::string& { return words.emplace_back(value()); };
  if (name == "--plugin")
    o.runtime.plugin_files.push_back(words.emplace_back(std::filesystem::absolute(value())));
  else if (name == "--device")
    o.device = take();
  else if (name == "--oracle-device")
    o.oracle = take();
  else if (name == "--cases")
    o.case_files.push_back(take());
  else if (name == "--exec")
    set_exec(o.modes, take());
  else if (name == "--compile") {
    const std::string& mode = take();
    if (mode != "jit" && mode != "aot")
      throw Usage("--compile: expected jit or aot, got '" + mode + "'");
    o.modes.aot = mode == "aot";
  } else if (name == "--fusion")
    o.fusion = true;
  else if (name == "--run-only")
    o.run_only = true;
  else if (name == "--bind")
    o.bind = true;
  else if (name == "--partial")
    o.partial = true;
  else
    return false;
  o.how.insert(o.how.end(), words.begin(), words.end());
  return true;
}

bool read_choice(Options& o, const std::string& name, const std::function<std::string()>& value) {
  if (name == "--family")
    o.families.push_back(value());
  else if (name == "--case")
    o.globs.push_back(value());
  else if (name == "--requirement")
    o.requirements.push_back(value());
  else if (name == "--elements")
    o.elements = static_cast<int64_t>(number(name, value(), 999999999));
  else if (name == "--quick")
    o.quick = true;
  else if (name == "--shard")
    set_shard(o, value());
  else if (name == "--joined")
    o.joined = number(name, value(), 1000000);
  else if (name == "--own-joined")
    o.own_joined = number(name, value(), 1000000);
  else if (name == "--floors")
    o.floors = true;
  else
    return false;
  return true;
}

bool read_rest(Options& o, const std::string& name, const std::function<std::string()>& value) {
  if (name == "--json")
    o.json = value();
  else if (name == "--junit")
    o.junit = value();
  else if (name == "--expect")
    o.expect = value();
  else if (name == "--jobs")
    o.jobs = static_cast<unsigned>(number(name, value(), 256));
  else if (name == "--isolate")
    set_isolate(o, value());
  else if (name == "--timeout")
    o.timeout = static_cast<unsigned>(number(name, value(), 86400));
  else if (name == "--list")
    o.list = true;
  else if (name == "--list-families")
    o.list_families = true;
  else if (name == "--families")
    o.count_families = true;
  else if (name == "--verbose")
    o.verbose = true;
  else if (name == "--worker")
    o.worker = true;
  else
    return false;
  return true;
}

void check(Options& o) {
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
    throw Usage(
        "--floors counts whole families; expected no --case, --requirement, --cases, --elements, "
        "--quick and --shard");
  if (!o.families.empty() && !o.case_files.empty())
    throw Usage("--family names families of the kit; expected no --cases");
  if (o.timeout > 0 && o.isolate == Isolate::none) throw Usage("--timeout needs --isolate");
  if (o.timeout == 0) o.timeout = kTimeout;
  if (o.json == "-" && o.junit == "-")
    throw Usage("--json and --junit: expected at most one on standard output");
}

}  // namespace

bool Options::wants_family(std::string_view name) const {
  return families.empty() || std::ranges::find(families, name) != families.end();
}

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

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789-_./:,=+@%") == text.npos;
  if (plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Options parse(int argc, char** argv) {
  Options o;
  for (int k = 1; k < argc; ++k) {
    const std::string name = argv[k];
    const std::function<std::string()> value = [&]() -> std::string {
      if (k + 1 >= argc) throw Usage(name + ": its value is missing");
      return argv[++k];
    };
    if (name == "--help") {
      std::printf("%s", kUsage);
      std::exit(0);
    }
    if (!read_how(o, name, value) && !read_choice(o, name, value) && !read_rest(o, name, value))
      throw Usage(name + ": no such option");
  }
  check(o);
  return o;
}

}  // namespace tenon::conform
