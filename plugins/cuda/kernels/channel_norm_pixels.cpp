// SPDX-License-Identifier: Apache-2.0
// layer_norm2d and its backward op: how a tile of pixels with all channels lies in registers.
#include <algorithm>

#include "../device.hpp"
#include "channel_norm.hpp"
#include "lines.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Value;

// Up to as many the mean's rounding is made good.
constexpr int64_t kFewChannels = 32;

struct Tiles {
  ImageBatch image;
  args::PixelNormShape shape{};
  int64_t threads = 256, lanes = 32, chunks = 1, vec = 1;
  uint32_t shared = 0;  // of a tile that is not in registers

  Tiles(const Value& x, double eps) : image(x, eps) {
    if (image.pixels >= kNarrowIndex || image.channels >= kNarrowIndex)
      throw Refusal::shape("images are too large for one kernel");
  }
  // bytes: of an operand in a thread's registers. width: elements of a vector.
  void cut(int64_t bytes, int64_t width) {
    const auto fits = [&](int64_t t, int64_t l, int64_t v) {
      threads = t, lanes = l, vec = v,
      chunks = std::max<int64_t>(blocks_for(image.channels, t / l), 1);
      return chunks * std::max<int64_t>(v * element_bytes(image.dtype), 4) <= bytes;
    };
    // Runs of whole cache lines where the channels leave the room, else shorter ones.
    const auto found = [&] {
      for (const int64_t l : {32, 16, 8})
        for (const int64_t t : {256, 512})
          if (fits(t, l, width)) return true;
      for (int64_t v = width; v > 0; v /= 2)
        for (const int64_t l : {4, 2, 1})
          if (fits(512, l, v)) return true;
      return false;
    };
    if (!found())
      throw Refusal::shape(std::to_string(image.channels) + " channels do not fit on chip");
    finish();
  }
  // Two operands' tile in shared memory, of which one block fills most. False where it is too small
  // or too large for that.
  bool cut_ahead(int64_t width, const CudaDevice& device) {
    constexpr int64_t kThreads = 512, kVector = 16, kLeast = 80 << 10;
    if (image.acc != TENON_DTYPE_F32 || width * element_bytes(image.dtype) != kVector ||
        device.properties().major < 8)
      return false;
    for (const int64_t l : {32, 16, 8}) {
      const int64_t c = blocks_for(image.channels, kThreads / l);
      if (c > (l == 8 ? 12 : 8)) continue;
      const int64_t bytes = 2 * c * kThreads * kVector;
      const std::string defines[] = {define("THREADS", kThreads), define("VEC", width),
                                     define("AHEAD", true)};
      const int64_t room = device.properties().shared_room("layer_norm2d.cu", "backward", defines);
      if (bytes < kLeast || bytes > room) return false;
      threads = kThreads, lanes = l, vec = width, chunks = c;
      shared = static_cast<uint32_t>(bytes);
      finish();
      return true;
    }
    return false;
  }
  void finish() {
    const int64_t image_tiles = blocks_for(image.pixels, lanes * vec);
    shape = {.tiles = image.batch * image_tiles,
             .eps = image.eps,
             .channels = static_cast<uint32_t>(image.channels),
             .pixels = static_cast<uint32_t>(image.pixels),
             .image_tiles = static_cast<uint32_t>(std::max<int64_t>(image_tiles, 1))};
  }
  Grid grid(int64_t blocks) const {
    return {
        .blocks = launchable(blocks), .threads = static_cast<uint32_t>(threads), .shared = shared};
  }
  std::vector<std::string> defines(const Value& gamma, const Value& beta, tenon_dtype out,
                                   int64_t join, bool given) const {
    std::vector<std::string> list = image.defines(gamma, beta, out);
    list.insert(list.end(),
                {define("JOIN", join), define("THREADS", threads), define("LANES", lanes),
                 define("FEW", image.channels <= kFewChannels), define("CHUNKS", chunks),
                 define("VEC", vec), define("AHEAD", shared > 0), define("GIVEN", given)});
    return list;
  }
};

}  // namespace

Kernel make_layer_norm2d(const sdk::op::layer_norm2d& n, const Node& node) {
  Tiles tiles(n.x, n.eps);
  const ImageBatch& image = tiles.image;
  tiles.cut(128, common_width(element_bytes(image.dtype), image.pixels, {n.x, node.out(0)}));
  const auto code = device_of(node).code(entries::pixel_norm_forward,
                                         tiles.defines(n.gamma, n.beta, image.dtype, 32, false));
  Kernel kernel = kernel_of(
      {code}, [code, grid = tiles.grid(tiles.shape.tiles), shape = tiles.shape, x = n.x.position(),
               gamma = n.gamma.position(), beta = n.beta.position(), mean = n.want_mean ? 1 : -1,
               inv = n.want_inv_std ? 2 : -1](const Call& c) {
        code.launch(c, grid, c.inputs[x], c.in(gamma), c.in(beta), c.outputs[0], c.out(mean),
                    c.out(inv), shape);
      });
  kernel.in_place = {{n.x.position(), 0}};
  return kernel;
}

Kernel make_layer_norm2d_backward(const sdk::op::layer_norm2d_backward& n, const Node& node) {
  Tiles tiles(n.x, n.eps);
  const ImageBatch& image = tiles.image;
  const Value also = n.want_dx ? node.out(0) : n.x;
  CudaDevice& device = device_of(node);
  const int64_t width = common_width(element_bytes(image.dtype), image.pixels, {n.dy, n.x, also});
  if (!tiles.cut_ahead(width, device)) tiles.cut(64, width);
  // No more blocks than are at work at once, all of them to the end; each leaves one row of sums.
  const int64_t resident = device.properties().multiprocessors * (tiles.threads == 256 ? 3 : 1);
  const int64_t turns = blocks_for(tiles.shape.tiles, resident);
  const int64_t blocks = turns > 0 ? blocks_for(tiles.shape.tiles, turns) : 0;
  Kernel kernel;
  ChannelGradients gradients{.dgamma = n.want_dgamma ? 1 : -1, .dbeta = n.want_dbeta ? 2 : -1};
  gradients.count = blocks;
  gradients.early = device.properties().early_starts;
  uint64_t scratch = 0;
  gradients.place(image, scratch);
  const tenon_dtype out = image.gradient_dtype(node, gradients.dgamma, gradients.dbeta);
  // Both or neither: x is centred by the mean that inv_std was made with.
  const bool given = n.mean && n.inv_std;
  const std::vector<std::string> defines = tiles.defines(n.gamma, {}, out, gradients.join, given);
  const auto code = device.code(entries::pixel_norm_backward, defines, tiles.shared);
  std::vector<Code> codes = {code};
  if (gradients.wanted())
    codes.push_back(gradients.code = device.code(entries::pixel_norm_parameters, defines));
  kernel = kernel_of(
      codes, [=, grid = tiles.grid(blocks), shape = tiles.shape, dy = n.dy.position(),
              x = n.x.position(), gamma = n.gamma.position(), mean = given ? n.mean.position() : -1,
              inv = given ? n.inv_std.position() : -1, dx = n.want_dx ? 0 : -1](const Call& c) {
        code.launch(c, grid, c.inputs[dy], c.inputs[x], c.in(gamma), c.in(mean), c.in(inv),
                    c.out(dx), gradients.sums(c), shape);
        gradients.run(c);
      });
  kernel.scratch = scratch;
  if (n.want_dx) kernel.in_place = {{n.dy.position(), 0}, {n.x.position(), 0}};
  return kernel;
}

}  // namespace tenon::cuda
