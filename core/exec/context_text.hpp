// SPDX-License-Identifier: Apache-2.0
// Checks the types of tensors for a context, and lists the names of a graph. Private to exec.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "host/device.hpp"
#include "ir/graph.hpp"

namespace tenon::core {

// Dims that are symbols fit any number.
inline void check_type(std::string_view who, const Type& wanted, const Type& got) {
  bool fits = got.shape.rank() == wanted.shape.rank();
  for (int i = 0; fits && i < got.shape.rank(); ++i)
    fits = is_symbol(wanted.shape[i]) || wanted.shape[i] == got.shape[i];
  if (got.dtype != wanted.dtype || !fits)
    fail(got.dtype != wanted.dtype ? Code::dtype_mismatch : Code::shape_mismatch, who,
         ": expected ", wanted.text(), ", got ", got.text());
}

// "; it has 'x', 'y'", or nothing.
template <class List, class NameOf>
std::string list_of(std::string_view before, const List& list, NameOf name_of) {
  std::string text;
  for (const auto& item : list) text += cat(text.empty() ? before : ", ", "'", name_of(item), "'");
  return text;
}
inline std::string ids_of(std::span<const std::shared_ptr<Device>> devices) {
  std::string text;
  for (const auto& d : devices) text += cat(text.empty() ? "" : ", ", d->info().id);
  return text;
}
inline std::string inputs_of(std::string_view before, const Graph& graph) {
  return list_of(before, graph.inputs(), [&](Value v) { return graph[v].name; });
}
inline std::string outputs_of(std::string_view before, const Graph& graph) {
  return list_of(before, graph.outputs(), [](const Output& o) { return o.name; });
}

}  // namespace tenon::core
