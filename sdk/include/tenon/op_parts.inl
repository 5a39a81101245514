// SPDX-License-Identifier: Apache-2.0
// Reads a list of ops as initializers of OpPart: define TENON_OP and TENON_END, include this file inside braces, then
// the list, then undef_ops.inl.
#define TENON_IN(n) {.kind = ::tenon::OpPart::Kind::operand, .name = #n},
#define TENON_IN_OPT(n) {.kind = ::tenon::OpPart::Kind::optional_operand, .name = #n},
#define TENON_IN_LIST(n) {.kind = ::tenon::OpPart::Kind::operand_list, .name = #n},
#define TENON_IN_LIST_OPT(n) {.kind = ::tenon::OpPart::Kind::optional_list, .name = #n},
#define TENON_STR(n, d) \
  {.kind = ::tenon::OpPart::Kind::attr, .name = #n, .attr_type = TENON_ATTR_STR, .default_str = d},
#define TENON_I64(n, d) \
  {.kind = ::tenon::OpPart::Kind::attr, .name = #n, .attr_type = TENON_ATTR_I64, .default_int = d},
#define TENON_F64(n, d)                 \
  {.kind = ::tenon::OpPart::Kind::attr, \
   .name = #n,                          \
   .attr_type = TENON_ATTR_F64,         \
   .default_float = d},
#define TENON_BOOL(n, d) \
  {.kind = ::tenon::OpPart::Kind::attr, .name = #n, .attr_type = TENON_ATTR_BOOL, .default_int = d},
#define TENON_DTYPE(n, d)               \
  {.kind = ::tenon::OpPart::Kind::attr, \
   .name = #n,                          \
   .attr_type = TENON_ATTR_DTYPE,       \
   .default_int = d},
#define TENON_INTS(n) \
  {.kind = ::tenon::OpPart::Kind::attr, .name = #n, .attr_type = TENON_ATTR_INTS},
#define TENON_FLOATS(n) \
  {.kind = ::tenon::OpPart::Kind::attr, .name = #n, .attr_type = TENON_ATTR_FLOATS},
#define TENON_FN(n) \
  {.kind = ::tenon::OpPart::Kind::attr, .name = #n, .attr_type = TENON_ATTR_FUNCTION},
#define TENON_OUT(n) {.kind = ::tenon::OpPart::Kind::output, .name = #n},
#define TENON_OUT_OPT(n) {.kind = ::tenon::OpPart::Kind::optional_output, .name = #n},
#define TENON_OUT_LIST(n) {.kind = ::tenon::OpPart::Kind::output_list, .name = #n},
