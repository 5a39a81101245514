// SPDX-License-Identifier: Apache-2.0
// Results that are too large for the caches and are written past them: row by row what a small run
// gives, bit by bit.
#include <algorithm>
#include <cstring>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

// A graph whose inputs with R rows are independent row by row, and so its output y.
struct Case {
  const char* name;
  int64_t rows;  // so many that y has 12 MiB and more
  const char* text;
};

const Case kCases[] = {
    {"gelu", 3200, R"(input x: f32[R,1000]
       y = unary(x) {kind="gelu"})"},
    {"add", 3200, R"(input x: f32[R,1000]
       input z: f32[R,1000]
       y = binary(x, z) {kind="add"})"},
    {"f64 mul", 1600, R"(input x: f64[R,1000]
       input z: f64[1000]
       y = binary(x, z) {kind="mul"})"},
    {"region", 3200, R"(input x: f32[R,1000]
       input z: f32[R,1000]
       const two: f32[] = {2.5}
       a = binary(x, two) {kind="mul"}
       b = binary(two, a) {kind="sub"}
       c = unary(b) {kind="gelu"}
       y = binary(c, z) {kind="div"})"},
    {"region of several dtypes", 1600, R"(input x: f32[R,1000]
       input z: f64[R,1000]
       w = cast(x) {to=f64}
       c = compare(w, z) {kind="lt"}
       a = binary(w, z) {kind="mul"}
       y = where(c, a, z))"},
    {"softmax", 3200, R"(input x: f32[R,1000]
       y = softmax(x))"},
    {"log_softmax", 3200, R"(input x: f32[R,1000]
       y = softmax(x) {log=true})"},
    {"softmax of long rows", 640, R"(input x: f32[R,5000]
       y = softmax(x))"},
    {"softmax_backward", 3200, R"(input x: f32[R,1000]
       input z: f32[R,1000]
       y = softmax_backward(x, z))"},
    {"layer_norm", 3200, R"(input x: f32[R,1000]
       input g: f32[1000]
       y = layer_norm(x, g, g))"},
    {"layer_norm_backward", 3200, R"(input x: f32[R,1000]
       input z: f32[R,1000]
       input g: f32[1000]
       (y, dg, db) = layer_norm_backward(x, z, g)
       output "dg" = dg)"},
    {"rms_norm", 3200, R"(input x: f32[R,1000]
       input g: f32[1000]
       y = rms_norm(x, g))"},
    {"rms_norm_backward", 3200, R"(input x: f32[R,1000]
       input z: f32[R,1000]
       input g: f32[1000]
       y = rms_norm_backward(x, z, g))"},
    {"group_norm", 1100, R"(input x: f32[R,6,10,50]
       input g: f32[6]
       y = group_norm(x, g, g) {groups=3})"},
    {"group_norm_backward", 1100, R"(input x: f32[R,6,10,50]
       input z: f32[R,6,10,50]
       input g: f32[6]
       y = group_norm_backward(x, z, g) {groups=3})"},
    {"rope", 400, R"(input x: f32[R,5,40,50]
       input c: f32[40,20]
       y = rope(x, c, c) {layout="bhsd", n_rot=40})"},
    {"cumsum", 3200, R"(input x: f32[R,1000]
       y = cumsum(x))"},
    {"reversed cumsum", 3200, R"(input x: f32[R,1000]
       y = cumsum(x) {reverse=true, exclusive=true})"},
    {"cross_entropy_backward", 700, R"(input d: f32[R]
       input x: f32[R,5000]
       input l: i64[R]
       y = cross_entropy_backward(d, x, l) {reduction="none", label_smoothing=0.1})"},
    {"gather", 3200, R"(input x: f32[100,1000]
       input l: i64[R]
       y = gather(x, l))"},
    {"maxpool2d_backward", 1100, R"(input d: f32[R,4,12,15]
       input x: f32[R,4,25,31]
       y = maxpool2d_backward(d, x) {kernel=[2, 2]})"},
};

// Element i of an input: the same whatever the run's size.
float number(uint64_t seed, int64_t i) {
  uint64_t h = (seed + static_cast<uint64_t>(i)) * 0x9E3779B97F4A7C15u;
  h ^= h >> 29;
  return static_cast<float>(static_cast<int64_t>(h % 20011) - 10005) / 4096.0f;
}

