// SPDX-License-Identifier: Apache-2.0
// Adds training steps to a graph: gradients, clipping, the update ops and their state.
#include "api/optimizer.hpp"

#include <algorithm>
#include <limits>

#include "base/c_struct.hpp"
#include "ops/build.hpp"

namespace tenon::core {
namespace {

// The state of a half-precision weight (moments, master, gradient sum) is kept in f32.
Type wide_type(const Type& weight) { return {acc_dtype(weight.dtype), weight.shape}; }

std::vector<Value> trainable_weights(const Graph& graph, std::string_view who) {
  std::vector<Value> weights;
  for (Value w : graph.weights())
    if (graph[w].trainable) weights.push_back(w);
  if (weights.empty()) fail(Code::invalid_argument, who, ": the graph has no trainable weight");
  return weights;
}

// The weights that an optimizer names, or all trainable ones.
std::vector<Value> weights_of(const Graph& graph, const tenon_optimizer& o, std::string_view who) {
  if (!o.weights) {
    if (o.weight_count)
      fail(Code::invalid_argument, who, ": weights is NULL, weight_count ", o.weight_count);
    return trainable_weights(graph, who);
  }
  if (!o.weight_count)
    fail(Code::invalid_argument, who, ": expected at least one weight, got none");
  std::vector<Value> weights;
  for (uint32_t i = 0; i < o.weight_count; ++i) {
    const Value w{o.weights[i]};
    if (w.id >= graph.value_count() || graph[w].space != Space::weight)
      fail(Code::invalid_argument, who, ": weight ", i, " is no weight of this graph");
    if (std::ranges::find(weights, w) != weights.end())
      fail(Code::invalid_argument, who, ": weight '", graph[w].name, "' is named twice");
    weights.push_back(w);
  }
  return weights;
}

std::vector<Value> gradients_of(Graph& graph, Value loss, const std::vector<Value>& weights) {
  op::grad request{.loss = loss, .wrt = weights};
  return graph[graph.add(request, "gradients")].outputs;
}

// The gradient of a weight, widened. Its dtype is unknown while symbols are not bound.
Value widened(Builder& b, Value gradient, Value weight) {
  const DType from = b.dtype(weight), to = acc_dtype(from);
  return from == to ? gradient : Value(b.add(op::cast{.to = to, .x = gradient}));
}

Value grad_state(Graph& graph, Value weight) {
  return graph.state(graph[weight].name + ".grad", wide_type(graph.type(weight)));
}
// All optimizers of a graph share it.
Value count_state(Graph& graph) {
  constexpr std::string_view kName = "optimizer.count";
  const Value known = graph.find(Space::state, kName);
  return known ? known : graph.state(kName, {kI64, {}});
}

class Minimizer {
 public:
  Minimizer(Graph& graph, const tenon_optimizer& optimizer, std::string_view who)
      : graph_(graph),
        o_(optimizer),
        who_(who),
        b_(graph, "optimizer"),
        name_(optimizer.name.size ? view(optimizer.name) : "optimizer"),
        weights_(weights_of(graph, optimizer, who)) {
    check_options();
    for (Value w : weights_)
      if (graph.update_of(w))
        fail(Code::invalid_argument, who, ": weight '", graph[w].name,
             "' is updated already, by another optimizer or by the app");
    if (graph.find(Space::state, name_ + ".step"))
      fail(Code::invalid_argument, who, ": the graph has an optimizer of the name '", name_,
           "'; give this one another name");
  }

  Value minimize(Value loss) {
    const std::vector<Value> grads = gradients_of(graph_, loss, weights_);
    const Value norm = global_norm(grads);
    step(grads, norm, {});
    return norm;
  }

  // The gradients are sums over the counted runs; the scale divides by the count.
  Value apply() {
    std::vector<Value> sums;
    for (Value w : weights_) sums.push_back(grad_state(graph_, w));
    const Value count = count_state(graph_), one = b_.scalar(kF32, 1);
    const Value share = b_.over(one, b_.max(b_.cast(count, kF32), one));
    const Value norm = b_.times(global_norm(sums), share);
    step(sums, norm, share);
    for (Value sum : sums) graph_.update(sum, b_.zeros(graph_.type(sum)));
    if (!graph_.update_of(count)) graph_.update(count, b_.scalar_int(kI64, 0));
    return norm;
  }

 private:
  void check_options() const {
    if (o_.kind < TENON_OPTIMIZER_SGD || o_.kind > TENON_OPTIMIZER_LION)
      fail(Code::invalid_argument, who_, ": optimizer kind ", o_.kind, " is unknown");
    if (o_.learning_rate >= graph_.value_count())
      fail(Code::invalid_argument, who_, ": learning_rate is no value of this graph");
    const auto in_unit = [](double v) { return v >= 0 && v < 1; };
    if (o_.kind != TENON_OPTIMIZER_SGD && (!in_unit(o_.beta1) || !in_unit(o_.beta2)))
      fail(Code::invalid_argument, who_, ": beta1 and beta2 must be in [0, 1), got ", o_.beta1,
           " and ", o_.beta2);
    if (!(o_.eps >= 0) || !(o_.weight_decay >= 0) || !(o_.clip_norm >= 0) || !(o_.momentum >= 0))
      fail(Code::invalid_argument, who_,
           ": eps, weight_decay, clip_norm and momentum must be at least 0");
  }

