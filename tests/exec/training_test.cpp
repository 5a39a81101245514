// SPDX-License-Identifier: Apache-2.0
// Ways to train, by value: gradients added up over several runs, layers computed again, half-
// precision weights with their masters.
#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

constexpr const char* kDevices[] = {"cpu:0", "template:0"};
constexpr int64_t kRows = 4;

float widened(uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); }
uint16_t rounded(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Mean square of tanh(x·w) + b, over `rows` rows of 3.
struct Problem {
  Graph g;
  Value loss;
  Problem(const char* name, int64_t rows, tenon_dtype dtype = f32) : g(name) {
    const Value w = g.weight("w", {dtype, {3, 5}}), b = g.weight("b", {dtype, {5}});
    if (rows == 0) return;  // weights alone
    Value x = g.input("x", {f32, {rows, 3}});
    if (dtype != f32) x = g.add(op::cast{.to = dtype, .x = x});
    const Value y = g.add(op::unary{.kind = "tanh", .x = g.add(op::matmul{.a = x, .b = w})});
    const Value z = g.add(op::binary{.kind = "add", .a = y, .b = b});
    loss = g.add(op::reduce{.kind = "mean", .x = g.add(op::binary{.kind = "mul", .a = z, .b = z})});
  }
};

Optimizer optimizer(Graph& g, uint32_t kind, double clip) {
  Optimizer o{.kind = kind, .learning_rate = g.input("lr", {f32, {}}), .clip_norm = clip};
  o.weight_decay = 0.1;
  if (kind == TENON_OPTIMIZER_SGD) o.momentum = 0.9;
  return o;
}

std::vector<float> rows_of(int64_t step, int64_t first, int64_t count) {
  std::vector<float> out;
  for (int64_t i = first * 3; i < (first + count) * 3; ++i)
    out.push_back(
        static_cast<float>(2 * noise(static_cast<uint64_t>(step), static_cast<uint64_t>(i))));
  return out;
}

void set_start(Store& store, tenon_dtype dtype = f32) {
  for (const auto& [name, dims] :
       {std::pair("w", std::vector<int64_t>{3, 5}), std::pair("b", std::vector<int64_t>{5})}) {
    std::vector<float> values;
    std::vector<uint16_t> half;
    for (int64_t i = 0; i < TensorType(f32, dims).elements(); ++i) {
      values.push_back(static_cast<float>(noise(99, static_cast<uint64_t>(i) + dims.size())));
      half.push_back(rounded(values.back()));
    }
    if (dtype == f32)
      store.set(TENON_SPACE_WEIGHT, name, dims, values);
    else
      store.set(TENON_SPACE_WEIGHT, name, {bf16, dims}, half.data(), half.size() * 2);
  }
}

std::vector<float> all_weights(const Store& store) {
  std::vector<float> out = store.get<float>(TENON_SPACE_WEIGHT, "w");
  for (float v : store.get<float>(TENON_SPACE_WEIGHT, "b")) out.push_back(v);
  return out;
}

}  // namespace

