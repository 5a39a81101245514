// SPDX-License-Identifier: Apache-2.0
// knn. Where distances may differ by their rounding alone, the rows compare distances, and those of
// the points that the indices name.
#include <cmath>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

const std::vector<std::string>& metrics() {
  static const std::vector<std::string> all = {"euclidean", "sqeuclidean", "cosine", "inner"};
  return all;
}

// The error scale of products that cancel; other distances are sums of squares.
void distance_scale(CaseBuilder& b, const op::knn& n) {
  b.scale("distance", [&] {
    Value longest = b.reduce("max", b.reduce("sum_square", n.x, {-1}), {}, false);
    if (n.metric == "cosine") return b.number(1);
    if (n.y)
      longest =
          b.binary("max", longest, b.reduce("max", b.reduce("sum_square", n.y, {-1}), {}, false));
    return n.metric == "euclidean" ? b.unary("sqrt", longest) : longest;
  });
}

struct Form {
  const char* id;
  const char* sentence;
  Dims lead;
  int64_t rows, others, coords;  // others 0: the points themselves
  op::knn n{};
  bool gradient = false;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"self", "points among themselves", {}, 23, 0, 5, {.k = 4}, true},
      {"with-self", "each point may be its own", {}, 9, 0, 3, {.k = 3, .exclude_self = false}},
      {"others", "other points", {}, 7, 19, 6, {.k = 5}, true},
      {"all", "as many as there are candidates", {}, 9, 0, 4, {.k = 8}},
      {"all-others", "all other points in order", {}, 3, 11, 4, {.k = 11}},
      {"batch", "batches of points", {2, 3}, 5, 8, 3, {.k = 2}, true},
      {"batch-self", "batches of points among themselves", {3}, 6, 0, 3, {.k = 2}, true},
      {"plane", "points of two coordinates", {}, 130, 0, 2, {.k = 7}},
      {"wide", "many coordinates", {}, 20, 70, 300, {.k = 6}},
      {"tiles", "more candidates than a tile has", {}, 37, 700, 33, {.k = 15}},
      {"many", "many neighbours", {}, 5, 900, 8, {.k = 300}},
      {"one-of-one", "one candidate", {}, 4, 1, 3, {.k = 1}},
      {"no-rows", "no points", {}, 0, 4, 3, {.k = 2}},
  };
  return all;
}

op::knn built(CaseBuilder& b, const Form& f, const std::string& metric) {
  op::knn n = f.n;
  n.metric = metric;
  Dims x = f.lead, y = f.lead;
  for (const int64_t d : {f.rows, f.coords}) x.push_back(d);
  for (const int64_t d : {f.others, f.coords}) y.push_back(d);
  n.x = b.input("x", x);
  if (f.others > 0) n.y = b.input("y", y);
  return n;
}

void form_rows(Suite& s) {
  for (const Form& f : forms())
    for (const std::string& metric : metrics())
      s.add({.id = "knn-" + metric + "-" + f.id,
             .sentence = "knn, " + metric + ": " + f.sentence,
             .dtypes = f.gradient ? kFloats : DTypes{f32, f64},
             .build =
                 [=](CaseBuilder& b) {
                   const op::knn n = built(b, f, metric);
                   const Node y = b.add(n);
                   if (b.own() == f32 || b.own() == f64) b.output("index", y[0]);
                   b.output("distance", y[1]);
                   distance_scale(b, n);
                 },
             .tolerance = product_of(f.coords),
             .decomposed = 2,
             .strided = f.rows > 0,
             .gradient = f.gradient,
             .second_order = f.gradient,
             .scales = {1}});
}

// Points one by one, and a few coordinates more than vectors have.
void length_rows(Suite& s) {
  for (const int64_t coords : {1, 2, 3, 8, 16, 17, 31, 32, 33, 64, 128})
    s.add({.id = "knn-coords-" + std::to_string(coords),
           .sentence = "knn of points of " + std::to_string(coords) + " coordinates",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 const op::knn n{.k = 5, .x = b.input("x", {41, coords})};
                 const Node y = b.add(n);
                 b.output("index", y[0]);
                 b.output("distance", y[1]);
                 distance_scale(b, n);
               },
           .tolerance = product_of(coords),
           .decomposed = 2});
}

// Clusters far from the origin, whose points are close to each other: |x|² + |y|² - 2xy would be
// noise. Each coordinate is exact in f32.
std::vector<double> clusters(int64_t points, int64_t coords, double step) {
  std::vector<double> x;
  uint64_t state = 12345;
  const auto next = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>(state >> 40);
  };
  for (int64_t p = 0; p < points; ++p)
    for (int64_t c = 0; c < coords; ++c)
      x.push_back(1000.0 * static_cast<double>(1 + p % 3) +
                  step * static_cast<double>(next() % 64));
  return x;
}

