// SPDX-License-Identifier: Apache-2.0
// Device text of a fused body, independent of shapes.
#pragma once

#include "frame.hpp"
#include "tenon/body.hpp"

namespace tenon::cuda {

struct FusedText {
  BodyText text{};
  std::vector<tenon_dtype> outputs{};  // as they are stored
  std::optional<Fold> fold{};          // its axes are of a shape
  std::vector<int64_t> fold_axes{};    // empty: all
  int least_rank = 0;                  // the least rank, as the constants require it

  // Refuses a body with a step that has no text.
  explicit FusedText(const sdk::Body& body);
  // The fold with the axes of that shape; refuses axes that lie apart.
  std::optional<Fold> fold_over(std::span<const int64_t> shape) const;
};

}  // namespace tenon::cuda
