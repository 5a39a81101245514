// SPDX-License-Identifier: Apache-2.0
// fft, rfft and irfft of f32 parts along the last axis, as a whole. The planner decomposes others
// into these and moves of elements.
#include "fft.hpp"

#include <memory>

#include "../kernels.hpp"
#include "axis.hpp"
#include "fft_plan.hpp"
#include "fft_real.hpp"
#include "slots.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

int64_t bytes_of(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }

// Calls run(x, y, rows, scratch) for groups of rows.
template <class Run>
Kernel by_groups(int64_t rows, int64_t group, int64_t scratch_floats, int64_t cost, int64_t in,
                 int64_t out, Run run) {
  const int64_t groups = (rows + group - 1) / group;
  const Slots slots = make_slots(groups, bytes_of(scratch_floats), group * cost);
  return {.run =
              [=](const Call& c) {
                slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
                  for (int64_t g = begin; g < end; ++g) {
                    const int64_t row = g * group;
                    run(c.in<float>(0) + row * in, c.out<float>(0) + row * out,
                        std::min(group, rows - row), reinterpret_cast<float*>(area));
                  }
                });
              },
          .scratch = slots.scratch()};
}

// Few long rows: the threads share each of them.
Kernel wide(std::shared_ptr<const FftPlan> plan, int64_t rows) {
  const int64_t work = bytes_of(plan->work_floats());
  const auto share = [&](int64_t parts) {
    return make_slots(parts, work, transform_cost(plan->n) / parts);
  };
  const Slots columns = share(plan->column_blocks), groups = share(plan->row_groups);
  const uint64_t area = std::max(columns.scratch(), groups.scratch());
  const auto run = [=](const Call& c) {
    auto* middle = reinterpret_cast<float*>(static_cast<char*>(c.scratch) + area);
    for (int64_t r = 0; r < rows; ++r) {
      const float* x = c.in<float>(0) + r * 2 * plan->n;
      float* y = c.out<float>(0) + r * 2 * plan->n;
      columns.run(c.scratch, [&](int64_t begin, int64_t end, char* own) {
        for (int64_t k = begin; k < end; ++k)
          fft_columns(*plan, x, middle, k, reinterpret_cast<float*>(own));
      });
      groups.run(c.scratch, [&](int64_t begin, int64_t end, char* own) {
        for (int64_t k = begin; k < end; ++k)
          fft_rows(*plan, middle, y, k, reinterpret_cast<float*>(own));
      });
    }
  };
  return {.run = run, .scratch = area + static_cast<uint64_t>(bytes_of(plan->middle_floats()))};
}

// The axis must be the last one, and not empty. Returns its length.
int64_t last_length(int64_t axis, const sdk::Type& x) {
  if (axis != -1 && axis != x.rank - 1) throw Refusal::attribute("axis", std::to_string(axis));
  const int64_t length = x.rank > 0 ? x.dims[x.rank - 1] : 0;
  if (length < 1) throw Refusal::shape("operand x: an axis without elements");
  return length;
}
void want_length(int64_t n, int64_t length) {
  if (n != length) throw Refusal::attribute("n", std::to_string(n));
}

Kernel make_fft(const sdk::op::fft& n, const Node&) {
  const sdk::Type& x = n.x.type();
  if (x.dtype != TENON_DTYPE_C64) throw Refusal::dtype("x", x.dtype);
  if (n.axes.size() > 1) throw Refusal::attribute("axes", "of several");
  const int64_t points = last_length(n.axes.empty() ? -1 : n.axes[0], x);
  const int64_t rows = x.elements() / points;
  if (!n.n.empty()) want_length(n.n[0], points);
  const auto plan = std::make_shared<FftPlan>(
      points, n.inverse, norm_factor(n.norm, n.inverse, points), fft_lanes(), rows);
  constexpr int64_t kLong = 1 << 15, kFew = 16;
  const bool shared = plan->kind == FftPlan::Kind::split && points >= kLong && rows < kFew;
  Kernel kernel =
      shared ? wide(plan, rows)
             : by_groups(rows, plan->group(), plan->scratch_floats(), transform_cost(points),
                         2 * points, 2 * points,
                         [plan](const float* from, float* to, int64_t count, float* scratch) {
                           fft_group(*plan, from, to, count, scratch);
                         });
  kernel.prepare = [plan] { plan->fill(); };
  kernel.in_place = {{0, 0}};
  return kernel;
}

Kernel real(int64_t points, int64_t rows, bool inverse, const std::string& norm) {
  const auto t =
      std::make_shared<RealTransform>(points, inverse, norm_factor(norm, inverse, points), rows);
  const int64_t bins = 2 * t->bins();
  Kernel kernel = by_groups(rows, t->group(), t->scratch_floats(), transform_cost(points) / 2,
                            inverse ? bins : points, inverse ? points : bins,
                            [t](const float* from, float* to, int64_t count, float* scratch) {
                              t->run(from, to, count, scratch);
                            });
  kernel.prepare = [t] { t->fill(); };
  return kernel;
}

Kernel make_rfft(const sdk::op::rfft& n, const Node&) {
  const sdk::Type& x = n.x.type();
  if (x.dtype != TENON_DTYPE_F32) throw Refusal::dtype("x", x.dtype);
  const int64_t points = last_length(n.axis, x);
  if (n.n != 0) want_length(n.n, points);
  return real(points, x.elements() / points, false, n.norm);
}

Kernel make_irfft(const sdk::op::irfft& n, const Node&) {
  const sdk::Type& x = n.x.type();
  if (x.dtype != TENON_DTYPE_C64) throw Refusal::dtype("x", x.dtype);
  const int64_t bins = last_length(n.axis, x), points = n.n == 0 ? 2 * (bins - 1) : n.n;
  if (points < 1 || points / 2 + 1 != bins) throw Refusal::attribute("n", std::to_string(n.n));
  return real(points, x.elements() / bins, true, n.norm);
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::fft, make_fft>(),     sdk::row<sdk::op::rfft, make_rfft>(),
    sdk::row<sdk::op::irfft, make_irfft>(), sdk::row<sdk::op::stft, make_stft>(),
    sdk::row<sdk::op::istft, make_istft>(),
};

}  // namespace

std::span<const sdk::Row> fft_rows() { return kRows; }

}  // namespace tenon::cpu
