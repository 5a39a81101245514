// SPDX-License-Identifier: Apache-2.0
// Undefines the macros of ops.def after it was read.
#undef TENON_OP
#undef TENON_IN
#undef TENON_IN_OPT
#undef TENON_IN_LIST
#undef TENON_IN_LIST_OPT
#undef TENON_STR
#undef TENON_I64
#undef TENON_F64
#undef TENON_BOOL
#undef TENON_DTYPE
#undef TENON_INTS
#undef TENON_FLOATS
#undef TENON_FN
#undef TENON_OUT
#undef TENON_OUT_OPT
#undef TENON_OUT_LIST
#undef TENON_END
