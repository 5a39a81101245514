// SPDX-License-Identifier: Apache-2.0
// The small model that api.py writes (TENON_TINY: a folder that has `tiny` and `tiny.gguf`), and an
// engine for the tests of it.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <tenon/llm.hpp>

namespace tenon::test {

inline std::string path_of(const std::string& name) {
  const char* folder = std::getenv("TENON_TINY");
  REQUIRE(folder);
  return std::string(folder) + "/" + name;
}

// One runtime and one engine with two slots, which are empty at first.
struct Rig {
  Runtime runtime;
  llm::Engine engine{runtime, path_of("tiny"), {.device = "cpu", .slots = 2}};
};
inline Rig& rig() {
  static Rig the;
  the.engine.clear(0), the.engine.clear(1);
  return the;
}

}  // namespace tenon::test
