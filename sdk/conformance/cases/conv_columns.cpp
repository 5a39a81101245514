// SPDX-License-Identifier: Apache-2.0
// im2col and col2im, in both layouts.
#include "cases/conv.hpp"

namespace tenon::conform {
namespace {

void column_rows(Suite& s, const ConvForm& f, const char* layout) {
  // The columns hold a pixel once for each tap: the longest forms are for convolutions alone.
  constexpr int64_t kMostElements = 1 << 23;
  int64_t windows = 1, taps = f.x[1];
  for (const int64_t d : f.windows_along()) windows *= d;
  for (const int64_t k : f.kernel) taps *= k;
  if (f.x[0] * windows * taps > kMostElements) return;

  const auto set = [=](auto& n) { n.kernel = f.kernel, n.layout = layout; };
  s.add({.id = std::string("im2col-") + layout + "-" + f.id,
         .sentence = std::string("im2col: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto n = f.windows<op::im2col>();
               set(n);
               n.x = b.input("x", f.x);
               b.output("y", b.add(n));
             },
         .gradient = f.terms() < 60,
         .scales = {1}});
  s.add({.id = std::string("col2im-") + layout + "-" + f.id,
         .sentence = std::string("col2im: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto n = f.windows<op::col2im>();
               set(n);
               n.size = {f.x.begin() + 2, f.x.end()};
               n.columns = b.input("columns", n.layout == "rows" ? Dims{f.x[0] * windows, taps}
                                                                 : Dims{f.x[0], taps, windows});
               b.output("x", b.add(n));
               b.scale("x", [&] {
                 auto m = n;
                 m.columns = b.abs(n.columns);
                 return b.add(m);
               });
             },
         .tolerance = sum_of(f.terms()),
         .decomposed = 2,
         .gradient = f.terms() < 60,
         .scales = {1}});
}

}  // namespace

void conv_column_rows(Suite& s) {
  for (const ConvForm& f : conv_forms())
    if (f.groups == 1)
      for (const char* layout : {"rows", "unfold"}) column_rows(s, f, layout);
  s.add({.id = "im2col-known",
         .sentence = "columns of a small image in both layouts, and back",
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {1, 1, 2, 3}, Fill::list({1, 2, 3, 4, 5, 6}));
           const Value rows = b.add(op::im2col{.kernel = {2, 2}, .x = x});
           b.output("rows", rows);
           b.expect("rows", {1, 2, 4, 5, 2, 3, 5, 6});
           const Value unfold = b.add(op::im2col{.kernel = {2, 2}, .layout = "unfold", .x = x});
           b.output("unfold", unfold);
           b.expect("unfold", {1, 2, 2, 3, 4, 5, 5, 6});
           b.output(
               "padded",
               b.add(op::im2col{.kernel = {1, 2}, .stride = {1, 2}, .pads = {0, 1, 0, 0}, .x = x}));
           b.expect("padded", {0, 1, 2, 3, 0, 4, 5, 6});
           b.output("twice", b.add(op::col2im{.kernel = {2, 2}, .size = {2, 3}, .columns = rows}));
           b.expect("twice", {1, 4, 3, 4, 10, 6});
         }});
  s.add({.id = "im2col-integers",
         .sentence = "columns of integers, and back",
         .dtypes = {i32, i64},
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {2, 3, 5, 4}, Fill::integers(-9, 9));
           const op::im2col n{.kernel = {2, 3}, .pads = {1, 0, 0, 1}, .x = x};
           const Value columns = b.add(n);
           b.output("columns", columns);
           op::col2im back{.kernel = n.kernel, .pads = n.pads};
           back.size = {5, 4}, back.columns = columns;
           b.output("x", b.add(back));
         }});
  const auto error = [&](const char* id, op::col2im n, Dims columns, tenon_code code,
                         const char* text) {
    s.add({.id = std::string("col2im-") + id + "-refused",
           .sentence = std::string("col2im: ") + id + " that does not fit is refused",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 op::col2im m = n;
                 m.columns = b.input("columns", columns);
                 b.output("x", b.add(m));
               },
           .error = code,
           .error_text = text});
  };
  error("size", {.kernel = {2, 2}}, {4, 4}, TENON_INVALID_ARGUMENT, "size");
  error("taps", {.kernel = {2, 2}, .size = {3, 3}}, {4, 3}, TENON_SHAPE_MISMATCH, "taps");
  error("windows", {.kernel = {2, 2}, .size = {3, 3}}, {3, 4}, TENON_SHAPE_MISMATCH, "windows");
}

}  // namespace tenon::conform
