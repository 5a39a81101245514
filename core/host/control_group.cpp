// SPDX-License-Identifier: Apache-2.0
// Reads the limits of this process's control groups from the file system.
#include "host/control_group.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"

namespace tenon::core {
namespace {

namespace fs = std::filesystem;
constexpr uint32_t kNoQuota = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
constexpr const char* kMount = "/sys/fs/cgroup";

// Empty if the file does not exist.
std::string content(const fs::path& file) {
  try {
    return read_file(file.string(), 1 << 16);
  } catch (const Error&) {
    return {};
  }
}

// Removes the first number from the text. Returns -1 if there is none.
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

// "max" or a number of bytes. Version 1 writes a number near 2^63 for no limit.
uint64_t bytes_in(const fs::path& file) {
  const std::string text = content(file);
  std::string_view rest = text;
  const int64_t bytes = take_number(rest);
  return bytes > 0 && bytes < (int64_t{1} << 60) ? static_cast<uint64_t>(bytes) : kNoLimit;
}

// Above memory.high, a process is slowed down almost to a halt, so it counts as a limit too.
uint64_t memory_v2(const fs::path& folder) {
  return std::min(bytes_in(folder / "memory.max"), bytes_in(folder / "memory.high"));
}
uint64_t memory_v1(const fs::path& folder) { return bytes_in(folder / "memory.limit_in_bytes"); }

// The number that follows the name on a line of its own, as in memory.stat and /proc/meminfo; -1 if
// there is none.
int64_t number_after(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    std::string_view rest = text.substr(at + name.size());
    if ((at == 0 || text[at - 1] == '\n') && rest.starts_with(' ')) return take_number(rest);
  }
  return -1;
}

// stat: the fields of memory.stat with the bytes of cached files, which the kernel frees on demand.
uint64_t memory_left(uint64_t limit, const fs::path& folder, const char* usage,
                     std::initializer_list<const char*> stat) {
  if (limit == kNoLimit) return kNoLimit;
  const std::string text = content(folder / usage), fields = content(folder / "memory.stat");
  std::string_view rest = text;
  int64_t used = std::max<int64_t>(take_number(rest), 0);
  for (const char* field : stat) used -= std::max<int64_t>(number_after(fields, field), 0);
  return limit - std::min(limit, static_cast<uint64_t>(std::max<int64_t>(used, 0)));
}
uint64_t memory_left_v2(const fs::path& folder) {
  return memory_left(memory_v2(folder), folder, "memory.current", {"inactive_file", "active_file"});
}
uint64_t memory_left_v1(const fs::path& folder) {
  return memory_left(memory_v1(folder), folder, "memory.usage_in_bytes",
                     {"total_inactive_file", "total_active_file"});
}

// The tightest limit of a group and its ancestors. In a container, the path may be that of the
// outer system; then only the mount's root exists.
template <class Limit>
auto tightest(const fs::path& mount, std::string_view group, Limit limit) {
  auto least = limit(mount);
  fs::path folder = mount;
  for (const fs::path& part : fs::path(group).relative_path()) {
    if (part == "..") break;
    folder /= part;
    least = std::min(least, limit(folder));
  }
  return least;
}

bool lists(std::string_view controllers, std::string_view name) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == name) return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

// The tightest limit over all groups of the process. controller: its name in version 1.
template <class LimitV2, class LimitV1>
auto tightest_of_all(const fs::path& root, std::string_view groups, const char* controller,
                     LimitV2 v2, LimitV1 v1) {
  auto least = std::numeric_limits<decltype(v2(root))>::max();
  while (!groups.empty()) {
    // or "0::path" in version 2
    const size_t end = std::min(groups.find('\n'), groups.size());
    const std::string_view line = groups.substr(0, end);
    groups.remove_prefix(std::min(end + 1, groups.size()));
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty())
      least = std::min({least, tightest(root, path, v2), tightest(root / "unified", path, v2)});
    else if (lists(controllers, controller))
      least = std::min(
          {least, tightest(root / controller, path, v1), tightest(root / controllers, path, v1)});
  }
  return least;
}

}  // namespace

uint32_t control_group_threads(const fs::path& root, std::string_view groups) {
  return std::max(tightest_of_all(root, groups, "cpu", quota_v2, quota_v1), 1u);
}

uint64_t control_group_memory(const fs::path& root, std::string_view groups) {
  return tightest_of_all(root, groups, "memory", memory_v2, memory_v1);
}

uint64_t control_group_memory_left(const fs::path& root, std::string_view groups) {
  return tightest_of_all(root, groups, "memory", memory_left_v2, memory_left_v1);
}

uint32_t control_group_threads() {
  static const uint32_t threads = control_group_threads(kMount, content("/proc/self/cgroup"));
  return threads;
}

uint64_t control_group_memory() {
  static const uint64_t bytes = control_group_memory(kMount, content("/proc/self/cgroup"));
  return bytes;
}

uint64_t available_memory() {
  const std::string text = content("/proc/meminfo");
  const int64_t kib = std::max<int64_t>(number_after(text, "MemAvailable:"), 0) +
                      std::max<int64_t>(number_after(text, "SwapFree:"), 0);
  const uint64_t machine = kib > 0 ? static_cast<uint64_t>(kib) << 10 : kNoLimit;
  const uint64_t left =
      std::min(machine, control_group_memory_left(kMount, content("/proc/self/cgroup")));
  return left == kNoLimit ? 0 : left;
}

}  // namespace tenon::core
