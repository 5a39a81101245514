// SPDX-License-Identifier: Apache-2.0
// What the files of the order family owe each other: the makers, and sorts of lines of which the
// first k elements are wanted.
#pragma once

#include <string>
#include <vector>

#include "../device.hpp"
#include "entries.hpp"
#include "lines.hpp"

namespace tenon::cuda {

using args::Entries;
using args::OrderLines;

// One op: what it looks at, and in which direction.
struct OrderProblem {
  CudaDevice* device;
  OrderLines lines;
  std::string type;
  int64_t bytes;  // of an element, and of its key
  bool down;      // the greatest first

  std::vector<std::string> defines() const { return {"TYPE=" + type, define("DOWN", down)}; }
};
// Refuses what has no order.
OrderProblem order_problem(const sdk::Type& x, int64_t axis, int64_t k, bool down,
                           const sdk::Node& node);

// The threads of a block that holds a line, and each one's items.
struct OrderBlock {
  int64_t threads, items;
  std::vector<std::string> defines() const {
    return {define("THREADS", threads), define("ITEMS", items)};
  }
};
OrderBlock order_block(int64_t elements);
inline constexpr int64_t kOrderMost = 8192;  // elements of a block
// How many elements a block can sort.
int64_t sortable(const OrderProblem& p);

// Sorts lines of at most sortable() elements: of x, or `count` entries of each line.
struct WholeSort {
  WholeSort(const OrderProblem& p, int64_t count, bool from_entries);
  void launch(const sdk::Call& c, const Entries& from) const {
    code.launch(c, grid, c.inputs[0], from, c.outputs[0], c.outputs[1], lines);
  }
  CodeFor<entries::sort_whole> code;
  Grid grid;
  OrderLines lines;
};

// Sorts lines of any length.
sdk::Kernel sort_lines(const OrderProblem& p);

sdk::Kernel make_topk(const sdk::op::topk& n, const sdk::Node& node);
sdk::Kernel make_sort(const sdk::op::sort& n, const sdk::Node& node);

}  // namespace tenon::cuda
