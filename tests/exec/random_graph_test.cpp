// SPDX-License-Identifier: Apache-2.0
// Random graphs, with and without fusion, must give the same. A failing graph is shrunk and printed
// with its seed; TENON_RANDOM_GRAPHS sets how many are tried, TENON_RANDOM_SEED the first seed.
#include <cstdlib>
#include <map>
#include <random>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

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
constexpr int64_t kWeights = 3;

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
  bool wide;      // f64
  bool gradient;  // of the last value's mean, by inputs, weights and one value in between
  uint32_t by;
  std::vector<Step> steps;
};

Recipe random_recipe(uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto below = [&](uint64_t n) { return static_cast<uint32_t>(rng() % n); };
  constexpr int64_t kSizes[] = {1, 2, 3, 5, 8, 16, 17, 33};
  const int64_t rows = below(6) ? kSizes[below(8)] : 0;
  Recipe r{rows, kSizes[below(8)], below(2) == 0, below(2) == 0, 0, {}};
  const uint32_t count = 2 + below(12);
  for (uint32_t k = 0; k < count; ++k) {
    // Mostly on the newest value, so that chains grow.
    const Make make = kMakes[below(std::size(kMakes))];
    const uint32_t newest = k + 1, a = below(5) ? newest : below(k + 2), b = below(k + 2);
    const uint32_t pick = below(1000);
    const bool flag = below(2) == 0, leave = below(8) == 0;
    r.steps.push_back({make, a, b, pick, flag, leave});
  }
  r.by = below(count + 2);
  return r;
}

// The graph of a recipe.
class Built {
 public:
  explicit Built(const Recipe& recipe)
      : type{recipe.wide ? f64 : f32, recipe.rows ? std::vector<int64_t>{recipe.rows, recipe.cols}
                                                  : std::vector<int64_t>{recipe.cols}},
        r(recipe) {
    values = {g.input("x0", type), g.input("x1", type)};
    std::vector<Value> wrt = values;
    for (const Step& s : r.steps) {
      values.push_back(made(s));
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

 private:
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

  Value made(const Step& s) {
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
};

using Results = std::map<std::string, std::vector<double>>;

// What fusion made of a graph.
struct Joined {
  bool any = false, products = false;
};

template <class T>
Results run_as(const Built& built, bool fuse, Joined* joined) {
  uint64_t key = 0;
  const auto fill = [&](const TensorType& t) {
    std::vector<T> data(static_cast<size_t>(t.elements()));
    ++key;
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<T>(noise(key, i));
    return data;
  };
  Store store(runtime());
  for (const auto& [name, weight] : built.weights) {
    const TensorType t = built.g.type(weight);
    store.set(TENON_SPACE_WEIGHT, name, t.dims, fill(t));
  }
  const Executable executable(runtime(), built.g, store, {.device = "cpu:0", .fuse = fuse});
  if (joined) {
    const std::string report = executable.report();
    joined->any = report.find("joined: ") != std::string::npos;
    joined->products = report.find("\"op\":\"batch_linear\"") != std::string::npos;
  }
  Context context(executable);
  for (const char* name : {"x0", "x1"}) context.set(name, built.type.dims, fill(built.type));
  context.run();
  Results results;
  for (const std::string& name : built.outputs) {
    const std::vector<T> values = context.get<T>(name);
    results[name].assign(values.begin(), values.end());
  }
  return results;
}

// What differs, or nothing.
std::string difference(const Recipe& r, Joined* joined = nullptr) {
  const Built built(r);
  const auto run = [&](bool fuse) {
    Joined* const out = fuse ? joined : nullptr;
    return r.wide ? run_as<double>(built, fuse, out) : run_as<float>(built, fuse, out);
  };
  Results plain, fused;
  try {
    plain = run(false);
    fused = run(true);
  } catch (const std::exception& e) {
    return e.what();
  }
  for (const auto& [name, expected] : plain) {
    const std::vector<double>& given = fused.at(name);
    double most = 1;
    for (const double v : expected) most = std::max(most, std::abs(v));
    const double allowed = (r.wide ? 1e-9 : 2e-3) * most;
    for (size_t i = 0; i < expected.size(); ++i)
      if (std::isfinite(expected[i]) ? !(std::abs(given[i] - expected[i]) <= allowed)
                                     : std::isfinite(given[i]))
        return name + "[" + std::to_string(i) + "] is " + std::to_string(given[i]) + " fused, " +
               std::to_string(expected[i]) + " not fused";
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

uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_SUITE("exec/random_graph") {
  TEST_CASE("fusion: on and off give the same on random graphs") {
    const uint64_t first = number_from("TENON_RANDOM_SEED", 1),
                   count = number_from("TENON_RANDOM_GRAPHS", 3000);
    uint64_t with_joins = 0, with_products = 0;
    for (uint64_t seed = first; seed < first + count; ++seed) {
      const Recipe r = random_recipe(seed);
      Joined joined;
      const std::string apart = difference(r, &joined);
      with_joins += joined.any;
      with_products += joined.products;
      if (apart.empty()) continue;
      const Recipe small = shrunk(r);
      FAIL("seed ", seed, ": ", apart, "; shrunk: ", difference(small), "\n",
           Built(small).g.print());
    }
    CHECK(with_products * 10 > count);
    CHECK(with_joins * 4 > count);  // the graphs are such that fusion finds something
  }
}
