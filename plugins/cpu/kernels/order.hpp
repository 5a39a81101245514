// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the order family.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cpu {

// The order key of an element, and its index in the row.
struct Ranked {
  int64_t key;
  int64_t index;
};

// The k largest of x[0, n), in descending order; equal ones by index. k <= n. `entries` has room
// for top_room(n, k).
int64_t top_room(int64_t n, int64_t k);
void top_of_row(const float* x, int64_t n, int64_t k, Ranked* entries);

sdk::Kernel make_argmax(const sdk::op::argmax& n, const sdk::Node& node);
sdk::Kernel make_argmin(const sdk::op::argmin& n, const sdk::Node& node);
sdk::Kernel make_topk(const sdk::op::topk& n, const sdk::Node& node);
sdk::Kernel make_sort(const sdk::op::sort& n, const sdk::Node& node);

}  // namespace tenon::cpu
