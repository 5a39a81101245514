// SPDX-License-Identifier: Apache-2.0
// What the files of the order family owe each other.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cpu {

// An element by its order key and its place in the row.
struct Ranked {
  int64_t key;
  int64_t index;
};

// The k greatest of x[0, n), greatest first, equal ones by index; entries has room for top_room(n,
// k). k <= n.
int64_t top_room(int64_t n, int64_t k);
void top_of_row(const float* x, int64_t n, int64_t k, Ranked* entries);

sdk::Kernel make_argmax(const sdk::op::argmax& n, const sdk::Node& node);
sdk::Kernel make_argmin(const sdk::op::argmin& n, const sdk::Node& node);
sdk::Kernel make_topk(const sdk::op::topk& n, const sdk::Node& node);
sdk::Kernel make_sort(const sdk::op::sort& n, const sdk::Node& node);

}  // namespace tenon::cpu
