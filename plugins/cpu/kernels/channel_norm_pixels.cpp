// SPDX-License-Identifier: Apache-2.0
// layer_norm2d and its backward op: scratch memory, and distribution of the tiles. Parameter
// gradients are summed over fixed blocks of tiles, then over the blocks.
#include <algorithm>

#include "../parallel.hpp"
#include "channel_norm.hpp"
#include "channel_norm_image.hpp"
#include "slots.hpp"

namespace tenon::cpu {
namespace {

// Tiles of pixels of one image.
struct Tiles {
  int64_t width = 0, of_image = 0, count = 0, pixels = 0;

  // `areas` tiles of sums are in use at once and fit the second-level cache. Tiles are wide, so
  // that each channel is read in long runs.
  Tiles(const Image& m, int64_t areas) : pixels(m.pixels) {
    constexpr int64_t kBytes = 256 << 10, kLine = 64, kMax = 1024;
    const int64_t one = std::max<int64_t>(areas * m.channels * element_bytes(m.acc), 1);
    width = std::clamp(kBytes / one / kLine * kLine, kLine, kMax);
    of_image = (pixels + width - 1) / width;
    count = m.batch * of_image;
  }
  int64_t bytes(const Image& m) const { return width * m.channels * element_bytes(m.acc); }
  // Calls body(image, first pixel, end pixel).
  template <class Body>
  void run(int64_t begin, int64_t end, Body&& body) const {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t image = t / of_image, first = (t - image * of_image) * width;
      body(image, first, std::min(first + width, pixels));
    }
  }
};

// Sums of parameter gradients: one vector per channel and block of tiles, then over the blocks.
struct TileSums {
  static constexpr int64_t kBlocks = 64, kMaxTiles = 64;
  int64_t tiles_in_block = 1, blocks = 0, channels = 0;
  uint64_t offset = 0;
  bool wanted = false;

  TileSums(const Image& m, const Tiles& tiles, bool want, uint64_t& scratch)
      : tiles_in_block(std::clamp<int64_t>((tiles.count + kBlocks - 1) / kBlocks, 1, kMaxTiles)),
        blocks((tiles.count + tiles_in_block - 1) / tiles_in_block),
        channels(m.channels),
        offset(scratch),
        wanted(want) {
    if (want) scratch += static_cast<uint64_t>(blocks * channels * kPixelSumBytes);
  }
  char* block(const sdk::Call& c, int64_t k) const {
    if (!wanted) return nullptr;
    return static_cast<char*>(c.scratch) + offset +
           static_cast<uint64_t>(k * channels * kPixelSumBytes);
  }
  double total(const sdk::Call& c, tenon_dtype dtype, int64_t channel) const {
    double sum = 0;
    for (int64_t k = 0; k < blocks; ++k) sum += pixel_sum(dtype, block(c, k), channel);
    return sum;
  }
};

}  // namespace

sdk::Kernel make_layer_norm2d(const sdk::op::layer_norm2d& n, const sdk::Node&) {
  const Image m(n.x, n.eps);
  sdk::Kernel kernel;
  const NormParameter gamma = m.parameter(n.gamma, kernel.scratch);
  const NormParameter beta = m.parameter(n.beta, kernel.scratch);
  const Tiles tiles(m, 1);
  const uint64_t parameters = kernel.scratch;
  const Slots slots = make_slots(tiles.count, tiles.bytes(m), 3 * tiles.bytes(m));
  kernel.scratch += slots.scratch();
  kernel.in_place = {{n.x.position(), 0}};
  kernel.run = [=, x = n.x.position(), mean = n.want_mean ? 1 : -1,
                inv = n.want_inv_std ? 2 : -1](const sdk::Call& c) {
    const PixelNorm p{m.dtype, m.channels, m.pixels, m.eps, tiles.width};
    const void* gammas = gamma.prepare(c);
    const void* betas = beta.prepare(c);
    const auto stats_of = [&](int position, int64_t image) -> void* {
      if (position < 0) return nullptr;
      return c.out<char>(position) + image * m.pixels * element_bytes(m.acc);
    };
    slots.run(
        static_cast<char*>(c.scratch) + parameters, [&](int64_t begin, int64_t end, void* tile) {
          tiles.run(begin, end, [&](int64_t image, int64_t first, int64_t last) {
            const int64_t plane = image * m.channels;
            pixel_forward(
                p,
                {plane_of(m, c.inputs[x], plane), gammas, betas, plane_of(m, c.outputs[0], plane),
                 stats_of(mean, image), stats_of(inv, image), tile},
                first, last);
          });
        });
  };
  return kernel;
}

