// SPDX-License-Identifier: Apache-2.0
// Attention of few query rows by attention_decode.cu, and decode_attention, which is attention of one
// token of each sequence, with its rope and its rows of the caches in the same launch, by
// decode_attention.cu or decode_attention_spans.cu.
#include <algorithm>

#include "attention.hpp"

namespace tenon::cuda {

using sdk::Refusal;

namespace {

constexpr int kClusterMajor = 9;
constexpr int64_t kMostCluster = 8;  // as many blocks as any device takes in a cluster
constexpr int64_t kSpan = 256;       // keys, as in device/attention_spans.cuh

}  // namespace

// Bound by copies, so a block has many of them in flight.
std::optional<AttentionChoice> decode_choice(const AttentionProblem& p, const Properties& device) {
  constexpr int64_t kRows = 16, kKeys = 16, kWarps = 4, kWidest = 128;
  if (!p.mma || !p.wide || p.rows() > kRows ||
      std::max(p.arguments.dim, p.arguments.v_dim) > kWidest)
    return {};
  for (const int64_t stages : {3, 2}) {
    const int64_t keys = stages * kKeys * 2 * (p.padded_dim + 8 + p.padded_v_dim + 8),
                  sums = kRows * 4 * (p.padded_v_dim + 2), shared = kWarps * std::max(keys, sums);
    if (shared > device.shared_per_block) continue;
    AttentionChoice c{.entry = &entries::attention_decode, .rows = kRows, .shared = shared};
    // With one block on a multiprocessor, more splits only cost time.
    c.blocks_wanted = 1;
    c.early = true;
    c.in_turn = true;
    c.cluster = device.major >= kClusterMajor ? kMostCluster : 1;
    c.defines = p.tile_defines();
    c.defines.push_back(define("STAGES", stages));
    return c;
  }
  return {};
}

int64_t split_keys(AttentionArguments& a, const AttentionChoice& choice, const AttentionProblem& p,
                   const Properties& device) {
  constexpr int64_t kFewestKeys = 256;  // of a split whose sums take a launch more
  const int64_t blocks = choice.blocks(p), wanted = choice.blocks_wanted * device.multiprocessors;
  if (blocks == 0) return 1;
  // In a cluster, as few as a tile. A launch less is worth more than some idle multiprocessors.
  const int64_t in_cluster =
      std::min({choice.cluster, 2 * wanted / blocks, blocks_for(a.k_len, choice.tile)});
  if (in_cluster > 1 && 3 * choice.cluster * blocks >= wanted) {
    a.splits = static_cast<int32_t>(in_cluster);
    return a.splits;
  }
  if (blocks * 2 > wanted || a.k_len < 2 * kFewestKeys) return 1;
  const int64_t splits =
      std::clamp<int64_t>(wanted / blocks, 1, std::min(kMostSplits, a.k_len / kFewestKeys));
  a.split_keys = static_cast<int32_t>(blocks_for(blocks_for(a.k_len, splits), args::kSplitStep) *
                                      args::kSplitStep);
  a.splits = static_cast<int32_t>(blocks_for(a.k_len, a.split_keys));
  return 1;
}

uint64_t bytes_of_splits(const AttentionProblem& p) {
  const AttentionArguments& a = p.arguments;
  return static_cast<uint64_t>(a.splits * p.heads() * p.rows() * (a.v_dim + 2) *
                               element_bytes(p.sum));
}

int64_t split_spans(AttentionArguments& a, int64_t blocks, int64_t cluster,
                    const Properties& device) {
  a.splits = 1;
  if (blocks == 0) return 1;
  const int64_t spans = blocks_for(a.k_len, kSpan), wanted = device.multiprocessors;
  // A launch less is worth more than some idle multiprocessors.
  const int64_t in_cluster = std::min({cluster, 2 * wanted / blocks, spans});
  if (in_cluster > 1 && 3 * cluster * blocks >= wanted) {
    a.splits = static_cast<int32_t>(in_cluster);
    return in_cluster;
  }
  if (blocks * 2 <= wanted && spans > 1)
    a.splits = static_cast<int32_t>(std::min({wanted / blocks, kMostSplits, spans}));
  return 1;
}

uint64_t bytes_of_spans(const AttentionProblem& p) {
  const AttentionArguments& a = p.arguments;
  return static_cast<uint64_t>(blocks_for(a.k_len, kSpan) * p.heads() * p.rows() * (a.v_dim + 4) *
                               4);
}

// ---- decode_attention

namespace {

// An operand as attention has it, with one axis more.
class FourAxes {
 public:
  FourAxes(const sdk::Value& v, std::initializer_list<int64_t> dims, uint64_t alignment) {
    type_.dtype = v.type().dtype, type_.rank = 4;
    std::ranges::copy(dims, type_.dims.begin());
    type_.set_dense_strides();
    value_ = sdk::Value(&type_, v.position(), nullptr, v.frozen(), alignment);
  }
  FourAxes(const FourAxes&) = delete;
  FourAxes& operator=(const FourAxes&) = delete;
  sdk::Value value() const { return value_; }

