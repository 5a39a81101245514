// SPDX-License-Identifier: Apache-2.0
// The record of attention: over keys in order, and over blocks of keys. "Blocks of elements" are
// those of a dtype such as q8_0.
#include <limits>

#include "ops/attention.hpp"
#include "ops/check.hpp"

namespace tenon::core {
namespace {

using namespace attending;

constexpr double kInf = std::numeric_limits<double>::infinity();

// ---- blocks of keys

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

// The same attention over numbers, if k and v are blocks of elements: all in the accumulation dtype.
op::attention of_numbers(Builder& b, const op::attention& n) {
  if (!is_blocks(b.dtype(n.k))) return n;
  op::attention plain = n;
  plain.q = b.widen(n.q);
  plain.k = b.add(op::dequantize_blocks{.to = b.dtype(plain.q), .w = n.k});
  plain.v = b.add(op::dequantize_blocks{.to = b.dtype(plain.q), .w = n.v});
  if (n.mask && b.dtype(n.mask) != kBool) plain.mask = b.widen(n.mask);
  return plain;
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
  const bool numbers = !is_blocks(b.dtype(n.k));
  if (n.block_table || !numbers) {
    const auto y = b.add(numbers ? without_table(b, n, blocks_in_use(b, n)) : of_numbers(b, n));
    l.out(0, b.cast(y[0], b.dtype(n.q)));
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
  if (!g.wants(paged.q) && !g.wants(paged.k) && !g.wants(paged.v) && !g.wants(paged.mask)) return;
  Builder& b = g.b;
  if (is_blocks(b.dtype(paged.k)))
    for (const auto& [operand, v] : {std::pair("k", paged.k), std::pair("v", paged.v)})
      if (g.wants(v)) g.refuse(operand, "blocks of elements have no gradient");
  op::attention n = of_numbers(b, paged);
  const Value blocks = paged.block_table ? blocks_in_use(b, paged) : Value{};
  if (blocks) n = without_table(b, n, blocks);
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
                              .dout = g.dy(0) ? b.cast(g.dy(0), b.dtype(n.q)) : Value{},
                              .q = n.q,
                              .k = n.k,
                              .v = n.v,
                              .o = b.cast(g.y(0), b.dtype(n.q)),
                              .lse = g.y(1),
                              .mask = n.mask,
                              .kv_len = n.kv_len,
                              .past_len = n.past_len,
                              .want_dmask = g.wants(paged.mask)};
  if (!back.dout) back.dout = b.zeros(b.type(back.o));
  if (g.dy(1)) add_column(b, n, g.dy(1), back);
  const auto d = b.add(back);
  const auto narrowed = [&](Value to, Value gradient) {
    g.give(to, b.cast(gradient, b.dtype(to)));
  };
  if (g.wants(paged.q)) narrowed(paged.q, d[0]);
  if (g.wants(paged.k)) g.give(paged.k, to_operand(d[1], paged.k));
  if (g.wants(paged.v)) g.give(paged.v, to_operand(b.narrow(d[2], 3, 0, b.shape(n.v)[3]), paged.v));
  if (g.wants(paged.mask)) narrowed(paged.mask, d[3]);
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

bool attention_padded(Padded& p, const op::attention& n) { return attend_to_counted(p, n); }
constexpr Record<op::attention> kAttention{.shape = attention_shape,
                                           .words = {{"layout", "bhsd bshd"}},
                                           .grad = attention_grad,
                                           .lower = attention_lower,
                                           .batch = attention_batch<op::attention>,
                                           .padded = attention_padded,
                                           .flops = attention_flops,
                                           .bytes = attention_bytes,
                                           .traits = kReadsBlocks};

}  // namespace

const OpRecord attention_def = record<op::attention, kAttention>();

}  // namespace tenon::core
