// SPDX-License-Identifier: Apache-2.0
// random_bits random_uniform random_normal dropout sample: the same bits on every device.
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Value rng(CaseBuilder& b, int64_t seed, int64_t offset) {
  return b.ints("rng", {2}, {seed, offset});
}

void draw_rows(Suite& s) {
  s.add({.id = "random-bits-known",
         .sentence = "Philox4x32-10 of a zero counter and key is the published vector",
         .dtypes = {u32},
         .build = [](CaseBuilder& b) {
           b.output("y", b.add(op::random_bits{.shape = {4}, .rng = rng(b, 0, 0)}));
           b.expect("y", {0x6627e8d5p0, 0xe169c58dp0, 0xbc57ac4cp0, 0x9b00dbd8p0});
         }});
  const std::vector<Dims> shapes = {{4}, {5, 7}, {1}, {2, 0}, {33, 31}, {}};
  for (size_t k = 0; k < shapes.size(); ++k) {
    // A negative seed and offset fill the counter's high words.
    const int64_t seed = k % 2 ? -12345 : 42, offset = k % 2 ? int64_t{1} << 40 : 7;
    const std::string id = std::to_string(k);
    const Dims shape = shapes[k];
    s.add({.id = "random-bits-" + id,
           .sentence = "bits of a seed and an offset, counts that are no multiple of four",
           .dtypes = {u32},
           .build = [=](CaseBuilder& b) {
             b.output("y", b.add(op::random_bits{.shape = shape, .rng = rng(b, seed, offset)}));
           }});
    for (const tenon_dtype t : {f32, f64}) {
      s.add({.id = "random-uniform-" + id + "-" + dtype_text(t),
             .sentence = "uniform numbers are exactly those of the bits",
             .dtypes = {t},
             .build = [=](CaseBuilder& b) {
               b.output("y", b.add(op::random_uniform{
                                 .shape = shape, .dtype = t, .rng = rng(b, seed, offset)}));
             }});
      s.add({.id = "random-normal-" + id + "-" + dtype_text(t),
             .sentence = "normal numbers by Box-Muller",
             .dtypes = {t},
             .build =
                 [=](CaseBuilder& b) {
                   b.output("y", b.add(op::random_normal{
                                     .shape = shape, .dtype = t, .rng = rng(b, seed, offset)}));
                 },
             .tolerance = ulps(16)});
    }
  }
}

void dropout_rows(Suite& s) {
  for (const double p : {0.0, 0.3, 0.9}) {
    s.add({.id = "dropout-" + std::to_string(static_cast<int>(p * 10)),
           .sentence =
               "dropout keeps the same elements for every dtype, and its gradient the same again",
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("x", {5, 31});
                 b.output("y", b.add(op::dropout{.p = p, .x = x, .rng = rng(b, 11, 3)}));
               },
           .tolerance = ulps(4),
           .gradient = true,
           .scales = {1}});
  }
  s.add({.id = "dropout-all-refused",
         .sentence = "p = 1 is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y",
                        b.add(op::dropout{.p = 1, .x = b.input("x", {3}), .rng = rng(b, 1, 2)}));
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "attribute p"});
}

struct Filter {
  const char* id;
  const char* sentence;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0;
};

