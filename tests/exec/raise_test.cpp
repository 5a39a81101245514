// SPDX-License-Identifier: Apache-2.0
// Composites spelt out in simple ops: raised where that means the same, with the same values and
// gradients on ordinary data and on infinities; near-misses are left as they are.
#include <limits>
#include <nlohmann/json.hpp>

#include "base/number.hpp"
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// A graph under construction, in short words.
struct Build {
  Graph g{"spelt out"};
  TensorType type;
  std::vector<Value> inputs, wrt;
  explicit Build(TensorType t) : type(std::move(t)) {}

  Value input(std::vector<int64_t> dims) {
    wrt.push_back(fixed(std::move(dims)));
    return wrt.back();
  }
  Value fixed(std::vector<int64_t> dims) {  // no gradient is asked for
    inputs.push_back(g.input("x" + std::to_string(inputs.size()), {type.dtype, std::move(dims)}));
    return inputs.back();
  }
  Value number(double v) {
    return type.dtype == f64 ? g.scalar(v) : g.scalar(static_cast<float>(v));
  }
  Value binary(const char* kind, Value a, Value b) {
    return g.add(op::binary{.kind = kind, .a = a, .b = b});
  }
  Value binary(const char* kind, Value a, double b) { return binary(kind, a, number(b)); }
  Value unary(const char* kind, Value x) { return g.add(op::unary{.kind = kind, .x = x}); }
  Value reduce(const char* kind, Value x, std::vector<int64_t> axes = {-1}) {
    return g.add(op::reduce{.kind = kind, .axes = std::move(axes), .keepdims = true, .x = x});
  }
  Value mul(Value a, Value b) { return binary("mul", a, b); }
  Value mul(Value a, double b) { return binary("mul", a, b); }
  Value add(Value a, Value b) { return binary("add", a, b); }
  Value add(Value a, double b) { return binary("add", a, b); }
  Value sub(Value a, Value b) { return binary("sub", a, b); }
  Value div(Value a, Value b) { return binary("div", a, b); }

  Value exp_shifted(Value x, int64_t axis) {
    return unary("exp", sub(x, reduce("max", x, {axis})));
  }
  Value softmax(Value x, int64_t axis = -1) {
    const Value e = exp_shifted(x, axis);
    return div(e, reduce("sum", e, {axis}));
  }
  Value log_softmax(Value x) {
    const Value d = sub(x, reduce("max", x));
    return sub(d, unary("log", reduce("sum", unary("exp", d))));
  }
  Value rms(Value x, double eps) {
    return unary("rsqrt", add(reduce("mean", unary("square", x)), eps));
  }
};

using Maker = std::function<Value(Build&)>;
struct Case {
  const char* name;
  std::string op;  // that it becomes; empty: it stays as it is
  Maker make;
};

