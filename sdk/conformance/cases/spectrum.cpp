// SPDX-License-Identifier: Apache-2.0
// welch_psd spectrum_peaks welch_peaks.
#include <cmath>
#include <limits>

#include "cases/complex.hpp"
#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- welch_psd

struct PsdForm {
  const char* id;
  int64_t samples;
  op::welch_psd op;
  bool window = false, gradient = false;
};

void psd_rows(Suite& s) {
  using Op = op::welch_psd;
  for (const PsdForm& f :
       {PsdForm{"default", 1000, {}}, PsdForm{"long", 20000, {.fs = 8000}},
        PsdForm{"small", 50, {.nperseg = 8}, false, true},
        PsdForm{"window", 50, {.fs = 10, .nperseg = 8}, true, true},
        PsdForm{"spectrum", 61, {.nperseg = 12, .scaling = "spectrum"}, true, true},
        PsdForm{"linear", 40, {.nperseg = 10, .noverlap = 7, .detrend = "linear"}, false, true},
        PsdForm{"no-trend", 40, {.nperseg = 10, .noverlap = 0, .detrend = "none"}, false, true},
        PsdForm{"odd", 47, {.nperseg = 9, .nfft = 11}, false, true},
        PsdForm{"filled", 60, {.nperseg = 7, .nfft = 16, .detrend = "linear"}, true, true},
        PsdForm{"two-sided", 40, {.nperseg = 8, .onesided = false}, false, true},
        PsdForm{"two-sided-odd", 40, {.nperseg = 7, .onesided = false, .scaling = "spectrum"}},
        PsdForm{"median", 50, {.nperseg = 8, .average = "median"}, false, true},
        PsdForm{"median-odd", 44, {.nperseg = 8, .average = "median"}},
        PsdForm{"one-segment", 16, {.nperseg = 16}, false, true},
        PsdForm{"one-sample", 5, {.nperseg = 1, .nfft = 4, .detrend = "none"}},
        PsdForm{"three-samples", 9, {.nperseg = 3, .detrend = "linear"}, true},
        PsdForm{"prime", 3000, {.nperseg = 509}}, PsdForm{"music", 9000, {.nperseg = 2048}}})
    s.add({.id = std::string("welch-psd-") + f.id,
           .sentence = std::string("power of segments, ") + f.id,
           .dtypes = kParts,
           .build =
               [=](CaseBuilder& b) {
                 Op n = f.op;
                 n.x = b.input("x", {3, f.samples});
                 if (f.window) n.window = b.input("window", {n.nperseg}, Fill::uniform(0.1, 1));
                 const Value p = b.add(n);
                 b.output("p", p);
                 b.scale("p", [&] { return b.reduce("max", p, {1}); });
               },
           .tolerance = scaled(64),
           .decomposed = 2,
           .gradient = f.gradient,
           .scales = {1}});
  s.add({.id = "welch-psd-known",
         .sentence = "the power of a wave is in its bin, that of a constant in the first one",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               std::vector<double> x;
               for (int k = 0; k < 16; ++k) x.push_back(3 + 2 * (k % 4 == 0) - 2 * (k % 4 == 2));
               Op n{.fs = 2, .nperseg = 8, .detrend = "none", .scaling = "spectrum"};
               n.x = b.input("x", {1, 16}, Fill::list(x).fixed());
               n.window = b.input("window", {8}, Fill::list({1}).fixed());
               b.output("spectrum", b.add(n));
               b.expect("spectrum", {9, 0, 2, 0, 0});
               b.scale("spectrum", [&] { return b.number(9); });
               n.detrend = "constant", n.scaling = "density";
               b.output("density", b.add(n));
               b.expect("density", {0, 0, 8, 0, 0});
               b.scale("density", [&] { return b.number(9); });
             },
         .tolerance = scaled(32)});
  s.add({.id = "welch-psd-rows-apart",
         .sentence = "a NaN stays in its signal; no signals",
         .dtypes = kParts,
         .build =
             [](CaseBuilder& b) {
               const Value x =
                   b.input("x", {2, 4}, Fill::list({1, -1, 1, -1, kNan, 1, 2, 3}).fixed());
               const Value w = b.input("window", {4}, Fill::list({1}).fixed());
               b.output("p", b.add(Op{.nperseg = 4, .x = x, .window = w}));
               b.expect("p", {0, 0, 4, kNan, kNan, kNan});
               b.scale("p", [&] { return b.number(4); });
               b.output("none", b.add(Op{.nperseg = 4, .x = b.input("z", {0, 9})}));
             },
         .tolerance = scaled(8)});
  s.add({.id = "welch-psd-window-of-zeros",
         .sentence = "a window whose sum is 0 is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               const Value w = b.input("window", {4}, Fill::list({1, -1}).fixed());
               b.output("p", b.add(Op{.nperseg = 4,
                                      .scaling = "spectrum",
                                      .x = b.input("x", {1, 9}),
                                      .window = w}));
             },
         .error = TENON_NUMERIC_ERROR,
         .error_text = ""});
  const auto refuse = [&](const char* id, const Op& op, const char* text) {
    s.add_failure(
        std::string("welch-psd-") + id + "-refused", std::string("a bad ") + text,
        [=](CaseBuilder& b) {
          Op n = op;
          n.x = b.input("x", {1, 100});
          b.output("p", b.add(n));
        },
        TENON_INVALID_ARGUMENT, text);
  };
  refuse("segment", {}, "attribute nperseg");
  refuse("overlap", {.nperseg = 8, .noverlap = 8}, "attribute noverlap");
  refuse("length", {.nperseg = 8, .nfft = 7}, "attribute nfft");
  refuse("rate", {.fs = 0, .nperseg = 8}, "attribute fs");
}

