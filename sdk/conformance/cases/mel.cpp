// SPDX-License-Identifier: Apache-2.0
// mel_filterbank log_mel log_mel_backward log_mel_spectrogram.
#include <cmath>
#include <limits>

#include "cases/complex.hpp"
#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Logarithms are judged by their absolute error.
void logarithms(CaseBuilder& b, std::string_view name) {
  b.scale(name, [&] { return b.number(1); });
}

// ---- mel_filterbank

void bank_rows(Suite& s) {
  struct Form {
    const char* id;
    op::mel_filterbank op;
  };
  for (const Form& f :
       {Form{"speech", {}}, Form{"music", {.sr = 22050, .n_fft = 2048, .n_mels = 128}},
        Form{"htk", {.n_mels = 40, .fmin = 20, .fmax = 7600, .scale = "htk"}},
        Form{"peaks", {.n_fft = 511, .norm = "none"}},
        Form{"empty-rows", {.n_fft = 32, .n_mels = 40}}})
    s.add({.id = std::string("mel-filterbank-") + f.id,
           .sentence = std::string("a bank of filters, ") + f.id,
           .dtypes = kFloats,
           .build =
               [=](CaseBuilder& b) {
                 op::mel_filterbank n = f.op;
                 n.dtype = b.dtype();
                 b.output("w", b.add(n));
               },
           .tolerance = ulps(1)});
  s.add({.id = "mel-filterbank-known",
         .sentence = "filters of four bins, one of them without any",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               // Slaney's scale is linear here: edges at 0, 1, 2, 3 and 4 Hz, bins at 0, 2, 4.
               b.output("w", b.add(op::mel_filterbank{
                                 .sr = 8, .n_fft = 4, .n_mels = 3, .dtype = b.dtype()}));
               b.scale("w", [&] { return b.number(1); });
               b.expect("w", {0, 0, 0, 0, 1, 0, 0, 0, 0});
               // Edges at 0, 200, 400, 600 and 800 Hz: slopes of 1/200, areas of 1.
               b.output("areas", b.add(op::mel_filterbank{
                                     .sr = 1600, .n_fft = 16, .n_mels = 3, .dtype = b.dtype()}));
               b.scale("areas", [&] { return b.number(1); });
               b.expect("areas", {0, 0.0025, 0.005, 0.0025, 0,     0,      0,     0,      0,
                                  0, 0,      0,     0.0025, 0.005, 0.0025, 0,     0,      0,
                                  0, 0,      0,     0,      0,     0.0025, 0.005, 0.0025, 0});
             },
         .tolerance = scaled(8)});
  const auto refuse = [&](const char* id, const op::mel_filterbank& n, const char* text) {
    s.add_failure(
        std::string("mel-filterbank-") + id + "-refused", std::string("a bad ") + text,
        [=](CaseBuilder& b) { b.output("w", b.add(n)); }, TENON_INVALID_ARGUMENT, text);
  };
  refuse("fmax", {.fmax = 8001}, "attribute fmax");
  refuse("fmin", {.fmin = 500, .fmax = 500}, "attribute fmax");
  refuse("mels", {.n_mels = 0}, "attribute n_mels");
  refuse("rate", {.sr = 0}, "attribute sr");
}

// ---- log_mel, log_mel_backward

struct TailForm {
  const char* id;
  op::log_mel op;
};
const TailForm kTails[] = {
    {"default", {}},
    {"natural", {.floor = 0.3, .log = "log", .affine = false}},
    {"range", {.dynamic_range = 0.2}},
    {"range-frame", {.dynamic_range = 0.1, .max_scope = "frame"}},
    {"range-tensor", {.dynamic_range = 0.3, .max_scope = "tensor"}},
    {"plain", {.dynamic_range = 0, .affine = false}},
};

