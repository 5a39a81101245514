// SPDX-License-Identifier: Apache-2.0
// What tenon_large runs: graphs whose every output element is known from its index.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::large {

inline constexpr int64_t kLimit = int64_t{1} << 31;

using Expected = std::function<double(int64_t)>;  // of element i of an output
struct Case {
  std::string name;
  std::map<std::string, int64_t> numbers;  // $A in the body is numbers["A"]
  std::string body;
  std::vector<std::pair<std::string, Expected>> outputs;
};

// Each with some tensor of more than `limit` elements.
std::vector<Case> cases(int64_t limit);

}  // namespace tenon::large
