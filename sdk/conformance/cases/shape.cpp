// SPDX-License-Identifier: Apache-2.0
// narrow concat transpose expand reshape pad iota: nothing is computed, everything is exact.
#include <limits>

#include "cases/families.hpp"
#include "rows.hpp"

namespace tenon::conform {
namespace {

bool holds(const Dims& dims) {
  for (const int64_t d : dims)
    if (d == 0) return false;
  return true;
}

// One operand x, one result.
template <class Op>
void row(Suite& s, const std::string& id, const std::string& sentence, const Dims& dims, Op n) {
  s.add({.id = id,
         .sentence = sentence,
         .dtypes = movable(),
         .build =
             [=](CaseBuilder& b) {
               Op m = n;
               m.x = b.input("x", dims, content(b));
               b.output("y", b.add(m));
             },
         .gradient = holds(dims),
         .scales = {1}});
}

// The result meets a kernel: views must be right where they are read, not only where they are
// copied out.
template <class Op>
void read_row(Suite& s, const std::string& id, const std::string& sentence, const Dims& dims,
              Op n) {
  row(s, id, sentence, dims, n);
  s.add({.id = id + "-read",
         .sentence = sentence + ", read by a kernel",
         .dtypes = kFloats,
         .build =
             [=](CaseBuilder& b) {
               Op m = n;
               m.x = b.input("x", dims);
               const Value y = b.add(m);
               b.output("y", b.add(op::binary{.kind = "add", .a = y, .b = y}));
             },
         .tolerance = ulps(1)});
}

void view_rows(Suite& s) {
  read_row(s, "narrow", "narrow to a block", {5, 7, 3},
           op::narrow{.start = {1, 2, 0}, .len = {3, 4, 2}, .step = {}});
  read_row(s, "narrow-step", "narrow with steps", {9, 7},
           op::narrow{.start = {1, 0}, .len = {4, 3}, .step = {2, 3}});
  read_row(s, "narrow-reverse", "narrow backwards", {5, 7},
           op::narrow{.start = {4, 6}, .len = {5, 3}, .step = {-1, -2}});
  row(s, "narrow-none", "narrow to nothing", {5, 7},
      op::narrow{.start = {2, 7}, .len = {2, 0}, .step = {}});
  read_row(s, "transpose", "transpose reverses the axes", {3, 5, 7}, op::transpose{});
  for (const Dims& p : std::vector<Dims>{{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 0, 1}, {1, 2, 0}})
    read_row(s, "transpose-" + std::to_string(p[0]) + std::to_string(p[1]) + std::to_string(p[2]),
             "transpose by a permutation", {3, 5, 7}, op::transpose{.perm = p});
  read_row(s, "transpose-large", "transpose of a matrix of several tiles", {131, 67},
           op::transpose{.perm = {1, 0}});
  row(s, "transpose-four", "transpose of four axes", {2, 3, 5, 4},
      op::transpose{.perm = {0, 2, 1, 3}});
  row(s, "transpose-pairs", "transpose of rows that become pairs", {2, 2, 37},
      op::transpose{.perm = {0, 2, 1}});
  row(s, "transpose-pixels", "transpose of channels that become pixels", {3, 2, 2, 5, 21},
      op::transpose{.perm = {0, 3, 1, 4, 2}});
  row(s, "transpose-scalar", "transpose of a scalar", {}, op::transpose{});
  row(s, "transpose-empty", "transpose of nothing", {3, 0, 2}, op::transpose{.perm = {2, 0, 1}});
  read_row(s, "expand", "expand along axes of one", {3, 1, 5}, op::expand{.shape = {2, 3, 4, 5}});
  read_row(s, "expand-vector", "expand a vector to a matrix", {5}, op::expand{.shape = {7, -1}});
  row(s, "expand-both", "expand where the shape holds a one", {3, 4},
      op::expand{.shape = {2, 1, 1}});
  row(s, "expand-empty", "expand to nothing", {1, 4}, op::expand{.shape = {0, 4}});
  read_row(s, "reshape", "reshape", {3, 4, 5}, op::reshape{.shape = {5, 12}});
  row(s, "reshape-infer", "reshape with a length to find and one to keep", {3, 4, 5},
      op::reshape{.shape = {0, -1}});
  row(s, "reshape-scalar", "reshape of one element to a scalar", {1, 1}, op::reshape{.shape = {}});
  row(s, "reshape-empty", "reshape of nothing", {3, 0},
      op::reshape{.shape = {0, 7}, .allow_zero = true});
  s.add({.id = "reshape-q8-0",
         .sentence = "reshape of blocks",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", TENON_DTYPE_Q8_0, {3, 4, 64}, Fill::blocks());
               const Value y = b.add(op::reshape{.shape = {6, 128}, .x = x});
               b.output("y", b.graph().add(op::dequantize_blocks{.to = b.dtype(), .w = y}));
             },
         .may_refuse = true});
  s.add({.id = "reshape-transposed",
         .sentence = "reshape of a transposed operand keeps its order",
         .dtypes = movable(),
         .build =
             [](CaseBuilder& b) {
               const Value t =
                   b.add(op::transpose{.perm = {1, 0}, .x = b.input("x", {6, 5}, content(b))});
               b.output("y", b.add(op::reshape{.shape = {3, 10}, .x = t}));
             },
         .gradient = true,
         .scales = {1}});
}

void copy_rows(Suite& s) {
  for (const char* mode : {"constant", "edge", "reflect", "symmetric"}) {
    read_row(s, std::string("pad-") + mode, std::string("pad ") + mode, {4, 5},
             op::pad{.before = {2, 3}, .after = {1, 4}, .mode = mode});
    row(s, std::string("pad-") + mode + "-one-side",
        std::string("pad ") + mode + " on one side of one axis", {3, 4, 5},
        op::pad{.before = {0, 2, 0}, .after = {0, 0, 0}, .mode = mode});
  }
  row(s, "pad-before", "pad in front of an axis, without the list of what is behind", {4, 5},
      op::pad{.before = {1, 2}, .mode = "reflect"});
  row(s, "pad-after", "pad behind an axis, without the list of what is in front", {4, 5},
      op::pad{.after = {0, 2}, .value = 1});
  row(s, "pad-value", "pad with a number", {4, 5},
      op::pad{.before = {1, 0}, .after = {0, 2}, .value = 1});
  row(s, "pad-empty", "pad of nothing with constants", {0, 3},
      op::pad{.before = {2, 0}, .after = {1, 1}, .value = 1});
  s.add({.id = "pad-reflect-too-far",
         .sentence = "reflect cannot reach beyond the axis",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output(
                   "y",
                   b.add(op::pad{
                       .before = {4}, .after = {0}, .mode = "reflect", .x = b.input("x", {4})}));
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "before"});
  struct Parts {
    const char* id;
    int64_t axis;
    std::vector<Dims> dims;
  };
  for (const Parts& c :
       {Parts{"first", 0, {{3, 5}, {1, 5}, {4, 5}}},
        Parts{"last", -1, {{3, 5}, {3, 1}, {3, 2}, {3, 7}}},
        Parts{"middle", 1, {{2, 3, 4}, {2, 5, 4}}}, Parts{"empty", 1, {{2, 0}, {2, 3}, {2, 0}}},
        Parts{"one", 0, {{3, 2}}}, Parts{"all-empty", 0, {{0, 2}, {0, 2}}}}) {
    s.add({.id = std::string("concat-") + c.id,
           .sentence = "concat along an axis, parts of several lengths",
           .dtypes = movable(),
           .build =
               [=](CaseBuilder& b) {
                 op::concat n{.axis = c.axis};
                 for (size_t k = 0; k < c.dims.size(); ++k)
                   n.xs.push_back(b.input("x" + std::to_string(k), c.dims[k], content(b)));
                 b.output("y", b.add(n));
               },
           .gradient = holds(c.dims[0]),
           .scales = {1}});
  }
  s.add({.id = "concat-many",
         .sentence = "concat of 300 parts",
         .dtypes = {f32, u8},
         .build =
             [](CaseBuilder& b) {
               op::concat n{.axis = 1};
               for (size_t k = 0; k < 300; ++k)
                 n.xs.push_back(b.input("x" + std::to_string(k), {3, static_cast<int64_t>(k % 4)},
                                        content(b)));
               b.output("y", b.add(n));
             },
         .strided = false});
  s.add({.id = "concat-same",
         .sentence = "concat of one operand with itself",
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {3, 4});
               b.output("y", b.add(op::concat{.axis = 0, .xs = {x, x, x}}));
             },
         .gradient = true,
         .scales = {1}});
  s.add({.id = "concat-shapes-refused",
         .sentence = "parts that differ off the axis are refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::concat{.axis = 0,
                                              .xs = {b.input("x", {3, 4}), b.input("y", {3, 5})}}));
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "xs[1]"});
  s.add({.id = "transpose-perm-refused",
         .sentence = "what is no permutation is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::transpose{.perm = {0, 0}, .x = b.input("x", {3, 4})}));
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "perm"});
}