void sample_rows(Suite& s) {
  for (const Filter& f :
       {Filter{"greedy", "temperature 0 takes the largest", 0}, Filter{"plain", "a real draw"},
        Filter{"hot", "temperature 2.5", 2.5}, Filter{"cold", "temperature 0.3", 0.3},
        Filter{"top-k", "the five largest", 1, 5},
        Filter{"top-k-all", "more than there are", 1, 500},
        Filter{"top-k-one", "only the largest", 1, 1},
        Filter{"top-p", "the shortest prefix of mass 0.6", 1, 0, 0.6},
        Filter{"top-p-none", "a mass of 0 keeps one", 1, 0, 0},
        Filter{"min-p", "a fifth of the best", 1, 0, 1, 0.2},
        Filter{"every", "all filters", 0.8, 20, 0.9, 0.05}}) {
    for (const int64_t columns : {int64_t{37}, int64_t{1000}})
      s.add({.id = std::string("sample-") + f.id + "-" + std::to_string(columns),
             .sentence = std::string("sample: ") + f.sentence,
             .build =
                 [=](CaseBuilder& b) {
                   const Value x =
                       b.input("logits", {9, columns}, Fill::distinct(-6, 6).with({-kInf, -kInf}));
                   const Node y = b.add(op::sample{.temperature = f.temperature,
                                                   .top_k = f.top_k,
                                                   .top_p = f.top_p,
                                                   .min_p = f.min_p,
                                                   .logits = x,
                                                   .rng = rng(b, 5, 17),
                                                   .want_logprob = true});
                   b.output("ids", y[0]);
                   b.output("logprob", y[1], {{.ulps = 4, .factor = 64}});
                   b.scale("logprob", [&] { return b.number(10); });
                 },
             .decomposed = 2});
  }
  s.add({.id = "sample-wide",
         .sentence = "sample of long rows",
         .dtypes = {f32, bf16},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("logits", {3, 9001}, Fill::normal());
               b.output("ids", b.add(op::sample{.logits = x, .rng = rng(b, 5, 18)}));
               b.output("some", b.add(op::sample{.top_k = 40,
                                                 .top_p = 0.9,
                                                 .logits = x,
                                                 .rng = b.ints("rng2", {2}, {5, 19})}));
             },
         .decomposed = 2});
  s.add({.id = "sample-ties",
         .sentence = "greedy takes the first of equals, top_k the lowest indices",
         .dtypes = {f32},
         .build = [](CaseBuilder& b) {
           const Value x = b.input("logits", {2, 4}, Fill::list({1, 3, 3, 3, 2, 2, 2, 2}));
           b.output("greedy",
                    b.add(op::sample{.temperature = 0, .logits = x, .rng = rng(b, 1, 1)}));
           b.expect("greedy", {1, 0});
           b.output("one",
                    b.add(op::sample{.top_k = 1, .logits = x, .rng = b.ints("rng2", {2}, {3, 4})}));
           b.expect("one", {1, 0});
         }});
  for (const double bad : {kNan, kInf, -kInf}) {
    s.add(
        {.id = std::string("sample-") + (bad != bad ? "nan"
                                         : bad > 0  ? "inf"
                                                    : "nothing-finite"),
         .sentence = "logits without an answer are an error",
         .dtypes = {f32},
         .build =
             [=](CaseBuilder& b) {
               const Fill f = bad < 0 ? Fill::list({bad}) : Fill::list({0, 1, bad, 2, 0, 1, 2, 3});
               b.output("ids", b.add(op::sample{.logits = b.input("logits", {2, 4}, f),
                                                .rng = rng(b, 1, 1)}));
             },
         .error = TENON_NUMERIC_ERROR,
         .error_text = ""});
  }
  s.add({.id = "sample-temperature-refused",
         .sentence = "a negative temperature is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("ids", b.add(op::sample{.temperature = -1,
                                                .logits = b.input("logits", {2, 4}),
                                                .rng = rng(b, 1, 1)}));
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "temperature"});
  s.add({.id = "sample-no-rows",
         .sentence = "no rows, no draws",
         .dtypes = {f32},
         .build = [](CaseBuilder& b) {
           b.output("ids",
                    b.add(op::sample{.logits = b.input("logits", {0, 4}), .rng = rng(b, 1, 1)}));
         }});
}

}  // namespace

void random_cases(Suite& s) {
  s.floor({.joined = 130, .own_joined = 0});
  draw_rows(s);
  dropout_rows(s);
  sample_rows(s);
}

}  // namespace tenon::conform