  // The square root of the sum of squares over all gradients, in f32.
  Value global_norm(const std::vector<Value>& grads) {
    Value total;
    for (size_t i = 0; i < grads.size(); ++i) {
      Value sum =
          b_.reduce("sum_square", widened(b_, grads[i], weights_[i]), all_axes(weights_[i]), false);
      if (acc_dtype(b_.dtype(weights_[i])) != kF32) sum = b_.add(op::cast{.to = kF32, .x = sum});
      total = total ? b_.plus(total, sum) : sum;
    }
    return b_.unary("sqrt", total);
  }
  Ints all_axes(Value v) const {
    Ints axes;
    for (int i = 0; i < graph_.type(v).shape.rank(); ++i) axes.push_back(i);
    return axes;
  }

  // share: a factor for gradients that are sums.
  void step(const std::vector<Value>& grads, Value norm, Value share) {
    scale_ = share;
    if (o_.clip_norm > 0) {
      const Value limit =
          b_.over(b_.scalar(kF32, o_.clip_norm), b_.plus(norm, b_.scalar(kF32, 1e-6)));
      const Value clip = b_.min(b_.scalar(kF32, 1), limit);
      scale_ = share ? b_.times(share, clip) : clip;
    }
    if (o_.skip_nonfinite)  // NaN and infinity both fail the comparison
      apply_ = b_.compare("le", norm,
                          b_.scalar(kF32, static_cast<double>(std::numeric_limits<float>::max())));
    const Value old_step = graph_.state(name_ + ".step", {kI64, {}});
    step_ = b_.plus(old_step, b_.scalar_int(kI64, 1));
    graph_.update(old_step, apply_ ? b_.where(apply_, step_, old_step) : step_);
    for (size_t i = 0; i < weights_.size(); ++i) update(weights_[i], grads[i]);
  }

  // A half-precision weight is written from its master.
  void update_weight(Value weight, Value from, Value result) {
    graph_.update(from, result);
    if (from != weight) graph_.update(weight, b_.cast(result, b_.dtype(weight)));
  }

  void update(Value weight, Value g) {
    const std::string name = graph_[weight].name;
    const Type type = graph_.type(weight);
    const Value w = is_half(type.dtype) ? graph_.state(name + ".master", wide_type(type)) : weight;
    const double decay =
        type.shape.rank() < static_cast<int>(o_.decay_min_rank) ? 0.0 : o_.weight_decay;
    const Value lr{o_.learning_rate};
    b_.provenance = cat("optimizer of ", name);
    if (o_.kind == TENON_OPTIMIZER_ADAMW) {
      const Value m = graph_.state(name + ".m", wide_type(type)),
                  v = graph_.state(name + ".v", wide_type(type));
      const auto r = b_.add(op::adamw{.beta1 = o_.beta1,
                                      .beta2 = o_.beta2,
                                      .eps = o_.eps,
                                      .weight_decay = decay,
                                      .w = w,
                                      .g = g,
                                      .m = m,
                                      .v = v,
                                      .lr = lr,
                                      .step = step_,
                                      .grad_scale = scale_,
                                      .apply = apply_});
      update_weight(weight, w, r[0]);
      graph_.update(m, r[1]);
      graph_.update(v, r[2]);
    } else if (o_.kind == TENON_OPTIMIZER_LION) {
      const Value m = graph_.state(name + ".m", wide_type(type));
      const auto r = b_.add(op::lion{.beta1 = o_.beta1,
                                     .beta2 = o_.beta2,
                                     .weight_decay = decay,
                                     .w = w,
                                     .g = g,
                                     .m = m,
                                     .lr = lr,
                                     .grad_scale = scale_,
                                     .apply = apply_});
      update_weight(weight, w, r[0]);
      graph_.update(m, r[1]);
    } else {
      op::sgd step{.momentum = o_.momentum,
                   .dampening = o_.dampening,
                   .nesterov = o_.nesterov != 0,
                   .weight_decay = decay,
                   .w = w,
                   .g = g,
                   .lr = lr,
                   .step = step_,
                   .grad_scale = scale_,
                   .apply = apply_};
      if (o_.momentum != 0) {
        step.momentum_buf = graph_.state(name + ".m", wide_type(type));
        step.want_momentum_buf_out = true;
      }
      const auto r = b_.add(step);
      update_weight(weight, w, r[0]);
      if (o_.momentum != 0) graph_.update(step.momentum_buf, r[1]);
    }
  }

  Graph& graph_;
  const tenon_optimizer& o_;
  const std::string_view who_;
  Builder b_;
  const std::string name_;
  const std::vector<Value> weights_;
  Value scale_, apply_, step_;
};

}  // namespace

Value minimize(Graph& graph, Value loss, const tenon_optimizer& optimizer) {
  return Minimizer(graph, optimizer, "minimize").minimize(loss);
}

void accumulate(Graph& graph, Value loss) {
  const std::vector<Value> weights = trainable_weights(graph, "accumulate");
  const std::vector<Value> grads = gradients_of(graph, loss, weights);
  Builder b(graph, "accumulated gradients");
  for (size_t i = 0; i < weights.size(); ++i) {
    const Value sum = grad_state(graph, weights[i]);
    graph.update(sum, b.plus(widened(b, grads[i], weights[i]), sum));
  }
  const Value count = count_state(graph);
  graph.update(count, b.plus(count, b.scalar_int(kI64, 1)));
}

Value apply(Graph& graph, const tenon_optimizer& optimizer) {
  return Minimizer(graph, optimizer, "apply").apply();
}

}  // namespace tenon::core
