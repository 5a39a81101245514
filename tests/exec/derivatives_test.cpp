// SPDX-License-Identifier: Apache-2.0
// Forward derivatives and bodies over a batch, by value: against closed forms, against finite
// differences, against torch.func, and each against the other. tests/conformance/vmap.cpp has every
// op.
#include <algorithm>
#include <cmath>
#include <limits>

#include "derivatives_expected.hpp"
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using Doubles = std::vector<double>;

Tensor random(uint64_t key, std::vector<int64_t> dims) {
  Tensor t(TensorType(f64, std::move(dims)));
  auto values = t.values<double>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = noise(key, i);
  return t;
}
// Example e along axis 0.
Tensor example(const Tensor& batch, int64_t e) {
  std::vector<int64_t> dims(batch.dims().begin() + 1, batch.dims().end());
  Tensor one(TensorType(batch.dtype(), dims));
  std::memcpy(one.data(),
              static_cast<const char*>(batch.data()) + static_cast<uint64_t>(e) * one.size(),
              one.size());
  return one;
}
double far_apart(const Tensor& a, const Tensor& b) {
  REQUIRE(a.type() == b.type());
  const auto x = a.values<double>(), y = b.values<double>();
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}
template <class Call>
void refused(const Call& call, tenon_code code, std::initializer_list<std::string_view> words) {
  tenon_code got = TENON_OK;
  const std::string text = error_of([&] { (void)call(); }, &got);
  CHECK(got == code);
  CHECK(says(text, words));
}

// Two layers, and the loss of one example: x [3], target [2]; the weights are inputs as well.
struct Net {
  Value x, target, w1, b1, w2, loss;
  explicit Net(Graph& g) {
    x = g.input("x", {f64, {3}});
    target = g.input("target", {f64, {2}});
    w1 = g.input("w1", {f64, {3, 5}});
    b1 = g.input("b1", {f64, {5}});
    w2 = g.input("w2", {f64, {5, 2}});
    const Value y = g.matmul(g.tanh(g.matmul(x, w1) + b1), w2);
    loss = g.sum(g.square(y - target));
  }
};

// As in derivatives_expected.py.
Tensor values(int64_t salt, std::vector<int64_t> dims) {
  Tensor t(TensorType(f64, std::move(dims)));
  int64_t k = 0;
  for (double& v : t.values<double>())
    v = static_cast<float>(static_cast<double>((k++ * 37 + salt * 53) % 101) / 101 - 0.5);
  return t;
}
Value torch_net(Graph& g, Value x, Value w1, Value b1, Value w2) {
  const Value hidden = g.layer_norm(g.tanh(Value(g.matmul(x, w1)) + b1));
  return g.softmax(g.matmul(hidden, w2));
}
Value torch_loss(Graph& g, Value x, Value target, Value w1, Value b1, Value w2) {
  return g.sum(g.square(torch_net(g, x, w1, b1, w2) - target));
}

}  // namespace

