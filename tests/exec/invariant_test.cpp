// SPDX-License-Identifier: Apache-2.0
// Values that once were wrong somewhere: each case is small, by hand, and runs fused and as it
// stands. tests/README.md lists what must stay true, and where it is checked.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using Floats = std::vector<float>;

Value binary(Graph& g, const char* kind, Value a, Value b) {
  return g.add(op::binary{.kind = kind, .a = a, .b = b});
}
Value unary(Graph& g, const char* kind, Value x) { return g.add(op::unary{.kind = kind, .x = x}); }

// The outputs of one run.
class Run {
 public:
  Run(const Graph& g, Store& store, ExecutableOptions options)
      : executable_(runtime(), g, store, options), context_(executable_) {}
  Context& operator*() { return context_; }
  Context* operator->() { return &context_; }
  // The tests of fusion would prove nothing without it.
  bool joined() const { return executable_.report().find("joined: ") != std::string::npos; }
  // How many products were joined with what follows them.
  size_t linears() const {
    const auto report = nlohmann::json::parse(executable_.report());
    size_t count = 0;
    for (const auto& n : report["nodes"])
      count += n["op"] == "linear" && n["note"].get<std::string>().starts_with("joined: matmul + ");
    return count;
  }

 private:
  Executable executable_;
  Context context_;
};

// Every way to compile that has to give the same.
std::vector<ExecutableOptions> ways() {
  std::vector<ExecutableOptions> all;
  for (const char* device : {"cpu:0", "template:0", "adversary:0"})
    all.push_back({.device = device});
  all.push_back({.device = "cpu:0", .fuse = false});
  all.push_back({.device = "cpu:0", .simplify = false});
  return all;
}

void check_joined(const Run& run, const ExecutableOptions& way) {
  if (way.device == "cpu:0") CHECK(run.joined() == (way.fuse && way.simplify));
}

// By cutting; small integers are exact.
uint16_t to_bf16(float v) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16); }
float from_bf16(uint16_t v) { return std::bit_cast<float>(uint32_t{v} << 16); }
// Of numbers that f16 holds exactly, zero and normal ones.
uint16_t to_f16(float v) {
  if (v == 0) return 0;
  const auto bits = std::bit_cast<uint32_t>(v);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | ((bits >> 23 & 0xFF) - 112) << 10 |
                               (bits >> 13 & 0x3FF));
}
float from_f16(uint16_t v) {
  if ((v & 0x7FFF) == 0) return 0;
  return std::bit_cast<float>((uint32_t{v} & 0x8000) << 16 |
                              ((uint32_t{v} >> 10 & 0x1F) + 112) << 23 |
                              (uint32_t{v} & 0x3FF) << 13);
}

template <class T>
std::vector<T> encode(const Floats& values, T (*one)(float)) {
  std::vector<T> out;
  for (const float v : values) out.push_back(one(v));
  return out;
}

}  // namespace

