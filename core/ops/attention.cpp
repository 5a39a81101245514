// SPDX-License-Identifier: Apache-2.0
// Records of the attention family: attention attention_backward. Internally, everything is [B,
// heads, S, D]. The Hq query heads are folded into rows of their Hk key heads, so k and v are never
// repeated.
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/check.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// Larger windows count as no window. Offsets up to this limit keep i + offset + window within i64.
constexpr int64_t kFar = int64_t{1} << 60;

struct Sizes {
  int64_t batch, q_heads, k_heads, q_len, k_len, dim, v_dim;
  Shape scores() const { return {batch, q_heads, q_len, k_len}; }
  // The rows of all query heads of a key head, one after another.
  Shape folded(int64_t last) const {
    return {batch, k_heads, k_heads == 0 ? 0 : q_heads / k_heads * q_len, last};
  }
};

// Converts [B, heads, S, last] to the layout.
Shape laid_out(const std::string& layout, int64_t batch, int64_t heads, int64_t len, int64_t last) {
  return layout == "bshd" ? Shape{batch, len, heads, last} : Shape{batch, heads, len, last};
}

template <class Op>
Sizes sizes_of(const Shape& q, const Shape& k, const Shape& v, const Op& n) {
  const int heads = n.layout == "bshd" ? 2 : 1, len = 3 - heads;
  return {q[0], q[heads], k[heads], q[len], k[len], q[3], v[3]};
}

// ---- blocks of keys

// Of attention only: its gradient reads keys one after another.
template <class Op>
Value table_of(const Op& n) {
  if constexpr (requires { n.block_table; }) return n.block_table;
  return {};
}

// The shape of a pool of keys or values [blocks, ..] in the order of a table [B, blocks].
Shape contiguous(const std::string& layout, const Shape& pool, const Shape& table) {
  Shape s = pool;
  const int steps = layout == "bshd" ? 1 : 2;
  s[0] = table[0];
  if (__builtin_mul_overflow(pool[steps], table[1], &s[steps]))
    s[steps] = std::numeric_limits<int64_t>::max();
  return s;
}

// The numbers of the blocks, i64 [B, blocks]; 0 for those behind kv_len, which may be anything.
// gather would count negative numbers from the end of the pool; here they are out of range.
Value blocks_in_use(Builder& b, const op::attention& n) {
  const int64_t size = b.shape(n.k)[n.layout == "bshd" ? 1 : 2];
  const Shape table = b.shape(n.block_table);
  const Value starts = b.add(op::iota{
      .shape = {1, table[1]}, .axis = 1, .dtype = kI64, .step = static_cast<double>(size)});
  const Value length = b.reshape(b.cast(n.kv_len, kI64), {table[0], 1});
  const Value number = b.cast(n.block_table, kI64), zero = b.scalar_int(kI64, 0);
  const Value valid = b.where(b.compare("lt", number, zero),
                              b.minus(number, b.scalar_int(kI64, b.shape(n.k)[0])), number);
  return b.where(b.compare("lt", starts, length), valid, zero);
}

// Keys or values of a pool, one after another.
Value in_order(Builder& b, const op::attention& n, Value pool, Value blocks) {
  Value picked = b.add(op::gather{.data = pool, .indices = blocks});
  if (n.layout == "bhsd") picked = b.transpose(picked, {0, 2, 1, 3, 4});
  return b.reshape(picked, contiguous(n.layout, b.shape(pool), b.shape(blocks)));
}

// The gradient of a pool from that of its keys in order.
Value to_pool(Builder& b, const op::attention& n, Value d, Value pool, Value blocks) {
  const Shape& p = b.shape(pool);
  const Shape table = b.shape(blocks);
  if (n.layout == "bhsd")
    d = b.transpose(b.reshape(d, {table[0], p[1], table[1], p[2], p[3]}), {0, 2, 1, 3, 4});
  else
    d = b.reshape(d, {table[0], table[1], p[1], p[2], p[3]});
  return b.add(op::gather_backward{.axis = 0, .dim = p[0], .dy = d, .indices = blocks});
}

