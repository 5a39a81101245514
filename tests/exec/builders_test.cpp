// SPDX-License-Identifier: Apache-2.0
// Graphs written with functions of the ops' names and with operators; tensors of the app; f16 and
// bf16 as C++ types. Expected values are written by hand, or the same graph is written with
// structs.
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

// The outputs of a graph without inputs, on cpu.
struct Ran {
  explicit Ran(const Graph& g) : store(runtime()) {
    store.add_missing(g);
    executable.emplace_back(runtime(), g, store, ExecutableOptions{.device = "cpu:0"});
    context.emplace_back(executable[0]);
  }
  Context& operator()() {
    context[0].run();
    return context[0];
  }
  Store store;
  std::vector<Executable> executable{};
  std::vector<Context> context{};
};

using Floats = std::vector<float>;

template <class Call>
void refused(const Call& call, tenon_code code, std::string_view word) {
  tenon_code got = TENON_OK;
  const std::string text = error_of([&] { (void)call(); }, &got);
  CHECK(got == code);
  CHECK(says(text, {word}));
}

}  // namespace

TEST_SUITE("exec/builders") {
  TEST_CASE("operators: values, and numbers on both sides") {
    Graph g("operators");
    const Value a = g.constant<float>({3}, {1, 2, 4}), b = g.constant<float>({3}, {2, 2, 8});
    g.output("sum", a + b);
    g.output("difference", a - b);
    g.output("product", a * b);
    g.output("quotient", a / b);
    g.output("negative", -a);
    g.output("right", a * 2 - 0.5);
    g.output("left", 1 / a + (3 - a));
    Value c = a;
    c += b;
    c *= 2;
    c -= 1.0f;
    c /= a;
    g.output("compound", c);
    g.output("of nodes", g.relu(a) + g.neg(b));
    Ran run(g);
    Context& at = run();
    CHECK(at.get<float>("sum") == Floats{3, 4, 12});
    CHECK(at.get<float>("difference") == Floats{-1, 0, -4});
    CHECK(at.get<float>("product") == Floats{2, 4, 32});
    CHECK(at.get<float>("quotient") == Floats{.5, 1, .5});
    CHECK(at.get<float>("negative") == Floats{-1, -2, -4});
    CHECK(at.get<float>("right") == Floats{1.5, 3.5, 7.5});
    CHECK(at.get<float>("left") == Floats{3, 1.5, -.75});
    CHECK(at.get<float>("compound") == Floats{5, 3.5, 5.75});
    CHECK(at.get<float>("of nodes") == Floats{-1, 0, -4});
  }

  TEST_CASE("a number takes the dtype beside it, also while that depends on symbols") {
    Graph g("numbers");
    const int64_t n = g.symbol("n");
    const Value x = g.input("x", {f32, {n, 2}}), i = g.input("i", {i64, {n}});
    const Value h = g.cast(x, bf16);
    CHECK(g.type(h).dtype == TENON_DTYPE_NONE);
    CHECK(g.dtype(h) == bf16);
    CHECK(g.dtype(x) == f32);
    g.output("h", h * 3);
    g.output("big", i + std::numeric_limits<int64_t>::max());
    g.output("less", g.where(g.lt(x, 0), 0, x));
    // A node that needs more than one row, and a label after it.
    const Value tail = g.narrow(x, {.start = {1, 0}});
    const Value loss = g.reduce("mean", g.square(tail - 1));
    g.output("loss", loss);
    const std::vector<Value> dx = g.gradients(loss, {x});
    g.output("dx", dx[0] * 2);
    Ran run(g);
    run.context[0].set("x", {3, 2}, Floats{1, -2, 3, 4, -5, 6});
    run.context[0].set("i", {3}, std::vector<int64_t>{0, -1, -7});
    Context& at = run();
    const Tensor scaled = at.get("h");
    CHECK(scaled.type() == TensorType(bf16, {3, 2}));
    CHECK(scaled.to(f32).values<float>()[5] == 18);
    const int64_t most = std::numeric_limits<int64_t>::max();
    CHECK(at.get<int64_t>("big") == std::vector<int64_t>{most, most - 1, most - 7});
    CHECK(at.get<float>("less") == Floats{1, 0, 3, 4, 0, 6});
    CHECK(at.get<float>("loss") == Floats{(4 + 9 + 36 + 25) / 4.f});
    CHECK(at.get<float>("dx") == Floats{0, 0, 2, 3, -6, 5});
  }

  TEST_CASE("numbers that do not fit, values of another graph, and none at all are refused") {
    Graph g("one"), other("two");
    const Value i = g.constant<int32_t>({2}, {1, 2}), x = g.constant<float>({2}, {1, 2});
    const Value flag = g.lt(x, 1);
    const Value foreign = other.constant<float>({2}, {1, 2});
    refused([&] { return i * 0.5; }, TENON_DTYPE_MISMATCH, "0.5");
    refused([&] { return i + 3000000000; }, TENON_DTYPE_MISMATCH, "3000000000");
    refused([&] { return g.eq(flag, 2); }, TENON_DTYPE_MISMATCH, "2");
    refused([&] { return x + foreign; }, TENON_INVALID_ARGUMENT, "one graph");
    refused([&] { return g.matmul(x, foreign); }, TENON_INVALID_ARGUMENT, "operand b");
    refused([&] { return g.concat({x, foreign}); }, TENON_INVALID_ARGUMENT, "operand xs");
    refused([&] { g.output("y", foreign); }, TENON_INVALID_ARGUMENT, "of another");
    refused([&] { g.gradients(g.sum(x), {foreign}); }, TENON_INVALID_ARGUMENT, "of another");
    refused([&] { return Value{} + 1; }, TENON_INVALID_ARGUMENT, "value");
    refused([&] { return g.maximum(1, 2); }, TENON_INVALID_ARGUMENT, "numbers");
    refused([&] { return -Value{}; }, TENON_INVALID_ARGUMENT, "operand x");
    refused([&] { g.dtype(Value(77, g.handle())); }, TENON_INVALID_ARGUMENT, "no value");
    CHECK(Value(g.eq(flag, true)));  // a bool beside bools
    // Numbers by value, at the limits of both dtypes.
    const Value u = g.constant<uint64_t>({1}, {1}), l = g.constant<int64_t>({1}, {1});
    const Value h = g.cast(x, f16), byte = g.constant<uint8_t>({1}, {1});
    refused([&] { return g.lt(u, -1); }, TENON_DTYPE_MISMATCH, "u64 can hold, got -1");
    refused([&] { return l + std::numeric_limits<uint64_t>::max(); }, TENON_DTYPE_MISMATCH,
            "got 18446744073709551615");
    refused([&] { return l + 9223372036854775808.0; }, TENON_DTYPE_MISMATCH, "i64");
    refused([&] { return i + 1e-9; }, TENON_DTYPE_MISMATCH, "i32 can hold, got 1e-09");
    refused([&] { return byte + 256; }, TENON_DTYPE_MISMATCH, "256");
    refused([&] { return h * 1e6; }, TENON_DTYPE_MISMATCH, "f16 can hold, got 1e+06");
    refused([&] { return g.eq(flag, -1); }, TENON_DTYPE_MISMATCH, "bool");
    refused([&] { return i + std::nan(""); }, TENON_DTYPE_MISMATCH, "nan");
    CHECK(Value(l + -0.0));
    CHECK(Value(l + std::numeric_limits<int64_t>::min()));
    CHECK(Value(l + -9223372036854775808.0));
    CHECK(Value(u + std::numeric_limits<uint64_t>::max()));
    CHECK(Value(byte + 255));
    CHECK(Value(h * INFINITY));
    CHECK(Value(h * F16(2)));
    CHECK(Value(g.add(x, 0)));
    // A number beside a value of another graph leaves that graph as it was.
    const std::string before = other.print();
    refused([&] { return g.add(foreign, 1); }, TENON_INVALID_ARGUMENT, "of another");
    CHECK(other.print() == before);
    refused([&] { return g.relu(x)[1]; }, TENON_INVALID_ARGUMENT, "output 1");
    refused([&] { return g.topk(x, {.k = 1})[2]; }, TENON_INVALID_ARGUMENT, "output 2");
    Graph copies("copies");
    copies.output("x", copies.input("x", {f32, {2}}));
    refused([&] { return g.batch_elementwise_region({x}, copies, {.sets = -1}); },
            TENON_INVALID_ARGUMENT, "outputs is wanted");
    refused([&] { return g.scan(copies, {.xs = {x}, .count_ys = size_t(-1)}); },
            TENON_INVALID_ARGUMENT, "count_ys");
    refused([&] { return g.scan(Graph("empty"), {.xs = {x}}); }, TENON_INVALID_ARGUMENT,
            "outputs is wanted");
    // No number suits a shape that two nodes pull apart.
    const int64_t n = g.symbol("n");
    const Value s = g.input("s", {f32, {n}});
    const Value seven = g.add(op::reshape{.shape = {7}, .x = s});
    const Value eleven = g.add(op::reshape{.shape = {11}, .x = s});
    refused([&] { return g.add(seven, eleven) * 2; }, TENON_UNSUPPORTED, "symbols");
    // What lies apart from them does not mind, and large slices are found too.
    CHECK(Value(g.relu(g.input("apart", {f32, {g.symbol("k")}})) * 2));
    const Value far = g.narrow(g.input("far", {f32, {g.symbol("m"), 4}}), {.start = {8192, 0}});
    CHECK(Value(far * 2));
    // Moving a graph keeps its values valid.
    Graph moved = std::move(g);
    CHECK(Value(moved.neg(x)));
  }

  TEST_CASE("functions of ops give the nodes that op structs give") {
    const auto text_of = [](auto&& fill) {
      Graph g("same");
      const Value x = g.input("x", {f32, {4, 6}}), w = g.input("w", {f32, {6, 6}});
      const Value v = g.input("v", {f32, {6}}), ids = g.input("ids", {i64, {3}});
      fill(g, x, w, v, ids);
      return g.print();
    };
    const std::string written = text_of([](Graph& g, Value x, Value w, Value v, Value ids) {
      g.output("0", g.softmax(x, {.axis = 0, .log = true}));
      g.output("1", g.linear(x, w, {.act = "relu", .bias = v}, "layer"));
      const Node norm = g.layer_norm(x, {.eps = 1e-3, .gamma = v, .want_mean = true});
      g.output("2", norm);
      g.output("3", norm[1]);
      g.output("4", g.concat({x, x}, {.axis = 1}));
      g.output("5", g.gather(x, ids, {.oob = "clamp"}));
      g.output("6", g.topk(x, {.k = 2})[1]);
      g.output("7", g.sum(x, {1}, true));
      g.output("8", g.elu(x, {.alpha = .5}));
      const Value greater = g.gt(x, v);
      g.output("9", g.and_(greater, g.not_(g.is_nan(x))));
      g.output("10", g.reshape(x, {2, -1}));
      g.output("11", g.transpose(x, {1, 0}));
      g.output("12", g.expand(v, {3, 6}));
      g.output("13", g.minimum(x, v));
      g.output("14", g.max(x, {-1}));
      g.output("15", g.batch_linear(x, {w, w}, {.trans_b = true})[1]);
    });
    const std::string structs = text_of([](Graph& g, Value x, Value w, Value v, Value ids) {
      g.output("0", g.add(op::softmax{.axis = 0, .log = true, .x = x}));
      g.output("1", g.add(op::linear{.act = "relu", .a = x, .b = w, .bias = v}, "layer"));
      const Node norm = g.add(op::layer_norm{.eps = 1e-3, .x = x, .gamma = v, .want_mean = true});
      g.output("2", norm);
      g.output("3", norm[1]);
      g.output("4", g.add(op::concat{.axis = 1, .xs = {x, x}}));
      g.output("5", g.add(op::gather{.oob = "clamp", .data = x, .indices = ids}));
      g.output("6", g.add(op::topk{.k = 2, .x = x})[1]);
      g.output("7", g.add(op::reduce{.kind = "sum", .axes = {1}, .keepdims = true, .x = x}));
      g.output("8", g.add(op::unary{.kind = "elu", .alpha = .5, .x = x}));
      const Value greater = g.add(op::compare{.kind = "gt", .a = x, .b = v});
      const Value nan = g.add(op::unary{.kind = "is_nan", .x = x});
      const Value number = g.add(op::logical{.kind = "not", .a = nan});
      g.output("9", g.add(op::logical{.kind = "and", .a = greater, .b = number}));
      g.output("10", g.add(op::reshape{.shape = {2, -1}, .x = x}));
      g.output("11", g.add(op::transpose{.perm = {1, 0}, .x = x}));
      g.output("12", g.add(op::expand{.shape = {3, 6}, .x = v}));
      g.output("13", g.add(op::binary{.kind = "min", .a = x, .b = v}));
      g.output("14", g.add(op::reduce{.kind = "max", .axes = {-1}, .x = x}));
      g.output("15",
               g.add(op::batch_linear{.trans_b = true, .a = x, .bs = {w, w}, .count_ys = 2})[1]);
    });
    CHECK(written == structs);
    CHECK(written.find("layer_norm") != std::string::npos);
  }

  TEST_CASE("control flow: the number of results follows from the functions") {
    Graph less("less"), body("body");
    {
      const Value k = less.input("k", {i64, {}}), x = less.input("x", {f32, {2}});
      less.output("more", less.lt(k, 5));
      (void)x;
    }
    {
      const Value k = body.input("k", {i64, {}}), x = body.input("x", {f32, {2}});
      body.output("k", k + 1);
      body.output("x", x * 2);
    }
    Graph g("loop");
    const Node ys = g.while_({g.scalar<int64_t>(0), g.constant<float>({2}, {1, 3})}, less, body);
    REQUIRE(ys.outputs.size() == 2);
    g.output("k", ys[0]);
    g.output("x", ys[1]);
    Graph step("step");
    {
      const Value sum = step.input("sum", {f32, {}}), x = step.input("x", {f32, {}});
      step.output("sum", sum + x);
      step.output("seen", sum * x);
    }
    const Node scanned = g.scan(step, {.carry = {g.scalar(0.f)}, .xs = {ys[1]}});
    REQUIRE(scanned.outputs.size() == 2);
    g.output("sum", scanned[0]);
    g.output("seen", scanned[1]);
    const Value big = g.gt(scanned[0], 100);
    Graph yes("yes"), no("no");
    yes.output("y", yes.input("x", {f32, {}}) / 4);
    no.output("y", -no.input("x", {f32, {}}));
    g.output("chosen", g.if_(big, yes, no, {.xs = {scanned[0]}}));
    Ran run(g);
    Context& at = run();
    CHECK(at.get_scalar<int64_t>("k") == 5);
    CHECK(at.get<float>("x") == Floats{32, 96});
    CHECK(at.get_scalar<float>("sum") == 128);
    CHECK(at.get<float>("seen") == Floats{0, 32 * 96});
    CHECK(at.get_scalar<float>("chosen") == 32);
  }

  TEST_CASE("tensors: made, read, converted, set and returned") {
    Tensor t({2, 3}, {1.f, 2.f, 3.f, 4.f, 5.f, 6.f});
    CHECK(t.type() == TensorType(f32, {2, 3}));
    CHECK(t.at<float>({1, 2}) == 6);
    t.at<float>({0, 1}) = -2.5f;
    const Tensor& read = t;
    CHECK(read.at<float>({0, 1}) == -2.5f);
    CHECK(t.to(i32).values<int32_t>()[1] == -2);
    CHECK(t.to(boolean).values<bool>()[1]);
    CHECK(Tensor::scalar(int8_t{-3}).to(u16).item<uint16_t>() == 65533);
    CHECK(Tensor::scalar(1e20).to(i32).item<int32_t>() == std::numeric_limits<int32_t>::max());
    CHECK(Tensor::scalar(-1e20f).to(u8).item<uint8_t>() == 0);
    CHECK(Tensor::scalar(std::nan("")).to(i64).item<int64_t>() == 0);
    CHECK(Tensor::scalar(std::nan("")).to(boolean).item<bool>());
    CHECK(Tensor::scalar(uint64_t{1} << 63).to(f32).item<float>() == 0x1p63f);
    CHECK(Tensor({3}, std::vector<bool>{true, false, true}).to(f32).values<float>()[2] == 1);
    CHECK(Tensor(TensorType(i64, {0, 4})).elements() == 0);
    CHECK(Tensor(TensorType(f64, {2})).values<double>()[1] == 0);
    CHECK(Tensor().dtype() == TENON_DTYPE_NONE);
    CHECK(Tensor().elements() == 0);
    Tensor from({2}, {1.f, 2.f});
    const Tensor into = std::move(from);
    CHECK(from.elements() == 0);  // NOLINT: what is left
    refused([&] { return from.item<float>(); }, TENON_SHAPE_MISMATCH, "0");
    CHECK(into.at<float>({1}) == 2);
    CHECK(Tensor({2}, t.values<float>().first(2)).at<float>({0}) == 1);
    // Of a temporary, values() gives a copy.
    float sum = 0;
    for (float v : into.to(f32).values<float>()) sum += v;
    CHECK(sum == 3);

    refused([&] { Tensor({2, 2}, {1.f}); }, TENON_SHAPE_MISMATCH, "4");
    refused([&] { (void)t.values<double>(); }, TENON_DTYPE_MISMATCH, "to()");
    for (const auto& wrong : std::initializer_list<std::initializer_list<int64_t>>{
             {0}, {2, 0}, {0, 3}, {-1, 0}, {0, 0, 0}})
      refused([&] { (void)t.at<float>(wrong); }, TENON_INVALID_ARGUMENT, "axes");
    refused([&] { (void)t.item<float>(); }, TENON_SHAPE_MISMATCH, "6");
    refused([&] { (void)t.to(TENON_DTYPE_I4); }, TENON_UNSUPPORTED, "i4");
    refused([&] { Tensor(TensorType(f32, {-1})); }, TENON_INVALID_ARGUMENT, "symbols");

    Graph g("tensors");
    const Value x = g.input("x", {bf16, {2, 3}}), w = g.weight("w", {f16, {3}});
    g.output("y", g.cast(x, f32) * g.cast(w, f32) + g.constant(Tensor({3}, {1.f, 1.f, 2.f})));
    g.output("x", x);
    Ran run(g);
    run.store.set(TENON_SPACE_WEIGHT, "w", Tensor({3}, std::vector<F16>{1, 2, 0.5}));
    run.context[0].set("x", t.to(bf16));
    Context& at = run();
    const Tensor y = at.get("y");
    CHECK(y.type() == TensorType(f32, {2, 3}));
    const auto values = y.values<float>();
    CHECK(Floats(values.begin(), values.end()) == Floats{2, -4, 3.5, 5, 11, 5});
    CHECK(at.get<BF16>("x")[1] == -2.5f);
    CHECK(run.store.get(TENON_SPACE_WEIGHT, "w").at<F16>({1}) == 2);
    CHECK(run.store.get<F16>(TENON_SPACE_WEIGHT, "w")[2] == 0.5f);
    run.context[0].set("x", {2, 3}, std::vector<BF16>(6, BF16(1.5)));
    CHECK(run().get<BF16>("x")[5] == 1.5f);
  }

  TEST_CASE("f16 and bf16 round once, to nearest even, as the op cast does") {
    CHECK(F16(65519.99).bits == 0x7bff);
    CHECK(F16(65520.0).bits == 0x7c00);
    CHECK(F16(2049.0f).bits == F16(2048.0f).bits);
    CHECK(F16(2051.0f).bits == F16(2052.0f).bits);
    CHECK(F16(0x1p-25).bits == 0);
    CHECK(F16(0x1.8p-25).bits == 1);
    CHECK(F16(-0.0f).bits == 0x8000);
    CHECK(float(F16(0x1p-24f)) == 0x1p-24f);
    CHECK(std::isnan(float(F16(std::nanf("")))));
    CHECK(std::isinf(float(F16(-INFINITY))));
    CHECK(BF16(1 + 0x1p-8).bits == 0x3f80);            // a tie, to even
    CHECK(BF16(1 + 0x1p-8 + 0x1p-40).bits == 0x3f81);  // not a tie, although a float rounds to one
    CHECK(F16(1 + 0x1p-11 + 0x1p-40).bits == 0x3c01);
    CHECK(BF16((int64_t{1} << 62) + (int64_t{1} << 54) + 1).bits == BF16(0x1.02p62).bits);
    CHECK(BF16(3.4e38).bits == 0x7f80);
    CHECK(std::isnan(float(BF16(std::nan("")))));

    // Against the op, on numbers of all sizes.
    std::mt19937_64 random(7);
    std::vector<double> numbers = {0., -0., 65504, 65520, 1e-8, 6e-8, -6.1e-5, 1e39, -INFINITY};
    for (int k = 0; k < 4000; ++k)
      numbers.push_back(std::ldexp(static_cast<double>(static_cast<int64_t>(random())) * 0x1p-63,
                                   static_cast<int>(random() % 300) - 150));
    const auto n = static_cast<int64_t>(numbers.size());
    Graph g("casts");
    const Value x = g.constant<double>({n}, numbers);
    g.output("f16", g.cast(x, f16));
    g.output("bf16", g.cast(x, bf16));
    g.output("f32", g.cast(g.cast(x, f16), f32));
    Ran run(g);
    Context& at = run();
    const auto halves = at.get<F16>("f16");
    const auto brains = at.get<BF16>("bf16");
    const Floats wide = at.get<float>("f32");
    size_t equal = 0;
    for (size_t i = 0; i < numbers.size(); ++i)
      equal += F16(numbers[i]).bits == halves[i].bits && BF16(numbers[i]).bits == brains[i].bits &&
               float(halves[i]) == wide[i];
    CHECK(equal == numbers.size());
    const Tensor all({n}, numbers);
    const Tensor as_half = all.to(f16), as_brain = all.to(bf16);
    CHECK(std::memcmp(as_half.data(), halves.data(), halves.size() * 2) == 0);
    CHECK(std::memcmp(as_brain.data(), brains.data(), brains.size() * 2) == 0);
    // Arithmetic and limits.
    F16 h = 1.5f;
    h += 2;
    h *= 2;
    CHECK(h == 7.0f);
    BF16 b = 3;
    b -= 1;
    b /= 4;
    CHECK(b == 0.5f);
    CHECK(float(std::numeric_limits<F16>::max()) == 65504);
    CHECK(float(std::numeric_limits<F16>::lowest()) == -65504);
    CHECK(float(std::numeric_limits<F16>::min()) == 0x1p-14f);
    CHECK(float(std::numeric_limits<F16>::denorm_min()) == 0x1p-24f);
    CHECK(float(std::numeric_limits<F16>::epsilon()) == 0x1p-10f);
    CHECK(std::isinf(float(std::numeric_limits<BF16>::infinity())));
    CHECK(std::isnan(float(std::numeric_limits<BF16>::quiet_NaN())));
    CHECK(float(std::numeric_limits<BF16>::max()) == 0x1.fep127f);
    CHECK(float(std::numeric_limits<BF16>::epsilon()) == 0x1p-7f);
  }
}
