// SPDX-License-Identifier: Apache-2.0
// Rules: Attention, RotaryEmbedding and LinearAttention.
#include <cmath>
#include <limits>

#include "import/onnx/body.hpp"
#include "import/onnx/helpers.hpp"
#include "ops/control.hpp"

namespace tenon::core::onnx {
namespace {

// [B, S, H·D] to [B, H, S, D]; rank 4 stays.
Value heads_apart(Call& c, Value x, std::string_view attr) {
  Builder& b = c.b;
  const Shape s = b.shape(x);
  if (s.rank() == 4) return x;
  const int64_t heads = c.i(attr, 0);
  if (s.rank() != 3 || heads < 1 || s[2] % heads)
    c.wrong("expected rank 4, or [B, S, H·D] with H in attribute ", attr, ", got ", s.text());
  return swap_axes(b, b.reshape(x, {s[0], s[1], heads, s[2] / heads}), 1, 2);
}
Value heads_together(Builder& b, Value x) {
  const Shape s = b.shape(x);
  return b.reshape(swap_axes(b, x, 1, 2), {s[0], s[2], s[1] * s[3]});
}

// A node Attention, taken apart.
struct Parts {
  Value q, k, v, mask{}, keys{}, offsets{};  // keys [B]: how many are valid; offsets [B]
  int64_t offset = 0, left = -1, right = -1;
  bool causal = false;
  double scale = 0, softcap = 0;
};

// Which keys a query may attend to, as far as no mask says it: bool, or absent.
Value permitted(Builder& b, const Parts& p) {
  const int64_t queries = b.shape(p.q)[2], keys = b.shape(p.k)[2];
  const Value j = b.iota({1, 1, 1, keys}, 3, kI64);
  Value at = b.iota({1, 1, queries, 1}, 2, kI64, static_cast<double>(p.offset));
  if (p.offsets) at = b.plus(at, b.reshape(p.offsets, {b.shape(p.offsets)[0], 1, 1, 1}));
  Value all{};
  const auto also = [&](Value condition) {
    all = all ? b.logical("and", all, condition) : condition;
  };
  if (p.causal) also(b.compare("le", j, at));
  if (p.left >= 0) also(b.compare("ge", j, b.minus(at, b.scalar_int(kI64, p.left))));
  if (p.right >= 0) also(b.compare("le", j, b.plus(at, b.scalar_int(kI64, p.right))));
  if (p.keys) also(b.compare("lt", j, b.reshape(p.keys, {b.shape(p.keys)[0], 1, 1, 1})));
  return all;
}

// The scores of all pairs: [B, Hq, Sq, Sk], in the accumulation dtype.
Value raw_scores(Builder& b, const Parts& p) {
  const Shape q = b.shape(p.q), k = b.shape(p.k);
  const int64_t group = q[1] / k[1];
  const Value x = b.reshape(p.q, {q[0], k[1], group * q[2], q[3]});
  const Value z = b.matmul(b.widen(x), b.widen(p.k), false, true, p.scale);
  return b.reshape(z, {q[0], q[1], q[2], k[2]});
}

// Output 3. mode: 0 products, 1 behind the soft cap, 2 with mask, 3 probabilities.
Value scores(Builder& b, const Parts& p, int64_t mode) {
  Value z = raw_scores(b, p);
  if (mode >= 1 && p.softcap > 0) z = b.times(b.unary("tanh", b.over(z, p.softcap)), p.softcap);
  if (mode <= 1) return b.cast(z, b.dtype(p.q));
  const DType t = b.dtype(z);
  const Value none = b.scalar(t, -std::numeric_limits<double>::infinity());
  Value bias{};
  if (p.mask)
    bias = b.dtype(p.mask) == kBool ? b.where(p.mask, b.scalar(t, 0), none) : b.cast(p.mask, t);
  if (const Value on = permitted(b, p)) bias = b.where(on, bias ? bias : b.scalar(t, 0), none);
  if (bias) z = b.plus(z, bias);
  if (mode == 3) {
    // A query without a key has no probabilities: all are 0.
    const int last = 3;
    const Value shares = b.shares(z, {last});
    z = bias ? b.where(
                   b.compare("eq", b.reduce("max", b.expand(bias, b.shape(z)), {last}, true), none),
                   b.scalar(t, 0), shares)
             : shares;
  }
  return b.cast(z, b.dtype(p.q));
}

void attention(Call& c) {
  Builder& b = c.b;
  const bool packed = c.rank(0) == 3;
  Parts p;
  p.q = heads_apart(c, c.value(0), "q_num_heads");
  p.k = heads_apart(c, c.value(1), "kv_num_heads");
  p.v = heads_apart(c, c.value(2), "kv_num_heads");
  if (c.has(4) != c.has(5)) c.wrong("expected past_key and past_value together");
  if (c.has(4)) {
    p.offset = c.shape(4)[2];
    p.k = b.concat({c.value(4), p.k}, 2);
    p.v = b.concat({c.value(5), p.v}, 2);
  }
  const Shape q = b.shape(p.q), k = b.shape(p.k);
  if (k[1] == 0 || q[1] % k[1])
    c.wrong("expected a multiple of ", k[1], " query heads, got ", q[1]);
  p.causal = c.flag("is_causal", false);
  p.left = c.i("left_window_size", -1);
  p.right = c.i("right_window_size", -1);
  p.softcap = c.f("softcap", 0);
  p.scale = c.f("scale", 1 / std::sqrt(static_cast<double>(q[3])));
  if (c.has(6)) {
    p.keys = b.cast(c.value(6), kI64);
    if ((p.causal || p.left >= 0 || p.right >= 0) && !c.has(4))
      p.offsets = b.minus(p.keys, b.scalar_int(kI64, q[2]));
  }
  if (c.has(3)) {
    p.mask = c.value(3);
    const Shape m = b.shape(p.mask);
    if (m.rank() < 1) c.wrong("attn_mask: expected rank 1 or more");
    const int64_t missing = k[2] - m[m.rank() - 1];
    if (missing > 0 && (m[m.rank() - 1] != 1 || k[2] == 1)) {
      Ints before(static_cast<size_t>(m.rank()), 0), after = before;
      after.back() = missing;
      const bool boolean = b.dtype(p.mask) == kBool;
      p.mask = b.add(op::pad{.before = before,
                             .after = after,
                             .value = boolean ? 0 : -std::numeric_limits<double>::infinity(),
                             .x = p.mask});
    }
    if (b.dtype(p.mask) != kBool) p.mask = b.cast(p.mask, b.dtype(p.q));
  }
  op::attention n{.scale = p.scale,
                  .softcap = p.softcap,
                  .causal = p.causal,
                  .left_window = p.left,
                  .right_window = p.right,
                  .offset = p.offsets ? 0 : p.offset,
                  .q = p.q,
                  .k = p.k,
                  .v = p.v,
                  .mask = p.mask,
                  .kv_len = p.keys,
                  .past_len = p.offsets};
  const Value y = b.add(n);
  c.out(0, packed ? heads_together(b, y) : y);
  c.out(1, p.k);
  c.out(2, p.v);
  if (c.wants(3)) c.out(3, scores(b, p, c.i("qk_matmul_output_mode", 0)));
}

// A subgraph of one input and one output that changes scores or probabilities.
Value modified(Call& c, std::string_view name, Value x) {
  if (!c.has_attr(name)) return x;
  Item item;
  item.value = x;
  std::vector<Item> out = run_in_place(c, c.graph(name), {item});
  if (out.size() != 1) c.wrong("attribute ", name, ": expected one output, got ", out.size());
  if (out[0].refused) c.refuse("attribute ", name, ": a node of its subgraph is refused");
  const Value y = c.scope.value(out[0]);
  if (c.b.shape(y) != c.b.shape(x))
    c.wrong("attribute ", name, ": expected ", c.b.type(x).text(), ", got ", c.b.type(y).text());
  return c.b.cast(y, c.b.dtype(x));
}

void flex_attention(Call& c) {
  Builder& b = c.b;
  for (size_t k = 0; k < 3; ++k)
    if (c.rank(k) != 4) c.wrong("input ", k, ": expected rank 4, got ", c.type(k).text());
  Parts p;
  p.q = c.value(0), p.k = c.value(1), p.v = c.value(2);
  const Shape q = b.shape(p.q), k = b.shape(p.k), v = b.shape(p.v);
  if (k[1] == 0 || q[1] % k[1])
    c.wrong("expected a multiple of ", k[1], " query heads, got ", q[1]);
  p.scale = c.f("scale", 1 / std::sqrt(static_cast<double>(q[3])));
  if (!c.has_attr("score_mod") && !c.has_attr("prob_mod"))
    return c.out(b.add(op::attention{.scale = p.scale, .q = p.q, .k = p.k, .v = p.v}));
  const DType t = c.has_attr("softmax_precision") ? c.dtype_attr("softmax_precision", 1)
                                                  : acc_dtype(c.dtype(0));
  Value x = modified(c, "score_mod", b.cast(raw_scores(b, p), t));
  x = modified(c, "prob_mod", b.add(op::softmax{.x = x}));
  const int64_t group = q[1] / k[1];
  const Value y = b.matmul(b.reshape(x, {q[0], k[1], group * q[2], k[2]}), b.cast(p.v, t));
  c.out(b.cast(b.reshape(y, {q[0], q[1], q[2], v[3]}), c.dtype(2)));
}

void rotary_embedding(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  if (s.rank() != 3 && s.rank() != 4) c.wrong("input 0: expected rank 3 or 4, got ", s.text());
  const DType acc = acc_dtype(c.dtype(0));
  const bool packed = s.rank() == 3;
  c.out(b.add(op::rope{.layout = packed ? "bsh" : "bhsd",
                       .n_rot = c.i("rotary_embedding_dim", 0),
                       .interleaved = c.flag("interleaved", false),
                       .num_heads = packed ? c.i("num_heads", 0) : 0,
                       .x = c.value(0),
                       .cos = b.cast(c.value(1), acc),
                       .sin = b.cast(c.value(2), acc),
                       .position_ids = c.value_or_none(3)}));
}

// A recurrence over tokens: the state [B, H, dk, dv] decays, and gets the product of key and value.
void linear_attention(Call& c) {
  Builder& b = c.b;
  const std::string rule = c.s("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta";
  const bool delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear")
    c.wrong("attribute update_rule: expected linear, gated, delta or gated_delta, got '", rule,
            "'");
  const int64_t heads = c.i("q_num_heads", 0), kv = c.i("kv_num_heads", 0);
  const Shape qs = c.shape(0), ks = c.shape(1), vs = c.shape(2);
  if (qs.rank() != 3 || ks.rank() != 3 || vs.rank() != 3 || heads < 1 || kv < 1 || heads % kv ||
      qs[2] % heads || ks[2] % kv || vs[2] % kv)
    c.wrong("expected [B, T, H·D] inputs, and q_num_heads a multiple of kv_num_heads");
  const int64_t batch = qs[0], tokens = qs[1], dk = ks[2] / kv, dv = vs[2] / kv, group = heads / kv;
  const DType t = c.dtype(0), acc = acc_dtype(t);
  const double given = c.f("scale", 0);
  const double scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(qs[2] / heads));
  // Tokens first, and a head's numbers as rows or columns.
  const auto steps = [&](size_t k, Shape each) {
    Shape s{batch, tokens};
    for (const Dim d : each) s.push(d);
    return swap_axes(b, b.reshape(b.cast(c.value(k), acc), s), 0, 1);
  };
  Control scan{.kind = Control::Kind::trips, .trips = tokens};
  scan.xs = {steps(0, {kv, group, dk}), steps(1, {kv, dk, 1}), steps(2, {kv, 1, dv})};
  if (gated) {
    if (!c.has(4)) c.wrong("decay is required");
    const bool per_head = c.shape(4)[2] == kv && dk != 1;
    scan.xs.push_back(b.exp(steps(4, {kv, per_head ? 1 : dk, 1})));
  }
  if (delta) {
    if (!c.has(5)) c.wrong("beta is required");
    scan.xs.push_back(steps(5, {c.shape(5)[2], 1, 1}));
  }
  const Type state{acc, {batch, kv, dk, dv}};
  scan.carry = {c.has(3) ? b.cast(c.value(3), acc) : b.zeros(state)};
  core::Graph body;
  Value s = body.input("state", state);
  std::vector<Value> x;
  for (Value v : scan.xs) x.push_back(body.input(cat("x", x.size()), slice_type(b.type(v))));
  Builder in(body, b.provenance);
  size_t next = 3;
  if (gated) s = in.times(s, x[next++]);
  Value v = x[2];
  if (delta) v = in.times(in.minus(v, in.matmul(x[1], s, true)), x[next]);
  s = in.plus(s, in.matmul(x[1], v));
  body.output("state", s);
  body.output("y", in.matmul(x[0], s, false, false, scale));  // [B, kv, group, dv]
  scan.functions = {std::make_shared<const core::Graph>(std::move(body))};
  const Results y = add_control(b, scan, 2);
  c.out(0, b.cast(b.reshape(swap_axes(b, y[1], 0, 1), {batch, tokens, heads * dv}), t));
  c.out(1, b.cast(y[0], c.has(3) ? c.dtype(3) : t));
}

constexpr Rule kRules[] = {
    {"Attention", 23, attention},
    {"RotaryEmbedding", 23, rotary_embedding},
    {"FlexAttention", 1, flex_attention, "ai.onnx.preview"},
    {"LinearAttention", 27, linear_attention},
};

}  // namespace

std::span<const Rule> attention_rules() { return kRules; }

}  // namespace tenon::core::onnx
