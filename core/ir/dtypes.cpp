// SPDX-License-Identifier: Apache-2.0
// Infers types with numbers in place of symbols.
#include "ir/dtypes.hpp"

namespace tenon::core {
namespace {

// 1 broadcasts with everything, 5040 has many divisors and is longer than most windows and slices.
constexpr Dim kNumbers[] = {1, 5040, 2, 8, 64, 3, 5, 0};

}  // namespace

// Adds values in the order of their ids, so that both graphs number them alike.
void DTypes::follow(const Graph& graph, Value value) {
  Graph& copy = *copy_;
  for (uint32_t next = copy.value_count(); next <= value.id; next = copy.value_count()) {
    const ValueInfo& info = graph[Value{next}];
    switch (info.space) {
      case Space::input: {
        Type type = info.type;
        for (int i = 0; i < type.shape.rank(); ++i)
          if (is_symbol(type.shape[i])) type.shape[i] = kNumbers[number_];
        copy.input(info.name, type);
        break;
      }
      case Space::weight:
        copy.weight(info.name, info.type);
        break;
      case Space::state:
        copy.state(info.name, info.type);
        break;
      case Space::constant:
        copy.constant(info.type, info.data);
        break;
      case Space::node: {
        if (info.node < copy.node_count()) {
          copy.want_output(info.node, info.output);
          break;
        }
        const NodeInfo& node = graph[info.node];
        std::vector<bool> wanted;
        uint32_t id = next;
        // An output that became wanted later has a later id, and its turn is then.
        for (const Value v : node.outputs) {
          wanted.push_back(v && v.id == id);
          id += wanted.back();
        }
        copy.add_node(*node.op, Operands(node.operands, node.lists), node.attrs, std::move(wanted),
                      node.provenance);
        break;
      }
    }
  }
}

DType DTypes::of(const Graph& graph, Value value) {
  if (const DType known = graph.type(value).dtype; known != TENON_DTYPE_NONE) return known;
  for (; number_ < std::size(kNumbers); ++number_) {
    try {
      if (!copy_) copy_.emplace();
      follow(graph, value);
      return copy_->type(value).dtype;
    } catch (const Error&) {  // a node refuses this number
      copy_.reset();
    }
  }
  number_ = 0;
  return TENON_DTYPE_NONE;
}

}  // namespace tenon::core