// The same attention over keys in order.
op::attention without_table(Builder& b, const op::attention& n, Value blocks) {
  op::attention plain = n;
  plain.k = in_order(b, n, n.k, blocks);
  plain.v = in_order(b, n, n.v, blocks);
  plain.block_table = {};
  return plain;
}

// ---- checks

template <class Op>
void check_options(const Infer& i, const Op& n) {
  if (std::isinf(n.scale))
    i.fail(Code::invalid_argument, "attribute scale: expected a finite number, given ", n.scale);
  if (!(n.softcap >= 0 && std::isfinite(n.softcap)))
    i.fail(Code::invalid_argument, "attribute softcap: expected 0 (off) or more, given ",
           n.softcap);
  if (n.left_window < -1)
    i.fail(Code::invalid_argument, "attribute left_window: expected -1 (off) or more, given ",
           n.left_window);
  if (n.right_window < -1)
    i.fail(Code::invalid_argument, "attribute right_window: expected -1 (off) or more, given ",
           n.right_window);
  if (n.offset < -kFar || n.offset > kFar)
    i.fail(Code::invalid_argument, "attribute offset: expected at most 2^60 either way, given ",
           n.offset);
  if (n.past_len && n.offset != 0)
    i.fail(Code::invalid_argument, "attribute offset: expected 0 beside operand past_len, given ",
           n.offset);
}

// The block table says how many keys there are: k and v are pools of blocks.
void check_table(const Infer& i, const op::attention& n, Sizes& s) {
  i.want_index(n.block_table, "block_table");
  i.want_rank(n.block_table, "block_table", 2);
  const Shape &pool = i.shape(n.k), &table = i.shape(n.block_table);
  if (!n.kv_len)
    i.fail(Code::invalid_argument,
           "operand kv_len: expected one beside operand block_table, got none");
  i.want_shape(n.block_table, "block_table", {s.batch, table[1]});
  const int64_t size = s.k_len;
  if (size == 0)
    i.fail(Code::shape_mismatch, "operand k: expected blocks of at least one key, got ",
           i.type(n.k).text());
  if (pool[0] == 0 && table[0] != 0 && table[1] != 0)
    i.fail(Code::shape_mismatch,
           "operand k: expected at least one block beside operand block_table ",
           i.type(n.block_table).text(), ", got ", i.type(n.k).text());
  s.k_len = contiguous(n.layout, pool, table)[n.layout == "bshd" ? 1 : 2];
  sized(i, contiguous(n.layout, pool, table));
  sized(i, contiguous(n.layout, i.shape(n.v), table));
}

template <class Op>
Sizes check_operands(const Infer& i, const Op& n) {
  i.want_float(n.q, "q");
  i.want_same_dtype(n.q, "q", n.k, "k");
  i.want_same_dtype(n.q, "q", n.v, "v");
  for (const auto& [operand, v] : {std::pair("q", n.q), std::pair("k", n.k), std::pair("v", n.v)})
    i.want_rank(v, operand, 4);
  Sizes s = sizes_of(i.shape(n.q), i.shape(n.k), i.shape(n.v), n);
  if (s.dim == 0)
    i.fail(Code::shape_mismatch, "operand q: expected D >= 1, got ", i.type(n.q).text());
  const int64_t outer = table_of(n) ? i.shape(n.k)[0] : s.batch;
  i.want_shape(n.k, "k", laid_out(n.layout, outer, s.k_heads, s.k_len, s.dim));
  i.want_shape(n.v, "v", laid_out(n.layout, outer, s.k_heads, s.k_len, s.v_dim));
  if (s.k_heads == 0 ? s.q_heads != 0 : s.q_heads % s.k_heads != 0)
    i.fail(Code::shape_mismatch, "operand q: expected a multiple of the ", s.k_heads,
           " heads of k, got ", s.q_heads, " in ", i.type(n.q).text());
  for (const auto& [operand, v] :
       {std::pair("kv_len", n.kv_len), std::pair("past_len", n.past_len)}) {
    i.want_index(v, operand);
    i.want_shape(v, operand, {s.batch});
  }
  if constexpr (requires { n.block_table; })
    if (n.block_table) check_table(i, n, s);
  sized(i, s.scores());
  return s;
}

