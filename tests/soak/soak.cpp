// SPDX-License-Identifier: Apache-2.0
// test_soak [--minutes M]: a thread for each kind of work, all at once. Prints resident memory,
// descriptors and threads once everything is warm, every minute and at the end; fails when a value
// is wrong or when any of them has grown.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>

#include "work.hpp"

namespace tenon::soak {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Growth of memory that may be the allocator's scatter.
constexpr double kMemorySlack = 16;  // MiB
// A sanitizer keeps what was freed for a while, and finds what was not by itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
// Pools of the two runtimes that stay grow to at most 16 threads each, when work happens to meet.
// What leaks threads leaks one with each host or run, and there are thousands of them.
constexpr int kThreadSlack = 32;

struct Usage {
  double memory = 0;  // MiB, resident
  int descriptors = 0;
  int threads = 0;
};

int entries_of(const char* folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

Usage usage() {
  malloc_trim(0);
  Usage u;
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  u.memory = static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
  u.descriptors = entries_of("/proc/self/fd");
  u.threads = entries_of("/proc/self/task");
  return u;
}

class Soak {
 public:
  explicit Soak(const std::string& folder)
      : runtime_(runtime_options()), work_(all_work(runtime_, folder)) {
    counts_ = std::vector<std::atomic<uint64_t>>(work_.size());
  }

  // Returns false when something went wrong or grew.
  bool run(double seconds) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < work_.size(); ++i) threads.emplace_back([this, i] { loop(i); });
    const auto begin = Clock::now();
    const auto since = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    const double warm = std::clamp(seconds / 4, 1.0, 60.0);
    double next = warm;
    std::optional<Usage> start;
    Usage now;
    std::printf("%8s %12s %12s %8s %8s\n", "seconds", "memory MiB", "descriptors", "threads",
                "rounds");
    while (!failed_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const double at = since();
      if (at < std::min(next, seconds)) continue;
      // A round of everything belongs to what is warm, however slow the machine.
      if (!start && !each_has_run()) continue;
      now = sample(at);
      if (!start) start = now;
      next = at + 60;
      if (at >= seconds) break;
    }
    stop_ = true;
    for (std::thread& t : threads) t.join();
    for (size_t i = 0; i < work_.size(); ++i)
      std::printf("%10llu %s\n", static_cast<unsigned long long>(counts_[i]),
                  work_[i].name.c_str());
    return !failed_ && start && steady(*start, now);
  }

 private:
  void loop(size_t i) {
    while (!stop_ && !failed_) {
      {
        const std::shared_lock lock(gate_);
        try {
          work_[i].once();
          ++counts_[i];
        } catch (const std::exception& e) {
          std::fprintf(stderr, "%s, round %llu: %s\n", work_[i].name.c_str(),
                       static_cast<unsigned long long>(counts_[i]), e.what());
          failed_ = true;
        }
      }
      while (sampling_ && !stop_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  bool each_has_run() const {
    return std::all_of(counts_.begin(), counts_.end(), [](const auto& n) { return n >= 3; });
  }
  // Looks while no work is under way.
  Usage sample(double seconds) {
    sampling_ = true;
    Usage u;
    {
      const std::unique_lock lock(gate_);
      u = usage();
    }
    sampling_ = false;
    uint64_t rounds = 0;
    for (const auto& n : counts_) rounds += n;
    std::printf("%8.0f %12.1f %12d %8d %8llu\n", seconds, u.memory, u.descriptors, u.threads,
                static_cast<unsigned long long>(rounds));
    std::fflush(stdout);
    return u;
  }
  static bool steady(const Usage& start, const Usage& end) {
    const bool memory = kSanitized || end.memory <= start.memory + kMemorySlack;
    const bool descriptors = end.descriptors <= start.descriptors;
    const bool threads = end.threads <= start.threads + kThreadSlack;
    if (!memory) std::printf("memory grew from %.1f to %.1f MiB\n", start.memory, end.memory);
    if (!descriptors)
      std::printf("descriptors grew from %d to %d\n", start.descriptors, end.descriptors);
    if (!threads) std::printf("threads grew from %d to %d\n", start.threads, end.threads);
    return memory && descriptors && threads;
  }

  const Runtime runtime_;
  std::vector<Work> work_;
  std::vector<std::atomic<uint64_t>> counts_;
  std::shared_mutex gate_;  // shared: a round of work; alone: a sample
  std::atomic<bool> stop_ = false, failed_ = false, sampling_ = false;
};

int main(int argc, char** argv) {
  double minutes = 1;
  if (argc == 3 && std::strcmp(argv[1], "--minutes") == 0)
    minutes = std::strtod(argv[2], nullptr);
  else if (argc != 1)
    return std::fprintf(stderr, "usage: test_soak [--minutes M]\n"), 2;
  if (!(minutes > 0)) return std::fprintf(stderr, "test_soak: '%s' is no time\n", argv[2]), 2;
  std::string folder = (fs::temp_directory_path() / "tenon-soak-XXXXXX").string();
  if (!mkdtemp(folder.data())) return std::perror("test_soak: a folder"), 1;
  bool good = false;
  try {
    good = Soak(folder).run(60 * minutes);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "test_soak: %s\n", e.what());
  }
  fs::remove_all(folder);
  std::printf(good ? "steady\n" : "FAILED\n");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tenon::soak

int main(int argc, char** argv) { return tenon::soak::main(argc, argv); }
