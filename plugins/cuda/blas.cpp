// SPDX-License-Identifier: Apache-2.0
// Finds cuBLASLt, and wraps its handles and descriptors.
#include "blas.hpp"

#include "tenon/kernel.hpp"

namespace tenon::cuda {

Blas::Blas() {
  const auto fill = [this](const Library& library) {
    std::string missing;
#define CALL(need, name_, symbol_, arguments)                                 \
  this->name_ = reinterpret_cast<int(*) arguments>(library.symbol(#symbol_)); \
  if (!this->name_) missing += (missing.empty() ? "" : ", ") + std::string(#symbol_);
#include "blas_calls.def"
    return missing.empty() ? missing : "it lacks " + missing;
  };
  library_ = open_library("cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"}, fill);
  if (!library_) {
    reason_ = library_.reason;
    return;
  }
  const auto number = reinterpret_cast<size_t (*)()>(library_.symbol("cublasLtGetVersion"));
  const size_t v = full_version_ = number ? number() : 0;
  version_ = number ? std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) : "unknown";
}

void Blas::check(const char* call, int status) const {
  constexpr int kAllocationFailed = 3;
  if (status == 0) return;
  const std::string text = std::string("cuBLASLt ") + call + ": status " + std::to_string(status);
  // The library has no status for a lost device; any call that needs the context tells.
  size_t available = 0, total = 0;
  if (const Result r = driver().memory_info(&available, &total); code_of(r) == TENON_DEVICE_LOST)
    throw sdk::Failure(TENON_DEVICE_LOST, text + "; " + driver().describe("memory_info", r));
  throw sdk::Failure(status == kAllocationFailed ? TENON_OUT_OF_MEMORY : TENON_INTERNAL, text);
}

const Blas& blas() {
  static const Blas& b = *new Blas;  // never destroyed
  return b;
}

}  // namespace tenon::cuda