template <class Op>
void check_mask(const Infer& i, const Op& n, const Sizes& s) {
  if (!n.mask) return;
  if (i.dtype(n.mask) != kBool && i.dtype(n.mask) != i.dtype(n.q))
    i.fail(Code::dtype_mismatch, "operand mask: expected bool or ", dtype_name(i.dtype(n.q)),
           " as operand q, got ", i.type(n.mask).text());
  const Shape &mask = i.shape(n.mask), scores = s.scores();
  bool fits = mask.rank() <= 4;
  for (int k = 0; fits && k < mask.rank(); ++k)
    fits = mask[k] == 1 || mask[k] == scores[k + 4 - mask.rank()];
  if (!fits)
    i.fail(Code::shape_mismatch, "operand mask: expected a shape that broadcasts to ",
           scores.text(), " (B,Hq,Sq,Sk), got ", i.type(n.mask).text());
}

template <class Op>
Sizes check_all(const Infer& i, const Op& n) {
  check_options(i, n);
  const Sizes s = check_operands(i, n);
  check_mask(i, n, s);
  return s;
}

// ---- shared by forward and backward

struct Scores {
  Sizes sizes;
  double scale;
  Value q, k, v;  // folded, in the accumulation dtype; k and v are 0 beyond kv_len
  Value capped;   // [B,Hq,Sq,Sk] after scale and softcap
  Value masked;   // and with the mask added, -inf where not allowed
  Value allowed;  // bool, broadcastable to the scores; absent: all are
  Value e;        // e^(masked - maximum of the row): 0 where not allowed
  Value sum;      // of e: [B,Hq,Sq,1]; 0 in a row without keys
};

Value swap_layout(Builder& b, const std::string& layout, Value x) {
  return layout == "bshd" ? b.transpose(x, {0, 2, 1, 3}) : x;
}

Value per_batch(Builder& b, Value lengths) {
  return b.reshape(b.cast(lengths, kI64), {b.shape(lengths)[0], 1, 1, 1});
}

template <class Op>
Value allowed_keys(Builder& b, const Op& n, const Sizes& s) {
  Value allowed;
  const auto also = [&](Value cond) { allowed = allowed ? b.logical("and", allowed, cond) : cond; };
  if (n.mask && b.dtype(n.mask) == kBool) also(n.mask);
  const Value key = b.iota({1, s.k_len}, 1, kI64);
  const bool left = n.left_window >= 0 && n.left_window < kFar;
  const bool right = n.right_window >= 0 && n.right_window < kFar;
  if (n.causal || left || right) {
    const Value start = n.past_len ? per_batch(b, n.past_len) : b.scalar_int(kI64, n.offset);
    const Value query = b.plus(b.iota({s.q_len, 1}, 0, kI64), start);
    const auto shifted = [&](int64_t by) { return b.plus(query, b.scalar_int(kI64, by)); };
    if (n.causal) also(b.compare("le", key, query));
    if (left) also(b.compare("ge", key, shifted(-n.left_window)));
    if (right) also(b.compare("le", key, shifted(n.right_window)));
  }
  if (n.kv_len) also(b.compare("lt", key, per_batch(b, n.kv_len)));
  return allowed;
}

