// SPDX-License-Identifier: Apache-2.0
// What goes before and behind the products of convolutions: the kernels of conv_layout.cu.
#include <algorithm>

#include "conv.hpp"
#include "vectors.hpp"

namespace tenon::cuda {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Value;

ConvFilterOrder::ConvFilterOrder(CudaDevice& device, const ConvProblem& p, bool by_pieces,
                                 ConvScratch& scratch, bool across)
    : by_m_(!by_pieces), across_(across), input_(p.w.position()) {
  const args::ConvShape s = p.shape();
  const auto taps = static_cast<uint32_t>(p.geometry.taps());
  shape_.m = static_cast<uint32_t>(s.m), shape_.c = static_cast<uint32_t>(s.c), shape_.taps = taps;
  const tenon_dtype dtype = p.w.type().dtype;
  const auto piece = static_cast<uint32_t>(piece_of(dtype));
  shape_.padded = by_pieces ? (shape_.c + piece - 1) / piece * piece : shape_.c;
  shape_.step_m = p.transposed ? taps : shape_.c * taps;
  shape_.step_c = p.transposed ? shape_.m * taps : taps;
  shape_.step_group = shape_.m * shape_.c * taps;
  shape_.count = int64_t{s.groups} * shape_.m * taps * shape_.padded;
  bytes_ = static_cast<uint64_t>(shape_.count * element_bytes(dtype));
  if (p.quantized && p.quantized->x_zero >= 0) {
    sums_ = ByteRowSums(device, dtype, p.geometry.m, int64_t{taps} * shape_.padded / piece);
    sums_at_ = bytes_, bytes_ += sums_.bytes();
  }
  // Filters of one tap and whole pieces are used as they are.
  const bool plain =
      by_pieces && !p.transposed && taps == 1 && s.c % piece == 0 && p.w.alignment() >= 16;
  if ((plain && !across && sums_.rows == 0) || bytes_ == 0) return;
  derived_ = p.w.frozen(), orders_ = !derived_;
  if (orders_) at_ = scratch.add(bytes_);
  std::vector<std::string> d{"TYPE=" + type_name("w", dtype), "XW=1", define("BY_M", by_m_),
                             "YW=1"};
  if (across) d.emplace_back("ACROSS=1");
  code_ = device.code(entries::conv_filters, d);
}
void ConvFilterOrder::run(const Call& call, const void* from, void* to) const {
  const int64_t each = by_m_ ? 1 : 8;  // elements of a thread
  code_.launch(call, {.blocks = blocks_for(shape_.count, 256 * each), .threads = 256}, from, to,
               shape_);
  if (sums_.rows > 0) sums_.run(call, to, static_cast<char*>(to) + sums_at_);
}
std::string ConvFilterOrder::layout() const {
  std::string text = by_m_ ? "conv by_m" : "conv";
  for (const uint32_t v :
       {shape_.m, shape_.c, shape_.taps, shape_.padded, shape_.step_m, shape_.step_c})
    text += " " + std::to_string(v);
  if (across_) text += " across";
  if (sums_.rows > 0) text += " sums";
  return text;
}
args::ConvFilters ConvFilterOrder::work() const {
  args::ConvFilters work = shape_;
  if (!orders_) work.count = 0;
  return work;
}
void* ConvFilterOrder::place(const Call& call) const {
  return orders_ ? scratch_at(call, at_) : const_cast<void*>(call.in(input_));
}
const void* ConvFilterOrder::get(const Call& call) const {
  if (orders_) run(call, call.in(input_), scratch_at(call, at_));
  return place(call);
}
void ConvFilterOrder::add_to(std::vector<Code>& codes) const {
  if (orders_) codes.push_back(code_);
  if (orders_ && sums_.rows > 0) codes.push_back(sums_.code);
}
void ConvFilterOrder::add_to(Kernel& kernel) const {
  if (!derived_) return;
  kernel.derived.push_back({.input = input_,
                            .layout = layout(),
                            .size = bytes_,
                            .enqueue = [filters = *this](const Call& c) {
                              filters.code_.prepare();
                              if (filters.sums_.rows > 0) filters.sums_.code.prepare();
                              filters.run(c, c.inputs[0], c.outputs[0]);
                            }});
}

ConvStaging::ConvStaging(const Node& node, const Value& value, int64_t n, int64_t groups, int64_t c,
                         int64_t pixels)
    : images(n), piece(piece_of(value.type().dtype)) {
  const int64_t pieces_of = blocks_for(c, piece), padded = pieces_of * piece;
  if (n * pixels >= kNarrowIndex / std::max<int64_t>(groups * pieces_of, 1))
    throw Refusal::shape("more than 2^35 bytes with their channels side by side");
  const auto narrow = [](int64_t v) { return static_cast<uint32_t>(v); };
  layout = {narrow(pixels),
            narrow(groups),
            narrow(c),
            narrow(padded),
            narrow(blocks_for(pixels, 64)),
            narrow(blocks_for(groups * padded, 64))};
  const tenon_dtype dtype = value.type().dtype;
  code = device_of(node).code(
      entries::conv_channels_last,
      {"TYPE=" + type_name("x", dtype),
       define("XW", common_width(element_bytes(dtype), pixels, {value})), "BY_M=0", "YW=1"});
  launchable(images * layout.pixel_tiles * layout.channel_tiles);
}
uint64_t ConvStaging::bytes() const {
  return static_cast<uint64_t>(images) * layout.pixels * layout.groups *
         static_cast<uint64_t>(pieces()) * 16;
}
void ConvStaging::run(const Call& call, const void* from, void* to) const {
  code.launch(call, {.blocks = images * layout.pixel_tiles * layout.channel_tiles, .threads = 256},
              from, to, layout);
}

ConvWeightFinish::ConvWeightFinish(const Node& node, const ConvGeometry& g, int64_t splits,
                                   int64_t columns, int64_t padded)
    : sum_bytes_(element_bytes(acc_dtype(g.dtype))) {
  CudaDevice& device = device_of(node);
  const auto narrow = [](int64_t v) { return static_cast<uint32_t>(v); };
  const auto divisor = [&](int64_t v) { return Divisor(narrow(v)); };
  // Parts in the order of dw have one tap.
  const int64_t taps = padded > 0 ? g.taps() : 1, c = g.c / g.groups * (g.taps() / taps),
                width = padded > 0 ? 4 : 1;
  constexpr int64_t kMostTaps = 64, kAtOnce = 8, kBlocks = 4;  // of a multiprocessor
  const int64_t tile_taps = std::min(taps, kMostTaps), tiles_taps = blocks_for(taps, tile_taps);
  int64_t tile_c = 8;
  while (tile_c < 128 && tile_c < c && tile_taps * tile_c * 2 <= args::kMostFinishItems &&
         g.m * tiles_taps * blocks_for(c, tile_c * 2) >=
             kBlocks * device.properties().multiprocessors)
    tile_c *= 2;
  const int64_t slices =
      std::clamp<int64_t>(splits / kAtOnce, 1, args::kMostFinishItems / (tile_taps * tile_c));
  shape = {.split = g.m * columns,
           .splits = narrow(splits),
           .c = narrow(c),
           .taps = narrow(taps),
           .row = narrow(columns),
           .padded = narrow(padded > 0 ? padded : columns),
           .tile_c = narrow(tile_c),
           .slices = narrow(slices),
           .tiles_c = narrow(blocks_for(c, tile_c)),
           .tiles_taps = narrow(tiles_taps),
           .by_tap = divisor(tile_c / width),
           .by_tile = divisor(tile_c / width * tile_taps),
           .tile_taps = divisor(tile_taps)};
  grid = {.blocks = launchable(g.m * shape.tiles_c * tiles_taps),
          .threads = 256,
          .early = device.properties().early_starts};
  code = device.code(entries::conv_finish_weights,
                     {"TYPE=" + type_name("x", g.dtype), "XW=1", "BY_M=0", define("YW", width)});
}
uint64_t ConvWeightFinish::bytes() const {
  return static_cast<uint64_t>(shape.split * shape.splits * sum_bytes_);
}
void ConvWeightFinish::run(const Call& call, const void* parts) const {
  code.launch(call, grid, parts, call.outputs[0], shape);
}

}  // namespace tenon::cuda
