// SPDX-License-Identifier: Apache-2.0
// Tensors of the app, checked: to copy, or to bind.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "exec/app_tensor.hpp"
#include "exec/runtime.hpp"
#include "ir/graph.hpp"
#include "tenon/tenon.h"

namespace tenon::core {

// Dense bytes in host memory: those of the app, or gathered where they had strides or were on a
// device.
struct HostTensor {
  Type type;
  Bytes gathered;
  std::span<const std::byte> content;
};
HostTensor host_tensor(Runtime& runtime, const tenon_tensor* tensor, std::string_view what);
// The same, without a runtime: refuses tensors on devices.
HostTensor host_tensor(const tenon_tensor* tensor, std::string_view what);

// type_bytes(); messages start with `what`.
uint64_t dense_bytes(const Type& type, std::string_view what);

// owner: keeps the memory in place, may be null.
std::shared_ptr<AppTensor> app_tensor(Runtime& runtime, const tenon_tensor* tensor,
                                      std::string_view what, std::shared_ptr<void> owner);

}  // namespace tenon::core
