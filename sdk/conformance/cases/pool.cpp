// SPDX-License-Identifier: Apache-2.0
// maxpool2d avgpool2d and their backward ops; pool is in pool_general.cpp.
#include <cmath>
#include <limits>

#include "cases/families.hpp"
#include "cases/pool.hpp"

namespace tenon::conform {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Form {
  const char* id;
  const char* sentence;
  Dims x;
  Dims kernel, stride{}, pads{}, dilation{};
  bool ceil_mode = false;

  template <class Op>
  void set(Op& n) const {
    n.kernel = kernel, n.stride = stride, n.pads = pads, n.dilation = dilation;
    n.ceil_mode = ceil_mode;
  }
  int64_t terms() const { return kernel[0] * kernel[1]; }
  bool small() const { return x[0] * x[1] * x[2] * x[3] < 150; }
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"plain", "windows side by side, a rest that none covers", {2, 3, 5, 7}, {2, 3}},
      {"overlap", "overlapping windows", {1, 2, 7, 6}, {3, 3}, {2, 1}},
      {"gaps", "strides longer than the window", {1, 2, 8, 9}, {2, 1}, {3, 4}},
      {"pads", "padding on each side", {1, 2, 5, 6}, {3, 3}, {2, 2}, {1, 0, 2, 1}},
      {"dilation", "spread taps", {1, 2, 8, 7}, {2, 3}, {1, 2}, {1, 1, 1, 1}, {3, 2}},
      {"ceil", "a last window beyond the end", {1, 2, 6, 7}, {3, 2}, {2, 2}, {}, {}, true},
      {"ceil-pads",
       "a last window that would start in the padding is left out",
       {1, 2, 5, 6},
       {2, 3},
       {2, 3},
       {1, 1, 1, 2},
       {},
       true},
      {"hole", "windows whose taps all miss", {1, 2, 2, 2}, {2, 2}, {1, 1}, {2, 2, 2, 2}, {3, 3}},
      {"whole", "one window over all", {2, 3, 4, 5}, {4, 5}},
      {"one", "windows of one tap", {1, 2, 3, 4}, {1, 1}},
      {"row", "a long row", {1, 1, 3, 131}, {3, 3}, {1, 1}, {1, 1, 1, 1}},
      {"row-stride", "a long row by twos", {1, 3, 4, 133}, {3, 3}, {2, 2}, {1, 1, 1, 1}},
      {"tall", "a tall window", {1, 2, 75, 3}, {70, 1}, {1, 1}},
      {"many", "many planes", {5, 13, 9, 8}, {2, 2}},
  };
  return all;
}

template <class Op>
Op maximum(const Form& f) {
  Op n{};
  f.set(n);
  return n;
}

void maximum_rows(Suite& s, const Form& f) {
  s.add({.id = std::string("maxpool2d-") + f.id,
         .sentence = std::string("maxpool2d: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto n = maximum<op::maxpool2d>(f);
               n.x = b.input("x", f.x, Fill::distinct(-3, 3));
               // -inf has no gradient to be judged by differences.
               b.side_output("y", b.add(n)[0]);
               b.output("capped", b.binary("max", b.add(n)[0], b.number(-100)));
             },
         .gradient = f.small()});
  s.add({.id = std::string("maxpool2d-indices-") + f.id,
         .sentence = std::string("maxpool2d with positions: ") + f.sentence,
         .build = [=](CaseBuilder& b) {
           auto n = maximum<op::maxpool2d>(f);
           // Few numbers, so that many are equal: the first one counts.
           n.x = b.input("x", f.x, Fill::integers(-2, 2).with({kNan}));
           n.want_indices = true;
           const Node y = b.add(n);
           b.output("y", y[0]);
           b.output("indices", y[1]);
         }});
  s.add({.id = std::string("maxpool2d-backward-") + f.id,
         .sentence = std::string("gradient of maxpool2d: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto forward = maximum<op::maxpool2d>(f);
               auto n = maximum<op::maxpool2d_backward>(f);
               n.x = b.input("x", f.x, Fill::integers(-2, 2).with({kNan, -kInf}));
               forward.x = n.x;
               const Dims y = b.graph().type(b.add(forward)[0]).dims;
               n.dy = b.input("dy", y);
               b.output("dx", b.add(n));
               b.scale("dx", [&] {
                 auto m = n;
                 m.dy = b.abs(n.dy);
                 return b.add(m);
               });
             },
         .tolerance = sum_of(f.terms()),
         .decomposed = 2});
}

