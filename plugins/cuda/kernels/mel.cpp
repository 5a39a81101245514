// SPDX-License-Identifier: Apache-2.0
// log_mel_spectrogram: frames become logarithms while they are on chip. A second kernel applies the range below the
// maximum of an example or of all. The planner decomposes the other ops of the family.
#include <bit>
#include <cmath>
#include <numbers>

#include "../kernels.hpp"
#include "fft_frames.hpp"
#include "lines.hpp"
#include "tenon/spectra.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using Op = sdk::op::log_mel_spectrogram;

void want_words(const Op& n) {
  const auto want = [](const char* name, const std::string& value,
                       std::initializer_list<const char*> known) {
    for (const char* k : known)
      if (value == k) return;
    throw Refusal::attribute(name, value);
  };
  want("scale", n.scale, {"slaney", "htk"});
  want("norm", n.norm, {"slaney", "none"});
  want("log", n.log, {"log10", "log"});
  want("max_scope", n.max_scope, {"example", "tensor", "frame"});
}

// Filters as numbers of a table, and the weights behind them.
std::vector<float> filter_table(const Op& n) {
  std::vector<args::MelFilter> filters(static_cast<size_t>(n.n_mels));
  std::vector<float> weights;
  sdk::each_mel_weight(n, [&](int64_t m, int64_t bin, double weight) {
    args::MelFilter& f = filters[static_cast<size_t>(m)];
    if (f.count++ == 0) f = {static_cast<int32_t>(bin), 1, static_cast<int32_t>(weights.size())};
    weights.push_back(static_cast<float>(weight));
  });
  std::vector<float> table;
  for (const args::MelFilter& f : filters)
    for (const int32_t v : {f.bin, f.count, f.weights}) table.push_back(std::bit_cast<float>(v));
  table.insert(table.end(), weights.begin(), weights.end());
  return table;
}

std::vector<float> hann_table(int64_t size) {
  std::vector<float> table;
  for (const double v : sdk::hann_window(size)) table.push_back(static_cast<float>(v));
  return table;
}

Kernel make_log_mel_spectrogram(const Op& n, const Node& node) {
  const sdk::Type &x = n.x.type(), &y = node.out(0).type();
  if (x.dtype != TENON_DTYPE_F32) throw Refusal::dtype("x", x.dtype);
  want_words(n);
  FrameForm form = sdk::frame_form(n, x);
  form.frames = y.dims[2];
  CudaDevice& device = device_of(node);
  FramePlan plan(device, form, n.x, n.window);

  const bool decimal = n.log == "log10", of_all = n.max_scope == "tensor";
  plan.arguments.filters = static_cast<int32_t>(n.n_mels);
  plan.arguments.floor = static_cast<float>(n.floor);
  plan.arguments.lowest = static_cast<float>(decimal ? std::log10(n.floor) : std::log(n.floor));
  plan.arguments.log_factor = decimal ? std::numbers::log10e_v<float> : 1;
  plan.arguments.range = static_cast<float>(n.dynamic_range);
  const int mode = n.dynamic_range == 0 ? 1 : n.max_scope == "frame" ? 2 : 3;

  const int64_t batch = x.dims[0], blocks = batch * plan.groups;
  const args::MelRange range{
      .row = (of_all ? batch : 1) * n.n_mels * form.frames,
      .maxima = of_all ? blocks : plan.groups,
      .blocks = static_cast<uint32_t>(std::clamp<int64_t>(
          8 * int64_t{device.properties().multiprocessors} /
              std::max<int64_t>(of_all ? 1 : batch, 1),
          1,
          std::max<int64_t>(blocks_for((of_all ? batch : 1) * n.n_mels * form.frames, 4096), 1))),
      .range = plan.arguments.range};
  const bool vectors = range.row % 4 == 0 && on_vectors(node.out(0));
  for (const std::string& d :
       {define("WINDOW", 1), define("MEL", mode), define("TWO_SIDED", 0), define("OUT8", 0),
        define("AFFINE", n.affine), define("VEC", vectors ? 4 : 1)})
    plan.defines.push_back(d);
  const auto frames =
      device.code(entries::fft_frames, plan.defines, static_cast<uint32_t>(plan.shared));
  const auto second = device.code(entries::mel_range, plan.defines);
  const auto filters = std::make_shared<DeviceTable>(device, [n] { return filter_table(n); });
  std::vector<std::shared_ptr<DeviceTable>> tables{plan.roots, filters};
  std::shared_ptr<DeviceTable> hann;
  if (!n.window) {
    hann = std::make_shared<DeviceTable>(device, [size = n.n_fft] { return hann_table(size); });
    tables.push_back(hann);
  }

  const Grid grid = plan.grid(batch);
  const Grid range_grid{.blocks =
                            blocks == 0 ? 0 : launchable((of_all ? 1 : batch) * range.blocks)};
  std::vector<Code> codes{frames};
  if (mode == 3) codes.push_back(second);
  Kernel kernel = kernel_with(
      tables, codes,
      [=, roots = plan.roots, arguments = plan.arguments, window = n.window.position(),
       mels = n.n_mels](const Call& c) {
        constexpr int64_t kWords = sizeof(args::MelFilter) / sizeof(float);
        frames.launch(c, grid, c.inputs[0], hann ? hann->at() : c.in(window), c.outputs[0],
                      roots->at(), filters->at(), filters->at(mels * kWords),
                      static_cast<float*>(c.scratch), arguments);
        if (mode == 3)
          second.launch(c, range_grid, c.outputs[0], static_cast<const float*>(c.scratch), range);
      });
  if (mode == 3) kernel.scratch = static_cast<uint64_t>(blocks) * sizeof(float);
  return kernel;
}

constexpr sdk::Row kRows[] = {sdk::row<Op, make_log_mel_spectrogram>()};

}  // namespace

std::span<const sdk::Row> mel_rows() { return kRows; }

}  // namespace tenon::cuda