void tail_rows(Suite& s) {
  for (const TailForm& f : kTails)
    for (const bool complex : {false, true}) {
      const std::string id = std::string(f.id) + (complex ? "-complex" : "");
      const auto spectra = [=](CaseBuilder& b, const Dims& dims) {
        return complex ? complex_input(b, "x", dims, Fill::uniform(0.3, 1.2))
                       : b.input("x", dims, Fill::uniform(0.1, 2));
      };
      const auto bank = [](CaseBuilder& b, const Dims& dims) {
        return b.input("w", dims, Fill::uniform(0.1, 1));
      };
      s.add({.id = "log-mel-" + id,
             .sentence = "logarithms of a spectrum on the mel scale, " + id,
             .dtypes = kParts,
             .build =
                 [=](CaseBuilder& b) {
                   op::log_mel n = f.op;
                   n.x = spectra(b, {2, 7, 5});
                   n.w = bank(b, {3, 7});
                   b.output("y", b.add(n));
                   logarithms(b, "y");
                 },
             .tolerance = scaled(32),
             .decomposed = 2,
             .gradient = true,
             .scales = {1}});
      s.add({.id = "log-mel-backward-" + id,
             .sentence = "gradients of logarithms on the mel scale, " + id,
             .dtypes = kParts,
             .build =
                 [=](CaseBuilder& b) {
                   op::log_mel_backward n{.floor = f.op.floor,
                                          .log = f.op.log,
                                          .dynamic_range = f.op.dynamic_range,
                                          .affine = f.op.affine,
                                          .max_scope = f.op.max_scope};
                   n.dy = b.input("dy", {2, 4, 6});
                   n.x = spectra(b, {2, 9, 6});
                   n.w = bank(b, {4, 9});
                   n.want_dw = true;
                   const auto r = b.add(n);
                   if (complex)
                     complex_output(b, "dx", r[0]);
                   else
                     b.output("dx", r[0]);
                   b.output("dw", r[1]);
                   b.scale("dx", [&] { return b.number(8); });
                   b.scale("dw", [&] { return b.number(16); });
                 },
             .tolerance = scaled(64),
             .decomposed = 2});
    }
  s.add({.id = "log-mel-known",
         .sentence = "floor, range and affine map of known powers",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x =
                   b.input("x", {3, 2, 2},
                           Fill::list({100, 0, 1, 1e-9, 0, 0, 0, 0, kNan, 1, 1, 1}).fixed());
               const Value w = b.input("w", {2, 2}, Fill::list({1, 0, 0, 1}).fixed());
               b.output("y", b.add(op::log_mel{.x = x, .w = w}));
               b.expect("y", {1.5, -0.5, 1, -0.5, -1.5, -1.5, -1.5, -1.5, kNan, kNan, kNan, kNan});
             },
         .tolerance = ulps(4)});
  s.add(
      {.id = "log-mel-backward-known",
       .sentence = "the gradient below the range goes to the largest ones, at its edge half of it",
       .dtypes = kParts,
       .build =
           [](CaseBuilder& b) {
             // Logarithms: 2, 2, 1 (the edge of the range), 0.
             const Value x = b.input("x", {1, 4, 1}, Fill::list({100, 100, 10, 1}).fixed());
             const Value w = b.input(
                 "w", {4, 4}, Fill::list({1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}).fixed());
             const Value dy = b.input("dy", {1, 4, 1}, Fill::list({1, 2, 4, 8}).fixed());
             const auto r = b.add(op::log_mel_backward{
                 .dynamic_range = 1, .affine = false, .dy = dy, .x = x, .w = w});
             const double e = 1 / std::log(10);
             b.output("dx", r[0]);
             b.expect("dx", {6 * e / 100, 7 * e / 100, 2 * e / 10, 0});
           },
       .tolerance = ulps(16)});
  s.add({.id = "log-mel-empty",
         .sentence = "no frames, no examples",
         .dtypes = {f32},
         .build = [](CaseBuilder& b) {
           const Value w = b.input("w", {3, 4});
           b.output("frames", b.add(op::log_mel{.x = b.input("x", {2, 4, 0}), .w = w}));
           b.output("examples", b.add(op::log_mel{.x = b.input("z", {0, 4, 5}), .w = w}));
         }});
  s.add_failure(
      "log-mel-bins-refused", "a bank for another number of bins",
      [](CaseBuilder& b) {
        b.output("y", b.add(op::log_mel{.x = b.input("x", {2, 7, 5}), .w = b.input("w", {3, 6})}));
      },
      TENON_SHAPE_MISMATCH, "operand w");
  s.add_failure(
      "log-mel-floor-refused", "a floor of 0",
      [](CaseBuilder& b) {
        b.output("y", b.add(op::log_mel{
                          .floor = 0, .x = b.input("x", {2, 7, 5}), .w = b.input("w", {3, 7})}));
      },
      TENON_INVALID_ARGUMENT, "attribute floor");
}

// ---- log_mel_spectrogram

struct SoundForm {
  const char* id;
  int64_t examples, samples;
  op::log_mel_spectrogram op;
  bool window = false, gradient = false;
};

