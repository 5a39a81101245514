// SPDX-License-Identifier: Apache-2.0
#include "host/threads.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

namespace tenon::core {
namespace {

namespace fs = std::filesystem;
constexpr uint32_t kNoQuota = std::numeric_limits<uint32_t>::max();

std::string content(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The first number of text, which loses what was read; -1 when there is none.
int64_t take_number(std::string_view& text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\n')) text.remove_prefix(1);
  int64_t number = -1;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number).ptr;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

uint32_t processors(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return kNoQuota;
  const int64_t whole = quota / period + (quota % period != 0);
  return static_cast<uint32_t>(std::min<int64_t>(whole, kNoQuota));
}

// Version 2: "max 100000" or "150000 100000".
uint32_t quota_v2(const fs::path& folder) {
  const std::string text = content(folder / "cpu.max");
  std::string_view rest = text;
  const int64_t quota = take_number(rest);
  return processors(quota, take_number(rest));
}

uint32_t quota_v1(const fs::path& folder) {
  const std::string quota = content(folder / "cpu.cfs_quota_us"),
                    period = content(folder / "cpu.cfs_period_us");
  std::string_view a = quota, b = period;
  const int64_t microseconds = take_number(a);
  return processors(microseconds, take_number(b));
}

// The tightest of a group and the groups around it. In a container the path may be one of the
// outside, then only the mount's top is there.
template <class Quota>
uint32_t tightest(const fs::path& mount, std::string_view group, Quota quota) {
  uint32_t threads = quota(mount);
  fs::path folder = mount;
  for (const fs::path& part : fs::path(group).relative_path()) {
    if (part == "..") break;
    folder /= part;
    threads = std::min(threads, quota(folder));
  }
  return threads;
}

bool lists_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

uint32_t affinity_threads() {
  // The mask may be wider than cpu_set_t on large machines.
  for (int processors = 1024; processors <= (1 << 20); processors *= 4) {
    cpu_set_t* set = CPU_ALLOC(processors);
    if (!set) break;
    const size_t size = CPU_ALLOC_SIZE(processors);
    const bool known = sched_getaffinity(0, size, set) == 0;
    const int count = known ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (known) return static_cast<uint32_t>(std::max(count, 1));
  }
  return 1;
}

}  // namespace

uint32_t control_group_threads(const fs::path& root, std::string_view groups) {
  uint32_t threads = kNoQuota;
  while (!groups.empty()) {
    // "number:controllers:path", for version 2 "0::path"
    const size_t end = std::min(groups.find('\n'), groups.size());
    const std::string_view line = groups.substr(0, end);
    groups.remove_prefix(std::min(end + 1, groups.size()));
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty()) {
      threads = std::min(
          {threads, tightest(root, path, quota_v2), tightest(root / "unified", path, quota_v2)});
    } else if (lists_cpu(controllers)) {
      threads = std::min({threads, tightest(root / "cpu", path, quota_v1),
                          tightest(root / controllers, path, quota_v1)});
    }
  }
  return std::max(threads, 1u);
}

uint32_t available_threads() {
  static const uint32_t threads = std::min(
      affinity_threads(), control_group_threads("/sys/fs/cgroup", content("/proc/self/cgroup")));
  return threads;
}

}  // namespace tenon::core
