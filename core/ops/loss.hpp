// SPDX-License-Identifier: Apache-2.0
// What losses share: reductions, and items with one label of several classes.
#pragma once

#include "ops/record.hpp"

namespace tenon::core {

// The type of a loss, from that of one loss per item.
Type loss_type(std::string_view reduction, const Type& items);
// The loss, from those of all items; a mean divides by the number of items.
Value reduce_loss(Builder& b, std::string_view reduction, Value each);

// Checks x, labels and weight of a loss with one label per item. Returns the type of one loss per
// item.
struct LabelOperands {
  int64_t axis, ignore_index;
  Value x;
  std::string_view x_name;
  Value labels, weight;
};
Type want_labels(const Infer& i, const LabelOperands& n);

// The same operands in a decomposition.
struct Items {
  int axis;
  Dim classes;
  Value x;        // widened
  Value ignored;  // bool per item
  Value label;    // per item, in [0, classes), or refused at run time; 0 if ignored
  Value weight;   // per class, widened; absent = 1
  Value own;      // weight of the label's class, 0 if ignored; absent without weights
};
Items items_of(Builder& b, const LabelOperands& n);
// An index, or dim: a negative index is an error, like one that is too large.
Value strict_index(Builder& b, Value index, Dim dim);
// The element of x at the label of each item.
Value at_label(Builder& b, const Items& it);
// Values per class along the axis, broadcastable to x.
Value along_axis(Builder& b, const Items& it, Value per_class);
// The sum of the weights of items that are not ignored.
Value total_weight(Builder& b, const Items& it);
// The loss, from those of all items; a mean divides by total_weight().
Value reduce_loss(Builder& b, std::string_view reduction, Value each, const Items& it);

}  // namespace tenon::core