template <class Op>
Scores scores_of(Builder& b, const Op& n) {
  Scores r;
  const Sizes s = r.sizes = sizes_of(b.shape(n.q), b.shape(n.k), b.shape(n.v), n);
  r.scale = is_unset(n.scale) ? 1 / std::sqrt(static_cast<double>(s.dim)) : n.scale;
  const auto prepared = [&](Value x) { return b.widen(swap_layout(b, n.layout, x)); };
  r.q = b.reshape(prepared(n.q), s.folded(s.dim));
  r.k = prepared(n.k);
  r.v = prepared(n.v);
  const DType acc = b.dtype(r.q);
  if (n.kv_len) {
    // Elements beyond kv_len may be uninitialized NaN, which multiplication by 0 would keep.
    const Value inside = b.compare("lt", b.iota({s.k_len, 1}, 0, kI64), per_batch(b, n.kv_len));
    r.k = b.where(inside, r.k, b.scalar(acc, 0));
    r.v = b.where(inside, r.v, b.scalar(acc, 0));
  }
  r.capped = b.reshape(b.matmul(r.q, r.k, false, true, r.scale), s.scores());
  if (n.softcap > 0) r.capped = b.times(b.unary("tanh", b.over(r.capped, n.softcap)), n.softcap);
  r.masked = r.capped;
  if (n.mask && b.dtype(n.mask) != kBool) r.masked = b.plus(r.masked, b.widen(n.mask));
  r.allowed = allowed_keys(b, n, s);
  if (r.allowed) r.masked = b.where(r.allowed, r.masked, b.scalar(acc, -kInf));
  return r;
}

// The sum of the weights is at least 1 in a row with keys, or NaN.
Value has_no_key(Builder& b, Value sum) {
  return b.compare("lt", sum, b.scalar(b.dtype(sum), 0.5));
}

// Fills in e and sum. Returns the maximum of each row, and the lowest finite number for a row
// without keys: e is 0 there, not NaN.
Value weigh(Builder& b, Scores& r) {
  const double lowest = b.dtype(r.masked) == kF64 ? std::numeric_limits<double>::lowest()
                                                  : std::numeric_limits<float>::lowest();
  const Value top =
      b.reduce("max", b.max(r.masked, b.scalar(b.dtype(r.masked), lowest)), {3}, true);
  r.e = b.exp(b.minus(r.masked, top));
  r.sum = b.sum(r.e, {3});
  return top;
}

// ---- attention

void attention_shape(Infer& i, const op::attention& n) {
  const Sizes s = check_all(i, n);
  const DType dtype = i.dtype(n.q);
  i.out(0, {dtype, sized(i, laid_out(n.layout, s.batch, s.q_heads, s.q_len, s.v_dim))});
  i.out(1, {acc_dtype(dtype), {s.batch, s.q_heads, s.q_len}});
}

bool attention_lower(Lower& l, const op::attention& n) {
  Builder& b = l.b;
  if (n.block_table) {
    const auto y = b.add(without_table(b, n, blocks_in_use(b, n)));
    l.out(0, y[0]);
    if (l.wanted(1)) l.out(1, y[1]);
    return true;
  }
  const DType dtype = b.dtype(n.q), acc = acc_dtype(dtype);
  Scores r = scores_of(b, n);
  const Sizes& s = r.sizes;
  const Value top = weigh(b, r);
  // The division comes last, because there are fewer results than weights. The sums are expanded
  // first, so that fusion takes everything after the product into one fused body.
  const auto laid = [&](Value x) { return swap_layout(b, n.layout, x); };
  const Value product = b.matmul(b.reshape(r.e, s.folded(s.k_len)), r.v);
  const Value heads = laid(b.reshape(product, {s.batch, s.q_heads, s.q_len, s.v_dim}));
  const Value sums = b.expand(laid(r.sum), b.shape(heads));
  const Value o = b.where(has_no_key(b, sums), b.scalar(acc, 0), b.over(heads, sums));
  l.out(0, b.cast(o, dtype));
  if (l.wanted(1)) {
    const Value lse =
        b.where(has_no_key(b, r.sum), b.scalar(acc, -kInf), b.plus(top, b.log(r.sum)));
    l.out(1, b.reshape(lse, {s.batch, s.q_heads, s.q_len}));
  }
  return true;
}

// The gradient of lse adds p * dlse to the gradient of the scores. attention_backward has no
// operand for it, but one more column has this effect: 0 in v, 1 in o, -dlse in dout.
void add_column(Builder& b, const op::attention& n, Value dlse, op::attention_backward& back) {
  const DType dtype = b.dtype(n.q);
  Value column = b.cast(b.neg(dlse), dtype);
  if (n.layout == "bshd") column = b.transpose(column, {0, 2, 1});
  const auto constant = [&](Value beside, double value) {
    Shape shape = b.shape(beside);
    shape[3] = 1;
    return b.full({dtype, shape}, value);
  };
  back.dout = b.concat({back.dout, b.unsqueeze(column, 3)}, 3);
  back.o = b.concat({back.o, constant(back.o, 1)}, 3);
  back.v = b.concat({back.v, constant(back.v, 0)}, 3);
}

