// SPDX-License-Identifier: Apache-2.0
// Finds NVRTC, and compiles kernel texts with it.
#include "compiler.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "driver.hpp"
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

const std::string kArchitectureOption = "--gpu-architecture=";

// Architectures whose own features (their "a" targets) kernels may use.
bool has_own_features(int number) { return number == 90 || number >= 100; }

}  // namespace

Compiler::Compiler(const std::vector<std::string>& without) {
  const auto accept = [&](const Library& library) -> std::string {
    if (std::string missing = fill(calls_, library); !missing.empty()) return missing;
    int major = 0, minor = 0, count = 0;
    if (calls_.version(&major, &minor) != 0 || calls_.supported_count(&count) != 0)
      return "it does not tell its version";
    if (std::string why = too_new_for_driver(major * 1000 + minor * 10); !why.empty()) return why;
    version_ = std::to_string(major) + "." + std::to_string(minor);
    architectures_.resize(static_cast<size_t>(count));
    if (count > 0 && calls_.supported(architectures_.data()) != 0) architectures_.clear();
    return {};
  };
  library_ =
      open_library("NVRTC", Origin::toolkit, toolkit_sonames("libnvrtc.so."), accept, without);
  reason_ = library_.reason;
}

bool Compiler::knows(int major, int minor) const {
  return std::ranges::find(architectures_, major * 10 + minor) != architectures_.end();
}

std::string Compiler::architecture(int major, int minor) {
  const int number = major * 10 + minor;
  return "sm_" + std::to_string(number) + (has_own_features(number) ? "a" : "");
}

std::string Compiler::target(int major, int minor) const {
  if (knows(major, minor)) return architecture(major, minor);
  int highest = 0;
  for (const int number : architectures_)
    if (number <= major * 10 + minor) highest = std::max(highest, number);
  return highest == 0 ? std::string() : "compute_" + std::to_string(highest);
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
  const bool virtual_target = std::ranges::any_of(options, [](const std::string& o) {
    return o.starts_with(kArchitectureOption + "compute_");
  });
  const auto size_of = virtual_target ? calls_.ptx_size : calls_.cubin_size;
  const auto get = virtual_target ? calls_.ptx : calls_.cubin;
  size_t size = 0;
  if (size_of(program, &size) != 0 || size == 0) fail("NVRTC gives no machine code");
  std::string code(size, '\0');
  if (get(program, code.data()) != 0) fail("NVRTC gives no machine code");
  return code;
}

std::vector<std::string> compile_options(const std::string& architecture) {
  return {kArchitectureOption + architecture, "--std=c++17", "--device-as-default-execution-space",
          "--fmad=true"};
}

// Those that were asked for, in the order of the search. Never destroyed.
class Compilers {
 public:
  static Compilers& all() {
    static Compilers& c = *new Compilers;
    return c;
  }
  const Compiler& first() const { return *list_[0]; }
  const Compiler* after(const Compiler& other) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> tried;
    for (size_t i = 0; i < list_.size(); ++i) {
      tried.push_back(list_[i]->path());
      if (list_[i].get() == &other && i + 1 < list_.size()) return found(*list_[i + 1]);
    }
    return *list_.back() ? found(*list_.emplace_back(new Compiler(tried))) : nullptr;
  }
  void tried(const Compiler& c, const std::string& why) {
    const std::lock_guard lock(mutex_);
    (why.empty() ? used_ : refused_)[&c] = why;
  }
  std::string note() {
    const std::lock_guard lock(mutex_);
    if (!first()) return "; " + first().reason();
    std::string used, passed_over;
    const auto add = [](std::string& to, const std::string& text) {
      if (!text.empty()) to += (to.empty() ? "" : "; ") + text;
    };
    const bool untried = used_.empty() && refused_.empty();
    for (const auto& c : list_) {
      add(passed_over, c->library_.passed_over);
      if (const auto found = refused_.find(c.get()); found != refused_.end())
        add(passed_over, c->path() + ": " + found->second);
      if (used_.contains(c.get()) || (untried && c == list_[0]))
        used += (used.empty() ? "NVRTC " : " and ") + c->version();
    }
    if (used.empty()) return "; no NVRTC that this driver can use (" + passed_over + ")";
    return ", " + used + (passed_over.empty() ? "" : " (passed over: " + passed_over + ")");
  }

 private:
  Compilers() { list_.emplace_back(new Compiler({})); }
  static const Compiler* found(const Compiler& c) { return c ? &c : nullptr; }
  std::mutex mutex_;
  std::vector<std::unique_ptr<Compiler>> list_;
  std::map<const Compiler*, std::string> used_, refused_;  // by some device; why
};

const Compiler& compiler() { return Compilers::all().first(); }
const Compiler* compiler_after(const Compiler& other) { return Compilers::all().after(other); }
void compiler_tried(const Compiler& c, const std::string& why) { Compilers::all().tried(c, why); }
std::string compiler_note() { return Compilers::all().note(); }

}  // namespace tenon::cuda
