// SPDX-License-Identifier: Apache-2.0
// group_norm and its backward op: scratch memory, and distribution of the planes. Sums are computed
// per plane and combined in a fixed order. layer_norm2d is in channel_norm_pixels.cpp.
#include "channel_norm.hpp"

#include <cmath>

#include "../kernels.hpp"
#include "channel_norm_image.hpp"
#include "nontemporal.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Value;

// An array of doubles in scratch.
struct Doubles {
  uint64_t offset = 0;
  Doubles() = default;
  Doubles(int64_t count, uint64_t& scratch) : offset(scratch) {
    scratch += (static_cast<uint64_t>(count) * sizeof(double) + 63) / 64 * 64;
  }
  double* at(const Call& c) const {
    return reinterpret_cast<double*>(static_cast<char*>(c.scratch) + offset);
  }
};

// Groups of `each` consecutive planes.
struct Groups {
  Image image;
  int64_t count = 0, each = 0;

  Groups(const Value& x, int64_t groups, double eps) : image(x, eps) {
    count = image.batch * groups, each = image.channels / groups;
  }
  int64_t elements() const { return each * image.pixels; }

  // Runs the steps in order; even steps run per plane, odd steps per group. Many groups run one
  // after another, so that a group stays in cache; few groups run step by step.
  template <class... Step>
  void run(Step&&... steps) const {
    constexpr int64_t kMany = 8;
    const int64_t groups = count, planes = each;
    if (groups >= kMany) {
      parallel_for(groups, grain_for(planes * image.plane_bytes() * 4),
                   [&](int64_t g, int64_t end) {
                     for (; g < end; ++g) {
                       bool of_group = true;
                       const auto step = [&](auto& work) {
                         of_group = !of_group;
                         if (of_group) return work(g);
                         for (int64_t p = g * planes; p < (g + 1) * planes; ++p) work(p);
                       };
                       (step(steps), ...);
                     }
                     nontemporal_fence();
                   });
      return;
    }
    bool of_group = true;
    const auto step = [&](auto& work) {
      of_group = !of_group;
      for (int64_t g = 0; of_group && g < groups; ++g) work(g);
      if (of_group) return;
      parallel_for(groups * planes, grain_for(image.plane_bytes() * 2),
                   [&](int64_t p, int64_t end) {
                     for (; p < end; ++p) work(p);
                     nontemporal_fence();
                   });
    };
    (step(steps), ...);
  }

  // Mean and 1/sqrt(variance + eps) of a group, from the moments of its planes, which have equal
  // sizes.
  void join_moments(const PlaneMoments* planes, double* stats) const {
    double mean = 0, squares = 0;
    for (int64_t k = 0; k < each; ++k) mean += planes[k].mean;
    mean /= static_cast<double>(each);
    for (int64_t k = 0; k < each; ++k) {
      const double off = planes[k].mean - mean;
      squares += planes[k].squares + static_cast<double>(image.pixels) * off * off;
    }
    stats[0] = mean;
    stats[1] = 1 / std::sqrt(squares / static_cast<double>(elements()) + image.eps);
  }
};

Kernel make_group_norm(const sdk::op::group_norm& n, const sdk::Node&) {
  const Groups groups(n.x, n.groups, n.eps);
  const Image& m = groups.image;
  Kernel kernel;
  const NormParameter gamma = m.parameter(n.gamma, kernel.scratch);
  const NormParameter beta = m.parameter(n.beta, kernel.scratch);
  const Doubles moments(2 * m.planes(), kernel.scratch), stats(2 * groups.count, kernel.scratch);
  kernel.in_place = {{n.x.position(), 0}};
  kernel.run = [=, x = n.x.position(), mean = n.want_mean ? 1 : -1,
                inv = n.want_inv_std ? 2 : -1](const Call& c) {
    const Image& m = groups.image;
    const void* gammas = gamma.prepare(c);
    const void* betas = beta.prepare(c);
    auto* plane = reinterpret_cast<PlaneMoments*>(moments.at(c));
    double* group = stats.at(c);
    const bool nontemporal =
        bypasses_cache(c.outputs[0], m.planes() * m.plane_bytes(), {c.inputs[x]});
    groups.run(
        [&](int64_t p) {
          if (m.pixels > 0)
            plane[p] = plane_moments(m.dtype, plane_of(m, c.inputs[x], p), m.pixels);
        },
        [&](int64_t g) {
          double* s = group + 2 * g;
          if (groups.elements() > 0) {
            groups.join_moments(plane + g * groups.each, s);
          } else {
            s[0] = s[1] = NAN;
          }
          if (mean >= 0) m.set_number(c.outputs[mean], g, s[0]);
          if (inv >= 0) m.set_number(c.outputs[inv], g, s[1]);
        },
        [&](int64_t p) {
          const double* s = group + 2 * (p / groups.each);
          const int64_t channel = p % m.channels;
          plane_normalize(m.dtype, plane_of(m, c.inputs[x], p), plane_of(m, c.outputs[0], p),
                          m.pixels,
                          {s[0], s[1], gammas ? m.number(gammas, channel) : 1,
                           betas ? m.number(betas, channel) : 0},
                          nontemporal);
        });
  };
  return kernel;
}

