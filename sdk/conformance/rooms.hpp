// SPDX-License-Identifier: Apache-2.0
// Memory of an app on a device, at addresses no better aligned than the device demands.
#pragma once

#include <memory>
#include <vector>

#include "kit.hpp"

namespace tenon::conform {

class Rooms {
 public:
  // Throws with UNSUPPORTED if the device imports no memory.
  Rooms(const Runtime& runtime, const std::string& device);
  // Binds an input to a copy of its content, or an output to memory of this size.
  void bind(Context& context, const std::string& name, const TensorType& type,
            const std::vector<std::byte>& content);

 private:
  uint64_t alignment_ = 0;
  // The output of each context is memory of the device.
  Store store_;
  std::unique_ptr<Executable> copy_;
  std::vector<std::unique_ptr<Context>> contexts_;
};

}  // namespace tenon::conform
