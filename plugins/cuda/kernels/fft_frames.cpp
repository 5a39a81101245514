// SPDX-License-Identifier: Apache-2.0
// stft, and the plan of frames that it shares with log_mel_spectrogram: no frame is written to memory.
#include "fft_frames.hpp"

#include <algorithm>
#include <cmath>

namespace tenon::cuda {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

FramePlan::FramePlan(CudaDevice& device, const FrameForm& f, const sdk::Value& x,
                     const sdk::Value& window)
    : even(f.size % 2 == 0) {
  constexpr int kMostThreads = 512;
  const auto room =
      static_cast<int64_t>(device.properties().shared_room("fft_frames.cu", "frames"));
  const int64_t points = even ? f.size / 2 : f.size;
  fft_plan(points);  // says what is wrong with the length
  // Neighbouring frames are neighbours in the result: 16 of them fill its lines.
  for (count = 16; count > 0; count /= 2) {
    const std::optional<FftPlan> found = try_fft_plan(points, kMostThreads / count);
    if (!found || (found->held() > 16 && count > 1)) continue;
    plan = *found;
    shared = int64_t{4} * count * args::fft_area(plan.points, 1, 2, 32 / count);
    if (shared <= room) break;
  }
  if (count == 0)
    throw Refusal::shape("frames of " + std::to_string(f.size) + " samples do not fit a block");
  const auto on_pairs = [](const sdk::Value& v) {
    return v.alignment() > 0 && v.alignment() % 8 == 0;
  };
  const bool pairs = even && f.window == f.size && f.hop % 2 == 0 && f.border % 2 == 0 &&
                     f.samples % 2 == 0 && on_pairs(x) && (!window || on_pairs(window));
  defines = plan.defines(1, 2, threads());
  defines.push_back(define("EVEN", even));
  defines.push_back(define("REFLECTS", f.reflects));
  defines.push_back(define("PAIRS", pairs));
  roots = std::make_shared<DeviceTable>(
      device, [plan = plan, even = even] { return fft_roots(plan, even); });
  groups = launchable(blocks_for(f.frames, count));
  arguments.samples = f.samples;
  arguments.frames = f.frames;
  arguments.border = f.border;
  arguments.hop = f.hop;
  arguments.groups = static_cast<uint32_t>(groups);
  arguments.first = static_cast<int32_t>((f.size - f.window) / 2);
  arguments.window = static_cast<int32_t>(f.window);
  arguments.factor = static_cast<float>(f.factor);
}

Grid FramePlan::grid(int64_t batch) const {
  return {.blocks = launchable(batch * groups),
          .threads = threads(),
          .shared = static_cast<uint32_t>(shared)};
}

Kernel make_stft(const sdk::op::stft& n, const Node& node) {
  const sdk::Type& x = n.x.type();
  if (x.dtype != TENON_DTYPE_F32) throw Refusal::dtype("x", x.dtype);
  FrameForm form = sdk::frame_form(n, x);
  form.frames = node.out(0).type().dims[2];
  form.hop = n.hop == 0 ? std::max<int64_t>(n.n_fft / 4, 1) : n.hop;
  form.window = n.win_length == 0 ? n.n_fft : n.win_length;
  form.factor = fft_factor(n.normalized ? "ortho" : "backward", false, n.n_fft);
  CudaDevice& device = device_of(node);
  FramePlan plan(device, form, n.x, n.window);
  const uint64_t alignment = node.out(0).alignment();
  for (const std::string& d :
       {define("WINDOW", static_cast<bool>(n.window)), define("MEL", 0), define("AFFINE", 0),
        define("VEC", 1), define("TWO_SIDED", !n.onesided),
        define("OUT8", alignment > 0 && alignment % 8 == 0)})
    plan.defines.push_back(d);
  const auto code =
      device.code(entries::fft_frames, plan.defines, static_cast<uint32_t>(plan.shared));
  const Grid grid = plan.grid(x.dims[0]);
  return kernel_with({plan.roots}, {code},
                     [=, roots = plan.roots, arguments = plan.arguments,
                      window = n.window.position()](const Call& c) {
                       const void* const none = nullptr;
                       code.launch(c, grid, c.inputs[0], c.in(window), c.outputs[0], roots->at(),
                                   none, none, static_cast<float*>(nullptr), arguments);
                     });
}

}  // namespace tenon::cuda
