// SPDX-License-Identifier: Apache-2.0
// Does a generated text compile for every architecture that is supported, and wait where it is
// launched early?
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "compiler.hpp"
#include "ptx.hpp"
#include "tenon/kernel.hpp"
#include "texts.hpp"

namespace tenon::cuda {

// Ends a test program that can compile nothing.
inline void skip_without_compiler() {
  if (compiler()) return;
  std::cout << "skipped: " << compiler().reason() << "\n";
  std::exit(77);
}

// PTX for sm_90 with its own features.
inline std::string ptx_of(const std::string& name, const std::string& text) {
  return compiler().compile(name, text, compile_options("compute_90a"), texts());
}

// Whatever waits for the kernels before it does nothing else before.
inline void check_waits(const std::string& name, const std::string& text) {
  const Ptx ptx(ptx_of(name, text));
  bool waits = false;
  for (const PtxKernel& kernel : ptx.kernels()) {
    CAPTURE(name);
    CAPTURE(kernel.name);
    waits |= EarlyStart(kernel).waits();
    CHECK(EarlyStart(kernel).fault() == "");
  }
  CHECK(waits);
}

inline void check_compiles(const std::string& name, const std::string& text) {
  for (const int number : {75, 80, 90, 100, 120}) {
    if (!compiler().knows(number / 10, number % 10)) {
      MESSAGE("NVRTC ", compiler().version(), " knows no sm_", number);
      continue;
    }
    const std::string architecture = Compiler::architecture(number / 10, number % 10);
    CAPTURE(name);
    CAPTURE(architecture);
    const std::vector<std::string> options = compile_options(architecture);
    std::string code;
    CHECK_NOTHROW(code = compiler().compile(name, text, options, texts()));
    CHECK(code.size() > 100);
    CHECK(code.compare(0, 4, "\177ELF") == 0);
  }
  check_waits(name, text);
}

inline sdk::Type dense_type(tenon_dtype dtype, const std::vector<int64_t>& dims) {
  sdk::Type t{.dtype = dtype, .rank = static_cast<int>(dims.size())};
  std::copy(dims.begin(), dims.end(), t.dims.begin());
  t.set_dense_strides();
  return t;
}

}  // namespace tenon::cuda