// ---- spectrum_peaks

template <class Results>
void peak_outputs(CaseBuilder& b, const Results& r) {
  b.output("index", r[0], kExact);
  b.output("power", r[1]);
  b.output("count", r[2], kExact);
}

struct PeakForm {
  const char* id;
  op::spectrum_peaks op;
};
const PeakForm kPeaks[] = {
    {"default", {.k = 3}},
    {"best", {}},
    {"height", {.k = 40, .height = 0.5}},
    {"distance", {.k = 20, .min_distance = 4}},
    {"prominence", {.k = 20, .prominence = 0.31}},
    {"all", {.k = 5, .height = 0.2, .min_distance = 3, .prominence = 0.21}},
    {"top", {.k = 4, .select = "top_bins"}},
};

void peak_rows(Suite& s) {
  using Op = op::spectrum_peaks;
  for (const PeakForm& f : kPeaks) {
    s.add({.id = std::string("spectrum-peaks-") + f.id,
           .sentence = std::string("peaks of a spectrum, ") + f.id,
           .dtypes = kParts,
           .build =
               [=](CaseBuilder& b) {
                 Op n = f.op;
                 n.x = b.input("x", {3, 37}, Fill::distinct(0.01, 1));
                 peak_outputs(b, b.add(n));
               },
           .gradient = true,
           .scales = {1}});
    s.add({.id = std::string("spectrum-peaks-ties-") + f.id,
           .sentence = std::string("peaks among equal numbers, ") + f.id,
           .dtypes = kParts,
           .build = [=](CaseBuilder& b) {
             Op n = f.op;
             n.x = b.input("x", {40, 29}, Fill::integers(0, 3));
             peak_outputs(b, b.add(n));
           }});
    s.add({.id = std::string("spectrum-peaks-complex-") + f.id,
           .sentence = std::string("peaks of the mean power of segments, ") + f.id,
           .dtypes = kParts,
           .build =
               [=](CaseBuilder& b) {
                 Op n = f.op;
                 n.x = complex_input(b, "x", {2, 3, 17});
                 peak_outputs(b, b.add(n));
               },
           .tolerance = ulps(8),
           .gradient = true,
           .scales = {1}});
  }
  s.add({.id = "spectrum-peaks-known",
         .sentence = "the middle of a run, none at the ends, none beside a NaN; unused slots",
         .dtypes = kParts,
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {3, 9},
                                   Fill::list({9, 1, 3,    3, 3, 3, 1, 2, 9,  //
                                               0, 5, kNan, 6, 1, 7, 0, 8, 1,  //
                                               0, 0, 1,    1, 1, 2, 2, 2, 2})
                                       .fixed());
           peak_outputs(b, b.add(Op{.k = 3, .x = x}));
           b.expect("index", {3, -1, -1, 7, 5, -1, -1, -1, -1});
           b.expect("power", {3, 0, 0, 8, 7, 0, 0, 0, 0});
           b.expect("count", {1, 2, 0});
         }});
  s.add({.id = "spectrum-peaks-distance-known",
         .sentence = "of equal peaks that are near, the later one stays; a dropped peak drops none",
         .dtypes = kParts,
         .build = [](CaseBuilder& b) {
           const Value x =
               b.input("x", {2, 9},
                       Fill::list({0, 2, 0, 2, 0, 2, 0, 2, 0, 0, 3, 0, 2, 0, 1, 0, 1, 0}).fixed());
           peak_outputs(b, b.add(Op{.k = 4, .min_distance = 3, .x = x}));
           b.expect("index", {3, 7, -1, -1, 1, 7, -1, -1});
           b.expect("power", {2, 2, 0, 0, 3, 1, 0, 0});
           b.expect("count", {2, 2});
         }});
  s.add({.id = "spectrum-peaks-prominence-known",
         .sentence = "the prominence of a peak is its height over the higher of the two valleys",
         .dtypes = kParts,
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {1, 9}, Fill::list({0, 5, 3, 4, 1, 9, 2, 4, 2}).fixed());
           peak_outputs(b, b.add(Op{.k = 4, .prominence = 2, .x = x}));
           b.expect("index", {5, 1, 7, -1});
           b.expect("power", {9, 5, 4, 0});
           b.expect("count", {3});
         }});
  s.add({.id = "spectrum-peaks-top-known",
         .sentence = "the largest bins: equal ones by position, NaN last",
         .dtypes = kParts,
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {1, 5}, Fill::list({2, kNan, 7, 2, -INFINITY}).fixed());
           peak_outputs(b, b.add(Op{.k = 5, .select = "top_bins", .x = x}));
           b.expect("index", {2, 0, 3, 4, 1});
           b.expect("power", {7, 2, 2, -INFINITY, kNan});
           b.expect("count", {5});
         }});
  s.add({.id = "spectrum-peaks-short",
         .sentence = "spectra of up to three bins; no spectra",
         .dtypes = kParts,
         .build = [](CaseBuilder& b) {
           for (const int64_t width : {0, 1, 2, 3}) {
             const std::string id = std::to_string(width);
             const Value x = b.input("x" + id, {2, width}, Fill::list({0, 1, 0.5}).fixed());
             const auto r = b.add(Op{.k = 2, .x = x});
             b.output("index" + id, r[0], kExact);
             b.output("power" + id, r[1]);
             b.output("count" + id, r[2], kExact);
           }
           b.expect("index2", {-1, -1, -1, -1});
           b.expect("count2", {0, 0});
           b.expect("index3", {1, -1, 1, -1});
           b.expect("power3", {1, 0, 1, 0});
           b.output("none", b.add(Op{.k = 2, .x = b.input("none", {0, 7})})[0], kExact);
         }});
  const auto refuse = [&](const char* id, const Op& op, const char* text) {
    s.add_failure(
        std::string("spectrum-peaks-") + id + "-refused", std::string("a bad ") + text,
        [=](CaseBuilder& b) {
          Op n = op;
          n.x = b.input("x", {2, 7});
          b.output("index", b.add(n)[0]);
        },
        TENON_INVALID_ARGUMENT, text);
  };
  refuse("none", {.k = 0}, "attribute k");
  refuse("many", {.k = 8, .select = "top_bins"}, "attribute k");
  refuse("filter", {.select = "top_bins", .min_distance = 2}, "attribute select");
  refuse("distance", {.min_distance = 0}, "attribute min_distance");
}

