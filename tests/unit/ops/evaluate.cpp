// SPDX-License-Identifier: Apache-2.0
// The primitives as plain loops in double, for tests without a plugin.
#include "evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/number.hpp"
#include "evaluate_index.hpp"
#include "grad/grad.hpp"
#include "ops/lower.hpp"

namespace tenon::core {
namespace {

double rounded(DType t, double v) {
  if (t == kF32) return static_cast<float>(v);
  if (t == kF16) return F16(v);
  if (t == kBF16) return BF16(v);
  return is_integer(t) ? std::trunc(v) : v;  // quotients
}

Tensor made(Type type) {
  return {type, std::vector<double>(static_cast<size_t>(type.shape.elements()))};
}

std::vector<Dim> position(const Shape& s, int64_t flat) {
  std::vector<Dim> at(static_cast<size_t>(s.rank()));
  for (int i = s.rank(); i-- > 0;) {
    at[static_cast<size_t>(i)] = flat % s[i];
    flat /= s[i];
  }
  return at;
}
// Element of x at a position of a shape that x broadcasts to.
double at(const Tensor& x, const std::vector<Dim>& p) {
  const size_t skip = p.size() - static_cast<size_t>(x.type.shape.rank());
  int64_t flat = 0;
  for (int i = 0; i < x.type.shape.rank(); ++i)
    flat = flat * x.type.shape[i] + (x.type.shape[i] == 1 ? 0 : p[skip + static_cast<size_t>(i)]);
  return x.data[static_cast<size_t>(flat)];
}
template <class F>
void each(Tensor& y, F f) {
  for (int64_t k = 0; k < static_cast<int64_t>(y.data.size()); ++k)
    y.data[static_cast<size_t>(k)] = rounded(y.type.dtype, f(position(y.type.shape, k)));
}

double nan_aware(double a, double b, bool max) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return max ? std::max(a, b) : std::min(a, b);
}
double binary(std::string_view k, double a, double b) {
  if (k == "add") return a + b;
  if (k == "sub") return a - b;
  if (k == "mul") return a * b;
  if (k == "div") return a / b;
  if (k == "max" || k == "min") return nan_aware(a, b, k == "max");
  if (k == "pow") return std::pow(a, b);
  if (k == "mod") return a - b * std::floor(a / b);
  if (k == "fmod") return std::fmod(a, b);
  if (k == "atan2") return std::atan2(a, b);
  fail(Code::internal, "evaluate: binary ", k);
}
bool compare(std::string_view k, double a, double b) {
  return k == "eq"   ? a == b
         : k == "ne" ? a != b
         : k == "lt" ? a < b
         : k == "le" ? a <= b
         : k == "gt" ? a > b
                     : a >= b;
}
double unary(std::string_view k, double x) {
  static const std::map<std::string_view, double (*)(double)> functions = {
      {"abs", std::fabs},    {"exp", std::exp},         {"expm1", std::expm1}, {"log", std::log},
      {"log1p", std::log1p}, {"sqrt", std::sqrt},       {"floor", std::floor}, {"ceil", std::ceil},
      {"trunc", std::trunc}, {"round", std::nearbyint}, {"sin", std::sin},     {"cos", std::cos},
      {"tan", std::tan},     {"atan", std::atan},       {"asin", std::asin},   {"acos", std::acos},
      {"sinh", std::sinh},   {"cosh", std::cosh},       {"tanh", std::tanh},   {"erf", std::erf},
      {"erfc", std::erfc}};
  if (const auto f = functions.find(k); f != functions.end()) return f->second(x);
  if (k == "neg") return -x;
  if (k == "rsqrt") return 1 / std::sqrt(x);
  if (k == "sign") return std::isnan(x) ? x : (x > 0) - (x < 0);
  if (k == "is_nan") return std::isnan(x);
  if (k == "is_inf") return std::isinf(x);
  fail(Code::internal, "evaluate: unary ", k);
}

double cast(DType to, double v) {
  if (to == kBool) return v != 0;
  if (!is_integer(to)) return v;
  return std::isnan(v) ? 0 : std::trunc(v);
}

double reduced(std::string_view kind, const std::vector<double>& xs) {
  const double inf = std::numeric_limits<double>::infinity(), n = static_cast<double>(xs.size());
  double sum = 0, product = 1, max = -inf, min = inf, squares = 0, absolute = 0;
  for (double x : xs) {
    sum += x, product *= x, squares += x * x, absolute += std::fabs(x);
    max = nan_aware(max, x, true), min = nan_aware(min, x, false);
  }
  if (kind == "logsumexp") {
    if (max == -inf || std::isnan(max)) return max;
    double total = 0;
    for (double x : xs) total += std::exp(x - max);
    return max + std::log(total);
  }
  return kind == "sum"          ? sum
         : kind == "mean"       ? sum / n
         : kind == "max"        ? max
         : kind == "min"        ? min
         : kind == "prod"       ? product
         : kind == "sum_square" ? squares
         : kind == "l1"         ? absolute
         : kind == "all"        ? min != 0
                                : std::sqrt(squares);
}

void reduce(const op::reduce& n, const Tensor& x, Tensor& y) {
  const Shape& s = x.type.shape;
  const bool all = n.axes.empty() && !n.noop_with_empty_axes;
  std::vector<bool> over(static_cast<size_t>(s.rank()), all);
  for (int64_t a : n.axes) over[static_cast<size_t>(a < 0 ? a + s.rank() : a)] = true;
  std::vector<std::vector<double>> sets(y.data.size());
  for (size_t k = 0; k < x.data.size(); ++k) {
    const std::vector<Dim> p = position(s, static_cast<int64_t>(k));
    int64_t flat = 0;
    for (int i = 0; i < s.rank(); ++i)
      if (!over[static_cast<size_t>(i)]) flat = flat * s[i] + p[static_cast<size_t>(i)];
    sets[static_cast<size_t>(flat)].push_back(x.data[k]);
  }
  for (size_t k = 0; k < sets.size(); ++k)
    y.data[k] = rounded(y.type.dtype, reduced(n.kind, sets[k]));
}

// A vector is a row on the left and a column on the right.
void matmul(const op::matmul& n, Tensor a, Tensor b, Tensor& y) {
  Shape full = y.type.shape;
  if (a.type.shape.rank() == 1) {
    a.type.shape = {1, a.type.shape[0]};
    const Shape old = full;
    full = Shape(old.dims().first(static_cast<size_t>(old.rank() - (b.type.shape.rank() > 1))));
    full.push(1);
    if (b.type.shape.rank() > 1) full.push(old[old.rank() - 1]);
  }
  if (b.type.shape.rank() == 1) {
    b.type.shape = {b.type.shape[0], 1};
    full.push(1);
  }
  Tensor matrix = made({y.type.dtype, full});
  const int ra = a.type.shape.rank();
  const Dim inner = a.type.shape[n.trans_a ? ra - 2 : ra - 1];
  each(matrix, [&](std::vector<Dim> p) {
    double sum = 0;
    const size_t r = p.size();
    const Dim row = p[r - 2], col = p[r - 1];
    for (Dim k = 0; k < inner; ++k) {
      std::vector<Dim> pa = p, pb = p;
      pa[r - 2] = n.trans_a ? k : row, pa[r - 1] = n.trans_a ? row : k;
      pb[r - 2] = n.trans_b ? col : k, pb[r - 1] = n.trans_b ? k : col;
      sum += at(a, pa) * at(b, pb);
    }
    return n.alpha * sum;
  });
  y.data = std::move(matrix.data);
}

void concat(const op::concat& n, const std::vector<Tensor>& xs, Tensor& y) {
  const auto axis = static_cast<size_t>(n.axis < 0 ? n.axis + y.type.shape.rank() : n.axis);
  each(y, [&](std::vector<Dim> p) {
    size_t k = 0;
    for (; p[axis] >= xs[k].type.shape[static_cast<int>(axis)]; ++k)
      p[axis] -= xs[k].type.shape[static_cast<int>(axis)];
    return at(xs[k], p);
  });
}

bool moves(std::string_view name, const NodeInfo& node, const std::vector<Tensor>& x, Tensor& y) {
  if (name == "reshape" || name == "copy") {
    y.data = x[0].data;
  } else if (name == "expand") {
    each(y, [&](const auto& p) { return at(x[0], p); });
  } else if (name == "transpose") {
    Ints perm = decode<op::transpose>(node).perm;
    each(y, [&](const auto& p) {
      std::vector<Dim> from(p.size());
      for (size_t i = 0; i < p.size(); ++i)
        from[perm.empty() ? p.size() - 1 - i : static_cast<size_t>(perm[i])] = p[i];
      return at(x[0], from);
    });
  } else if (name == "narrow") {
    const auto n = decode<op::narrow>(node);
    each(y, [&](auto p) {
      for (size_t i = 0; i < p.size(); ++i)
        p[i] = (n.start.empty() ? 0 : n.start[i]) + p[i] * (n.step.empty() ? 1 : n.step[i]);
      return x[0].data.size() ? at(x[0], p) : 0;
    });
  } else if (name == "concat") {
    concat(decode<op::concat>(node), x, y);
  } else if (name == "pad") {
    const auto n = decode<op::pad>(node);
    check(n.mode == "constant", "evaluate: pad mode ", n.mode);
    each(y, [&](auto p) {
      for (size_t i = 0; i < p.size(); ++i) {
        p[i] -= n.before[i];
        if (p[i] < 0 || p[i] >= x[0].type.shape[static_cast<int>(i)]) return n.value;
      }
      return at(x[0], p);
    });
  } else if (name == "iota") {
    const auto n = decode<op::iota>(node);
    each(y, [&](const auto& p) {
      return n.start + n.step * static_cast<double>(p[static_cast<size_t>(n.axis)]);
    });
  } else {
    return false;
  }
  return true;
}

void primitive(const NodeInfo& node, const std::vector<Tensor>& x, Tensor& y) {
  const std::string_view name = node.op->name();
  if (moves(name, node, x, y)) return;
  if (name == "binary") {
    const auto n = decode<op::binary>(node);
    each(y, [&](const auto& p) { return binary(n.kind, at(x[0], p), at(x[1], p)); });
  } else if (name == "compare") {
    const auto n = decode<op::compare>(node);
    each(y, [&](const auto& p) { return compare(n.kind, at(x[0], p), at(x[1], p)); });
  } else if (name == "logical") {
    const auto n = decode<op::logical>(node);
    each(y, [&](const auto& p) {
      const bool a = at(x[0], p) != 0, b = x.size() > 1 && at(x[1], p) != 0;
      return n.kind == "and" ? a && b : n.kind == "or" ? a || b : n.kind == "xor" ? a != b : !a;
    });
  } else if (name == "unary") {
    const auto n = decode<op::unary>(node);
    each(y, [&](const auto& p) { return unary(n.kind, at(x[0], p)); });
  } else if (name == "cast") {
    each(y, [&](const auto& p) { return cast(y.type.dtype, at(x[0], p)); });
  } else if (name == "where") {
    each(y, [&](const auto& p) { return at(x[0], p) != 0 ? at(x[1], p) : at(x[2], p); });
  } else if (name == "matmul") {
    matmul(decode<op::matmul>(node), x[0], x[1], y);
  } else if (name == "reduce") {
    reduce(decode<op::reduce>(node), x[0], y);
  } else if (name == "gather") {
    evaluate_gather(decode<op::gather>(node), x[0], x[1], y);
  } else if (name == "scatter_add") {
    evaluate_scatter_add(decode<op::scatter_add>(node), x[0], x[1], x.size() > 2 ? &x[2] : nullptr,
                         y);
    for (double& v : y.data) v = rounded(y.type.dtype, v);
  } else if (name == "scatter_reduce") {
    evaluate_scatter_reduce(decode<op::scatter_reduce>(node), x[0], x[1], x[2], y);
    for (double& v : y.data) v = rounded(y.type.dtype, v);
  } else {
    fail(Code::internal, "evaluate: does not know ", name);
  }
}

Tensor constant(const ValueInfo& info) {
  Tensor t = made(info.type);
  const size_t size = tenon_dtype_bits(info.type.dtype) / 8;
  for (size_t k = 0; k < t.data.size(); ++k)
    check(load_number(info.type.dtype, info.data->data() + k * size, &t.data[k]),
          "evaluate: a constant");
  return t;
}

// One node: by its decomposition where it has one.
std::vector<Tensor> run_node(const Graph& graph, const NodeInfo& node,
                             const std::vector<Tensor>& operands) {
  Graph sub;
  NodeInfo copy = node;
  Values given;
  size_t k = 0;
  for (Value& v : copy.operands) {
    if (!v) continue;
    v = sub.input(cat("x", k), graph.type(v));
    given[v] = operands[k++];
  }
  Builder b(sub);
  std::vector<Value> results;
  if (!lower_into(b, copy, results)) {
    Tensor y = made(graph.type(node.outputs[0]));
    primitive(node, operands, y);
    return {y};
  }
  std::vector<Value> wanted;
  for (Value v : results)
    if (v) wanted.push_back(v);
  return evaluate(sub, given, wanted);
}

}  // namespace

