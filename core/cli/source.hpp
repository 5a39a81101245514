// SPDX-License-Identifier: Apache-2.0
// Opens the graph that a command line names: a text file, or a part of a model folder.
#pragma once

#include <string>

#include "cli/command.hpp"

namespace tenon::cli {

Option part_option();  // part of a model folder
Option bind_option();  // symbols of a graph

// Options of the parts of a model folder.
struct PartOptions {
  int64_t batch = 1;
  bool checkpoint = false;
};

// what: a graph file, or a folder with config.json, to which part and options apply.
Graph graph_from(const std::string& what, const std::string& part, const PartOptions& options = {});
// Refuses --part, --batch and --checkpoint where they have no effect.
void check_part(const Args& args, const std::string& what);
// Parses "--bind N=4".
std::vector<std::pair<std::string, int64_t>> bindings_from(const Args& args);

}  // namespace tenon::cli
