// SPDX-License-Identifier: Apache-2.0
// Makes one node and shows what its shape rule said: types as text, or code and words of a refusal.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "ops/build.hpp"

namespace tenon::core {

class Rig {
 public:
  Value operator()(DType dtype, Shape shape) {
    return graph.input(cat("in", count_++), {dtype, shape});
  }
  template <class Op>
  std::string infer(const Op& op, size_t output = 0) {
    const NodeId node = graph.add(op, "here");
    return graph.type(graph[node].outputs[output]).text();
  }
  // All of `words` stand in the message, which opens with op and node.
  template <class Op>
  void refuses(const Op& op, Code code, std::initializer_list<std::string_view> words) {
    try {
      graph.add(op, "here");
    } catch (const Error& e) {
      const std::string text = e.what();
      CAPTURE(text);
      CHECK(e.code() == code);
      CHECK(text.starts_with(cat(Op::kName, " 'here'")));
      for (const std::string_view word : words) {
        CAPTURE(word);
        CHECK(text.find(word) != std::string::npos);
      }
      return;
    }
    FAIL_CHECK("not refused: ", std::string(Op::kName));
  }
  Graph graph;

 private:
  int count_ = 0;
};

}  // namespace tenon::core
