// SPDX-License-Identifier: Apache-2.0
// Parts of an app that uses a CUDA device itself, beside tenon. For the programs of this folder.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "driver.hpp"
#include "tenon/tenon.hpp"

namespace tenon::gpu {

inline void must(const char* call, int result) {
  if (result != 0) throw std::runtime_error("the app's " + cuda::driver().describe(call, result));
}

// 1 of "cuda:1", 0 of "cuda".
inline int index_of(const std::string& device) {
  const size_t colon = device.find(':');
  return colon == device.npos ? 0 : std::atoi(device.c_str() + colon + 1);
}

// Says so if there is no such device.
inline bool has_device(const Runtime& runtime, const std::string& device) {
  for (const DeviceEntry& d : runtime.devices())
    if (d.id == device && d.reason.empty()) return true;
  std::printf("skipped: there is no device %s\n", device.c_str());
  return false;
}

// The device's primary context, which PyTorch uses too, as the thread's own.
class Primary {
 public:
  explicit Primary(int device) : device_(device) {
    must("context_retain", cuda::driver().context_retain(&context_, device));
    must("context_push", cuda::driver().context_push(context_));
  }
  Primary(const Primary&) = delete;
  Primary& operator=(const Primary&) = delete;
  ~Primary() {
    cuda::driver().context_pop(&context_);
    cuda::driver().context_release(device_);
  }
  cuda::Context handle() const { return context_; }

 private:
  int device_;
  cuda::Context context_ = nullptr;
};

}  // namespace tenon::gpu