TEST_SUITE("exec/accumulate") {
  TEST_CASE(
      "parts of a batch give what the whole does: every optimizer, with and without clipping") {
    for (const char* device : kDevices)
      for (const uint32_t kind : {TENON_OPTIMIZER_SGD, TENON_OPTIMIZER_ADAMW, TENON_OPTIMIZER_LION})
        for (const double clip : {0.0, 0.05}) {
          CAPTURE(std::string(device));
          CAPTURE(kind);
          CAPTURE(clip);
          Problem whole("whole", 4 * kRows), part("part", kRows), apply("apply", 0);
          whole.g.output("norm", whole.g.minimize(whole.loss, optimizer(whole.g, kind, clip)));
          part.g.output("loss", part.loss);
          part.g.accumulate(part.loss);
          apply.g.output("norm", apply.g.apply(optimizer(apply.g, kind, clip)));
          Store a(runtime()), b(runtime());
          set_start(a), set_start(b);
          a.add_missing(whole.g), b.add_missing(part.g), b.add_missing(apply.g);
          const ExecutableOptions options{.device = device};
          const Executable ea(runtime(), whole.g, a, options), ep(runtime(), part.g, b, options),
              eb(runtime(), apply.g, b, options);
          Context ca(ea), cp(ep), cb(eb);
          for (int64_t step = 0; step < 3; ++step) {
            ca.set("x", {4 * kRows, 3}, rows_of(step, 0, 4 * kRows));
            ca.set("lr", 0.05f), cb.set("lr", 0.05f);
            ca.run();
            for (int64_t p = 0; p < 4; ++p) {
              cp.set("x", {kRows, 3}, rows_of(step, p * kRows, kRows));
              cp.run();
            }
            CHECK(b.get<int64_t>(TENON_SPACE_STATE, "optimizer.count")[0] == 4);
            cb.run();
            CHECK(cb.get_scalar<float>("norm") ==
                  doctest::Approx(ca.get_scalar<float>("norm")).epsilon(1e-5));
            CHECK(furthest(all_weights(b), all_weights(a)) < 1e-5);
            for (const char* sum : {"w.grad", "b.grad"})
              for (float v : b.get<float>(TENON_SPACE_STATE, sum)) CHECK(v == 0);
            CHECK(b.get<int64_t>(TENON_SPACE_STATE, "optimizer.count")[0] == 0);
          }
          CHECK(a.get<int64_t>(TENON_SPACE_STATE, "optimizer.step")[0] == 3);
          CHECK(b.get<int64_t>(TENON_SPACE_STATE, "optimizer.step")[0] == 3);
        }
  }

  TEST_CASE("a sum that is not finite changes nothing with skip_nonfinite, and is gone after it") {
    Problem part("part", kRows), apply("apply", 0);
    part.g.accumulate(part.loss);
    Optimizer o = optimizer(apply.g, TENON_OPTIMIZER_ADAMW, 1);
    o.skip_nonfinite = true;
    apply.g.output("norm", apply.g.apply(o));
    Store store(runtime());
    set_start(store);
    store.add_missing(part.g), store.add_missing(apply.g);
    const Executable ep(runtime(), part.g, store), ea(runtime(), apply.g, store);
    Context cp(ep), ca(ea);
    const std::vector<float> before = all_weights(store);
    cp.set("x", {kRows, 3}, std::vector<float>(kRows * 3, NAN));
    cp.run();
    ca.set("lr", 0.05f);
    ca.run();
    CHECK(std::isnan(ca.get_scalar<float>("norm")));
    CHECK(all_weights(store) == before);
    CHECK(store.get<int64_t>(TENON_SPACE_STATE, "optimizer.step")[0] == 0);
    cp.set("x", {kRows, 3}, rows_of(0, 0, kRows));
    cp.run();
    ca.run();
    CHECK(std::isfinite(ca.get_scalar<float>("norm")));
    CHECK(all_weights(store) != before);
    CHECK(store.get<int64_t>(TENON_SPACE_STATE, "optimizer.step")[0] == 1);
  }

  TEST_CASE("wrong use is told") {
    Graph g;
    const Value x = g.input("x", {f32, {}});
    CHECK(says(error_of([&] { g.accumulate(x); }), {"accumulate", "no trainable weight"}));
    CHECK(says(error_of([&] { g.apply({.learning_rate = x}); }), {"apply", "no trainable weight"}));
    Store store(runtime());
    tenon_code code{};
    CHECK(
        says(error_of([&] { store.remove(TENON_SPACE_STATE, "none"); }, &code), {"none", "state"}));
    CHECK(code == TENON_NOT_FOUND);
  }
}

TEST_SUITE("exec/checkpoint") {
  TEST_CASE("layers computed again: losses and weights bit by bit, a lower peak") {
    const lm::Config config{
        .vocab = 256, .dim = 64, .layers = 6, .heads = 4, .kv_heads = 2, .ffn = 160, .context = 48};
    for (const tenon_dtype dtype : {f32, bf16})
      for (const char* device : kDevices) {
        if (dtype == bf16 && std::string_view(device) != "cpu:0") continue;
        CAPTURE(std::string(device));
        CAPTURE(dtype);
        std::array<std::vector<float>, 2> losses;
        std::array<uint64_t, 2> peak{};
        for (const size_t again : {0, 1}) {
          lm::Config c = config;
          if (std::string_view(device) != "cpu:0") c.layers = 3, c.dim = 32, c.context = 24;
          Store store(runtime());
          set_weights(store, c, 3);
          if (dtype == bf16) {
            c.dtype = bf16;
            for (const lm::WeightSpec& w : lm::weight_specs(c)) {
              std::vector<uint16_t> half;
              for (float v : store.get<float>(TENON_SPACE_WEIGHT, w.name))
                half.push_back(rounded(v));
              store.set(TENON_SPACE_WEIGHT, w.name, {bf16, w.dims}, half.data(), half.size() * 2);
            }
          }
          const Graph g = lm::train_graph(c, {.batch = kBatch, .checkpoint = again == 1});
          store.add_missing(g);
          const Executable executable(runtime(), g, store, {.device = device});
          peak[again] = nlohmann::json::parse(executable.report())["memory"][0]["peak"];
          Context run(executable);
          for (int64_t step = 0; step < 5; ++step) {
            run.set("tokens", {kBatch, c.context + 1}, tokens_of(c, step));
            run.set("lr", 3e-3f);
            run.run();
            losses[again].push_back(run.get_scalar<float>("loss"));
            losses[again].push_back(run.get_scalar<float>("norm"));
          }
        }
        CHECK(losses[0] == losses[1]);
        CHECK(static_cast<double>(peak[1]) < 0.8 * static_cast<double>(peak[0]));
      }
  }

  TEST_CASE("wrong use is told") {
    Graph g;
    const Value x = g.input("x", {f32, {2}}), y = g.add(op::unary{.kind = "exp", .x = x});
    CHECK(says(error_of([&] { g.checkpoint({y}, {x}); }), {"checkpoint", "no node"}));
    CHECK(
        says(error_of([&] { g.checkpoint({x}, {Value{77}}); }), {"to", "no value of this graph"}));
  }
}

