// SPDX-License-Identifier: Apache-2.0
// neighbours [options]: lays a data set of 32 dims out in the plane, so that neighbours stay
// neighbours, and writes the layout as a picture. The method is that of UMAP (McInnes, Healy,
// Melville: arXiv 1802.03426). tenon finds the neighbours, weighs them, and moves the points by
// gradients; libpng writes the picture.
#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <tenon/tenon.hpp>

#include "arguments.hpp"
#include "picture.hpp"

namespace {

using tenon::Value;

constexpr const char* kUsage =
    "usage: neighbours [--points N] [--k N] [--steps N] [--out FILE] [--values FILE] [--device D]\n"
    "  --points    points of the data set, 100 to 100000 [2000]\n"
    "  --k         neighbours of a point, 2 to 50 [15]\n"
    "  --steps     steps of the layout, 1 to 100000 [400]\n"
    "  --out       the picture [neighbours.png]\n"
    "  --values    also write points, neighbours and layout, as a safetensors file\n"
    "  --device    where tenon computes [auto]\n";

struct Options {
  int64_t points = 2000, k = 15, steps = 400;
  std::string out = "neighbours.png", values{}, device = "auto";
};

Options parse(int argc, char** argv) {
  answer_help(argc, argv, kUsage);
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const std::array<std::string_view, 6> known = {"--points", "--k",      "--steps",
                                                   "--out",    "--values", "--device"};
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Usage("unknown option '" + std::string(name) + "'");
    if (++i == argc) throw Usage(std::string(name) + ": expected a value");
    if (name == "--out") o.out = argv[i];
    if (name == "--values") o.values = argv[i];
    if (name == "--device") o.device = argv[i];
    if (name == "--points") o.points = number(name, argv[i], 100, 100000);
    if (name == "--k") o.k = number(name, argv[i], 2, 50);
    if (name == "--steps") o.steps = number(name, argv[i], 1, 100000);
  }
  if (o.k > o.points / 10)  // groups have an eighth of the points
    throw Usage("--k " + std::to_string(o.k) + ": expected at most a tenth of --points, " +
                std::to_string(o.points / 10));
  if (o.out.empty()) throw Usage("--out: expected the name of a file, got nothing");
  return o;
}

// ---- the data set

constexpr int64_t kDims = 32;
constexpr int kGroups = 8;

struct Data {
  std::vector<float> points{};  // [n, kDims]
  std::vector<int> groups{};
};

// Five clouds of different sizes, a ring, a spiral and a branching line, each in a plane of its
// own.
Data make_data(int64_t n) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  std::array<std::array<std::array<double, kDims>, 3>, kGroups>
      frames;  // centre, and two directions
  for (auto& frame : frames)
    for (size_t d = 0; d < 3; ++d)
      for (double& x : frame[d]) x = normal(random) * (d == 0 ? 2.5 : 1 / std::sqrt(1.0 * kDims));
  Data data;
  for (int64_t i = 0; i < n; ++i) {
    const auto group = static_cast<size_t>(i % kGroups);
    const double t = uniform(random);
    double a = 0, b = 0, spread = 0.12;
    if (group < 5) spread = 0.3 + 0.15 * static_cast<double>(group);
    if (group == 5) a = 6 * std::cos(2 * M_PI * t), b = 6 * std::sin(2 * M_PI * t);
    if (group == 6) a = (1 + 6 * t) * std::cos(9 * t), b = (1 + 6 * t) * std::sin(9 * t);
    if (group == 7) a = 12 * std::abs(t - 0.5), b = t < 0.5 ? 0 : (random() % 2 ? 1 : -1) * a * 0.7;
    for (size_t d = 0; d < kDims; ++d)
      data.points.push_back(static_cast<float>(frames[group][0][d] + a * frames[group][1][d] +
                                               b * frames[group][2][d] + spread * normal(random)));
    data.groups.push_back(static_cast<int>(group));
  }
  return data;
}

