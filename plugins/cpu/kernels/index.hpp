// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the index family.
#pragma once

#include "tenon/kernel.hpp"

namespace tenon::cpu {

sdk::Kernel make_gather_backward(const sdk::op::gather_backward& n, const sdk::Node& node);
sdk::Kernel make_scatter(const sdk::op::scatter& n, const sdk::Node& node);
sdk::Kernel make_scatter_add(const sdk::op::scatter_add& n, const sdk::Node& node);

}  // namespace tenon::cpu
