// SPDX-License-Identifier: Apache-2.0
// The record of decode_attention: rope, the rows of the caches, and attention of one token of each
// sequence.
#include "ops/attention.hpp"
#include "ops/check.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

struct Sizes {
  int64_t batch, heads, k_heads, dim, v_dim, rows;
};

// ---- shape

Sizes check_tokens(const Infer& i, const op::decode_attention& n) {
  i.want_float(n.q, "q");
  for (const auto& [operand, v] :
       {std::pair("k", n.k), std::pair("v", n.v), std::pair("k_cache", n.k_cache),
        std::pair("v_cache", n.v_cache)})
    i.want_same_dtype(n.q, "q", v, operand);
  for (const auto& [operand, v] :
       {std::pair("q", n.q), std::pair("k", n.k), std::pair("v", n.v),
        std::pair("k_cache", n.k_cache), std::pair("v_cache", n.v_cache)})
    i.want_rank(v, operand, 3);
  const Shape &q = i.shape(n.q), &k = i.shape(n.k), &v = i.shape(n.v);
  const Sizes s{q[0], q[1], k[1], q[2], v[2], i.shape(n.k_cache)[0]};
  if (s.dim == 0)
    i.fail(Code::shape_mismatch, "operand q: expected D >= 1, got ", i.type(n.q).text());
  i.want_shape(n.k, "k", {s.batch, s.k_heads, s.dim});
  i.want_shape(n.v, "v", {s.batch, s.k_heads, s.v_dim});
  i.want_shape(n.k_cache, "k_cache", {s.rows, s.k_heads, s.dim});
  i.want_shape(n.v_cache, "v_cache", {s.rows, s.k_heads, s.v_dim});
  if (s.k_heads == 0 ? s.heads != 0 : s.heads % s.k_heads != 0)
    i.fail(Code::shape_mismatch, "operand q: expected a multiple of the ", s.k_heads,
           " heads of k, got ", s.heads, " in ", i.type(n.q).text());
  for (const auto& [operand, lengths] : {std::pair("rows", n.rows), std::pair("kv_len", n.kv_len),
                                         std::pair("past_len", n.past_len)}) {
    i.want_index(lengths, operand);
    i.want_shape(lengths, operand, {s.batch});
  }
  return s;
}

void check_cache(const Infer& i, const op::decode_attention& n, const Sizes& s) {
  if (!n.block_table) {
    if (n.block_size != 0)
      i.fail(Code::invalid_argument,
             "attribute block_size: expected 0 without operand block_table, given ", n.block_size);
    if (s.batch == 0 ? s.rows != 0 : s.rows % s.batch != 0)
      i.fail(Code::shape_mismatch, "operand k_cache: expected a multiple of ", s.batch,
             " rows, as many for each token of q, got ", i.type(n.k_cache).text());
    return;
  }
  i.want_index(n.block_table, "block_table");
  i.want_rank(n.block_table, "block_table", 2);
  i.want_shape(n.block_table, "block_table", {s.batch, i.shape(n.block_table)[1]});
  if (n.block_size < 1 || s.rows % n.block_size != 0)
    i.fail(Code::shape_mismatch, "attribute block_size: expected a divisor of the ", s.rows,
           " rows of k_cache, given ", n.block_size);
  if (s.rows == 0 && i.shape(n.block_table).elements() != 0)
    i.fail(Code::shape_mismatch,
           "operand k_cache: expected at least one block beside operand block_table ",
           i.type(n.block_table).text(), ", got ", i.type(n.k_cache).text());
}

void check_rope(const Infer& i, const op::decode_attention& n, const Sizes& s) {
  if (bool(n.cos) != bool(n.sin) || bool(n.cos) != bool(n.position_ids))
    i.fail(Code::invalid_argument,
           "operands cos, sin and position_ids: expected all three or none of them");
  if (!n.cos) {
    if (n.n_rot != 0 || n.interleaved)
      i.fail(Code::invalid_argument, "attribute ", n.n_rot != 0 ? "n_rot" : "interleaved",
             ": expected its default without operand cos");
    return;
  }
  const int64_t n_rot = n.n_rot == 0 ? s.dim : n.n_rot;
  if (n_rot < 0 || n_rot > s.dim || n_rot % 2 != 0)
    i.fail(Code::shape_mismatch, "attribute n_rot: expected an even number up to ", s.dim,
           ", given ", n_rot);
  const Shape& table = i.shape(n.cos);
  for (const auto& [operand, v] : {std::pair("cos", n.cos), std::pair("sin", n.sin)}) {
    i.want_dtype(v, operand, acc_dtype(i.dtype(n.q)));
    i.want_rank(v, operand, 2);
    i.want_shape(v, operand, {table[0], n_rot / 2});
  }
  i.want_index(n.position_ids, "position_ids");
  i.want_shape(n.position_ids, "position_ids", {s.batch});
  if (table[0] == 0 && s.batch != 0)
    i.fail(Code::index_out_of_range, "operand position_ids: expected none for empty tables");
}