const Case kCases[] = {
    {"softmax", "softmax",
     [](Build& b) {
       return b.softmax(b.input({3, 5}));
     }},
    {"softmax over a leading axis", "softmax",
     [](Build& b) {
       return b.softmax(b.input({3, 5}), 0);
     }},
    {"softmax by a reciprocal", "softmax",
     [](Build& b) {
       const Value e = b.exp_shifted(b.input({3, 5}), -1);
       return b.mul(b.unary("reciprocal", b.reduce("sum", e)), e);
     }},
    {"softmax without the maximum", "",
     [](Build& b) {
       const Value e = b.unary("exp", b.input({3, 5}));
       return b.div(e, b.reduce("sum", e));
     }},
    {"softmax over one axis, shifted over another", "",
     [](Build& b) {
       const Value e = b.exp_shifted(b.input({3, 5}), 0);
       return b.div(e, b.reduce("sum", e, {1}));
     }},
    {"softmax whose exponentials leave", "",
     [](Build& b) {
       const Value e = b.exp_shifted(b.input({3, 5}), -1);
       b.g.output("e", e);
       return b.div(e, b.reduce("sum", e));
     }},
    {"log softmax", "softmax",
     [](Build& b) {
       return b.log_softmax(b.input({3, 5}));
     }},
    {"logarithm of e^x / Σ e^x", "",
     [](Build& b) {
       const Value x = b.input({3, 5});
       return b.sub(x, b.unary("log", b.reduce("sum", b.unary("exp", x))));
     }},
    {"gelu", "unary gelu",
     [](Build& b) {
       const Value x = b.input({4, 6});
       return b.mul(b.mul(x, 0.5), b.add(b.unary("erf", b.mul(x, std::sqrt(0.5))), 1));
     }},
    {"gelu, divided", "unary gelu",
     [](Build& b) {
       const Value x = b.input({4, 6});
       const Value t = b.add(b.unary("erf", b.binary("div", x, std::sqrt(2.0))), 1);
       return b.mul(x, b.mul(t, 0.5));
     }},
    {"gelu by erfc", "unary gelu",
     [](Build& b) {
       const Value x = b.input({4, 6});
       const Value u = b.binary("div", b.unary("neg", x), std::sqrt(2.0));
       return b.mul(b.mul(b.unary("erfc", u), x), 0.5);
     }},
    {"gelu with another factor inside", "",
     [](Build& b) {
       const Value x = b.input({4, 6});
       return b.mul(b.mul(x, 0.5), b.add(b.unary("erf", b.mul(x, 0.7)), 1));
     }},
    {"gelu_tanh", "unary gelu_tanh",
     [](Build& b) {
       const Value x = b.input({4, 6});
       const Value u = b.mul(b.add(x, b.mul(b.binary("pow", x, 3), 0.044715)),
                             std::sqrt(2 / 3.14159265358979323846));
       return b.mul(b.mul(x, 0.5), b.add(b.unary("tanh", u), 1));
     }},
    {"gelu_tanh, factored", "unary gelu_tanh",
     [](Build& b) {
       const Value x = b.input({4, 6});
       const Value inner = b.add(b.mul(b.mul(x, 0.044715), x), 1);
       const Value u = b.mul(b.mul(x, std::sqrt(2 / 3.14159265358979323846)), inner);
       return b.mul(b.mul(x, 0.5), b.add(b.unary("tanh", u), 1));
     }},
    {"gelu_tanh with a square for the cube", "",
     [](Build& b) {
       const Value x = b.input({4, 6});
       const Value u = b.mul(b.add(x, b.mul(b.unary("square", x), 0.044715)),
                             std::sqrt(2 / 3.14159265358979323846));
       return b.mul(b.mul(x, 0.5), b.add(b.unary("tanh", u), 1));
     }},
    {"silu", "unary silu",
     [](Build& b) {
       const Value x = b.input({4, 6});
       return b.mul(b.unary("sigmoid", x), x);
     }},
    {"silu from exponentials", "unary silu",
     [](Build& b) {
       const Value x = b.input({4, 6});
       return b.div(x, b.add(b.unary("exp", b.unary("neg", x)), 1));
     }},
    {"a gate of another value", "",
     [](Build& b) {
       const Value x = b.input({4, 6}), y = b.input({4, 6});
       return b.div(x, b.add(b.unary("exp", b.unary("neg", y)), 1));
     }},
    {"rms_norm", "rms_norm",
     [](Build& b) {
       const Value x = b.input({4, 6}), gamma = b.input({6});
       return b.mul(b.mul(x, b.rms(x, 1e-3)), gamma);
     }},
    {"rms_norm over two axes, by a root", "rms_norm",
     [](Build& b) {
       const Value x = b.input({3, 4, 2}), gamma = b.input({4, 2});
       const Value inside = b.add(b.reduce("mean", b.mul(x, x), {1, 2}), 0.5);
       return b.mul(gamma, b.mul(b.unary("reciprocal", b.unary("sqrt", inside)), x));
     }},
    {"rms_norm by a division, then scaled", "rms_norm",
     [](Build& b) {
       const Value x = b.input({4, 6}), gamma = b.input({6});
       const Value root = b.unary("sqrt", b.add(b.reduce("mean", b.mul(x, x)), 0.5));
       return b.mul(gamma, b.div(x, root));
     }},
    {"rms_norm of a leading axis", "",
     [](Build& b) {
       const Value x = b.input({4, 6}), gamma = b.input({6});
       const Value r = b.unary("rsqrt", b.add(b.reduce("mean", b.unary("square", x), {0}), 0.5));
       return b.mul(b.mul(x, r), gamma);
     }},
    {"rms_norm by the root of another value", "",
     [](Build& b) {
       const Value x = b.input({4, 6}), y = b.input({4, 6}), gamma = b.input({6});
       return b.mul(b.mul(x, b.rms(y, 1e-3)), gamma);
     }},
    {"rms_norm with a scale per row", "",
     [](Build& b) {
       const Value x = b.input({4, 6}), gamma = b.input({4, 1});
       return b.mul(b.mul(x, b.rms(x, 1e-3)), gamma);
     }},
    {"layer_norm", "layer_norm",
     [](Build& b) {
       const Value x = b.input({4, 6}), gamma = b.input({6}), beta = b.input({6});
       const Value c = b.sub(x, b.reduce("mean", x));
       return b.add(b.mul(b.mul(c, b.rms(c, 1e-3)), gamma), beta);
     }},
    {"layer_norm without parameters, by a division", "layer_norm",
     [](Build& b) {
       const Value x = b.input({4, 6});
       const Value c = b.sub(x, b.reduce("mean", x));
       return b.div(c, b.unary("sqrt", b.add(b.reduce("mean", b.mul(c, c)), 1e-3)));
     }},
    {"layer_norm whose centred values are read", "",
     [](Build& b) {
       const Value x = b.input({4, 6});
       const Value c = b.sub(x, b.reduce("mean", x));
       b.g.output("c", c);
       return b.div(c, b.unary("sqrt", b.add(b.reduce("mean", b.mul(c, c)), 1e-3)));
     }},
    {"layer_norm by the mean of squares", "",
     [](Build& b) {
       const Value x = b.input({4, 6});
       const Value mean = b.reduce("mean", x);
       const Value var = b.sub(b.reduce("mean", b.mul(x, x)), b.mul(mean, mean));
       return b.mul(b.sub(x, mean), b.unary("rsqrt", b.add(var, 1e-1)));
     }},
    {"layer_norm times its root again", "",
     [](Build& b) {
       const Value x = b.input({4, 6});
       const Value c = b.sub(x, b.reduce("mean", x));
       const Value r = b.rms(c, 1e-1);
       return b.mul(b.mul(c, r), r);
     }},
    {"layer_norm times its centred values again", "",
     [](Build& b) {
       const Value x = b.input({4, 6});
       const Value c = b.sub(x, b.reduce("mean", x));
       return b.mul(b.mul(c, c), b.rms(c, 1e-1));
     }},
    {"a norm times itself", "layer_norm",
     [](Build& b) {
       const Value n = b.g.add(op::layer_norm{.x = b.input({6})});
       return b.mul(n, n);
     }},
};

