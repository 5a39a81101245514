// SPDX-License-Identifier: Apache-2.0
// tenon_large DEVICE [ELEMENTS [FUSE [CASE...]]], or --list: ops on tensors of more than ELEMENTS
// (2^31) elements, made on the device from indices. Of every output each seventh element, and all
// near the ends and multiples of 2^31, are compared with what they must be. FUSE: 0 one op after
// the other, 1 as fusion makes it. Exit status 77 where there is no such device, 1 where a number
// is wrong.
#include "large.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "base/number.hpp"

namespace tenon::large {
namespace {

using Clock = std::chrono::steady_clock;

double number_at(tenon_dtype t, const std::byte* at) {
  switch (t) {
    case TENON_DTYPE_I8:
      return static_cast<double>(static_cast<int8_t>(*at));
    case TENON_DTYPE_BOOL:
      return static_cast<double>(*at);
    case TENON_DTYPE_I32: {
      int32_t v;
      std::memcpy(&v, at, sizeof v);
      return v;
    }
    case TENON_DTYPE_I64: {
      int64_t v;
      std::memcpy(&v, at, sizeof v);
      return static_cast<double>(v);
    }
    default: {
      double v = NAN;
      core::load_number(t, at, &v);
      return v;
    }
  }
}

// Is an element looked at? A seventh of them shows every kernel's every vector of eight, in a
// seventh of the time.
bool is_judged(int64_t i, int64_t count) {
  constexpr int64_t kNear = 1 << 20;
  const int64_t past = i & (kLimit - 1);
  return i % 7 == 0 || past < kNear || past >= kLimit - kNear || i >= count - kNear;
}

// The first element that is wrong, as text.
std::string wrong(const Expected& want, const TensorType& type, const std::byte* y) {
  const int64_t size = tenon_dtype_bits(type.dtype) / 8, count = type.elements();
  const int64_t parts = std::max(1u, std::min(16u, std::thread::hardware_concurrency()));
  std::vector<int64_t> first(static_cast<size_t>(parts), -1);
  std::vector<std::thread> threads;
  for (int64_t p = 0; p < parts; ++p)
    threads.emplace_back([&, p] {
      for (int64_t i = count / parts * p, end = p + 1 == parts ? count : count / parts * (p + 1);
           i < end; ++i)
        if (is_judged(i, count) && !(number_at(type.dtype, y + i * size) == want(i))) {
          first[static_cast<size_t>(p)] = i;
          return;
        }
    });
  for (std::thread& t : threads) t.join();
  for (const int64_t i : first)
    if (i >= 0)
      return "element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
             std::to_string(number_at(type.dtype, y + i * size)) + ", expected is " +
             std::to_string(want(i));
  return {};
}

std::string replaced(std::string text, const std::map<std::string, int64_t>& numbers) {
  for (size_t at; (at = text.find('$')) != std::string::npos;) {
    const std::string name = text.substr(at + 1, 1);
    text.replace(at, 2, std::to_string(numbers.at(name)));
  }
  return text;
}

// Nothing, or what is wrong.
std::string check(const Runtime& runtime, const Case& c, const ExecutableOptions& options) {
  const std::string text = "graph \"large\" {\n" + replaced(c.body, c.numbers) + "}\n";
  const Store store(runtime);
  const Executable executable(runtime, Graph::parse(text, c.name), store, options);
  Context context(executable);
  context.run();
  for (const auto& [name, want] : c.outputs) {
    const TensorType type = context.output_type(name);
    const auto y = std::make_unique_for_overwrite<std::byte[]>(type.bytes());
    context.get(name, y.get(), type.bytes());
    if (const std::string w = wrong(want, type, y.get()); !w.empty()) return name + ": " + w;
  }
  return {};
}

int run(const std::string& device, int64_t limit, bool fuse,
        const std::vector<std::string>& wanted) {
  const Runtime runtime;
  bool there = false;
  for (const DeviceEntry& d : runtime.devices()) there |= d.id == device && d.reason.empty();
  if (!there) {
    std::printf("skipped: there is no device %s\n", device.c_str());
    return 77;
  }
  // Nothing is computed when the graph is compiled, and by no other device.
  const ExecutableOptions options{
      .device = device, .allow_fallback = false, .simplify = false, .fuse = fuse, .aot = true};
  bool bad = false;
  for (const Case& c : cases(limit)) {
    if (!wanted.empty() && std::ranges::find(wanted, c.name) == wanted.end()) continue;
    const auto begin = Clock::now();
    std::string said;
    try {
      said = check(runtime, c, options);
    } catch (const Error& e) {
      said = e.what();
    }
    bad |= !said.empty();
    std::printf("%-22s %-8s %5.1f s  %s\n", c.name.c_str(), said.empty() ? "ok" : "BAD",
                std::chrono::duration<double>(Clock::now() - begin).count(), said.c_str());
    std::fflush(stdout);
  }
  return bad;
}

}  // namespace
}  // namespace tenon::large

int main(int argc, char** argv) {
  if (argc < 2) {
    std::printf("usage: tenon_large DEVICE [ELEMENTS [FUSE [CASE...]]], or --list\n");
    return 2;
  }
  if (std::string_view(argv[1]) == "--list") {
    for (const tenon::large::Case& c : tenon::large::cases(tenon::large::kLimit))
      std::printf("%s\n", c.name.c_str());
    return 0;
  }
  try {
    return tenon::large::run(argv[1], argc > 2 ? std::atoll(argv[2]) : tenon::large::kLimit,
                             argc > 3 && std::atoi(argv[3]) != 0,
                             std::vector<std::string>(argv + std::min(argc, 4), argv + argc));
  } catch (const std::exception& e) {
    std::printf("BAD %s\n", e.what());
    return 1;
  }
}