 private:
  sdk::Type type_{};
  sdk::Value value_{};
};

// From entry to entry, from head to head; there is one step.
AttentionStrides strides_of(const sdk::Value& v) {
  const sdk::Dims& s = v.type().strides;
  return {.batch = s[0], .head = s[1], .step = 0};
}
// Are its heads, wherever they lie, whole vectors?
bool has_vectors(const sdk::Value& v) {
  constexpr int64_t kBytes = 16, kElements = 8;
  const sdk::Type& t = v.type();
  const bool next = t.dims[2] == 1 || t.strides[2] == 1;
  return next && v.alignment() >= kBytes && t.strides[0] % kElements == 0 &&
         t.strides[1] % kElements == 0;
}

AttentionProblem problem_of(const sdk::op::decode_attention& n, const sdk::Node& node) {
  const sdk::Dims &q = n.q.type().dims, &k = n.k_cache.type().dims, &v = n.v_cache.type().dims;
  const int64_t count = n.block_table ? k[0] / n.block_size : q[0];
  const int64_t size = n.block_table ? n.block_size : q[0] == 0 ? 0 : k[0] / q[0];
  const uint64_t of_keys = n.k_cache.alignment(), of_values = n.v_cache.alignment();
  const FourAxes keys(n.k_cache, {count, size, k[1], k[2]}, of_keys),
      values(n.v_cache, {count, size, v[1], v[2]}, of_values),
      queries(n.q, {q[0], 1, q[1], q[2]}, n.q.alignment());
  sdk::op::attention a{};
  a.layout = "bshd", a.scale = n.scale, a.softcap = n.softcap, a.causal = true;
  a.left_window = n.left_window;
  a.q = queries.value(), a.k = keys.value(), a.v = values.value();
  a.kv_len = n.kv_len, a.past_len = n.past_len, a.block_table = n.block_table;
  return attention_problem(a, node, {});
}

struct Decode {
  AttentionProblem p;
  args::DecodeAttention arguments{};
  TypedCode<args::DecodeAttention> code;
  TypedCode<AttentionArguments> join;
  Grid grid;
  bool joins = false;
  int k = 0, v = 0, rows = 0, cosines = -1, sines = -1, ids = -1, k_cache = 0, v_cache = 0;
  uint64_t k_bytes = 0, v_bytes = 0;

