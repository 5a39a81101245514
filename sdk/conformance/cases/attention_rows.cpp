// SPDX-License-Identifier: Apache-2.0
// Operands, tolerances and scales of the cases of attention and its gradient; cases with numbers of
// their own.
#include <cmath>
#include <limits>

#include "cases/attention.hpp"

namespace tenon::conform {
namespace {

using Form = AttentionForm;
using Mask = AttentionMask;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Dims laid_out(const Form& f, int64_t heads, int64_t len, int64_t last) {
  return f.bshd ? Dims{f.batch, len, heads, last} : Dims{f.batch, heads, len, last};
}

bool big(const Form& f) { return f.k_len > 64 || f.batch * f.k_heads > 20; }

Value mask_of(CaseBuilder& b, const Form& f) {
  const Dims all{f.batch, f.q_heads, f.q_len, f.k_len};
  switch (f.mask) {
    case Mask::flags: {
      // The first query row of each head sees nothing.
      std::vector<double> flags(static_cast<size_t>(f.q_len * f.k_len));
      for (size_t k = 0; k < flags.size(); ++k)
        flags[k] = k >= static_cast<size_t>(f.k_len) && k % 3 != 1;
      return b.input("mask", boolean, {f.q_len, f.k_len}, Fill::list(flags).fixed());
    }
    case Mask::numbers:
      return b.input("mask", {f.batch, 1, f.q_len, f.k_len});
    case Mask::numbers_inf: {
      std::vector<double> m(static_cast<size_t>(f.q_len * f.k_len));
      for (size_t k = 0; k < m.size(); ++k)
        m[k] = k < static_cast<size_t>(f.k_len) || k % 4 == 2 ? -kInf
                                                              : 0.1 * static_cast<double>(k % 7);
      return b.input("mask", {f.q_len, f.k_len}, Fill::list(m).fixed());
    }
    case Mask::far:
    case Mask::lowest: {
      std::vector<double> m;
      for (int64_t i = 0; i < f.q_len; ++i)
        for (int64_t j = 0; j < f.k_len; ++j)
          m.push_back(!f.is_far(i, j) ? 0 : f.mask == Mask::far ? -1e9 : -3e38);
      return b.input("mask", {f.q_len, f.k_len}, Fill::list(m).fixed());
    }
    case Mask::shift: {
      static constexpr double kShifts[] = {0, 9, -13, 40, -77, 300, 1000, -2000, 3e4, -6e4};
      std::vector<double> m;
      for (int64_t i = 0; i < f.q_len; ++i) m.push_back(kShifts[i % 10]);
      return b.input("mask", {f.q_len, 1}, Fill::list(m).fixed());
    }
    case Mask::keys:
      return b.input("mask", boolean, {f.batch, 1, 1, f.k_len},
                     Fill::list({1, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1}).fixed());
    case Mask::later: {
      std::vector<double> flags(static_cast<size_t>(f.batch * f.k_len), 1);
      std::fill_n(flags.begin(), f.k_len, 0);
      return b.input("mask", boolean, {f.batch, 1, 1, f.k_len}, Fill::list(flags).fixed());
    }
    case Mask::row:
      return b.input("mask", {f.k_len});
    case Mask::key_numbers: {
      std::vector<double> m;
      for (int64_t k = 0; k < f.batch * f.k_len; ++k)
        m.push_back(k % 5 == 3 ? -kInf : 0.1 * static_cast<double>(k % 7));
      return b.input("mask", {f.batch, 1, 1, f.k_len}, Fill::list(m).fixed());
    }
    default:
      return {};
  }
}

// k or v, `last` wide.
Fill keys_of(const Form& f, int64_t last) {
  if (!f.nan_keys) return Fill::normal();
  const int64_t batch = f.k_heads * f.k_len * last;
  std::vector<double> keys;
  for (int64_t i = 0; i < f.batch * batch; ++i)
    keys.push_back(i >= batch ? 0.2 * static_cast<double>(i % 19 - 9) : i % 2 == 0 ? kNan : kInf);
  return Fill::list(keys);
}

Value stored(CaseBuilder& b, const Form& f, const char* name, const Dims& dims, int64_t last) {
  return f.q8_0 ? b.input(name, TENON_DTYPE_Q8_0, dims, Fill::blocks())
                : b.input(name, dims, keys_of(f, last));
}

// Batch entries share their first block, and the others lie backwards in the pool. Numbers that are
// not read are out of range.
void set_blocks(CaseBuilder& b, const Form& f, op::attention& n, const std::vector<int64_t>& lens) {
  const int64_t blocks = f.k_len / f.block, pool = f.batch * blocks + 1;
  const auto place = [&](int64_t last) {
    return f.bshd ? Dims{pool, f.block, f.k_heads, last} : Dims{pool, f.k_heads, f.block, last};
  };
  n.k = stored(b, f, "k", place(f.dim), f.dim);
  n.v = stored(b, f, "v", place(f.v_dim), f.v_dim);
  std::vector<int64_t> table;
  for (int64_t e = 0; e < f.batch; ++e)
    for (int64_t k = 0; k < blocks; ++k)
      table.push_back(k * f.block >= lens[static_cast<size_t>(e)] ? (k % 2 ? -1 : 1 << 30)
                      : k == 0                                    ? 1
                                                                  : pool - 1 - e * blocks - k + 1);
  n.block_table = b.ints("block_table", {f.batch, blocks}, table, f.bshd ? i32 : i64);
}

template <class Op>
void set_operands(CaseBuilder& b, const Form& f, Op& n) {
  n.layout = f.bshd ? "bshd" : "bhsd";
  n.scale = f.scale;
  n.softcap = f.softcap;
  n.causal = f.causal;
  n.left_window = f.left;
  n.right_window = f.right;
  n.offset = f.offset;
  n.q = b.input("q", laid_out(f, f.q_heads, f.q_len, f.dim));
  if (f.is_far()) {
    std::vector<double> near;
    for (int64_t i = 0; i < f.q_len; ++i) near.push_back(f.is_all_far(i) ? 0 : 1);
    n.q = b.binary("mul", n.q, b.input("near", {f.q_len, 1}, Fill::list(near).fixed()));
  }
  const int64_t last = f.k_len - 2;
  const std::vector<int64_t> lens =
      f.batch == 3 ? std::vector<int64_t>{0, f.k_len, 3} : std::vector<int64_t>{last, f.k_len};
  if constexpr (requires { n.block_table; })
    if (f.block > 0) set_blocks(b, f, n, lens);
  if (f.block == 0) {
    n.k = stored(b, f, "k", laid_out(f, f.k_heads, f.k_len, f.dim), f.dim);
    n.v = stored(b, f, "v", laid_out(f, f.k_heads, f.k_len, f.v_dim), f.v_dim);
  }
  n.mask = mask_of(b, f);
  if (f.kv_len) n.kv_len = b.ints("kv_len", {f.batch}, lens, i32);
  if (f.past_len)
    n.past_len = b.ints("past_len", {f.batch}, {last - f.q_len, f.k_len - f.q_len}, i32);
}

// With several queries, a kernel may round the elements of blocks to the dtype of q: what their scale
// grows by.
double with_rounded_elements(const Form& f, CaseBuilder& b) {
  if (!f.q8_0 || f.q_len == 1) return 1;
  return 1 + unit_roundoff(b.own()) / unit_roundoff(b.own_acc()) / 32;
}

// The exponent's error grows with the scores.
double cost(const Form& f) { return 64 + 4 * std::sqrt(static_cast<double>(f.k_len)); }

}  // namespace

void attention_forward_row(Suite& s, const Form& f) {
  s.add(
      {.id = "attention-" + f.id,
       .sentence = std::string("attention: ") + f.sentence,
       .dtypes = f.dtypes(),
       .build =
           [=](CaseBuilder& b) {
             op::attention n{.want_lse = true};
             set_operands(b, f, n);
             const Node y = b.add(n);
             b.output("o", y[0]);
             const double more = with_rounded_elements(f, b);
             b.scale("o", [&] { return b.number(3 * more); });
             if (f.dead_rows)
               b.side_output("lse", y[1]);
             else
               b.output("lse", y[1]);
             b.scale("lse", [&] {
               return f.is_far() ? b.binary("max", b.abs(y[1]), b.number(8)) : b.number(8 * more);
             });
           },
       .tolerance = scaled(cost(f)),
       .decomposed = 2,
       .gradient = !big(f) && !f.is_far() && !f.nan_keys && f.q_len > 0 && f.k_len > 0,
       .scales = f.mask == Mask::none ? std::vector<double>{0.05, 1, 4} : std::vector<double>{1}});
}

namespace {

Fill dout_of(const Form& f) {
  if (f.nan_douts == 0) return Fill::normal();
  std::vector<double> dout;  // of one head: all have the same
  for (int64_t i = 0; i < f.q_len * f.v_dim; ++i)
    dout.push_back(i >= f.nan_douts * f.v_dim ? 0.2 * static_cast<double>(i % 19 - 9)
                   : i % 2 == 0               ? kNan
                                              : kInf);
  return Fill::list(dout);
}

}  // namespace

void attention_backward_row(Suite& s, const Form& f) {
  s.add({.id = "attention-backward-" + f.id,
         .sentence = std::string("gradient of attention: ") + f.sentence,
         .dtypes = f.dtypes(),
         .build =
             [=](CaseBuilder& b) {
               op::attention_backward n{};
               set_operands(b, f, n);
               n.dout = b.input("dout", laid_out(f, f.q_heads, f.q_len, f.v_dim), dout_of(f));
               const Node y = b.add(op::attention{.layout = n.layout,
                                                  .scale = n.scale,
                                                  .softcap = n.softcap,
                                                  .causal = n.causal,
                                                  .left_window = n.left_window,
                                                  .right_window = n.right_window,
                                                  .offset = n.offset,
                                                  .q = n.q,
                                                  .k = n.k,
                                                  .v = n.v,
                                                  .mask = n.mask,
                                                  .kv_len = n.kv_len,
                                                  .past_len = n.past_len,
                                                  .want_lse = true});
               n.o = y[0];
               n.lse = y[1];
               n.want_dmask = f.dmask && (f.mask == Mask::numbers || f.mask == Mask::numbers_inf ||
                                          f.mask == Mask::row);
               const Node d = b.add(n);
               static constexpr const char* kNames[] = {"dq", "dk", "dv", "dmask"};
               // o was rounded to the dtype, and the gradients have lost that much.
               const double rounded = unit_roundoff(b.own()) / unit_roundoff(b.own_acc());
               for (size_t k = 0; k < (n.want_dmask ? 4 : 3); ++k) {
                 b.output(kNames[k], d[k]);
                 b.scale(kNames[k], [&] {
                   return b.binary("mul", b.number(1 + rounded / 16),
                                   b.binary("max", largest_of(b, d[k]), b.number(1)));
                 });
               }
             },
         .tolerance = scaled(2 * cost(f)),
         .decomposed = 2});
}

void attention_known_rows(Suite& s) {
  s.add({.id = "attention-beyond-length",
         .sentence = "keys and values beyond kv_len may hold NaN and infinities",
         .build =
             [](CaseBuilder& b) {
               std::vector<double> k(40), v(40);
               for (size_t i = 0; i < 40; ++i) {
                 const bool beyond = i % 20 >= 12;  // steps 3 and 4 of five, four wide
                 k[i] = beyond ? kNan : 0.1 * static_cast<double>(i % 7);
                 v[i] = beyond ? (i % 2 ? kInf : kNan) : 0.3 * static_cast<double>(i % 5);
               }
               op::attention n{.want_lse = true};
               n.q = b.input("q", {1, 4, 3, 4});
               n.k = b.input("k", {1, 2, 5, 4}, Fill::list(k));
               n.v = b.input("v", {1, 2, 5, 4}, Fill::list(v));
               n.kv_len = b.ints("kv_len", {1}, {3});
               const Node y = b.add(n);
               b.output("o", y[0]);
               b.scale("o", [&] { return b.number(2); });
               b.output("lse", y[1]);
               b.scale("lse", [&] { return b.number(4); });
             },
         .tolerance = scaled(64),
         .decomposed = 2,
         .strided = false});
  s.add({.id = "attention-dead-row-known",
         .sentence = "a row without a key gives zeros, not a mean",
         .build =
             [](CaseBuilder& b) {
               const Node y = b.add(op::attention{
                   .q = b.input("q", {1, 1, 2, 2}),
                   .k = b.input("k", {1, 1, 2, 2}),
                   .v = b.input("v", {1, 1, 2, 1}, Fill::list({3, 5})),
                   .mask = b.input("mask", boolean, {2, 2}, Fill::list({0, 0, 0, 1}).fixed()),
                   .want_lse = true});
               b.output("o", y[0]);
               b.expect("o", {0, 5});
             },
         .tolerance = ulps(4)});
  s.add({.id = "attention-heads-refused",
         .sentence = "query heads that are no multiple of the key heads are refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("o", b.add(op::attention{.q = b.input("q", {1, 3, 2, 4}),
                                                 .k = b.input("k", {1, 2, 2, 4}),
                                                 .v = b.input("v", {1, 2, 2, 4})}));
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "heads"});
}

}  // namespace tenon::conform
