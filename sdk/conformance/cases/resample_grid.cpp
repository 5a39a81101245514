// SPDX-License-Identifier: Apache-2.0
// grid_sample and grid_sample_backward.
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

struct Form {
  const char* id;
  const char* sentence;
  Dims x, points;
  Fill grid = Fill::uniform(-1.4, 1.4);
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"image", "inside and outside of images", {2, 3, 4, 5}, {3, 4}},
      {"volume", "in volumes", {1, 2, 3, 4, 2}, {2, 3, 2}},
      {"far", "far outside of images", {1, 2, 4, 5}, {4, 3}, Fill::uniform(-9, 9)},
      {"single", "images of one row", {2, 2, 1, 4}, {2, 5}},
      {"channels", "many channels", {1, 67, 5, 6}, {3, 7}},
      {"points", "many points", {2, 1, 9, 8}, {11, 23}},
  };
  return all;
}

struct Sampling {
  std::string mode, padding;
  bool align_corners;
  std::string id() const { return mode + "-" + padding + (align_corners ? "-corners" : ""); }
  template <class Op>
  Op op() const {
    return Op{.mode = mode, .padding = padding, .align_corners = align_corners};
  }
};

Dims grid_dims(const Form& f) {
  Dims dims = {f.x[0]};
  dims.insert(dims.end(), f.points.begin(), f.points.end());
  dims.push_back(static_cast<int64_t>(f.points.size()));
  return dims;
}
Dims result_dims(const Form& f) {
  Dims dims = {f.x[0], f.x[1]};
  dims.insert(dims.end(), f.points.begin(), f.points.end());
  return dims;
}

// Positions are rounded, and a value changes with its position.
Value position_scale(CaseBuilder& b, Value v, double times) {
  return b.binary("mul", largest_of(b, v), b.number(times));
}

void form_rows(Suite& s, const Form& f, const Sampling& how) {
  const std::string id = how.id() + "-" + f.id;
  const bool exact = how.mode == "nearest", small = f.x[1] < 9 && f.points[0] < 9;
  s.add({.id = "grid-sample-" + id,
         .sentence = std::string("grid_sample: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto n = how.op<op::grid_sample>();
               n.x = b.input("x", f.x);
               n.grid = b.input("grid", grid_dims(f), f.grid);
               b.output("y", b.add(n));
               if (!exact) b.scale("y", [&] { return position_scale(b, n.x, 32); });
             },
         .tolerance = exact ? kExact : sum_of(64),
         .decomposed = exact ? 1.0 : 2.0,
         .gradient = small,
         .second_order = small && !exact && f.x.size() == 4,
         .scales = {1}});
  s.add({.id = "grid-sample-backward-" + id,
         .sentence = std::string("gradient of grid_sample: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               auto n = how.op<op::grid_sample_backward>();
               n.dy = b.input("dy", result_dims(f));
               n.x = b.input("x", f.x);
               n.grid = b.input("grid", grid_dims(f), f.grid);
               n.want_dx = n.want_dgrid = true;
               const Node back = b.add(n);
               b.output("dx", back[0]);
               b.output("dgrid", back[1]);
               b.scale("dx", [&] { return position_scale(b, n.dy, 64); });
               b.scale("dgrid", [&] {
                 const auto channels = static_cast<double>(f.x[1]);
                 return b.binary("mul", position_scale(b, n.dy, 64 * channels), largest_of(b, n.x));
               });
             },
         .tolerance = sum_of(64),
         .decomposed = 2});
}

struct Known {
  const char *mode, *padding;
  bool align_corners;
  std::vector<double> y;
};

