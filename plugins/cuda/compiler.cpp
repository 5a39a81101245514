// SPDX-License-Identifier: Apache-2.0
// Finds NVRTC, and compiles kernel texts with it.
#include "compiler.hpp"

#include <algorithm>

#include "tenon/kernel.hpp"

namespace tenon::cuda {
namespace {

template <class Calls>
std::string fill(Calls& calls, const Library& library) {
  std::string missing;
#define CALL(need, name, symbol_, arguments)                                 \
  calls.name = reinterpret_cast<int(*) arguments>(library.symbol(#symbol_)); \
  if (!calls.name) missing += (missing.empty() ? "" : ", ") + std::string(#symbol_);
#include "nvrtc_calls.def"
  return missing.empty() ? missing : "it lacks " + missing;
}

// Architectures whose own features (their "a" targets) kernels may use.
bool has_own_features(int number) { return number == 90 || number >= 100; }

}  // namespace

Compiler::Compiler() {
  library_ = open_library("NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12"},
                          [this](const Library& library) { return fill(calls_, library); });
  if (!library_) {
    reason_ = library_.reason;
    return;
  }
  int major = 0, minor = 0, count = 0;
  if (calls_.version(&major, &minor) != 0 || calls_.supported_count(&count) != 0) {
    reason_ = library_.path + " does not tell its version";
    return;
  }
  version_ = std::to_string(major) + "." + std::to_string(minor);
  architectures_.resize(static_cast<size_t>(count));
  if (count > 0 && calls_.supported(architectures_.data()) != 0) architectures_.clear();
}

bool Compiler::knows(int major, int minor) const {
  return std::ranges::find(architectures_, major * 10 + minor) != architectures_.end();
}

std::string Compiler::architecture(int major, int minor) const {
  const int number = major * 10 + minor;
  return "sm_" + std::to_string(number) + (has_own_features(number) ? "a" : "");
}

std::string Compiler::compile(std::string_view name, const std::string& text,
                              std::span<const std::string> options,
                              std::span<const Text> includes) const {
  if (!reason_.empty()) throw sdk::Failure(TENON_UNSUPPORTED, reason_);
  std::vector<std::string> copies;  // with an end, as the compiler wants them
  for (const Text& t : includes)
    copies.insert(copies.end(), {std::string(t.name), std::string(t.content)});
  std::vector<const char*> names, contents, arguments;
  for (size_t i = 0; i < copies.size(); i += 2) {
    names.push_back(copies[i].c_str());
    contents.push_back(copies[i + 1].c_str());
  }
  for (const std::string& o : options) arguments.push_back(o.c_str());
  const auto fail = [&](const std::string& why) {
    throw sdk::Failure(TENON_INTERNAL, "kernel text " + std::string(name) + ": " + why);
  };
  CompilerProgram program = nullptr;
  if (calls_.create(&program, text.c_str(), std::string(name).c_str(),
                    static_cast<int>(names.size()), contents.data(), names.data()) != 0)
    fail("NVRTC takes no program");
  struct Guard {
    const Calls& calls;
    CompilerProgram program;
    ~Guard() { calls.destroy(&program); }
  } guard{calls_, program};
  if (calls_.compile(program, static_cast<int>(arguments.size()), arguments.data()) != 0) {
    size_t size = 0;
    std::string log;
    if (calls_.log_size(program, &size) == 0 && size > 0) {
      log.resize(size);
      if (calls_.log(program, log.data()) != 0) log = "no message";
      while (!log.empty() && log.back() == '\0') log.pop_back();
    }
    fail("does not compile:\n" + log);
  }
  size_t size = 0;
  if (calls_.cubin_size(program, &size) != 0 || size == 0) fail("NVRTC gives no machine code");
  std::string code(size, '\0');
  if (calls_.cubin(program, code.data()) != 0) fail("NVRTC gives no machine code");
  return code;
}

std::vector<std::string> compile_options(const std::string& architecture) {
  return {"--gpu-architecture=" + architecture, "--std=c++17",
          "--device-as-default-execution-space", "--fmad=true"};
}

const Compiler& compiler() {
  static const Compiler& c = *new Compiler;  // never destroyed
  return c;
}

}  // namespace tenon::cuda