Kernel make_group_norm_backward(const sdk::op::group_norm_backward& n, const sdk::Node& node) {
  const Groups groups(n.x, n.groups, n.eps);
  const Image& m = groups.image;
  Kernel kernel;
  const NormParameter gamma = m.parameter(n.gamma, kernel.scratch);
  const ChannelOutput dgamma(node, n.want_dgamma ? 1 : -1), dbeta(node, n.want_dbeta ? 2 : -1);
  const Doubles moments(2 * m.planes(), kernel.scratch), stats(2 * groups.count, kernel.scratch),
      sums(2 * m.planes(), kernel.scratch), means(2 * groups.count, kernel.scratch);
  if (n.want_dx) kernel.in_place = {{n.dy.position(), 0}, {n.x.position(), 0}};
  const bool given = n.mean && n.inv_std;
  kernel.run = [=, dy = n.dy.position(), x = n.x.position(), mean = n.mean.position(),
                inv = n.inv_std.position(), dx = n.want_dx](const Call& c) {
    const Image& m = groups.image;
    const void* gammas = gamma.prepare(c);
    auto* plane = reinterpret_cast<PlaneMoments*>(moments.at(c));
    auto* plane_sum = reinterpret_cast<PlaneSums*>(sums.at(c));
    double *group = stats.at(c), *mean_of = means.at(c);
    const auto gamma_of = [&](int64_t p) { return gammas ? m.number(gammas, p % m.channels) : 1; };
    const auto measure = [&](int64_t p) {
      if (!given && m.pixels > 0)
        plane[p] = plane_moments(m.dtype, plane_of(m, c.inputs[x], p), m.pixels);
    };
    const auto statistics = [&](int64_t g) {
      double* s = group + 2 * g;
      if (given) {
        s[0] = m.number(c.inputs[mean], g), s[1] = m.number(c.inputs[inv], g);
      } else if (groups.elements() > 0) {
        groups.join_moments(plane + g * groups.each, s);
      }
    };
    const auto add_up = [&](int64_t p) {
      const double* s = group + 2 * (p / groups.each);
      plane_sum[p] = plane_sums(m.dtype, plane_of(m, c.inputs[dy], p), plane_of(m, c.inputs[x], p),
                                m.pixels, s[0], s[1]);
    };
    const auto average = [&](int64_t g) {
      if (!dx || groups.elements() == 0) return;
      double g_sum = 0, gx_sum = 0;
      for (int64_t p = g * groups.each; p < (g + 1) * groups.each; ++p) {
        g_sum += gamma_of(p) * plane_sum[p].dy;
        gx_sum += gamma_of(p) * plane_sum[p].dy_x;
      }
      mean_of[2 * g] = g_sum / static_cast<double>(groups.elements());
      mean_of[2 * g + 1] = gx_sum / static_cast<double>(groups.elements());
    };
    const bool nontemporal = dx && bypasses_cache(c.outputs[0], m.planes() * m.plane_bytes(),
                                                  {c.inputs[dy], c.inputs[x]});
    const auto differentiate = [&](int64_t p) {
      if (!dx) return;
      const int64_t g = p / groups.each;
      plane_gradient(m.dtype, plane_of(m, c.inputs[dy], p), plane_of(m, c.inputs[x], p),
                     plane_of(m, c.outputs[0], p), m.pixels,
                     {group[2 * g], group[2 * g + 1], gamma_of(p), 0}, mean_of[2 * g],
                     mean_of[2 * g + 1], nontemporal);
    };
    groups.run(measure, statistics, add_up, average, differentiate);
    for (int64_t k = 0; k < m.channels && (dgamma.position >= 0 || dbeta.position >= 0); ++k) {
      PlaneSums total{0, 0};
      for (int64_t p = k; p < m.planes(); p += m.channels)
        total.dy += plane_sum[p].dy, total.dy_x += plane_sum[p].dy_x;
      dgamma.set(c, k, total.dy_x);
      dbeta.set(c, k, total.dy);
    }
  };
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::group_norm, make_group_norm>(),
    sdk::row<sdk::op::group_norm_backward, make_group_norm_backward>(),
    sdk::row<sdk::op::layer_norm2d, make_layer_norm2d>(),
    sdk::row<sdk::op::layer_norm2d_backward, make_layer_norm2d_backward>(),
};

}  // namespace

std::span<const sdk::Row> channel_norm_rows() { return kRows; }

}  // namespace tenon::cpu
