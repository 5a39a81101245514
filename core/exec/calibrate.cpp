// SPDX-License-Identifier: Apache-2.0
// Builds and times the graphs and copies from which a device's rates are computed.
#include "exec/calibrate.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "exec/context.hpp"
#include "ops/build.hpp"

namespace tenon::core {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kMib = 1 << 20;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Median seconds of a call: at least three are timed, after one that is not, and no more than tell.
double time_of(double seconds, const std::function<void()>& call) {
  call();
  std::vector<double> times;
  constexpr size_t kMost = 10000;
  const auto begin = Clock::now();
  while (times.size() < 3 || (times.size() < kMost && since(begin) < seconds)) {
    const auto start = Clock::now();
    call();
    times.push_back(since(start));
  }
  std::ranges::nth_element(times, times.begin() + static_cast<ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

// Floats of either sign between 1/8 and 1/4: products of them stay finite, and a device works as
// hard as with real data.
Bytes some_floats(const Type& type) {
  struct Form {
    uint64_t random, fixed;
  };
  const DType d = type.dtype;
  const Form form = d == kF16    ? Form{0x83FF83FF83FF83FF, 0x3000300030003000}
                    : d == kBF16 ? Form{0x807F807F807F807F, 0x3E003E003E003E00}
                    : d == kF64  ? Form{0x800FFFFFFFFFFFFF, 0x3FC0000000000000}
                                 : Form{0x807FFFFF807FFFFF, 0x3E0000003E000000};
  Bytes bytes(type_bytes(type));
  uint64_t state = 1;
  for (size_t i = 0; i < bytes.size(); i += sizeof state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t word = ((state ^ state >> 29) & form.random) | form.fixed;
    std::memcpy(bytes.data() + i, &word, std::min(sizeof word, bytes.size() - i));
  }
  return bytes;
}

class Measurer {
 public:
  Measurer(const std::shared_ptr<Runtime>& runtime, const std::string& device,
           const CalibrateOptions& options)
      : runtime_(runtime), options_(options), device_(runtime->host.open(device)) {}

  Rates measure() {
    const bool threads = device_->info().host_threads;
    total_ = 4 + (threads ? 1 : 0) + static_cast<uint32_t>(std::size(kProducts));
    Rates r;
    next("steps");
    r.run = seconds_of(chain(1, 1));
    constexpr int kChain = 65;
    r.step = std::max(0.0, seconds_of(chain(1, kChain)) - r.run) / (kChain - 1);
    next("copies on the device");
    const int64_t elements = fitting(256 * kMib) / 4;
    r.copy = 8 * static_cast<double>(elements) / beside(seconds_of(chain(elements, 1)), r.run);
    if (threads) {
      next("forks");
      r.fork = fork_seconds(r.run);
    }
    next("copies to the device");
    transfers(r);
    for (const Product& p : kProducts) {
      next(p.name);
      if (const double rate = product_rate(p, r.run); rate > 0) r.products[p.name] = rate;
    }
    return r;
  }

 private:
  struct Product {
    const char* name;
    DType dtype;
    bool tf32;
  };
  static constexpr Product kProducts[] = {{"f32", kF32, false},
                                          {"tf32", kF32, true},
                                          {"f16", kF16, false},
                                          {"bf16", kBF16, false},
                                          {"f64", kF64, false}};

  void next(std::string_view what) {
    if (options_.progress && !options_.progress(what, done_, total_))
      fail(Code::cancelled, "calibration of ", device_->info().id, " was stopped");
    ++done_;
  }

  // At most so many bytes, and no more than the device has room for several times.
  int64_t fitting(int64_t bytes) const {
    const DeviceInfo& info = device_->info();
    const uint64_t most = std::min(info.max_allocation,
                                   info.memory_size ? info.memory_size / 16 : info.max_allocation);
    return std::clamp(static_cast<int64_t>(std::min<uint64_t>(most, 1u << 30)), kMib, bytes);
  }
  // What is left of a run without what every run costs.
  static double beside(double seconds, double run) { return std::max(seconds - run, seconds / 2); }

  // So many steps, one after another, each reading and writing all elements.
  static Graph chain(int64_t elements, int steps) {
    Graph g;
    Builder b(g);
    Value v = g.input("x", {kF32, {elements}});
    for (int i = 0; i < steps; ++i) v = b.neg(v);
    g.output("y", v);
    return g;
  }

  double seconds_of(const Graph& graph, double seconds = 0) {
    const ExecutableOptions how{.device = device_->info().id,
                                .plan = {.simplify = false, .fuse = false},
                                .allow_fallback = false};
    Context context(std::make_shared<Executable>(runtime_, graph, std::make_shared<Store>(), how));
    for (Value v : graph.inputs()) {
      const Type& type = graph.type(v);
      context.set(graph[v].name, type, some_floats(type));
    }
    return time_of(seconds > 0 ? seconds : options_.seconds, [&] { context.run(); });
  }

  // Two sizes that all threads share, both in cache: what the line through them begins with.
  double fork_seconds(double run) {
    constexpr int64_t kSmall = 1 << 16, kLarge = 1 << 18;
    const double small = seconds_of(chain(kSmall, 1)), large = seconds_of(chain(kLarge, 1));
    const double each = std::max(0.0, large - small) / (kLarge - kSmall);
    return std::max(0.0, small - each * kSmall - run);
  }

  void transfers(Rates& r) {
    const auto bytes = static_cast<uint64_t>(fitting(64 * kMib));
    std::vector<std::byte> host(bytes);
    const std::shared_ptr<Buffer> buffer = device_->buffer(bytes, "calibration");
    const double in = time_of(options_.seconds, [&] { buffer->write(0, host.data(), bytes); });
    next("copies from the device");
    const double out = time_of(options_.seconds, [&] { buffer->read(0, host.data(), bytes); });
    constexpr uint64_t kFew = 4;
    const double few = time_of(options_.seconds / 2, [&] {
      buffer->write(0, host.data(), kFew);
      buffer->read(0, host.data(), kFew);
    });
    r.transfer = std::max(few / 2, 1e-9);
    r.to_device = static_cast<double>(bytes) / beside(in, r.transfer);
    r.from_device = static_cast<double>(bytes) / beside(out, r.transfer);
  }

  // Larger and larger, until the product itself is what takes the time. 0: not taken.
  double product_rate(const Product& p, double run) {
    constexpr double kLong = 5e-3;
    double rate = 0;
    for (int64_t n = 512; n <= 8192; n *= 2) {
      if (fitting(n * n * 8) < n * n * 8) break;
      Graph g;
      Builder b(g);
      const Type square{p.dtype, {n, n}};
      const Value a = g.input("a", square), c = g.input("b", square);
      op::matmul product{.a = a, .b = c};
      if (p.tf32) product.f32_precision = "tf32";
      g.output("y", b.add(product));
      double seconds = 0;
      try {
        seconds = seconds_of(g, options_.seconds / 2);
      } catch (const Error& e) {
        if (e.code() != Code::unsupported) throw;
        return 0;
      }
      const auto side = static_cast<double>(n);
      rate = std::max(rate, 2 * side * side * side / beside(seconds, run));
      if (seconds > kLong) break;
    }
    return rate;
  }

  std::shared_ptr<Runtime> runtime_;
  const CalibrateOptions& options_;
  std::shared_ptr<Device> device_;
  uint32_t done_ = 0, total_ = 0;
};

}  // namespace

Rates measure_rates(const std::shared_ptr<Runtime>& runtime, const std::string& device,
                    const CalibrateOptions& options) {
  return Measurer(runtime, device, options).measure();
}

}  // namespace tenon::core
