// SPDX-License-Identifier: Apache-2.0
// conv_transpose. The error scale is the same op on absolute values.
#include "cases/conv.hpp"

namespace tenon::conform {
namespace {

struct Transposed {
  const char* id;
  const char* sentence;
  Dims x;
  int64_t out;
  Dims kernel, stride{}, pads{}, dilation{}, output_padding{};
  int64_t groups = 1;
  bool bias = false;
};

}  // namespace

void conv_transpose_rows(Suite& s) {
  for (const Transposed& t : {
           Transposed{"plain", "a 3x3 window", {2, 3, 4, 5}, 4, {3, 3}},
           {"double",
            "each pixel becomes four",
            {1, 5, 4, 6},
            3,
            {2, 2},
            {2, 2},
            {},
            {},
            {},
            1,
            true},
           {"stride",
            "overlapping windows by twos",
            {2, 4, 5, 4},
            6,
            {3, 3},
            {2, 2},
            {1, 1, 1, 1},
            {},
            {1, 1},
            2,
            true},
           {"gaps",
            "pixels that no window reaches",
            {1, 2, 3, 4},
            2,
            {1, 2},
            {3, 4},
            {},
            {},
            {2, 3},
            1,
            true},
           {"dilation",
            "spread taps",
            {1, 3, 4, 4},
            2,
            {3, 2},
            {1, 2},
            {2, 1, 2, 0},
            {2, 3},
            {1, 2}},
           {"far",
            "an output padding beyond the stride",
            {1, 2, 3, 3},
            2,
            {2, 2},
            {1, 2},
            {0, 0, 1, 0},
            {4, 3},
            {3, 2}},
           {"depthwise",
            "one filter per channel",
            {2, 4, 5, 5},
            4,
            {3, 3},
            {2, 2},
            {1, 1, 1, 1},
            {},
            {},
            4,
            true},
           {"unreached",
            "only pixels that no window reaches",
            {2, 2, 1},
            3,
            {1},
            {4},
            {2, 0},
            {},
            {3},
            1,
            true},
           {"unreached-axis",
            "no window reaches along one axis",
            {1, 2, 3, 1},
            2,
            {2, 1},
            {1, 3},
            {0, 1, 0, 0},
            {},
            {0, 2}},
           {"line", "one spatial axis", {2, 3, 9}, 4, {4}, {2}, {1, 2}, {}, {1}},
           {"volume",
            "three spatial axes",
            {1, 2, 3, 3, 2},
            3,
            {2, 3, 2},
            {2, 1, 2},
            {},
            {},
            {},
            1,
            true},
           {"many-tiles",
            "each of many pixels becomes four",
            {3, 40, 46, 50},
            36,
            {2, 2},
            {2, 2},
            {},
            {},
            {},
            1,
            true},
       }) {
    int64_t taps = 1, products = t.out;
    for (const int64_t k : t.kernel) taps *= k;
    for (const int64_t d : t.x) products *= d;
    products *= taps;
    s.add({.id = std::string("conv-transpose-") + t.id,
           .sentence = std::string("conv_transpose: ") + t.sentence,
           .build =
               [=](CaseBuilder& b) {
                 op::conv_transpose n{.stride = t.stride, .pads = t.pads, .dilation = t.dilation};
                 n.groups = t.groups, n.output_padding = t.output_padding;
                 Dims w{t.x[1], t.out / t.groups};
                 w.insert(w.end(), t.kernel.begin(), t.kernel.end());
                 n.x = b.input("x", t.x), n.w = b.input("w", w);
                 if (t.bias) n.bias = b.input("bias", {t.out});
                 b.output("y", b.add(n));
                 b.scale("y", [&] {
                   auto m = n;
                   m.x = b.abs(n.x), m.w = b.abs(n.w);
                   if (n.bias) m.bias = b.abs(n.bias);
                   return b.add(m);
                 });
               },
           .tolerance = product_of(t.x[1] / t.groups * taps + 1),
           .decomposed = 2,
           .gradient = products < kFewProducts,
           .scales = {1}});
  }
}

}  // namespace tenon::conform