sdk::Kernel make_layer_norm2d_backward(const sdk::op::layer_norm2d_backward& n,
                                       const sdk::Node& node) {
  const Image m(n.x, n.eps);
  sdk::Kernel kernel;
  const NormParameter gamma = m.parameter(n.gamma, kernel.scratch);
  const ChannelOutput dgamma(node, n.want_dgamma ? 1 : -1), dbeta(node, n.want_dbeta ? 2 : -1);
  const Tiles tiles(m, 2);
  const TileSums gamma_sums(m, tiles, n.want_dgamma, kernel.scratch),
      beta_sums(m, tiles, n.want_dbeta, kernel.scratch);
  const uint64_t sums = kernel.scratch;
  const int64_t bytes = 2 * tiles.bytes(m);
  const Slots slots = make_slots(gamma_sums.blocks, bytes, 3 * gamma_sums.tiles_in_block * bytes);
  kernel.scratch += slots.scratch();
  if (n.want_dx) kernel.in_place = {{n.dy.position(), 0}, {n.x.position(), 0}};
  // Both or neither: the kernel subtracts the mean that inv_std was computed with.
  const bool given = n.mean && n.inv_std;
  kernel.run = [=, dy = n.dy.position(), x = n.x.position(), mean = given ? n.mean.position() : -1,
                inv = given ? n.inv_std.position() : -1,
                dx = n.want_dx ? 0 : -1](const sdk::Call& c) {
    const PixelNorm p{m.dtype, m.channels, m.pixels, m.eps, tiles.width};
    const void* gammas = gamma.prepare(c);
    const auto stats_of = [&](int position, int64_t image) -> const void* {
      if (position < 0) return nullptr;
      return c.in<char>(position) + image * m.pixels * element_bytes(m.acc);
    };
    const auto start = [&](char* sums) {
      if (sums) std::fill_n(sums, m.channels * kPixelSumBytes, char{0});
      return sums;
    };
    const int64_t per = gamma_sums.tiles_in_block;
    slots.run(static_cast<char*>(c.scratch) + sums, [&](int64_t k, int64_t end, void* tile) {
      for (; k < end; ++k) {
        char *to_gamma = start(gamma_sums.block(c, k)), *to_beta = start(beta_sums.block(c, k));
        const int64_t last_tile = std::min(tiles.count, (k + 1) * per);
        tiles.run(k * per, last_tile, [&](int64_t image, int64_t first, int64_t last) {
          const int64_t plane = image * m.channels;
          pixel_backward(
              p,
              {plane_of(m, c.inputs[dy], plane), plane_of(m, c.inputs[x], plane), gammas,
               stats_of(mean, image), stats_of(inv, image),
               dx < 0 ? nullptr : plane_of(m, c.outputs[dx], plane), to_gamma, to_beta, tile},
              first, last);
        });
      }
    });
    for (int64_t k = 0; k < m.channels; ++k) {
      if (gamma_sums.wanted) dgamma.set(c, k, gamma_sums.total(c, m.dtype, k));
      if (beta_sums.wanted) dbeta.set(c, k, beta_sums.total(c, m.dtype, k));
    }
  };
  return kernel;
}

}  // namespace tenon::cpu
