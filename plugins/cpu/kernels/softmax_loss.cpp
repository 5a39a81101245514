// SPDX-License-Identifier: Apache-2.0
// cross_entropy and its backward op: checks, labels, and the scalar part of each item. A tree sum
// over all items makes the result independent of the number of threads.
#include <atomic>
#include <cmath>
#include <limits>
#include <string>

#include "convert.hpp"
#include "index_policy.hpp"
#include "nontemporal.hpp"
#include "softmax.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Refusal;
using sdk::Value;

double element(tenon_dtype dtype, const void* base, int64_t i) {
  switch (dtype) {
    case TENON_DTYPE_F32:
      return static_cast<const float*>(base)[i];
    case TENON_DTYPE_F16:
      return to_float(static_cast<const F16*>(base)[i]);
    case TENON_DTYPE_BF16:
      return to_float(static_cast<const Bf16*>(base)[i]);
    default:
      return static_cast<const double*>(base)[i];
  }
}
void set_element(tenon_dtype dtype, void* base, int64_t i, double v) {
  switch (dtype) {
    case TENON_DTYPE_F32:
      static_cast<float*>(base)[i] = static_cast<float>(v);
      return;
    case TENON_DTYPE_F16:
      static_cast<F16*>(base)[i] = to_f16(round_to_odd(v));
      return;
    case TENON_DTYPE_BF16:
      static_cast<Bf16*>(base)[i] = to_bf16(round_to_odd(v));
      return;
    default:
      static_cast<double*>(base)[i] = v;
  }
}

double tree_sum(const double* x, int64_t n) {
  constexpr int64_t kLeaf = 64;
  if (n > kLeaf) {
    const int64_t half = (n / 2 + kLeaf - 1) / kLeaf * kLeaf;
    return tree_sum(x, half) + tree_sum(x + half, n - half);
  }
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

enum class Reduction { none, sum, mean };
Reduction parse_reduction(std::string_view text) {
  if (text == "none") return Reduction::none;
  if (text == "sum") return Reduction::sum;
  if (text == "mean") return Reduction::mean;
  throw Refusal::attribute("reduction", text);
}

// Shared by forward and backward: the operands, the check of the labels, and the weights.
class Loss {
 public:
  template <class Op>
  Loss(const Op& n, Kernel& kernel)
      : view_(along_axis(n.logits.type(), n.axis)),
        dtype_(n.logits.type().dtype),
        acc_(dtype_ == TENON_DTYPE_F64 ? dtype_ : TENON_DTYPE_F32),
        label_dtype_(n.labels.type().dtype),
        items_(view_.outer * view_.inner),
        ignore_(n.ignore_index),
        smoothing_(n.label_smoothing),
        reduction_(parse_reduction(n.reduction)),
        logits_(n.logits.position()),
        labels_(n.labels.position()) {
    if (!is_float(dtype_)) throw Refusal::dtype("logits", dtype_);
    weigh_ = kernel.scratch;
    kernel.scratch += aligned(blocks() * sizeof(double));
    if (n.weight) use_weight(n.weight, kernel);
  }

  static uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

  const AxisView& view() const { return view_; }
  tenon_dtype dtype() const { return dtype_; }
  tenon_dtype acc() const { return acc_; }
  int64_t items() const { return items_; }
  int64_t bytes() const { return element_bytes(dtype_); }
  Reduction reduction() const { return reduction_; }
  const void* logits(const Call& c) const { return c.inputs[logits_]; }

  // The state of one run: checked labels and the weights.
  class Run {
   public:
    Run(const Loss& loss, const Call& c) : loss_(loss), labels_(c.inputs[loss.labels_]) {
      weight_ = loss.prepare_weight(c);
      double* sums = reinterpret_cast<double*>(static_cast<char*>(c.scratch) + loss.weigh_);
      with_indices(loss.label_dtype_, labels_,
                   [&](const auto* labels) { check_and_weigh(labels, sums); });
      active_ = tree_sum(sums, loss.blocks());
      total_ = static_cast<double>(loss.view_.length);
      if (weight_ && loss.smoothing_ > 0) {
        total_ = 0;
        for (int64_t k = 0; k < loss.view_.length; ++k) total_ += class_weight(k);
      }
    }
    bool ignored(int64_t item) const { return label(item) == loss_.ignore_; }
    int64_t label(int64_t item) const {
      return loss_.label_dtype_ == TENON_DTYPE_I32 ? static_cast<const int32_t*>(labels_)[item]
                                                   : static_cast<const int64_t*>(labels_)[item];
    }
    double class_weight(int64_t k) const { return weight_ ? element(loss_.acc_, weight_, k) : 1; }
    // Per class, in the accumulation type; null if only the label's own weight counts.
    const void* spread_weight() const { return loss_.smoothing_ > 0 ? weight_ : nullptr; }
    double active_weight() const { return active_; }  // of the labels that are not ignored
    double total_weight() const { return total_; }    // of all classes

   private:
    template <class X>
    void check_and_weigh(const X* labels, double* sums) const {
      const int64_t classes = loss_.view_.length, items = loss_.items_;
      std::atomic<int64_t> first{items};
      parallel_for(loss_.blocks(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          double sum = 0;
          for (int64_t i = b * kBlock; i < std::min(items, (b + 1) * kBlock); ++i) {
            if (labels[i] == loss_.ignore_) continue;
            if (labels[i] >= 0 && labels[i] < classes) {
              sum += class_weight(labels[i]);
              continue;
            }
            int64_t seen = first.load();
            while (i < seen && !first.compare_exchange_weak(seen, i)) {
            }
            return;
          }
          sums[b] = sum;
        }
      });
      if (const int64_t bad = first.load(); bad < items)
        throw sdk::Failure(TENON_INDEX_OUT_OF_RANGE,
                           "operand labels: label " + std::to_string(labels[bad]) +
                               " at position " + std::to_string(bad) + " is outside [0, " +
                               std::to_string(classes) + ")",
                           bad);
    }

    const Loss& loss_;
    const void* labels_;
    const void* weight_ = nullptr;
    double active_ = 0, total_ = 0;
  };

  double smoothing() const { return smoothing_; }

 private:
  static constexpr int64_t kBlock = 4096;  // labels per block of the sum of weights

  int64_t blocks() const { return (items_ + kBlock - 1) / kBlock; }

  void use_weight(const Value& v, Kernel& kernel) {
    weight_ = v.position();
    weight_dtype_ = v.type().dtype;
    if (weight_dtype_ == acc_) return;
    wide_weight_ = kernel.scratch;
    kernel.scratch += aligned(view_.length * sizeof(float));
  }
  const void* prepare_weight(const Call& c) const {
    if (weight_ < 0 || weight_dtype_ == acc_) return c.in(weight_);
    float* wide = reinterpret_cast<float*>(static_cast<char*>(c.scratch) + wide_weight_);
    widen(weight_dtype_, c.inputs[weight_], wide, view_.length);
    return wide;
  }

  AxisView view_;
  tenon_dtype dtype_, acc_, label_dtype_, weight_dtype_{};
  int64_t items_, ignore_;
  double smoothing_;
  Reduction reduction_;
  int logits_, labels_, weight_ = -1;
  uint64_t weigh_ = 0, wide_weight_ = 0;  // offsets in scratch
};

