// SPDX-License-Identifier: Apache-2.0
// Finds cuBLASLt, and wraps its handles and descriptors.
#include "blas.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "tenon/kernel.hpp"

namespace tenon::cuda {

Blas::Blas(const std::vector<std::string>& without) {
  const auto accept = [&](const Library& library) -> std::string {
    if (std::ranges::find(without, library.path) != without.end()) return "it makes no handle";
    std::string missing;
#define CALL(need, name_, symbol_, arguments)                                 \
  this->name_ = reinterpret_cast<int(*) arguments>(library.symbol(#symbol_)); \
  if (!this->name_) missing += (missing.empty() ? "" : ", ") + std::string(#symbol_);
#include "blas_calls.def"
    if (!missing.empty()) return "it lacks " + missing;
    const auto number = reinterpret_cast<size_t (*)()>(library.symbol("cublasLtGetVersion"));
    const size_t v = full_version_ = number ? number() : 0;  // 120304 = 12.3.4
    version_ = number ? std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) : "unknown";
    return too_new_for_driver(static_cast<int>(v / 10000 * 1000 + v / 100 % 100 * 10));
  };
  library_ = open_library("cuBLASLt", Origin::toolkit, toolkit_sonames("libcublasLt.so."), accept);
  reason_ = library_.reason;
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

// The library in use, and those before it that made no handle. Never destroyed.
class BlasLibraries {
 public:
  static BlasLibraries& all() {
    static BlasLibraries& b = *new BlasLibraries;
    return b;
  }
  const Blas& current() const { return *current_; }
  BlasHandle make_handle() {
    const std::lock_guard lock(mutex_);
    for (;;) {
      const Blas& used = current();
      if (!used) throw sdk::Failure(TENON_UNSUPPORTED, used.reason());
      BlasHandle made = nullptr;
      const int status = used.create(&made);
      if (status != 0 && !works_) {
        tried_.push_back(used.library_.path);
        if (const Blas* next = new Blas(tried_); *next) {
          current_ = next;
          continue;
        }
        tried_.pop_back();
      }
      used.check("create", status);
      works_ = true;
      return made;
    }
  }

 private:
  BlasLibraries() : current_(new Blas({})) {}
  std::mutex mutex_;
  std::atomic<const Blas*> current_;
  std::vector<std::string> tried_;
  bool works_ = false;  // a handle was made
};

const Blas& blas() { return BlasLibraries::all().current(); }

namespace {

// Handles that no device uses, by the id of their context. Ids are not used again. Never destroyed.
class IdleHandles {
 public:
  static IdleHandles& all() {
    static IdleHandles& h = *new IdleHandles;
    return h;
  }
  BlasHandle take() {
    const std::optional<uint64_t> context = current_context();
    const std::lock_guard lock(mutex_);
    const auto at = context ? handles_.find(*context) : handles_.end();
    if (at == handles_.end()) return nullptr;
    BlasHandle handle = at->second;
    handles_.erase(at);
    return handle;
  }
  bool keep(BlasHandle handle) {
    const std::optional<uint64_t> context = current_context();
    if (!context) return false;
    const std::lock_guard lock(mutex_);
    handles_.emplace(*context, handle);
    return true;
  }

 private:
  static std::optional<uint64_t> current_context() {
    unsigned long long id = 0;
    if (!driver().context_id || driver().context_id(nullptr, &id) != result::success) return {};
    return id;
  }
  std::mutex mutex_;
  std::multimap<uint64_t, BlasHandle> handles_;
};

}  // namespace

BlasHandle take_blas_handle() {
  BlasHandle idle = IdleHandles::all().take();
  return idle ? idle : BlasLibraries::all().make_handle();
}

void give_blas_handle(BlasHandle handle) noexcept {
  if (!IdleHandles::all().keep(handle)) blas().destroy(handle);
}

}  // namespace tenon::cuda
