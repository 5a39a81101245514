// SPDX-License-Identifier: Apache-2.0
// The body of a region as text, whatever the shapes.
#pragma once

#include "frame.hpp"
#include "tenon/body.hpp"

namespace tenon::cuda {

struct RegionText {
  BodyText text{};
  std::vector<tenon_dtype> outputs{};  // as they are stored
  std::optional<Fold> fold{};          // its axis is of a shape
  std::vector<int64_t> fold_axes{};    // empty: all
  int least_rank = 0;                  // that constants alone ask for

  // Refuses a body with a step that has no text.
  explicit RegionText(const sdk::Body& body);
  // The first of the axes that are reduced; refuses those that are not the last ones.
  size_t first_folded(std::span<const int64_t> shape) const;
};

}  // namespace tenon::cuda