// The two directions of the largest variance, by power iteration, as a first layout [n, 2] of
// standard deviation 5 along the first.
std::vector<float> principal_layout(const Data& data) {
  const size_t n = data.groups.size(), dims = kDims;
  std::vector<double> mean(dims), covariance(dims * dims);
  for (size_t i = 0; i < n * dims; ++i) mean[i % dims] += data.points[i] / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i)
    for (size_t a = 0; a < dims; ++a)
      for (size_t b = 0; b < dims; ++b)
        covariance[a * dims + b] +=
            (data.points[i * dims + a] - mean[a]) * (data.points[i * dims + b] - mean[b]);
  std::array<std::vector<double>, 2> axes;
  for (size_t k = 0; k < 2; ++k) {
    std::vector<double>& axis = axes[k];
    for (size_t d = 0; d < dims; ++d) axis.push_back(1 + static_cast<double>((d * 7 + k * 3) % 11));
    for (int round = 0; round < 100; ++round) {
      std::vector<double> next(dims);
      for (size_t a = 0; a < dims; ++a)
        for (size_t b = 0; b < dims; ++b) next[a] += covariance[a * dims + b] * axis[b];
      double along = 0, length = 0;
      for (size_t d = 0; k == 1 && d < dims; ++d) along += next[d] * axes[0][d];
      for (size_t d = 0; k == 1 && d < dims; ++d) next[d] -= along * axes[0][d];
      for (const double x : next) length += x * x;
      for (size_t d = 0; d < dims; ++d) axis[d] = next[d] / std::sqrt(length);
    }
  }
  std::vector<float> layout;
  double squares = 0;
  for (size_t i = 0; i < n; ++i)
    for (const auto& axis : axes) {
      double at = 0;
      for (size_t d = 0; d < dims; ++d) at += (data.points[i * dims + d] - mean[d]) * axis[d];
      if (&axis == &axes[0]) squares += at * at;
      layout.push_back(static_cast<float>(at));
    }
  for (float& x : layout) x *= static_cast<float>(5 / std::sqrt(squares / static_cast<double>(n)));
  return layout;
}

// ---- the graph of neighbours

struct Neighbours {
  std::vector<int32_t> index{};               // [n, k]
  std::vector<float> distance{}, strength{};  // [n, k]
};

// The strength of the edge to a neighbour at distance d is exp(-(d - nearest) / width). Each point
// has the width with which its strengths add up to log2(k); bisection finds it.
Value strengths(tenon::Graph& g, Value distance, int64_t n, int64_t k) {
  const Value nearest = g.narrow(distance, {.start = {0, 0}, .len = {n, 1}});
  const Value beyond = distance - nearest;
  Value low = g.expand(g.scalar(0.0f), {n, 1}), high = g.mean(distance, {1}, true) * 64.0;
  const double target = std::log2(static_cast<double>(k));
  Value width = high;
  for (int round = 0; round < 40; ++round) {
    width = (low + high) * 0.5 + 1e-12;
    const Value sum = g.sum(g.exp(-(beyond / width)), {1}, true);
    const Value too_wide = g.gt(sum, g.scalar(static_cast<float>(target)));
    high = g.where(too_wide, width, high);
    low = g.where(too_wide, low, width);
  }
  return g.exp(-(beyond / width));
}

Neighbours find(const tenon::Runtime& runtime, const std::vector<float>& points, int64_t dims,
                const Options& o) {
  const auto n = static_cast<int64_t>(points.size()) / dims;
  tenon::Graph g("neighbours");
  const tenon::Node near = g.knn({.k = o.k, .x = g.input("x", {tenon::f32, {n, dims}})});
  g.output("index", near[0]);
  g.output("distance", near[1]);
  g.output("strength", strengths(g, near[1], n, o.k));
  const tenon::Store store(runtime);
  const tenon::Executable executable(runtime, g, store, {.device = o.device});
  tenon::Context run(executable);
  run.set("x", {n, dims}, points);
  run.run();
  return {run.get<int32_t>("index"), run.get<float>("distance"), run.get<float>("strength")};
}

// Some points whose neighbours are searched again, plainly and in doubles. Where two candidates are
// as near as f32 can tell, either order is right; so the distances are compared.
bool equal_to_plain_search(const Data& data, const Neighbours& found, int64_t k) {
  const size_t n = data.groups.size();
  for (size_t i = 0; i < n; i += std::max<size_t>(n / 50, 1)) {
    std::vector<double> distances;
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t d = 0; d < kDims; ++d)
        sum += std::pow(double(data.points[i * kDims + d]) - data.points[j * kDims + d], 2);
      if (i != j) distances.push_back(std::sqrt(sum));
    }
    std::sort(distances.begin(), distances.end());
    for (size_t m = 0; m < static_cast<size_t>(k); ++m)
      if (std::abs(found.distance[i * static_cast<size_t>(k) + m] - distances[m]) >
          1e-5 * distances[m] + 1e-6)
        return false;
  }
  return true;
}

// Edges in no direction: an edge exists if one of its ends or both choose it.
struct Edges {
  std::vector<int32_t> from{}, to{};
  std::vector<float> strength{};
};

