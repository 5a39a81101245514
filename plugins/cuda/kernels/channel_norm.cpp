// SPDX-License-Identifier: Apache-2.0
// group_norm and its backward op: how a group is cut into pieces that fit on chip. layer_norm2d is
// in channel_norm_pixels.cpp.
#include "channel_norm.hpp"

#include <algorithm>
#include <bit>

#include "../device.hpp"
#include "../kernels.hpp"
#include "lines.hpp"
#include "vectors.hpp"

namespace tenon::cuda {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Value;

// ---- both norms

ImageBatch::ImageBatch(const Value& x, double given_eps)
    : NormImages(sdk::norm_images_of(x.type())),
      dtype(x.type().dtype),
      acc(acc_dtype(dtype)),
      eps(given_eps) {
  if (!is_float(dtype)) throw Refusal::dtype("x", dtype);
}
std::vector<std::string> ImageBatch::defines(const Value& gamma, const Value& beta,
                                             tenon_dtype out) const {
  const auto type_of = [&](const char* name, const char* operand, const Value& v) {
    return std::string(name) + "=" + type_name(operand, v ? v.type().dtype : dtype);
  };
  return {"TYPE=" + type_name("x", dtype), type_of("GAMMA", "gamma", gamma),
          type_of("BETA", "beta", beta), "OUT=" + type_name("dgamma", out)};
}
tenon_dtype ImageBatch::gradient_dtype(const Node& node, int dgamma, int dbeta) const {
  const int k = dgamma >= 0 ? dgamma : dbeta;
  return k < 0 ? dtype : node.out(static_cast<size_t>(k)).type().dtype;
}

void ChannelGradients::place(const ImageBatch& image, uint64_t& scratch) {
  channels = image.channels;
  join = count * each > 256 ? 256 : 32;
  if (wanted())
    offset = take_scratch(
        scratch, static_cast<uint64_t>(count * channels * each * 2 * element_bytes(image.acc)));
}
void* ChannelGradients::sums(const Call& c) const {
  return wanted() ? scratch_at(c, offset) : nullptr;
}
void ChannelGradients::run(const Call& c) const {
  if (!wanted()) return;
  Grid grid = line_grid(channels, join);
  grid.early = early;
  code.launch(c, grid, sums(c), c.out(dgamma), c.out(dbeta), count, static_cast<uint32_t>(channels),
              static_cast<uint32_t>(each));
}

namespace {

constexpr int64_t kThreads = 512, kCluster = 8;

struct Cut {
  ImageBatch image;
  args::GroupNormShape shape{};
  int64_t lanes = 1, chunks = 1, vec = 1;
  bool on_chip = true;

  Cut(const Value& x, int64_t groups, double eps) : image(x, eps) {
    const int64_t channels = image.channels / groups;
    if (image.pixels > 0 && channels >= kNarrowIndex / image.pixels)
      throw Refusal::shape("groups are too large for one kernel");
    if (image.channels >= kNarrowIndex) throw Refusal::shape("more than 2^31 channels");
    shape.groups = image.batch * groups;
    shape.eps = eps;
    shape.groups_in_image = static_cast<uint32_t>(groups);
    shape.channels = static_cast<uint32_t>(channels);
    shape.pixels = static_cast<uint32_t>(image.pixels);
  }
  // bytes: of an operand in a thread's registers. width: elements of a vector.
  void cut(int64_t bytes, int64_t width, const CudaDevice& device) {
    // Units of a warp at most, so that pieces are of like size.
    constexpr int64_t kWarp = 32, kRunLanes = 16;
    vec = width;
    const int64_t most = bytes / std::max<int64_t>(element_bytes(image.dtype) * vec, 8);  // chunks
    const int64_t vectors = image.pixels / vec, channels = shape.channels;
    const int64_t splits = std::max<int64_t>(blocks_for(vectors, kWarp * most), 1);
    const int64_t unit = std::max<int64_t>(blocks_for(vectors, splits), 1);  // vectors
    const int64_t least = blocks_for(unit, most);
    const auto whole = [](int64_t n) {
      return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
    };
    // Neighbours read a run together, unless the group would take more blocks.
    lanes = std::max(whole(least), std::min(whole(unit), kRunLanes));
    while (lanes > whole(least) && channels * lanes > kThreads) lanes /= 2;
    chunks = blocks_for(unit, lanes);
    const int64_t all = std::max<int64_t>(channels * splits, 1), fit = kThreads / lanes;
    int64_t pieces = blocks_for(all, fit);
    on_chip = pieces == 1 || (pieces <= kCluster && device.properties().major >= 9);
    if (on_chip) pieces = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(pieces)));
    const int64_t units = blocks_for(all, pieces), team = (units * lanes + 31) / 32 * 32;
    const int64_t teams = pieces > 1 ? 1 : std::max<int64_t>(256 / team, 1);
    shape.unit = static_cast<uint32_t>(unit * vec);
    shape.splits = static_cast<uint32_t>(splits);
    shape.pieces = static_cast<uint32_t>(pieces);
    shape.units = static_cast<uint32_t>(units);
    shape.team = static_cast<uint32_t>(team);
    shape.teams = static_cast<uint32_t>(teams);
    shape.by_splits = Divisor(shape.splits);
    shape.by_pieces = Divisor(shape.pieces);
    shape.by_team = Divisor(shape.team);
  }
  Grid grid() const {
    return {.blocks = blocks_for(shape.groups, shape.teams) * shape.pieces,
            .threads = shape.team * shape.teams};
  }
  Grid join_grid() const { return {.blocks = shape.groups}; }
  int64_t number_bytes() const { return element_bytes(image.acc); }
  std::vector<std::string> defines(const Value& gamma, const Value& beta, tenon_dtype out,
                                   int64_t join) const {
    std::vector<std::string> list = image.defines(gamma, beta, out);
    list.insert(list.end(), {define("JOIN", join), define("LANES", lanes), define("CHUNKS", chunks),
                             define("VEC", vec), define("PIECES", on_chip ? shape.pieces : 1)});
    return list;
  }
};

