// SPDX-License-Identifier: Apache-2.0
#include "api/optimizer.hpp"

#include <limits>

#include "ops/build.hpp"

namespace tenon::core {
namespace {

// The moments of a half-precision weight are kept in f32.
Type moment_type(const Type& weight) { return {acc_dtype(weight.dtype), weight.shape}; }

class Minimizer {
 public:
  Minimizer(Graph& graph, const tenon_optimizer& optimizer)
      : graph_(graph), o_(optimizer), b_(graph, "optimizer") {
    check_options();
  }

  Value run(Value loss) {
    op::grad request{.loss = loss};
    for (Value w : graph_.weights())
      if (graph_[w].trainable) request.wrt.push_back(w);
    if (request.wrt.empty())
      fail(Code::invalid_argument, "minimize: the graph has no trainable weight");
    const std::vector<Value> weights = request.wrt;
    const std::vector<Value> grads = graph_[graph_.add(request, "gradients")].outputs;

    const Value norm = global_norm(grads);
    if (o_.clip_norm > 0) {
      const Value limit = b_.over(b_.scalar(kF32, o_.clip_norm), b_.plus(norm, 1e-6));
      scale_ = b_.min(b_.scalar(kF32, 1), limit);
    }
    if (o_.skip_nonfinite)  // NaN and infinity both fail the comparison
      apply_ = b_.compare("le", norm, static_cast<double>(std::numeric_limits<float>::max()));
    const Value old_step = graph_.state("optimizer.step", {kI64, {}});
    step_ = b_.plus(old_step, b_.scalar_int(kI64, 1));
    graph_.update(old_step, apply_ ? b_.where(apply_, step_, old_step) : step_);
    for (size_t i = 0; i < weights.size(); ++i) update(weights[i], grads[i]);
    return norm;
  }

 private:
  void check_options() const {
    if (o_.kind < TENON_OPTIMIZER_SGD || o_.kind > TENON_OPTIMIZER_LION)
      fail(Code::invalid_argument, "minimize: optimizer kind ", o_.kind, " is unknown");
    if (o_.learning_rate >= graph_.value_count())
      fail(Code::invalid_argument, "minimize: learning_rate is no value of this graph");
    const auto in_unit = [](double v) { return v >= 0 && v < 1; };
    if (o_.kind != TENON_OPTIMIZER_SGD && (!in_unit(o_.beta1) || !in_unit(o_.beta2)))
      fail(Code::invalid_argument, "minimize: beta1 and beta2 must be in [0, 1), got ", o_.beta1,
           " and ", o_.beta2);
    if (!(o_.eps >= 0) || !(o_.weight_decay >= 0) || !(o_.clip_norm >= 0) || !(o_.momentum >= 0))
      fail(Code::invalid_argument,
           "minimize: eps, weight_decay, clip_norm and momentum must be at least 0");
  }

  // Square root of the sum of squares over all gradients, in f32.
  Value global_norm(const std::vector<Value>& grads) {
    Value total;
    for (Value g : grads) {
      const Value wide = b_.widen(g);
      Value sum = b_.reduce("sum_square", wide, all_axes(g), false);
      sum = b_.cast(sum, kF32);
      total = total ? b_.plus(total, sum) : sum;
    }
    return b_.unary("sqrt", total);
  }
  Ints all_axes(Value v) const {
    Ints axes;
    for (int i = 0; i < graph_.type(v).shape.rank(); ++i) axes.push_back(i);
    return axes;
  }

  void update(Value w, Value g) {
    const std::string name = graph_[w].name;
    const Type& type = graph_.type(w);
    const double decay =
        type.shape.rank() < static_cast<int>(o_.decay_min_rank) ? 0.0 : o_.weight_decay;
    const Value lr{o_.learning_rate};
    b_.provenance = cat("optimizer of ", name);
    if (o_.kind == TENON_OPTIMIZER_ADAMW) {
      const Value m = graph_.state(name + ".m", moment_type(type)),
                  v = graph_.state(name + ".v", moment_type(type));
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
      graph_.update(w, r[0]);
      graph_.update(m, r[1]);
      graph_.update(v, r[2]);
    } else if (o_.kind == TENON_OPTIMIZER_LION) {
      const Value m = graph_.state(name + ".m", moment_type(type));
      const auto r = b_.add(op::lion{.beta1 = o_.beta1,
                                     .beta2 = o_.beta2,
                                     .weight_decay = decay,
                                     .w = w,
                                     .g = g,
                                     .m = m,
                                     .lr = lr,
                                     .grad_scale = scale_,
                                     .apply = apply_});
      graph_.update(w, r[0]);
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
        step.momentum_buf = graph_.state(name + ".m", moment_type(type));
        step.want_momentum_buf_out = true;
      }
      const auto r = b_.add(step);
      graph_.update(w, r[0]);
      if (o_.momentum != 0) graph_.update(step.momentum_buf, r[1]);
    }
  }

  Graph& graph_;
  const tenon_optimizer& o_;
  Builder b_;
  Value scale_, apply_, step_;
};

}  // namespace

Value minimize(Graph& graph, Value loss, const tenon_optimizer& optimizer) {
  return Minimizer(graph, optimizer).run(loss);
}

}  // namespace tenon::core
