// SPDX-License-Identifier: Apache-2.0
// Graphs of which a plugin that fuses makes one node, by name: the op, and the note that says of
// what. What every such plugin is held to.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::test {

struct Form {
  const char* name;
  const char* text;  // its statements; T is the dtype
  std::vector<const char*> outputs;
  const char* op;
  const char* note;

  Graph graph(const std::string& dtype) const {
    std::string all = std::string("graph {\n") + text;
    for (size_t at = 0; (at = all.find(" T[", at)) != std::string::npos;)
      all.replace(at + 1, 1, dtype);
    for (const std::string out : outputs) all += "\noutput \"" + out + "\" = " + out;
    return Graph::parse(all + "\n}", name);
  }
};

// Products of one left operand. Plugins differ on whether they are taken together.
inline const Form& projections() {
  static const Form the{"q, k and v",
                        R"(
    input x: T[5,13]
    weight wq: T[13,8]
    weight wk: T[13,4]
    weight wv: T[13,4]
    q = matmul(x, wq)
    k = matmul(x, wk)
    v = matmul(x, wv))",
                        {"q", "k", "v"},
                        "batch_linear",
                        "joined: matmul + matmul + matmul"};
  return the;
}

// Plugins differ on which axes a region may be reduced over, too.
inline const Form& sum_over_columns() {
  static const Form the{"sum over columns of squares",
                        R"(
    input x: T[5,13]
    weight c: T[13]
    d = binary(x, c) {kind="sub"}
    e = unary(d) {kind="square"}
    y = reduce(e) {kind="sum", axes=[0]})",
                        {"y"},
                        "elementwise_region",
                        "joined: binary sub + unary square + reduce sum"};
  return the;
}

inline const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"product, bias, activation and residual",
       R"(
    input x: T[5,13]
    weight w: T[13,9]
    weight bias: T[9]
    input r: T[5,9]
    p = matmul(x, w)
    z = binary(p, bias) {kind="add"}
    h = unary(z) {kind="gelu"}
    y = binary(h, r) {kind="add"})",
       {"y"},
       "linear",
       "joined: matmul + binary add + unary gelu + binary add"},
      {"silu of a product that leaves too",
       R"(
    input x: T[5,13]
    weight w: T[13,9]
    weight bias: T[9]
    p = matmul(x, w)
    z = binary(p, bias) {kind="add"}
    y = unary(z) {kind="silu"})",
       {"y", "z"},
       "linear",
       "joined: matmul + binary add + unary silu"},
      {"rms_norm of a sum",
       R"(
    input x: T[5,13]
    input r: T[5,13]
    weight gamma: T[13]
    s = binary(x, r) {kind="add"}
    y = rms_norm(s, gamma))",
       {"y"},
       "residual_rms_norm",
       "joined: binary add + rms_norm"},
      {"rms_norm of a sum that leaves too",
       R"(
    input x: T[5,13]
    input r: T[5,13]
    weight gamma: T[13]
    s = binary(x, r) {kind="add"}
    y = rms_norm(s, gamma))",
       {"y", "s"},
       "residual_rms_norm",
       "joined: binary add + rms_norm"},
      {"layer_norm of a sum",
       R"(
    input x: T[5,13]
    input r: T[5,13]
    weight gamma: T[13]
    weight beta: T[13]
    s = binary(x, r) {kind="add"}
    y = layer_norm(s, gamma, beta))",
       {"y"},
       "residual_layer_norm",
       "joined: binary add + layer_norm"},
      {"layer_norm of a sum that leaves too",
       R"(
    input x: T[5,13]
    input r: T[5,13]
    weight gamma: T[13]
    weight beta: T[13]
    s = binary(x, r) {kind="add"}
    y = layer_norm(s, gamma, beta))",
       {"y", "s"},
       "residual_layer_norm",
       "joined: binary add + layer_norm"},
      {"gate",
       R"(
    input g: T[5,13]
    input u: T[5,13]
    a = unary(g) {kind="silu"}
    y = binary(a, u) {kind="mul"})",
       {"y"},
       "swiglu",
       "joined: unary silu + binary mul"},
      {"sum over rows of squares",
       R"(
    input x: T[5,13]
    weight c: T[13]
    d = binary(x, c) {kind="sub"}
    e = unary(d) {kind="square"}
    y = reduce(e) {kind="sum", axes=[1]})",
       {"y"},
       "elementwise_region",
       "joined: binary sub + unary square + reduce sum"},
  };
  return all;
}

struct Reported {
  std::string op, note;
};

// What a form becomes where it is taken as a whole.
inline std::vector<Reported> one_node(const Form& form) { return {{form.op, form.note}}; }

// The nodes are these, in their order, and the device that was asked for runs each.
inline void check_nodes(const Executable& executable, const std::vector<Reported>& expected) {
  const auto nodes = nlohmann::json::parse(executable.report())["nodes"];
  CHECK_MESSAGE(nodes.size() == expected.size(), nodes.dump(1));
  for (size_t n = 0; n < std::min(nodes.size(), expected.size()); ++n) {
    CHECK(nodes[n]["op"] == expected[n].op);
    CHECK(nodes[n]["note"] == expected[n].note);
    CHECK(nodes[n]["verdict"] == "native");
  }
}

}  // namespace tenon::test
