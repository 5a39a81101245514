// SPDX-License-Identifier: Apache-2.0
// Builds, fills and times the cases of tenon bench, and measures the device's ceilings.
#include "cli/bench_case.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/modes.hpp"
#include "cli/op_text.hpp"
#include "cli/source.hpp"
#include "llm/tune/random.hpp"

namespace tenon::cli {
namespace {

uint16_t to_bf16(double v) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16);
}

// Truncates; numbers below the normal range of f16 become 0.
uint16_t to_f16(double v) {
  const auto f = std::bit_cast<uint32_t>(static_cast<float>(v));
  if (!(std::abs(v) >= 0x1p-14 && std::abs(v) < 65504)) return 0;
  return static_cast<uint16_t>((f >> 16 & 0x8000) | (((f & 0x7FFFFFFF) >> 13) - (112 << 10)));
}

// Repeats after a prime number of elements: a tensor of a gigabyte would take minutes to draw, and
// its rows still differ.
template <class T, class Make>
void write_all(std::vector<std::byte>& bytes, const Make& make) {
  constexpr size_t kPeriod = 1048583;
  auto* at = reinterpret_cast<T*>(bytes.data());
  const size_t count = bytes.size() / sizeof(T), drawn = std::min(count, kPeriod);
  for (size_t i = 0; i < drawn; ++i) at[i] = static_cast<T>(make(i));
  for (size_t i = drawn; i < count; i += drawn) std::copy_n(at, std::min(drawn, count - i), at + i);
}

std::vector<std::byte> content(const TensorType& type, const std::pair<double, double>* range,
                               double scale = 1) {
  std::vector<std::byte> bytes(type.bytes());
  const auto number = [&](size_t i) {
    if (!range) return scale * llm::normal(1, i);
    return range->first + (range->second - range->first) * llm::uniform(1, i);
  };
  const auto whole = [&](size_t i) { return std::floor(number(i)); };
  if (sdk::is_blocks(type.dtype)) {
    if (range) throw UsageError("--fill: expected an input of numbers, got blocks");
    llm::fill_blocks(1, bytes);
    return bytes;
  }
  switch (type.dtype) {
    case f32:
      write_all<float>(bytes, number);
      return bytes;
    case f64:
      write_all<double>(bytes, number);
      return bytes;
    case bf16:
      write_all<uint16_t>(bytes, [&](size_t i) { return to_bf16(number(i)); });
      return bytes;
    case f16:
      write_all<uint16_t>(bytes, [&](size_t i) { return to_f16(number(i)); });
      return bytes;
    default:
      break;
  }
  if (!range) return bytes;
  switch (type.dtype) {
    case i32:
      write_all<int32_t>(bytes, whole);
      break;
    case i64:
      write_all<int64_t>(bytes, whole);
      break;
    case boolean:
      write_all<uint8_t>(bytes, [&](size_t i) { return whole(i) != 0; });
      break;
    default:
      throw UsageError("--fill: expected an input of floats, i32, i64 or bool");
  }
  return bytes;
}

// Deep models with such weights stay finite and train.
constexpr double kWeightScale = 0.02;

const std::pair<double, double>* range_of(const Ranges& ranges, const std::string& name) {
  const auto found = ranges.find(name);
  return found == ranges.end() ? nullptr : &found->second;
}

bool parse(std::string_view text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(out);
}

void set_inputs(Context& run, Graph& graph, const Args& args) {
  const Ranges ranges = ranges_from(args, graph);
  std::map<int64_t, int64_t> numbers;  // of a symbolic dim
  for (const auto& [name, number] : bindings_from(args)) numbers[graph.symbol(name)] = number;
  for (const auto& in : graph.named(TENON_SPACE_INPUT)) {
    TensorType type = graph.type(in.value);
    for (int64_t& d : type.dims) {
      if (d >= 0) continue;
      const auto found = numbers.find(d);
      if (found == numbers.end())
        throw UsageError("input '" + in.name + "' has a symbol that --bind gives no number");
      d = found->second;
    }
    const auto bytes = content(type, range_of(ranges, in.name));
    run.set(in.name, type, bytes.data(), bytes.size());
  }
}

// ---- Cold caches

using Symbols = std::vector<std::pair<std::string, int64_t>>;

// Bytes read and written per flush, more than any cache holds.
constexpr int64_t kFlushBytes = int64_t{256} << 20;
constexpr std::string_view kFlush = "bench.flush";

// Adds two states that are larger than the caches and change in each run. Two, because a device may
// launch a single step differently; the flush alone must be launched like the graph.
void add_flush(Graph& graph) {
  for (const int k : {0, 1}) {
    const Value old =
        graph.state(std::string(kFlush) + std::to_string(k), {f32, {kFlushBytes / 8}});
    graph.update(old, graph.add(op::unary{.kind = k ? "abs" : "neg", .x = old}, kFlush));
  }
}

