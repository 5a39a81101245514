// SPDX-License-Identifier: Apache-2.0
// Fused bodies with dequantize and quantize as steps.
#include "cases/fused.hpp"

namespace tenon::conform {
namespace {

// Scales for which all numbers are exact in every float dtype, and zero points. dims: of one number.
Value scale_of(BodyBuilder& body, double scale, const Dims& dims = {}) {
  HostTensor t({body.b.dtype(), dims});
  t.set_real(0, scale);
  return body.graph.constant(t.type, t.bytes.data(), t.bytes.size());
}
Value zero_of(BodyBuilder& body, tenon_dtype dtype, int64_t zero, const Dims& dims = {}) {
  HostTensor t({dtype, dims});
  t.set_integer(0, zero);
  return body.graph.constant(t.type, t.bytes.data(), t.bytes.size());
}
// relu(dequantize(q)) as integers
Value rectified(BodyBuilder& body, Value q) {
  const Value x = body.graph.add(
      op::dequantize{.q = q, .scale = scale_of(body, 0.5), .zero_point = zero_of(body, u8, 120)});
  return body.graph.add(op::quantize{.to = u8,
                                     .x = body.unary("relu", x),
                                     .scale = scale_of(body, 1, {1}),
                                     .zero_point = zero_of(body, u8, 3, {1})});
}

}  // namespace

void fused_quantized_rows(Suite& s) {
  s.add({.id = "fused-quantized",
         .sentence = "dequantize and quantize as steps, between integers of one operand and of two",
         .build = [](CaseBuilder& b) {
           const Value q = b.input("q", u8, {7, 300}, Fill::integers(0, 255).fixed()),
                       p = b.input("p", i8, {7, 1}, Fill::integers(-128, 127).fixed());
           BodyBuilder body(b);
           const Value in_q = body.in(q), in_p = body.in(p), low = rectified(body, in_q);
           const Value x = body.graph.add(op::dequantize{.q = low, .scale = scale_of(body, 0.25)}),
                       y = body.graph.add(op::dequantize{.q = in_p, .scale = scale_of(body, 2)});
           body.out(low);
           body.out(body.graph.add(op::quantize{.to = i8,
                                                .x = body.binary("add", x, y),
                                                .scale = scale_of(body, 2),
                                                .zero_point = zero_of(body, i8, -5)}));
           const Node r = body.fused({q, p});
           b.output("low", r[0]);
           b.output("sum", r[1]);
         }});
  s.add({.id = "fused-quantized-known",
         .sentence = "halves go to the even number, and the ends saturate",
         .build = [](CaseBuilder& b) {
           const Value q = b.ints("q", {7}, {0, 100, 120, 121, 123, 140, 255}, u8);
           BodyBuilder body(b);
           body.out(rectified(body, body.in(q)));
           b.output("y", body.fused({q}));
           b.expect("y", {3, 3, 3, 3, 5, 13, 71});
         }});
  s.add({.id = "fused-quantized-refused",
         .sentence = "a step with several scales is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {2, 3});
               BodyBuilder body(b);
               const Value in = body.in(x), scale = body.in(b.input("scale", {3}));
               body.out(body.graph.add(op::quantize{.axis = 1, .to = u8, .x = in, .scale = scale}));
               b.output("y", body.fused({x, b.input("scale2", {3})}));
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "attribute body: quantize cannot be a step of a fused body"});
}

}  // namespace tenon::conform
