// SPDX-License-Identifier: Apache-2.0
// stft istft fft_conv1d: ops made of transforms.
#include <cmath>

#include "cases/fft.hpp"

namespace tenon::conform {
namespace {

struct FrameForm {
  const char* id;
  int64_t samples;
  op::stft op;
  int64_t window = 0;  // its length; 0 = none
  bool gradient = false;
};

struct RowForm {
  const char* id;
  Dims x, w;
  const char* mode = "full";
  bool complex = false;
  bool gradient = true;
};

}  // namespace

void fft_frame_rows(Suite& s) {
  for (const FrameForm& f :
       {FrameForm{"default", 40, {.n_fft = 16}, 16, true},
        FrameForm{"none", 30, {.n_fft = 8, .hop = 3}, 0, true},
        FrameForm{"short-window", 33, {.n_fft = 12, .hop = 4, .win_length = 7}, 7, true},
        FrameForm{"not-centred", 33, {.n_fft = 10, .hop = 5, .center = false}, 10, true},
        FrameForm{"zeros", 20, {.n_fft = 9, .hop = 2, .pad_mode = "constant"}, 9, true},
        FrameForm{"two-sided", 24, {.n_fft = 8, .normalized = true, .onesided = false}, 8, true},
        FrameForm{"speech", 3000, {.n_fft = 400, .hop = 160}, 400},
        FrameForm{"music", 5000, {.n_fft = 1024}, 1024}}) {
    s.add({.id = std::string("stft-") + f.id,
           .sentence = std::string("transforms of frames, ") + f.id,
           .dtypes = kParts,
           .build =
               [=](CaseBuilder& b) {
                 op::stft n = f.op;
                 n.x = b.input("x", {2, f.samples});
                 if (f.window) n.window = b.input("window", {f.window}, Fill::uniform(0.1, 1));
                 complex_output(b, "y", b.add(n));
                 b.scale("y", [&] {
                   return length_of(b, n.x, {}, n.normalized ? 1 / std::sqrt(n.n_fft) : 1);
                 });
               },
           .tolerance = transform_of(f.op.n_fft),
           .decomposed = 4,
           .gradient = f.gradient,
           .scales = {1}});
    const int64_t size = f.op.n_fft, hop = f.op.hop ? f.op.hop : size / 4;
    const int64_t bins = f.op.onesided ? size / 2 + 1 : size;
    const int64_t frames = f.gradient ? 6 : 9;
    s.add({.id = std::string("istft-") + f.id,
           .sentence = std::string("a signal from transforms of frames, ") + f.id,
           .dtypes = kParts,
           .build =
               [=](CaseBuilder& b) {
                 op::istft n{.n_fft = size,
                             .hop = hop,
                             .win_length = f.op.win_length,
                             .center = f.op.center,
                             .normalized = f.op.normalized,
                             .onesided = f.op.onesided};
                 n.x = complex_input(b, "x", {2, bins, frames});
                 if (f.window)
                   n.window = b.input("window", {f.window}, Fill::uniform(0.5, 1).fixed());
                 b.output("y", b.add(n));
                 b.scale("y", [&] {
                   const char* norm = n.normalized ? "ortho" : "backward";
                   const double factor = factor_of(norm, true, static_cast<double>(size));
                   return length_of(b, pairs(b, n.x), {}, 2 * factor);
                 });
               },
           .tolerance = transform_of(size),
           .decomposed = 4,
           .gradient = f.gradient,
           .scales = {1}});
  }
  s.add({.id = "istft-of-stft",
         .sentence = "a signal comes back from its frames, with a sample of its border",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x =
                   b.input("x", {1, 12}, Fill::list({1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1, 0}));
               const Value w = b.input("window", {4}, Fill::list({1, 2, 2, 1}));
               const Value y = b.add(op::stft{.n_fft = 4, .x = x, .window = w});
               b.output("y", b.add(op::istft{.n_fft = 4, .length = 13, .x = y, .window = w}));
               b.expect("y", {1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1, 0, 1});
               b.scale("y", [&] { return length_of(b, x, {}, 1); });
             },
         .tolerance = scaled(16)});
  s.add({.id = "istft-gap",
         .sentence = "samples that no frame has are refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               const Value x = complex_input(b, "x", {1, 3, 4});
               b.output("y", b.add(op::istft{.n_fft = 4, .hop = 6, .center = false, .x = x}));
             },
         .error = TENON_NUMERIC_ERROR,
         .error_text = ""});
  s.add_failure(
      "stft-reflect-refused", "a signal that is too short to reflect",
      [](CaseBuilder& b) {
        complex_output(b, "y", b.add(op::stft{.n_fft = 16, .x = b.input("x", {1, 8})}));
      },
      TENON_INVALID_ARGUMENT, "reflect");
  s.add_failure(
      "stft-window-refused", "a window longer than the frame",
      [](CaseBuilder& b) {
        complex_output(b, "y",
                       b.add(op::stft{.n_fft = 16, .win_length = 17, .x = b.input("x", {1, 80})}));
      },
      TENON_INVALID_ARGUMENT, "win_length");
}

