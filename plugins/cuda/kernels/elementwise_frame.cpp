// SPDX-License-Identifier: Apache-2.0
// elementwise_kernel: one op, one launch.
#include "elementwise.hpp"
#include "frame.hpp"

namespace tenon::cuda {

std::string elementwise_text(const BodyText& text, const std::vector<sdk::Value>& in,
                             std::span<const int64_t> shape) {
  return Frame(text, in, shape, {.any_strides = true}).text(text);
}

sdk::Kernel elementwise_kernel(CudaDevice& device, const std::string& name, const BodyText& text,
                               const std::vector<sdk::Value>& in, std::span<const int64_t> shape,
                               int first_out, bool any_strides) {
  const Frame frame(text, in, shape, {.any_strides = any_strides});
  const Code code = device.generated(name, frame.text(text), "elementwise");
  std::vector<int> positions;
  for (const sdk::Value& v : in) positions.push_back(v.position());
  const size_t outputs = text.outputs().size();
  sdk::Kernel kernel = kernel_of(
      {code}, [=, arguments = frame.arguments(outputs),
               grid = Grid{.blocks = frame.blocks(), .early = device.properties().early_starts}](
                  const sdk::Call& c) {
        FrameArguments a = arguments;
        for (size_t k = 0; k < positions.size(); ++k)
          a[k] = reinterpret_cast<uint64_t>(c.inputs[positions[k]]);
        for (size_t k = 0; k < outputs; ++k)
          a[positions.size() + k] =
              reinterpret_cast<uint64_t>(c.outputs[static_cast<size_t>(first_out) + k]);
        code.launch_words(c, grid, a.data());
      });
  // A thread reads all of its operands before it writes.
  for (size_t k = 0; k < outputs; ++k)
    for (const sdk::Value& v : in)
      if (Frame::replaceable(v.type(), shape, text.outputs()[k]))
        kernel.in_place.push_back({v.position(), first_out + static_cast<int>(k)});
  return kernel;
}

}  // namespace tenon::cuda
