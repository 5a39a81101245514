// SPDX-License-Identifier: Apache-2.0
// One struct per op, generated from ops.def. Its members are the attributes with their defaults, the operands,
// want_<name> for each optional output, and count_<name> for each list of outputs.
//
// Include this inside a namespace that defines `Value`, the type of operands, and `Function`, the type of functions;
// both are absent by default. So builders, core's records and kernels all write
//
//   op::rms_norm{.eps = 1e-6, .x = x, .gamma = g}
//
// visit(op, v) calls, in the order of ops.def:
//
//   v.attr(name, field, default)
//   v.operand(name, field)  v.optional(name, field)  v.list(name, fields)
//   v.output(name)  v.output(name, want)  v.output_list(name, count)
//
// There is no include guard, because each namespace gets its own structs.

#define TENON_OP(name, version, family, level)             \
  struct name {                                            \
    static constexpr std::string_view kName = #name;       \
    static constexpr uint32_t kVersion = version;
#define TENON_IN(n) Value n{};
#define TENON_IN_OPT(n) Value n{};
#define TENON_IN_LIST(n) std::vector<Value> n{};
#define TENON_IN_LIST_OPT(n) std::vector<Value> n{};
#define TENON_STR(n, d) std::string n{d};
#define TENON_I64(n, d) int64_t n = d;
#define TENON_F64(n, d) double n = d;
#define TENON_BOOL(n, d) bool n = d;
#define TENON_DTYPE(n, d) tenon_dtype n = d;
#define TENON_INTS(n) std::vector<int64_t> n{};
#define TENON_FN(n) Function n{};
#define TENON_OUT(n)
#define TENON_OUT_OPT(n) bool want_##n = false;
#define TENON_OUT_LIST(n) size_t count_##n = 0;
#define TENON_END(name) };
#include "ops.def"
#include "undef_ops.inl"

#define TENON_OP(name, version, family, level)                    \
  template <class Op, class Visitor>                              \
    requires std::same_as<std::remove_const_t<Op>, name>          \
  void visit([[maybe_unused]] Op& op, Visitor&& v) {
#define TENON_IN(n) v.operand(#n, op.n);
#define TENON_IN_OPT(n) v.optional(#n, op.n);
#define TENON_IN_LIST(n) v.list(#n, op.n);
#define TENON_IN_LIST_OPT(n) v.list(#n, op.n);
#define TENON_STR(n, d) v.attr(#n, op.n, std::string(d));
#define TENON_I64(n, d) v.attr(#n, op.n, int64_t{d});
#define TENON_F64(n, d) v.attr(#n, op.n, double{d});
#define TENON_BOOL(n, d) v.attr(#n, op.n, bool{d});
#define TENON_DTYPE(n, d) v.attr(#n, op.n, tenon_dtype{d});
#define TENON_INTS(n) v.attr(#n, op.n, std::vector<int64_t>{});
#define TENON_FN(n) v.attr(#n, op.n, Function{});
#define TENON_OUT(n) v.output(#n);
#define TENON_OUT_OPT(n) v.output(#n, op.want_##n);
#define TENON_OUT_LIST(n) v.output_list(#n, op.count_##n);
#define TENON_END(name) }
#include "ops.def"
#include "undef_ops.inl"