// ---- welch_peaks

void welch_peak_rows(Suite& s) {
  using Op = op::welch_peaks;
  struct Form {
    const char* id;
    int64_t samples;
    Op op;
    bool window = false, gradient = false;
  };
  for (const Form& f :
       {Form{"default", 2000, {.k = 4}}, Form{"small", 60, {.nperseg = 16, .k = 3}, true, true},
        Form{"filters",
             3000,
             {.nperseg = 128, .k = 6, .height = 0.5, .min_distance = 3, .prominence = 0.2}},
        Form{
            "top", 200, {.nperseg = 32, .scaling = "spectrum", .k = 3, .select = "top_bins"}, true},
        Form{"median", 200, {.nperseg = 32, .average = "median", .k = 3}},
        Form{"linear",
             200,
             {.nperseg = 20, .noverlap = 3, .nfft = 33, .detrend = "linear", .k = 2}}})
    s.add({.id = std::string("welch-peaks-") + f.id,
           .sentence = std::string("peaks of the power of segments, ") + f.id,
           .dtypes = kParts,
           .build =
               [=](CaseBuilder& b) {
                 Op n = f.op;
                 n.x = b.input("x", {3, f.samples});
                 if (f.window) n.window = b.input("window", {n.nperseg}, Fill::uniform(0.1, 1));
                 peak_outputs(b, b.add(n));
               },
           .tolerance = scaled(128),
           .decomposed = 2,
           .gradient = f.gradient,
           .scales = {1}});
  s.add_failure(
      "welch-peaks-many-refused", "more bins than there are",
      [](CaseBuilder& b) {
        b.output(
            "index",
            b.add(Op{.nperseg = 8, .k = 6, .select = "top_bins", .x = b.input("x", {1, 100})})[0]);
      },
      TENON_INVALID_ARGUMENT, "attribute k");
}

}  // namespace

void spectrum_cases(Suite& s) {
  s.floor({.joined = 100, .own_joined = 60});
  psd_rows(s);
  peak_rows(s);
  welch_peak_rows(s);
}

}  // namespace tenon::conform