struct Divisor {
  const char* id;
  bool include_pad;
  int64_t override_with;
};

void average_rows(Suite& s, const Form& f, const Divisor& d) {
  const auto set = [=](auto& n) {
    f.set(n);
    n.count_include_pad = d.include_pad;
    n.divisor_override = d.override_with;
  };
  s.add({.id = std::string("avgpool2d-") + f.id + d.id,
         .sentence = std::string("avgpool2d: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::avgpool2d n{};
               set(n);
               n.x = b.input("x", f.x);
               b.output("y", b.add(n));
               b.scale("y", [&] {
                 auto m = n;
                 m.x = b.abs(n.x);
                 return b.add(m);
               });
             },
         .tolerance = sum_of(f.terms()),
         .decomposed = 2,
         .gradient = f.small(),
         .second_order = false,
         .scales = {1}});
  s.add({.id = std::string("avgpool2d-backward-") + f.id + d.id,
         .sentence = std::string("gradient of avgpool2d: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::avgpool2d forward{};
               set(forward);
               forward.x = b.input("like", f.x);
               op::avgpool2d_backward n{};
               set(n);
               n.size = {f.x[2], f.x[3]};
               n.dy = b.input("dy", b.graph().type(b.add(forward)).dims);
               b.output("dx", b.add(n));
               b.scale("dx", [&] {
                 auto m = n;
                 m.dy = b.abs(n.dy);
                 return b.add(m);
               });
             },
         .tolerance = sum_of(f.terms()),
         .decomposed = 2,
         .gradient = f.small(),
         .scales = {1}});
}

// One plane and its gradient, with what is known of them.
void known_rows(Suite& s) {
  struct Known {
    const char* id;
    const char* sentence;
    std::vector<double> x;
    double y;
    int64_t index;
  };
  for (const Known& k :
       {Known{"inf",
              "a window of all -inf has its first tap",
              {-kInf, -kInf, -kInf, -kInf},
              -kInf,
              0},
        Known{"equal", "of equal taps the first", {1, 5, 5, 5}, 5, 1},
        Known{"nan", "a NaN wins, the last of several", {7, kNan, kNan, 9}, kNan, 2},
        Known{"nan-inf", "a NaN wins over inf", {kNan, kInf, 1, 2}, kNan, 0}}) {
    s.add({.id = std::string("maxpool2d-known-") + k.id,
           .sentence = std::string("maxpool2d: ") + k.sentence,
           .build = [=](CaseBuilder& b) {
             const Value x = b.input("x", {1, 1, 2, 2}, Fill::list(k.x));
             const Node y = b.add(op::maxpool2d{.kernel = {2, 2}, .x = x, .want_indices = true});
             b.output("y", y[0]);
             b.expect("y", {k.y});
             b.output("indices", y[1]);
             b.expect("indices", {static_cast<double>(k.index)});
             const Value dy = b.input("dy", {1, 1, 1, 1}, Fill::list({3}));
             b.output("dx", b.add(op::maxpool2d_backward{.kernel = {2, 2}, .dy = dy, .x = x}));
             std::vector<double> dx(4, 0.0);
             dx[static_cast<size_t>(k.index)] = 3;
             b.expect("dx", dx);
           }});
  }
  s.add({.id = "avgpool2d-known",
         .sentence = "avgpool2d: the divisors of a corner with padding",
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {1, 1, 2, 2}, Fill::list({1, 2, 3, 6}));
               op::avgpool2d n{.kernel = {2, 2}, .stride = {2, 2}, .pads = {1, 1, 1, 1}, .x = x};
               b.output("valid", b.add(n));
               b.expect("valid", {1, 2, 3, 6});
               n.count_include_pad = true;
               b.output("padded", b.add(n));
               b.expect("padded", {0.25, 0.5, 0.75, 1.5});
               n.divisor_override = 8;
               b.output("divided", b.add(n));
               b.expect("divided", {0.125, 0.25, 0.375, 0.75});
             },
         .tolerance = sum_of(4)});
}

