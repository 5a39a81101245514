// SPDX-License-Identifier: Apache-2.0
// copy: a strided tensor becomes dense. A kernel as a real backend writes it, in three parts: code
// for the device, a maker that chooses the code, and bind(), which sets the arguments once for all
// launches.
#include <tenon/shapes.hpp>

#include <cstring>

#include "../device.hpp"
#include "../kernels.hpp"

namespace tenon::sample_stream {

namespace {

using sdk::Dims;
using sdk::Type;

// ---- The code. On a real device this is a text of its own, compiled by the driver.

// Arguments that are passed by value.
struct Shape {
  uint64_t count, rank;
  Dims dims, strides;
};

template <class T>
void copy_code(void* const* memory, const uint64_t* numbers) {
  const auto* from = static_cast<const T*>(memory[0]);
  auto* to = static_cast<T*>(memory[1]);
  Shape shape;
  std::memcpy(&shape, numbers, sizeof shape);
  for (uint64_t k = 0; k < shape.count; ++k) {  // a real device has a thread for each k
    int64_t offset = 0;
    auto rest = static_cast<int64_t>(k);
    for (size_t i = shape.rank; i-- > 0; rest /= shape.dims[i])
      offset += rest % shape.dims[i] * shape.strides[i];
    to[k] = from[offset];
  }
}

// ---- The maker

CodeCache::EntryPtr code_for(const Node& node, const Type& x) {
  return sdk::with_bits("x", x.dtype, [&]<class T>(T) {
    return codes_of(node).entry("copy " + std::to_string(sizeof(T)),
                                [] { return simulator::compile(copy_code<T>); });
  });
}

std::vector<uint64_t> numbers_of(const Type& x) {
  const auto axes = sdk::joined_axes<1>(x, {x.strides});
  const Shape shape{static_cast<uint64_t>(axes.count), static_cast<uint64_t>(axes.rank), axes.dims,
                    axes.strides[0]};
  std::vector<uint64_t> numbers(sizeof shape / sizeof(uint64_t));
  std::memcpy(numbers.data(), &shape, sizeof shape);
  return numbers;
}

}  // namespace

Kernel make_copy(const op::copy& n, const Node& node) {
  const Type& x = n.x.type();
  sdk::Device* device = node.device();
  if (x.dense())  // a command of the driver, no code
    return {.bind = [device, bytes = x.bytes()](const sdk::Call& c) {
      return copier(device, part_of(c.output(0)), part_of(c.input(0)), bytes);
    }};
  const CodeCache::EntryPtr code = code_for(node, x);
  const auto bind = [device, code, numbers = numbers_of(x)](const sdk::Call& c) {
    return launcher(device, code->built(), {{part_of(c.input(0)), part_of(c.output(0))}, numbers});
  };
  return {.prepare = [code] { code->build(); }, .bind = bind};
}

}  // namespace tenon::sample_stream
