// SPDX-License-Identifier: Apache-2.0
// Named ranges of the calling thread for a profiler that attached itself by NVTX: the library that
// NVTX_INJECTION64_PATH names puts functions of its own into a table of ours. Without one nothing
// is loaded, and nobody asks again.
#pragma once

#include <string>

namespace tenon::cuda {

class Ranges {
 public:
  // path: of the library, absolute; empty = none.
  explicit Ranges(const char* path);
  explicit operator bool() const { return push_ && pop_; }
  const std::string& reason() const { return reason_; }  // why a library that was named is not used
  void push(const char* name) const { push_(name); }
  void pop() const { pop_(); }

 private:
  int (*push_)(const char*) = nullptr;
  int (*pop_)() = nullptr;
  std::string reason_{};
};

// Of the process, by the environment, unless that is privileged. Attached when first asked for.
const Ranges& ranges();

}  // namespace tenon::cuda
