// SPDX-License-Identifier: Apache-2.0
// if, while and scan: values, gradients against the same graph written out trip by trip, and errors
// that name the trip.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using Floats = std::vector<float>;
// Where a graph runs. The planner writes short loops out; without simplification they stay.
struct Where {
  std::string device;
  bool loops_stay = false;
};

struct Input {
  std::string name;
  std::vector<int64_t> dims;
  Floats values;
};

// Runs a graph twice in one context, once asynchronously: what a run leaves behind must not matter.
class Run {
 public:
  Run(const std::string& text, const Where& where, const std::vector<Input>& inputs)
      : store_(runtime()) {
    const Graph graph = Graph::parse(text, "control");
    executable_ = std::make_unique<Executable>(
        runtime(), graph, store_,
        ExecutableOptions{.device = where.device, .simplify = !where.loops_stay});
    context_ = std::make_unique<Context>(*executable_);
    for (const Input& i : inputs) context_->set(i.name, i.dims, i.values);
    context_->run();
    context_->run_async();
    context_->wait();
  }
  Floats operator[](const std::string& output) { return context_->get<float>(output); }
  std::string report() { return executable_->report(); }

 private:
  Store store_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Context> context_;
};

void check_near(const Floats& got, const Floats& expected, double tolerance = 1e-5) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(tolerance));
  }
}

// h' = tanh(x·w + h·u), y = h' · h', over 4 trips.
const char* const kCell = R"(
    a = matmul(x, w)
    b = matmul(h, u)
    c = binary(a, b) {kind="add"}
    next = unary(c) {kind="tanh"}
    y = binary(next, next) {kind="mul"}
)";
std::string scan_rnn(const std::string& attributes, const std::string& after) {
  return std::string(R"(graph "rnn" {
  input x0: f32[4,2,3]
  input h0: f32[2,5]
  input w: f32[3,5]
  input u: f32[5,5]
  (last, ys) = scan([h0], [x0], [w, u]) {body=graph {
    input h: f32[2,5]
    input x: f32[2,3]
    input w: f32[3,5]
    input u: f32[5,5]
)") + kCell +
         R"(
    output "next" = next
    output "y" = y
  })" + attributes +
         R"(}
)" + after +
         "}";
}
// The same without a scan.
std::string flat_rnn(bool reverse, const std::string& after) {
  std::string text = R"(graph "rnn" {
  input x0: f32[4,2,3]
  input h0: f32[2,5]
  input w: f32[3,5]
  input u: f32[5,5]
)";
  std::string h = "h0";
  std::string ys[4];
  for (int t = 0; t < 4; ++t) {
    const int at = reverse ? 3 - t : t;
    const std::string n = std::to_string(t);
    text += "  s" + n + " = narrow(x0) {start=[" + std::to_string(at) +
            ",0,0], len=[1,2,3], step=[1,1,1]}\n  x" + n + "x = reshape(s" + n +
            ") {shape=[2,3]}\n  a" + n + " = matmul(x" + n + "x, w)\n  b" + n + " = matmul(" + h +
            ", u)\n  c" + n + " = binary(a" + n + ", b" + n + ") {kind=\"add\"}\n  h" + n +
            "h = unary(c" + n + ") {kind=\"tanh\"}\n  y" + n + " = binary(h" + n + "h, h" + n +
            "h) {kind=\"mul\"}\n  z" + n + " = reshape(y" + n + ") {shape=[1,2,5]}\n";
    h = "h" + n + "h";
    ys[at] = "z" + n;
  }
  text += "  last = copy(" + h + ")\n  ys = concat(" + ys[0] + ", " + ys[1] + ", " + ys[2] + ", " +
          ys[3] + ") {axis=0}\n";
  return text + after + "}";
}
std::vector<Input> rnn_inputs() {
  return {{"x0", {4, 2, 3}, noise_of(1, 24)},
          {"h0", {2, 5}, noise_of(2, 10)},
          {"w", {3, 5}, noise_of(3, 15)},
          {"u", {5, 5}, noise_of(4, 25)}};
}
// Every node of the function is computed again in the backward pass.
std::string recomputed(std::string text) {
  for (const char* end : {"matmul(x, w)", "matmul(h, u)", "{kind=\"add\"}", "{kind=\"tanh\"}"}) {
    const size_t at = text.find(std::string(end) + "\n", text.find("body=graph"));
    REQUIRE(at != std::string::npos);
    text.insert(at + std::string_view(end).size(), " recompute 1");
  }
  return text;
}
// All gradients of a loss that reads both results.
const char* const kLoss = R"(
  p = reduce(last) {kind="sum_square"}
  q = reduce(ys) {kind="sum"}
  loss = binary(p, q) {kind="add"}
  (dx, dh, dw, du) = grad(loss, x0, h0, w, u)
  output "last" = last
  output "ys" = ys
  output "dx" = dx
  output "dh" = dh
  output "dw" = dw
  output "du" = du
)";

