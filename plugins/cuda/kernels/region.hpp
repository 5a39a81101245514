// SPDX-License-Identifier: Apache-2.0
// The body of a region as text, whatever the shapes.
#pragma once

#include "frame.hpp"
#include "tenon/body.hpp"

namespace tenon::cuda {

struct RegionText {
  BodyText text{};
  std::vector<tenon_dtype> outputs{};  // as they are stored
  std::optional<Fold> fold{};          // its axes are of a shape
  std::vector<int64_t> fold_axes{};    // empty: all
  int least_rank = 0;                  // that constants alone ask for

  // Refuses a body with a step that has no text.
  explicit RegionText(const sdk::Body& body);
  // The fold with the axes of that shape; refuses axes that lie apart.
  std::optional<Fold> fold_over(std::span<const int64_t> shape) const;
};

}  // namespace tenon::cuda