// ---- forward

// (1-e) w_y (lse - x_y) + e/C sum w_c (lse - x_c), with differences from the maximum.
double item_loss(const Loss& loss, const Loss::Run& run, const LineStatistics& s, int64_t label,
                 double logit) {
  const double smoothing = loss.smoothing();
  const double own = run.class_weight(label) * (s.log_sum + (s.max - logit));
  if (smoothing == 0) return own;
  const double spread = s.spread + run.total_weight() * s.log_sum;
  return (1 - smoothing) * own + smoothing / static_cast<double>(loss.view().length) * spread;
}

void run_forward(const Loss& loss, uint64_t losses_at, bool want_lse, const Call& c) {
  const Loss::Run run(loss, c);
  const bool each = loss.reduction() == Reduction::none;
  double* losses = reinterpret_cast<double*>(static_cast<char*>(c.scratch) + losses_at);
  const void* logits = loss.logits(c);
  for_lines(loss.view(), loss.bytes(), 4 * loss.bytes(), [&](const Lines& lines) {
    LineStatistics s[kMaxLines];
    loss_statistics(loss.dtype(), lines, logits, run.spread_weight(), loss.smoothing() > 0, s);
    for (int64_t i = 0; i < lines.count; ++i) {
      const int64_t item = lines.item + i;
      double v = 0;
      if (!run.ignored(item)) {
        const int64_t label = run.label(item);
        const int64_t at = lines.start(i) + label * lines.inner;
        v = item_loss(loss, run, s[i], label, element(loss.dtype(), logits, at));
      }
      if (each) {
        set_element(loss.acc(), c.outputs[0], item, v);
      } else {
        losses[item] = v;
      }
      if (want_lse) set_element(loss.acc(), c.outputs[1], item, s[i].lse());
    }
  });
  if (each) return;
  const double sum = tree_sum(losses, loss.items());
  set_element(loss.acc(), c.outputs[0], 0,
              loss.reduction() == Reduction::mean ? sum / run.active_weight() : sum);
}