void attention_grad(Grad& g, const op::attention& paged) {
  op::attention n = paged;
  if (!g.wants(n.q) && !g.wants(n.k) && !g.wants(n.v) && !g.wants(n.mask)) return;
  Builder& b = g.b;
  Value blocks;
  if (paged.block_table) {
    blocks = blocks_in_use(b, paged);
    n = without_table(b, paged, blocks);
  }
  const auto to_operand = [&](Value d, Value operand) {
    return blocks ? to_pool(b, paged, d, operand, blocks) : d;
  };
  op::attention_backward back{.layout = n.layout,
                              .scale = n.scale,
                              .softcap = n.softcap,
                              .causal = n.causal,
                              .left_window = n.left_window,
                              .right_window = n.right_window,
                              .offset = n.offset,
                              .dout = g.dy(0),
                              .q = n.q,
                              .k = n.k,
                              .v = n.v,
                              .o = g.y(0),
                              .lse = g.y(1),
                              .mask = n.mask,
                              .kv_len = n.kv_len,
                              .past_len = n.past_len,
                              .want_dmask = g.wants(n.mask)};
  if (!back.dout) back.dout = b.zeros(b.type(back.o));
  if (g.dy(1)) add_column(b, n, g.dy(1), back);
  const auto d = b.add(back);
  if (g.wants(n.q)) g.give(n.q, d[0]);
  if (g.wants(paged.k)) g.give(paged.k, to_operand(d[1], paged.k));
  if (g.wants(paged.v)) g.give(paged.v, to_operand(b.narrow(d[2], 3, 0, b.shape(n.v)[3]), paged.v));
  if (g.wants(n.mask)) g.give(n.mask, d[3]);
}

// Sum of min(j, limit) for j = 1 .. upto.
double ramp(double upto, double most) {
  if (upto <= 0) return 0;
  const double rising = std::min(upto, most);
  return rising * (rising + 1) / 2 + (upto - rising) * most;
}
// Sum over the queries i of i + first, clamped to 0 .. k_len.
double bounded(double q_len, double first, double k_len) {
  return ramp(q_len + first - 1, k_len) - ramp(first - 1, k_len);
}

// Twice the number of multiplied pairs of query and key, over all batches and heads, after causal
// mask and windows.
template <class Op>
double pair_flops(const Cost& c, const Op& n) {
  const bool bshd = n.layout == "bshd";
  const double q_len = c.dim(n.q, bshd ? 2 : 1);
  double k_len = c.dim(n.k, bshd ? 2 : 1);
  if (const Value table = table_of(n)) k_len *= c.dim(table, 0);
  const auto offset = static_cast<double>(n.offset);
  double pairs = q_len * k_len;
  if (n.causal)
    pairs = bounded(q_len, offset + 1, k_len);
  else if (n.right_window >= 0)
    pairs = bounded(q_len, offset + static_cast<double>(n.right_window) + 1, k_len);
  if (n.left_window >= 0)
    pairs -= bounded(q_len, offset - static_cast<double>(n.left_window), k_len);
  return 2 * pairs * c.dim(n.q, 3) * c.dim(n.q, bshd ? 1 : 2);
}
double attention_flops(const Cost& c, const op::attention& n) {
  return pair_flops(c, n) * (c.dim(n.q, 0) + c.dim(n.v, 0));
}

// Of a pool, the blocks of the table are read.
double attention_bytes(const Cost& c, const op::attention& n) {
  double bytes = c.operands_and_outputs();
  if (!n.block_table) return bytes;
  for (const Value pool : {n.k, n.v}) {
    const double blocks = c.dim(pool, 3);
    if (blocks > 0) bytes += c.bytes(pool) * (c.elements(n.block_table) / blocks - 1);
  }
  return bytes;
}