TEST_SUITE("exec/derivatives") {
  TEST_CASE(
      "torch.func: gradients, Hessians and Jacobians of each example, jvp, Hessian · vector") {
    struct Inner {  // an example, or what all share
      Value x, target, w1, b1, w2;
    };
    const auto inner = [](Graph& g) {
      return Inner{g.input("x", {f64, {3}}), g.input("target", {f64, {2}}),
                   g.input("w1", {f64, {3, 5}}), g.input("b1", {f64, {5}}),
                   g.input("w2", {f64, {5, 2}})};
    };
    Graph each("each");
    {
      const Inner i = inner(each);
      const std::vector<Value> d =
          each.gradients(torch_loss(each, i.x, i.target, i.w1, i.b1, i.w2), {i.x, i.w1});
      each.output("dx", d[0]);
      each.output("dw1", d[1]);
    }
    // A column of the Hessian: the gradient, moved along t.
    Graph column("column");
    {
      const Value t = column.input("t", {f64, {3}});
      const Inner i = inner(column);
      const std::vector<Value> d =
          column.gradients(torch_loss(column, i.x, i.target, i.w1, i.b1, i.w2), {i.x});
      column.output("h", column.jvp({d[0]}, {i.x}, {t})[0]);
    }
    // A row of the Jacobian: the gradient of one output.
    Graph row("row");
    {
      const Value u = row.input("u", {f64, {2}});
      const Inner i = inner(row);
      const Value y = torch_net(row, i.x, i.w1, i.b1, i.w2);
      row.output("j", row.gradients(row.sum(y * u), {i.x})[0]);
    }
    const auto all_rows = [&](const Graph& one, int64_t basis) {
      Graph g("matrix");
      const Inner i = inner(g);
      Tensor identity(TensorType(f64, {basis, basis}));
      for (int64_t k = 0; k < basis; ++k) identity.at<double>({k, k}) = 1;
      g.output("matrix", g.vmap({g.constant(identity)}, one,
                                {.captured = {i.x, i.target, i.w1, i.b1, i.w2}}));
      return g;
    };
    const Graph hessian = all_rows(column, 3), jacobian = all_rows(row, 2);

    Graph g("batch");
    const Value x = g.input("x", {f64, {4, 3}}), target = g.input("target", {f64, {4, 2}});
    const Value w1 = g.input("w1", {f64, {3, 5}}), b1 = g.input("b1", {f64, {5}});
    const Value w2 = g.input("w2", {f64, {5, 2}});
    const Value tx = g.input("tx", {f64, {4, 3}}), tw1 = g.input("tw1", {f64, {3, 5}});
    const auto batch = [&](const Graph& body) {
      return g.vmap({x, target}, body, {.captured = {w1, b1, w2}});
    };
    const Node gradients = batch(each);
    g.output("each dx", gradients[0]);
    g.output("each dw1", gradients[1]);
    g.output("each hessian", batch(hessian));
    g.output("each jacobian", batch(jacobian));
    g.output("jvp", g.jvp({torch_net(g, x, w1, b1, w2)}, {x, w1}, {tx, tw1})[0]);
    const Value loss = torch_loss(g, x, target, w1, b1, w2);
    g.output("hvp", g.jvp(g.gradients(loss, {w1}), {w1}, {tw1})[0]);

    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      const auto got = run_once(device, g,
                                {{"x", values(0, {4, 3})},
                                 {"target", values(1, {4, 2})},
                                 {"w1", values(2, {3, 5})},
                                 {"b1", values(3, {5})},
                                 {"w2", values(4, {5, 2})},
                                 {"tx", values(5, {4, 3})},
                                 {"tw1", values(6, {3, 5})}});
      CHECK(got.size() == kDerivativesExpected.size());
      for (const auto& [name, want] : kDerivativesExpected) {
        CAPTURE(name);
        const auto have = got.at(name).values<double>();
        REQUIRE(have.size() == want.size());
        double most = 0, off = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          most = std::max(most, std::abs(want[i]));
          off = std::max(off, std::abs(have[i] - want[i]));
        }
        CHECK(off <= 1e-11 * most);
      }
    }
  }

  TEST_CASE("jvp: closed forms, and a value that no input reaches") {
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      Graph g("jvp");
      const Value x = g.input("x", {f64, {3}}), t = g.input("t", {f64, {3}});
      const Value y = g.sin(x) * g.exp(x), z = g.sum(g.square(x));
      const Value apart = g.constant<double>({2}, {1, 2}) * 3;
      const std::vector<Value> moved = g.jvp({y, z, apart, x}, {x}, {t});
      for (size_t k = 0; k < moved.size(); ++k) g.output(std::to_string(k), moved[k]);
      const Doubles at = {0.3, -1.1, 2}, along = {1, -2, .5};
      const auto got = run_once(device, g, {{"x", Tensor({3}, at)}, {"t", Tensor({3}, along)}});
      double sum = 0;
      for (size_t i = 0; i < 3; ++i) {
        const double slope = std::exp(at[i]) * (std::sin(at[i]) + std::cos(at[i]));
        CHECK(got.at("0").values<double>()[i] == doctest::Approx(slope * along[i]).epsilon(1e-12));
        sum += 2 * at[i] * along[i];
        CHECK(got.at("3").values<double>()[i] == along[i]);
      }
      CHECK(got.at("1").item<double>() == doctest::Approx(sum).epsilon(1e-12));
      CHECK(got.at("2").type() == TensorType(f64, {2}));
      CHECK(got.at("2").values<double>()[1] == 0);
    }
  }

  TEST_CASE("jvp: several inputs, symbols, and derivatives of derivatives") {
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      Graph g("jvp");
      const int64_t n = g.symbol("n");
      const Value x = g.input("x", {f64, {n, 2}}), w = g.input("w", {f64, {2, 2}});
      const Value tx = g.input("tx", {f64, {n, 2}}), tw = g.input("tw", {f64, {2, 2}});
      const Value y = g.matmul(x, w);
      g.output("first", g.jvp({y}, {x, w}, {tx, tw})[0]);
      g.output("right", Value(g.matmul(tx, w)) + Value(g.matmul(x, tw)));
      // The derivative of a gradient along a direction: a Hessian times a vector.
      const Value loss = g.sum(g.softplus(y) * g.square(y));
      const std::vector<Value> dx = g.gradients(loss, {x});
      g.output("forward over reverse", g.jvp({dx[0]}, {x}, {tx})[0]);
      g.output("reverse over reverse", g.gradients(g.sum(dx[0] * tx), {x})[0]);
      const Value slope = g.jvp({loss}, {x}, {tx})[0];
      g.output("reverse over forward", g.gradients(slope, {x})[0]);
      const auto got = run_once(device, g,
                                {{"x", random(1, {4, 2})},
                                 {"w", random(2, {2, 2})},
                                 {"tx", random(3, {4, 2})},
                                 {"tw", random(4, {2, 2})}});
      CHECK(far_apart(got.at("first"), got.at("right")) < 1e-12);
      CHECK(far_apart(got.at("forward over reverse"), got.at("reverse over reverse")) < 1e-11);
      CHECK(far_apart(got.at("reverse over forward"), got.at("reverse over reverse")) < 1e-11);
      double most = 0;
      for (double v : got.at("reverse over reverse").values<double>())
        most = std::max(most, std::abs(v));
      CHECK(most > 0.1);
    }
  }

  TEST_CASE("jvp: refusals") {
    Graph g("jvp");
    const Value x = g.input("x", {f64, {3}}), i = g.input("i", {i64, {3}});
    const Value t = g.input("t", {f64, {3}}), wide = g.input("wide", {f64, {4}});
    const Value narrow = g.input("narrow", {f32, {3}});
    const Value y = g.exp(x);
    refused([&] { return g.jvp({y}, {i}, {i}); }, TENON_DTYPE_MISMATCH, {"input 0", "i64"});
    refused([&] { return g.jvp({i}, {x}, {t}); }, TENON_DTYPE_MISMATCH, {"output 0", "i64"});
    refused([&] { return g.jvp({y}, {x}, {wide}); }, TENON_SHAPE_MISMATCH,
            {"tangent 0", "f64[3]", "f64[4]"});
    refused([&] { return g.jvp({y}, {x}, {narrow}); }, TENON_DTYPE_MISMATCH,
            {"tangent 0", "f64", "f32"});
    refused([&] { return g.jvp({y}, {x}, {}); }, TENON_INVALID_ARGUMENT, {"tangents"});
    refused([&] { return g.jvp({}, {x}, {t}); }, TENON_INVALID_ARGUMENT, {"output"});
    // A refused call writes nothing.
    const std::string before = g.print();
    refused([&] { return g.jvp({y, i}, {x}, {t}); }, TENON_DTYPE_MISMATCH, {"output 1"});
    CHECK(g.print() == before);
    // A shape that is known only when it runs.
    Graph late("late");
    const Value s = late.exp(late.input("x", {f64, {late.symbol("n"), 2}}));
    const Value apart = late.input("t", {f64, {3, 1, 1}});
    late.output("moved", late.jvp({late.square(s)}, {s}, {apart})[0]);
    refused(
        [&] {
          return run_once("cpu:0", late, {{"x", random(1, {4, 2})}, {"t", random(2, {3, 1, 1})}});
        },
        TENON_SHAPE_MISMATCH, {"jvp: tangent 0"});
  }

  TEST_CASE("vmap: solutions of one matrix for several right sides, in as many examples") {
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      Graph body("one example");
      const Value a = body.input("a", {f64, {2, 2}}), b = body.input("b", {f64, {3, 2, 1}});
      body.output("x", body.add(op::dense_solve{.a = a, .b = b}));
      Graph g("each");
      g.output("x", g.vmap({g.input("a", {f64, {3, 2, 2}}), g.input("b", {f64, {3, 3, 2, 1}})},
                           body)[0]);
      Tensor matrices = random(1, {3, 2, 2});
      for (size_t i = 0; i < 12; ++i)
        if (i % 4 == 0 || i % 4 == 3) matrices.values<double>()[i] += 4;  // far from singular
      const Tensor right = random(2, {3, 3, 2, 1});
      const Tensor got = run_once(device, g, {{"a", matrices}, {"b", right}}).at("x");
      for (int64_t e = 0; e < 3; ++e) {
        const Inputs one = {{"a", example(matrices, e)}, {"b", example(right, e)}};
        CHECK(far_apart(example(got, e), run_once(device, body, one).at("x")) < 1e-14);
      }
    }
  }

  TEST_CASE("splats: Gaussians that no camera sees give no NaN to the gradients of cameras") {
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      // The gradients by the cameras' matrices, with a first Gaussian of this mean and color.
      const auto gradients = [&](std::vector<float> mean, float color) {
        Graph g("splats");
        const Value means = g.input("means", {f32, {2, 3}}), views = g.input("v", {f32, {1, 4, 4}});
        const Value ks = g.input("k", {f32, {1, 3, 3}}), coeffs = g.input("c", {f32, {2, 4, 3}});
        const Node y = g.add(op::splat_project{.width = 64,
                                               .height = 64,
                                               .means = means,
                                               .quats = g.input("q", {f32, {2, 4}}),
                                               .scales = g.input("s", {f32, {2, 3}}),
                                               .viewmats = views,
                                               .intrinsics = ks});
        const Value colors =
            g.add(op::splat_sh{.degree = 1, .means = means, .viewmats = views, .coeffs = coeffs});
        const auto sum = [&](Value v) { return Value(g.add(op::reduce{.kind = "sum", .x = v})); };
        // The colors of what is culled do not count.
        const Value shown = g.add(op::narrow{.start = {0, 1, 0}, .len = {1, 1, 3}, .x = colors});
        const Value loss =
            sum(g.add(op::concat{.axis = 0,
                                 .xs = {g.add(op::reshape{.shape = {4}, .x = y[1]}),
                                        g.add(op::reshape{.shape = {6}, .x = y[3]}),
                                        g.add(op::reshape{.shape = {3}, .x = shown})}}));
        const std::vector<Value> d = g.gradients(loss, {means, views, ks});
        g.output("means", d[0]), g.output("views", d[1]), g.output("ks", d[2]);
        const auto tensor = [](std::vector<int64_t> dims, const std::vector<float>& values) {
          Tensor t(TensorType(f32, std::move(dims)));
          std::ranges::copy(values, t.values<float>().begin());
          return t;
        };
        mean.insert(mean.end(), {0.1f, 0.2f, 2});
        std::vector<float> all(24, 0.25f);
        all[0] = color;
        return run_once(device, g,
                        {{"means", tensor({2, 3}, mean)},
                         {"v", tensor({1, 4, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1})},
                         {"k", tensor({1, 3, 3}, {50, 0, 32, 0, 50, 32, 0, 0, 1})},
                         {"q", tensor({2, 4}, {1, 0, 0, 0, 1, 0.2f, 0, 0})},
                         {"s", tensor({2, 3}, {0.1f, 0.2f, 0.3f, 0.1f, 0.2f, 0.3f})},
                         {"c", tensor({2, 4, 3}, all)}});
      };
      const auto wanted = gradients({0, 0, -1}, 0);  // behind the camera
      const float nan = std::numeric_limits<float>::quiet_NaN();
      for (const auto& [mean, color] : {std::pair(std::vector<float>{1e37f, 0, 0.02f}, 0.f),
                                        std::pair(std::vector<float>{3e38f, 3e38f, 0.005f}, 0.f),
                                        std::pair(std::vector<float>{0, nan, 2}, 0.f),
                                        std::pair(std::vector<float>{0, 0, -1}, nan)}) {
        const auto got = gradients(mean, color);
        for (const char* name : {"means", "views", "ks"}) {
          CAPTURE(name);
          const auto x = got.at(name).values<float>(), y = wanted.at(name).values<float>();
          CHECK(std::ranges::equal(x, y, [](float p, float q) { return p == q; }));
        }
      }
    }
  }

  TEST_CASE("vmap: a gradient for each example, with weights that all share") {
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      Graph body("one example");
      const Net net(body);
      const std::vector<Value> d = body.gradients(net.loss, {net.w1, net.b1, net.x});
      body.output("loss", net.loss);
      body.output("dw1", d[0]);
      body.output("db1", d[1]);
      body.output("dx", d[2]);

      const int64_t batch = 4;
      Graph g("per example");
      const int64_t n = g.symbol("n");  // known when it runs
      const Value xs = g.input("xs", {f64, {n, 3}}), targets = g.input("targets", {f64, {n, 2}});
      const Value w1 = g.input("w1", {f64, {3, 5}}), b1 = g.input("b1", {f64, {5}});
      const Value w2 = g.input("w2", {f64, {5, 2}});
      const Node ys = g.vmap({xs, targets}, body, {.captured = {w1, b1, w2}}, "each");
      const char* const names[] = {"loss", "dw1", "db1", "dx"};
      for (size_t k = 0; k < 4; ++k) g.output(names[k], ys[k]);
      // The gradient of the sum is the sum of the gradients.
      g.output("sum", g.gradients(g.sum(ys[0]), {w1})[0]);
      g.output("sum of dw1", g.sum(ys[1], {0}));
      // Text has the request, and reads back.
      CHECK(g.print().find("vmap(") != std::string::npos);
      CHECK(Graph::parse(g.print()).print() == g.print());

      const Tensor x = random(1, {batch, 3}), target = random(2, {batch, 2});
      const Inputs weights = {
          {"w1", random(3, {3, 5})}, {"b1", random(4, {5})}, {"w2", random(5, {5, 2})}};
      Inputs all = weights;
      all.emplace_back("xs", x);
      all.emplace_back("targets", target);
      const auto got = run_once(device, g, all);
      CHECK(got.at("dw1").type() == TensorType(f64, {batch, 3, 5}));
      for (int64_t e = 0; e < batch; ++e) {
        Inputs one = weights;
        one.emplace_back("x", example(x, e));
        one.emplace_back("target", example(target, e));
        const auto want = run_once(device, body, one);
        for (const char* name : names)
          CHECK(far_apart(example(got.at(name), e), want.at(name)) < 1e-12);
      }
      CHECK(far_apart(got.at("sum"), got.at("sum of dw1")) < 1e-12);
    }
  }

  TEST_CASE("vmap: a Hessian, by forward over reverse along each basis vector") {
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      const auto loss_of = [](Graph& g, Value x) {
        return Value(g.sum(g.sin(x) * g.square(x))) * g.reduce("prod", x);
      };
      Graph column("column");
      {
        const Value t = column.input("t", {f64, {4}}), x = column.input("x", {f64, {4}});
        const std::vector<Value> dx = column.gradients(loss_of(column, x), {x});
        column.output("h", column.jvp({dx[0]}, {x}, {t})[0]);
      }
      Graph gradient("gradient");
      {
        const Value x = gradient.input("x", {f64, {4}});
        gradient.output("dx", gradient.gradients(loss_of(gradient, x), {x})[0]);
      }
      Graph g("hessian");
      Tensor identity(TensorType(f64, {4, 4}));
      for (int64_t i = 0; i < 4; ++i) identity.at<double>({i, i}) = 1;
      const Value x = g.input("x", {f64, {4}});
      g.output("h", g.vmap({g.constant(identity)}, column, {.out_axes = {1}, .captured = {x}}));
      const Tensor at({4}, {0.5, -1.2, 0.8, 2.0});
      const Tensor h = run_once(device, g, {{"x", at}}).at("h");
      const double step = 1e-5;
      for (int64_t j = 0; j < 4; ++j) {
        Tensor up = at, down = at;
        up.at<double>({j}) += step;
        down.at<double>({j}) -= step;
        const Tensor a = run_once(device, gradient, {{"x", up}}).at("dx");
        const Tensor b = run_once(device, gradient, {{"x", down}}).at("dx");
        for (int64_t i = 0; i < 4; ++i) {
          const double slope = (a.at<double>({i}) - b.at<double>({i})) / (2 * step);
          CHECK(h.at<double>({i, j}) == doctest::Approx(slope).epsilon(1e-7));
          CHECK(h.at<double>({i, j}) == doctest::Approx(h.at<double>({j, i})).epsilon(1e-12));
        }
      }
    }
  }

  TEST_CASE("vmap of vmap: all pairs, and axes other than the first") {
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      Graph pair("pair");
      {
        const Value a = pair.input("a", {f64, {3}}), b = pair.input("b", {f64, {3}});
        pair.output("dot", pair.sum(a * b));
      }
      Graph row("row");
      {
        const Value a = row.input("a", {f64, {3}});
        const Value bs = row.input("bs", {f64, {3, row.symbol("m")}});
        // A body takes the batched one first.
        Graph flipped("flipped");
        const Value b = flipped.input("b", {f64, {3}}), one = flipped.input("a", {f64, {3}});
        flipped.output(
            "dot", flipped.vmap({flipped.reshape(one, {1, 3}), flipped.reshape(b, {1, 3})}, pair));
        row.output("dots",
                   row.reshape(row.vmap({bs}, flipped, {.in_axes = {1}, .captured = {a}}), {-1}));
      }
      Graph g("all pairs");
      const Value as = g.input("as", {f64, {3, 2}}), bs = g.input("bs", {f64, {3, 5}});
      g.output("dots", g.vmap({as}, row, {.in_axes = {-1}, .out_axes = {1}, .captured = {bs}}));
      g.output("right", g.matmul(bs, as, {.trans_a = true}));
      const auto got = run_once(device, g, {{"as", random(1, {3, 2})}, {"bs", random(2, {3, 5})}});
      CHECK(far_apart(got.at("dots"), got.at("right")) < 1e-12);
    }
  }

  TEST_CASE("vmap: loops that end at different trips, branches of each example's own, scans") {
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      Graph go("go"), halve("halve");
      {
        const Value x = go.input("x", {f64, {2}}), least = go.input("least", {f64, {}});
        go.output("go", go.gt(go.sum(x), least));
      }
      {
        const Value x = halve.input("x", {f64, {2}});
        halve.input("least", {f64, {}});
        halve.output("x", x / 2);
      }
      Graph yes("yes"), no("no"), step("step");
      yes.output("y", yes.input("x", {f64, {2}}) * 10);
      no.output("y", -no.input("x", {f64, {2}}));
      {
        const Value sum = step.input("sum", {f64, {}}), x = step.input("x", {f64, {}});
        step.output("sum", sum + x);
        step.output("seen", sum * x);
      }
      Graph body("body");
      {
        const Value x = body.input("x", {f64, {2}}), least = body.input("least", {f64, {}});
        body.output("halved", body.while_({x}, go, halve, {.captured = {least}}));
        body.output("bounded", body.while_({x}, go, halve, {.max_trip = 2, .captured = {least}}));
        body.output("branch", body.if_(body.gt(body.sum(x), 4), yes, no, {.xs = {x}}));
        const Node scanned = body.scan(step, {.carry = {least}, .xs = {x}});
        body.output("sum", scanned[0]);
        body.output("seen", scanned[1]);
      }
      const int64_t batch = 3;
      Graph g("batch");
      const Value xs = g.input("xs", {f64, {batch, 2}}), least = g.input("least", {f64, {batch}});
      const Node ys = g.vmap({xs, least}, body);
      size_t k = 0;
      for (const auto& [name, value] : body.outputs()) g.output(name, ys[k++]);
      const Tensor x({batch, 2}, {1., 3., 40., 2., .1, .2}), at({batch}, {3., 1., 2.});
      const auto got = run_once(device, g, {{"xs", x}, {"least", at}});
      for (int64_t e = 0; e < batch; ++e) {
        const auto want = run_once(device, body, {{"x", example(x, e)}, {"least", example(at, e)}});
        for (const auto& [name, value] : want) {
          CAPTURE(name);
          CHECK(far_apart(example(got.at(name), e), value) == 0);
        }
      }
      CHECK(got.at("halved").at<double>({1, 0}) == 40. / 64);
      CHECK(got.at("bounded").at<double>({1, 0}) == 10);
      CHECK(got.at("branch").at<double>({1, 1}) == 20);
      CHECK(got.at("branch").at<double>({0, 1}) == -3);
    }
  }

  TEST_CASE("vmap: what an example does not run alone gives it neither gradients nor failures") {
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      Graph root("root"), negated("negated"), body("body");
      root.output("y", root.sqrt(root.input("x", {f64, {}})));
      negated.output("y", -negated.input("x", {f64, {}}));
      {
        const Value x = body.input("x", {f64, {}});
        body.output("y", body.if_(body.gt(x, 0), root, negated, {.xs = {x}}));
      }
      // A bounded loop over a weight that all share, in which an ended example would leave the
      // range of the root.
      Graph go("go"), step("step"), loop("loop");
      {
        const Value x = go.input("x", {f64, {}});
        go.input("w", {f64, {}});
        go.output("go", go.gt(x, 1.5));
      }
      {
        const Value x = step.input("x", {f64, {}}), w = step.input("w", {f64, {}});
        step.output("x", step.sqrt(x - 1.5) * w);
      }
      {
        const Value x = loop.input("x", {f64, {}}), w = loop.input("w", {f64, {}});
        loop.output("y", loop.while_({x}, go, step, {.max_trip = 4, .captured = {w}}));
      }
      const auto gradients = [&](const Graph& f, const Tensor& xs, bool with_weight) {
        Graph g("gradients");
        const Value x = g.input("xs", {f64, xs.dims()}), w = g.input("w", {f64, {}});
        op::vmap rest;
        if (with_weight) rest.captured = {w};
        const std::vector<Value> d = g.gradients(g.sum(g.vmap({x}, f, rest)), {x, w});
        g.output("dx", d[0]);
        g.output("dw", d[1]);
        return run_once(device, g, {{"xs", xs}, {"w", Tensor::scalar(1.25)}});
      };
      // Alone: a batch of one.
      const auto compare = [&](const Graph& f, const Doubles& xs, bool with_weight) {
        const auto n = static_cast<int64_t>(xs.size());
        const auto got = gradients(f, Tensor({n}, xs), with_weight);
        double dw = 0;
        for (int64_t e = 0; e < n; ++e) {
          const auto one =
              gradients(f, Tensor({1}, Doubles{xs[static_cast<size_t>(e)]}), with_weight);
          CHECK(got.at("dx").at<double>({e}) == doctest::Approx(one.at("dx").at<double>({0})));
          CHECK(std::isfinite(one.at("dx").at<double>({0})));
          dw += one.at("dw").item<double>();
        }
        CHECK(got.at("dw").item<double>() == doctest::Approx(dw));
        return got;
      };
      const auto got = compare(body, {4, -1, 0}, false);
      CHECK(got.at("dx").at<double>({0}) == 0.25);
      CHECK(got.at("dx").at<double>({2}) == -1);
      compare(body, {-1, -2}, false);  // nobody takes the root
      compare(loop, {1, 20, 3, -5}, true);

      // An index that is guarded, by a branch and by the end of a loop.
      Graph look("look"), zero("zero"), guarded("guarded"), inside("inside"), add("add"),
          walk("walk");
      {
        const Value i = look.input("i", {i64, {}}), table = look.input("table", {f64, {4}});
        look.output("y", look.gather(table, i));
        zero.input("i", {i64, {}});
        zero.input("table", {f64, {4}});
        zero.output("y", zero.scalar(0.0));
      }
      {
        const Value i = guarded.input("i", {i64, {}}), table = guarded.input("table", {f64, {4}});
        guarded.output("y", guarded.if_(guarded.lt(i, 4), look, zero, {.xs = {i, table}}));
      }
      {
        const Value i = inside.input("i", {i64, {}});
        inside.input("sum", {f64, {}});
        inside.input("table", {f64, {4}});
        inside.output("go", inside.lt(i, 4));
      }
      {
        const Value i = add.input("i", {i64, {}}), sum = add.input("sum", {f64, {}});
        const Value table = add.input("table", {f64, {4}});
        add.output("i", i * 2 + 1);
        add.output("sum", sum + add.gather(table, i));
      }
      {
        const Value i = walk.input("i", {i64, {}}), table = walk.input("table", {f64, {4}});
        walk.output("y", walk.while_({i, walk.scalar(0.0)}, inside, add, {.captured = {table}})[1]);
      }
      Graph g("guards");
      const Value is = g.input("is", {i64, {3}}), table = g.input("table", {f64, {4}});
      g.output("guarded", g.vmap({is}, guarded, {.captured = {table}}));
      g.output("walked", g.vmap({is}, walk, {.captured = {table}}));
      const auto found = run_once(device, g,
                                  {{"is", Tensor({3}, std::vector<int64_t>{1, 9, 0})},
                                   {"table", Tensor({4}, {1., 2., 4., 8.})}});
      CHECK(found.at("guarded").values<double>()[0] == 2);
      CHECK(found.at("guarded").values<double>()[1] == 0);
      CHECK(found.at("walked").values<double>()[0] == 2 + 8);
      CHECK(found.at("walked").values<double>()[1] == 0);
      CHECK(found.at("walked").values<double>()[2] == 1 + 2 + 8);
    }
  }

  TEST_CASE(
      "vmap and recomputation: segments in bodies stay apart, and a vmap is recomputed itself") {
    const int64_t layers = 3;
    Graph body("body");
    {
      Value x = body.input("x", {f64, {6}});
      const Value first = x, gamma = body.input("gamma", {f64, {6}});
      Value loss;
      for (int64_t k = 0; k < layers; ++k) {
        const Value from = x;
        x = body.tanh(body.layer_norm(x, {.gamma = gamma}));
        body.checkpoint({from}, {x});
      }
      loss = body.sum(body.square(x));
      body.output("dx", body.gradients(loss, {first})[0]);
    }
    Graph outer("outer");
    const Value x = outer.input("x", {f64, {4, 6}}), gamma = outer.input("gamma", {f64, {4, 6}});
    outer.output("first", outer.vmap({x, gamma}, body));
    outer.output("second", outer.vmap({x, gamma}, body));
    Graph plain("plain");
    {
      Graph each("each");
      Value v = each.input("x", {f64, {6}});
      const Value begin = v, g = each.input("gamma", {f64, {6}});
      for (int64_t k = 0; k < layers; ++k) v = each.tanh(each.layer_norm(v, {.gamma = g}));
      each.output("dx", each.gradients(each.sum(each.square(v)), {begin})[0]);
      plain.output(
          "dx",
          plain.vmap({plain.input("x", {f64, {4, 6}}), plain.input("gamma", {f64, {4, 6}})}, each));
    }
    const Inputs inputs = {{"x", random(1, {4, 6})}, {"gamma", random(2, {4, 6})}};
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      const auto got = run_once(device, outer, inputs);
      const Tensor want = run_once(device, plain, inputs).at("dx");
      CHECK(far_apart(got.at("first"), want) == 0);
      CHECK(far_apart(got.at("second"), want) == 0);
    }
    // A vmap between the ends of a segment.
    Graph one("one");
    one.output("y", one.exp(one.sin(one.input("x", {f64, {6}}))));
    const auto gradient = [&](bool kept) {
      Graph g("segment");
      const Value from = g.input("x", {f64, {4, 6}});
      const Value y = g.exp(Value(g.vmap({g.sin(from)}, one)));
      if (!kept) g.checkpoint({from}, {y});
      g.output("dx", g.gradients(g.sum(g.square(y)), {from})[0]);
      return run_once("cpu:0", g, {inputs[0]}).at("dx");
    };
    CHECK(far_apart(gradient(false), gradient(true)) == 0);
  }

  TEST_CASE("vmap: empty batches, values that no example changes, what draws random numbers") {
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      Graph body("body");
      {
        const Value x = body.input("x", {f64, {3}}), w = body.input("w", {f64, {3}});
        body.output("same", body.square(w));
        body.output("y", body.softmax(x * w));
      }
      Graph g("batch");
      const int64_t n = g.symbol("n");
      const Value xs = g.input("xs", {f64, {n, 3}}), w = g.input("w", {f64, {3}});
      const Node ys = g.vmap({xs}, body, {.captured = {w}});
      g.output("same", ys[0]);
      g.output("y", ys[1]);
      const Tensor weights = random(2, {3});
      const auto none = run_once(device, g, {{"xs", random(1, {0, 3})}, {"w", weights}});
      CHECK(none.at("same").type() == TensorType(f64, {0, 3}));
      CHECK(none.at("y").elements() == 0);
      // Ops whose rule joins the batch with an axis of their own.
      Graph folds("folds");
      {
        const Value image = folds.input("image", {f64, {1, 2, 4, 4}});
        folds.output("max", folds.maxpool2d(image, {.kernel = {2, 2}}));
        folds.output("norm", folds.group_norm(image, {.groups = 2}));
        folds.output("attention", folds.attention(image, image, image));
      }
      Graph f("folded");
      const Node joined = f.vmap({f.input("images", {f64, {f.symbol("n"), 1, 2, 4, 4}})}, folds);
      for (size_t k = 0; k < 3; ++k) f.output(std::to_string(k), joined[k]);
      for (const int64_t size : {0, 2}) {
        const auto out = run_once(device, f, {{"images", random(3, {size, 1, 2, 4, 4})}});
        CHECK(out.at("0").type() == TensorType(f64, {size, 1, 2, 2, 2}));
        CHECK(out.at("1").type() == TensorType(f64, {size, 1, 2, 4, 4}));
        CHECK(out.at("2").type() == TensorType(f64, {size, 1, 2, 4, 4}));
      }
      const auto got = run_once(device, g, {{"xs", random(1, {2, 3})}, {"w", weights}});
      for (int64_t e = 0; e < 2; ++e)
        for (int64_t i = 0; i < 3; ++i)
          CHECK(got.at("same").at<double>({e, i}) ==
                doctest::Approx(weights.at<double>({i}) * weights.at<double>({i})));

      // One state of the generator for all: one mask. One for each: masks of their own.
      Graph drop("drop");
      {
        const Value x = drop.input("x", {f64, {64}}), rng = drop.input("rng", {i64, {2}});
        drop.output("y", drop.dropout(x, rng));
      }
      Graph d("dropped");
      const Value x = d.input("x", {f64, {2, 64}}), seeds = d.input("seeds", {i64, {2, 2}});
      d.output("one", d.vmap({x}, drop, {.captured = {d.constant<int64_t>({2}, {7, 0})}}));
      d.output("own", d.vmap({x, seeds}, drop));
      Tensor ones(TensorType(f64, {2, 64}));
      for (double& v : ones.values<double>()) v = 1;
      const auto dropped = run_once(
          device, d, {{"x", ones}, {"seeds", Tensor({2, 2}, std::vector<int64_t>{7, 0, 8, 0})}});
      const Tensor one = dropped.at("one"), own = dropped.at("own");
      CHECK(far_apart(example(one, 0), example(one, 1)) == 0);
      CHECK(far_apart(example(own, 0), example(one, 0)) == 0);
      CHECK(far_apart(example(own, 1), example(one, 0)) > 0);
    }
  }

  TEST_CASE("vmap: refusals name the operand, the axis and the function") {
    Graph body("body");
    body.output("y", body.input("x", {f64, {3}}) * 2);
    Graph g("refused");
    const Value x = g.input("x", {f64, {4, 3}}), y = g.input("y", {f64, {5, 3}});
    const Value scalar = g.input("scalar", {f64, {}});
    refused([&] { return g.vmap({scalar}, body); }, TENON_SHAPE_MISMATCH, {"xs", "rank 1"});
    refused([&] { return g.vmap({x}, body, {.in_axes = {2}}); }, TENON_INVALID_ARGUMENT,
            {"vmap", "axis"});
    refused(
        [&] {
          return g.vmap({x}, body, {.in_axes = {0, 0}});
        },
        TENON_INVALID_ARGUMENT, {"in_axes", "1", "2"});
    refused([&] { return g.vmap({x}, body, {.out_axes = {2}}); }, TENON_INVALID_ARGUMENT,
            {"vmap", "axis"});
    refused([&] { return g.vmap({x}, body, {.in_axes = {1}}); }, TENON_SHAPE_MISMATCH,
            {"function body", "x"});
    refused([&] { return g.vmap({x, y}, body); }, TENON_SHAPE_MISMATCH, {"batch of 4", "f64[5,3]"});
    refused([&] { return g.vmap({x}, body, {.captured = {y}}); }, TENON_INVALID_ARGUMENT,
            {"function body", "inputs"});
    refused([&] { return g.vmap({x}, body, {.count_ys = 2}); }, TENON_INVALID_ARGUMENT,
            {"2 outputs", "1"});
    Graph weighted("weighted");
    weighted.output("y", weighted.input("x", {f64, {3}}) * weighted.weight("w", {f64, {3}}));
    refused([&] { return g.vmap({x}, weighted); }, TENON_INVALID_ARGUMENT, {"neither weights"});
    // A failure of one example names the node in the body.
    Graph lookup("lookup");
    {
      const Value i = lookup.input("i", {i64, {2}}), table = lookup.input("table", {f64, {3}});
      lookup.output("y", lookup.gather(table, i, {}, "row"));
    }
    Graph h("failing");
    h.output("y", h.vmap({h.input("i", {i64, {2, 2}})}, lookup,
                         {.captured = {h.input("table", {f64, {3}})}}, "each"));
    const Inputs bad = {{"i", Tensor({2, 2}, std::vector<int64_t>{0, 1, 2, 3})},
                        {"table", random(1, {3})}};
    refused([&] { return run_once("cpu:0", h, bad); }, TENON_INDEX_OUT_OF_RANGE, {"each: row"});
    // A body whose values have no axis left.
    Graph deep("deep");
    deep.output("y", deep.sum(deep.reshape(deep.input("x", {f64, {4}}), {1, 1, 1, 1, 1, 1, 2, 2})));
    Graph d("too deep");
    d.output("y", d.vmap({d.input("x", {f64, {3, 4}})}, deep, {}, "each"));
    refused(
        [&] {
          return run_once("cpu:0", d, {{"x", random(1, {3, 4})}});
        },
        TENON_UNSUPPORTED, {"vmap 'each'", "rank 9"});
    // Nodes keep the names of the body's, control flow too.
    Graph named("named"), positive("positive"), other("other");
    positive.output("y", positive.exp(positive.input("x", {f64, {}})));
    other.output("y", other.sin(other.input("x", {f64, {}})));
    {
      const Value v = named.input("x", {f64, {}});
      named.output("y", named.if_(named.gt(v, 0), positive, other, {.xs = {v}}, "pick"));
      Graph low("low"), twice("twice");
      low.output("go", low.lt(low.input("x", {f64, {}}), 3));
      twice.output("x", twice.input("x", {f64, {}}) * 2);
      named.output("z", named.while_({v}, low, twice, {}, "grow"));
    }
    Graph n("names");
    const Node both = n.vmap({n.input("x", {f64, {3}})}, named, {}, "each");
    n.output("y", both[0]);
    n.output("z", both[1]);
    Store store(runtime());
    const std::string report =
        Executable(runtime(), n, store, {.device = "cpu:0", .fuse = false}).report();
    CHECK(report.find("each: pick") != std::string::npos);
    CHECK(report.find("each: grow") != std::string::npos);
  }
}
