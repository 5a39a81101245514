// SPDX-License-Identifier: Apache-2.0
// Random graphs of what fusion looks for: a recipe of a few numbers, and the graph of a recipe.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "random_run.hpp"

namespace tenon::test {

enum class Make : uint8_t {
  product,
  siblings,
  bias,
  add,
  sub,
  mul,
  unary,
  rms_norm,
  layer_norm,
  softmax,
  centre,
  select,
  scaled,
  fold
};
constexpr const char* kSmooth[] = {"silu",    "gelu", "gelu_tanh", "tanh",
                                   "sigmoid", "neg",  "softplus"};
constexpr const char* kKinked[] = {"relu", "abs", "leaky_relu", "hard_swish"};
// What fusion looks for comes more often.
constexpr Make kMakes[] = {
    Make::product,    Make::product, Make::product, Make::siblings, Make::siblings, Make::bias,
    Make::bias,       Make::add,     Make::add,     Make::add,      Make::mul,      Make::mul,
    Make::unary,      Make::unary,   Make::unary,   Make::sub,      Make::rms_norm, Make::rms_norm,
    Make::layer_norm, Make::softmax, Make::centre,  Make::centre,   Make::select,   Make::scaled,
    Make::scaled,     Make::fold};
inline constexpr int64_t kWeights = 3;
constexpr const char* kWhole[] = {"square", "relu", "neg", "abs",
                                  "sign"};  // unsigned: the first two

// Values are numbered: 0 and 1 are inputs, step k makes value k + 2; all are [rows, cols]. Operands
// may be any earlier value, so that values have several readers; `leave` makes one an output.
// rows 0: all are [cols], and a value may be the gamma of a norm.
struct Step {
  Make make;
  uint32_t a, b;
  uint32_t pick;  // of a weight, of a unary kind
  bool flag;      // transposed weight, norm with its optional operands and outputs
  bool leave;
};
struct Recipe {
  int64_t rows, cols;
  tenon_dtype dtype;
  bool gradient;  // of the last value's mean, by inputs, weights and one value in between
  uint32_t by;
  std::vector<Step> steps;
};

inline Recipe random_recipe(uint64_t seed, const std::vector<tenon_dtype>& dtypes) {
  std::mt19937_64 rng(seed);
  const auto below = [&](uint64_t n) { return static_cast<uint32_t>(rng() % n); };
  constexpr int64_t kSizes[] = {1, 2, 3, 5, 8, 16, 17, 33};
  const int64_t rows = below(6) ? kSizes[below(8)] : 0;
  const uint32_t wide = below(8);
  const tenon_dtype dtype = dtypes[below(dtypes.size())];
  // A norm of one column is zero, of two it is their order, but for what rounding leaves; and has
  // slopes of that.
  const int64_t cols = is_half(dtype) && wide < 2 ? 3 : kSizes[wide];
  const bool gradient = below(2) == 0;
  Recipe r{rows, cols, dtype, gradient && !is_integer(dtype), 0, {}};
  const uint32_t count = 2 + below(12);
  for (uint32_t k = 0; k < count; ++k) {
    // Mostly on the newest value, so that chains grow.
    Make make = kMakes[below(std::size(kMakes))];
    // Slopes of three products at once sink below what the oracle of halves can tell from rounding.
    if (make == Make::siblings && is_half(dtype)) make = Make::product;
    const uint32_t newest = k + 1, a = below(5) ? newest : below(k + 2), b = below(k + 2);
    const uint32_t pick = below(1000);
    const bool flag = below(2) == 0, leave = below(8) == 0;
    r.steps.push_back({make, a, b, pick, flag, leave});
  }
  r.by = below(count + 2);
  return r;
}

// The graph of a recipe. With a nudge each step's result is moved by up to so much of itself, each
// by another part of it.
class Built {
 public:
  explicit Built(const Recipe& recipe, double nudge = 0)
      : type{recipe.dtype, recipe.rows ? std::vector<int64_t>{recipe.rows, recipe.cols}
                                       : std::vector<int64_t>{recipe.cols}},
        r(recipe) {
    for (const char* name : {"x0", "x1"}) {
      values.push_back(g.input(name, type));
      inputs.push_back({name, type, {}});
    }
    std::vector<Value> wrt = values;
    for (const Step& s : r.steps) {
      values.push_back(made(s));
      if (nudge != 0)
        values.back() =
            binary("mul", values.back(), g.scalar(1 + nudge * noise(kNudges, values.size())));
      if (s.leave) leave("v" + std::to_string(values.size() - 1), values.back());
    }
    leave("last", values.back());
    if (!r.gradient) return;
    const Value loss = g.add(
        op::reduce{.kind = "mean", .x = g.add(op::unary{.kind = "square", .x = values.back()})});
    if (r.by >= 2) wrt.push_back(values[r.by]);
    for (const auto& [name, weight] : weights) wrt.push_back(weight);
    const std::vector<Value> slopes = g.gradients(loss, wrt);
    for (size_t k = 0; k < slopes.size(); ++k) leave("d" + std::to_string(k), slopes[k]);
  }

  const TensorType type;
  Graph g{"random"};
  std::vector<std::string> outputs;
  std::map<std::string, Value> weights;

  // The weights by name, then the inputs; whole numbers are small.
  std::vector<Feed> feeds() const {
    std::vector<Feed> all;
    for (const auto& [name, weight] : weights) all.push_back({name, g.type(weight), {}, true});
    all.insert(all.end(), inputs.begin(), inputs.end());
    for (size_t k = 0; k < all.size(); ++k)
      all[k].value = [key = k + 1, whole = is_integer(type.dtype)](size_t i) {
        const double v = noise(key, i);
        return whole ? std::floor(v * 9) : v;
      };
    return all;
  }

