// SPDX-License-Identifier: Apache-2.0
// Memory of an app on a device, at the least alignment that the device accepts.
#pragma once

#include <memory>
#include <vector>

#include "kit.hpp"

namespace tenon::conform {

class Rooms {
 public:
  // Throws if the device imports no memory, or does not copy bytes.
  Rooms(const Runtime& runtime, const std::string& device);
  // Binds an input to a copy of its content, or an output to memory of this size. The memory lives
  // as long as the result. [any thread]
  std::unique_ptr<Context> bind(Context& context, const std::string& name, const TensorType& type,
                                const std::vector<std::byte>& content) const;

 private:
  uint64_t alignment_ = 0;
  Store store_;
  std::unique_ptr<Executable> copy_;  // its outputs are memory of the device
};

}  // namespace tenon::conform