void sound_rows(Suite& s) {
  using Op = op::log_mel_spectrogram;
  for (const SoundForm& f :
       {SoundForm{"default", 2, 3300, {}}, SoundForm{"seconds", 1, 16000, {.n_mels = 128}},
        SoundForm{"small", 2, 40, {.n_fft = 16, .hop = 5, .n_mels = 4}, false, true},
        SoundForm{"window", 2, 40, {.n_fft = 16, .hop = 5, .n_mels = 4}, true, true},
        SoundForm{"range",
                  2,
                  40,
                  {.n_fft = 16, .hop = 6, .n_mels = 4, .dynamic_range = 0.7},
                  false,
                  true},
        SoundForm{"all-frames",
                  1,
                  33,
                  {.n_fft = 16, .hop = 4, .n_mels = 5, .drop_last = false},
                  false,
                  true},
        SoundForm{"not-centred",
                  3,
                  50,
                  {.n_fft = 20, .hop = 7, .n_mels = 4, .center = false},
                  false,
                  true},
        SoundForm{
            "odd", 2, 41, {.n_fft = 15, .hop = 5, .n_mels = 3, .pad_mode = "constant"}, true, true},
        SoundForm{"natural",
                  2,
                  300,
                  {.n_fft = 64,
                  .hop = 16,
                  .n_mels = 12,
                  .scale = "htk",
                  .log = "log",
                  .dynamic_range = 0,
                  .affine = false}},
        SoundForm{
            "frame",
            2,
            900,
            {.n_fft = 100, .hop = 25, .n_mels = 20, .dynamic_range = 1, .max_scope = "frame"}},
        SoundForm{
            "tensor",
            3,
            700,
            {.n_fft = 64, .hop = 64, .n_mels = 20, .dynamic_range = 1, .max_scope = "tensor"}},
        SoundForm{"music",
                  2,
                  9000,
                  {.sr = 22050, .n_fft = 2048, .hop = 512, .n_mels = 128, .norm = "none"}},
        SoundForm{"prime", 1, 3000, {.n_fft = 509, .hop = 100, .n_mels = 30}},
        SoundForm{"no-frames", 1, 9, {.n_fft = 16, .hop = 20, .n_mels = 4}},
        SoundForm{"no-examples", 0, 900, {}}})
    s.add({.id = std::string("log-mel-spectrogram-") + f.id,
           .sentence = std::string("logarithms of the power of sound on the mel scale, ") + f.id,
           .dtypes = kParts,
           .build =
               [=](CaseBuilder& b) {
                 Op n = f.op;
                 n.x = b.input("x", {f.examples, f.samples});
                 if (f.window) n.window = b.input("window", {n.n_fft}, Fill::uniform(0.1, 1));
                 b.output("y", b.add(n));
                 logarithms(b, "y");
               },
           .tolerance = scaled(84),  // 1e-5 of f32
           .decomposed = 2,
           .gradient = f.gradient,
           .scales = {1}});
  s.add({.id = "log-mel-spectrogram-silence",
         .sentence = "silence is exactly -1.5; a NaN stays in its example",
         .dtypes = kParts,
         .build = [](CaseBuilder& b) {
           std::vector<double> sound(2 * 64, 0);
           sound[64 + 20] = kNan;
           const Value x = b.input("x", {2, 64}, Fill::list(sound).fixed());
           b.output("y", b.add(Op{.n_fft = 16, .hop = 16, .n_mels = 2, .x = x}));
           b.expect("y", {-1.5, -1.5, -1.5, -1.5, -1.5, -1.5, -1.5, -1.5,  //
                          kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan});
         }});
  const auto refuse = [&](const char* id, const Op& op, tenon_code code, const char* text) {
    s.add_failure(
        std::string("log-mel-spectrogram-") + id + "-refused", std::string("a bad ") + text,
        [=](CaseBuilder& b) {
          Op n = op;
          n.x = b.input("x", {1, 200});
          b.output("y", b.add(n));
        },
        code, text);
  };
  refuse("short", {}, TENON_INVALID_ARGUMENT, "reflect");
  refuse("hop", {.n_fft = 16, .hop = 0}, TENON_INVALID_ARGUMENT, "attribute hop");
  refuse("mels", {.n_fft = 16, .n_mels = -1}, TENON_INVALID_ARGUMENT, "attribute n_mels");
  refuse("range", {.n_fft = 16, .dynamic_range = -1}, TENON_INVALID_ARGUMENT, "dynamic_range");
}

}  // namespace

void mel_cases(Suite& s) {
  s.floor({.joined = 105, .own_joined = 75});
  bank_rows(s);
  tail_rows(s);
  sound_rows(s);
}

}  // namespace tenon::conform
