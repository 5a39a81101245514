// SPDX-License-Identifier: Apache-2.0
// Opens the graph that a command line names: an ONNX file, a text file, or a part of a model folder.
#pragma once

#include <string>

#include "cli/command.hpp"

namespace tenon::cli {

Option part_option();      // part of a model folder
Option bind_option();      // symbols of a graph
Option constant_option();  // inputs of an ONNX model that become constants

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct SourceOptions {
  // Of the parts of a model folder:
  int64_t batch = 1;
  bool checkpoint = false;
  // Of an ONNX file:
  Store* store = nullptr;    // gets the weights; null: they are not read
  NamedTensors constants{};  // inputs that become constants
};

// what: an ONNX file, a graph file, or a folder with config.json, to which part applies.
Graph graph_from(const std::string& what, const std::string& part,
                 const SourceOptions& options = {});
// Reads --constant.
NamedTensors constants_from(const Args& args);
// Refuses --part, --batch, --checkpoint and --constant where they have no effect.
void check_part(const Args& args, const std::string& what);
// Parses "--bind N=4".
std::vector<std::pair<std::string, int64_t>> bindings_from(const Args& args);

}  // namespace tenon::cli
