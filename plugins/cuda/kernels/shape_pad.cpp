// SPDX-License-Identifier: Apache-2.0
// pad: each unit of the result finds where it comes from, or is the constant.
#include <algorithm>
#include <array>
#include <cstring>

#include "../device.hpp"
#include "args.hpp"
#include "entries.hpp"
#include "shape.hpp"
#include "tenon/axis.hpp"
#include "tenon/constant.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

constexpr uint32_t kThreads = 256;
constexpr int64_t kEach = 4;

struct Mode {
  std::string_view name;
  int number;  // in the text
};
constexpr Mode kModes[] = {{"constant", 0}, {"edge", 1}, {"reflect", 2}, {"symmetric", 3}};

int parse_mode(std::string_view text) {
  const auto at = std::ranges::find(kModes, text, &Mode::name);
  if (at == std::end(kModes)) throw Refusal::attribute("mode", text);
  return at->number;
}

}  // namespace

sdk::Kernel make_pad(const sdk::op::pad& n, const sdk::Node& node) {
  const sdk::Type &x = n.x.type(), &y = node.out(0).type();
  type_name("x", x.dtype);  // refuses
  const int64_t bytes = element_bytes(x.dtype);
  const int mode = parse_mode(n.mode);
  const std::array<uint8_t, 8> value = sdk::constant_bytes("x", x.dtype, mode == 0 ? n.value : 0);
  args::Pad p;
  size_t rank = 0;  // axes up to the last padded one; what follows is one item
  for (int i = 0; i < x.rank; ++i)
    if (x.dims[i] != y.dims[i]) rank = static_cast<size_t>(i) + 1;
  int64_t item = 1;
  for (size_t i = rank; i < static_cast<size_t>(x.rank); ++i) item *= x.dims[i];
  // Units of up to 16 bytes, as an item and the start of x allow.
  int64_t unit = bytes;
  while (unit < 16 && item * bytes % (2 * unit) == 0 && n.x.alignment() > 0 &&
         n.x.alignment() % static_cast<uint64_t>(2 * unit) == 0)
    unit *= 2;
  for (int64_t i = 0; i < unit; i += std::max<int64_t>(bytes, 1))
    std::memcpy(p.value + i, value.data(), static_cast<size_t>(std::min<int64_t>(bytes, 8)));
  int64_t stride = item * bytes / unit;
  size_t last = rank;
  if (stride != 1 || rank == 0) {  // the item is an axis of its own
    p.out[last] = p.in[last] = stride, p.strides[last] = 1;
    ++last;
  }
  for (size_t i = rank; i-- > 0;) {
    p.out[i] = y.dims[i], p.in[i] = x.dims[i], p.strides[i] = stride;
    p.before[i] = sdk::entry_of(n.before, static_cast<int>(i), 0);
    stride *= x.dims[i];
  }
  p.count = 1;
  for (size_t i = 0; i < last; ++i) {
    p.count *= p.out[i];
    if (p.out[i] > 0 && p.out[i] < kNarrowIndex)
      p.divisors[i] = Divisor(static_cast<uint32_t>(p.out[i]));
  }
  const auto code = device_of(node).code(
      entries::pad, {"SIZE=" + std::to_string(unit), "RANK=" + std::to_string(last),
                     "MODE=" + std::to_string(mode),
                     std::string("NARROW=") + (p.count < kNarrowIndex ? "1" : "0")});
  return kernel_of({code}, [=, at = n.x.position()](const sdk::Call& c) {
    code.launch(c, {.blocks = blocks_for(p.count, kThreads * kEach), .threads = kThreads},
                c.inputs[at], c.outputs[0], p);
  });
}

}  // namespace tenon::cuda
