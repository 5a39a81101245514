// SPDX-License-Identifier: Apache-2.0
// tenon_two_devices FIRST SECOND [MIB]: one store, one executable that updates a weight on the
// first device, one that reads it on the second, in turns: what moves between the devices is
// checked number by number. Exit status 77 where there is no such device.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tenon/tenon.hpp"

namespace {

bool has(const tenon::Runtime& runtime, const std::string& id) {
  for (const tenon::DeviceEntry& d : runtime.devices())
    if (d.id == id && d.reason.empty()) return true;
  std::printf("skipped: there is no device %s\n", id.c_str());
  return false;
}

int run(const std::string& first, const std::string& second, int64_t mib) {
  using Clock = std::chrono::steady_clock;
  const tenon::Runtime runtime;
  if (!has(runtime, first) || !has(runtime, second)) return 77;
  const int64_t count = mib * (1 << 20) / 4;
  const std::string form = "f32[" + std::to_string(count) + "]";
  const auto parsed = [&](const std::string& body) {
    return tenon::Graph::parse("graph \"g\" {\n" + body + "}\n", "a test");
  };
  // w = 2 w + 1 here, y = -w there.
  const tenon::Graph update = parsed("  weight w: " + form +
                                     "\n  const one: f32[] = {1}\n  d = binary(w, w) "
                                     "{kind=\"add\"}\n  v = binary(d, one) {kind=\"add\"}\n"
                                     "  update w = v\n");
  const tenon::Graph read =
      parsed("  weight w: " + form + "\n  y = unary(w) {kind=\"neg\"}\n  output \"y\" = y\n");
  std::vector<float> w(static_cast<size_t>(count));
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 4099);
  tenon::Store store(runtime);
  store.set(TENON_SPACE_WEIGHT, "w", {count}, w);
  const tenon::Executable on_first(runtime, update, store, {.device = first}),
      on_second(runtime, read, store, {.device = second});
  tenon::Context writer(on_first), reader(on_second);
  double best = 1e9;
  for (int round = 0; round < 6; ++round) {
    writer.run();
    const auto begin = Clock::now();
    reader.run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
    const std::vector<float> y = reader.get<float>("y");
    for (size_t i = 0; i < w.size(); ++i) {
      w[i] = 2 * w[i] + 1;
      if (y[i] == -w[i]) continue;
      std::printf("BAD round %d: element %zu is %g, expected is %g\n", round, i,
                  static_cast<double>(y[i]), static_cast<double>(-w[i]));
      return 1;
    }
  }
  std::printf("%s to %s: %lld MiB in turns, right; a read with its copy takes %.0f us, %.1f GB/s\n",
              first.c_str(), second.c_str(), static_cast<long long>(mib), best * 1e6,
              static_cast<double>(mib << 20) / best * 1e-9);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::printf("usage: tenon_two_devices FIRST SECOND [MIB]\n");
    return 2;
  }
  try {
    return run(argv[1], argv[2], argc > 3 ? std::atoll(argv[3]) : 16);
  } catch (const std::exception& e) {
    std::printf("BAD %s\n", e.what());
    return 1;
  }
}