struct Outcome {
  std::map<std::string, std::vector<double>> values{};
  std::vector<std::string> ops{};  // with their kinds where they were raised
  bool raised = false;
};

// Runs y and the gradients of mean(y²) by the inputs. special: infinities and NaN among the data.
Outcome run_case(const Maker& make, bool fuse, bool gradient, bool special) {
  Build b({f64, {}});
  const Value y = make(b);
  b.g.output("y", y);
  std::vector<std::string> names = {"y"};
  if (gradient) {
    const Value loss =
        b.g.add(op::reduce{.kind = "mean", .x = b.g.add(op::unary{.kind = "square", .x = y})});
    const auto slopes = b.g.gradients(loss, b.wrt);
    for (size_t k = 0; k < slopes.size(); ++k) {
      names.push_back("d" + std::to_string(k));
      b.g.output(names.back(), slopes[k]);
    }
  }
  const Store store(runtime());
  const Executable executable(runtime(), b.g, store, {.device = "cpu:0", .fuse = fuse});
  Context context(executable);
  for (size_t k = 0; k < b.inputs.size(); ++k) {
    const TensorType t = b.g.type(b.inputs[k]);
    std::vector<double> data(static_cast<size_t>(t.elements()));
    for (size_t i = 0; i < data.size(); ++i) data[i] = 3 * noise(k, i);
    if (special && data.size() > 12) data[0] = -kInf, data[7] = kInf, data[12] = std::nan("");
    if (special)
      for (size_t i = data.size() - 3; i < data.size(); ++i) data[i] = -40;
    context.set("x" + std::to_string(k), t.dims, data);
  }
  context.run();
  Outcome out;
  for (const std::string& name : names) out.values[name] = context.get<double>(name);
  const auto report = nlohmann::json::parse(executable.report());
  for (const auto& node : report.at("nodes")) {
    out.ops.push_back(node.at("op"));
    out.raised |= node.at("note").get<std::string>().find("raised to ") == 0;
  }
  return out;
}

void check_same(const Outcome& plain, const Outcome& raised) {
  for (const auto& [name, expected] : plain.values) {
    CAPTURE(name);
    const std::vector<double>& given = raised.values.at(name);
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      if (std::isnan(expected[i]))
        CHECK(std::isnan(given[i]));
      else if (std::isinf(expected[i]))
        CHECK(given[i] == expected[i]);
      else
        CHECK(std::abs(given[i] - expected[i]) <= 1e-11 * (1 + std::abs(expected[i])));
    }
  }
}

bool has_op(const Outcome& o, const std::string& op) {
  return std::find(o.ops.begin(), o.ops.end(), op.substr(0, op.find(' '))) != o.ops.end();
}

// q·kᵀ scaled, masked as the caller likes, softmax, ·v. [2,3,4,5] against 6 keys.
Value attention(Build& b, const std::function<Value(Build&, Value)>& mask, bool composite = true) {
  const Value q = b.input({2, 3, 4, 5}), k = b.input({2, 3, 6, 5}), v = b.input({2, 3, 6, 7});
  const Value s = b.mul(b.g.add(op::matmul{.trans_b = true, .a = q, .b = k}), 0.3);
  const Value masked = mask(b, s);
  const Value p = composite ? Value(b.g.add(op::softmax{.x = masked})) : b.softmax(masked);
  return b.g.add(op::matmul{.a = p, .b = v});
}

struct Slopes {
  std::vector<double> dq, dk;
  bool fused = false;
};

