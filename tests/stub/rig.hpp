// SPDX-License-Identifier: Apache-2.0
// Finds the stub instead of NVIDIA's libraries, and checks what must be true of it at the end.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <string>

#include "control.hpp"
#include "machine.hpp"

namespace tenon::test {

// Before anything looks for the libraries. No cache of machine code unless a test wants one.
inline const bool kEnvironment = [] {
  setenv("TENON_CUDA_PATH", TENON_STUB_LIBRARIES, 1);
  setenv("TENON_CUDA_CACHE", "", 1);
  return true;
}();

inline std::string error_of(const auto& call, tenon_code* code = nullptr) {
  try {
    call();
  } catch (const Error& e) {
    if (code) *code = e.code();
    return e.what();
  }
  if (code) *code = TENON_OK;
  return {};
}

// At the end of every test: nothing is left on the device, and nothing was used that was gone.
inline void check_clean() {
  CHECK(std::string(stub_alive()) == "");
  CHECK(std::string(stub_orphans()) == "");
  CHECK(std::string(stub_misuse()) == "");
  CHECK(std::string(stub_not_emulated()) == "");
}

inline bool has(const std::string& text, std::string_view word) {
  if (text.find(word) != std::string::npos) return true;
  MESSAGE("'", text, "' does not say '", word, "'");
  return false;
}

}  // namespace tenon::test
