// SPDX-License-Identifier: Apache-2.0
// The records by name: <op>_def for each op of ops.def. A family's file includes this and defines
// its own.
#pragma once

#include "ops/record.hpp"

namespace tenon::core {

#define TENON_OP(name, version, family, level) extern const OpRecord name##_def;
#define TENON_IN(n)
#define TENON_IN_OPT(n)
#define TENON_IN_LIST(n)
#define TENON_STR(n, d)
#define TENON_I64(n, d)
#define TENON_F64(n, d)
#define TENON_BOOL(n, d)
#define TENON_DTYPE(n, d)
#define TENON_INTS(n)
#define TENON_FN(n)
#define TENON_OUT(n)
#define TENON_OUT_OPT(n)
#define TENON_OUT_LIST(n)
#define TENON_END(name)
#include "tenon/ops.def"
#include "tenon/undef_ops.inl"

}  // namespace tenon::core
