// SPDX-License-Identifier: Apache-2.0
// conv conv_transpose conv_backward_input conv_backward_weight; im2col and col2im are in
// conv_columns.cpp. The error scale is the same op on absolute values.
#include <algorithm>
#include <string_view>
#include <utility>

#include "cases/conv.hpp"
#include "cases/families.hpp"

namespace tenon::conform {

const std::vector<ConvForm>& conv_forms() {
  // x, channels of the result, kernel
  static const std::vector<ConvForm> all = {
      {"plain", "a 3x3 window", {2, 3, 7, 6}, 4, {3, 3}},
      {"pads", "different padding on each side", {1, 2, 5, 7}, 3, {3, 3}, {}, {1, 0, 2, 1}},
      {"stride", "strides with a rest", {2, 3, 8, 9}, 5, {3, 2}, {2, 3}, {1, 1, 1, 1}},
      {"gaps", "strides longer than the window", {1, 2, 7, 9}, 3, {1, 2}, {3, 4}},
      {"dilation", "spread taps", {1, 3, 9, 8}, 2, {2, 3}, {}, {1, 2, 1, 2}, {3, 2}},
      {"dilation-stride",
       "spread taps by strides",
       {1, 2, 9, 8},
       3,
       {3, 2},
       {2, 3},
       {2, 1, 2, 1},
       {2, 3}},
      {"groups", "groups of channels", {2, 6, 5, 6}, 4, {3, 3}, {}, {1, 1, 1, 1}, {}, 2},
      {"depthwise", "one filter per channel", {2, 5, 7, 9}, 5, {3, 3}, {}, {1, 1, 1, 1}, {}, 5},
      {"depthwise-stride",
       "one filter per channel by twos",
       {1, 6, 9, 10},
       6,
       {5, 5},
       {2, 2},
       {2, 2, 2, 2},
       {},
       6},
      {"depthwise-many",
       "two filters per channel",
       {1, 3, 6, 5},
       6,
       {3, 3},
       {},
       {1, 1, 1, 1},
       {},
       3},
      {"depthwise-dilation",
       "one filter per channel, spread taps",
       {1, 3, 9, 20},
       3,
       {3, 3},
       {},
       {2, 2, 2, 2},
       {2, 2},
       3},
      {"pointwise", "1x1 windows", {2, 7, 4, 5}, 9, {1, 1}},
      {"pointwise-stride", "1x1 windows by twos", {2, 5, 5, 6}, 3, {1, 1}, {2, 2}},
      {"pointwise-pads", "1x1 windows with padding", {1, 3, 4, 3}, 2, {1, 1}, {}, {1, 2, 0, 1}},
      {"whole", "one window over all", {3, 4, 5, 3}, 6, {5, 3}},
      {"outside", "windows that lie in the padding", {1, 2, 2, 3}, 2, {2, 2}, {2, 2}, {3, 4, 3, 4}},
      {"line", "one spatial axis", {2, 4, 33}, 6, {5}, {2}, {2, 2}},
      {"line-long", "one spatial axis, a long window", {1, 2, 300}, 2, {128}, {64}, {64, 64}},
      {"line-groups", "one spatial axis, groups", {2, 6, 21}, 9, {3}, {}, {2, 0}, {2}, 3},
      {"volume",
       "three spatial axes",
       {1, 2, 4, 5, 6},
       3,
       {2, 3, 3},
       {1, 2, 1},
       {1, 0, 1, 0, 1, 2}},
      {"volume-groups",
       "three spatial axes, groups",
       {2, 4, 3, 4, 5},
       4,
       {2, 2, 3},
       {},
       {},
       {1, 2, 1},
       4},
      {"one", "one pixel, one tap", {1, 1, 1, 1}, 1, {1, 1}},
      {"wide", "more windows than a block of columns", {1, 3, 20, 41}, 8, {3, 3}, {}, {1, 1, 1, 1}},
      {"deep", "many channels on few pixels", {1, 130, 4, 4}, 70, {3, 3}, {}, {1, 1, 1, 1}},
      {"channels", "channels in whole vectors", {2, 32, 6, 5}, 24, {3, 3}, {}, {1, 1, 1, 1}},
      {"pointwise-vectors", "1x1 windows, all in whole vectors", {2, 24, 8, 8}, 20, {1, 1}},
      {"large-window", "49 taps", {1, 9, 12, 11}, 10, {7, 7}, {2, 1}, {3, 3, 3, 3}},
      {"line-wide", "one spatial axis, 70 taps", {1, 9, 90}, 10, {70}},
      {"line-cut", "a row of windows too long for one band", {1, 9, 2050}, 10, {3}, {}, {1, 1}},
      {"line-cut-stride",
       "a long row by twos, spread taps",
       {2, 9, 4100},
       10,
       {3},
       {2},
       {2, 1},
       {2}},
      {"line-cut-planes", "a long row of few channels", {1, 3, 9000}, 3, {5}, {}, {2, 2}, {}, 3},
      {"row-cut", "long rows of several", {1, 9, 3, 1300}, 10, {3, 3}, {}, {1, 1, 1, 1}},
      {"far-taps",
       "taps that no window reaches",
       {1, 9, 4, 7},
       10,
       {3, 3},
       {},
       {1, 50, 1, 50},
       {1, 50}},
      {"far-taps-planes", "likewise for few channels", {2, 5, 40}, 5, {3}, {}, {90, 90}, {90}, 5},
      {"only-padding", "windows of padding alone", {1, 3, 5}, 4, {2}, {20}, {9, 9}, {9}},
      {"many-windows", "16384 windows", {4, 12, 64, 64}, 72, {1, 2}, {}, {0, 1, 0, 0}},
      {"many-pixels", "16384 windows of one pixel", {4, 12, 64, 64}, 72, {1, 1}},
      {"many-tiles", "some channels on many pixels", {3, 36, 54, 53}, 40, {3, 3}, {}, {1, 1, 1, 1}},
      {"many-tiles-stride",
       "some channels on many pixels, by twos",
       {3, 20, 106, 108},
       40,
       {3, 3},
       {2, 2},
       {1, 1, 1, 1}},
      {"many-tiles-groups",
       "two groups of some channels on many pixels",
       {3, 144, 37, 38},
       80,
       {3, 3},
       {},
       {1, 1, 1, 1},
       {},
       2},
      {"many-tiles-lines",
       "some channels on many pixels, lines of which a tile has several",
       {6, 36, 44, 30},
       40,
       {3, 3},
       {},
       {1, 1, 1, 1}},
      {"many-tiles-long",
       "some channels on many pixels, four lines to a tile",
       {6, 36, 126, 62},
       40,
       {3, 3},
       {},
       {1, 1, 1, 1}},
      {"many-tiles-twos",
       "as many channels on both sides of many pixels, by twos",
       {3, 40, 90, 96},
       36,
       {3, 3},
       {2, 2},
       {1, 1, 1, 1}},
      {"many-tiles-odd",
       "the same with a rest and a longer window",
       {3, 40, 79, 81},
       36,
       {5, 4},
       {2, 2},
       {1, 2, 2, 1}},
      {"many-weights", "a million weights", {1, 512, 3, 3}, 256, {3, 3}, {}, {1, 1, 1, 1}},
  };
  return all;
}

namespace {

constexpr int64_t kFewProducts = 40000;  // for finite differences
bool is_small(const ConvForm& f) {
  int64_t n = f.out * f.terms();
  for (const int64_t d : f.x) n *= d;
  return n < kFewProducts;
}

void forward_rows(Suite& s, const ConvForm& f) {
  s.add({.id = std::string("conv-") + f.id,
         .sentence = std::string("conv: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto n = f.windows<op::conv>();
               n.x = b.input("x", f.x), n.w = b.input("w", f.w());
               b.output("y", b.add(n)[0]);
               b.scale("y", [&] {
                 auto m = n;
                 m.x = b.abs(n.x), m.w = b.abs(n.w);
                 return b.add(m)[0];
               });
             },
         .tolerance = product_of(f.terms()),
         .decomposed = 2,
         .gradient = is_small(f),
         .scales = {0.05, 4}});
}

void backward_rows(Suite& s, const ConvForm& f) {
  s.add({.id = std::string("conv-backward-input-") + f.id,
         .sentence = std::string("gradient of conv for x: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto n = f.windows<op::conv_backward_input>();
               n.size = {f.x.begin() + 2, f.x.end()};
               n.dy = b.input("dy", f.y()), n.w = b.input("w", f.w());
               b.output("dx", b.add(n));
               b.scale("dx", [&] {
                 auto m = n;
                 m.dy = b.abs(n.dy), m.w = b.abs(n.w);
                 return b.add(m);
               });
             },
         .tolerance = product_of(f.terms() * f.out),
         .decomposed = 2,
         .gradient = is_small(f),
         .scales = {1}});
  int64_t windows = f.x[0];
  for (const int64_t d : f.windows_along()) windows *= d;
  s.add({.id = std::string("conv-backward-weight-") + f.id,
         .sentence = std::string("gradient of conv for w: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto n = f.windows<op::conv_backward_weight>();
               n.kernel = f.kernel;
               n.dy = b.input("dy", f.y()), n.x = b.input("x", f.x);
               b.output("dw", b.add(n));
               b.scale("dw", [&] {
                 auto m = n;
                 m.dy = b.abs(n.dy), m.x = b.abs(n.x);
                 return b.add(m);
               });
             },
         .tolerance = product_of(windows),
         .decomposed = 2,
         .gradient = is_small(f),
         .scales = {1}});
}

const ConvForm& form_of(std::string_view id) {
  return *std::ranges::find_if(conv_forms(), [&](const ConvForm& f) { return f.id == id; });
}

// y = act(conv + bias + residual).
void end_rows(Suite& s) {
  const ConvForm f{"ends", "", {2, 4, 6, 5}, 6, {3, 3}, {}, {1, 1, 1, 1}, {}, 2};
  struct Ends {
    const char* id;
    const char* act;
    bool bias, residual, pre_act;
    double alpha = TENON_UNSET;
  };
  for (const Ends& e : {Ends{"bias", "none", true, false, false},
                        {"residual", "none", false, true, false},
                        {"bias-relu", "relu", true, false, false},
                        {"all", "silu", true, true, false},
                        {"all-relu", "relu", true, true, true},
                        {"leaky", "leaky_relu", true, false, false, 0.2},
                        {"pre-act", "hard_swish", true, false, true}})
    for (const char* form : {"groups1", "groups2", "groups4", "many-tiles"}) {
      const bool large = form == std::string_view("many-tiles");
      if (large && !(e.bias && e.residual && e.pre_act)) continue;
      ConvForm g = large ? form_of(form) : f;
      if (!large) g.groups = form[6] - '0';
      if (g.groups == 4) g.out = 8;
      s.add({.id = std::string("conv-") + e.id + "-" + form,
             .sentence = "conv with what follows it",
             .build =
                 [=](CaseBuilder& b) {
                   auto n = g.windows<op::conv>();
                   n.act = e.act, n.act_alpha = e.alpha;
                   n.x = b.input("x", g.x), n.w = b.input("w", g.w());
                   if (e.bias) n.bias = b.input("bias", {g.out});
                   if (e.residual) n.residual = b.input("residual", g.y());
                   n.want_pre_act = e.pre_act;
                   const Node y = b.add(n);
                   b.output("y", y[0]);
                   if (e.pre_act) b.output("pre_act", y[1]);
                   const auto bound = [&] {
                     auto m = n;
                     m.act = "none", m.act_alpha = TENON_UNSET, m.want_pre_act = false;
                     m.x = b.abs(n.x), m.w = b.abs(n.w);
                     if (n.bias) m.bias = b.abs(n.bias);
                     if (n.residual) m.residual = b.abs(n.residual);
                     return b.add(m)[0];
                   };
                   b.scale("y", bound);
                   if (e.pre_act) b.scale("pre_act", bound);
                 },
             .tolerance = product_of(g.terms() + 2),
             .decomposed = 2,
             .gradient = !large && std::string_view(e.act) != "relu" &&
                         std::string_view(e.act) != "leaky_relu",
             .second_order = false,
             .scales = {1}});
    }
  s.add({.id = "conv-bias-f32",
         .sentence = "conv of halves with a bias in f32",
         .dtypes = kHalves,
         .build =
             [=](CaseBuilder& b) {
               auto n = f.windows<op::conv>();
               n.x = b.input("x", f.x), n.w = b.input("w", f.w());
               n.bias = b.input("bias", b.own_acc(), {f.out}, Fill::normal());
               b.output("y", b.add(n)[0]);
               b.scale("y", [&] {
                 auto m = n;
                 m.x = b.abs(n.x), m.w = b.abs(n.w), m.bias = b.abs(n.bias);
                 return b.add(m)[0];
               });
             },
         .tolerance = product_of(f.terms() + 1),
         .scales = {1}});
}

struct Transposed {
  const char* id;
  const char* sentence;
  Dims x;
  int64_t out;
  Dims kernel, stride{}, pads{}, dilation{}, output_padding{};
  int64_t groups = 1;
  bool bias = false;
};

void transposed_rows(Suite& s) {
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

// By hand: x = 1..9 in a square, w = [[1, 2], [3, 4]].
void known_rows(Suite& s) {
  s.add({.id = "conv-known",
         .sentence = "convolutions of a small image, with numbers known by hand",
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {1, 1, 3, 3}, Fill::list({1, 2, 3, 4, 5, 6, 7, 8, 9}));
           const Value w = b.input("w", {1, 1, 2, 2}, Fill::list({1, 2, 3, 4}));
           b.output("y", b.add(op::conv{.x = x, .w = w})[0]);
           b.expect("y", {37, 47, 67, 77});
           b.output(
               "corners",
               b.add(op::conv{
                   .stride = {3, 3}, .pads = {1, 1, 1, 1}, .dilation = {3, 3}, .x = x, .w = w})[0]);
           b.expect("corners", {36});
           const Value dy = b.input("dy", {1, 1, 2, 2}, Fill::list({1, -1, 2, 5}));
           b.output("dx", b.add(op::conv_backward_input{.size = {3, 3}, .dy = dy, .w = w}));
           b.expect("dx", {1, 1, -2, 5, 10, 6, 6, 23, 20});
           b.output("dw", b.add(op::conv_backward_weight{.kernel = {2, 2}, .dy = dy, .x = x}));
           b.expect("dw", {32, 39, 53, 60});
           b.output("doubled", b.add(op::conv_transpose{.stride = {2, 2}, .x = dy, .w = w}));
           b.expect("doubled", {1, 2, -1, -2, 3, 4, -3, -4, 2, 4, 5, 10, 6, 8, 15, 20});
         }});
}

void refusals(Suite& s) {
  const auto error = [&](const char* id, op::conv n, Dims x, Dims w, tenon_code code,
                         const char* text) {
    s.add({.id = std::string("conv-") + id + "-refused",
           .sentence = std::string("conv: ") + id + " that does not fit is refused",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 op::conv m = n;
                 m.x = b.input("x", x), m.w = b.input("w", w);
                 b.output("y", b.add(m)[0]);
               },
           .error = code,
           .error_text = text});
  };
  const Dims image = {1, 4, 5, 5}, filter = {2, 4, 3, 3};
  error("rank", {}, {4, 5}, {2, 4}, TENON_SHAPE_MISMATCH, "operand x");
  error("filter-rank", {}, image, {2, 4, 3}, TENON_SHAPE_MISMATCH, "operand w");
  error("channels", {}, image, {2, 3, 3, 3}, TENON_SHAPE_MISMATCH, "operand w");
  error("groups", {.groups = 3}, image, filter, TENON_SHAPE_MISMATCH, "groups");
  error("no-groups", {.groups = 0}, image, filter, TENON_INVALID_ARGUMENT, "groups");
  error("filters", {.groups = 4}, image, {6, 1, 3, 3}, TENON_SHAPE_MISMATCH, "operand w");
  error("window", {}, image, {2, 4, 6, 3}, TENON_SHAPE_MISMATCH, "extent 6");
  error("stride", {.stride = {0, 1}}, image, filter, TENON_INVALID_ARGUMENT, "stride");
  error("pads", {.pads = {0, -1, 0, 0}}, image, filter, TENON_INVALID_ARGUMENT, "pads");
  error("pads-length", {.pads = {1, 1}}, image, filter, TENON_INVALID_ARGUMENT, "pads");
  error("dilation", {.dilation = {3, 3}}, image, filter, TENON_SHAPE_MISMATCH, "extent 7");
  error("act", {.act = "unknown"}, image, filter, TENON_INVALID_ARGUMENT, "act");
}

}  // namespace

void conv_cases(Suite& s) {
  s.floor({.joined = 1000, .own_joined = 8});
  for (const ConvForm& f : conv_forms()) {
    forward_rows(s, f);
    backward_rows(s, f);
  }
  end_rows(s);
  transposed_rows(s);
  known_rows(s);
  conv_column_rows(s);
  refusals(s);
  s.add(
      {.id = "conv-empty",
       .sentence = "convolutions of no images, and of no channels",
       .dtypes = {f32, bf16},
       .build =
           [](CaseBuilder& b) {
             const Value x = b.input("x", {0, 3, 4, 4}), w = b.input("w", {2, 3, 3, 3});
             b.output("none", b.add(op::conv{.x = x, .w = w})[0]);
             const Value dy = b.input("dy", {0, 2, 2, 2});
             b.output("dw", b.add(op::conv_backward_weight{.kernel = {3, 3}, .dy = dy, .x = x}));
             const Value flat = b.input("flat", {2, 0, 4, 4}), thin = b.input("thin", {3, 0, 2, 2});
             op::conv n{.x = flat, .w = thin};
             n.bias = b.input("bias", {3});
             b.output("bias_alone", b.add(n)[0]);
           },
       .strided = false});
}

}  // namespace tenon::conform