Tensor tensor(DType dtype, Shape shape, std::vector<double> data) {
  check(static_cast<size_t>(shape.elements()) == data.size(), "tensor: ", data.size(),
        " numbers for ", shape.text());
  for (double& v : data) v = rounded(dtype, v);
  return {{dtype, shape}, std::move(data)};
}

Tensor noise(Shape shape, double scale, unsigned seed, DType dtype) {
  std::vector<double> data(static_cast<size_t>(shape.elements()));
  uint64_t state = 0x9E3779B97F4A7C15u * (seed + 1);
  for (double& v : data) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = scale * (static_cast<double>(state >> 11) * 0x1p-52 - 1);
  }
  return tensor(dtype, shape, std::move(data));
}

std::vector<Tensor> evaluate(const Graph& graph, const Values& given,
                             const std::vector<Value>& wanted) {
  Values values = given;
  for (uint32_t v = 0; v < graph.value_count(); ++v)
    if (graph[Value{v}].space == Space::constant) values[Value{v}] = constant(graph[Value{v}]);
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const NodeInfo& node = graph[id];
    std::vector<Tensor> operands;
    for (Value v : node.operands)
      if (v) operands.push_back(values.at(v));
    std::vector<Tensor> results = run_node(graph, node, operands);
    size_t k = 0;
    for (Value v : node.outputs)
      if (v) values[v] = std::move(results[k++]);
  }
  std::vector<Tensor> out;
  for (Value v : wanted) out.push_back(values.at(v));
  return out;
}