TEST_SUITE("exec/invariant") {
  TEST_CASE("fusion: an intermediate that leaves, beside the reader that it is fused with") {
    for (const ExecutableOptions& way : ways()) {
      Graph g("leaves");
      const Value x = g.input("x", {f32, {2, 2}}), w = g.weight("w", {f32, {2, 2}}),
                  b = g.weight("b", {f32, {2}});
      const Value product = g.add(op::matmul{.a = x, .b = w});
      const Value sum = binary(g, "add", product, b);
      g.output("sum", sum);
      g.output("y", unary(g, "relu", sum));
      g.output("product", product);
      Store store(runtime());
      store.set<float>(TENON_SPACE_WEIGHT, "w", {2, 2}, {1, 2, 3, 4});
      store.set<float>(TENON_SPACE_WEIGHT, "b", {2}, {-8, 1});
      Run run(g, store, way);
      check_joined(run, way);
      run->set<float>("x", {2, 2}, {1, 1, 2, 0});
      run->run();
      CHECK(run->get<float>("product") == Floats{4, 6, 2, 4});
      CHECK(run->get<float>("sum") == Floats{-4, 7, -6, 5});
      CHECK(run->get<float>("y") == Floats{0, 7, 0, 5});
    }
  }

  TEST_CASE("softmaxes and losses: a line's numbers do not depend on what shares its vectors") {
    // Classes side by side (axis 1) or one after the other (axis 2); the first line's numbers stay,
    // those of the others and of what ran before (it leaves its own on the stack) do not.
    constexpr int64_t kClasses = 61, kItems = 4;
    for (const int64_t axis : {1, 2}) {
      CAPTURE(axis);
      const std::vector<int64_t> dims{1, axis == 1 ? kClasses : kItems,
                                      axis == 1 ? kItems : kClasses};
      Graph g("lines");
      const Value logits = g.input("logits", {f32, dims}),
                  labels = g.input("labels", {i64, {1, kItems}}), dy = g.input("dy", {f32, {}});
      const Value p = g.add(op::softmax{.axis = axis, .x = logits}),
                  log_p = g.add(op::softmax{.axis = axis, .log = true, .x = logits});
      g.output("p", p);
      g.output("log p", log_p);
      g.output("d p", g.add(op::softmax_backward{.axis = axis, .dy = logits, .y = p}));
      g.output("d log p",
               g.add(op::softmax_backward{.axis = axis, .log = true, .dy = logits, .y = log_p}));
      g.output(
          "dx",
          g.add(op::cross_entropy_backward{
              .axis = axis, .reduction = "sum", .dy = dy, .logits = logits, .labels = labels}));
      Store store(runtime());
      Run run(g, store, {.device = "cpu:0"});
      run->set<float>("dy", {}, {1});
      const auto at = [&](int64_t item, int64_t k) {
        return static_cast<size_t>(axis == 1 ? k * kItems + item : item * kClasses + k);
      };
      // The first line's results.
      const auto results = [&](const std::array<float, 3>& others, int64_t label) {
        Floats x(kClasses * kItems);
        for (int64_t k = 0; k < kClasses; ++k) {
          x[at(0, k)] = 1 - static_cast<float>(k % 41) / 7;
          for (int64_t item = 1; item < kItems; ++item)
            x[at(item, k)] = k == 5 ? 2 : others[static_cast<size_t>(item - 1)];
        }
        run->set<float>("logits", dims, x);
        run->set<int64_t>("labels", {1, kItems}, {1, label, 3, label});
        run->run();
        std::map<std::string, Floats> out;
        for (const char* name : {"p", "log p", "d p", "d log p", "dx"}) {
          const Floats all = run->get<float>(name);
          for (int64_t k = 0; k < kClasses; ++k) out[name].push_back(all[at(0, k)]);
        }
        return out;
      };
      const auto expected = results({0, 0, 0}, 2);
      CHECK(expected.at("dx")[1] < -0.5f);
      const float inf = std::numeric_limits<float>::infinity();
      for (const std::array<float, 3> others :
           {std::array{-1000.0f, 0.0f, 90.0f}, {-95.0f, -95.0f, -95.0f}, {-inf, inf, 1000.0f}})
        for (const int64_t label : {2, -100}) {
          CAPTURE(others[0]);
          CAPTURE(label);
          for (const auto& [name, values] : results(others, label)) {
            CAPTURE(name);
            CHECK(values == expected.at(name));
          }
          CHECK(results({0, 0, 0}, -100) == expected);
        }
    }
  }

  TEST_CASE("fusion: a bias of one element, and one that is made after the product") {
    for (const ExecutableOptions& way : ways()) {
      Graph g("bias");
      const Value x = g.input("x", {f32, {2, 2}}), w = g.weight("w", {f32, {2, 2}});
      const Value w2 = g.weight("w2", {f32, {2, 2}});
      const Value product = g.add(op::matmul{.a = x, .b = w}),
                  own = g.add(op::matmul{.a = x, .b = w2});
      const Value late = g.weight("late", {f32, {2}});
      const Value doubled = binary(g, "add", late, late);  // stands behind the product it goes to
      g.output("scalar", unary(g, "relu", binary(g, "add", product, g.scalar(-5.0f))));
      g.output("late", unary(g, "relu", binary(g, "add", own, doubled)));
      Store store(runtime());
      store.set<float>(TENON_SPACE_WEIGHT, "w", {2, 2}, {1, 2, 3, 4});
      store.set<float>(TENON_SPACE_WEIGHT, "w2", {2, 2}, {5, 6, 7, 8});
      store.set<float>(TENON_SPACE_WEIGHT, "late", {2}, {-5.5, 0.5});
      Run run(g, store, way);
      check_joined(run, way);
      CHECK(run.linears() == (way.device == "cpu:0" && way.fuse && way.simplify ? 1 : 0));
      run->set<float>("x", {2, 2}, {1, 1, 2, 0});
      run->run();
      CHECK(run->get<float>("scalar") == Floats{0, 1, 0, 0});
      CHECK(run->get<float>("late") == Floats{1, 15, 0, 13});
    }
  }

  TEST_CASE("fusion: rows of one element broadcast inside a region, and a reduction ends it") {
    for (const ExecutableOptions& way : ways()) {
      Graph g("rows");
      const Value x = g.input("x", {f32, {3, 4}}), c = g.input("c", {f32, {3, 1}}),
                  r = g.input("r", {f32, {4}});
      const Value h = binary(g, "sub", binary(g, "mul", x, c), r);
      const Value y = unary(g, "relu", binary(g, "add", h, c));
      g.output("y", y);
      g.output("sums", g.add(op::reduce{.kind = "sum", .axes = {1}, .x = y}));
      Store store(runtime());
      Run run(g, store, way);
      check_joined(run, way);
      run->set<float>("x", {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
      run->set<float>("c", {3, 1}, {1, -1, 2});
      run->set<float>("r", {4}, {0, 1, 2, -9});
      run->run();
      CHECK(run->get<float>("y") == Floats{2, 2, 2, 14, 0, 0, 0, 0, 20, 21, 22, 35});
      CHECK(run->get<float>("sums") == Floats{20, 0, 98});
    }
  }

  TEST_CASE(
      "batches: updates of many small weights in one node, fused or not, are equal bit for bit") {
    constexpr int kWeights = 12;
    const auto dims = [](int k) { return std::vector<int64_t>{3 + k % 5, 7}; };
    const auto name = [](const char* what, int k) { return what + std::to_string(k); };
    // w = w - lr * g / 3, and a mean that goes after it; the fifth weight learns from what the
    // first was, which a batch may write over.
    const auto build = [&](Graph& g) {
      const Value lr = g.input("lr", {f32, {}});
      Value first;
      for (int k = 0; k < kWeights; ++k) {
        const Value w = g.weight(name("w", k), {f32, dims(k)});
        if (k == 0) first = w;
        const Value grad = k == 5 ? first : g.input(name("g", k), {f32, dims(k)});
        const Value step = binary(g, "div", binary(g, "mul", grad, lr), g.scalar(3.0f));
        const Value fresh = binary(g, "sub", w, step);
        g.update(w, fresh);
        const Value mean = g.state(name("mean", k), {f32, dims(k)});
        g.update(mean, binary(g, "add", mean, fresh));
      }
    };
    std::map<std::string, Floats> first;
    for (const ExecutableOptions& way : ways()) {
      Graph g("small updates");
      build(g);
      Store store(runtime());
      for (int k = 0; k < kWeights; ++k) {
        Floats w(static_cast<size_t>(dims(k)[0] * dims(k)[1]));
        for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(noise(k, i));
        store.set<float>(TENON_SPACE_WEIGHT, name("w", k), dims(k), w);
      }
      store.add_missing(g);
      const Executable executable(runtime(), g, store, way);
      const bool batched =
          executable.report().find("\"op\":\"batch_elementwise_region\"") != std::string::npos;
      CHECK(batched == (way.device == "cpu:0" && way.fuse && way.simplify));
      Context run(executable);
      run.set<float>("lr", {}, {0.1f});
      for (int step = 0; step < 3; ++step) {
        for (int k = 0; k < kWeights; ++k) {
          if (k == 5) continue;
          Floats grad(static_cast<size_t>(dims(k)[0] * dims(k)[1]));
          for (size_t i = 0; i < grad.size(); ++i)
            grad[i] = static_cast<float>(noise(100 * (step + 1) + k, i));
          run.set<float>(name("g", k), dims(k), grad);
        }
        run.run();
      }
      for (int k = 0; k < kWeights; ++k)
        for (const auto& [space, what] :
             {std::pair(TENON_SPACE_WEIGHT, "w"), std::pair(TENON_SPACE_STATE, "mean")}) {
          const Floats now = store.get<float>(space, name(what, k));
          const auto [at, fresh] = first.try_emplace(name(what, k), now);
          CHECK_MESSAGE(at->second == now, way.device, " ", at->first);
        }
    }
  }

  TEST_CASE("compare: two readers of one comparison") {
    for (const ExecutableOptions& way : ways()) {
      Graph g("compare");
      const Value x = g.input("x", {f32, {4}}), y = g.input("y", {f32, {4}});
      const Value less = g.add(op::compare{.kind = "lt", .a = x, .b = y});
      g.output("least", g.add(op::where{.cond = less, .a = x, .b = y}));
      g.output("count",
               g.add(op::reduce{.kind = "sum", .x = g.add(op::cast{.to = f32, .x = less})}));
      Store store(runtime());
      Run run(g, store, way);
      run->set<float>("x", {4}, {1, 5, 3, 7});
      run->set<float>("y", {4}, {2, 4, 3, 9});
      run->run();
      CHECK(run->get<float>("least") == Floats{1, 4, 3, 7});
      CHECK(run->get<float>("count") == Floats{2});
    }
  }

  TEST_CASE("attention: a row without keys gives zeros, whatever v and its gradient hold") {
    // Queries, keys and values of width 1. The mask hides all keys from the first query; the others
    // see all keys alike. A few rows, a tile, and keys in several parts.
    const float none = -std::numeric_limits<float>::infinity(), nan = NAN;
    for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>(2, 2), {40, 70}, {40, 600}})
      for (const char* kind : {"float mask", "bool mask"})
        for (const ExecutableOptions& way : ways()) {
          CAPTURE(queries);
          CAPTURE(keys);
          CAPTURE(std::string(kind));
          CAPTURE(std::string(way.device));
          Graph g("rows");
          const bool is_bool = kind[0] == 'b';
          const std::vector<int64_t> rows{1, 1, queries, 1}, columns{1, 1, keys, 1};
          const Value q = g.input("q", {f32, rows}), k = g.input("k", {f32, columns}),
                      v = g.input("v", {f32, columns}), up = g.input("up", {f32, rows});
          const auto nq = static_cast<size_t>(queries), nk = static_cast<size_t>(keys);
          std::vector<uint8_t> allowed(nq * nk, 1);
          std::fill_n(allowed.begin(), nk, uint8_t{0});
          Floats added(nq * nk, 0);
          std::fill_n(added.begin(), nk, none);
          const Value mask = is_bool
                                 ? g.constant({boolean, {queries, keys}}, allowed.data(), nq * nk)
                                 : g.constant<float>({queries, keys}, added);
          op::attention n{.q = q, .k = k, .v = v, .mask = mask, .want_lse = true};
          const auto y = g.add(n);
          g.output("o", y[0]), g.output("lse", y[1]);
          const Value loss = g.add(op::reduce{.kind = "sum", .x = binary(g, "mul", y[0], up)});
          const auto slopes = g.gradients(loss, {q, k, v});
          g.output("dq", slopes[0]), g.output("dk", slopes[1]), g.output("dv", slopes[2]);
          Store store(runtime());
          Run run(g, store, way);
          Floats values(nk, 2), weights(nq, 1);
          for (size_t j = 1; j < nk; j += 2) values[j] = 4;
          weights[0] = nan;
          run->set<float>("q", rows, Floats(nq, 1));
          run->set<float>("k", columns, Floats(nk, 1));
          run->set<float>("v", columns, values);
          run->set<float>("up", rows, weights);
          run->run();
          const float each = static_cast<float>(queries - 1) / static_cast<float>(keys);
          const auto check = [&](const char* name, const Floats& expected) {
            CAPTURE(std::string(name));
            const Floats given = run->get<float>(name);
            for (size_t i = 0; i < expected.size(); ++i)
              CHECK(std::abs(given[i] - expected[i]) < 1e-4f);
          };
          CHECK(run->get<float>("o")[0] == 0);
          CHECK(std::abs(run->get<float>("o")[nq - 1] - 3) < 1e-5f);
          CHECK(run->get<float>("lse")[0] == none);
          check("dq", Floats(nq, 0));
          check("dv", Floats(nk, each));
          Floats slopes_of_keys(nk);
          for (size_t j = 0; j < nk; ++j) slopes_of_keys[j] = each * (values[j] - 3);
          check("dk", slopes_of_keys);
          values[0] = nan;
          run->set<float>("v", columns, values);
          run->run();
          CHECK(run->get<float>("o")[0] == 0);
          CHECK(run->get<float>("dq")[0] == 0);
        }
  }

  TEST_CASE("mean over axis 0 is over rows, not columns") {
    for (const ExecutableOptions& way : ways()) {
      Graph g("mean");
      const Value x = g.input("x", {f32, {2, 3}});
      g.output("y", g.add(op::reduce{.kind = "mean", .axes = {0}, .x = x}));
      Store store(runtime());
      Run run(g, store, way);
      run->set<float>("x", {2, 3}, {1, 2, 3, 5, 8, 13});
      run->run();
      CHECK(run->get<float>("y") == Floats{3, 5, 8});
    }
  }

  // x w + b, its softmax's sum, and the weight itself, all in one dtype.
  template <class T>
  void one_dtype(tenon_dtype dtype, T(*to)(float), float (*from)(T)) {
    for (const ExecutableOptions& way : ways()) {
      CAPTURE(way.device);
      Graph g("dtype");
      const Value x = g.input("x", {dtype, {2, 2}}), w = g.weight("w", {dtype, {2, 2}}),
                  v = g.weight("v", {dtype, {2}}), s = g.state("s", {dtype, {2}});
      const Value y = binary(g, "add", g.add(op::matmul{.a = x, .b = w}), v);
      g.output("y", y);
      g.output("one", g.add(op::reduce{.kind = "max",
                                       .axes = {1},
                                       .x = g.add(op::softmax{.x = binary(g, "sub", y, y)})}));
      g.update(s, binary(g, "add", s, v));
      Store store(runtime());
      const auto set = [&](uint32_t space, const char* name, std::vector<int64_t> dims,
                           const Floats& f) {
        const std::vector<T> raw = encode(f, to);
        store.set(space, name, TensorType(dtype, std::move(dims)), raw.data(),
                  raw.size() * sizeof(T));
      };
      // Two of a half dtype, one after the other: neither's bytes are taken for the other's.
      set(TENON_SPACE_WEIGHT, "w", {2, 2}, {1, 2, 3, 4});
      set(TENON_SPACE_WEIGHT, "v", {2}, {-1, 0.5});
      set(TENON_SPACE_STATE, "s", {2}, {10, 20});
      Run run(g, store, way);
      const std::vector<T> input = encode(Floats{1, 1, 2, 0}, to);
      const std::array<int64_t, 2> dims = {2, 2};
      tenon_tensor tensor{};
      tensor.struct_size = sizeof tensor;
      tensor.dims = dims.data();
      tensor.rank = 2;
      tensor.dtype = dtype;
      tensor.data = const_cast<T*>(input.data());
      tensor.size = input.size() * sizeof(T);
      REQUIRE(!tenon_context_set(run->handle(), {"x", 1}, &tensor));
      run->run();
      const auto decoded = [&](const std::vector<T>& raw) {
        Floats out;
        for (const T t : raw) out.push_back(from(t));
        return out;
      };
      std::vector<T> out(4), one(2), state(2), weight(4);
      run->get("y", out.data(), out.size() * sizeof(T));
      run->get("one", one.data(), one.size() * sizeof(T));
      store.get(TENON_SPACE_STATE, "s", state.data(), state.size() * sizeof(T));
      store.get(TENON_SPACE_WEIGHT, "w", weight.data(), weight.size() * sizeof(T));
      CHECK(decoded(out) == Floats{3, 6.5, 1, 4.5});
      CHECK(decoded(one) == Floats{0.5, 0.5});
      CHECK(decoded(state) == Floats{9, 20.5});
      CHECK(decoded(weight) == Floats{1, 2, 3, 4});
    }
  }

  TEST_CASE("dtypes: f32, f64, f16 and bf16 from input to output, weight and state") {
    one_dtype<float>(
        f32, [](float v) { return v; }, [](float v) { return v; });
    one_dtype<double>(
        f64, [](float v) { return double{v}; }, [](double v) { return static_cast<float>(v); });
    one_dtype<uint16_t>(f16, to_f16, from_f16);
    one_dtype<uint16_t>(bf16, to_bf16, from_bf16);
  }

  TEST_CASE("indices: rows beyond 2^24, which no float can tell apart") {
    constexpr int64_t kRows = (int64_t{1} << 24) + 4;
    Graph g("far");
    const Value table = g.weight("table", {u8, {kRows, 1}}), at = g.input("at", {i64, {3}});
    g.output("y", g.add(op::gather{.axis = 0, .data = table, .indices = at}));
    Store store(runtime());
    std::vector<uint8_t> rows(static_cast<size_t>(kRows));
    for (int64_t i = 0; i < kRows; ++i)
      rows[static_cast<size_t>(i)] = static_cast<uint8_t>(i % 251);
    store.set(TENON_SPACE_WEIGHT, "table", {kRows, 1}, rows);
    Run run(g, store, {.device = "cpu:0"});
    const std::vector<int64_t> wanted = {kRows - 1, kRows - 3, kRows - 2};
    run->set("at", {3}, wanted);
    run->run();
    const auto y = run->get<uint8_t>("y");
    for (size_t i = 0; i < 3; ++i) CHECK(y[i] == wanted[i] % 251);
  }

  TEST_CASE("constants: graphs that differ in nothing else are different") {
    for (const ExecutableOptions& way : ways()) {
      Store store(runtime());
      std::vector<std::unique_ptr<Run>> runs;
      for (const float factor : {2.0f, 3.0f, 2.0f}) {
        Graph g("same name");
        g.output("y", binary(g, "mul", g.input("x", {f32, {2}}),
                             g.constant<float>({2}, {factor, 10 * factor})));
        runs.push_back(std::make_unique<Run>(g, store, way));
      }
      for (auto& run : runs) (*run)->set<float>("x", {2}, {1, 1});
      for (auto& run : runs) (*run)->run();
      CHECK((*runs[0])->get<float>("y") == Floats{2, 20});
      CHECK((*runs[1])->get<float>("y") == Floats{3, 30});
      CHECK((*runs[2])->get<float>("y") == Floats{2, 20});
    }
  }

  TEST_CASE("sampling: two draws differ, within a run and from run to run; a seed repeats them") {
    const auto draw = [](int64_t seed) {
      Graph g("draw");
      const Value rng = g.state("rng", {i64, {2}});
      const Value one = g.constant<int64_t>({2}, {0, 1});  // the offset moves by one a call
      const Value later = binary(g, "add", rng, one);
      g.output("a", g.add(op::random_uniform{.shape = {8}, .rng = rng}));
      g.output("b", g.add(op::random_uniform{.shape = {8}, .rng = later}));
      g.update(rng, binary(g, "add", later, one));
      Store store(runtime());
      store.set<int64_t>(TENON_SPACE_STATE, "rng", {2}, {seed, 0});
      Run run(g, store, {.device = "cpu:0"});
      std::vector<Floats> all;
      for (int i = 0; i < 2; ++i) {
        run->run();
        all.push_back(run->get<float>("a"));
        all.push_back(run->get<float>("b"));
      }
      return all;
    };
    const auto all = draw(1);
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t k = 0; k < i; ++k) CHECK(all[i] != all[k]);
    CHECK(draw(1) == all);
    CHECK(draw(2) != all);
  }

  TEST_CASE("weights: set after runs that may have packed them, the new ones count") {
    // Large enough, and of enough rows, that a product on the cpu packs them.
    constexpr int64_t kRows = 8, kSize = 256;
    for (const ExecutableOptions& way : ways()) {
      Graph g("packed");
      const Value x = g.input("x", {f32, {kRows, kSize}}), w = g.weight("w", {f32, {kSize, kSize}});
      g.output("y", g.add(op::matmul{.a = x, .b = w}));
      Store store(runtime());
      Run run(g, store, way);
      run->set("x", {kRows, kSize}, Floats(kRows * kSize, 1.0f));
      for (const float content : {1.0f, -2.0f, 0.5f}) {
        store.set(TENON_SPACE_WEIGHT, "w", {kSize, kSize},
                  Floats(static_cast<size_t>(kSize * kSize), content));
        for (int i = 0; i < 3; ++i) {
          run->run();
          CHECK(run->get<float>("y") == Floats(kRows * kSize, content * static_cast<float>(kSize)));
        }
      }
    }
  }

  TEST_CASE("softmax: a row has the same bits alone and among others, whatever a thread gets") {
    constexpr int64_t kRows = 72;
    for (const int64_t length : {1, 2, 3, 7, 8, 13, 16, 17, 40})
      for (const bool log : {false, true}) {
        CAPTURE(length);
        CAPTURE(log);
        // y and dx of so many rows.
        const auto of = [&](const Floats& x, const Floats& dy, int64_t rows) {
          Graph g("rows");
          const Value y = g.add(op::softmax{.log = log, .x = g.input("x", {f32, {rows, length}})});
          g.output("y", y);
          g.output("dx", g.add(op::softmax_backward{
                             .log = log, .dy = g.input("dy", {f32, {rows, length}}), .y = y}));
          Store store(runtime());
          Run run(g, store, {.device = "cpu:0"});
          run->set("x", {rows, length}, x);
          run->set("dy", {rows, length}, dy);
          run->run();
          return std::pair{run->get<float>("y"), run->get<float>("dx")};
        };
        const Floats x = noise_of(1, kRows * length), dy = noise_of(2, kRows * length);
        const auto [y, dx] = of(x, dy, kRows);
        for (const int64_t rows : {1, 4}) {
          const auto count = static_cast<size_t>(rows * length);
          for (size_t at = 0; at < x.size(); at += 9 * count) {
            const auto part = [&](const Floats& v) {
              return Floats(v.begin() + static_cast<ptrdiff_t>(at),
                            v.begin() + static_cast<ptrdiff_t>(at + count));
            };
            const auto [some_y, some_dx] = of(part(x), part(dy), rows);
            CHECK(some_y == part(y));
            CHECK(some_dx == part(dx));
          }
        }
      }
  }
}
