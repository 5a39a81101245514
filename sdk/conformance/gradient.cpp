// SPDX-License-Identifier: Apache-2.0
// Gradients against central differences, in f64 on the reference device.
#include <cmath>

#include "proof.hpp"

namespace tenon::conform {
namespace {

constexpr double kStep = 1e-6;
constexpr size_t kMostElements = 160;  // of one input, evenly spread

// sum of x * weights, the weights fixed and irregular.
Value weighted(CaseBuilder& b, Value x, const std::string& seed) {
  const TensorType type = b.graph().type(x);
  const HostTensor w = Fill::uniform(-1, 1).with({0.7, -1.3}).make(type, seed, 1);
  const Value weights = b.graph().constant(type, w.bytes.data(), w.bytes.size());
  return b.reduce("sum", b.binary("mul", x, weights), {}, false);
}

Value total(CaseBuilder& b, const std::vector<Value>& parts) {
  Value sum = parts.at(0);
  for (size_t k = 1; k < parts.size(); ++k) sum = b.binary("add", sum, parts[k]);
  return sum;
}

// The scalar whose gradient is judged: a weighted sum of the outputs, or, for the second order, of
// its own gradients.
Value loss_of(CaseBuilder& b, const std::vector<Value>& wrt, int order) {
  std::vector<Value> parts;
  for (const auto& o : b.outputs())
    if (o.differentiable && is_float(b.graph().type(o.value).dtype))
      parts.push_back(weighted(b, o.value, "weights of " + o.name));
  const Value loss = total(b, parts);
  if (order == 1) return loss;
  parts.clear();
  const std::vector<Value> first = b.graph().gradients(loss, wrt);
  for (size_t k = 0; k < first.size(); ++k)
    parts.push_back(weighted(b, first[k], "second weights " + std::to_string(k)));
  return total(b, parts);
}

struct Built {
  CaseBuilder builder;
  std::vector<size_t> wrt{};  // inputs
};

Built build(const CaseRow& row, double scale, int order, bool gradients) {
  Built out{CaseBuilder({.seed = row.id, .dtype = f64, .reference = true, .scale = scale})};
  CaseBuilder& b = out.builder;
  row.build(b);
  std::vector<Value> wrt;
  for (size_t k = 0; k < b.inputs().size(); ++k) {
    if (!b.inputs()[k].differentiable) continue;
    out.wrt.push_back(k);
    wrt.push_back(b.inputs()[k].value);
  }
  const Value loss = loss_of(b, wrt, order);
  b.graph().output("loss", loss);
  if (!gradients) return out;
  const std::vector<Value> g = b.graph().gradients(loss, wrt);
  for (size_t k = 0; k < g.size(); ++k) b.graph().output("gradient " + std::to_string(k), g[k]);
  return out;
}

void set(Context& context, const CaseBuilder::Input& in, const HostTensor& content) {
  context.set(in.name, content.type, content.bytes.data(), content.bytes.size());
}

// The loss as a function of one input's content.
class Forward {
 public:
  Forward(const Bench& bench, const CaseRow& row, double scale, int order)
      : built_(build(row, scale, order, false)),
        store_(bench.runtime),
        exe_(bench.runtime, built_.builder.graph(), store_,
             {.device = bench.reference, .allow_fallback = false, .simplify = false}),
        context_(exe_) {
    for (const auto& in : built_.builder.inputs()) set(context_, in, in.content);
  }
  double loss(const CaseBuilder::Input& in, const HostTensor& content) {
    set(context_, in, content);
    context_.run();
    return context_.get_scalar<double>("loss");
  }

 private:
  Built built_;
  Store store_;
  Executable exe_;
  Context context_;
};

std::string compare(Forward& forward, const CaseBuilder::Input& in, const HostTensor& gradient) {
  HostTensor x = in.content;
  const size_t n = x.size();
  const size_t stride = n > kMostElements ? n / kMostElements + 1 : 1;
  for (size_t i = 0; i < n; i += stride) {
    const double at = x.real(i);
    if (!std::isfinite(at)) continue;
    const double up = at + kStep, down = at - kStep;
    x.set_real(i, up);
    const double high = forward.loss(in, x);
    x.set_real(i, down);
    const double low = forward.loss(in, x);
    x.set_real(i, at);
    const double want = (high - low) / (up - down), got = gradient.real(i);
    const double size = std::fabs(high) + std::fabs(low);
    const double bound = 1e-5 * std::fabs(want) + 1e-8 * (1 + size);
    if (std::fabs(got - want) <= bound) continue;
    char text[160];
    std::snprintf(text, sizeof text, ": finite difference %.9g within %.2g, got %.9g at x = %.6g",
                  want, bound, got, at);
    return "gradient of " + in.name + place(x.type.dims, i) + text;
  }
  forward.loss(in, x);  // as it was, for the next input
  return {};
}

}  // namespace

std::string prove_gradient(const Bench& bench, const CaseRow& row, double scale, int order) {
  Built built = build(row, scale, order, true);
  Store store(bench.runtime);
  const Executable exe(bench.runtime, built.builder.graph(), store,
                       {.device = bench.reference, .allow_fallback = false, .simplify = false});
  Context context(exe);
  for (const auto& in : built.builder.inputs()) set(context, in, in.content);
  context.run();
  if (built.wrt.empty()) return "the case has no differentiable input";
  Forward forward(bench, row, scale, order);
  for (size_t k = 0; k < built.wrt.size(); ++k) {
    const CaseBuilder::Input& in = built.builder.inputs()[built.wrt[k]];
    const std::string name = "gradient " + std::to_string(k);
    HostTensor gradient(context.output_type(name));
    if (gradient.type != in.content.type) return name + ": its type is not that of " + in.name;
    context.get(name, gradient.bytes.data(), gradient.bytes.size());
    std::string off = compare(forward, in, gradient);
    if (!off.empty()) return off;
  }
  return {};
}

}  // namespace tenon::conform