Edges edges_of(const Neighbours& near, int64_t k) {
  std::map<std::pair<int32_t, int32_t>, float> joined;
  for (size_t at = 0; at < near.index.size(); ++at) {
    const auto i = static_cast<int32_t>(at / static_cast<size_t>(k)), j = near.index[at];
    float& s = joined[std::minmax(i, j)];
    s = s + near.strength[at] - s * near.strength[at];
  }
  Edges edges;
  for (const auto& [ends, strength] : joined) {
    edges.from.push_back(ends.first), edges.to.push_back(ends.second);
    edges.strength.push_back(strength);
  }
  return edges;
}

// ---- the layout

constexpr int64_t kRepelled = 5;  // random points that each point moves away from, in each step

// The logarithm of 1 / q - 1, where q = 1 / (1 + 1.577 d^1.79) is the strength that a distance d in
// the plane stands for; the numbers are UMAP's for a least distance of 0.1.
Value log_odds_against(tenon::Graph& g, Value a, Value b) {
  const Value apart = a - b;
  return std::log(1.577) + 0.895 * g.log(g.sum(apart * apart, {1}) + 1e-4);
}

// The cross entropy between the strengths of the edges and those of the layout, as UMAP samples it:
// an edge pulls from both of its ends; then each end is pushed away from kRepelled random points.
// Those move too, unlike UMAP's, so half of the push is enough.
tenon::Graph layout_step(const Edges& edges, int64_t n) {
  tenon::Graph g("layout");
  const auto count = static_cast<int64_t>(edges.from.size());
  const Value y = g.weight("layout", {tenon::f32, {n, 2}});
  const Value from = g.constant({count}, edges.from), to = g.constant({count}, edges.to);
  const Value near = log_odds_against(g, g.gather(y, from), g.gather(y, to));
  const Value attraction = 2.0 * g.sum(g.constant({count}, edges.strength) * g.softplus(near));

  std::vector<float> degree(static_cast<size_t>(n));
  for (size_t e = 0; e < edges.from.size(); ++e)
    for (const int32_t end : {edges.from[e], edges.to[e]})
      degree[static_cast<size_t>(end)] += edges.strength[e];
  std::vector<int32_t> each;
  std::vector<float> share;
  for (int64_t i = 0; i < n * kRepelled; ++i) {
    each.push_back(static_cast<int32_t>(i / kRepelled));
    share.push_back(degree[static_cast<size_t>(i / kRepelled)]);
  }
  const Value rng = g.state("rng", {tenon::i64, {2}});
  const Value drawn = g.random_uniform(rng, {.shape = {n * kRepelled}}) * static_cast<double>(n);
  const Value others = g.cast(drawn, tenon::i32);
  g.update(rng, rng + g.constant<int64_t>({2}, {0, n * kRepelled}));
  // A number below 1 times n may round to n.
  const Value far = log_odds_against(g, g.gather(y, g.constant({n * kRepelled}, each)),
                                     g.gather(y, others, {.oob = "clamp"}));
  const Value repulsion = 0.5 * g.sum(g.constant({n * kRepelled}, share) * g.softplus(-far));

  const Value loss = (attraction + repulsion) / static_cast<double>(n);
  g.output("loss", loss);
  g.minimize(loss,
             {.learning_rate = g.input("rate", {tenon::f32, {}}), .beta1 = 0.8, .weight_decay = 0});
  return g;
}

// ---- the picture

void draw(const std::string& file, const std::vector<float>& layout,
          const std::vector<int>& groups) {
  constexpr int kSize = 900, kEdge = 30;
  constexpr std::array<std::array<float, 3>, kGroups> colours = {{{0.12f, 0.47f, 0.71f},
                                                                  {0.89f, 0.10f, 0.11f},
                                                                  {0.20f, 0.63f, 0.17f},
                                                                  {1.00f, 0.50f, 0.00f},
                                                                  {0.42f, 0.24f, 0.60f},
                                                                  {0.65f, 0.34f, 0.16f},
                                                                  {0.85f, 0.35f, 0.65f},
                                                                  {0.25f, 0.25f, 0.25f}}};
  std::array<float, 2> low = {layout[0], layout[1]}, high = low;
  for (size_t i = 0; i < layout.size(); ++i) {
    low[i % 2] = std::min(low[i % 2], layout[i]);
    high[i % 2] = std::max(high[i % 2], layout[i]);
  }
  const float scale = (kSize - 2 * kEdge) / std::max({high[0] - low[0], high[1] - low[1], 1e-6f});
  Picture p(kSize, kSize);
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto place = [&](size_t axis) {
      return kSize / 2 +
             static_cast<int>((layout[2 * i + axis] - (low[axis] + high[axis]) / 2) * scale);
    };
    const auto& c = colours[static_cast<size_t>(groups[i])];
    p.disc(place(0), kSize - 1 - place(1), groups.size() > 5000 ? 1 : 3, c[0], c[1], c[2]);
  }
  p.write(file);
}

