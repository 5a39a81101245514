// SPDX-License-Identifier: Apache-2.0
// Declares the record <op>_def of each op in ops.def. The file of each family includes this and
// defines its records.
#pragma once

#include "ops/record.hpp"

namespace tenon::core {

#define TENON_OP(name, version, family, level) extern const OpRecord name##_def;
#include "tenon/each_op.inl"

}  // namespace tenon::core