Graph flush_graph(Store& store) {
  Graph graph("flush");
  add_flush(graph);
  store.add_missing(graph);
  return graph;
}

// True if the flush runs before or after all other steps. In between, it would cool the data that
// steps pass to each other; this only happens with many steps.
bool is_at_an_end(const nlohmann::json& steps) {
  int changes = 0;
  for (size_t i = 1; i < steps.size(); ++i)
    changes += (steps[i]["node"] == kFlush) != (steps[i - 1]["node"] == kFlush);
  return changes < 2 || (changes == 2 && steps[0]["node"] == kFlush);
}

// The devices that run nodes of a graph, in order.
std::set<std::string> devices_of(const Executable& executable, const Symbols& symbols) {
  std::set<std::string> ids;
  const auto report = nlohmann::json::parse(executable.report(symbols));
  for (const auto& node : report["nodes"]) ids.insert(node["device"].get<std::string>());
  return ids;
}

// True if the device's memory is host memory: there is no launch, and the run time is the device's
// time.
bool is_host(const Runtime& runtime, const std::string& device) {
  for (const DeviceEntry& d : runtime.devices())
    if (d.id == device) return d.host_addressable;
  return false;
}

// A graph whose runs flush the caches of one device.
struct Flush {
  Flush(const Runtime& runtime, Store& store, const ExecutableOptions& options)
      : executable(runtime, flush_graph(store), store, options), context(executable) {}

  Executable executable;
  Context context;
};

// By turns the flushes and a run, which follows a flush of its own where both is true: then what a
// run costs the host is in both times, and their difference is the device's time alone.
Timing time_cold(const std::string& name, double seconds, std::deque<Flush>& flushes, Context& run,
                 bool both) {
  using Clock = std::chrono::steady_clock;
  const auto took = [](const auto& work) {
    const auto start = Clock::now();
    work();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  const auto flush = [&] {
    for (Flush& f : flushes) f.context.run();
  };
  constexpr int kWarm = 3, kLeast = 20, kMost = 10000;
  std::vector<double> with, without;
  auto end = Clock::time_point::max();
  for (int i = -kWarm; i < kLeast || (Clock::now() < end && i < kMost); ++i) {
    const double first = took(flush), second = took([&] { run.run(); });
    if (i < 0) continue;
    if (i == 0)
      end = Clock::now() +
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    without.push_back(first);
    with.push_back(second);
  }
  std::sort(with.begin(), with.end());
  std::sort(without.begin(), without.end());
  Timing t;
  t.name = name;
  t.median_us = with[with.size() / 2] - (both ? without[without.size() / 2] : 0);
  t.best_us = with[0] - (both ? without[0] : 0);
  t.runs = static_cast<int64_t>(with.size());
  return t;
}

Timing bench_cold(const Runtime& runtime, Graph& graph, Store& store, const std::string& name,
                  const Args& args, double seconds) {
  ExecutableOptions options = executable_options(args);
  const Symbols symbols = bindings_from(args);
  // Uses the graph's own devices: "auto" might choose another one for the flush.
  std::optional<Executable> executable(std::in_place, runtime, graph, store, options);
  const std::set<std::string> devices = devices_of(*executable, symbols);
  std::deque<Store> stores;  // a state is on one device only
  std::deque<Flush> flushes;
  options.pins.clear(), options.memory_limits.clear(), options.buckets.clear();
  for (const std::string& device : devices) {
    options.device = device;
    flushes.emplace_back(runtime, flushes.empty() ? store : stores.emplace_back(runtime), options);
  }
  bool both = devices.size() == 1 && !is_host(runtime, *devices.begin());
  if (both) {
    Graph with = Graph::parse(graph.print());
    add_flush(with);
    Executable flushing(runtime, with, store, options);
    both = devices_of(flushing, symbols) == devices &&
           is_at_an_end(nlohmann::json::parse(flushing.report(symbols))["steps"]);
    if (both) executable.emplace(std::move(flushing));
  }
  Context run(*executable);
  set_inputs(run, graph, args);
  Timing t = time_cold(name, seconds, flushes, run, both);
  add_cost(t, *executable, symbols);
  if (both) t.bytes -= 2.0 * kFlushBytes;
  return t;
}

double rate_of(const Runtime& runtime, const Args& args, const std::string& op, bool flops) {
  const Graph graph = graph_of_op(op);
  Store store(runtime);
  const Executable executable(runtime, graph, store, {.device = device_of(args)});
  Context run(executable);
  for (const auto& in : graph.named(TENON_SPACE_INPUT)) {
    const TensorType type = graph.type(in.value);
    const std::vector<float> ones(static_cast<size_t>(type.elements()), 1.0f);
    run.set(in.name, type.dims, ones);
  }
  Timing t = time_runs(op, 0.5, [&] { run.run(); });
  add_cost(t, executable);
  return flops ? t.gigaflops() : t.gigabytes_per_second();
}

}  // namespace