TEST_SUITE("exec/optimizers") {
  TEST_CASE("several optimizers: each has its weights, its counter and its rate") {
    const auto graph_with = [](bool both) {
      Graph g("two");
      const Value x = g.input("x", {f32, {4}}), a = g.weight("a", {f32, {4}}),
                  b = g.weight("b", {f32, {4}}), c = g.weight("c", {f32, {4}}, false);
      const Value y = g.add(
          op::binary{.kind = "add",
                     .a = g.add(op::binary{.kind = "mul", .a = x, .b = a}),
                     .b = g.add(op::binary{
                         .kind = "mul", .a = b, .b = g.add(op::unary{.kind = "exp", .x = c})})});
      const Value loss = g.add(op::reduce{.kind = "sum", .keepdims = false, .x = y});
      Optimizer first{
          .kind = TENON_OPTIMIZER_SGD, .learning_rate = g.scalar(0.5f), .weight_decay = 0};
      first.weights = {a};
      g.minimize(loss, first);
      if (both) {
        Optimizer second = first;
        second.learning_rate = g.scalar(2.0f);
        second.weights = {b, c};  // c, although all() would leave it out
        second.name = "slow";
        g.minimize(loss, second);
      }
      g.output("loss", loss);
      return g;
    };
    for (const bool both : {false, true}) {
      const Graph g = graph_with(both);
      Store store(runtime());
      for (const char* w : {"a", "b", "c"})
        store.set(TENON_SPACE_WEIGHT, w, {4}, std::vector<float>(4, 1));
      store.add_missing(g);
      const Executable executable(runtime(), g, store, {.device = "cpu:0"});
      Context run(executable);
      run.set("x", {4}, std::vector<float>{1, 2, 3, 4});
      run.run();
      // da = x, db = exp(c), dc = b exp(c).
      CHECK(store.get<float>(TENON_SPACE_WEIGHT, "a") == std::vector<float>{.5, 0, -.5, -1});
      const auto e = static_cast<float>(std::exp(1.0));
      for (const char* w : {"b", "c"})
        CHECK(store.get<float>(TENON_SPACE_WEIGHT, w)[3] == doctest::Approx(both ? 1 - 2 * e : 1));
      const std::vector<std::string> states = store.names(TENON_SPACE_STATE);
      CHECK(std::ranges::count(states, "slow.step") == both);
      CHECK(store.get<int64_t>(TENON_SPACE_STATE, "optimizer.step")[0] == 1);
    }

    Graph g = graph_with(true);
    const auto refused = [&](std::vector<Value> weights, std::string name, const char* why) {
      Optimizer o{.kind = TENON_OPTIMIZER_SGD, .learning_rate = g.scalar(0.5f)};
      o.weights = std::move(weights), o.name = std::move(name);
      const Value loss = g.outputs()[0].second;
      CHECK_THROWS_WITH_AS(g.minimize(loss, o), doctest::Contains(why), Error);
    };
    const auto weights = g.named(TENON_SPACE_WEIGHT);
    const Value d = g.weight("d", {f32, {4}});
    refused({weights[0].value}, "third", "weight 'a' is updated already");
    refused({}, "third", "weight 'a' is updated already");
    refused({d, d}, "third", "weight 'd' is named twice");
    refused({g.outputs()[0].second}, "third", "weight 0 is no weight of this graph");
    refused({d}, "", "an optimizer of the name 'optimizer'");
    refused({d}, "slow", "an optimizer of the name 'slow'");
  }

  TEST_CASE("several optimizers: accumulate once, apply twice") {
    const auto model = [](Graph& g) {
      const Value a = g.weight("a", {f32, {4}}), b = g.weight("b", {f32, {4}});
      return std::vector<Value>{a, b};
    };
    Graph sum("sum"), step("step");
    const std::vector<Value> w = model(sum);
    const Value x = sum.input("x", {f32, {4}});
    const Value y = sum.add(op::binary{
        .kind = "add", .a = sum.add(op::binary{.kind = "mul", .a = x, .b = w[0]}), .b = w[1]});
    sum.accumulate(sum.add(op::reduce{.kind = "sum", .keepdims = false, .x = y}));
    const std::vector<Value> again = model(step);
    for (int k = 0; k < 2; ++k) {
      Optimizer o{.kind = TENON_OPTIMIZER_SGD,
                  .learning_rate = step.scalar(k ? 4.0f : 1.0f),
                  .weight_decay = 0};
      o.weights = {again[static_cast<size_t>(k)]};
      o.name = k ? "second" : "first";
      step.apply(o);
    }
    Store store(runtime());
    for (const char* name : {"a", "b"})
      store.set(TENON_SPACE_WEIGHT, name, {4}, std::vector<float>(4, 0));
    store.add_missing(sum);
    store.add_missing(step);
    const Executable sums(runtime(), sum, store, {.device = "cpu:0"}),
        steps(runtime(), step, store, {.device = "cpu:0"});
    Context add(sums), apply(steps);
    for (const float value : {1.0f, 3.0f}) {
      add.set("x", {4}, std::vector<float>(4, value));
      add.run();
    }
    apply.run();
    CHECK(store.get<float>(TENON_SPACE_WEIGHT, "a") == std::vector<float>(4, -2));
    CHECK(store.get<float>(TENON_SPACE_WEIGHT, "b") == std::vector<float>(4, -4));
    CHECK(store.get<int64_t>(TENON_SPACE_STATE, "optimizer.count")[0] == 0);
  }
}

