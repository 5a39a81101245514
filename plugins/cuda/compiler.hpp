// SPDX-License-Identifier: Apache-2.0
// NVRTC, found at run time: kernel text to machine code of one architecture, or to PTX, which the
// driver compiles.
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
  static std::string architecture(int major, int minor);
  bool knows(int major, int minor) const;
  // What to compile for: the device's architecture, else PTX of the highest one that is known and
  // not above it, "compute_90"; empty when there is none.
  std::string target(int major, int minor) const;
  // Machine code or PTX, with a zero at its end. Throws sdk::Failure with the compiler's messages.
  std::string compile(std::string_view name, const std::string& text,
                      std::span<const std::string> options, std::span<const Text> includes) const;

 private:
  friend class Compilers;
  explicit Compiler(const std::vector<std::string>& without);  // paths of libraries not to take
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

// Of the process: the first that is found. Searched when first asked for.
const Compiler& compiler();
// The next one, for a device whose driver does not take what that one makes; nullptr: there is
// none.
const Compiler* compiler_after(const Compiler& other);
// Records what a device's trial of a compiler gave: empty = its code loads and the device uses it,
// else why not.
void compiler_tried(const Compiler& compiler, const std::string& why);
// The compilers that devices use, and those that were passed over, with the reasons. Before any
// device tried one: the first that was found.
std::string compiler_note();

}  // namespace tenon::cuda