// An area for each group, and one for each of the pieces.
struct Areas {
  uint64_t pieces = 0, means = 0, inverses = 0, totals = 0;
  Areas() = default;
  Areas(const Cut& cut, bool sums, uint64_t& scratch) {
    const auto numbers = [&](int64_t n) {
      return take_scratch(scratch, static_cast<uint64_t>(n * cut.number_bytes()));
    };
    pieces = numbers(3 * cut.shape.groups * cut.shape.pieces);  // moments, or pairs
    means = numbers(cut.shape.groups);
    inverses = numbers(cut.shape.groups);
    if (sums) totals = numbers(2 * cut.shape.groups);
  }
};

Kernel make_group_norm(const sdk::op::group_norm& n, const Node& node) {
  Cut cut(n.x, n.groups, n.eps);
  CudaDevice& device = device_of(node);
  const int64_t bytes = element_bytes(cut.image.dtype);
  cut.cut(128, common_width(bytes, cut.image.pixels, {n.x, node.out(0)}), device);
  const std::vector<std::string> defines = cut.defines(n.gamma, n.beta, cut.image.dtype, 32);
  const auto code_of = [&](const auto& entry) { return device.code(entry, defines); };
  const int x = n.x.position(), gamma = n.gamma.position(), beta = n.beta.position();
  const int mean = n.want_mean ? 1 : -1, inv = n.want_inv_std ? 2 : -1;
  const Grid grid = cut.grid(), join_grid = cut.join_grid();
  const args::GroupNormShape shape = cut.shape;
  Kernel kernel;
  if (cut.on_chip) {
    const auto forward = code_of(entries::group_norm_forward);
    kernel = kernel_of({forward}, [=](const Call& c) {
      forward.launch(c, grid, c.inputs[x], c.in(gamma), c.in(beta), c.outputs[0], c.out(mean),
                     c.out(inv), shape);
    });
  } else {
    uint64_t scratch = 0;
    const Areas areas(cut, false, scratch);
    const auto moments = code_of(entries::group_norm_moments);
    const auto join = code_of(entries::group_norm_join_groups);
    const auto apply = code_of(entries::group_norm_apply);
    kernel = kernel_of({moments, join, apply}, [=](const Call& c) {
      void* const found = scratch_at(c, areas.pieces);
      void* const means = mean < 0 ? scratch_at(c, areas.means) : c.outputs[mean];
      void* const inverses = inv < 0 ? scratch_at(c, areas.inverses) : c.outputs[inv];
      moments.launch(c, grid, c.inputs[x], found, shape);
      join.launch(c, join_grid, found, means, inverses, shape);
      apply.launch(c, grid, c.inputs[x], c.in(gamma), c.in(beta), c.outputs[0], means, inverses,
                   shape);
    });
    kernel.scratch = scratch;
  }
  kernel.in_place = {{x, 0}};
  return kernel;
}

