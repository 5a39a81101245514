// SPDX-License-Identifier: Apache-2.0
// swiglu swiglu_backward: every activation, with operands apart and packed.
#include "cases/families.hpp"

namespace tenon::conform {

void elementwise_swiglu_rows(Suite& s) {
  for (const char* act : {"silu", "gelu", "gelu_tanh", "relu", "sigmoid"}) {
    for (const int form : {0, 1, 2}) {  // two operands, packed, packed with the gate last
      static constexpr const char* kForm[] = {"", "-packed", "-packed-gate-last"};
      const std::string kind = act, id = kind + kForm[form];
      const auto operands = [form](CaseBuilder& b, auto& n) {
        n.gate_first = form != 2;
        if (form == 0) {
          n.gate = b.input("gate", {3, 5, 9}, Fill::normal(2));
          n.up = b.input("up", {3, 5, 9});
        } else {
          n.gate = b.input("gate", {3, 5, 18}, Fill::normal(2));
        }
      };
      s.add({.id = "swiglu-" + id,
             .sentence = kind + "(gate) times up",
             .build =
                 [=](CaseBuilder& b) {
                   op::swiglu n{.act = kind};
                   operands(b, n);
                   b.output("y", b.add(n));
                 },
             .tolerance = ulps(10),
             // In primitives an exponent's rounding grows with its size.
             .decomposed = kind == "relu" || kind == "sigmoid" ? 2.0 : 256.0,
             .gradient = true,
             .scales = {0.05, 4}});
      s.add({.id = "swiglu-backward-" + id,
             .sentence = "gradient of " + kind + "(gate) times up",
             .build =
                 [=](CaseBuilder& b) {
                   op::swiglu_backward n{.act = kind, .want_dup = form == 0};
                   operands(b, n);
                   n.dy = b.input("dy", {3, 5, 9});
                   const Node d = b.add(n);
                   b.output("dgate", d[0]);
                   b.scale("dgate", [&] { return largest_of(b, d[0]); });
                   if (form != 0) return;
                   b.output("dup", d[1]);
                   b.scale("dup", [&] { return largest_of(b, d[1]); });
                 },
             .tolerance = {.ulps = 10, .factor = 16},
             .decomposed = 3});
    }
  }
  s.add({.id = "swiglu-odd-refused",
         .sentence = "a packed operand of odd width is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::swiglu{.gate = b.input("gate", {2, 5})}));
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "swiglu"});
}

}  // namespace tenon::conform
