// SPDX-License-Identifier: Apache-2.0
// Reads an attention node: sizes, strides, mask and limits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

constexpr int64_t kFar = int64_t{1} << 60;  // a window of this size or more is no window
constexpr int64_t kWidest = 256;            // the largest dim and v_dim of the kernels

AttentionStrides strides_of(bool bshd, int64_t heads, int64_t len, int64_t dim) {
  if (bshd) return {len * heads * dim, dim, heads * dim};
  return {heads * len * dim, len * dim, dim};
}

int64_t padded(int64_t dim) {
  const int64_t step = dim <= 128 ? 16 : 64;
  return std::max<int64_t>(step, (dim + step - 1) / step * step);
}

int32_t narrow(int64_t n) {
  if (n > std::numeric_limits<int32_t>::max())
    throw Refusal::shape("a length of " + std::to_string(n) + " is too long for this kernel");
  return static_cast<int32_t>(n);
}

}  // namespace

AttentionProblem AttentionProblem::dequantized() const {
  AttentionProblem p = *this;
  AttentionArguments& a = p.arguments;
  p.in_blocks = false, p.table = -1;
  a.blocks = a.pool = a.block_lines = 0, a.by_block = {};
  a.k_strides = strides_of(true, a.k_heads, a.k_len, a.dim);
  a.v_strides = strides_of(true, a.k_heads, a.k_len, a.v_dim);
  std::erase_if(p.defines, [](const std::string& d) { return d.starts_with("BLOCK_TABLE="); });
  return p;
}

AttentionArguments AttentionProblem::with(const sdk::Call& c) const {
  AttentionArguments a = arguments;
  const auto in = [&](int position) { return c.in(position); };
  a.q = in(q), a.k = in(k), a.v = in(v);
  a.mask = in(mask), a.kv_len = in(kv_len), a.past_len = in(past_len);
  if (table >= 0) a.block_table = in(table), a.sink = error_sink(c);
  return a;
}

std::vector<std::string> AttentionProblem::tile_defines() const {
  std::vector<std::string> d = defines;
  d.insert(d.end(),
           {define("DP", padded_dim), define("VP", padded_v_dim), define("WIDE", wide ? 1 : 0)});
  return d;
}

std::vector<std::string> AttentionProblem::wgmma_defines() const {
  std::vector<std::string> d = defines;
  d.insert(d.end(), {define("DP", wgmma_padded(arguments.dim)),
                     define("VP", wgmma_padded(arguments.v_dim)), define("PLAIN", plain ? 1 : 0)});
  return d;
}

std::vector<std::string> AttentionProblem::join_defines() const {
  std::vector<std::string> d = defines;
  std::erase_if(d, [](const std::string& text) {
    return text.starts_with("BLOCK_TABLE=") || text.starts_with("SOFTCAP=");
  });
  return d;
}

std::vector<std::string> AttentionProblem::merge_defines() const {
  return {defines[0], defines[1], "MASK=0", define("MOST_SPLITS", kMostSplits)};  // TT and TS
}

