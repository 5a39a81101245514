// SPDX-License-Identifier: Apache-2.0
// tenon_memory_kinds DEVICE: makes a buffer of each kind of memory, writes numbers through the
// device and through the host's address, copies them between the kinds, and checks every number.
// Exit status 77 where there is no such device.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "host/host.hpp"

namespace {

using namespace tenon::core;

constexpr uint64_t kCount = 300'000, kBytes = kCount * sizeof(uint32_t);
constexpr struct {
  uint32_t kind;
  const char* name;
} kKinds[] = {{TENON_MEMORY_DEVICE, "device"},
              {TENON_MEMORY_HOST_VISIBLE, "host-visible"},
              {TENON_MEMORY_UNIFIED, "unified"}};

std::vector<uint32_t> numbers(uint32_t seed) {
  std::vector<uint32_t> list(kCount);
  for (uint32_t i = 0; i < kCount; ++i) list[i] = (i + seed) * 2654435761u;
  return list;
}
int differ(Buffer& buffer, const std::vector<uint32_t>& expected, const char* what) {
  std::vector<uint32_t> got(kCount);
  buffer.read(0, got.data(), kBytes);
  const bool wrong = got != expected;
  if (wrong) std::printf("%s: WRONG\n", what);
  return wrong;
}

int run(const char* id) {
  Host host;
  bool found = false;
  for (const DeviceInfo& d : host.devices()) found |= d.id == id && d.reason.empty();
  if (!found) return std::printf("skipped: there is no device %s\n", id), 77;
  const auto device = host.open(id);
  int failed = 0;
  for (const auto& from : kKinds) {
    int wrong = 0;
    const auto source = device->buffer(kBytes, from.name, from.kind);
    const bool seen = device->info().host_addressable || from.kind != TENON_MEMORY_DEVICE;
    if ((source->address() != nullptr) != seen) {
      std::printf("%s: the host %s its memory\n", from.name, seen ? "does not see" : "sees");
      ++wrong;
    }
    source->write(0, numbers(from.kind).data(), kBytes);
    wrong += differ(*source, numbers(from.kind), from.name);
    for (const auto& to : kKinds) {
      const auto target = device->buffer(kBytes, to.name, to.kind);
      copy(*target, 0, *source, 0, kBytes);
      wrong += differ(*target, numbers(from.kind), to.name);
      if (!target->address()) continue;
      // What the host writes at the address, the device reads, and the other way round.
      const std::vector<uint32_t> own = numbers(77);
      std::memcpy(target->address(), own.data(), kBytes);
      copy(*source, 0, *target, 0, kBytes);
      wrong += differ(*source, own, "through the address");
      source->write(0, numbers(from.kind).data(), kBytes);
      copy(*target, 0, *source, 0, kBytes);
      wrong += std::memcmp(target->address(), numbers(from.kind).data(), kBytes) != 0;
    }
    std::printf("%s: %s\n", from.name, wrong ? "WRONG" : "ok");
    failed += wrong;
  }
  try {
    device->buffer(kBytes, "unknown", 99);
    std::printf("an unknown kind of memory is not refused\n");
    ++failed;
  } catch (const Error& e) {
    failed += e.code() != Code::unsupported;
  }
  return failed != 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return std::fprintf(stderr, "usage: tenon_memory_kinds DEVICE\n"), 2;
  return run(argv[1]);
} catch (const std::exception& e) {
  std::fprintf(stderr, "tenon_memory_kinds: %s\n", e.what());
  return 1;
}
