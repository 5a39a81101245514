// SPDX-License-Identifier: Apache-2.0
// view_as_real view_as_complex: pairs that are complex numbers already, and pairs that are not.
#include "cases/complex.hpp"
#include "cases/families.hpp"

namespace tenon::conform {

void shape_complex_rows(Suite& s) {
  s.add({.id = "view-as-complex-between",
         .sentence = "pairs that do not begin where complex numbers do",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {9});
               const Value part = b.add(op::narrow{.start = {1}, .len = {8}, .x = x});
               const Value pairs = b.add(op::reshape{.shape = {4, 2}, .x = part});
               const Value z = b.add(op::view_as_complex{.x = pairs});
               complex_output(b, "y", b.add(op::binary{.kind = "add", .a = z, .b = z}));
             },
         .tolerance = ulps(1),
         .gradient = true,
         .scales = {1}});
  s.add({.id = "view-as-complex-apart",
         .sentence = "pairs whose parts are not side by side",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {2, 3, 5});
               const Value pairs = b.add(op::transpose{.perm = {1, 2, 0}, .x = x});
               const Value z = b.add(op::view_as_complex{.x = pairs});
               complex_output(b, "y", b.add(op::transpose{.perm = {1, 0}, .x = z}));
             },
         .gradient = true,
         .scales = {1}});
  s.add({.id = "view-as-complex-rows",
         .sentence = "rows of pairs with gaps between them",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {6, 4, 2});
               const Value some = b.add(
                   op::narrow{.start = {1, 1, 0}, .len = {3, 2, 2}, .step = {2, 1, 1}, .x = x});
               const Value z = b.add(op::view_as_complex{.x = some});
               complex_output(b, "y", b.add(op::binary{.kind = "sub", .a = z, .b = z}));
               complex_output(b, "z", b.add(op::expand{.shape = {2, 3, 2}, .x = z}));
             },
         .tolerance = ulps(1)});
  s.add_failure(
      "view-as-complex-refused", "three numbers are no pair",
      [](CaseBuilder& b) {
        b.output("y", b.add(op::view_as_complex{.x = b.input("x", {4, 3})}));
      },
      TENON_SHAPE_MISMATCH, "pairs");
  s.add_failure(
      "view-as-real-refused", "a real number has no parts",
      [](CaseBuilder& b) { b.output("y", b.add(op::view_as_real{.x = b.input("x", {4})})); },
      TENON_DTYPE_MISMATCH, "c64 or c128");
}

}  // namespace tenon::conform
