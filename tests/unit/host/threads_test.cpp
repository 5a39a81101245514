// SPDX-License-Identifier: Apache-2.0
// The number of threads from affinity masks and control groups.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "host/control_group.hpp"
#include "host/host_table.hpp"
#include "host/threads.hpp"

using namespace tenon::core;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path;
  Folder() {
    char name[] = "/tmp/tenon-threads-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path); }
  void write(const fs::path& file, const char* text) const {
    fs::create_directories((path / file).parent_path());
    std::ofstream(path / file) << text;
  }
};

constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

TEST_SUITE("host/threads") {
  TEST_CASE("control groups, version 2: the tightest around the group, rounded up") {
    const Folder root;
    root.write("cpu.max", "max 100000\n");
    root.write("a/cpu.max", "250000 100000\n");
    root.write("a/b/cpu.max", "800000 100000\n");
    CHECK(control_group_threads(root.path, "0::/\n") == kNone);
    CHECK(control_group_threads(root.path, "0::/a/b\n") == 3);
    root.write("a/b/cpu.max", "1000 100000\n");
    CHECK(control_group_threads(root.path, "0::/a/b\n") == 1);
  }

  TEST_CASE("control groups, version 1: by the cpu controller, also under its joint name") {
    const Folder root;
    root.write("cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
    root.write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    CHECK(control_group_threads(root.path, "3:cpuset:/job\n2:cpu,cpuacct:/job\n") == 4);
    CHECK(control_group_threads(root.path, "3:cpuset:/job\n2:cpuacct:/job\n") == kNone);
    root.write("cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    CHECK(control_group_threads(root.path, "2:cpu,cpuacct:/job\n") == kNone);
  }

  TEST_CASE("control groups: nonsense is no quota") {
    const Folder root;
    root.write("cpu.max", "0 0\n");
    CHECK(control_group_threads(root.path, "") == kNone);
    CHECK(control_group_threads(root.path, "nonsense\n0::\n:::\n0::/../..\n") == kNone);
    root.write("cpu.max", "");
    CHECK(control_group_threads(root.path, "0::/") == kNone);
  }

  TEST_CASE("control groups: the tightest limit of memory, in both versions") {
    const Folder root;
    constexpr uint64_t kUnlimited = UINT64_MAX;
    CHECK(control_group_memory(root.path, "0::/a/b\n") == kUnlimited);
    root.write("a/memory.max", "2147483648\n");
    root.write("a/b/memory.max", "max\n");
    CHECK(control_group_memory(root.path, "0::/a/b\n") == uint64_t{2} << 30);
    CHECK(control_group_memory(root.path, "0::/\n") == kUnlimited);
    root.write("a/b/memory.high", "1073741824\n");
    CHECK(control_group_memory(root.path, "0::/a/b\n") == uint64_t{1} << 30);
    root.write("memory/job/memory.limit_in_bytes", "536870912\n");
    root.write("memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
    CHECK(control_group_memory(root.path, "4:memory:/job\n2:cpu:/job\n") == uint64_t{512} << 20);
    CHECK(control_group_memory(root.path, "4:memory:/\n") == kUnlimited);
    root.write("memory/job/memory.limit_in_bytes", "nonsense\n");
    CHECK(control_group_memory(root.path, "4:memory:/job\n") == kUnlimited);
  }

  TEST_CASE("control groups: memory that is left, in both versions") {
    const Folder root;
    constexpr uint64_t kUnlimited = UINT64_MAX, kMiB = 1 << 20;
    root.write("a/memory.current", "5242880\n");
    CHECK(control_group_memory_left(root.path, "0::/a\n") == kUnlimited);
    root.write("a/memory.max", "10485760\n");
    CHECK(control_group_memory_left(root.path, "0::/a\n") == 5 * kMiB);
    // Cached files are freed on demand, except those that memory.stat lists under other names.
    root.write("a/memory.stat", "file 4194304\ninactive_file 1048576\nactive_file 2097152\n");
    CHECK(control_group_memory_left(root.path, "0::/a\n") == 8 * kMiB);
    root.write("a/memory.current", "20971520\n");  // above the limit for a moment
    CHECK(control_group_memory_left(root.path, "0::/a\n") == 0);
    root.write("a/b/memory.max", "max\n");  // the ancestor's limit counts
    root.write("a/memory.current", "1048576\n");
    CHECK(control_group_memory_left(root.path, "0::/a/b\n") == 10 * kMiB);

    root.write("memory/job/memory.limit_in_bytes", "10485760\n");
    CHECK(control_group_memory_left(root.path, "4:memory:/job\n") == 10 * kMiB);
    root.write("memory/job/memory.usage_in_bytes", "9437184\n");
    root.write("memory/job/memory.stat",
               "inactive_file 9\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
    CHECK(control_group_memory_left(root.path, "4:memory:/job\n") == 2 * kMiB);
    root.write("memory/job/memory.usage_in_bytes", "nonsense");
    root.write("memory/job/memory.stat", "");
    CHECK(control_group_memory_left(root.path, "4:memory:/job\n") == 10 * kMiB);
  }

  TEST_CASE("available memory: less than the machine has, more than nothing") {
    const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
    const uint64_t swap = uint64_t{1} << 50;
    CHECK(available_memory() > 0);
    CHECK(available_memory() < pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + swap);
  }

  TEST_CASE("available threads: at least one, at most those of the machine") {
    CHECK(available_threads() >= 1);
    CHECK(available_threads() <= static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF)));
  }
}