void iota_rows(Suite& s) {
  for (const tenon_dtype t : kFloats + kInts) {
    s.add({.id = std::string("iota-") + dtype_text(t),
           .sentence = "iota counts along an axis",
           .dtypes = {t},
           .build = [=](CaseBuilder& b) {
             const bool whole = !is_float(t);
             b.output("y", b.add(op::iota{.shape = {3, 7, 2},
                                          .axis = 1,
                                          .dtype = b.as(t),
                                          .start = whole ? 3 : 0.3,
                                          .step = whole ? 2 : -0.1}));
             b.output("z", b.add(op::iota{.shape = {5}, .axis = 0, .dtype = b.as(t)}));
             b.expect("z", {0, 1, 2, 3, 4});
             b.output("none", b.add(op::iota{.shape = {0, 2}, .axis = 1, .dtype = b.as(t)}));
           }});
  }
  s.add({.id = "iota-large",
         .sentence = "iota of i64 beyond 2^24 is exact",
         .dtypes = {i64},
         .build = [](CaseBuilder& b) {
           b.output(
               "y",
               b.add(op::iota{
                   .shape = {3}, .axis = 0, .dtype = i64, .start = 4503599627370496.0, .step = 3}));
           b.expect("y", {4503599627370496.0, 4503599627370499.0, 4503599627370502.0});
         }});
}

}  // namespace

void shape_cases(Suite& s) {
  s.floor({.joined = 320, .own_joined = 65});
  view_rows(s);
  copy_rows(s);
  iota_rows(s);
  shape_complex_rows(s);
}

}  // namespace tenon::conform
