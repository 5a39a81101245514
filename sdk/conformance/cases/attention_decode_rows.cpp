// SPDX-License-Identifier: Apache-2.0
// Operands and scales of the cases of decode_attention; cases with numbers of their own, and data out
// of range.
#include <cmath>
#include <limits>

#include "cases/attention.hpp"

namespace tenon::conform {
namespace {

using Form = DecodeForm;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<int64_t> table_of(const Form& f) {
  std::vector<int64_t> table;
  for (size_t e = 0; e < f.past.size(); ++e)
    for (int64_t k = 0; k < f.blocks(); ++k)
      table.push_back(k * f.block < f.kv_len(e) ? f.block_at(e, k) : k % 2 ? -1 : 1 << 30);
  return table;
}

std::vector<int64_t> rows_of(const Form& f) {
  std::vector<int64_t> rows;
  for (size_t e = 0; e < f.past.size(); ++e)
    rows.push_back(f.appends(e) ? f.row_at(e, f.past[e]) : e % 2 ? -f.rows() - 1 : f.rows());
  return rows;
}

// Rows that are read as they were hold numbers, all others NaN.
Fill cache_of(const Form& f, int64_t width) {
  if (!f.nan_rest) return Fill::normal();
  std::vector<bool> read(static_cast<size_t>(f.rows()));
  for (size_t e = 0; e < f.past.size(); ++e)
    for (int64_t k = 0; k < f.kv_len(e); ++k)
      if (k < f.past[e] || !f.appends(e)) read[static_cast<size_t>(f.row_at(e, k))] = true;
  std::vector<double> numbers;
  for (int64_t r = 0; r < f.rows(); ++r)
    for (int64_t i = 0; i < f.k_heads * width; ++i)
      numbers.push_back(
          read[static_cast<size_t>(r)] ? 0.2 * static_cast<double>((7 * r + i) % 19 - 9) : kNan);
  return Fill::list(numbers);
}

void set_tokens(CaseBuilder& b, const Form& f, op::decode_attention& n) {
  const int64_t batch = f.batch();
  if (!f.packed) {
    n.q = b.input("q", {batch, f.heads, f.dim});
    n.k = b.input("k", {batch, f.k_heads, f.dim});
    n.v = b.input("v", {batch, f.k_heads, f.v_dim});
    return;
  }
  const Value all = b.input("qkv", {batch, f.heads + 2 * f.k_heads, f.dim});
  const auto part = [&](int64_t first, int64_t heads) {
    const Dims dims = b.graph().type(all).dims;
    return b.graph().add(
        op::narrow{.start = {0, first, 0}, .len = {dims[0], heads, dims[2]}, .x = all});
  };
  n.q = part(0, f.heads);
  n.k = part(f.heads, f.k_heads);
  n.v = part(f.heads + f.k_heads, f.k_heads);
}

op::decode_attention built(CaseBuilder& b, const Form& f) {
  const int64_t batch = f.batch();
  const tenon_dtype index = f.narrow ? i32 : i64;
  op::decode_attention n{.block_size = f.block,
                         .n_rot = f.n_rot,
                         .interleaved = f.interleaved,
                         .scale = f.scale,
                         .softcap = f.softcap,
                         .left_window = f.left};
  set_tokens(b, f, n);
  n.k_cache = b.input("k_cache", {f.rows(), f.k_heads, f.dim}, cache_of(f, f.dim));
  n.v_cache = b.input("v_cache", {f.rows(), f.k_heads, f.v_dim}, cache_of(f, f.v_dim));
  std::vector<int64_t> rows = rows_of(f), kv_len;
  for (size_t e = 0; e < f.past.size(); ++e) kv_len.push_back(f.kv_len(e));
  if (f.block > 0) {
    n.block_table = b.ints("block_table", {batch, f.blocks()}, table_of(f), f.narrow ? i64 : i32);
    // Where a proof leaves no block, no key has a row.
    if (b.graph().type(n.block_table).elements() == 0) rows.assign(rows.size(), f.rows());
  }
  n.rows = b.ints("rows", {batch}, rows, index);
  n.kv_len = b.ints("kv_len", {batch}, kv_len, index);
  n.past_len = b.ints("past_len", {batch}, f.past, index);
  if (!f.rope) return n;
  const int64_t half = (f.n_rot == 0 ? f.dim : f.n_rot) / 2, positions = 11;
  // Any numbers do; as a rotation they would hide an error in the scale.
  n.cos = b.input("cos", b.own_acc(), {positions, half}, Fill::uniform(-1, 1));
  n.sin = b.input("sin", b.own_acc(), {positions, half}, Fill::uniform(-1, 1));
  n.position_ids = b.ints("position_ids", {batch}, {9, 0, 10}, index);
  return n;
}

}  // namespace

void decode_attention_row(Suite& s, const Form& f) {
  const bool big = f.keys > 64;
  s.add({.id = "decode-attention-" + f.id,
         .sentence = std::string("decode_attention: ") + f.sentence,
         .dtypes = f.dtypes,
         .build =
             [=](CaseBuilder& b) {
               const Node y = b.add(built(b, f));
               b.output("o", y[0]);
               // Turned queries and keys are rounded to the dtype, and their scores with them.
               const double rounded = unit_roundoff(b.own()) / unit_roundoff(b.own_acc());
               b.scale("o", [&] { return b.number(3 * (f.rope ? 1 + rounded / 16 : 1)); });
               if (f.nan_rest) return;
               b.output("k_next", y[1], f.rope ? scaled(8) : kExact);
               if (f.rope) b.scale("k_next", [&] { return b.number(8); });
               b.output("v_next", y[2], kExact);
             },
         .tolerance = scaled(64 + 4 * std::sqrt(static_cast<double>(f.keys))),
         .decomposed = 2,
         .gradient = !big && !f.nan_rest && f.v_dim > 0,
         .scales = {1}});
}

namespace {

// The mean of an old and a new value; a query that a turn makes as long as one of the keys.
void known_row(Suite& s) {
  s.add({.id = "decode-attention-known",
         .sentence = "decode_attention: the mean of an old value and the new one",
         .build =
             [](CaseBuilder& b) {
               const Node y = b.add(op::decode_attention{
                   .q = b.input("q", {1, 1, 2}, Fill::list({0, 0})),
                   .k = b.input("k", {1, 1, 2}, Fill::list({2, 3})),
                   .v = b.input("v", {1, 1, 1}, Fill::list({11})),
                   .k_cache = b.input("k_cache", {3, 1, 2}, Fill::list({1, 1, 5, 5, 7, 7})),
                   .v_cache = b.input("v_cache", {3, 1, 1}, Fill::list({3, 5, 7})),
                   .rows = b.ints("rows", {1}, {1}),
                   .kv_len = b.ints("kv_len", {1}, {2}),
                   .past_len = b.ints("past_len", {1}, {1}),
                   .cos = b.input("cos", b.own_acc(), {2, 1}, Fill::list({1, 0})),
                   .sin = b.input("sin", b.own_acc(), {2, 1}, Fill::list({0, 1})),
                   .position_ids = b.ints("position_ids", {1}, {1})});
               b.output("o", y[0]);
               b.expect("o", {7});
               b.output("k_next", y[1]);
               b.expect("k_next", {1, 1, -3, 2, 7, 7});
               b.output("v_next", y[2]);
               b.expect("v_next", {3, 11, 7});
             },
         .tolerance = ulps(4)});
}

void failure_rows(Suite& s) {
  const auto fails = [&](const std::string& id, const char* sentence, auto change) {
    s.add({.id = "decode-attention-" + id,
           .sentence = std::string("decode_attention: ") + sentence,
           .dtypes = {f32, f16},
           .build =
               [=](CaseBuilder& b) {
                 op::decode_attention n = built(b, {.rope = true, .block = 2});
                 change(b, n);
                 b.output("o", b.add(n)[0]);
               },
           .error = TENON_INDEX_OUT_OF_RANGE});
  };
  for (const int64_t far : {int64_t{-1}, int64_t{11}, int64_t{1} << 40}) {
    const std::string end = far < 0 ? "below" : far == 11 ? "above" : "far";
    fails("position-" + end, "a position outside of the tables is an error",
          [=](CaseBuilder& b, op::decode_attention& n) {
            n.position_ids = b.ints("ids", {2}, {0, far});
          });
    // The first sequence has five keys, in three blocks of two.
    fails("block-" + end, "the number of a block that is read is out of range: an error",
          [=](CaseBuilder& b, op::decode_attention& n) {
            n.block_table = b.ints("table", {2, 4}, {8, far, 6, 5, 4, 3, 2, 1});
          });
  }
  const auto refused = [&](const char* id, const char* sentence, const Form& f, const char* text) {
    s.add_failure(
        std::string("decode-attention-") + id + "-refused",
        std::string("decode_attention: ") + sentence,
        [=](CaseBuilder& b) { b.output("o", b.add(built(b, f))[0]); }, TENON_SHAPE_MISMATCH, text);
  };
  refused("heads", "query heads that are no multiple of the key heads are refused", {.heads = 3},
          "operand q");
  refused("turn", "an odd number of elements that turn is refused",
          {.dim = 7, .rope = true, .n_rot = 5}, "n_rot");
  s.add_failure(
      "decode-attention-rows-refused", "decode_attention: rows that no sequence has are refused",
      [](CaseBuilder& b) {
        op::decode_attention n = built(b, {});
        n.k_cache = b.input("more keys", {15, 2, 8});
        n.v_cache = b.input("more values", {15, 2, 8});
        b.output("o", b.add(n)[0]);
      },
      TENON_SHAPE_MISMATCH, "operand k_cache");
}

}  // namespace

void attention_decode_known_rows(Suite& s) {
  known_row(s);
  failure_rows(s);
}

}  // namespace tenon::conform
