// SPDX-License-Identifier: Apache-2.0
// dequantize_blocks dequant_matmul grouped_dequant_matmul dequant_rows, in every format that is
// decoded. The error scale of a product is that of the absolute values.
#include "cases/dequant.hpp"

namespace tenon::conform {
namespace {

// ---- the elements

void element_rows(Suite& s, tenon_dtype format) {
  const auto row = [&](const std::string& id, const char* what, Dims dims, bool anything,
                       DTypes dtypes, Tolerance tolerance) {
    s.add({.id = "dequantize-" + kebab(format) + id,
           .sentence = "dequantize_blocks of " + dtype_text(format) + ": " + what,
           .dtypes = std::move(dtypes),
           .build =
               [=](CaseBuilder& b) {
                 const Value w = b.input("w", format, dims, Fill::blocks(anything));
                 b.output("y", b.add(op::dequantize_blocks{.to = b.dtype(), .w = w}));
               },
           .tolerance = tolerance});
  };
  const int64_t block = block_of(format);
  row("", "matrices", {2, 3, 3 * block}, false, {f32, f64}, kExact);
  // Rounded to f32, then to the half.
  row("-half", "to halves", {5, 2 * block}, false, kHalves, ulps(1));
  row("-any-scale", "scales of all sizes, infinite ones, NaN", {64, block}, true, {f32, f64},
      kExact);
}

void row_rows(Suite& s, tenon_dtype format) {
  const auto row = [&](const std::string& id, const char* what, Dims ids, std::vector<int64_t> list,
                       tenon_dtype index, bool fails) {
    s.add({.id = "dequant-rows-" + kebab(format) + id,
           .sentence = "dequant_rows of " + dtype_text(format) + ": " + what,
           .dtypes = fails ? DTypes{f32} : DTypes{f32, f64},
           .build =
               [=](CaseBuilder& b) {
                 const Value w = b.input("w", format, {7, 2 * block_of(format)}, Fill::blocks());
                 const Value at = b.ints("ids", ids, list, index);
                 b.output("y", b.add(op::dequant_rows{.to = b.dtype(), .w = w, .ids = at}));
               },
           .error = fails ? TENON_INDEX_OUT_OF_RANGE : TENON_OK});
  };
  row("", "rows in any order, from the end too", {2, 3}, {6, 0, -1, 3, 3, -7}, i64, false);
  if (format != TENON_DTYPE_Q4_K && format != TENON_DTYPE_Q8_0) return;
  row("-one", "one row, by i32", {}, {4}, i32, false);
  row("-range-above", "a row that does not exist is an error", {3}, {0, 7, 1}, i32, true);
  row("-range-below", "a row before the first is an error", {2}, {-8, 1}, i64, true);
}

// ---- products

struct Form {
  const char* id;
  const char* sentence;
  Dims x;  // before K
  int64_t blocks, out;
  bool bias = false, wide_bias = false, gradient = true;
};
const std::vector<Form>& basic_forms() {
  static const std::vector<Form> all = {
      {"row", "one row", {1}, 2, 37},
      {"rows", "few rows", {5}, 3, 21, true},
      {"tile", "rows over a tile", {19}, 2, 70},
  };
  return all;
}
const std::vector<Form>& more_forms() {
  static const std::vector<Form> all = {
      {"vector", "a vector", {}, 1, 5},
      {"batch", "a batch", {2, 3}, 1, 33, true},
      {"wide-bias", "bias in the accumulation dtype", {4}, 1, 16, false, true},
      {"two", "two rows, one column", {2}, 4, 1},
      {"long", "long sums", {3}, 17, 11},
      {"many", "many rows", {130}, 3, 65, true, false, false},
      {"no-rows", "no rows", {0}, 1, 3, false, false, false},
      {"no-columns", "no columns", {3}, 1, 0},
  };
  return all;
}

// Enough rows that it may pay to round elements of w, for all formats.
const std::vector<Form>& rounded_forms() {
  static const std::vector<Form> all = {
      {"forty", "40 rows", {40}, 8, 141, true, false, false},
      {"parts", "long sums of 70 rows", {70}, 20, 37, false, false, false},
  };
  return all;
}

// Elements of w that are rounded to f16 or bf16: the unit roundoff of these, in those of f32.
constexpr Tolerance kOfF16 = scaled(0x1p-11 * 0x1p24), kOfBf16 = scaled(0x1p-8 * 0x1p24);

void product_row(Suite& s, tenon_dtype format, const Form& f, const char* compute) {
  const std::string_view form = compute;
  const bool bytes = form == "int8";
  const int64_t depth = f.blocks * block_of(format);
  const auto dtypes = [&]() -> DTypes {
    if (bytes) return {f32, bf16};
    if (form == "f16") return {f16};
    if (form == "bf16") return {bf16};
    return kFloats;
  };
  // Not the name of a dtype alone, which the suite appends.
  const std::string ending = form == "f32" ? "" : bytes ? "-int8" : "-rounded-" + std::string(form);
  s.add({.id = "dequant-matmul-" + kebab(format) + "-" + f.id + ending,
         .sentence = "dequant_matmul of " + dtype_text(format) + ": " + f.sentence +
                     (bytes           ? ", x as 8-bit integers"
                      : form == "f32" ? ""
                                      : ", elements of w as " + std::string(form)),
         .dtypes = dtypes(),
         .build =
             [=](CaseBuilder& b) {
               Dims x = f.x;
               x.push_back(depth);
               op::dequant_matmul n{.compute = compute};
               n.x = b.input("x", x);
               n.w = b.input("w", format, {f.out, depth}, Fill::blocks());
               if (f.bias || f.wide_bias)
                 n.bias = b.input("bias", f.wide_bias ? b.own_acc() : b.own(), {f.out},
                                  Fill::uniform(-1, 2));
               b.output("y", b.add(n));
               b.scale("y", [&] {
                 const Value sum = b.graph().add(
                     op::matmul{.trans_b = true, .a = b.abs(n.x), .b = sizes_of(b, n.w)});
                 return n.bias ? b.binary("add", sum, b.abs(n.bias)) : sum;
               });
             },
         .tolerance = bytes           ? kOfBytes
                      : form == "f32" ? product_of(depth)
                      : form == "f16" ? kOfF16
                                      : kOfBf16,
         .decomposed = 2,
         .gradient = !bytes && f.gradient && f.out > 0,
         .scales = {1}});
}

struct Groups {
  const char* id;
  const char* sentence;
  int64_t rows, out, experts;
  std::vector<int64_t> ids{};  // repeated; with none: offsets
  std::vector<int64_t> offsets{};
  bool p = false;
};
const std::vector<Groups>& groups() {
  static const std::vector<Groups> all = {
      {"ids", "an expert for each row, and rows of none", 7, 13, 3, {2, 0, -1, 1, 0}},
      {"p", "with factors", 5, 9, 4, {3, 1, -1, 3}, {}, true},
      {"offsets", "sorted rows", 7, 13, 3, {}, {0, 2, 2, 7}, true},
      {"one", "one row", 1, 40, 4, {2}},
      {"tiles", "rows over a tile", 70, 49, 3, {0, 2, 1, 2, 0, 2}},
      {"no-rows", "no rows", 0, 4, 3, {0}},
      {"many-experts", "more experts than rows", 19, 21, 40, {39, 7, 0, -1, 7, 12, 25}, {}, true},
      {"many-rows", "many rows of an expert", 233, 49, 3, {0, 2, 1, 2, -1, 0, 2}, {}, true},
      {"many-sorted", "many sorted rows", 233, 17, 3, {}, {0, 81, 81, 233}},
  };
  return all;
}

template <class Op>
void set_groups(CaseBuilder& b, const Groups& f, Op& n) {
  if (f.offsets.empty()) {
    std::vector<int64_t> list;
    for (int64_t k = 0; k < f.rows; ++k)
      list.push_back(f.ids[static_cast<size_t>(k) % f.ids.size()]);
    n.ids = b.ints("ids", {f.rows}, list.empty() ? std::vector<int64_t>{0} : list);
  } else {
    n.offsets = b.ints("offsets", {f.experts + 1}, f.offsets, i32);
  }
  if (f.p) n.p = b.input("p", {f.rows}, Fill::uniform(-1, 2));
}

void grouped_row(Suite& s, tenon_dtype format, const Groups& f, const char* compute) {
  const std::string_view form = compute;
  const bool bytes = form == "int8", rounds = form == "f16" || form == "bf16";
  const int64_t depth = 2 * block_of(format);
  const std::string ending = bytes ? "-int8" : rounds ? "-rounded-" + std::string(form) : "";
  s.add({.id = "grouped-dequant-matmul-" + kebab(format) + "-" + f.id + ending,
         .sentence = "grouped_dequant_matmul of " + dtype_text(format) + ": " + f.sentence +
                     (rounds ? ", elements of w as " + std::string(form) : ""),
         .dtypes = bytes           ? DTypes{f32}
                   : form == "f16" ? DTypes{f16}
                   : rounds        ? DTypes{bf16}
                                   : kFloats,
         .build =
             [=](CaseBuilder& b) {
               op::grouped_dequant_matmul n{.compute = compute};
               n.x = b.input("x", {f.rows, depth});
               n.w = b.input("w", format, {f.experts, f.out, depth}, Fill::blocks());
               set_groups(b, f, n);
               b.output("y", b.add(n));
               b.scale("y", [&] {
                 return b.graph().add(op::grouped_matmul{.trans_w = true,
                                                         .x = b.abs(n.x),
                                                         .w = sizes_of(b, n.w),
                                                         .ids = n.ids,
                                                         .offsets = n.offsets,
                                                         .p = n.p ? b.abs(n.p) : Value{}});
               });
             },
         .tolerance = bytes           ? kOfBytes
                      : form == "f16" ? kOfF16
                      : rounds        ? kOfBf16
                                      : product_of(depth),
         .decomposed = 2,
         .gradient = !bytes && f.rows > 0 && f.rows < 20,
         .scales = {1}});
}

// ---- f8e4m3_128: NaN, subnormals, zeros of both signs; rows that begin on 4 bytes

void f8_specials(Suite& s) {
  constexpr tenon_dtype kFormat = TENON_DTYPE_F8E4M3_128;
  constexpr int64_t kOut = 19;
  s.add({.id = "dequantize-f8e4m3-128-specials",
         .sentence = "dequantize_blocks of f8e4m3_128: all codes, NaN among them",
         .dtypes = {f32, f64},
         .build =
             [](CaseBuilder& b) {
               const Value w = b.input("w", kFormat, {7, 640}, Fill::f8_specials());
               b.output("y", b.add(op::dequantize_blocks{.to = b.dtype(), .w = w}));
             },
         .tolerance = kExact});
  for (const int64_t rows : {1, 3, 20})
    for (const int64_t depth : {128, 640, 1024})
      for (const char* compute : {"f32", "int8"}) {
        const bool bytes = std::string_view(compute) == "int8";
        s.add({.id = "dequant-matmul-f8e4m3-128-specials-" + std::to_string(rows) + "-" +
                     std::to_string(depth) + (bytes ? "-int8" : ""),
               .sentence = "dequant_matmul of f8e4m3_128: a NaN reaches the sums of its row alone",
               .dtypes = bytes ? DTypes{f32, bf16} : kFloats,
               .build =
                   [=](CaseBuilder& b) {
                     op::dequant_matmul n{.compute = compute};
                     n.x = b.input("x", {rows, depth});
                     n.w = b.input("w", kFormat, {kOut, depth}, Fill::f8_specials());
                     b.output("y", b.add(n));
                     b.scale("y", [&] {
                       return b.graph().add(
                           op::matmul{.trans_b = true, .a = b.abs(n.x), .b = sizes_of(b, n.w)});
                     });
                   },
               .tolerance = bytes ? kOfBytes : product_of(depth),
               .decomposed = 2,
               .gradient = false,
               .scales = {1}});
      }
}

// ---- refusals

void refusals(Suite& s) {
  const auto w = [](CaseBuilder& b, tenon_dtype t) {
    return b.input("w", t, {3, 256}, Fill::blocks());
  };
  s.add_failure(
      "dequantize-table-refused", "dequantize_blocks: a format of long tables is refused",
      [=](CaseBuilder& b) {
        b.output("y", b.add(op::dequantize_blocks{.w = w(b, TENON_DTYPE_IQ2_XS)}));
      },
      TENON_UNSUPPORTED, "iq2_xs");
  s.add_failure(
      "dequantize-numbers-refused", "dequantize_blocks: numbers are refused",
      [](CaseBuilder& b) {
        b.output("y", b.add(op::dequantize_blocks{.w = b.input("w", {3, 256})}));
      },
      TENON_DTYPE_MISMATCH, "operand w");
  s.add_failure(
      "blocks-moved-refused", "transpose: blocks are refused",
      [=](CaseBuilder& b) {
        b.output("y", b.graph().add(op::transpose{.x = w(b, TENON_DTYPE_Q4_K)}));
      },
      TENON_DTYPE_MISMATCH, "q4_k");
  s.add_failure(
      "dequant-matmul-shapes-refused", "dequant_matmul: lengths that differ are refused",
      [=](CaseBuilder& b) {
        b.output("y", b.add(op::dequant_matmul{.x = b.input("x", {2, 128}),
                                               .w = w(b, TENON_DTYPE_Q4_0)}));
      },
      TENON_SHAPE_MISMATCH, "operand x");
  s.add_failure(
      "dequant-matmul-gate-refused", "dequant_matmul: a gate of an odd number of rows is refused",
      [=](CaseBuilder& b) {
        b.output("y",
                 b.add(op::dequant_matmul{
                     .gate = "silu", .x = b.input("x", {2, 256}), .w = w(b, TENON_DTYPE_Q4_0)})[0]);
      },
      TENON_SHAPE_MISMATCH, "operand w");
  s.add_failure(
      "dequant-matmul-residual-refused", "dequant_matmul: a residual without a norm is refused",
      [=](CaseBuilder& b) {
        b.output("y", b.add(op::dequant_matmul{.x = b.input("x", {2, 256}),
                                               .w = w(b, TENON_DTYPE_Q4_0),
                                               .residual = b.input("residual", {2, 256})})[0]);
      },
      TENON_INVALID_ARGUMENT, "operand gamma");
  for (const int64_t id : {int64_t{3}, int64_t{-2}})
    s.add_failure(
        std::string("grouped-dequant-matmul-range") + (id < 0 ? "-below" : "-above"),
        "grouped_dequant_matmul: an expert that does not exist is an error",
        [=](CaseBuilder& b) {
          op::grouped_dequant_matmul n{};
          n.x = b.input("x", {4, 64});
          n.w = b.input("w", TENON_DTYPE_Q8_0, {3, 5, 64}, Fill::blocks());
          n.ids = b.ints("ids", {4}, {0, id, 1, 2});
          b.output("y", b.add(n));
        },
        TENON_INDEX_OUT_OF_RANGE, "");
}

}  // namespace

void dequant_cases(Suite& s) {
  s.floor({.joined = 40, .own_joined = 0});
  for (const tenon_dtype t : block_formats()) {
    element_rows(s, t);
    row_rows(s, t);
    for (const Form& f : basic_forms())
      for (const char* compute : {"f32", "int8"}) product_row(s, t, f, compute);
    for (const Form& f : rounded_forms())
      for (const char* compute : {"f16", "bf16"}) product_row(s, t, f, compute);
    const bool all = t == TENON_DTYPE_Q4_K || t == TENON_DTYPE_Q8_0;
    if (all)
      for (const Form& f : more_forms())
        for (const char* compute : {"f32", "int8", "f16", "bf16"}) product_row(s, t, f, compute);
    const auto& of_groups = groups();
    for (size_t k = 0; k < (all ? of_groups.size() : 1); ++k) {
      for (const char* compute : {"f32", "int8"}) grouped_row(s, t, of_groups[k], compute);
      if (of_groups[k].rows > 200)
        for (const char* compute : {"f16", "bf16"}) grouped_row(s, t, of_groups[k], compute);
    }
    dequant_neighbour_rows(s, t);
  }
  f8_specials(s);
  refusals(s);
}

}  // namespace tenon::conform
