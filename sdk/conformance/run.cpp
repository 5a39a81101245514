// SPDX-License-Identifier: Apache-2.0
// Runs cases in threads of this process.
#include "run.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <thread>

namespace tenon::conform {
namespace {

// Before the first case: a device that does not exist is one error, not a failure of each case.
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

Bench bench_of(const Runtime& runtime, const Options& o) {
  check_device(runtime, o.device);
  if (!o.run_only) check_device(runtime, o.oracle);
  return {.runtime = runtime,
          .device = o.device,
          .reference = o.oracle,
          .partial = o.partial,
          .fusion = o.fusion,
          .run_only = o.run_only,
          .modes = o.modes};
}

}  // namespace

Place::Place(const Runtime& runtime, const Options& o)
    : bench_(bench_of(runtime, o)),
      nothing_(runtime),
      open_(runtime, Graph("open"), nothing_, {.device = o.device}) {
  if (!o.bind) return;
  try {
    rooms_.emplace(runtime, o.device);
  } catch (const Error& e) {
    throw Usage(std::string("--bind: ") + e.what());
  }
  bench_.rooms = &*rooms_;
}

namespace interrupt {
namespace {
std::atomic<int> received{0};
int wake[2] = {-1, -1};

void wake_up() {
  const int kept = errno;
  [[maybe_unused]] const ssize_t n = ::write(wake[1], "", 1);  // a full pipe is readable as well
  errno = kept;
}
void on_end(int number) {
  received = number;
  wake_up();
}
void on_child(int) { wake_up(); }
}  // namespace

void watch() {
  if (::pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe: no descriptors");
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  action.sa_handler = on_child;
  ::sigaction(SIGCHLD, &action, nullptr);
  action.sa_handler = on_end;
  action.sa_flags |= static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction former {};
    ::sigaction(number, nullptr, &former);
    if (former.sa_handler != SIG_IGN) ::sigaction(number, &action, nullptr);
  }
}
int signal() { return received; }
int descriptor() { return wake[0]; }
}  // namespace interrupt

void run_here(const Options& o, const Runtime& runtime, const Selection& selection,
              const Sink& sink) {
  const Place place(runtime, o);
  std::mutex one;
  Bench bench = place.bench();
  bench.end = [&](const Result& r) {
    const std::lock_guard lock(one);
    sink(r);
  };
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t k; (k = next++) < selection.units.size();) {
      const Chosen& c = selection.units[k];
      const std::function<bool(const std::string&)> wanted = [&](const std::string& id) {
        return interrupt::signal() == 0 &&
               std::ranges::find(c.facts.cases, id, &Case::id) != c.facts.cases.end();
      };
      prove(bench, c.unit, wanted);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned k = 1; k < o.jobs; ++k) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
}

}  // namespace tenon::conform
