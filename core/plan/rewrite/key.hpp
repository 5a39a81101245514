// SPDX-License-Identifier: Apache-2.0
// Byte strings that are equal where nodes are: keys of the tables of passes.
#pragma once

#include "ir/graph.hpp"

namespace tenon::core {

template <class T>
void append_key(std::string& key, const T& plain) {
  static_assert(std::is_trivially_copyable_v<T>);
  key.append(reinterpret_cast<const char*>(&plain), sizeof plain);
}
void append_key(std::string& key, const Attr& attr);
void append_key(std::string& key, const Type& type);

// What bodies have in common that differ in their shapes, not in their ranks, alone.
std::string body_form(const Graph& body);

}  // namespace tenon::core