void cluster_rows(Suite& s) {
  struct Data {
    const char* id;
    const char* sentence;
    double step;
    int64_t points = 150;
  };
  for (const Data& d :
       {Data{"far", "clusters far from the origin", 1.0 / 64},
        Data{"tight", "clusters whose points differ by units in the last place", 1.0 / 4096},
        Data{"many", "clusters of more points than a list of candidates has", 1.0 / 4096, 600}})
    for (const std::string metric : {"euclidean", "sqeuclidean"})
      s.add({.id = std::string("knn-") + metric + "-clusters-" + d.id,
             .sentence = "knn, " + metric + ": " + d.sentence,
             .dtypes = {f32},
             .build =
                 [=](CaseBuilder& b) {
                   const int64_t points = d.points, coords = 40, k = 6;
                   const Value x =
                       b.input("x", {points, coords}, Fill::list(clusters(points, coords, d.step)));
                   const Node y = b.add(op::knn{.k = k, .metric = metric, .x = x});
                   b.output("distance", y[1]);
                   // The distances of the points that the indices name.
                   Graph& g = b.graph();
                   const Value near = g.add(op::gather{.data = x, .indices = y[0]});
                   const Value own = g.add(op::reshape{.shape = {points, 1, coords}, .x = x});
                   const Value squares =
                       b.reduce("sum_square", b.binary("sub", own, near), {2}, false);
                   b.output("named", metric == "euclidean" ? b.unary("sqrt", squares) : squares);
                 },
             .tolerance = ulps(64),
             .decomposed = 2});
}

struct Known {
  const char* id;
  const char* sentence;
  Dims x_dims;
  std::vector<double> x;
  Dims y_dims;  // empty: none
  std::vector<double> y;
  op::knn n{};
  std::vector<double> index, distance;
};

const std::vector<Known>& known() {
  static const std::vector<Known> all = {
      {"line",
       "points of a line",
       {4, 1},
       {0, 1, 3, 7},
       {},
       {},
       {.k = 2},
       {1, 2, 0, 2, 1, 0, 2, 1},
       {1, 3, 1, 2, 2, 3, 4, 6}},
      {"ties",
       "equal distances: the lower index",
       {5, 2},
       {0, 0, 1, 0, 0, 1, -1, 0, 0, -1},
       {},
       {},
       {.k = 3},
       {1, 2, 3, 0, 2, 4, 0, 1, 3, 0, 2, 4, 0, 1, 3},
       {1, 1, 1, 1, std::sqrt(2), std::sqrt(2), 1, std::sqrt(2), std::sqrt(2), 1, std::sqrt(2),
        std::sqrt(2), 1, std::sqrt(2), std::sqrt(2)}},
      {"twins",
       "duplicates are neighbours, and only the point itself is left out",
       {4, 2},
       {2, 3, 2, 3, 2, 3, 5, 7},
       {},
       {},
       {.k = 3, .metric = "sqeuclidean"},
       {1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2},
       {0, 0, 25, 0, 0, 25, 0, 0, 25, 25, 25, 25}},
      {"with-self",
       "a point is its own nearest neighbour, unless an equal one comes first",
       {3, 1},
       {4, 4, 6},
       {},
       {},
       {.k = 2, .exclude_self = false},
       {0, 1, 0, 1, 2, 0},
       {0, 0, 0, 0, 0, 2}},
      {"nan",
       "NaN comes behind inf",
       {1, 1},
       {1},
       {6, 1},
       {kNan, 5, kInf, 2, kNan, -kInf},
       {.k = 6},
       {3, 1, 2, 5, 0, 4},
       {1, 4, kInf, kInf, kNan, kNan}},
      {"nan-row",
       "a point of NaN has neighbours at NaN",
       {2, 1},
       {kNan, 1},
       {3, 1},
       {3, 1, 2},
       {.k = 2},
       {0, 1, 1, 2},
       {kNan, kNan, 0, 1}},
      {"zeros",
       "cosine: vectors of zeros are at distance 1, and at 0 of themselves",
       {3, 2},
       {0, 0, 3, 4, 0, 0},
       {},
       {},
       {.k = 3, .metric = "cosine", .exclude_self = false},
       {0, 1, 2, 1, 0, 2, 2, 0, 1},
       {0, 1, 1, 0, 1, 1, 0, 1, 1}},
      {"angles",
       "cosine: lengths do not matter",
       {1, 2},
       {2, 0},
       {4, 2},
       {-5, 0, 0, 3, 8, 0, 0, 0},
       {.k = 4, .metric = "cosine"},
       {2, 1, 3, 0},
       {0, 1, 1, 2}},
      {"huge",
       "cosine: lengths neither overflow nor vanish",
       {2, 2},
       {1e30, 0, 0, 1e-30},
       {2, 2},
       {1e-30, 0, 0, 1e30},
       {.k = 2, .metric = "cosine"},
       {0, 1, 1, 0},
       {0, 1, 0, 1}},
      {"inner",
       "inner: the largest product first",
       {1, 2},
       {1, 2},
       {4, 2},
       {1, 1, -1, -1, 0, 3, 3, 0},
       {.k = 4, .metric = "inner"},
       {2, 0, 3, 1},
       {-6, -3, -3, 3}},
  };
  return all;
}