// The batch joins that of the op. A mask keeps its shape where it is the same for all.
template <class Op>
bool attention_batch(Batch& v, const Op& n) {
  if constexpr (requires { n.want_dmask; })
    if (n.want_dmask) return false;
  const Value table = table_of(n);
  // A table counts the blocks of one pool.
  if (table && (v.batched(n.k) || v.batched(n.v))) return false;
  return v.add_folded(n, [&](Value x) {
    if (table && (x == n.k || x == n.v)) return v.given(x);
    if (x != n.mask) return Value{};
    Builder& b = v.b;
    const Shape& one = v.type(x).shape;
    if (!v.batched(x) && (one.rank() < 4 || one[0] == 1)) return v.given(x);
    // As [batch, B or 1, heads or 1, ..]; then every example has an entry for each of B.
    Value mask = v.batched(x) ? v.aligned(x, 4) : v.all(x);
    Shape wide = b.shape(mask);
    wide[1] = v.type(n.q).shape[0];
    mask = b.expand(mask, wide);
    return b.reshape(mask, {v.size() * wide[1], wide[2], wide[3], wide[4]});
  });
}

// Keys that are padding get no weight: by kv_len.
template <class Op>
bool attend_to_counted(Padded& p, const Op& n) {
  if (p.along(n.q, -1)) return p.refuse("the dims that its scale depends on are padded");
  const int heads = n.layout == "bshd" ? 2 : 1, steps = n.layout == "bshd" ? 1 : 2;
  if (!p.same_multiple(n.q, n.k, heads)) return p.refuse("its number of heads per key is padded");
  if (table_of(n)) {
    if (p.along(n.k, steps)) return p.refuse("its blocks of keys are padded");
    // Entries that are padding have no keys: their block numbers are not read.
    p.fill_all(n.kv_len, Fill::zero);
    return true;
  }
  if (!p.along(n.k, steps)) return true;
  Builder& b = p.b;
  Value most = p.length_of(n.k, steps);
  if (n.kv_len)
    most = b.min(b.cast(p.value(n.kv_len), kI64), most);
  else
    most = b.expand(b.reshape(most, {1}), {p.type(n.k).shape[0]});
  Op now = n;
  p.replace(now);
  now.kv_len = most;
  p.out_all(b.add(now));
  return true;
}
bool attention_padded(Padded& p, const op::attention& n) { return attend_to_counted(p, n); }
// Queries that are padding have no gradient: their scores are 0, and so is dout.
bool attention_backward_padded(Padded& p, const op::attention_backward& n) {
  for (Value v : {n.dout, n.q, n.k, n.v, n.o, n.lse}) p.fill_all(v, Fill::zero);
  return attend_to_counted(p, n);
}

constexpr Record<op::attention> kAttention{.shape = attention_shape,
                                           .words = {{"layout", "bhsd bshd"}},
                                           .grad = attention_grad,
                                           .lower = attention_lower,
                                           .batch = attention_batch<op::attention>,
                                           .padded = attention_padded,
                                           .flops = attention_flops,
                                           .bytes = attention_bytes};

// ---- attention_backward

void attention_backward_shape(Infer& i, const op::attention_backward& n) {
  const Sizes s = check_all(i, n);
  const DType dtype = i.dtype(n.q);
  const Shape out = laid_out(n.layout, s.batch, s.q_heads, s.q_len, s.v_dim);
  i.want_dtype(n.dout, "dout", dtype);
  i.want_shape(n.dout, "dout", out);
  i.want_dtype(n.o, "o", dtype);
  i.want_shape(n.o, "o", out);
  i.want_dtype(n.lse, "lse", acc_dtype(dtype));
  i.want_shape(n.lse, "lse", {s.batch, s.q_heads, s.q_len});
  const bool float_mask = n.mask && i.dtype(n.mask) != kBool;
  if (n.want_dmask && !float_mask)
    i.fail(Code::invalid_argument, "output dmask: expected a float operand mask, got ",
           n.mask ? i.type(n.mask).text() : "none");
  i.out(0, i.type(n.q));
  i.out(1, i.type(n.k));
  i.out(2, i.type(n.v));
  if (float_mask) i.out(3, i.type(n.mask));
}