void known_rows(Suite& s) {
  // At -1, -0.5, 0.25, 1.25, -1.5 of a row of four pixels.
  const std::vector<Known> all = {
      {"nearest", "zeros", false, {1, 1, 3, 0, 0}},
      {"nearest", "zeros", true, {1, 2, 3, 4, 0}},
      {"nearest", "border", false, {1, 1, 3, 4, 1}},
      {"nearest", "border", true, {1, 2, 3, 4, 1}},
      {"nearest", "reflection", false, {1, 1, 3, 4, 1}},
      {"nearest", "reflection", true, {1, 2, 3, 4, 2}},
      {"linear", "zeros", false, {0.5, 1.5, 3, 0, 0}},
      {"linear", "zeros", true, {1, 1.75, 2.875, 2.5, 0.25}},
      {"linear", "border", false, {1, 1.5, 3, 4, 1}},
      {"linear", "border", true, {1, 1.75, 2.875, 4, 1}},
      {"linear", "reflection", false, {1, 1.5, 3, 4, 1.5}},
      {"linear", "reflection", true, {1, 1.75, 2.875, 3.625, 1.75}},
      {"cubic", "zeros", false, {0.40625, 1.5, 3, 0, -0.09375}},
      {"cubic", "zeros", true, {1, 1.703125, 2.833984375, 2.66845703125, 0.19140625}},
      {"cubic", "border", false, {0.90625, 1.40625, 3, 4, 1}},
      {"cubic", "border", true, {1, 1.66796875, 2.833984375, 4.10986328125, 0.96484375}},
      {"cubic", "reflection", false, {0.8125, 1.40625, 3, 4, 1.40625}},
      {"cubic", "reflection", true, {1, 1.6328125, 2.833984375, 3.8154296875, 1.6328125}},
  };
  for (const Known& k : all) {
    const Sampling how{k.mode, k.padding, k.align_corners};
    s.add({.id = "grid-sample-known-" + how.id(),
           .sentence = "grid_sample: a row of four pixels, inside and outside",
           .dtypes = {f32, f64},
           .build =
               [=](CaseBuilder& b) {
                 auto n = how.op<op::grid_sample>();
                 n.x = b.input("x", {1, 1, 1, 4}, Fill::list({1, 2, 3, 4}));
                 n.grid = b.input("grid", {1, 1, 5, 2},
                                  Fill::list({-1, 0, -0.5, 0, 0.25, 0, 1.25, 0, -1.5, 0}));
                 b.output("y", b.add(n));
                 b.expect("y", k.y);
               },
           .tolerance = sum_of(8)});
  }
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto lost = [&](const char* padding, const std::vector<double>& y) {
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      const Sampling how{mode, padding, false};
      s.add({.id = "grid-sample-lost-" + how.id(),
             .sentence = "grid_sample: NaN, infinities and 2^99 read no memory outside",
             .dtypes = {f32, f64},
             .build =
                 [=](CaseBuilder& b) {
                   auto n = how.op<op::grid_sample>();
                   n.x = b.input("x", {1, 1, 1, 4}, Fill::list({1, 2, 3, 4}));
                   n.grid = b.input("grid", {1, 1, 4, 2},
                                    Fill::list({kNan, 0, kInf, 0, -kInf, 0, 0x1p99, 0}));
                   b.output("y", b.add(n));
                   b.expect("y", y);
                 },
             .tolerance = sum_of(8)});
    }
  };
  lost("zeros", {0, 0, 0, 0});
  lost("border", {1, 4, 1, 4});
  s.add({.id = "grid-sample-lost-reflection",
         .sentence =
             "grid_sample: with reflection, positions that are no numbers are the first pixel",
         .dtypes = {f32, f64},
         .build =
             [=](CaseBuilder& b) {
               op::grid_sample n{.padding = "reflection"};
               n.x = b.input("x", {1, 1, 1, 4}, Fill::list({1, 2, 3, 4}));
               n.grid = b.input("grid", {1, 1, 4, 2},
                                Fill::list({kNan, 0, kInf, 0, -kInf, 0, 0x1p99, 0}));
               b.output("y", b.add(n));
               b.expect("y", {1, 1, 1, 1});
             },
         .tolerance = sum_of(8)});
}

void refusals(Suite& s) {
  const auto error = [&](const char* id, const Dims& x, const Dims& grid, const char* text) {
    s.add({.id = std::string("grid-sample-") + id + "-refused",
           .sentence = std::string("grid_sample: ") + id + " that do not fit are refused",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 b.output("y", b.add(op::grid_sample{.x = b.input("x", x),
                                                     .grid = b.input("grid", grid)}));
               },
           .error = TENON_SHAPE_MISMATCH,
           .error_text = text});
  };
  error("images", {2, 4, 4}, {2, 3, 1}, "operand x");
  error("coordinates", {2, 3, 4, 4}, {2, 3, 3, 3}, "2 coordinates");
  error("batches", {2, 3, 4, 4}, {1, 3, 3, 2}, "2 images");
}

}  // namespace

void resample_grid_rows(Suite& s) {
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* padding : {"zeros", "border", "reflection"})
      for (const bool corners : {false, true})
        for (const Form& f : forms())
          // The first three forms with and without align_corners, the others with one of both.
          if (&f < &forms()[3] || corners == (*padding == 'b'))
            form_rows(s, f, {mode, padding, corners});
  known_rows(s);
  refusals(s);
  s.add({.id = "grid-sample-mixed",
         .sentence = "grid_sample: an f32 grid of half-precision images",
         .dtypes = kHalves,
         .build =
             [](CaseBuilder& b) {
               op::grid_sample_backward n{.want_dx = true, .want_dgrid = true};
               n.x = b.input("x", {1, 3, 4, 5});
               n.grid = b.input("grid", f32, {1, 2, 4, 2}, Fill::uniform(-1.2, 1.2));
               const Value y = b.add(op::grid_sample{.x = n.x, .grid = n.grid});
               n.dy = b.input("dy", {1, 3, 2, 4});
               const Node back = b.add(n);
               b.output("y", y);
               b.output("dx", back[0]);
               b.output("dgrid", back[1]);
               b.scale("y", [&] { return position_scale(b, n.x, 32); });
               b.scale("dx", [&] { return position_scale(b, n.dy, 64); });
               b.scale("dgrid", [&] {
                 return b.binary("mul", position_scale(b, n.dy, 192), largest_of(b, n.x));
               });
             },
         .tolerance = sum_of(64),
         .decomposed = 2});
  s.add(
      {.id = "grid-sample-empty",
       .sentence = "grid_sample of no images and of no points",
       .dtypes = {f32, bf16},
       .build =
           [](CaseBuilder& b) {
             const Value x = b.input("x", {0, 3, 4, 4});
             b.output("images", b.add(op::grid_sample{.x = x, .grid = b.input("g", {0, 2, 2, 2})}));
             const Value z = b.input("z", {1, 3, 4, 4}), grid = b.input("h", {1, 0, 2, 2});
             b.output("points", b.add(op::grid_sample{.x = z, .grid = grid}));
             const Node back = b.add(op::grid_sample_backward{.dy = b.input("dy", {1, 3, 0, 2}),
                                                              .x = z,
                                                              .grid = grid,
                                                              .want_dx = true,
                                                              .want_dgrid = true});
             b.output("dx", back[0]);
             b.output("dgrid", back[1]);
           },
       .strided = false});
}

}  // namespace tenon::conform