Timing time_runs(const std::string& name, double seconds, const std::function<void()>& body) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < 2; ++i) body();
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (times.size() < 3 || (Clock::now() < end && times.size() < 10000)) {
    const auto start = Clock::now();
    body();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  Timing t;
  t.name = name;
  t.median_us = times[times.size() / 2];
  t.best_us = times.front();
  t.runs = static_cast<int64_t>(times.size());
  return t;
}

// "2 of 9 nodes run on cpu:0 instead; first: topk 'best': ..."
static std::string fallback_note(const nlohmann::json& nodes) {
  size_t count = 0;
  std::string first;
  for (const auto& node : nodes) {
    if (node["verdict"] != "fallback" || ++count > 1) continue;
    first = node["device"].get<std::string>() +
            " instead; first: " + node["op"].get<std::string>() + " '" +
            node["name"].get<std::string>() + "': " + node["reason"].get<std::string>();
  }
  if (count == 0) return {};
  return std::to_string(count) + " of " + std::to_string(nodes.size()) + " nodes run on " + first;
}

void add_cost(Timing& timing, const Executable& executable,
              const std::vector<std::pair<std::string, int64_t>>& symbols) {
  const auto report = nlohmann::json::parse(executable.report(symbols));
  timing.bytes = report["bytes"].get<double>();
  for (const auto& node : report["nodes"]) timing.flops += node["flops"].get<double>();
  timing.fallback = fallback_note(report["nodes"]);
}

Ranges ranges_from(const Args& args, const Graph& graph) {
  Ranges out;
  for (const std::string& f : args.list("--fill")) {
    const size_t equals = f.rfind('='), colon = f.rfind(':');
    double low = 0, high = 0;
    if (equals == std::string::npos || colon == std::string::npos || colon < equals ||
        !parse(std::string_view(f).substr(equals + 1, colon - equals - 1), low) ||
        !parse(std::string_view(f).substr(colon + 1), high) || !(low < high) ||
        !(std::max(-low, high) <= 0x1p31))
      throw UsageError("--fill " + f + ": expected NAME=LOW:HIGH, LOW below HIGH, within 2^31");
    const std::string name = f.substr(0, equals);
    bool known = false;
    for (const auto& in : graph.named(TENON_SPACE_INPUT)) known |= in.name == name;
    if (!known) throw UsageError("--fill " + f + ": the graph has no input '" + name + "'");
    out[name] = {low, high};
  }
  return out;
}

Timing bench_graph(const Runtime& runtime, Graph graph, Store& store, const std::string& name,
                   const Args& args, double seconds) {
  const std::vector<std::string> known = store.names(TENON_SPACE_WEIGHT);
  for (const auto& w : graph.named(TENON_SPACE_WEIGHT)) {
    if (std::ranges::binary_search(known, w.name)) continue;
    const TensorType type = graph.type(w.value);
    const auto bytes = content(type, nullptr, kWeightScale);
    store.set(TENON_SPACE_WEIGHT, w.name, type, bytes.data(), bytes.size());
  }
  store.add_missing(graph);
  if (args.has("--cold")) return bench_cold(runtime, graph, store, name, args, seconds);
  const Executable executable(runtime, graph, store, executable_options(args));
  Context run(executable);
  set_inputs(run, graph, args);
  Timing t = time_runs(name, seconds, [&] { run.run(); });
  add_cost(t, executable, bindings_from(args));
  return t;
}

// The measured rates of the device that an id or kind names. For "auto", the device is not known
// here.
static std::optional<nlohmann::json> calibrated_rates(const Runtime& runtime,
                                                      const std::string& device) {
  for (const DeviceEntry& d : runtime.devices()) {
    if (d.id != device && d.kind != device) continue;
    const nlohmann::json known = nlohmann::json::parse(runtime.rates(d.id));
    if (known["measured"].get<bool>()) return known["rates"];
    return std::nullopt;
  }
  return std::nullopt;
}

Ceilings measure_ceilings(const Runtime& runtime, const Args& args) {
  Ceilings c;
  c.copy_16mib = rate_of(runtime, args, "unary(f32[4194304]) {kind=\"neg\"}", false);
  if (const auto known = calibrated_rates(runtime, device_of(args))) {
    c.copy_128mib = (*known)["copy_bytes_per_second"].get<double>() * 1e-9;
    c.matmul = (*known)["product_flops_per_second"].value("f32", 0.0) * 1e-9;
    c.calibrated = true;
    return c;
  }
  c.copy_128mib = rate_of(runtime, args, "unary(f32[33554432]) {kind=\"neg\"}", false);
  c.matmul = rate_of(runtime, args, "matmul(f32[2048,2048], f32[2048,2048])", true);
  return c;
}

}  // namespace tenon::cli