std::vector<std::byte> content(const TensorType& type, uint64_t seed, int64_t first) {
  std::vector<std::byte> bytes(type.bytes());
  const auto fill = [&]<class T>(T, auto make) {
    T* to = reinterpret_cast<T*>(bytes.data());
    for (int64_t i = 0; i < type.elements(); ++i) to[i] = static_cast<T>(make(first + i));
  };
  if (type.dtype == f32) fill(float{}, [&](int64_t i) { return number(seed, i); });
  if (type.dtype == f64) fill(double{}, [&](int64_t i) { return number(seed, i); });
  if (type.dtype == i64) fill(int64_t{}, [&](int64_t i) { return i * 37 % 100; });
  return bytes;
}

// y of rows [first, first + rows).
std::vector<std::byte> run_rows(const Case& c, int64_t first, int64_t rows) {
  std::string text = "graph {\n" + std::string(c.text) + "\noutput \"y\" = y\n}\n";
  for (size_t at; (at = text.find("[R")) != std::string::npos;)
    text.replace(at + 1, 1, std::to_string(rows));
  const Graph graph = Graph::parse(text, c.name);
  Store store(runtime());
  const Executable executable(runtime(), graph, store, {.device = "cpu:0"});
  CHECK(executable.report().find("\"verdict\":\"decomposed\"") == std::string::npos);
  Context run(executable);
  uint64_t seed = 0;
  for (const auto& in : graph.named(TENON_SPACE_INPUT)) {
    const TensorType type = graph.type(in.value);
    const bool by_row = type.dims[0] == rows;
    const auto bytes = content(type, ++seed << 32, by_row ? first * type.elements() / rows : 0);
    run.set(in.name, type, bytes.data(), bytes.size());
  }
  run.run();
  std::vector<std::byte> y(run.output_type("y").bytes());
  run.get("y", y.data(), y.size());
  return y;
}

}  // namespace

TEST_SUITE("exec/stream") {
  TEST_CASE("rows: a result beyond the caches has the rows of a small one") {
    constexpr int64_t kFew = 7;
    for (const Case& c : kCases) {
      CAPTURE(std::string(c.name));
      const auto all = run_rows(c, 0, c.rows);
      CHECK(all.size() >= 12 << 20);
      const size_t row = all.size() / static_cast<size_t>(c.rows);
      for (const int64_t first : {int64_t{0}, c.rows / 2 + 1, c.rows - kFew}) {
        CAPTURE(first);
        const auto few = run_rows(c, first, kFew);
        REQUIRE(few.size() == row * kFew);
        CHECK(std::memcmp(few.data(), all.data() + static_cast<size_t>(first) * row, few.size()) ==
              0);
      }
    }
  }

  TEST_CASE("gather_backward: rows without updates are zero, others are sums") {
    constexpr int64_t kRows = 4000, kCount = 900, kWidth = 1000;
    const Graph graph = Graph::parse(R"(graph {
        input d: f32[900,1000]
        input l: i64[900]
        y = gather_backward(d, l) {dim=4000}
        output "y" = y
      })");
    Store store(runtime());
    const Executable executable(runtime(), graph, store, {.device = "cpu:0"});
    Context run(executable);
    std::vector<float> d(kCount * kWidth), expected(kRows * kWidth);
    std::vector<int64_t> l(kCount);
    for (int64_t k = 0; k < kCount; ++k) {
      l[static_cast<size_t>(k)] = k % 3 == 0 ? k * 4 : (k * 31) % kRows;
      for (int64_t i = 0; i < kWidth; ++i) {  // sums of small integers are exact
        const auto v = static_cast<float>((k * 7 + i) % 17);
        d[static_cast<size_t>(k * kWidth + i)] = v;
        expected[static_cast<size_t>(l[static_cast<size_t>(k)] * kWidth + i)] += v;
      }
    }
    run.set("d", {kCount, kWidth}, d);
    run.set("l", {kCount}, l);
    run.run();
    CHECK(run.get<float>("y") == expected);
  }
}