void known_rows(Suite& s) {
  for (const Known& k : known())
    s.add({.id = std::string("knn-hand-") + k.id,
           .sentence = std::string("knn: ") + k.sentence,
           .dtypes = {f32, f64},
           .build =
               [=](CaseBuilder& b) {
                 op::knn n = k.n;
                 n.x = b.input("x", k.x_dims, Fill::list(k.x));
                 if (!k.y_dims.empty()) n.y = b.input("y", k.y_dims, Fill::list(k.y));
                 const Node y = b.add(n);
                 b.output("index", y[0]);
                 b.expect("index", k.index);
                 b.output("distance", y[1]);
                 b.expect("distance", k.distance);
               },
           .tolerance = ulps(2)});
}

void given_rows(Suite& s) {
  for (const bool excluded : {false, true})
    s.add({.id = std::string("knn-dist") + (excluded ? "-square" : ""),
           .sentence =
               std::string("knn of given distances") + (excluded ? ", without the diagonal" : ""),
           .build =
               [=](CaseBuilder& b) {
                 const Dims dims = excluded ? Dims{2, 7, 7} : Dims{2, 5, 9};
                 const Node y =
                     b.add(op::knn{.k = 4,
                                   .exclude_self = excluded,
                                   .dist = b.input("dist", dims, Fill::distinct(-3, 5))});
                 b.output("index", y[0]);
                 b.output("distance", y[1]);
               },
           .tolerance = ulps(1),
           .gradient = true,
           .second_order = true,
           .scales = {1}});
  s.add({.id = "knn-dist-hand",
         .sentence = "knn of given distances: ties, NaN, and the diagonal",
         .build =
             [](CaseBuilder& b) {
               const Value dist =
                   b.input("dist", {3, 3}, Fill::list({-9, kNan, kInf, 2, kNan, 2, 1, 0, 5}));
               const Node y = b.add(op::knn{.k = 2, .dist = dist});
               b.output("index", y[0]);
               b.expect("index", {2, 1, 0, 2, 1, 0});
               b.output("distance", y[1]);
               b.expect("distance", {kInf, kNan, 2, 2, 0, 1});
             },
         .tolerance = ulps(1)});
}

void refused_rows(Suite& s) {
  const auto refuse = [&](const char* id, const char* sentence, op::knn n, bool y, bool dist,
                          tenon_code code, const char* text) {
    s.add({.id = std::string("knn-refused-") + id,
           .sentence = std::string("knn: ") + sentence + " is refused",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 op::knn m = n;
                 if (dist)
                   m.dist = b.input("dist", {4, 5});
                 else
                   m.x = b.input("x", {4, 3});
                 if (y) m.y = b.input("y", {6, 2});
                 b.output("distance", b.add(m)[1]);
               },
           .error = code,
           .error_text = text});
  };
  refuse("k", "no neighbour", {.k = 0}, false, false, TENON_INVALID_ARGUMENT, "attribute k");
  refuse("k-many", "more neighbours than candidates", {.k = 4}, false, false,
         TENON_INVALID_ARGUMENT, "attribute k");
  refuse("coords", "another number of coordinates", {}, true, false, TENON_SHAPE_MISMATCH,
         "operand y");
  refuse("square", "the diagonal of a matrix that is not square", {}, false, true,
         TENON_SHAPE_MISMATCH, "operand dist");
}

}  // namespace

void knn_cases(Suite& s) {
  s.floor({.joined = 340, .own_joined = 130});
  form_rows(s);
  length_rows(s);
  cluster_rows(s);
  known_rows(s);
  given_rows(s);
  refused_rows(s);
}

}  // namespace tenon::conform