bool attention_backward_lower(Lower& l, const op::attention_backward& n) {
  Builder& b = l.b;
  const DType dtype = b.dtype(n.q);
  Scores r = scores_of(b, n);
  const Sizes& s = r.sizes;
  const Value zero = b.scalar(b.dtype(r.q), 0);
  weigh(b, r);
  // Selects, because 0 times a NaN is NaN. Bool masks and limits are in r.allowed; a float mask can
  // make all scores of a row -inf, so its rows are checked. Those that infinite q or k make -inf are
  // not: v may not be NaN there.
  const auto dead = [&](const Shape& shape) { return has_no_key(b, b.expand(r.sum, shape)); };
  const auto keep = [&](Value x) {
    if (r.allowed) x = b.where(r.allowed, x, zero);
    if (n.mask && b.dtype(n.mask) != kBool) x = b.where(dead(s.scores()), zero, x);
    return x;
  };
  // The weights are divided by their own sum, not taken from lse: a large lse has lost the
  // logarithm of the sum. A row without keys has sum 0, and 0 / 0.5 is 0.
  const Value sums = b.max(b.expand(r.sum, s.scores()), b.scalar(b.dtype(r.sum), 0.5));
  const Value p = keep(b.over(r.e, sums));
  // Whatever k, v and the upstream gradient hold, a row without keys gives and gets nothing.
  const auto heads = [&](Value x) { return b.widen(swap_layout(b, n.layout, x)); };
  const Shape out{s.batch, s.q_heads, s.q_len, s.v_dim};
  const Value dout = b.where(dead(out), zero, heads(n.dout));
  const Value delta = b.sum(b.times(dout, heads(n.o)), {3});
  const Value rows = b.reshape(dout, s.folded(s.v_dim));
  const Value dp = b.reshape(b.matmul(rows, r.v, false, true), s.scores());
  const Value ds = keep(b.times(p, b.minus(dp, delta)));
  Value dz = ds;
  if (n.softcap > 0) {
    const Value t = b.over(r.capped, n.softcap);
    const Value slope = b.minus(b.scalar(b.dtype(t), 1), b.times(t, t));
    dz = keep(b.times(ds, slope));
  }
  dz = b.reshape(dz, s.folded(s.k_len));
  const auto give = [&](size_t k, Value x) {
    l.out(k, swap_layout(b, n.layout, b.cast(x, dtype)));
  };
  if (l.wanted(0)) {
    const Shape shape{s.batch, s.q_heads, s.q_len, s.dim};
    const Value dq = b.reshape(b.matmul(dz, r.k, false, false, r.scale), shape);
    give(0, b.where(dead(shape), zero, dq));
  }
  // The product over the folded rows includes the sum over the queries of a key head.
  if (l.wanted(1)) give(1, b.matmul(dz, r.q, true, false, r.scale));
  if (l.wanted(2)) give(2, b.matmul(b.reshape(p, s.folded(s.k_len)), rows, true, false));
  if (l.wanted(3)) l.out(3, b.cast(b.sum_to(ds, b.shape(n.mask)), b.dtype(n.mask)));
  return true;
}

// Scores, dq and dk use D; the gradient of the weights and dv use the dim of v.
double attention_backward_flops(const Cost& c, const op::attention_backward& n) {
  return pair_flops(c, n) * (3 * c.dim(n.q, 0) + 2 * c.dim(n.v, 0));
}
constexpr Record<op::attention_backward> kAttentionBackward{
    .shape = attention_backward_shape,
    .words = {{"layout", "bhsd bshd"}},
    .lower = attention_backward_lower,
    .batch = attention_batch<op::attention_backward>,
    .padded = attention_backward_padded,
    .flops = attention_backward_flops,
    .bytes = each_once};

}  // namespace

const OpRecord attention_def = record<op::attention, kAttention>();
const OpRecord attention_backward_def = record<op::attention_backward, kAttentionBackward>();

}  // namespace tenon::core
