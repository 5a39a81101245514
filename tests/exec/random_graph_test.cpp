// SPDX-License-Identifier: Apache-2.0
// Random graphs with fusion must give what they give on the cpu without. A failing graph is shrunk
// and printed with its seed. TENON_RANDOM_GRAPHS sets how many are tried, TENON_RANDOM_SEED the
// first seed, TENON_RANDOM_SECONDS when a test stops trying, TENON_RANDOM_DEVICE what runs them,
// TENON_RANDOM_PINS which nodes run where; TENON_RANDOM_JOINS=0: on devices that join nothing.
#include "random_graph.hpp"

#include <chrono>
#include <optional>
#include <sstream>

using namespace tenon;
using namespace tenon::test;

namespace {

// What fusion made of a graph, and whether it runs on several devices.
struct Joined {
  bool any = false, products = false, several = false;
};

Results run(const Built& built, const ExecutableOptions& options, const Numbers& how,
            Joined* joined = nullptr) {
  std::string report;
  Results results = run(built.g, built.feeds(), built.outputs, options, how, &report);
  if (joined) {
    joined->any = report.find("joined: ") != std::string::npos;
    joined->products = report.find("\"op\":\"batch_linear\"") != std::string::npos;
    joined->several = report.find("\"transfers_in\":0") != report.rfind("\"transfers_in\":");
  }
  return results;
}

// The oracle: the template in f64, op by op, on the numbers as the dtype has them. It tells how far
// a right run in the dtype may be: what the run without fusion is off, and what the graph makes of
// inputs and of results in between that are moved by half a unit, as a rounding would: two results
// that are equal without fusion may be rounded apart with it, and what is left of their difference
// is all error.
class Oracle {
 public:
  explicit Oracle(Recipe r) : dtype_(r.dtype) {
    r.dtype = f64;
    const Built built(r);
    const ExecutableOptions options{.device = "template:0", .simplify = false};
    exact_ = run(built, options, {dtype_});
    moved_ = run(Built(r, unit_of(dtype_)), options, {dtype_, 1});
  }
  const std::vector<double>& exact(const std::string& name) const { return exact_.at(name).values; }
  double room(const std::string& name, const std::vector<double>& plain) const {
    const std::vector<double>& y = exact(name);
    return kTimes * std::max({furthest(plain, y), furthest(moved_.at(name).values, y),
                              unit_of(dtype_) * largest(y)});
  }

 private:
  static constexpr double kTimes = 16;
  tenon_dtype dtype_;
  Results exact_, moved_;
};

// What differs, or nothing.
std::string difference(const Recipe& r, Joined* joined = nullptr) {
  Results plain, fused;
  std::optional<Oracle> oracle;
  try {
    const Built built(r);
    plain = run(built, {.device = "cpu:0", .fuse = false}, {r.dtype});
    fused = run(built, {.device = random_device(), .allow_fallback = false, .pins = random_pins()},
                {r.dtype}, joined);
    if (is_half(r.dtype)) oracle.emplace(r);
  } catch (const std::exception& e) {
    return e.what();
  }
  for (const auto& [name, expected] : plain) {
    const Result& given = fused.at(name);
    if (is_integer(r.dtype)) {
      if (given.bytes != expected.bytes) return name + " has other bits fused than not fused";
      continue;
    }
    // What fused and not fused have in common is right, but for halves.
    const double close =
        is_half(r.dtype) ? 0
                         : (r.dtype == f64 ? 1e-9 : 2e-3) * std::max(1.0, largest(expected.values));
    std::optional<double> room;
    for (size_t i = 0; i < expected.values.size(); ++i) {
      const double y = given.values[i], plain_y = expected.values[i];
      if (is_near(y, plain_y, close)) continue;
      if (!oracle) oracle.emplace(r);
      if (!room) room = oracle->room(name, expected.values);
      const double exact = oracle->exact(name)[i];
      if (is_right(r.dtype, y, plain_y, exact, *room)) continue;
      std::ostringstream out;
      out << name << "[" << i << "] is " << y << " fused, " << plain_y << " not fused, " << exact
          << " within " << *room << " expected";
      return out.str();
    }
  }
  return {};
}

// The recipe without step k: its readers read its first operand.
Recipe without(const Recipe& r, size_t k) {
  Recipe out = r;
  const uint32_t gone = static_cast<uint32_t>(k) + 2, instead = r.steps[k].a;
  const auto moved = [&](uint32_t v) { return v == gone ? instead : v > gone ? v - 1 : v; };
  out.steps.erase(out.steps.begin() + static_cast<std::ptrdiff_t>(k));
  for (Step& s : out.steps) s.a = moved(s.a), s.b = moved(s.b);
  out.by = moved(r.by);
  return out;
}

Recipe shrunk(Recipe r) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    std::vector<Recipe> tries;
    for (size_t k = 0; k < r.steps.size() && r.steps.size() > 1; ++k)
      tries.push_back(without(r, k));
    for (size_t k = 0; k < r.steps.size(); ++k)
      if (r.steps[k].leave) tries.push_back(r), tries.back().steps[k].leave = false;
    if (r.gradient) tries.push_back(r), tries.back().gradient = false;
    for (const Recipe& t : tries)
      if (!difference(t).empty()) {
        r = t;
        smaller = true;
        break;
      }
  }
  return r;
}

// The graphs of so many seeds; a quarter at least must be such that fusion finds something, where
// recipes ask for it a tenth such that it joins products, which the cpu claims.
void check_graphs(const std::vector<tenon_dtype>& dtypes, uint64_t otherwise) {
  const uint64_t first = number_from("TENON_RANDOM_SEED", 1),
                 most = number_from("TENON_RANDOM_GRAPHS", otherwise),
                 seconds = number_from("TENON_RANDOM_SECONDS", 1000000);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  uint64_t count = 0, with_joins = 0, with_products = 0, on_several = 0;
  for (; count < most && std::chrono::steady_clock::now() < end; ++count) {
    const uint64_t seed = first + count;
    const Recipe r = random_recipe(seed, dtypes);
    Joined joined;
    const std::string apart = difference(r, &joined);
    with_joins += joined.any;
    with_products += joined.products;
    on_several += joined.several;
    if (apart.empty()) continue;
    const Recipe small = shrunk(r);
    FAIL("seed ", seed, ": ", apart, "; shrunk: ", difference(small), "\n", Built(small).g.print());
  }
  MESSAGE(count, " graphs on ", random_device(), ", ", with_joins, " of them joined");
  if (number_from("TENON_RANDOM_JOINS", 1)) CHECK(with_joins * 4 > count);
  if (random_device().find(',') != std::string::npos) CHECK(on_several * 2 > count);
  if (dtypes[0] == f64 && random_device() == "cpu:0") CHECK(with_products * 10 > count);
}

}  // namespace

TEST_SUITE("exec/random_graph") {
  TEST_CASE("fusion: on and off give the same on random graphs") { check_graphs({f64, f32}, 3000); }
  TEST_CASE("fusion: of halves it is as near to f64 as they are without") {
    check_graphs({f16, bf16}, 1000);
  }
  TEST_CASE("fusion: integers have equal bits") { check_graphs({i8, i16, i32, i64, u8}, 1000); }
}