 private:
  static constexpr uint64_t kNudges = 2000;  // the key of their noise

  void leave(const std::string& name, Value v) {
    g.output(name, v);
    outputs.push_back(name);
  }
  Value weight(const std::string& kind, uint32_t pick, std::vector<int64_t> dims) {
    const std::string name = kind + std::to_string(pick % kWeights);
    const auto [at, fresh] = weights.try_emplace(name);
    if (fresh) at->second = g.weight(name, {type.dtype, std::move(dims)});
    return at->second;
  }
  Value binary(const char* kind, Value a, Value b) {
    return g.add(op::binary{.kind = kind, .a = a, .b = b});
  }

  // Of integers, which wrap: whatever order fusion computes in, every bit is the same.
  Value made_whole(const Step& s) {
    const Value a = values[s.a], b = values[s.b];
    const auto folded = [&](const char* kind, Value x, int64_t axis) {
      return g.add(op::reduce{.kind = kind, .axes = {axis}, .keepdims = true, .x = x});
    };
    switch (s.make) {
      case Make::product:
      case Make::siblings:
      case Make::rms_norm:
        return binary(s.flag ? "max" : "min", a, b);
      case Make::unary:
      case Make::softmax:
      case Make::layer_norm:
        return g.add(op::unary{.kind = kWhole[s.pick % (type.dtype >= u8 ? 2 : 5)], .x = a});
      case Make::centre:
        return binary("sub", a, folded("max", b, -1));
      case Make::fold:
        return binary("mul", a,
                      folded(s.flag ? "sum" : "min", binary("sub", a, b), s.pick % 3 ? -1 : 0));
      default:
        return made_float(s);
    }
  }

  Value made(const Step& s) { return is_integer(type.dtype) ? made_whole(s) : made_float(s); }

  Value made_float(const Step& s) {
    const Value a = values[s.a], b = values[s.b];
    const auto gamma = [&] {
      return r.rows == 0 && s.flag ? b : weight("gamma", s.pick, {r.cols});
    };
    const auto vector = [&](const char* kind) { return weight(kind, s.pick, {r.cols}); };
    switch (s.make) {
      case Make::product:
        return g.add(op::matmul{.trans_b = s.flag,
                                .alpha = s.pick % 2 ? 1.0 : 0.5,
                                .a = a,
                                .b = weight("w", s.pick, {r.cols, r.cols})});
      case Make::siblings: {
        // Products of one value with two weights of one size and one of another.
        const auto times = [&](const std::string& kind, uint32_t pick, int64_t cols) {
          return g.add(op::matmul{.trans_b = s.flag,
                                  .a = a,
                                  .b = weight(kind, pick,
                                              s.flag ? std::vector<int64_t>{cols, r.cols}
                                                     : std::vector<int64_t>{r.cols, cols})});
        };
        const Value one = times("w", s.pick, r.cols), two = times("w", s.pick + 1, r.cols);
        const Value narrow = times(s.flag ? "narrow_t" : "narrow", s.pick, 3);
        return binary(
            "mul", binary("mul", one, two),
            g.add(op::reduce{.kind = "mean", .axes = {-1}, .keepdims = true, .x = narrow}));
      }
      case Make::bias:
        return binary("add", a, vector("bias"));
      case Make::add:
        return binary("add", a, b);
      case Make::sub:
        return binary("sub", a, b);
      case Make::mul:
        return binary("mul", a, b);
      case Make::unary: {
        // A gradient jumps at a kink, where rounding decides on the side.
        const bool kinked = !r.gradient && s.flag;
        return g.add(op::unary{.kind = kinked ? kKinked[s.pick % std::size(kKinked)]
                                              : kSmooth[s.pick % std::size(kSmooth)],
                               .x = a});
      }
      case Make::rms_norm:
        return g.add(op::rms_norm{.eps = 1e-2, .x = a, .gamma = gamma()});
      case Make::layer_norm:
        return g.add(op::layer_norm{.eps = 1e-2,
                                    .x = a,
                                    .gamma = s.flag ? vector("gamma") : Value{},
                                    .beta = s.flag ? vector("bias") : Value{}});
      case Make::softmax:
        return g.add(op::softmax{.axis = -1, .x = a});
      case Make::centre:
        return binary("sub", a,
                      g.add(op::reduce{.kind = "mean", .axes = {-1}, .keepdims = true, .x = b}));
      case Make::select: {
        // A condition with two readers; continuous, and smooth where a gradient is asked for.
        const Value cond = r.gradient ? g.add(op::unary{.kind = "is_nan", .x = a})
                                      : g.add(op::compare{.kind = "lt", .a = a, .b = b});
        return binary("sub", g.add(op::where{.cond = cond, .a = b, .b = a}),
                      g.add(op::where{.cond = cond, .a = a, .b = b}));
      }
      case Make::scaled: {
        const Value whole = g.scalar(int32_t{2}),
                    exact = g.add(op::cast{.to = type.dtype, .x = whole});
        return binary(s.flag ? "mul" : "div", binary("sub", a, exact), exact);
      }
      case Make::fold: {
        const Value square = g.add(op::unary{.kind = "square", .x = binary("sub", a, b)});
        return binary(
            "mul", a,
            g.add(op::unary{.kind = "sigmoid",
                            .x = g.add(op::reduce{.kind = s.flag || r.gradient ? "mean" : "max",
                                                  .axes = {s.pick % 3 ? -1 : 0},
                                                  .keepdims = true,
                                                  .x = square})}));
      }
    }
    throw Error(TENON_INTERNAL, "no such step");
  }

  const Recipe& r;
  std::vector<Value> values;
  std::vector<Feed> inputs;
};

}  // namespace tenon::test
