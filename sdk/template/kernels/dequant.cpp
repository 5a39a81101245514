// SPDX-License-Identifier: Apache-2.0
// dequantize_blocks: the elements of blocks, one block at a time.
#include <tenon/blocks.hpp>

#include "../element.hpp"
#include "../kernels.hpp"

namespace tenon::sample {

Kernel make_dequantize_blocks(const op::dequantize_blocks& n, const Node&) {
  const Type& w = n.w.type();
  const tenon_block block = tenon_dtype_block(w.dtype);
  if (!is_decodable(w.dtype) || !w.dense()) throw Refusal::dtype("w", w.dtype);
  const int64_t count = w.elements() / block.elements;
  const auto make = [&]<class T>(T) {
    const auto run = [block, count, dtype = w.dtype](const sdk::Call& c) {
      const auto* from = c.in<unsigned char>(0);
      T* to = c.out<T>(0);
      double numbers[256];
      for (int64_t b = 0; b < count; ++b, from += block.bytes) {
        decode_block(dtype, from, numbers);
        for (int i = 0; i < block.elements; ++i) *to++ = narrow<T>(numbers[i]);
      }
    };
    return Kernel{.run = run};
  };
  return with_type(kFloatTypes, "to", n.to, make);
}

}  // namespace tenon::sample