// The share of neighbours that are of the same group.
double same_group(const Neighbours& near, const std::vector<int>& groups, int64_t k) {
  size_t same = 0;
  for (size_t at = 0; at < near.index.size(); ++at)
    same += groups[at / static_cast<size_t>(k)] == groups[static_cast<size_t>(near.index[at])];
  return static_cast<double>(same) / static_cast<double>(near.index.size());
}

// The share of neighbours in the data that are neighbours in the layout.
double kept(const Neighbours& data, const Neighbours& layout, int64_t k) {
  size_t both = 0;
  for (size_t at = 0; at < data.index.size(); ++at) {
    const auto row = layout.index.begin() + static_cast<int64_t>(at) / k * k;
    both += std::find(row, row + k, data.index[at]) != row + k;
  }
  return static_cast<double>(both) / static_cast<double>(data.index.size());
}

void save_values(const tenon::Runtime& runtime, const Options& o, const Data& data,
                 const Neighbours& near, const std::vector<float>& layout) {
  tenon::Store store(runtime);
  store.set(TENON_SPACE_STATE, "points", {o.points, kDims}, data.points);
  store.set(TENON_SPACE_STATE, "index", {o.points, o.k}, near.index);
  store.set(TENON_SPACE_STATE, "distance", {o.points, o.k}, near.distance);
  store.set(TENON_SPACE_STATE, "strength", {o.points, o.k}, near.strength);
  store.set(TENON_SPACE_STATE, "layout", {o.points, 2}, layout);
  store.save(TENON_SPACE_STATE, o.values);
}

volatile std::sig_atomic_t stopped = 0;
void stop(int) {
  stopped = 1;
  std::signal(SIGINT, SIG_DFL);  // once more kills
}

int lay_out(const Options& o) {
  check_writable(o.out);
  if (!o.values.empty()) check_writable(o.values);
  const Data data = make_data(o.points);
  const tenon::Runtime runtime;
  const Neighbours near = find(runtime, data.points, kDims, o);
  const bool exact = equal_to_plain_search(data, near, o.k);
  const Edges edges = edges_of(near, o.k);
  std::printf("%lld points of %lld dims, %zu edges\n", static_cast<long long>(o.points),
              static_cast<long long>(kDims), edges.from.size());

  tenon::Store store(runtime);
  const std::vector<float> first = principal_layout(data);
  store.set(TENON_SPACE_WEIGHT, "layout", {o.points, 2}, first);
  store.set<int64_t>(TENON_SPACE_STATE, "rng", {2}, {1, 0});
  const tenon::Graph step = layout_step(edges, o.points);
  store.add_missing(step);
  const tenon::Executable executable(runtime, step, store, {.device = o.device});
  tenon::Context run(executable);
  int64_t done = 0;
  for (; done < o.steps && !stopped; ++done) {
    run.set("rate", static_cast<float>(
                        0.3 * (1 - static_cast<double>(done) / static_cast<double>(o.steps))));
    run.run();
    if ((done + 1) % std::max<int64_t>(o.steps / 8, 1) != 0) continue;
    std::printf("step %lld: loss %.3f\n", static_cast<long long>(done + 1),
                static_cast<double>(run.get_scalar<float>("loss")));
  }
  const std::vector<float> layout = store.get<float>(TENON_SPACE_WEIGHT, "layout");
  draw(o.out, layout, data.groups);
  if (!o.values.empty()) save_values(runtime, o, data, near, layout);
  const Neighbours before = find(runtime, first, 2, o), after = find(runtime, layout, 2, o);
  const double same = same_group(after, data.groups, o.k);
  std::printf(
      "neighbours in the data that are neighbours in the layout: %.1f%% at first, %.1f%% now\n",
      100 * kept(near, before, o.k), 100 * kept(near, after, o.k));
  std::printf("neighbours in the layout of the same group: %.1f%%\n%s: the layout%s\n", 100 * same,
              o.out.c_str(), stopped ? " so far" : "");
  if (stopped) return 130;
  if (!exact) throw std::runtime_error("the neighbours are not those of a plain search");
  // After a few steps, little has moved.
  if (o.steps >= 100 && (same < 0.9 || kept(near, after, o.k) < 0.9 * kept(near, before, o.k)))
    throw std::runtime_error("the layout does not keep neighbours together");
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a pipe gets each line at once
  std::signal(SIGINT, stop);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe does not end the layout
  return lay_out(parse(argc, argv));
} catch (const Usage& e) {
  std::fprintf(stderr, "neighbours: %s\n%s", e.what(), kUsage);
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "neighbours: %s\n", e.what());
  return 1;
}