TEST_SUITE("exec/masters") {
  TEST_CASE("a bf16 weight: the master is made from it, moves, and the weight is its rounding") {
    for (const char* device : kDevices) {
      CAPTURE(std::string(device));
      Problem p("half", kRows, bf16);
      p.g.output("norm", p.g.minimize(p.loss, optimizer(p.g, TENON_OPTIMIZER_ADAMW, 1)));
      Store store(runtime());
      set_start(store, bf16);
      store.add_missing(p.g);
      const auto half = [&](const char* name) {
        std::vector<uint16_t> bits(store.type(TENON_SPACE_WEIGHT, name).bytes() / 2);
        store.get(TENON_SPACE_WEIGHT, name, bits.data(), bits.size() * 2);
        return bits;
      };
      const auto master = [&](const char* name) {
        return store.get<float>(TENON_SPACE_STATE, std::string(name) + ".master");
      };
      for (const char* name : {"w", "b"}) {
        const auto bits = half(name);
        const auto wide = master(name);
        REQUIRE(bits.size() == wide.size());
        for (size_t i = 0; i < bits.size(); ++i) CHECK(widened(bits[i]) == wide[i]);
      }
      const Executable executable(runtime(), p.g, store, {.device = device});
      Context run(executable);
      bool below_rounding = false;
      for (int64_t step = 0; step < 4; ++step) {
        const auto before = master("w");
        const auto old = half("w");
        run.set("x", {kRows, 3}, rows_of(step, 0, kRows));
        run.set("lr", 1e-4f);
        run.run();
        for (const char* name : {"w", "b"}) {
          const auto bits = half(name);
          const auto wide = master(name);
          for (size_t i = 0; i < bits.size(); ++i) CHECK(bits[i] == rounded(wide[i]));
        }
        const auto now = master("w");
        CHECK(now != before);
        for (size_t i = 0; i < now.size(); ++i)
          below_rounding |= now[i] != before[i] && half("w")[i] == old[i];
      }
      CHECK(below_rounding);  // steps that bf16 alone would lose
    }
  }

  TEST_CASE("a master without its weight is told") {
    Problem p("half", kRows, bf16);
    p.g.minimize(p.loss, optimizer(p.g, TENON_OPTIMIZER_SGD, 0));
    Store store(runtime());
    CHECK(says(error_of([&] { store.add_missing(p.g); }), {"'w'", "not in the store"}));
    set_start(store);
    CHECK(says(error_of([&] { store.add_missing(p.g); }), {".master", "bf16", "f32"}));
  }
}
