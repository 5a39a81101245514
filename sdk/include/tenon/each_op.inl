// SPDX-License-Identifier: Apache-2.0
// Reads ops.def for one expansion per op: define TENON_OP alone, then include this file.
#define TENON_IN(n)
#define TENON_IN_OPT(n)
#define TENON_IN_LIST(n)
#define TENON_IN_LIST_OPT(n)
#define TENON_STR(n, d)
#define TENON_I64(n, d)
#define TENON_F64(n, d)
#define TENON_BOOL(n, d)
#define TENON_DTYPE(n, d)
#define TENON_INTS(n)
#define TENON_FLOATS(n)
#define TENON_FN(n)
#define TENON_OUT(n)
#define TENON_OUT_OPT(n)
#define TENON_OUT_LIST(n)
#define TENON_END(n)
#include "ops.def"
#include "undef_ops.inl"