// Gradients of a weighted sum of attention, spelt out. The data are floats in each dtype; `offset`
// is added to all keys.
Slopes attention_slopes(tenon_dtype dtype, bool fuse, int64_t queries, int64_t keys, int64_t dim,
                        double offset) {
  Build b({dtype, {}});
  const Value q = b.input({1, 2, queries, dim}), k = b.input({1, 2, keys, dim}),
              v = b.input({1, 2, keys, dim}), weights = b.fixed({1, 2, queries, dim});
  const Value p = b.softmax(b.g.add(op::matmul{.trans_b = true, .a = q, .b = k}));
  const Value y = b.g.add(op::matmul{.a = p, .b = v});
  const auto slopes = b.g.gradients(b.reduce("sum", b.mul(y, weights), {0, 1, 2, 3}), {q, k});
  b.g.output("dq", slopes[0]);
  b.g.output("dk", slopes[1]);
  const Executable executable(runtime(), b.g, Store(runtime()), {.device = "cpu:0", .fuse = fuse});
  Context context(executable);
  for (size_t i = 0; i < b.inputs.size(); ++i) {
    std::vector<float> data(static_cast<size_t>(b.g.type(b.inputs[i]).elements()));
    for (size_t e = 0; e < data.size(); ++e)
      data[e] = static_cast<float>(3 * noise(i, e) + (i == 1 ? offset : 0));
    const std::string name = "x" + std::to_string(i);
    const std::vector<int64_t> dims = b.g.type(b.inputs[i]).dims;
    if (dtype == f32)
      context.set(name, dims, data);
    else
      context.set(name, dims, std::vector<double>(data.begin(), data.end()));
  }
  context.run();
  const auto read = [&](const char* name) {
    if (dtype == f64) return context.get<double>(name);
    const auto values = context.get<float>(name);
    return std::vector<double>(values.begin(), values.end());
  };
  const bool fused = executable.report().find("attention_backward") != std::string::npos;
  return {read("dq"), read("dk"), fused};
}

}  // namespace