void decode_attention_shape(Infer& i, const op::decode_attention& n) {
  attending::check_scores(i, n.scale, n.softcap, n.left_window);
  const Sizes s = check_tokens(i, n);
  check_cache(i, n, s);
  check_rope(i, n, s);
  i.out(0, {i.dtype(n.q), {s.batch, s.heads, s.v_dim}});
  i.out(1, i.type(n.k_cache));
  i.out(2, i.type(n.v_cache));
}

// ---- decomposition

bool decode_attention_lower(Lower& l, const op::decode_attention& n) {
  Builder& b = l.b;
  const Shape q = b.shape(n.q), k = b.shape(n.k), v = b.shape(n.v), rows = b.shape(n.k_cache);
  // One token of each sequence, as rope and attention have it.
  const auto token = [&](Value x) {
    const Shape& s = b.shape(x);
    return b.reshape(x, {s[0], 1, s[1], s[2]});
  };
  const auto rotated = [&](Value x) {
    const Value one = token(x);
    return n.cos ? Value(b.add(op::rope{.n_rot = n.n_rot,
                                        .interleaved = n.interleaved,
                                        .x = one,
                                        .cos = n.cos,
                                        .sin = n.sin,
                                        .position_ids = b.reshape(n.position_ids, {q[0], 1})}))
                 : one;
  };
  const auto appended = [&](Value cache, Value x, const Shape& shape) {
    return Value(b.add(op::scatter{
        .oob = "skip", .base = cache, .indices = n.rows, .updates = b.reshape(x, shape)}));
  };
  const Value keys = appended(n.k_cache, rotated(n.k), k), values = appended(n.v_cache, n.v, v);
  // Blocks of a pool, or the rows of each sequence.
  const int64_t size = n.block_table ? n.block_size : q[0] == 0 ? 0 : rows[0] / q[0];
  const int64_t count = n.block_table ? rows[0] / n.block_size : q[0];
  const auto parted = [&](Value cache, const Shape& shape) {
    return b.reshape(cache, {count, size, shape[1], shape[2]});
  };
  const auto y = b.add(op::attention{.layout = "bshd",
                                     .scale = n.scale,
                                     .softcap = n.softcap,
                                     .causal = true,
                                     .left_window = n.left_window,
                                     .q = rotated(n.q),
                                     .k = parted(keys, k),
                                     .v = parted(values, v),
                                     .kv_len = n.kv_len,
                                     .past_len = n.past_len,
                                     .block_table = n.block_table});
  l.out(0, b.reshape(y[0], {q[0], q[1], v[2]}));
  l.out(1, keys);
  l.out(2, values);
  return true;
}

// ---- costs

double keys_of(const Cost& c, const op::decode_attention& n) {
  const double batch = c.dim(n.q, 2);
  if (n.block_table) return c.dim(n.block_table, 0) * static_cast<double>(n.block_size) * batch;
  return c.dim(n.k_cache, 2);
}
double decode_attention_flops(const Cost& c, const op::decode_attention& n) {
  return 2 * keys_of(c, n) * c.dim(n.q, 1) * (c.dim(n.q, 0) + c.dim(n.v, 0));
}
// The caches are read, and a row of them is written in place.
double decode_attention_bytes(const Cost& c, const op::decode_attention& n) {
  double bytes = c.bytes(n.q) + c.bytes(c.out(0)) + 2 * (c.bytes(n.k) + c.bytes(n.v));
  for (const Value cache : {n.k_cache, n.v_cache})
    if (const double rows = c.dim(cache, 2); rows > 0)
      bytes += c.bytes(cache) / rows * keys_of(c, n);
  return bytes;
}

constexpr Record<op::decode_attention> kDecodeAttention{.shape = decode_attention_shape,
                                                        .lower = decode_attention_lower,
                                                        .flops = decode_attention_flops,
                                                        .bytes = decode_attention_bytes};

}  // namespace

const OpRecord decode_attention_def = record<op::decode_attention, kDecodeAttention>();

}  // namespace tenon::core