namespace {

struct Trial {
  Graph graph;
  std::vector<Value> inputs;
  Value y;
};

Trial trial(const Function& f, const std::vector<Tensor>& at) {
  Trial t;
  for (const Tensor& x : at) t.inputs.push_back(t.graph.input(cat("in", t.inputs.size()), x.type));
  Builder b(t.graph);
  t.y = f(b, t.inputs);
  return t;
}

Values values_of(const Graph& graph, const std::vector<Tensor>& at) {
  Values values;
  for (size_t k = 0; k < at.size(); ++k) values[graph.inputs()[k]] = at[k];
  return values;
}

std::vector<Value> chosen(const std::vector<Value>& all, const std::vector<Tensor>& at,
                          const std::vector<bool>& wrt) {
  std::vector<Value> out;
  for (size_t k = 0; k < all.size(); ++k)
    if (wrt.empty() ? is_float(at[k].type.dtype) : wrt[k]) out.push_back(all[k]);
  return out;
}

// Σ cos(k)·y_k
Value weighted_sum(Builder& b, Value y) {
  const Type type = b.type(y);
  const int64_t n = type.shape.elements();
  const Value flat = b.reshape(y, {n});
  const Value weights = b.unary("cos", b.iota({n}, 0, type.dtype));
  return b.sum(b.times(flat, weights), {0}, false);
}

// The function's weighted sum; with `order` 1 that of its gradients.
Function scalar_of(const Function& f, const std::vector<Tensor>& at, const std::vector<bool>& wrt,
                   int order) {
  return [=](Builder& b, const std::vector<Value>& in) {
    Value loss = weighted_sum(b, f(b, in));
    if (order == 0) return loss;
    const NodeId request = b.graph.add(op::grad{.loss = loss, .wrt = chosen(in, at, wrt)});
    const std::vector<Value> grads = b.graph[request].outputs;
    Value total;
    for (Value g : grads) total = total ? b.plus(total, weighted_sum(b, g)) : weighted_sum(b, g);
    return total;
  };
}

std::vector<Tensor> gradients_of(const Function& scalar, const std::vector<Tensor>& at,
                                 const std::vector<bool>& wrt) {
  Trial t = trial(scalar, at);
  const NodeId request = t.graph.add(op::grad{.loss = t.y, .wrt = chosen(t.inputs, at, wrt)});
  const std::vector<Value> grads = t.graph[request].outputs;
  for (size_t k = 0; k < grads.size(); ++k) t.graph.output(cat("g", k), grads[k]);
  const Graph expanded = expand_grads(t.graph);
  std::vector<Value> wanted;
  for (const Output& o : expanded.outputs()) wanted.push_back(o.value);
  return evaluate(expanded, values_of(expanded, at), wanted);
}

double value_of(const Function& scalar, const std::vector<Tensor>& at) {
  Trial t = trial(scalar, at);
  t.graph.output("y", t.y);
  const Graph expanded = expand_grads(t.graph);
  return evaluate(expanded, values_of(expanded, at), {expanded.outputs()[0].value})[0].data[0];
}

double error_of(const Function& scalar, std::vector<Tensor> at, const std::vector<bool>& wrt,
                double step) {
  const std::vector<Tensor> analytic = gradients_of(scalar, at, wrt);
  double worst = 0;
  size_t k = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    if (wrt.empty() ? !is_float(at[i].type.dtype) : !wrt[i]) continue;
    for (size_t e = 0; e < at[i].data.size(); ++e) {
      const double x = at[i].data[e];
      at[i].data[e] = x + step;
      const double above = value_of(scalar, at);
      at[i].data[e] = x - step;
      const double below = value_of(scalar, at);
      at[i].data[e] = x;
      const double quotient = (above - below) / (2 * step);
      const double error = std::fabs(analytic[k].data[e] - quotient) / (1 + std::fabs(quotient));
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
    }
    ++k;
  }
  return worst;
}

}  // namespace

Tensor forward(const Function& f, const std::vector<Tensor>& at) {
  const Trial t = trial(f, at);
  return evaluate(t.graph, values_of(t.graph, at), {t.y})[0];
}
std::vector<Tensor> gradients(const Function& f, const std::vector<Tensor>& at,
                              const std::vector<bool>& wrt) {
  return gradients_of(scalar_of(f, at, wrt, 0), at, wrt);
}
double gradient_error(const Function& f, const std::vector<Tensor>& at,
                      const std::vector<bool>& wrt, double step) {
  return error_of(scalar_of(f, at, wrt, 0), at, wrt, step);
}
double second_order_error(const Function& f, const std::vector<Tensor>& at,
                          const std::vector<bool>& wrt, double step) {
  return error_of(scalar_of(f, at, wrt, 1), at, wrt, step);
}

}  // namespace tenon::core
