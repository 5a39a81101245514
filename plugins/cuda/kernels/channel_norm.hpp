// SPDX-License-Identifier: Apache-2.0
// What group_norm and layer_norm2d share: an image batch, and the
// gradients of the parameters, made from sums by channel.
#pragma once

#include <string>
#include <vector>

#include "../code.hpp"
#include "args.hpp"
#include "entries.hpp"
#include "tenon/norm_ops.hpp"

namespace tenon::cuda {

struct ImageBatch : sdk::NormImages {
  tenon_dtype dtype, acc;
  double eps;

  ImageBatch(const sdk::Value& x, double eps);
  // What the kernels are told of dtypes. out: of a parameter's gradient.
  std::vector<std::string> defines(const sdk::Value& gamma, const sdk::Value& beta,
                                   tenon_dtype out) const;
  // The dtype of dgamma or dbeta at an output; x's where neither is wanted.
  tenon_dtype gradient_dtype(const sdk::Node& node, int dgamma, int dbeta) const;
};

// Sums by channel in scratch, `count` rows of `each` for a channel, become dgamma and dbeta.
struct ChannelGradients {
  int dgamma = -1, dbeta = -1;  // output positions, -1 = not wanted
  int64_t count = 0, channels = 0, each = 1;
  uint64_t offset = 0;
  int64_t join = 32;
  bool early = false;  // Grid::early
  CodeFor<entries::group_norm_parameters> code{};

  bool wanted() const { return dgamma >= 0 || dbeta >= 0; }
  // Takes their scratch. The code is asked for with JOIN=join.
  void place(const ImageBatch& image, uint64_t& scratch);
  void* sums(const sdk::Call& c) const;  // null when none is wanted
  void run(const sdk::Call& c) const;
};

sdk::Kernel make_layer_norm2d(const sdk::op::layer_norm2d& n, const sdk::Node& node);
sdk::Kernel make_layer_norm2d_backward(const sdk::op::layer_norm2d_backward& n,
                                       const sdk::Node& node);

}  // namespace tenon::cuda
