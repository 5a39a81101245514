// SPDX-License-Identifier: Apache-2.0
// Stored inputs and outputs of a model, in the layout of ONNX's own test data: input_0.pb ...,
// output_0.pb ..., each a TensorProto.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/command.hpp"

namespace tenon::cli {

struct TestData {
  std::string folder{};
  std::vector<std::string> inputs{}, outputs{};  // files, by their numbers
};

// The sets of a folder: the folder itself, or those in test_data_set_N. Throws if there is none, or
// if a number is left out.
std::vector<TestData> test_data(const std::string& folder);

// By the names of the tensors where the model has them, else by their numbers. Inputs that
// --constant names are left out.
std::vector<std::pair<std::string, Tensor>> inputs_of(const TestData& data, const Graph& graph,
                                                      const Args& args);
std::vector<std::pair<std::string, Tensor>> outputs_of(const TestData& data, const Graph& graph);

}  // namespace tenon::cli
