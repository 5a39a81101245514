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
// Ops of one's own: write a list like ops.def, and name it and its domain before the include. The file is found by the
// compiler's include path. The structs also get a schema (schema_of, ops.hpp).
//
//   namespace my {
//   using tenon::Value, tenon::Function;  // op.hpp; in kernels those of tenon::sdk
//   #define TENON_OPS "my_ops.def"
//   #define TENON_OPS_DOMAIN "my"
//   #include <tenon/op_structs.inl>
//   }
//
// There is no include guard, because each namespace gets its own structs.

#ifdef TENON_OPS
#ifndef TENON_OPS_DOMAIN
#error "TENON_OPS_DOMAIN: expected the domain of the ops in TENON_OPS, such as \"my\""
#endif
#else
#define TENON_OPS "ops.def"
#define TENON_OPS_DOMAIN "tenon"
#define TENON_OPS_OF_TENON
#endif

#define TENON_OP(name, version, family, level)                    \
  struct name {                                                   \
    static constexpr std::string_view kDomain = TENON_OPS_DOMAIN; \
    static constexpr std::string_view kName = ::tenon::op_name(#name); \
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
#define TENON_FLOATS(n) std::vector<double> n{};
#define TENON_FN(n) Function n{};
#define TENON_OUT(n)
#define TENON_OUT_OPT(n) bool want_##n = false;
#define TENON_OUT_LIST(n) size_t count_##n = 0;
#define TENON_END(name) };
#include TENON_OPS
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
#define TENON_FLOATS(n) v.attr(#n, op.n, std::vector<double>{});
#define TENON_FN(n) v.attr(#n, op.n, Function{});
#define TENON_OUT(n) v.output(#n);
#define TENON_OUT_OPT(n) v.output(#n, op.want_##n);
#define TENON_OUT_LIST(n) v.output_list(#n, op.count_##n);
#define TENON_END(name) }
#include TENON_OPS
#include "undef_ops.inl"

#ifndef TENON_OPS_OF_TENON
#define TENON_OP(n, v, f, l)               \
  inline constexpr ::tenon::OpPart n##_parts[] = { \
      {.kind = ::tenon::OpPart::Kind::begin, .name = ::tenon::op_name(#n), .version = v, .family = #f, .level = ::tenon::OpLevel::l},
#define TENON_END(n)                                                                       \
      {.kind = ::tenon::OpPart::Kind::end, .name = #n}};                                   \
  constexpr ::tenon::OpSchema tenon_schema(const n*) {                                     \
    const ::tenon::OpPart& begin = n##_parts[0];                                           \
    return {begin.name, begin.family, begin.version, begin.level, n##_parts + 1,           \
            sizeof(n##_parts) / sizeof(::tenon::OpPart) - 2};                              \
  }
#include "op_parts.inl"
#include TENON_OPS
#include "undef_ops.inl"
#endif

#undef TENON_OPS
#undef TENON_OPS_DOMAIN
#undef TENON_OPS_OF_TENON