template <class Op>
AttentionProblem attention_problem(const Op& n, const sdk::Node& node,
                                   const std::vector<sdk::Value>& more) {
  const CudaDevice& device = device_of(node);
  const sdk::Type &q = n.q.type(), &k = n.k.type(), &v = n.v.type();
  AttentionProblem p;
  p.dtype = q.dtype, p.sum = acc_dtype(q.dtype);
  if (!is_float(q.dtype)) throw Refusal::dtype("q", q.dtype);
  if (sdk::is_blocks(k.dtype)) {
    p.in_blocks = true, p.block_alignment = std::min(n.k.alignment(), n.v.alignment());
    if (k.dtype != TENON_DTYPE_Q8_0 || p.block_alignment < 2 || n.q.alignment() < 4)
      throw Refusal::dtype("k", k.dtype);
    if (!is_half(q.dtype) || device.properties().major < 8)
      throw Refusal(TENON_REASON_DTYPE,
                    "keys and values of q8_0 are read beside queries of f16 or bf16, from compute "
                    "capability 8.0 on; got queries of " +
                        std::string(sdk::dtype_name(q.dtype)));
  }
  const bool bshd = n.layout == "bshd";
  if (!bshd && n.layout != "bhsd") throw Refusal::attribute("layout", n.layout);
  const int heads = bshd ? 2 : 1, len = 3 - heads;
  const int64_t q_heads = q.dims[heads], k_heads = k.dims[heads];
  AttentionArguments& a = p.arguments;
  const int64_t dim = q.dims[3], v_dim = v.dims[3], q_len = q.dims[len], rows = k.dims[len];
  int64_t k_len = rows;
  if constexpr (requires { n.block_table; })
    if (n.block_table) {
      const sdk::Type& table = n.block_table.type();
      if (q_len * q_heads * q.dims[0] == 0)
        throw Refusal::shape("no query rows to check blocks by");
      p.table = n.block_table.position();
      a.pool = narrow(k.dims[0]), a.blocks = narrow(table.dims[1]);
      a.by_block = args::Divisor(static_cast<uint32_t>(narrow(rows)));
      a.block_lines = narrow(bshd ? rows : k_heads * rows);
      narrow(int64_t{a.pool} * a.block_lines);
      k_len = rows * table.dims[1];
    }
  if (dim > kWidest || v_dim > kWidest)
    throw Refusal::shape("heads of " + std::to_string(std::max(dim, v_dim)) +
                         " elements; expected at most " + std::to_string(kWidest));
  a.batch = narrow(q.dims[0]), a.k_heads = narrow(k_heads);
  a.group = narrow(k_heads == 0 ? 1 : q_heads / k_heads);
  a.q_len = narrow(q_len), a.k_len = narrow(k_len), a.dim = narrow(dim), a.v_dim = narrow(v_dim);
  constexpr int64_t kMostTile = 128;  // the end of the last tile must fit in 32 bits, too
  narrow(q_len * a.group + kMostTile), narrow(k_len + kMostTile);
  a.q_strides = strides_of(bshd, q_heads, q_len, dim);
  a.o_strides = strides_of(bshd, q_heads, q_len, v_dim);
  a.k_strides = strides_of(bshd, k_heads, rows, dim);  // with a table, `batch` counts blocks
  a.v_strides = strides_of(bshd, k_heads, rows, v_dim);
  if (p.in_blocks)
    for (AttentionStrides* s : {&a.k_strides, &a.v_strides})
      for (int64_t* steps : {&s->batch, &s->head, &s->step})
        *steps = static_cast<int64_t>(tenon_dense_bytes(TENON_DTYPE_Q8_0, *steps));
  a.scale = is_unset(n.scale) ? 1 / std::sqrt(static_cast<double>(dim)) : n.scale;
  a.softcap = n.softcap, a.causal = n.causal, a.offset = n.offset;
  a.left = n.left_window >= kFar ? -1 : n.left_window;
  a.right = n.right_window >= kFar ? -1 : n.right_window;
  a.splits = 1;
  p.q = n.q.position(), p.k = n.k.position(), p.v = n.v.position();
  p.padded_dim = padded(dim), p.padded_v_dim = padded(v_dim);
  p.mma = is_half(p.dtype) && device.properties().major >= 8;
  p.alike = is_batch_invariant(node);

  int mask = 0;
  if (n.mask) {
    const sdk::Type& m = n.mask.type();
    mask = m.dtype == TENON_DTYPE_BOOL ? 1 : 2;
    p.mask = n.mask.position();
    if (mask == 2) p.mask_alignment = n.mask.alignment();
    int64_t step = 1;
    for (int i = m.rank - 1; i >= 0; --i) {
      a.mask_strides[i + 4 - m.rank] = m.dims[i] == 1 ? 0 : step;
      step *= m.dims[i];
    }
  }
  constexpr uint64_t kVector = 16;
  constexpr int64_t kElements = 8;
  p.wide = p.mma && dim % kElements == 0 && v_dim % kElements == 0;
  p.wide_floats = p.dtype == TENON_DTYPE_F32 && dim % 4 == 0 && v_dim % 4 == 0;
  for (const sdk::Value& x : p.in_blocks ? std::vector{n.q} : std::vector{n.q, n.k, n.v})
    p.wide &= x.alignment() >= kVector, p.wide_floats &= x.alignment() >= kVector;
  for (const sdk::Value& x : more) p.wide &= x.alignment() >= kVector;
  constexpr int64_t kWidestWgmma = 128;
  constexpr int kWgmmaMajor = 9;  // later devices do not have wgmma
  // A scale that is 0 or infinite in f32 would make NaN of scores that are not allowed.
  constexpr float kLog2e = 1.4426950408889634f;
  p.plain = mask == 0 && a.softcap == 0 && a.scale > 0 &&
            std::isnormal(static_cast<float>(a.scale) * kLog2e);
  p.wgmma = p.wide && device.properties().major == kWgmmaMajor && dim <= kWidestWgmma &&
            v_dim <= kWidestWgmma;
  std::vector<std::string>& d = p.defines;
  d = {"TT=" + type_name("q", p.dtype), "TS=" + type_name("q", p.sum),
       "MASK=" + std::to_string(mask)};
  if (a.softcap != 0) d.emplace_back("SOFTCAP=1");
  if (n.kv_len) {
    p.kv_len = n.kv_len.position();
    d.push_back("KV_LEN=" + type_name("kv_len", n.kv_len.type().dtype));
  }
  if (n.past_len) {
    p.past_len = n.past_len.position();
    d.push_back("PAST_LEN=" + type_name("past_len", n.past_len.type().dtype));
  }
  if constexpr (requires { n.block_table; })
    if (n.block_table)
      d.push_back("BLOCK_TABLE=" + type_name("block_table", n.block_table.type().dtype));
  return p;
}
template AttentionProblem attention_problem(const sdk::op::attention&, const sdk::Node&,
                                            const std::vector<sdk::Value>&);
template AttentionProblem attention_problem(const sdk::op::attention_backward&, const sdk::Node&,
                                            const std::vector<sdk::Value>&);

}  // namespace tenon::cuda
