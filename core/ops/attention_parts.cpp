// SPDX-License-Identifier: Apache-2.0
// What attention and attention_backward share; see attention.hpp.
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/attention.hpp"
#include "ops/check.hpp"

namespace tenon::core::attending {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// Larger windows count as no window. Offsets up to this limit keep i + offset + window within i64.
constexpr int64_t kFar = int64_t{1} << 60;

}  // namespace

Shape laid_out(const std::string& layout, int64_t batch, int64_t heads, int64_t len, int64_t last) {
  return layout == "bshd" ? Shape{batch, len, heads, last} : Shape{batch, heads, len, last};
}

void check_scores(const Infer& i, double scale, double softcap, int64_t left_window) {
  if (std::isinf(scale))
    i.fail(Code::invalid_argument, "attribute scale: expected a finite number, given ", scale);
  if (!(softcap >= 0 && std::isfinite(softcap)))
    i.fail(Code::invalid_argument, "attribute softcap: expected 0 (off) or more, given ", softcap);
  if (left_window < -1)
    i.fail(Code::invalid_argument, "attribute left_window: expected -1 (off) or more, given ",
           left_window);
}

Shape contiguous(const std::string& layout, const Shape& pool, const Shape& table) {
  Shape s = pool;
  const int steps = layout == "bshd" ? 1 : 2;
  s[0] = table[0];
  if (__builtin_mul_overflow(pool[steps], table[1], &s[steps]))
    s[steps] = std::numeric_limits<int64_t>::max();
  return s;
}

Value swap_layout(Builder& b, const std::string& layout, Value x) {
  return layout == "bshd" ? b.transpose(x, {0, 2, 1, 3}) : x;
}

namespace {

template <class Op>
Sizes sizes_of(const Shape& q, const Shape& k, const Shape& v, const Op& n) {
  const int heads = n.layout == "bshd" ? 2 : 1, len = 3 - heads;
  return {q[0], q[heads], k[heads], q[len], k[len], q[3], v[3]};
}

// ---- checks

template <class Op>
void check_options(const Infer& i, const Op& n) {
  check_scores(i, n.scale, n.softcap, n.left_window);
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
  if (is_blocks(i.dtype(n.k))) {
    if (!sdk::is_decodable(i.dtype(n.k)))
      i.fail(Code::unsupported, "operand k: ", dtype_name(i.dtype(n.k)),
             " takes its elements from a long table, which no op does; expected another format");
    i.want_same_dtype(n.k, "k", n.v, "v");
  } else {
    i.want_same_dtype(n.q, "q", n.k, "k");
    i.want_same_dtype(n.q, "q", n.v, "v");
  }
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

}  // namespace

template <class Op>
Sizes check_all(const Infer& i, const Op& n) {
  check_options(i, n);
  const Sizes s = check_operands(i, n);
  check_mask(i, n, s);
  return s;
}

// ---- scores

namespace {

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

}  // namespace

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

Value has_no_key(Builder& b, Value sum) {
  return b.compare("lt", sum, b.scalar(b.dtype(sum), 0.5));
}

Value weigh(Builder& b, Scores& r) {
  const double lowest = b.dtype(r.masked) == kF64 ? std::numeric_limits<double>::lowest()
                                                  : std::numeric_limits<float>::lowest();
  const Value top =
      b.reduce("max", b.max(r.masked, b.scalar(b.dtype(r.masked), lowest)), {3}, true);
  r.e = b.exp(b.minus(r.masked, top));
  r.sum = b.sum(r.e, {3});
  return top;
}

// ---- costs, batches, padding

namespace {

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

}  // namespace

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

template <class Op>
bool attention_batch(Batch& v, const Op& n) {
  if constexpr (requires { n.want_dmask; })
    if (n.want_dmask) return false;
  // Blocks of elements are decoded first.
  if (is_blocks(v.type(n.k).dtype)) return false;
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

template Sizes check_all(const Infer&, const op::attention&);
template Scores scores_of(Builder&, const op::attention&);
template double pair_flops(const Cost&, const op::attention&);
template bool attention_batch(Batch&, const op::attention&);
template bool attend_to_counted(Padded&, const op::attention&);
template Sizes check_all(const Infer&, const op::attention_backward&);
template Scores scores_of(Builder&, const op::attention_backward&);
template double pair_flops(const Cost&, const op::attention_backward&);
template bool attention_batch(Batch&, const op::attention_backward&);
template bool attend_to_counted(Padded&, const op::attention_backward&);

}  // namespace tenon::core::attending
