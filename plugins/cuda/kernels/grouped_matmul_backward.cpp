// SPDX-License-Identifier: Apache-2.0
// Gradients of grouped_matmul. The tiles of u = dy·wᵀ serve both dx = p·u and dp = u·x; dw of an
// expert is a product over its rows, in pieces where the experts alone are too few for the device.
#include <algorithm>
#include <optional>

#include "grouped_matmul.hpp"
#include "product.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Refusal;

constexpr int64_t kMostPieces = 16, kPieceRows = 512;
constexpr int64_t kElements = 8;  // of 16 bytes, that tensor cores take
constexpr uint64_t kBytes = 16;
enum : int64_t { kAny = 0, kTensorCores = 1, kWithFactors = 2 };  // KIND

class WeightProduct {
 public:
  WeightProduct(CudaDevice& device, const GroupedProblem& p, uint64_t dy_alignment,
                Scratch& scratch)
      : m_(p.trans_w ? p.out : p.in), n_(p.trans_w ? p.in : p.out), experts_(p.experts) {
    const auto blocks = [&](int64_t tile) {
      return blocks_for(m_, tile) * blocks_for(n_, tile) * experts_;
    };
    const int64_t units = device.properties().multiprocessors;
    tile_ = element_bytes(p.sum) <= 4 && blocks(128) >= units ? 128 : 64;
    const int64_t of_expert = p.rows / std::max<int64_t>(experts_, 1);
    if (blocks(tile_) > 0 && blocks(tile_) < units)
      pieces_ = std::clamp<int64_t>(std::min(2 * units / blocks(tile_), of_expert / kPieceRows), 1,
                                    kMostPieces);
    if (blocks(tile_) >= kNarrowIndex / kMostPieces)
      throw Refusal::shape("the gradient of w has too many tiles");
    if (pieces_ > 1) sums_ = scratch.take(pieces_ * elements(), element_bytes(p.sum));
    const int64_t kind = !p.tensor_cores(device) ? kAny : p.p >= 0 ? kWithFactors : kTensorCores;
    const bool vectors = p.x_alignment >= kBytes && dy_alignment >= kBytes && m_ % kElements == 0 &&
                         n_ % kElements == 0;
    shared_ = kind == kTensorCores ? mma_shared(tile_, false, false) : 0;
    std::vector<std::string> d = p.defines();
    d.push_back("TY=" + type_name("w", pieces_ > 1 ? p.sum : p.dtype));
    d.push_back("TD=" + type_name("x", p.dtype));
    d.push_back(define("SIZE", tile_));
    d.push_back(define("WIDE", kind != kAny && vectors));
    d.push_back(define("KIND", kind));
    product_ = device.code(entries::grouped_weights, d, shared_);
    if (pieces_ > 1) add_pieces_ = device.code(entries::grouped_add_pieces, d);
  }
  std::vector<Code> codes() const {
    return pieces_ > 1 ? std::vector<Code>{product_, add_pieces_} : std::vector<Code>{product_};
  }
  void run(const Call& c, const RowGroups& groups, const void* a, const void* b, const void* p,
           void* dw) const {
    void* const sums = area(c, sums_);
    const args::WeightProductOf<void, void> product{a,
                                                    b,
                                                    p,
                                                    pieces_ > 1 ? sums : dw,
                                                    groups.starts(c),
                                                    groups.order(c),
                                                    m_,
                                                    n_,
                                                    static_cast<int32_t>(experts_),
                                                    static_cast<uint32_t>(blocks_for(m_, tile_)),
                                                    static_cast<uint32_t>(blocks_for(n_, tile_)),
                                                    static_cast<uint32_t>(pieces_)};
    product_.launch(c,
                    {.blocks = int64_t{product.tiles_m} * product.tiles_n * experts_ * pieces_,
                     .threads = 256,
                     .shared = shared_},
                    product);
    if (pieces_ > 1)
      add_pieces_.launch(c, {.blocks = blocks_for(elements(), 256), .threads = 256}, sums, dw,
                         elements(), product.pieces);
  }

 private:
  int64_t elements() const { return experts_ * m_ * n_; }
  int64_t m_, n_, experts_, tile_ = 64, pieces_ = 1;
  uint32_t shared_ = 0;
  uint64_t sums_ = 0;  // in scratch
  CodeFor<entries::grouped_weights> product_;
  CodeFor<entries::grouped_add_pieces> add_pieces_;
};

struct Backward {
  GroupedProblem problem;
  std::optional<RowGroups> groups{};
  std::optional<RowsProduct> inputs{};  // dx and the terms of dp
  std::optional<WeightProduct> weights{};
  CodeFor<entries::grouped_add_dots> add_dots{};
  bool dx = false, dp = false;
  int dy = -1;
  uint64_t dots = 0;  // in scratch

  void run(const Call& c) const {
    groups->run(c);
    const void *x = c.inputs[problem.x], *g = c.inputs[dy], *p = problem.factors(c);
    if (inputs)
      inputs->run(c, *groups,
                  {.a = g,
                   .w = c.inputs[problem.w],
                   .p = p,
                   .x = x,
                   .y = dx ? c.outputs[0] : nullptr,
                   .dots = area(c, dots)});
    if (dp)
      add_dots.launch(c, {.blocks = blocks_for(problem.rows, 8), .threads = 256}, area(c, dots),
                      c.outputs[2], problem.rows, inputs->dots());
    if (!weights) return;
    const bool turned = problem.trans_w;
    weights->run(c, *groups, turned ? g : x, turned ? x : g, p, c.outputs[1]);
  }
};

}  // namespace

Kernel make_grouped_matmul_backward(const sdk::op::grouped_matmul_backward& n,
                                    const sdk::Node& node) {
  Backward b{.problem = GroupedProblem(n.x, n.w, n.ids, n.offsets, n.p, n.trans_w)};
  const GroupedProblem& p = b.problem;
  CudaDevice& device = device_of(node);
  Scratch scratch;
  b.dx = n.want_dx, b.dp = n.want_dp, b.dy = n.dy.position();
  const int64_t tile = RowsProduct::tile_for(device, p, p.in);
  b.groups.emplace(device, p, tile, scratch);
  std::vector<Code> codes = b.groups->codes();
  if (b.dx || b.dp) {
    b.inputs.emplace(device, p,
                     RowsProduct::Form{p.in, p.out, !p.trans_w, b.dx, b.dp, n.dy.alignment()}, tile,
                     b.groups->most_tiles());
    codes.push_back(b.inputs->code());
  }
  if (b.dp) {
    const tenon_dtype dp_dtype = node.out(2).type().dtype;
    b.dots = scratch.take(p.rows * b.inputs->dots(), element_bytes(p.sum));
    // What only the tiles see has no meaning here, and is always the same.
    b.add_dots = device.code(entries::grouped_add_dots,
                             {"TYPE=" + type_name("x", p.dtype), "TY=" + type_name("x", p.dtype),
                              "TD=" + type_name("dp", dp_dtype), "SIZE=64", "WIDE=0", "KIND=0"});
    codes.push_back(b.add_dots);
  }
  if (n.want_dw) {
    b.weights.emplace(device, p, n.dy.alignment(), scratch);
    for (const Code& code : b.weights->codes()) codes.push_back(code);
  }
  Kernel kernel = kernel_of(std::move(codes), [b](const Call& c) { b.run(c); });
  kernel.scratch = scratch.size();
  kernel.cost = p.seconds((b.dx || b.dp) + n.want_dw);
  kernel.can_fail = true;
  return kernel;
}

}  // namespace tenon::cuda
