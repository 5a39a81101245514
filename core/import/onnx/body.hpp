// SPDX-License-Identifier: Apache-2.0
// Subgraphs of ONNX as functions of tenon.
#pragma once

#include <memory>

#include "import/onnx/scope.hpp"
#include "ops/control.hpp"

namespace tenon::core::onnx {

// Values of the graph around subgraphs that these read by name, nested ones included. They become
// the last inputs of each function. What is known stays known and needs no input.
struct Captured {
  std::vector<std::pair<std::string, Value>> values{};
  std::vector<std::pair<std::string, Item>> known{};
  std::vector<Value> list() const {
    std::vector<Value> out;
    for (const auto& [name, v] : values) out.push_back(v);
    return out;
  }
};
Captured captured_by(Call& call, std::initializer_list<const Graph*> graphs);

// A subgraph that is written as a function.
class Body {
 public:
  Body(Call& call, const Graph& graph, const Captured& captured);

  // Sets inputs in order: of a type, or known. All of them, then run().
  Value input(const Type& type);
  void known_input(Known content);
  void run(const Captured& captured);
  const Item& output(size_t k) const;
  Value output_value(size_t k);
  size_t outputs() const { return from_.outputs.size(); }
  // Was some node refused?
  bool refused() const { return call_.scope.all.refusals.size() > refusals_; }

  core::Graph graph;
  Builder b;

 private:
  Call& call_;
  const Graph& from_;
  const size_t refusals_;
  Scope scope_;
  size_t next_ = 0;
};

// Runs a subgraph in place. Returns its outputs.
std::vector<Item> run_in_place(Call& call, const Graph& graph, std::vector<Item> inputs);

}  // namespace tenon::core::onnx