// ---- backward

struct BackwardOperands {
  int dy, lse;  // positions; lse is -1 if absent
};

// e^(x - lse) has the relative error |lse| ulp. For larger lse, the kernel recomputes the sum.
constexpr double kMaxLse = 16;
bool take_lse(const Loss& loss, const BackwardOperands& at, const Call& c, const Lines& lines,
              LineStatistics* out) {
  if (at.lse < 0) return false;
  for (int64_t i = 0; i < lines.count; ++i) {
    out[i] = {element(loss.acc(), c.inputs[at.lse], lines.item + i), 0, 0};
    if (!(std::fabs(out[i].max) <= kMaxLse)) return false;
  }
  return true;
}

// The gradient at the item's label, rounded once, because p - 1 would cancel.
double label_slope(const Loss& loss, const Loss::Run& run, int64_t label, double up, double log_p) {
  const double smoothing = loss.smoothing(), weight = run.class_weight(label);
  const double own = weight * std::expm1(log_p);
  if (smoothing == 0) return up * own;
  const double spread = run.total_weight() * std::exp(log_p) - weight;
  return up *
         ((1 - smoothing) * own + smoothing / static_cast<double>(loss.view().length) * spread);
}

void run_backward(const Loss& loss, const BackwardOperands& at, const Call& c) {
  const Loss::Run run(loss, c);
  const void* logits = loss.logits(c);
  const double smoothing = loss.smoothing();
  const double part = smoothing / std::max(static_cast<double>(loss.view().length), 1.0);
  const bool each = loss.reduction() == Reduction::none;
  double shared = each || loss.items() == 0 ? 0 : element(loss.acc(), c.inputs[at.dy], 0);
  if (loss.reduction() == Reduction::mean) shared /= run.active_weight();
  const bool nontemporal =
      bypasses_cache(c.outputs[0], loss.items() * loss.view().length * loss.bytes(), {logits});
  for_lines(loss.view(), loss.bytes(), 4 * loss.bytes(), [&](const Lines& lines) {
    LineStatistics s[kMaxLines];
    LineSlope slopes[kMaxLines];
    double own[kMaxLines];
    if (!take_lse(loss, at, c, lines, s))
      loss_statistics(loss.dtype(), lines, logits, nullptr, false, s);
    for (int64_t i = 0; i < lines.count; ++i) {
      const int64_t item = lines.item + i;
      slopes[i].zero = run.ignored(item);
      if (slopes[i].zero) continue;
      const int64_t label = run.label(item);
      const double up = each ? element(loss.acc(), c.inputs[at.dy], item) : shared;
      const double logit = element(loss.dtype(), logits, lines.start(i) + label * lines.inner);
      own[i] = label_slope(loss, run, label, up, (logit - s[i].max) - s[i].log_sum);
      const double scale =
          up * ((1 - smoothing) * run.class_weight(label) + part * run.total_weight());
      slopes[i] = {s[i].max, scale * std::exp(-s[i].log_sum), up * part, false};
    }
    loss_slopes(loss.dtype(), lines, logits, run.spread_weight(), slopes, nontemporal,
                c.outputs[0]);
    for (int64_t i = 0; i < lines.count; ++i)
      if (!slopes[i].zero)
        set_element(loss.dtype(), c.outputs[0],
                    lines.start(i) + run.label(lines.item + i) * lines.inner, own[i]);
  });
}

}  // namespace

Kernel make_cross_entropy(const sdk::op::cross_entropy& n, const sdk::Node&) {
  Kernel kernel;
  const Loss loss(n, kernel);
  const uint64_t losses = kernel.scratch;
  if (loss.reduction() != Reduction::none) kernel.scratch += loss.items() * sizeof(double);
  kernel.run = [loss, losses, want_lse = n.want_lse](const Call& c) {
    run_forward(loss, losses, want_lse, c);
  };
  return kernel;
}

Kernel make_cross_entropy_backward(const sdk::op::cross_entropy_backward& n, const sdk::Node&) {
  Kernel kernel;
  const Loss loss(n, kernel);
  const BackwardOperands at{n.dy.position(), n.lse.position()};
  kernel.in_place = {{n.logits.position(), 0}};
  kernel.run = [loss, at](const Call& c) { run_backward(loss, at, c); };
  return kernel;
}

}  // namespace tenon::cpu