Kernel make_group_norm_backward(const sdk::op::group_norm_backward& n, const Node& node) {
  Cut cut(n.x, n.groups, n.eps);
  CudaDevice& device = device_of(node);
  const int64_t bytes = element_bytes(cut.image.dtype);
  const Value also = n.want_dx ? node.out(0) : n.x;
  cut.cut(64, common_width(bytes, cut.image.pixels, {n.dy, n.x, also}), device);
  uint64_t scratch = 0;
  ChannelGradients gradients{.dgamma = n.want_dgamma ? 1 : -1, .dbeta = n.want_dbeta ? 2 : -1};
  gradients.early = device_of(node).properties().early_starts;
  gradients.count = cut.image.batch;
  gradients.each = cut.shape.splits;
  gradients.place(cut.image, scratch);
  const tenon_dtype out = cut.image.gradient_dtype(node, gradients.dgamma, gradients.dbeta);
  const std::vector<std::string> defines = cut.defines(n.gamma, {}, out, gradients.join);
  std::vector<Code> codes;
  const auto code_of = [&](const auto& entry) {
    const auto code = device.code(entry, defines);
    codes.push_back(code);
    return code;
  };
  if (gradients.wanted()) gradients.code = code_of(entries::group_norm_parameters);
  const int dy = n.dy.position(), x = n.x.position(), gamma = n.gamma.position();
  const int dx = n.want_dx ? 0 : -1;
  // Both or neither: x is centred by the mean that inv_std was made with.
  const bool given = n.mean && n.inv_std;
  const int mean = given ? n.mean.position() : -1, inv = given ? n.inv_std.position() : -1;
  const Grid grid = cut.grid(), join_grid = cut.join_grid();
  const args::GroupNormShape shape = cut.shape;
  Kernel kernel;
  if (cut.on_chip) {
    const auto backward = code_of(entries::group_norm_backward);
    kernel = kernel_of(codes, [=](const Call& c) {
      backward.launch(c, grid, c.inputs[dy], c.inputs[x], c.in(gamma), c.in(mean), c.in(inv),
                      c.out(dx), gradients.sums(c), shape);
      gradients.run(c);
    });
  } else {
    const Areas areas(cut, true, scratch);
    const auto moments = code_of(entries::group_norm_moments);
    const auto join_groups = code_of(entries::group_norm_join_groups);
    const auto sums = code_of(entries::group_norm_sums);
    const auto join_sums = code_of(entries::group_norm_join_sums);
    const auto differentiate = code_of(entries::group_norm_differentiate);
    kernel = kernel_of(codes, [=](const Call& c) {
      void *const found = scratch_at(c, areas.pieces), *const none = nullptr;
      const void *means = c.in(mean), *inverses = c.in(inv);
      if (!given) {
        void *const own_means = scratch_at(c, areas.means), *const own_inverses =
                                                                scratch_at(c, areas.inverses);
        moments.launch(c, grid, c.inputs[x], found, shape);
        join_groups.launch(c, join_grid, found, own_means, own_inverses, shape);
        means = own_means, inverses = own_inverses;
      }
      sums.launch(c, grid, c.inputs[dy], c.inputs[x], c.in(gamma), means, inverses,
                  dx < 0 ? none : found, gradients.sums(c), shape);
      gradients.run(c);
      if (dx < 0) return;
      void* const totals = scratch_at(c, areas.totals);
      join_sums.launch(c, join_grid, found, totals, shape);
      differentiate.launch(c, grid, c.inputs[dy], c.inputs[x], c.in(gamma), means, inverses, totals,
                           c.outputs[dx], shape);
    });
  }
  kernel.scratch = scratch;
  if (dx >= 0) kernel.in_place = {{dy, 0}, {x, 0}};
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::group_norm, make_group_norm>(),
    sdk::row<sdk::op::group_norm_backward, make_group_norm_backward>(),
    sdk::row<sdk::op::layer_norm2d, make_layer_norm2d>(),
    sdk::row<sdk::op::layer_norm2d_backward, make_layer_norm2d_backward>(),
};

}  // namespace

std::span<const sdk::Row> channel_norm_rows() { return kRows; }

}  // namespace tenon::cuda
