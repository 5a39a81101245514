// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of random graphs: input data, a run of a graph, the distance between two
// runs, and who is right where they differ. TENON_RANDOM_DEVICE names the device that runs the graphs with fusion [cpu:0].
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <tenon/dtype.hpp>

#include "base/number.hpp"
#include "rig.hpp"

namespace tenon::test {

inline const std::string& random_device() {
  static const std::string the = [] {
    const char* text = std::getenv("TENON_RANDOM_DEVICE");
    return std::string(text ? text : "cpu:0");
  }();
  return the;
}
// TENON_RANDOM_PINS: which nodes run where, PATTERN=DEVICE and so on.
inline std::vector<std::pair<std::string, std::string>> random_pins() {
  std::vector<std::pair<std::string, std::string>> pins;
  const char* text = std::getenv("TENON_RANDOM_PINS");
  std::istringstream words(text ? text : "");
  for (std::string word; std::getline(words, word, ',');) {
    const size_t at = word.rfind('=');
    REQUIRE(at != std::string::npos);
    pins.emplace_back(word.substr(0, at), word.substr(at + 1));
  }
  return pins;
}
inline uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

using sdk::is_float;
using sdk::is_half;
using sdk::is_integer;
// Half of the distance from 1 to the next number.
inline double unit_of(tenon_dtype t) {
  return t == f64 ? 0x1p-53 : t == f32 ? 0x1p-24 : t == f16 ? 0x1p-11 : 0x1p-8;
}
inline void store_at(tenon_dtype t, std::byte* at, double v) {
  if (is_float(t)) {
    REQUIRE(core::store_number(t, at, v));
  } else {
    const auto whole = static_cast<int64_t>(v);
    std::memcpy(at, &whole, tenon_dtype_bits(t) / 8);  // little-endian: the low bytes
  }
}
inline double rounded(tenon_dtype t, double v) {
  std::byte bytes[8];
  REQUIRE(core::store_number(t, bytes, v));
  core::load_number(t, bytes, &v);
  return v;
}

// The content of an input or a weight, element by element.
struct Feed {
  std::string name;
  TensorType type;
  std::function<double(size_t)> value;
  bool weight = false;
};

// How the float inputs of a run are made. They are rounded to a dtype. With a nudge they are then
// moved by half a unit of it, up or down; each nudge gives other directions.
struct Numbers {
  tenon_dtype rounded;
  uint64_t nudge = 0;  // 0: none
};

inline std::vector<std::byte> content(const Feed& feed, uint64_t key, const Numbers& how) {
  const tenon_dtype dtype = feed.type.dtype;
  const size_t size = tenon_dtype_bits(dtype) / 8;
  std::vector<std::byte> bytes(static_cast<size_t>(feed.type.elements()) * size);
  for (size_t i = 0; i * size < bytes.size(); ++i) {
    double v = feed.value(i);
    if (is_float(dtype)) v = rounded(how.rounded, v);
    if (is_float(dtype) && how.nudge)
      v *= 1 + (noise(key + 1000 * how.nudge, i) < 0 ? -1 : 1) * unit_of(how.rounded);
    store_at(dtype, bytes.data() + i * size, v);
  }
  return bytes;
}

struct Result {
  TensorType type{};
  std::vector<std::byte> bytes{};
  std::vector<double> values{};  // of floats
};
using Results = std::map<std::string, Result>;

inline Results run(const Graph& graph, const std::vector<Feed>& feeds,
                   const std::vector<std::string>& outputs, const ExecutableOptions& options,
                   const Numbers& how, std::string* report = nullptr) {
  Store store(runtime());
  for (size_t k = 0; k < feeds.size(); ++k) {
    if (!feeds[k].weight) continue;
    const auto bytes = content(feeds[k], k, how);
    store.set(TENON_SPACE_WEIGHT, feeds[k].name, feeds[k].type, bytes.data(), bytes.size());
  }
  const Executable executable(runtime(), graph, store, options);
  if (report) *report = executable.report();
  Context context(executable);
  for (size_t k = 0; k < feeds.size(); ++k) {
    if (feeds[k].weight) continue;
    const auto bytes = content(feeds[k], k, how);
    context.set(feeds[k].name, feeds[k].type, bytes.data(), bytes.size());
  }
  context.run();
  Results results;
  for (const std::string& name : outputs) {
    Result& r = results[name];
    r.type = context.output_type(name);
    r.bytes.resize(r.type.bytes());
    context.get(name, r.bytes.data(), r.bytes.size());
    if (!is_float(r.type.dtype)) continue;
    r.values.resize(static_cast<size_t>(r.type.elements()));
    for (size_t i = 0; i < r.values.size(); ++i)
      core::load_number(r.type.dtype, r.bytes.data() + i * (tenon_dtype_bits(r.type.dtype) / 8),
                        &r.values[i]);
  }
  return results;
}

inline double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values)
    if (std::isfinite(v)) most = std::max(most, std::abs(v));
  return most;
}
inline double furthest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::isfinite(a[i]) && std::isfinite(b[i])) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// The largest finite number.
inline double most_of(tenon_dtype t) {
  return t == f64   ? 0x1.fffffffffffffp1023
         : t == f32 ? 0x1.fffffep127
         : t == f16 ? 65504
                    : 0x1.fep127;
}
inline bool is_near(double a, double b, double allowed) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= allowed;
}
// The oracle's judgment of a result that differs from the one without fusion, `plain`: it is right
// where it is near the exact one, and where that is beyond the dtype and it is, too. A graph may
// also overflow in between, where it is written so.
inline bool is_right(tenon_dtype t, double given, double plain, double exact, double room) {
  if (is_near(given, exact, room)) return true;
  if (std::isfinite(exact) && std::abs(exact) > most_of(t) / 2)
    return !(std::abs(given) < most_of(t) / 8);
  return !std::isfinite(given) && !std::isfinite(plain) &&
         (std::isnan(plain) || !std::isnan(given));
}

}  // namespace tenon::test