// Doubles x until its sum reaches the limit.
std::string while_text(const std::string& bound, const std::string& after) {
  return R"(graph "double" {
  input x: f32[2]
  input limit: f32[]
  const zero: f32[] = {0}
  (last, count) = while([x, zero], [limit]) {cond=graph {
    symbols N
    input x: f32[N]
    input n: f32[]
    input limit: f32[]
    s = reduce(x) {kind="sum"}
    go = compare(s, limit) {kind="lt"}
    output "go" = go
  }, body=graph {
    input x: f32[2]
    input n: f32[]
    input limit: f32[]
    const one: f32[] = {1}
    y = binary(x, x) {kind="add"}
    m = binary(n, one) {kind="add"}
    output "x" = y
    output "n" = m
  })" + bound +
         "}\n" + after + "}";
}

template <class Body>
void on_each_device(Body body) {
  for (const std::string& device : control_devices())
    for (const bool loops_stay : {false, true}) {
      CAPTURE(device);
      CAPTURE(loops_stay);
      body(Where{device, loops_stay});
    }
}

}  // namespace

TEST_SUITE("exec/control") {
  TEST_CASE("if: runs one branch, and the gradient is that branch's") {
    const std::string text = R"(graph "choice" {
  input x: f32[3]
  input limit: f32[]
  s = reduce(x) {kind="sum"}
  cond = compare(s, limit) {kind="lt"}
  (y, z) = if(cond, [x, limit]) {then_branch=graph {
    input x: f32[3]
    input l: f32[]
    y = binary(x, x) {kind="mul"}
    output "y" = y
    output "z" = x
  }, else_branch=graph {
    input x: f32[3]
    input l: f32[]
    y = binary(x, l) {kind="mul"}
    output "y" = y
    output "z" = y
  }}
  loss = reduce(y) {kind="sum"}
  (dx, dl) = grad(loss, x, limit)
  output "y" = y
  output "z" = z
  output "dx" = dx
  output "dl" = dl
})";
    on_each_device([&](const Where& where) {
      Run yes(text, where, {{"x", {3}, {1, 2, 3}}, {"limit", {}, {10}}});
      check_near(yes["y"], {1, 4, 9});
      check_near(yes["z"], {1, 2, 3});
      check_near(yes["dx"], {2, 4, 6});
      check_near(yes["dl"], {0});
      Run no(text, where, {{"x", {3}, {1, 2, 3}}, {"limit", {}, {5}}});
      check_near(no["y"], {5, 10, 15});
      check_near(no["z"], {5, 10, 15});
      check_near(no["dx"], {5, 5, 5});
      check_near(no["dl"], {6});
    });
  }

  TEST_CASE("while: until the condition is false, or max_trip") {
    const std::string outputs = "  output \"last\" = last\n  output \"count\" = count\n";
    struct {
      std::string bound;
      float limit;
      Floats last;
      float count;
    } const cases[] = {{"", 20, {8, 16}, 3},
                       {"", 3, {1, 2}, 0},
                       {", max_trip=2", 20, {4, 8}, 2},
                       {", max_trip=0", 20, {1, 2}, 0},
                       {", max_trip=100", 20, {8, 16}, 3}};
    on_each_device([&](const Where& where) {
      for (const auto& c : cases) {
        CAPTURE(c.bound);
        CAPTURE(c.limit);
        Run run(while_text(c.bound, outputs), where,
                {{"x", {2}, {1, 2}}, {"limit", {}, {c.limit}}});
        check_near(run["last"], c.last);
        check_near(run["count"], {c.count});
      }
    });
  }

  TEST_CASE("while: the gradient of a bounded one; an unbounded one is refused by name") {
    const std::string outputs =
        "  loss = reduce(last) {kind=\"sum_square\"}\n  dx = grad(loss, x)\n"
        "  output \"dx\" = dx\n  output \"last\" = last\n";
    on_each_device([&](const Where& where) {
      Run run(while_text(", max_trip=7", outputs), where,
              {{"x", {2}, {1, 2}}, {"limit", {}, {20}}});
      check_near(run["last"], {8, 16});
      check_near(run["dx"], {2 * 8 * 8, 2 * 16 * 8});
    });
    CHECK_THROWS_WITH(
        Run(while_text("", outputs), Where{"cpu:0"}, {{"x", {2}, {1, 2}}, {"limit", {}, {20}}}),
        doctest::Contains("while: no gradient for operand carry: the number of its trips has no "
                          "bound; hint: give max_trip"));
  }

  TEST_CASE("scan: carries that change places, stacked values, captured constants") {
    const std::string text = R"(graph "fibonacci" {
  input a: f32[]
  input b: f32[]
  const two: f32[] = {2}
  (x, y, all, again) = scan([a, b], [], [two]) {body=graph {
    input a: f32[]
    input b: f32[]
    input two: f32[]
    c = binary(a, b) {kind="add"}
    d = binary(c, two) {kind="mul"}
    output "a" = b
    output "b" = c
    output "all" = d
    output "again" = d
  }, length=6}
  output "x" = x
  output "y" = y
  output "all" = all
  output "again" = again
})";
    on_each_device([&](const Where& where) {
      Run run(text, where, {{"a", {}, {0}}, {"b", {}, {1}}});
      check_near(run["x"], {8});
      check_near(run["y"], {13});
      check_near(run["all"], {2, 4, 6, 10, 16, 26});
      check_near(run["again"], {2, 4, 6, 10, 16, 26});
    });
  }

  TEST_CASE("scan: no trips, and lists without a carry") {
    const std::string text = R"(graph "empty" {
  symbols T
  input c: f32[2]
  input xs: f32[T,2]
  (last, ys) = scan([c], [xs], []) {body=graph {
    input c: f32[2]
    input x: f32[2]
    y = binary(c, x) {kind="add"}
    output "c" = y
    output "y" = y
  }}
  zs = scan([], [xs], []) {body=graph {
    symbols N
    input x: f32[N]
    y = binary(x, x) {kind="mul"}
    output "y" = y
  }, reverse=true}
  output "last" = last
  output "ys" = ys
  output "zs" = zs
})";
    on_each_device([&](const Where& where) {
      Run none(text, where, {{"c", {2}, {3, 4}}, {"xs", {0, 2}, {}}});
      check_near(none["last"], {3, 4});
      check_near(none["ys"], {});
      Run two(text, where, {{"c", {2}, {3, 4}}, {"xs", {2, 2}, {1, 2, 10, 20}}});
      check_near(two["last"], {14, 26});
      check_near(two["ys"], {4, 6, 14, 26});
      check_near(two["zs"], {1, 4, 100, 400});
    });
  }

  TEST_CASE("scan: values and gradients are those of the trips written out") {
    on_each_device([&](const Where& where) {
      for (const bool reverse : {false, true}) {
        CAPTURE(reverse);
        Run scan(scan_rnn(reverse ? ", reverse=true" : "", kLoss), where, rnn_inputs());
        Run again(recomputed(scan_rnn(reverse ? ", reverse=true" : "", kLoss)), where,
                  rnn_inputs());
        Run flat(flat_rnn(reverse, kLoss), where, rnn_inputs());
        for (const char* name : {"last", "ys", "dx", "dh", "dw", "du"}) {
          CAPTURE(std::string(name));
          check_near(scan[name], flat[name], 1e-4);
          check_near(again[name], flat[name], 1e-4);
        }
      }
    });
  }

  TEST_CASE("scan: gradients of the second order") {
    const std::string loss = R"(
  p = reduce(last) {kind="sum_square"}
  q = reduce(ys) {kind="sum"}
  loss = binary(p, q) {kind="add"}
  dw = grad(loss, w)
  twist = unary(dw) {kind="square"}
  norm = reduce(twist) {kind="sum"}
  (dx, du) = grad(norm, x0, u)
  output "dx" = dx
  output "du" = du
)";
    on_each_device([&](const Where& where) {
      Run scan(scan_rnn("", loss), where, rnn_inputs());
      Run flat(flat_rnn(false, loss), where, rnn_inputs());
      check_near(scan["dx"], flat["dx"], 1e-3);
      check_near(scan["du"], flat["du"], 1e-3);
    });
  }

  TEST_CASE("functions inside functions: a bounded loop in a scan, with its gradient") {
    // Trip t adds x_t to c until it is 10 or more, at most 3 times.
    const std::string text = R"(graph "nested" {
  input c0: f32[]
  input xs: f32[3]
  const limit: f32[] = {10}
  (last, all) = scan([c0], [xs], [limit]) {body=graph {
    input c: f32[]
    input x: f32[]
    input limit: f32[]
    d = while([c], [x, limit]) {cond=graph {
      input c: f32[]
      input x: f32[]
      input limit: f32[]
      go = compare(c, limit) {kind="lt"}
      output "go" = go
    }, body=graph {
      input c: f32[]
      input x: f32[]
      input limit: f32[]
      d = binary(c, x) {kind="add"}
      output "d" = d
    }, max_trip=3}
    output "c" = d
    output "d" = d
  }}
  loss = unary(last) {kind="square"}
  (dc, dx) = grad(loss, c0, xs)
  output "last" = last
  output "all" = all
  output "dc" = dc
  output "dx" = dx
})";
    on_each_device([&](const Where& where) {
      // 1 + 3 * 1 = 4, then 4 + 2 * 3 = 10, then no trip.
      Run run(text, where, {{"c0", {}, {1}}, {"xs", {3}, {1, 3, 50}}});
      check_near(run["last"], {10});
      check_near(run["all"], {4, 10, 10});
      check_near(run["dc"], {20});
      check_near(run["dx"], {60, 40, 0});
    });
  }

  TEST_CASE("while: an output that nobody wants, and a condition that is not asked at the bound") {
    // The condition looks up whether to go on; behind the last entry there is none.
    const std::string text = R"(graph "bound" {
  input x: f32[]
  const zero: i64[] = {0}
  const stop: bool[3] = {1, 1, 1}
  (_, y) = while([zero, x], [stop]) {cond=graph {
    input n: i64[]
    input x: f32[]
    input stop: bool[3]
    go = gather(stop, n)
    output "go" = go
  }, body=graph {
    input n: i64[]
    input x: f32[]
    input stop: bool[3]
    const one: i64[] = {1}
    m = binary(n, one) {kind="add"}
    y = binary(x, x) {kind="add"}
    output "n" = m
    output "x" = y
  }, max_trip=3}
  dx = grad(y, x)
  output "y" = y
  output "dx" = dx
})";
    on_each_device([&](const Where& where) {
      Run run(text, where, {{"x", {}, {3}}});
      check_near(run["y"], {24});
      check_near(run["dx"], {8});
    });
  }

  TEST_CASE("requests for gradients inside a function") {
    // x' = x - grad(x · x) / 4
    const std::string text = R"(graph "descent" {
  input x: f32[2]
  y = scan([x], [], []) {body=graph {
    input x: f32[2]
    const step: f32[] = {0.25}
    s = reduce(x) {kind="sum_square"}
    g = grad(s, x)
    d = binary(g, step) {kind="mul"}
    n = binary(x, d) {kind="sub"}
    output "x" = n
  }, length=3}
  loss = reduce(y) {kind="sum"}
  dx = grad(loss, x)
  output "y" = y
  output "dx" = dx
})";
    on_each_device([&](const Where& where) {
      Run run(text, where, {{"x", {2}, {8, -16}}});
      check_near(run["y"], {1, -2});
      check_near(run["dx"], {0.125, 0.125});
    });
  }

  TEST_CASE("gradients: a carry that is only compared passes none") {
    const std::string text = R"(graph "mask" {
  input c: f32[]
  input xs: f32[3]
  const zero: f32[] = {0}
  last = scan([c], [xs], [zero]) {body=graph {
    input c: f32[]
    input x: f32[]
    input zero: f32[]
    m = compare(x, c) {kind="lt"}
    n = where(m, x, zero)
    output "n" = n
  }}
  dx = grad(last, xs)
  output "last" = last
  output "dx" = dx
})";
    on_each_device([&](const Where& where) {
      Run run(text, where, {{"c", {}, {5}}, {"xs", {3}, {2, 1, -7}}});
      check_near(run["last"], {-7});
      check_near(run["dx"], {0, 0, 1});
    });
  }

  TEST_CASE("weights of functions: what they alone decide is made once, again when they are set") {
    // v is made of the weight w, and f of v inside of the functions. u has a layout of the device.
    const auto text = [](bool updated) {
      const std::string inputs = R"(
    input x: f32[2,64]
    input v: f32[64]
    input u: f32[64,64]
)";
      const std::string f = R"(
    e = unary(v) {kind="exp"}
    f = binary(v, e) {kind="mul"}
)";
      return R"(graph "weights" {
  input x: f32[2,64]
  input outer: bool[]
  input inner: bool[]
  weight w: f32[64]
  weight u: f32[64,64]
  v = unary(w) {kind="neg"}
  y = if(outer, [x, v, u, inner]) {then_branch=graph {)" +
             inputs + R"(    input inner: bool[]
    y = if(inner, [x, v, u]) {then_branch=graph {)" +
             inputs + f + R"(
      p = matmul(x, u)
      y = binary(p, f) {kind="add"}
      output "y" = y
    }, else_branch=graph {)" +
             inputs + R"(
      output "y" = x
    }}
    output "y" = y
  }, else_branch=graph {)" +
             inputs + "    input inner: bool[]\n" + f + R"(
    y = binary(x, f) {kind="add"}
    output "y" = y
  }}
  output "y" = y
)" + (updated ? "  update w = v\n" : "") +
             "}";
    };
    const Floats x = noise_of(1, 128);
    const auto expected = [&](const Floats& w, const Floats& u, bool outer, bool inner) {
      Floats y = x;
      for (size_t i = 0; i < 2; ++i)
        for (size_t j = 0; j < 64; ++j) {
          float& at = y[i * 64 + j];
          if (outer && !inner) continue;
          if (outer) {
            at = 0;
            for (size_t k = 0; k < 64; ++k) at += x[i * 64 + k] * u[k * 64 + j];
          }
          at += -w[j] * std::exp(-w[j]);
        }
      return y;
    };
    on_each_device([&](const Where& where) {
      for (const bool updated : {false, true}) {
        CAPTURE(updated);
        Store store(runtime());
        const Graph graph = Graph::parse(text(updated), "control");
        const Executable executable(
            runtime(), graph, store,
            ExecutableOptions{.device = where.device, .simplify = !where.loops_stay});
        Context context(executable);
        context.set("x", {2, 64}, x);
        for (uint64_t round = 0; round < 2; ++round) {
          Floats w = noise_of(2 + round, 64);
          const Floats u = noise_of(4 + round, 64 * 64);
          store.set(TENON_SPACE_WEIGHT, "w", {64}, w);
          store.set(TENON_SPACE_WEIGHT, "u", {64, 64}, u);
          for (const auto& [outer, inner] :
               {std::pair{true, true}, {false, true}, {true, false}, {true, true}}) {
            context.set("outer", outer);
            context.set("inner", inner);
            context.run();
            check_near(context.get<float>("y"), expected(w, u, outer, inner), 1e-4);
            if (updated)
              for (float& value : w) value = -value;
          }
        }
        const auto memory = nlohmann::json::parse(executable.report())["memory"][0];
        // v and f, which both functions share.
        if (!updated && !where.loops_stay && where.device != "adversary:0")
          CHECK(memory["derived_weights"].get<uint64_t>() >= 2 * 64 * sizeof(float));
      }
    });
  }

  TEST_CASE("weights of functions: parts of what is made of them; the same form outside") {
    const std::string inputs = "    input x: f32[64]\n    input w: f32[4,64]\n";
    const auto text = [&](const std::string& before, const std::string& behind) {
      return R"(graph "parts" {
  input x: f32[64]
  input c: bool[]
  weight w: f32[4,64]
)" + before + R"(
  a = if(c, [x, w]) {then_branch=graph {)" +
             inputs + R"(
    e = softmax(w) {axis=0}
    s = narrow(e) {start=[2,0], len=[1,64]}
    r = reshape(s) {shape=[64]}
    y = binary(x, r) {kind="add"}
    output "y" = y
  }, else_branch=graph {)" +
             inputs + R"(
    output "y" = x
  }}
)" + behind + "  output \"y\" = y\n}";
    };
    const std::string form = R"(
  e = softmax(w) {axis=0}
  s = narrow(e) {start=[1,0], len=[1,64]}
  r = reshape(s) {shape=[64]}
)";
    const Floats x = noise_of(1, 64), w = noise_of(2, 256);
    const auto share = [&](size_t row, size_t i) {
      float sum = 0;
      for (size_t k = 0; k < 4; ++k) sum += std::exp(w[k * 64 + i]);
      return std::exp(w[row * 64 + i]) / sum;
    };
    on_each_device([&](const Where& where) {
      for (const auto& [before, behind] :
           {std::pair{std::string(), std::string("  y = copy(a)\n")},
            {std::string(), form + "  y = binary(a, r) {kind=\"add\"}\n"},
            {form, std::string("  y = binary(a, r) {kind=\"add\"}\n")}}) {
        Store store(runtime());
        store.set(TENON_SPACE_WEIGHT, "w", {4, 64}, w);
        const Graph graph = Graph::parse(text(before, behind), "control");
        const Executable executable(
            runtime(), graph, store,
            ExecutableOptions{.device = where.device, .simplify = !where.loops_stay});
        Context context(executable);
        context.set("x", {64}, x);
        context.set("c", true);
        context.run();
        Floats expected = x;
        const bool twice = !before.empty() || behind.find("copy") == std::string::npos;
        for (size_t i = 0; i < 64; ++i) expected[i] += share(2, i) + (twice ? share(1, i) : 0);
        check_near(context.get<float>("y"), expected, 1e-5);
      }
    });
  }

  TEST_CASE("errors: a failure names the node, the function, the trip and the op") {
    const std::string text = R"(graph "look" {
  input table: f32[3]
  input at: i64[4]
  ys = scan([], [at], [table]) {body=graph {
    input at: i64[]
    input table: f32[3]
    y = gather(table, at) {axis=0} @"lookup"
    output "y" = y
  }} @"walk"
  output "ys" = ys
})";
    on_each_device([&](const Where& where) {
      Store store(runtime());
      const Executable executable(runtime(), Graph::parse(text), store,
                                  {.device = where.device, .simplify = !where.loops_stay});
      Context context(executable);
      context.set("table", {3}, Floats{1, 2, 3});
      context.set("at", {4}, std::vector<int64_t>{0, 2, 7, 1});
      try {
        context.run();
        FAIL_CHECK("not refused");
      } catch (const Error& e) {
        const std::string what = e.what();
        CAPTURE(what);
        CHECK(e.code() == TENON_INDEX_OUT_OF_RANGE);
        CHECK(what.find("scan 'walk', function body") != std::string::npos);
        CHECK(what.find("gather '") != std::string::npos);
        CHECK(what.find("lookup'") != std::string::npos);
        CHECK(e.place().node.ends_with("lookup"));
        CHECK(e.place().op == "gather");
        CHECK(e.place().device == where.device);
        if (where.device == "cpu:0" || !where.loops_stay)
          CHECK(what.find("trip 2") != std::string::npos);
      }
      context.set("at", {4}, std::vector<int64_t>{0, 2, 1, 1});
      context.run();
      check_near(context.get<float>("ys"), {1, 3, 2, 2});
    });
  }

  TEST_CASE(
      "errors: a condition belongs to the trip that it begins; a loop inside names no trip of "
      "another") {
    const auto message_of = [](const std::string& text) -> std::string {
      try {
        Run run(text, Where{"cpu:0", true}, {{"x", {}, {1}}});
      } catch (const Error& e) {
        return e.what();
      }
      return "not refused";
    };
    // The table of the condition has two entries.
    const std::string loop = R"((_, y) = while([n, x], [t]) {cond=graph {
    input n: i64[]
    input x: f32[]
    input t: bool[2]
    go = gather(t, n) @"ask"
    output "go" = go
  }, body=graph {
    input n: i64[]
    input x: f32[]
    input t: bool[2]
    const one: i64[] = {1}
    m = binary(n, one) {kind="add"}
    output "n" = m
    output "x" = x
  }})";
    const std::string inputs = "  const n: i64[] = {0}\n  const t: bool[2] = {1, 1}\n";
    const std::string flat = message_of("graph \"ask\" {\n  input x: f32[]\n" + inputs + "  " +
                                        loop + " @\"loop\"\n  output \"y\" = y\n}");
    CAPTURE(flat);
    CHECK(flat.find("while 'loop', function cond, trip 2: gather 'ask'") != std::string::npos);
    const std::string nested = message_of(
        "graph \"nest\" {\n  input x: f32[]\n  z = scan([x], [], []) {body=graph {\n  input x: "
        "f32[]\n" +
        inputs + "  " + loop + " @\"inner\"\n  output \"y\" = y\n  }, length=3} @\"outer\"\n" +
        "  output \"z\" = z\n}");
    CAPTURE(nested);
    CHECK(nested.find("while 'inner', function cond: gather 'ask'") != std::string::npos);
  }

  TEST_CASE("trace: a hosted region is a slice of its run") {
    for (const std::string& device : control_devices()) {
      CAPTURE(device);
      runtime().start_trace();
      Run run(scan_rnn("", "  output \"ys\" = ys\n"), Where{device, true}, rnn_inputs());
      const nlohmann::json trace = nlohmann::json::parse(runtime().stop_trace());
      std::vector<nlohmann::json> steps, regions;
      for (const nlohmann::json& e : trace.at("traceEvents")) {
        if (e.value("cat", "") == "region") regions.push_back(e);
        if (e.value("cat", "") == "step" && e.at("args").at("op") == "scan") steps.push_back(e);
      }
      const auto end_of = [](const nlohmann::json& e) {
        return e.at("ts").get<double>() + e.at("dur").get<double>();
      };
      CHECK(steps.size() == 2);  // of two runs
      for (const nlohmann::json& step : steps)
        CHECK(std::ranges::any_of(regions, [&](const nlohmann::json& region) {
          return region.at("args").at("run") == step.at("args").at("run") &&
                 region.at("ts") <= step.at("ts") && end_of(step) <= end_of(region) + 0.001;
        }));
    }
  }

  TEST_CASE("report: functions are listed behind the node that runs them") {
    Run run(scan_rnn("", "  output \"ys\" = ys\n"), Where{"cpu:0", true}, rnn_inputs());
    const std::string report = run.report();
    const size_t node = report.find("scan"), body = report.find("/body: ");
    REQUIRE(node != std::string::npos);
    REQUIRE(body != std::string::npos);
    CHECK(node < body);
  }
}
