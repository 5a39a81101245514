// SPDX-License-Identifier: Apache-2.0
// The records by name: <op>_def for each op of ops.def. A family's file includes this and defines
// its own.
#pragma once

#include "ops/record.hpp"

namespace tenon::core {

#define TENON_OP(name, version, family, level) extern const OpRecord name##_def;
#include "tenon/each_op.inl"

}  // namespace tenon::core
