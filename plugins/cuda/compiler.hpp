// SPDX-License-Identifier: Apache-2.0
// NVRTC, found at run time: kernel text to machine code of one architecture.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "library.hpp"

namespace tenon::cuda {

using CompilerProgram = struct CompilerProgramHandle*;

// A text that others include by name.
struct Text {
  std::string_view name, content;
};

class Compiler {
 public:
  explicit operator bool() const { return reason_.empty(); }
  const std::string& reason() const { return reason_; }  // why it cannot be used
  const std::string& path() const { return library_.path; }
  const std::string& version() const { return version_; }  // "13.0"
  // "sm_90a": the architecture's own features are wanted where it has any.
  std::string architecture(int major, int minor) const;
  bool knows(int major, int minor) const;
  // Machine code. Throws sdk::Failure with the compiler's messages.
  std::string compile(std::string_view name, const std::string& text,
                      std::span<const std::string> options, std::span<const Text> includes) const;

 private:
  friend const Compiler& compiler();
  Compiler();
  struct Calls {
#define CALL(need, name, symbol, arguments) int(*name) arguments = nullptr;
#include "nvrtc_calls.def"
  };
  Calls calls_{};
  Library library_{};
  std::string reason_{}, version_{};
  std::vector<int> architectures_{};
};

// How every text is compiled.
std::vector<std::string> compile_options(const std::string& architecture);

// Of the process: searched when first asked for.
const Compiler& compiler();

}  // namespace tenon::cuda