void refusals(Suite& s) {
  const auto error = [&](const char* id, op::maxpool2d n, Dims x, tenon_code code,
                         const char* text) {
    s.add({.id = std::string("maxpool2d-") + id + "-refused",
           .sentence = std::string("maxpool2d: ") + id + " that does not fit is refused",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 op::maxpool2d m = n;
                 m.x = b.input("x", x);
                 b.output("y", b.add(m)[0]);
               },
           .error = code,
           .error_text = text});
  };
  const Dims image = {1, 2, 4, 4};
  error("rank", {.kernel = {2, 2}}, {2, 4, 4}, TENON_SHAPE_MISMATCH, "operand x");
  error("kernel", {.kernel = {2, 0}}, image, TENON_INVALID_ARGUMENT, "kernel");
  error("kernel-length", {.kernel = {2}}, image, TENON_INVALID_ARGUMENT, "kernel");
  error("stride", {.kernel = {2, 2}, .stride = {1, -1}}, image, TENON_INVALID_ARGUMENT, "stride");
  error("pads", {.kernel = {2, 2}, .pads = {0, 2, 0, 0}}, image, TENON_INVALID_ARGUMENT, "pads");
  error("window", {.kernel = {5, 2}}, image, TENON_SHAPE_MISMATCH, "extent 5");
  s.add({.id = "avgpool2d-integers-refused",
         .sentence = "avgpool2d of integers is not offered",
         .dtypes = {i32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::avgpool2d{
                                 .kernel = {2, 2},
                                 .x = b.input("x", {1, 1, 2, 2}, Fill::integers(0, 9))}));
             },
         .error = TENON_UNSUPPORTED,
         .error_text = "integers"});
}

}  // namespace

void pool_cases(Suite& s) {
  s.floor({.joined = 400, .own_joined = 0});
  for (const Form& f : forms()) {
    maximum_rows(s, f);
    for (const Divisor& d : {Divisor{"", false, 0}, {"-padded", true, 0}, {"-override", false, 7}})
      if (*d.id == 0 || !f.pads.empty()) average_rows(s, f, d);
  }
  known_rows(s);
  pool_general_rows(s);
  refusals(s);
  s.add({.id = "maxpool2d-integers",
         .sentence = "maxpool2d of integers, with a window that has no taps",
         .dtypes = {i8, i32, u64},
         .build = [](CaseBuilder& b) {
           op::maxpool2d n{.kernel = {2, 2}, .stride = {1, 1}, .pads = {2, 2, 2, 2}};
           n.dilation = {3, 3};
           n.x = b.input("x", {2, 3, 2, 2}, Fill::integers(b.own() == u64 ? 0 : -9, 9));
           n.want_indices = true;
           const Node y = b.add(n);
           b.output("y", y[0]);
           b.output("indices", y[1]);
         }});
  s.add({.id = "pool-empty",
         .sentence = "pools of no images",
         .dtypes = {f32, bf16},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {0, 3, 4, 4});
               b.output("max", b.add(op::maxpool2d{.kernel = {2, 2}, .x = x})[0]);
               b.output("mean", b.add(op::avgpool2d{.kernel = {2, 2}, .x = x}));
               const Value dy = b.input("dy", {0, 3, 2, 2});
               b.output("dmax", b.add(op::maxpool2d_backward{.kernel = {2, 2}, .dy = dy, .x = x}));
             },
         .strided = false});
}

}  // namespace tenon::conform
