// SPDX-License-Identifier: Apache-2.0
// What the soak does again and again. Each kind of work is an object of one thread; once() does it
// one time, checks every value that comes out, and throws when one is wrong.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::soak {

struct Work {
  std::string name;
  std::function<void()> once;
};

// All of it. folder: for stores and checkpoints.
std::vector<Work> all_work(const Runtime& runtime, const std::string& folder);

RuntimeOptions runtime_options();

}  // namespace tenon::soak