  // What is attended to are the caches with the new rows: the outputs.
  static void keep(const sdk::Call& c, int from, int to, uint64_t bytes) {
    if (bytes != 0 && c.inputs[from] != c.outputs[to])
      TENON_CUDA(copy_on_device, reinterpret_cast<Address>(c.outputs[to]),
                 reinterpret_cast<Address>(c.inputs[from]), bytes, static_cast<Stream>(c.stream));
  }
  void run(const sdk::Call& c) const {
    keep(c, k_cache, 1, k_bytes), keep(c, v_cache, 2, v_bytes);
    args::DecodeAttention d = arguments;
    AttentionArguments& a = d.attention;
    const AttentionStrides of_queries = a.q_strides;
    a = p.with(c);
    a.q_strides = of_queries;
    a.k = c.outputs[1], a.v = c.outputs[2], a.o = c.outputs[0], a.parts = c.scratch;
    a.sink = error_sink(c);
    d.k = c.in(k), d.v = c.in(v), d.rows = c.in(rows);
    d.cosines = c.in(cosines), d.sines = c.in(sines), d.ids = c.in(ids);
    d.k_next = c.outputs[1], d.v_next = c.outputs[2];
    code.launch(c, grid, d);
    if (joins) join.launch(c, {.blocks = p.heads() * p.rows(), .threads = 128}, a);
  }
};

std::function<std::string(const sdk::BadData&)> text_of(const sdk::op::decode_attention& n) {
  const int64_t numbers = n.block_table ? n.block_table.type().elements() : 0,
                blocks = n.block_table ? n.k_cache.type().dims[0] / n.block_size : 0,
                positions = n.cos ? n.cos.type().dims[0] : 0;
  return [=](const sdk::BadData& bad) {
    if (bad.position < numbers)
      return "operand block_table: the block at position " + std::to_string(bad.position) +
             " is outside the pool's [0, " + std::to_string(blocks) + ")";
    return "operand position_ids: the id at " + std::to_string(bad.position - numbers) +
           " is outside the tables' [0, " + std::to_string(positions) + ")";
  };
}

void add_rope(const sdk::op::decode_attention& n, int64_t dim, args::DecodeAttention& to,
              std::vector<std::string>& defines) {
  if (!n.cos) {
    defines.insert(defines.end(), {"ROPE=0", "HALF=0"});
    return;
  }
  constexpr int64_t kPiece = 8, kVector = 16;
  const int64_t half = (n.n_rot == 0 ? dim : n.n_rot) / 2;
  const bool in_pieces =
      half % kPiece == 0 && n.cos.alignment() >= kVector && n.sin.alignment() >= kVector;
  if (!n.interleaved && !in_pieces)
    throw Refusal::shape(
        "decoding turns halves of a multiple of 8 elements, by tables that lie on "
        "16 bytes");
  to.table_rows = n.cos.type().dims[0];
  defines.insert(defines.end(), {define("ROPE", n.interleaved ? 2 : 1), define("HALF", half),
                                 "IDS=" + type_name("position_ids", n.position_ids.type().dtype)});
}

}  // namespace

namespace {

// How keys are divided among blocks of threads.
struct Division {
  int64_t warps, cluster, keys;  // keys: of a turn of a block
  uint64_t scratch = 0;
  std::vector<std::string> defines{};
};
// decode_attention.cu: tiles of 16 keys for each warp. With few heads, the keys of each are shared by many.
Division tiles_of(AttentionProblem& p, const Properties& device) {
  constexpr int64_t kWarpKeys = 16, kMostHeads = 16;
  AttentionArguments& a = p.arguments;
  const int64_t warps = 8 * p.heads() <= 2 * device.multiprocessors && a.group <= 8 ? 8 : 4;
  const AttentionChoice choice{.rows = kMostHeads,
                               .blocks_wanted = 1,
                               .cluster = device.major >= kClusterMajor ? kMostCluster : 1,
                               .tile = warps * kWarpKeys};
  Division d{.warps = warps, .cluster = split_keys(a, choice, p, device), .keys = choice.tile};
  if (a.splits > 1) d.scratch = bytes_of_splits(p);
  d.defines = {define("WARPS", warps)};
  return d;
}
// decode_attention_spans.cu: spans. With few heads, the segments of a span are taken at once.
Division spans_of(AttentionProblem& p, const Properties& device) {
  constexpr int64_t kFewHeads = 8, kMostOfSpans = 20 << 10;  // bytes
  AttentionArguments& a = p.arguments;
  const int64_t segments = p.heads() <= device.multiprocessors && a.group <= kFewHeads ? 4 : 1;
  const int64_t cluster =
      split_spans(a, p.heads(), device.major >= kClusterMajor ? kMostCluster : 1, device);
  // Spans of a block lie in its shared memory, if that leaves room for other blocks.
  const int64_t spans = blocks_for(blocks_for(a.k_len, kSpan), a.splits),
                bytes = spans * a.group * (a.v_dim + 4) * 4;
  const int64_t own = cluster > 1 && bytes <= kMostOfSpans ? spans : 0;
  // Few warps of a segment repeat less; where segments come one by one, their values need four.
  const int64_t warps = segments > 1 ? 2 * segments : 4;
  Division d{.warps = warps, .cluster = cluster, .keys = kSpan};
  if (a.splits > 1 && own == 0) d.scratch = bytes_of_spans(p);
  d.defines = {define("SEGMENTS", segments), define("WARPS", warps), define("OWN_SPANS", own)};
  return d;
}

}  // namespace

sdk::Kernel make_decode_attention(const sdk::op::decode_attention& n, const sdk::Node& node) {
  CudaDevice& device = device_of(node);
  const Properties& properties = device.properties();
  for (const auto& [operand, x] :
       {std::pair("k_cache", n.k_cache), std::pair("v_cache", n.v_cache)})
    if (!x.type().dense())
      throw Refusal::shape(std::string("operand ") + operand + " is a part of another value");
  for (const sdk::Value& x :
       {n.rows, n.kv_len, n.past_len, n.cos, n.sin, n.position_ids, n.block_table})
    if (x && !x.type().dense())
      throw Refusal::shape("an operand with numbers of tokens is strided");
  Decode d;
  d.p = problem_of(n, node);
  AttentionProblem& p = d.p;
  constexpr int64_t kWidest = 128, kMostHeads = 16;
  const bool wide = p.wide && has_vectors(n.q) && has_vectors(n.k) && has_vectors(n.v);
  if (!wide || std::max(p.arguments.dim, p.arguments.v_dim) > kWidest || p.arguments.v_dim == 0 ||
      p.rows() > kMostHeads)
    throw Refusal::shape(
        "decoding takes halves on compute capability 8.0 and later, heads of at most 128 elements "
        "(a multiple of 8) that lie on 16 bytes, and at most 16 query heads for a key head");
  AttentionArguments& a = p.arguments;
  if (a.group == 0 && p.heads() > 0)
    throw Refusal::shape("no query rows beside which keys are appended");
  const Division division = p.in_spans() ? spans_of(p, properties) : tiles_of(p, properties);
  // The kernel names keys of the next two turns.
  if (a.k_len + 3 * division.keys * a.splits >= kNarrowIndex)
    throw Refusal::shape("too many keys for numbers of 32 bits");
  const int64_t blocks = p.heads() * a.splits;
  if (blocks >= kNarrowIndex) throw Refusal::shape("too many query rows for one launch");
  args::DecodeAttention& to = d.arguments;
  to.new_k = strides_of(n.k), to.new_v = strides_of(n.v);
  to.attention.q_strides = strides_of(n.q);
  to.cache_rows = n.k_cache.type().dims[0];
  std::vector<std::string> defines = p.defines;
  defines.insert(
      defines.end(),
      {define("DIM", a.dim), define("V_DIM", a.v_dim), define("GROUP", std::max(a.group, 1)),
       define("K_HEADS", std::max(a.k_heads, 1)), define("SPLITS", a.splits),
       define("CLUSTER", division.cluster), "ROWS=" + type_name("rows", n.rows.type().dtype)});
  defines.insert(defines.end(), division.defines.begin(), division.defines.end());
  add_rope(n, a.dim, to, defines);
  d.k = n.k.position(), d.v = n.v.position(), d.rows = n.rows.position();
  d.cosines = n.cos.position(), d.sines = n.sin.position(), d.ids = n.position_ids.position();
  d.k_cache = n.k_cache.position(), d.v_cache = n.v_cache.position();
  d.k_bytes = n.k_cache.type().bytes(), d.v_bytes = n.v_cache.type().bytes();
  d.grid = {.blocks = blocks,
            .threads = static_cast<uint32_t>(32 * division.warps),
            .early = properties.early_starts};
  d.code = p.in_spans() ? device.code(entries::decode_attention_spans, defines)
                        : device.code(entries::decode_attention, defines);
  std::vector<Code> codes = {d.code};
  d.joins = a.splits > division.cluster;
  if (d.joins) {
    d.join = p.in_spans() ? device.code(entries::attention_join, p.join_defines())
                          : device.code(entries::attention_merge, p.merge_defines());
    codes.push_back(d.join);
  }
  sdk::Kernel kernel = kernel_of(codes, [d](const sdk::Call& c) { d.run(c); });
  kernel.scratch = division.scratch;
  kernel.in_place = {{d.k_cache, 1}, {d.v_cache, 2}};
  kernel.can_fail = true;
  kernel.describe = text_of(n);
  kernel.cost = 5e-6 + static_cast<double>(d.k_bytes + d.v_bytes) / 3e12;
  return kernel;
}

}  // namespace tenon::cuda
