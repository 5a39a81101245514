// SPDX-License-Identifier: Apache-2.0
// The inputs of tenon run: from files, random, or zeros.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.hpp"

namespace tenon::cli {

struct RunInput {
  std::string name{};
  Tensor tensor{};
  std::string origin{};  // for people: "x.npy", "random, seed 1"
};

// Reads --input, --bind and --seed. Inputs that --input does not name are random. Files give symbols
// their numbers; --bind gives those that no file has.
std::vector<RunInput> inputs_from(const Args& args, const Graph& graph);

}  // namespace tenon::cli
