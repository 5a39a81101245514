// SPDX-License-Identifier: Apache-2.0
// A child of --isolate: runs the cases that it is given, one after the other, and reports each.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include <tenon/tenon_debug.h>

#include "run.hpp"

namespace tenon::conform {
namespace {

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno != EINTR) _exit(1);  // the parent is gone
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

void send(char what, const std::string& text = {}) { write_all(kReports, what + text + "\n"); }

// Output of plugins, complete so far.
void mark() {
  std::fflush(nullptr);
  write_all(STDOUT_FILENO, kMark);
}

// The time limit is over. Async-signal-safe.
void on_timeout(int) {
  char text[512] = "W";
  const uint32_t active = tenon_active_calls(text + 1, sizeof text - 2, nullptr);
  if (active > 0) {
    size_t n = std::strlen(text);
    text[n++] = '\n';
    [[maybe_unused]] const ssize_t sent = ::write(kReports, text, n);
  }
  _exit(1);
}

// A text may have several lines; a message has one.
std::string line_of(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string line_of(const Result& r) {
  return line_of(nlohmann::json{{"id", r.id},
                                {"sentence", r.sentence},
                                {"outcome", static_cast<int>(r.outcome)},
                                {"reason", r.reason},
                                {"milliseconds", r.milliseconds},
                                {"joined", r.joined},
                                {"own_joined", r.own_joined},
                                {"refused", r.refused}});
}

void run_cases(const Options& o) {
  const Runtime runtime(o.runtime);
  const Suite suite = suite_of(o);
  const Place place(runtime, o);
  Bench bench = place.bench();
  bench.begin = [](const std::string& id) {
    send('B', id);
    mark();
  };
  bench.end = [](const Result& r) {
    mark();
    send('E', line_of(r));
  };
  send('R');
  const std::set<std::string> ids(o.globs.begin(), o.globs.end());
  const std::function<bool(const std::string&)> wanted = [&](const std::string& id) {
    return ids.contains(id);
  };
  for (const Unit& unit : units_of(suite, o.fusion)) {
    // Ids begin with that of their row; only the row's units need a look.
    const std::string& row = unit.row->row.id;
    const auto at = ids.lower_bound(row);
    if (at != ids.end() && at->starts_with(row)) prove(bench, unit, wanted);
  }
  send('D');
}

}  // namespace

int work(const Options& o) {
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = on_timeout;
  ::sigaction(SIGTERM, &action, nullptr);
  report_crashes();
  try {
    run_cases(o);
    return 0;
  } catch (const Usage& e) {
    send('U', line_of(e.what()));
  } catch (const std::exception& e) {
    send('X', line_of(e.what()));
  }
  return 1;
}

}  // namespace tenon::conform
