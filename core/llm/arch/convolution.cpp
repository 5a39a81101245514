// SPDX-License-Identifier: Apache-2.0
// The convolution along time of recurrent layers: a sum of shifted products, so nothing is transposed.
#include "llm/arch/step.hpp"

namespace tenon::llm {

Value convolved(Step& p, Value x, const Convolution& how, const std::string& name,
                const std::string& cache) {
  const int64_t width = how.width, before = width - 1, channels = how.channels;
  const Value window = p.recurrent_state(cache, p.s.compute, {before, channels});
  const Value seen = p.g.add(op::concat{.axis = 1, .xs = {window, x}}, name + ".seen");
  const auto rows = [&](int64_t start, int64_t count) {
    return p.g.add(
        op::narrow{.start = {0, start, 0}, .len = {p.s.batch, count, channels}, .x = seen});
  };
  p.update_state(cache, rows(p.s.time, before));
  // The file has [channels, 1, width].
  const auto transposed = [channels, width](const std::vector<Tensor>& from) {
    const Tensor wide = from[0].to(f32);
    Tensor out(TensorType(f32, {width, channels}));
    const auto source = wide.values<float>();
    const auto to = out.values<float>();
    for (int64_t i = 0; i < channels; ++i)
      for (int64_t k = 0; k < width; ++k)
        to[static_cast<size_t>(k * channels + i)] = source[static_cast<size_t>(i * width + k)];
    return out;
  };
  const bool flat = p.weights.has(name + ".flat");  // files of GGUF: [channels, width]
  const Value taps =
      p.cast(p.made(name + ".taps", {name + (flat ? ".flat" : ".weight")},
                    flat ? std::vector{channels, width} : std::vector{channels, int64_t{1}, width},
                    f32, {width, channels}, transposed),
             p.s.compute);
  Value sum = how.bias ? p.parameter(name + ".bias", {channels}) : Value{};
  for (int64_t k = 0; k < width; ++k) {
    const Value tap = p.g.add(op::narrow{.start = {k, 0}, .len = {1, channels}, .x = taps});
    const Value product = p.binary("mul", rows(k, p.s.time), tap);
    sum = sum ? p.binary("add", sum, product) : product;
  }
  return sum;
}

}  // namespace tenon::llm