TEST_SUITE("exec/raise") {
  TEST_CASE("forms: raised or not as they mean the same or not, equal in values and gradients") {
    for (const Case& c : kCases) {
      CAPTURE(std::string(c.name));
      for (const bool gradient : {false, true})
        for (const bool special : {false, true}) {
          CAPTURE(gradient);
          CAPTURE(special);
          if (gradient && special) continue;  // a NaN spreads as each formula has it
          const Outcome plain = run_case(c.make, false, gradient, special);
          const Outcome raised = run_case(c.make, true, gradient, special);
          check_same(plain, raised);
          if (c.op.empty()) CHECK(!raised.raised);
          // An elementwise op may go on into a region with its gradient.
          const bool elementwise = c.op.starts_with("unary");
          if (!c.op.empty() && !(elementwise && gradient)) CHECK(has_op(raised, c.op));
          if (elementwise && !gradient) CHECK(raised.raised);
          CHECK(!plain.raised);
        }
    }
  }

  TEST_CASE("attention: with a scale, causal, bool and float masks, rows without a key") {
    using Mask = std::function<Value(Build&, Value)>;
    const auto minus_inf = [](Build& b) { return b.number(-kInf); };
    const Mask none = [](Build&, Value s) { return s; };
    const Mask causal = [&](Build& b, Value s) {
      const Value key = b.g.add(op::iota{.shape = {1, 6}, .axis = 1});
      const Value query = b.g.add(op::iota{.shape = {4, 1}, .axis = 0});
      const Value allowed = b.g.add(op::compare{.kind = "le", .a = key, .b = query});
      return b.g.add(op::where{.cond = allowed, .a = s, .b = minus_inf(b)});
    };
    // The first query of each head sees no key: NaN, as softmax has it.
    const Mask some = [&](Build& b, Value s) {
      const Value m = b.g.add(op::compare{.kind = "gt", .a = b.fixed({4, 6}), .b = b.number(-9)});
      return b.g.add(op::where{.cond = m, .a = s, .b = minus_inf(b)});
    };
    const Mask bias = [](Build& b, Value s) { return b.add(b.input({2, 1, 4, 6}), s); };
    const Mask low = [](Build& b, Value s) {
      const Value m = b.g.add(op::compare{.kind = "gt", .a = b.fixed({4, 6}), .b = b.number(0)});
      return b.g.add(op::where{.cond = m, .a = s, .b = b.number(-1e9)});
    };
    struct {
      const char* name;
      Mask mask;
      bool raised;
    } const cases[] = {{"none", none, true},
                       {"causal", causal, true},
                       {"bool", some, true},
                       {"float", bias, true},
                       {"a low number for -inf", low, false}};
    for (const auto& c : cases) {
      CAPTURE(std::string(c.name));
      for (const bool composite : {true, false})
        for (const bool special : {false, true})
          for (const bool gradient : {false, true}) {
            if (special && gradient) continue;
            CAPTURE(composite);
            CAPTURE(special);
            const Maker make = [&](Build& b) { return attention(b, c.mask, composite); };
            const Outcome raised = run_case(make, true, gradient, special);
            CHECK(has_op(raised, "attention") == c.raised);
            if (!special) check_same(run_case(make, false, gradient, special), raised);
          }
    }
    // A key mask that forbids all keys of two rows.
    const Maker forbidding = [&](Build& b) {
      return attention(b, [&](Build& bb, Value s) {
        const std::vector<double> limit = {-1, 0, 9, -1};
        const Value rows = bb.g.constant<double>({4, 1}, limit);
        const Value keys = bb.g.constant<double>({1, 6}, {0, 1, 2, 3, 4, 5});
        const Value m = bb.g.add(op::compare{.kind = "le", .a = keys, .b = rows});
        return bb.g.add(op::where{.cond = m, .a = s, .b = bb.number(-kInf)});
      });
    };
    const Outcome raised = run_case(forbidding, true, false, false);
    CHECK(has_op(raised, "attention"));
    check_same(run_case(forbidding, false, false, false), raised);
    CHECK(std::isnan(raised.values.at("y")[0]));
    CHECK(!std::isnan(raised.values.at("y")[7]));
  }

  TEST_CASE("attention: a triangle is causal only over queries and keys") {
    // Four batches, four heads, four queries, four keys: any two axes could hold it.
    const std::vector<uint8_t> triangle = {1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1};
    struct {
      const char* name;
      std::vector<int64_t> dims;
    } const masks[] = {{"queries, keys", {4, 4}},        {"queries, keys of rank 4", {1, 1, 4, 4}},
                       {"batches, keys", {4, 1, 1, 4}},  {"heads, keys", {4, 1, 4}},
                       {"batches, heads", {4, 4, 1, 1}}, {"batches, queries", {4, 1, 4, 1}},
                       {"heads, queries", {4, 4, 1}}};
    for (const auto& mask : masks) {
      CAPTURE(std::string(mask.name));
      const Maker make = [&](Build& b) {
        const Value q = b.input({4, 4, 4, 8}), k = b.input({4, 4, 4, 8}), v = b.input({4, 4, 4, 8});
        const Value cond = b.g.constant({boolean, mask.dims}, triangle.data(), triangle.size());
        const Value s = b.g.add(op::matmul{.trans_b = true, .a = q, .b = k});
        const Value masked = b.g.add(op::where{.cond = cond, .a = s, .b = b.number(-kInf)});
        return b.g.add(op::matmul{.a = b.softmax(masked), .b = v});
      };
      const Outcome plain = run_case(make, false, false, false);
      const Outcome raised = run_case(make, true, false, false);
      CHECK(has_op(raised, "attention"));
      // A mask that hides all keys of a row: more nodes give its NaN back.
      const bool hides_rows = mask.dims.back() == 1 || mask.dims == std::vector<int64_t>{4, 4, 1};
      CHECK((raised.ops.size() == 1) == !hides_rows);
      check_same(plain, raised);
    }
  }

  // As PyTorch exports it: the scale on both operands, a mask of 0 and a low number, rows before heads.
  TEST_CASE("attention: scaled operands, and rows before heads") {
    enum Change { none, low_mask, far_scale, shared_q, rows_stay, other_values };
    struct {
      const char* name;
      Change change;
      size_t nodes;  // with no gradient
      bool between_transposes;
    } const cases[] = {{"as exported", none, 2, false},
                       {"a mask with -inf", low_mask, 9, true},
                       {"a scale far from 1", far_scale, 7, true},
                       {"a scaled operand that others read", shared_q, 7, true},
                       {"a result that stays as it is", rows_stay, 5, true},
                       {"values that are transposed otherwise", other_values, 6, true}};
    const std::vector<int64_t> heads_last{0, 2, 1, 3};
    for (const auto& c : cases)
      for (const bool gradient : {false, true}) {
        CAPTURE(std::string(c.name));
        CAPTURE(gradient);
        const Maker make = [&](Build& b) {
          const auto turned = [&](Value x, const std::vector<int64_t>& perm) {
            return Value(b.g.add(op::transpose{.perm = perm, .x = x}));
          };
          const Value q = b.input({2, 4, 3, 5}), k = b.input({2, 6, 3, 5});
          const Value v = b.input(c.change == other_values ? std::vector<int64_t>{2, 3, 7, 6}
                                                           : std::vector<int64_t>{2, 6, 3, 7});
          const Value rows = b.mul(turned(q, heads_last), c.change == far_scale ? 1e-4 : 0.7);
          const Value keys = b.mul(turned(k, {0, 2, 3, 1}), 0.6);
          if (c.change == shared_q) b.g.output("rows", rows);
          const Value cond =
              b.g.add(op::compare{.kind = "gt", .a = b.fixed({2, 1, 1, 6}), .b = b.number(0)});
          const Value mask = b.g.add(op::where{
              .cond = cond, .a = b.number(0), .b = b.number(c.change == low_mask ? -kInf : -1e4)});
          const Value s = b.add(b.g.add(op::matmul{.a = rows, .b = keys}), mask);
          const Value values =
              turned(v, c.change == other_values ? std::vector<int64_t>{0, 1, 3, 2} : heads_last);
          const Value y = b.g.add(op::matmul{.a = b.softmax(s), .b = values});
          return c.change == rows_stay ? y : turned(y, heads_last);
        };
        const Outcome raised = run_case(make, true, gradient, false);
        check_same(run_case(make, false, gradient, false), raised);
        CHECK(has_op(raised, "attention"));
        if (gradient) continue;
        CHECK(raised.ops.size() == c.nodes);
        CHECK(has_op(raised, "transpose") == c.between_transposes);
      }
  }

  // In some heads a query sees no key: NaN in its row and in all slopes of what the row reads.
  TEST_CASE("attention: rows without a key have the slopes of the parts") {
    const auto allowed = [](Build& b) {
      std::vector<double> limit(2 * 3 * 4, 9);
      limit[2] = limit[13] = -1;  // a query each of the first head and the fourth
      const Value rows = b.g.constant<double>({2, 3, 4, 1}, limit);
      const Value keys = b.g.constant<double>({1, 6}, {0, 1, 2, 3, 4, 5});
      return b.g.add(op::compare{.kind = "le", .a = keys, .b = rows});
    };
    const auto select = [](Build& b, Value cond, Value a) {
      return b.g.add(op::where{.cond = cond, .a = a, .b = b.number(-kInf)});
    };
    using Mask = std::function<Value(Build&, Value)>;
    const Mask flags = [&](Build& b, Value s) { return select(b, allowed(b), s); };
    const Mask numbers = [&](Build& b, Value s) {
      return b.add(s, select(b, allowed(b), b.input({2, 3, 4, 6})));
    };
    const Mask shared_numbers = [&](Build& b, Value s) {  // the first query of each head
      const Value keys = b.g.constant<double>({4, 1}, {0, 1, 1, 1});
      const Value seen = b.g.add(op::compare{.kind = "gt", .a = keys, .b = b.number(0)});
      return b.add(select(b, seen, b.input({4, 6})), s);
    };
    const Mask table = [&](Build& b, Value s) {
      std::vector<uint8_t> bits(4 * 6, 1);
      std::fill_n(bits.begin() + 6, 6, uint8_t{0});
      return select(b, b.g.constant({boolean, {4, 6}}, bits.data(), bits.size()), s);
    };
    const Mask all_see = [&](Build& b, Value s) {  // none is hidden, and that is known
      std::vector<double> bias(4 * 6, -kInf);
      for (size_t i = 0; i < 4; ++i) bias[6 * i + i] = 0.5;
      return b.add(s, b.g.constant<double>({4, 6}, bias));
    };
    struct {
      const char* name;
      Mask mask;
      bool hides;
    } const cases[] = {{"flags", flags, true},
                       {"numbers", numbers, true},
                       {"shared numbers", shared_numbers, true},
                       {"a table", table, true},
                       {"a table that hides no row", all_see, false}};
    for (const auto& c : cases)
      for (const bool gradient : {false, true}) {
        CAPTURE(std::string(c.name));
        CAPTURE(gradient);
        const Maker make = [&](Build& b) { return attention(b, c.mask); };
        const Outcome raised = run_case(make, true, gradient, false);
        CHECK(has_op(raised, "attention"));
        check_same(run_case(make, false, gradient, false), raised);
        const auto has_nan = [&](const char* name) {
          return std::ranges::any_of(raised.values.at(name),
                                     [](double x) { return std::isnan(x); });
        };
        CHECK(has_nan("y") == c.hides);
        if (gradient) CHECK(has_nan("d2") == c.hides);
        if (!gradient && !c.hides) CHECK(raised.ops.size() == 1);
      }
  }

  TEST_CASE("cross entropy: labels picked from a log softmax, negative ones from the end") {
    const auto make = [](Graph& g) {
      const Value x = g.input("x", {f32, {3, 4}}), labels = g.input("labels", {i64, {3}});
      const Value at = g.add(op::reshape{.shape = {3, 1}, .x = labels});
      const Value log = g.add(op::softmax{.log = true, .x = x});
      const Value picked = g.add(op::gather_elements{.axis = 1, .data = log, .indices = at});
      const Value loss =
          g.add(op::unary{.kind = "neg", .x = g.add(op::reduce{.kind = "mean", .x = picked})});
      g.output("loss", loss);
      g.output("dx", g.gradients(loss, {x})[0]);
    };
    Graph g("picked");
    make(g);
    const Store store(runtime());
    const Executable plain(runtime(), g, store, {.device = "cpu:0", .fuse = false});
    const Executable raised(runtime(), g, store, {.device = "cpu:0"});
    CHECK(raised.report().find("\"cross_entropy\"") != std::string::npos);
    CHECK(plain.report().find("\"cross_entropy\"") == std::string::npos);
    Context a(plain), b(raised);
    const auto set = [](Context& c, const std::vector<int64_t>& labels) {
      c.set("x", {3, 4}, std::vector<float>{1, -2, 3, 0, 5, 4, -1, 2, 0, 0, 7, 1});
      c.set("labels", labels);
    };
    for (const auto& labels : {std::vector<int64_t>{0, 3, 2}, std::vector<int64_t>{-1, -4, 1}}) {
      set(a, labels), set(b, labels);
      a.run(), b.run();
      CHECK(furthest(b.get<float>("loss"), a.get<float>("loss")) < 1e-6);
      const auto da = a.get<float>("dx"), db = b.get<float>("dx");
      for (size_t i = 0; i < da.size(); ++i) CHECK(std::abs(da[i] - db[i]) < 1e-6f);
    }
    for (const auto& labels :
         {std::vector<int64_t>{0, 4, 2}, std::vector<int64_t>{0, -5, 2},
          std::vector<int64_t>{0, -100, 2}, std::vector<int64_t>{INT64_MIN, 0, 0}})
      for (Context* c : {&a, &b}) {
        set(*c, labels);
        tenon_code code = TENON_OK;
        error_of([&] { c->run(); }, &code);
        CHECK(code == TENON_INDEX_OUT_OF_RANGE);
      }
  }

  TEST_CASE("cross entropy: infinities and NaN in a row") {
    Graph g("picked");
    const Value x = g.input("x", {f64, {6, 3}}), labels = g.input("labels", {i32, {6, 1}});
    const Value log = g.add(op::softmax{.log = true, .x = x});
    g.output("y", g.add(op::gather_elements{.axis = 1, .data = log, .indices = labels}));
    const Store store(runtime());
    std::map<bool, std::vector<double>> y;
    for (const bool fuse : {false, true}) {
      const Executable executable(runtime(), g, store, {.device = "cpu:0", .fuse = fuse});
      CHECK((executable.report().find("\"cross_entropy\"") != std::string::npos) == fuse);
      Context context(executable);
      context.set("x", {6, 3},
                  std::vector<double>{kInf, 0, 1, kInf, 2, kInf, std::nan(""), 0, 1,  //
                                      -kInf, -kInf, 2, -kInf, -kInf, -kInf, 1, 2, -kInf});
      context.set("labels", {6, 1}, std::vector<int32_t>{1, 0, 1, 0, 2, 0});
      context.run();
      y[fuse] = context.get<double>("y");
    }
    CHECK(std::isnan(y[false][0]));
    CHECK(y[false][3] == -kInf);
    check_same({.values = {{"y", y[false]}}}, {.values = {{"y", y[true]}}});
  }

  TEST_CASE("attention: a row with one key has no slope by its query and key") {
    for (const auto& [queries, dim] : {std::pair(1, 3), {3, 8}, {7, 5}, {40, 64}, {130, 300}}) {
      CAPTURE(queries);
      CAPTURE(dim);
      const Slopes s = attention_slopes(f32, true, queries, 1, dim, 0);
      CHECK(s.fused);
      for (const double d : s.dq) REQUIRE(d == 0);
      for (const double d : s.dk) REQUIRE(d == 0);
    }
  }

  // The slopes of a row's scores add up to 0, so that a part that all keys share has no effect. It
  // has one if the gradient's weights are not exactly those that made the output.
  TEST_CASE("attention: keys that share a large part") {
    for (const int queries : {1, 2, 3, 4, 12, 40}) {
      CAPTURE(queries);
      const Slopes expected = attention_slopes(f64, false, queries, 8, 16, 100),
                   given = attention_slopes(f32, true, queries, 8, 16, 100);
      CHECK(!expected.fused);
      CHECK(given.fused);
      for (size_t i = 0; i < given.dq.size(); ++i)
        CHECK(std::abs(given.dq[i] - expected.dq[i]) < 5e-3);
    }
  }

  TEST_CASE("numbers: constants are the formula's, rounded to their dtype once") {
    // Each spelling has one number that the formula rounds; `off` units are added to it.
    enum class Spelt { root, over_root, erfc, halved, outer, over_outer, inner, over_inner };
    const auto y_of = [](Build& b, Spelt spelt, int off) {
      const Value x = b.input({4});
      const auto number = [&](double v, int units) {
        uint64_t bits = 0;
        CHECK(core::store_number(b.type.dtype, &bits, v));
        bits += static_cast<uint64_t>(static_cast<int64_t>(units));  // little-endian
        return b.g.constant({b.type.dtype, {}}, &bits, tenon_dtype_bits(b.type.dtype) / 8);
      };
      const auto scaled = [&](Value v, double factor, bool over, int units) {
        return over ? b.div(v, number(1 / factor, units)) : b.mul(v, number(factor, units));
      };
      const auto half = [&](Value t) { return b.mul(b.mul(x, number(0.5, 0)), t); };
      const auto plus_one = [&](Value v) { return b.add(v, number(1, 0)); };
      const double root = std::sqrt(0.5), outer = std::sqrt(2 / std::acos(-1.0)), inner = 0.044715;
      if (spelt == Spelt::root || spelt == Spelt::over_root)
        return half(plus_one(b.unary("erf", scaled(x, root, spelt == Spelt::over_root, off))));
      if (spelt == Spelt::erfc) return half(b.unary("erfc", scaled(x, -root, false, off)));
      if (spelt == Spelt::halved)
        return half(
            plus_one(b.unary("erf", scaled(scaled(x, 0.5, false, 0), 2 * root, false, off))));
      const bool of_inner = spelt == Spelt::inner || spelt == Spelt::over_inner;
      const Value cube = b.mul(b.mul(x, x), x);
      const Value sum =
          b.add(x, scaled(cube, inner, spelt == Spelt::over_inner, of_inner ? off : 0));
      const Value u = scaled(sum, outer, spelt == Spelt::over_outer, of_inner ? 0 : off);
      return half(plus_one(b.unary("tanh", u)));
    };
    for (const tenon_dtype dtype : {f32, bf16, f16})
      for (const Spelt spelt : {Spelt::root, Spelt::over_root, Spelt::erfc, Spelt::halved,
                                Spelt::outer, Spelt::over_outer, Spelt::inner, Spelt::over_inner})
        for (const int off : {-1, 0, 1}) {
          CAPTURE(dtype);
          CAPTURE(spelt);
          CAPTURE(off);
          Build b({dtype, {}});
          b.g.output("y", y_of(b, spelt, off));
          const Store store(runtime());
          const std::string report =
              Executable(runtime(), b.g, store, {.device = "cpu:0"}).report();
          CHECK((report.find("raised to gelu") != std::string::npos) == (off == 0));
        }
  }

  TEST_CASE("numbers: what is 1, 2, 3 or 0.5 in a formula must be just that") {
    struct {
      tenon_dtype dtype;
      uint16_t half, one, two, three;
    } const dtypes[] = {{bf16, 0x3F00, 0x3F80, 0x4000, 0x4040},
                        {f16, 0x3800, 0x3C00, 0x4000, 0x4200}};
    enum class Near { one, two, three, half };
    for (const auto& d : dtypes)
      for (const int off : {-1, 0, 1})
        for (const Near near : {Near::one, Near::two, Near::three, Near::half}) {
          CAPTURE(d.dtype);
          CAPTURE(off);
          CAPTURE(near);
          Graph g("numbers");
          const Value x = g.input("x", {d.dtype, {4, 6}}), gamma = g.input("gamma", {d.dtype, {6}});
          const auto number = [&](Near which) {
            const uint16_t exact = which == Near::one     ? d.one
                                   : which == Near::two   ? d.two
                                   : which == Near::three ? d.three
                                                          : d.half;
            const auto bits = static_cast<uint16_t>(exact + (which == near ? off : 0));
            return g.constant({d.dtype, {}}, &bits, 2);
          };
          const auto binary = [&](const char* kind, Value a, Value b) {
            return g.add(op::binary{.kind = kind, .a = a, .b = b});
          };
          const auto unary = [&](const char* kind, Value a) {
            return g.add(op::unary{.kind = kind, .x = a});
          };
          const auto half_number = [&](double v) {
            const uint16_t bits = d.dtype == bf16 ? BF16(v).bits : F16(v).bits;
            return g.constant({d.dtype, {}}, &bits, 2);
          };
          if (near == Near::one) {
            const Value e = unary("exp", unary("neg", x));
            g.output("y", binary("div", number(Near::one), binary("add", e, half_number(1))));
          } else if (near == Near::two) {
            const Value square = binary("pow", x, number(Near::two));
            const Value mean =
                g.add(op::reduce{.kind = "mean", .axes = {1}, .keepdims = true, .x = square});
            const Value r = unary("rsqrt", binary("add", mean, half_number(0.1)));
            g.output("y", binary("mul", binary("mul", x, r), gamma));
          } else {
            const Value cube = binary("pow", x, number(Near::three));
            const Value sum = binary("add", x, binary("mul", cube, half_number(0.044715)));
            const Value u = binary("mul", sum, half_number(std::sqrt(2 / 3.14159265358979)));
            const Value t = binary("add", unary("tanh", u), half_number(1));
            g.output("y", binary("mul", binary("mul", x, number(Near::half)), t));
          }
          const Store store(runtime());
          const std::string report = Executable(runtime(), g, store, {.device = "cpu:0"}).report();
          CHECK((report.find("raised to ") != std::string::npos) == (off == 0));
        }
  }

  TEST_CASE("notes: a raised node says of what, and NO_FUSE raises nothing") {
    Build b({f32, {}});
    b.g.output("y", b.softmax(b.input({3, 5})));
    const Store store(runtime());
    const std::string raised = Executable(runtime(), b.g, store, {.device = "cpu:0"}).report();
    CHECK(
        says(raised,
             {"raised to softmax: reduce max + binary sub + unary exp + reduce sum + binary div"}));
    const Executable plain(runtime(), b.g, store, {.device = "cpu:0", .fuse = false});
    CHECK(plain.report().find("raised") == std::string::npos);
  }
}