void fft_conv_rows(Suite& s) {
  for (const RowForm& f :
       {RowForm{"full", {2, 9}, {2, 4}}, RowForm{"broadcast", {3, 1, 7}, {2, 3}},
        RowForm{"kernel-first", {3}, {2, 8}}, RowForm{"same", {2, 9}, {4}, "same"},
        RowForm{"same-odd", {2, 6}, {5}, "same"}, RowForm{"same-long", {4}, {2, 9}, "same"},
        RowForm{"valid", {2, 9}, {4}, "valid"}, RowForm{"valid-swapped", {4}, {2, 9}, "valid"},
        RowForm{"complex", {2, 6}, {3}, "full", true}, RowForm{"one", {2, 1}, {1}},
        RowForm{"complex-valid", {2, 6}, {3}, "valid", true}, RowForm{"empty", {0, 6}, {3}},
        RowForm{"long", {3, 3000}, {501}, "same", false, false},
        RowForm{"complex-long", {2, 1000}, {2, 700}, "full", true, false}}) {
    const auto size = [](CaseBuilder& b, Value x) {
      // One number for all rows: they broadcast.
      return b.reduce("l2", x, {}, false);
    };
    s.add({.id = std::string("fft_conv1d-") + f.id,
           .sentence = std::string("a convolution by transforms, ") + f.id,
           .dtypes = kParts,
           .build =
               [=](CaseBuilder& b) {
                 const auto in = [&](const char* name, const Dims& dims) {
                   return f.complex ? complex_input(b, name, dims) : b.input(name, dims);
                 };
                 const Value x = in("x", f.x), w = in("w", f.w);
                 const Value y = b.add(op::fft_conv1d{.mode = f.mode, .x = x, .w = w});
                 if (f.complex)
                   complex_output(b, "y", y);
                 else
                   b.output("y", y);
                 b.scale("y", [&] {
                   const auto parts = [&](Value v) { return f.complex ? pairs(b, v) : v; };
                   return b.binary("mul", size(b, parts(x)), size(b, parts(w)));
                 });
               },
           .tolerance = transform_of(f.x.back() + f.w.back()),
           .decomposed = 4,
           .gradient = f.gradient,
           .scales = {1}});
  }
  s.add({.id = "fft_conv1d-known",
         .sentence = "each mode keeps its part of the convolution",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {4}, Fill::list({1, 2, 3, 4}));
               const Value w = b.input("w", {3}, Fill::list({1, 0, -2}));
               for (const char* mode : {"full", "same", "valid"})
                 b.output(mode, b.add(op::fft_conv1d{.mode = mode, .x = x, .w = w}));
               b.expect("full", {1, 2, 1, 0, -6, -8});
               b.expect("same", {2, 1, 0, -6});
               b.expect("valid", {1, 0});
               for (const char* mode : {"full", "same", "valid"})
                 b.scale(mode, [&] { return b.number(12); });
             },
         .tolerance = scaled(16)});
  s.add_failure(
      "fft_conv1d-empty-refused", "a convolution with nothing",
      [](CaseBuilder& b) {
        b.output("y", b.add(op::fft_conv1d{.x = b.input("x", {2, 3}), .w = b.input("w", {0})}));
      },
      TENON_INVALID_ARGUMENT, "operand w");
}

}  // namespace tenon::conform
