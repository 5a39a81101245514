// SPDX-License-Identifier: Apache-2.0
// Fits 3D Gaussians to pictures of a scene. The scene is ray-traced from textured shapes, seen by cameras around it; the
// Gaussians begin at points on its surfaces and are moved, turned, stretched and colored by gradients through
// splat_render. Views that were not trained on measure the fit. Writes PNG files: the held-out views beside the traced
// ones, and the views of a turntable.
#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <tenon/tenon.hpp>

#include "arguments.hpp"
#include "picture.hpp"

namespace {

using tenon::Value;

// ---- options

constexpr const char* kUsage =
    "usage: splat [--gaussians N] [--width N] [--height N] [--steps N] [--turntable N]\n"
    "             [--out FOLDER] [--device D]\n"
    "  --gaussians    16 to 4000000 [4000]\n"
    "  --width        of a view in pixels, 16 to 4096 [160]\n"
    "  --height       the same [120]\n"
    "  --steps        steps of the fit, 1 to 10000000 [2000]\n"
    "  --turntable    views of the turntable, 0 to 1000 [36]\n"
    "  --out          the folder of the pictures, made if it is missing [splat]\n"
    "  --device       where tenon computes [auto]\n";

struct Options {
  int64_t gaussians = 4000, width = 160, height = 120, steps = 2000, turntable = 36;
  std::string out = "splat", device = "auto";
};

Options parse(int argc, char** argv) {
  answer_help(argc, argv, kUsage);
  Options o;
  const std::map<std::string_view, std::array<int64_t, 2>> limits = {
      {"--gaussians", {16, 4'000'000}},
      {"--width", {16, 4096}},
      {"--height", {16, 4096}},
      {"--steps", {1, 10'000'000}},
      {"--turntable", {0, 1000}}};
  const std::map<std::string_view, int64_t Options::*> numbers = {
      {"--gaussians", &Options::gaussians},
      {"--width", &Options::width},
      {"--height", &Options::height},
      {"--steps", &Options::steps},
      {"--turntable", &Options::turntable}};
  for (int k = 1; k < argc; k += 2) {
    const std::string_view name = argv[k];
    if (!numbers.contains(name) && name != "--out" && name != "--device")
      throw Usage("unknown option '" + std::string(name) + "'");
    if (k + 1 == argc) throw Usage(std::string(name) + ": expected a value");
    const std::string_view value = argv[k + 1];
    if (name == "--out")
      o.out = value;
    else if (name == "--device")
      o.device = value;
    else
      o.*numbers.at(name) = number(name, value, limits.at(name)[0], limits.at(name)[1]);
  }
  if (o.out.empty()) throw Usage("--out: expected the name of a folder, got nothing");
  return o;
}

// ---- vectors

struct Vec {
  double x = 0, y = 0, z = 0;
  friend Vec operator+(Vec a, Vec b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
  friend Vec operator-(Vec a, Vec b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
  friend Vec operator*(double s, Vec a) { return {s * a.x, s * a.y, s * a.z}; }
};
double dot(Vec a, Vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
Vec cross(Vec a, Vec b) {
  return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
Vec unit(Vec a) { return (1 / std::sqrt(dot(a, a))) * a; }

// ---- the scene

struct Hit {
  double distance = 0;
  Vec point{}, normal{}, color{};
};

bool odd(double a) { return static_cast<int64_t>(std::floor(a)) & 1; }

// A checkered disc as the ground, a striped ball, a spotted ball and a box. z points up.
class Scene {
 public:
  static constexpr Vec kSky{0.80, 0.87, 0.95};

  static std::optional<Hit> trace(Vec from, Vec direction) {
    std::optional<Hit> best;
    const auto offer = [&](double t, Vec normal, auto color) {
      if (t < 1e-6 || (best && t >= best->distance)) return;
      const Vec p = from + t * direction;
      best = Hit{t, p, normal, color(p)};
    };
    if (direction.z != 0) {
      const double t = -from.z / direction.z;
      const Vec p = from + t * direction;
      if (p.x * p.x + p.y * p.y < 4)
        offer(t, {0, 0, 1}, [](Vec q) {
          return odd(1.6 * q.x) != odd(1.6 * q.y) ? Vec{0.72, 0.70, 0.62} : Vec{0.25, 0.32, 0.38};
        });
    }
    ball(from, direction, {-0.7, 0.3, 0.6}, 0.6, offer, [](Vec n) {
      return odd(5 * std::atan2(n.y, n.x) / M_PI + 2 * n.z) ? Vec{0.90, 0.45, 0.15}
                                                            : Vec{0.95, 0.85, 0.55};
    });
    ball(from, direction, {0.4, -0.9, 0.35}, 0.35, offer, [](Vec n) {
      return std::sin(9 * n.x) * std::sin(9 * n.y) * std::sin(9 * n.z) > 0.1
                 ? Vec{0.95, 0.95, 0.95}
                 : Vec{0.15, 0.45, 0.75};
    });
    box(from, direction, {0.35, 0.1, 0}, {1.15, 0.9, 0.9}, offer);
    return best;
  }

  // What the eye sees along a ray.
  static Vec color(Vec from, Vec direction) {
    const auto hit = trace(from, direction);
    return hit ? shade(*hit) : kSky;
  }
  static Vec shade(const Hit& hit) {
    const double light = std::max(0.0, dot(hit.normal, unit({0.4, -0.5, 0.9})));
    return (0.35 + 0.65 * light) * hit.color;
  }

 private:
  template <class Offer, class Color>
  static void ball(Vec from, Vec direction, Vec centre, double radius, const Offer& offer,
                   const Color& color) {
    const Vec o = from - centre;
    const double a = dot(direction, direction), b = dot(o, direction),
                 c = dot(o, o) - radius * radius;
    const double root = b * b - a * c;
    if (root <= 0) return;
    const double t = (-b - std::sqrt(root)) / a;
    const Vec n = unit(o + t * direction);
    offer(t, n, [&](Vec) { return color(n); });
  }
  template <class Offer>
  static void box(Vec from, Vec direction, Vec low, Vec high, const Offer& offer) {
    const std::array<double, 3> o{from.x, from.y, from.z}, d{direction.x, direction.y, direction.z},
        l{low.x, low.y, low.z}, h{high.x, high.y, high.z};
    for (size_t axis = 0; axis < 3; ++axis) {
      if (d[axis] == 0) continue;
      const double sign = d[axis] > 0 ? -1 : 1,
                   t = ((sign < 0 ? l[axis] : h[axis]) - o[axis]) / d[axis];
      bool inside = true;
      for (size_t k = 0; k < 3; ++k)
        inside &= k == axis || (o[k] + t * d[k] >= l[k] && o[k] + t * d[k] <= h[k]);
      if (!inside) continue;
      offer(t, {axis == 0 ? sign : 0, axis == 1 ? sign : 0, axis == 2 ? sign : 0}, [](Vec p) {
        return odd(5 * (p.x + p.z)) != odd(5 * (p.y - p.z)) ? Vec{0.35, 0.65, 0.30}
                                                            : Vec{0.80, 0.85, 0.35};
      });
    }
  }
};

// ---- views

// A camera around the scene. Its axes: x to the right, y down, z forward.
struct Camera {
  Vec eye, right, down, forward;

  Camera(double angle, double height) {
    eye = {3.6 * std::cos(angle), 3.6 * std::sin(angle), height};
    forward = unit(Vec{0, 0, 0.35} - eye);
    right = unit(cross(forward, {0, 0, 1}));
    down = cross(forward, right);
  }
  // From the world to the camera: [1, 4, 4].
  std::vector<float> matrix() const {
    std::vector<float> m;
    for (const Vec& axis : {right, down, forward})
      for (const double v : {axis.x, axis.y, axis.z, -dot(axis, eye)})
        m.push_back(static_cast<float>(v));
    m.insert(m.end(), {0, 0, 0, 1});
    return m;
  }
};

// Pixels are squares; the image is centred.
struct Lens {
  int64_t width, height;
  double focal() const { return 0.95 * static_cast<double>(height); }
  std::vector<float> matrix() const {
    const auto f = static_cast<float>(focal());
    return {f, 0, static_cast<float>(width) / 2, 0, f, static_cast<float>(height) / 2, 0, 0, 1};
  }
  Vec direction(const Camera& c, double x, double y) const {
    return ((x - static_cast<double>(width) / 2) / focal()) * c.right +
           ((y - static_cast<double>(height) / 2) / focal()) * c.down + c.forward;
  }
};

// The traced image [1, height, width, 3]: the mean of 3 x 3 rays per pixel.
std::vector<float> traced(const Camera& camera, const Lens& lens) {
  std::vector<float> image;
  for (int64_t row = 0; row < lens.height; ++row)
    for (int64_t column = 0; column < lens.width; ++column) {
      Vec sum;
      for (int k = 0; k < 9; ++k)
        sum = sum +
              Scene::color(camera.eye,
                           lens.direction(camera, static_cast<double>(column) + (k % 3 + 0.5) / 3,
                                          static_cast<double>(row) + (k / 3 + 0.5) / 3));
      for (const double v : {sum.x, sum.y, sum.z}) image.push_back(static_cast<float>(v / 9));
    }
  return image;
}

double psnr(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    const double d = std::clamp(a[k], 0.0f, 1.0f) - static_cast<double>(b[k]);
    sum += d * d;
  }
  return -10 * std::log10(sum / static_cast<double>(a.size()));
}

// ---- the Gaussians

// The operands of splat_render. The store has what can have any size: logarithms of scales, opacities before the
// sigmoid.
constexpr int64_t kBands = 9;  // of spherical harmonics of degree 2

void set_weights(tenon::Store& store, const tenon::Runtime& runtime,
                 const std::vector<Camera>& cameras, const Lens& lens, int64_t count,
                 const std::string& device) {
  std::mt19937 random(11);
  const auto uniform = [&] { return random() / 4294967296.0; };
  std::vector<float> means, colors, quats, opacities(static_cast<size_t>(count), -1.0f);
  while (static_cast<int64_t>(means.size()) < 3 * count) {
    const Camera& c = cameras[random() % cameras.size()];
    const Vec direction = lens.direction(c, uniform() * static_cast<double>(lens.width),
                                         uniform() * static_cast<double>(lens.height));
    const auto hit = Scene::trace(c.eye, direction);
    if (!hit) continue;
    // About as exact as points that are found by matching pictures.
    const auto blur = [&] { return 0.02 * (uniform() + uniform() - 1); };
    for (const double v : {hit->point.x, hit->point.y, hit->point.z})
      means.push_back(static_cast<float>(v + blur()));
    const Vec color = Scene::shade(*hit);
    for (const double v : {color.x, color.y, color.z})
      colors.push_back(static_cast<float>((v - 0.5) / 0.28209479177387814));
    colors.insert(colors.end(), 3 * (kBands - 1), 0.0f);
    quats.insert(quats.end(), {1, 0, 0, 0});
  }
  // A Gaussian is about as large as its distance from its neighbours.
  tenon::Graph g("neighbours");
  const tenon::Node near = g.knn({.k = 3, .x = g.input("points", {tenon::f32, {count, 3}})});
  g.output("distance", near[1]);
  const tenon::Executable executable(runtime, g, store, {.device = device});
  tenon::Context run(executable);
  run.set("points", {count, 3}, means);
  run.run();
  const auto distance = run.get<float>("distance");
  std::vector<float> scales;
  for (size_t k = 0; k < static_cast<size_t>(count); ++k) {
    const float mean = (distance[3 * k] + distance[3 * k + 1] + distance[3 * k + 2]) / 3;
    scales.insert(scales.end(), 3, std::log(std::max(mean, 1e-3f)));
  }
  store.set(TENON_SPACE_WEIGHT, "means", {count, 3}, means);
  store.set(TENON_SPACE_WEIGHT, "quats", {count, 4}, quats);
  store.set(TENON_SPACE_WEIGHT, "scales", {count, 3}, scales);
  store.set(TENON_SPACE_WEIGHT, "opacities", {count}, opacities);
  store.set(TENON_SPACE_WEIGHT, "colors", {count, kBands, 3}, colors);
}

// One view, the training step that fits it, and a count of the pairs of a Gaussian and a tile that it touches in a view.
// `entries` is the room for these pairs.
struct Graphs {
  tenon::Graph view{"view"}, step{"step"}, pairs{"pairs"};

  Graphs(const Lens& lens, int64_t count, int64_t entries) {
    view.output("image", render(view, lens, count, entries));
    const tenon::Node seen = pairs.splat_project(
        pairs.weight("means", {tenon::f32, {count, 3}}),
        pairs.weight("quats", {tenon::f32, {count, 4}}),
        pairs.exp(pairs.weight("scales", {tenon::f32, {count, 3}})),
        pairs.input("camera", {tenon::f32, {1, 4, 4}}),
        pairs.input("lens", {tenon::f32, {1, 3, 3}}), {.width = lens.width, .height = lens.height});
    pairs.output("count", pairs.splat_bin(seen[0], seen[1], seen[2],
                                          {.width = lens.width,
                                           .height = lens.height,
                                           .max_intersections = entries})[2]);
    tenon::Graph& g = step;
    const Value image = render(g, lens, count, entries);
    const Value target = g.input("target", {tenon::f32, {1, lens.height, lens.width, 3}});
    const Value loss = g.mean(g.abs(image - target));
    g.output("loss", loss);
    const Value rate = g.input("rate", {tenon::f32, {}});
    for (const auto& [name, speed] :
         {std::pair{"means", 2e-3}, std::pair{"quats", 2e-3}, std::pair{"scales", 1e-2},
          std::pair{"opacities", 3e-2}, std::pair{"colors", 5e-3}})
      for (const auto& w : g.named(TENON_SPACE_WEIGHT))
        if (w.name == name)
          g.minimize(loss, {.kind = TENON_OPTIMIZER_ADAMW,
                            .learning_rate = rate * speed,
                            .eps = 1e-15,
                            .weight_decay = 0,
                            .weights = {w.value},
                            .name = name});
  }

 private:
  static Value render(tenon::Graph& g, const Lens& lens, int64_t count, int64_t entries) {
    const Value scales = g.exp(g.weight("scales", {tenon::f32, {count, 3}}));
    const Value opacities = g.sigmoid(g.weight("opacities", {tenon::f32, {count}}));
    const Value sky = g.constant({1, 3}, std::vector<float>{static_cast<float>(Scene::kSky.x),
                                                            static_cast<float>(Scene::kSky.y),
                                                            static_cast<float>(Scene::kSky.z)});
    return g.splat_render(
        g.weight("means", {tenon::f32, {count, 3}}), g.weight("quats", {tenon::f32, {count, 4}}),
        scales, opacities, g.weight("colors", {tenon::f32, {count, kBands, 3}}),
        g.input("camera", {tenon::f32, {1, 4, 4}}), g.input("lens", {tenon::f32, {1, 3, 3}}),
        {.width = lens.width,
         .height = lens.height,
         .degree = 2,
         .max_intersections = entries,
         .background = sky})[0];
  }
};

// Runs the graphs. Where a view has more entries than there is room for, the room is doubled. A step that fails leaves its
// weights undefined, so the entries are counted before it.
class Fit {
 public:
  Fit(const tenon::Runtime& runtime, tenon::Store& store, const Lens& lens, int64_t count,
      std::string device)
      : runtime_(runtime),
        store_(store),
        lens_(lens),
        count_(count),
        device_(std::move(device)),
        most_(std::min<int64_t>(count * ((lens.width + 15) / 16) * ((lens.height + 15) / 16),
                                std::numeric_limits<int32_t>::max())),
        entries_(std::min(8 * count, most_)) {
    compile();
  }
  std::vector<float> view(const Camera& camera) {
    return with_room([&] {
      tenon::Context& run = *view_run_;
      set_camera(run, camera);
      run.run();
      return run.get<float>("image");
    });
  }
  float step(const Camera& camera, const std::vector<float>& target, double rate) {
    with_room([&] {
      set_camera(*pairs_run_, camera);
      pairs_run_->run();
    });
    tenon::Context& run = *step_run_;
    set_camera(run, camera);
    run.set("target", {1, lens_.height, lens_.width, 3}, target);
    run.set("rate", static_cast<float>(rate));
    run.run();
    return run.get_scalar<float>("loss");
  }

 private:
  void set_camera(tenon::Context& run, const Camera& camera) const {
    run.set("camera", {1, 4, 4}, camera.matrix());
    run.set("lens", {1, 3, 3}, lens_.matrix());
  }
  void compile() {
    const Graphs graphs(lens_, count_, entries_);
    store_.add_missing(graphs.step);
    view_run_.reset(), step_run_.reset(), pairs_run_.reset();
    view_.emplace(runtime_, graphs.view, store_, tenon::ExecutableOptions{.device = device_});
    step_.emplace(runtime_, graphs.step, store_, tenon::ExecutableOptions{.device = device_});
    pairs_.emplace(runtime_, graphs.pairs, store_, tenon::ExecutableOptions{.device = device_});
    view_run_.emplace(*view_), step_run_.emplace(*step_), pairs_run_.emplace(*pairs_);
  }
  template <class Run>
  auto with_room(const Run& run) -> decltype(run()) {
    for (;;) try {
        return run();
      } catch (const tenon::Error& e) {
        const bool full = e.code() == TENON_OUT_OF_MEMORY || e.code() == TENON_INDEX_OUT_OF_RANGE;
        if (!full || entries_ == most_) throw;
        entries_ = std::min(2 * entries_, most_);
        compile();
      }
  }

  const tenon::Runtime& runtime_;
  tenon::Store& store_;
  Lens lens_;
  int64_t count_;
  std::string device_;
  int64_t most_;  // each Gaussian in each tile of 16 x 16 pixels
  int64_t entries_;
  std::optional<tenon::Executable> view_{}, step_{}, pairs_{};
  std::optional<tenon::Context> view_run_{}, step_run_{}, pairs_run_{};
};

// ---- pictures

void write(const std::filesystem::path& file, const std::vector<std::vector<float>>& images,
           const Lens& lens) {
  Picture picture(static_cast<int>(lens.width * static_cast<int64_t>(images.size())),
                  static_cast<int>(lens.height));
  for (size_t k = 0; k < images.size(); ++k)
    for (int64_t row = 0; row < lens.height; ++row)
      for (int64_t column = 0; column < lens.width; ++column) {
        const float* const v = images[k].data() + 3 * (row * lens.width + column);
        picture.set(static_cast<int>(column + static_cast<int64_t>(k) * lens.width),
                    static_cast<int>(row), v[0], v[1], v[2]);
      }
  picture.write(file.string());
}

volatile std::sig_atomic_t stopped = 0;
void stop(int) {
  stopped = 1;
  std::signal(SIGINT, SIG_DFL);  // once more kills
}

int run(const Options& o) {
  constexpr int kViews = 40, kHeldOut = 4;
  const std::filesystem::path folder = o.out;
  std::filesystem::create_directories(folder);
  check_writable((folder / "view_0.png").string());
  const Lens lens{o.width, o.height};
  std::vector<Camera> cameras, held_out;
  for (int k = 0; k < kViews; ++k) cameras.emplace_back(2.399963 * k, 0.7 + 1.8 * k / kViews);
  for (int k = 0; k < kHeldOut; ++k)
    held_out.emplace_back(0.4 + 2 * M_PI * k / kHeldOut, 1.0 + 0.4 * k);
  std::vector<std::vector<float>> targets, truths;
  for (const Camera& c : cameras) targets.push_back(traced(c, lens));
  for (const Camera& c : held_out) truths.push_back(traced(c, lens));

  const tenon::Runtime runtime;
  tenon::Store store(runtime);
  set_weights(store, runtime, cameras, lens, o.gaussians, o.device);
  Fit fit(runtime, store, lens, o.gaussians, o.device);
  const auto measure = [&] {
    double sum = 0;
    for (int k = 0; k < kHeldOut; ++k) sum += psnr(fit.view(held_out[k]), truths[k]);
    return sum / kHeldOut;
  };
  const double before = measure();
  std::printf(
      "%lld Gaussians, %d views of %lld x %lld pixels\nbefore: PSNR of held-out views %.2f dB\n",
      static_cast<long long>(o.gaussians), kViews, static_cast<long long>(o.width),
      static_cast<long long>(o.height), before);
  std::mt19937 random(5);
  int64_t done = 0;
  for (; done < o.steps && !stopped; ++done) {
    const size_t view = random() % cameras.size();
    const double rate = std::pow(0.02, static_cast<double>(done) / static_cast<double>(o.steps));
    const float loss = fit.step(cameras[view], targets[view], rate);
    if ((done + 1) % std::max<int64_t>(o.steps / 10, 1) == 0)
      std::printf("step %lld: loss %.4f, PSNR of held-out views %.2f dB\n",
                  static_cast<long long>(done + 1), static_cast<double>(loss), measure());
  }
  if (stopped) std::printf("stopped after %lld steps\n", static_cast<long long>(done));
  const double after = measure();
  for (int k = 0; k < kHeldOut; ++k)
    write(folder / ("view_" + std::to_string(k) + ".png"), {truths[k], fit.view(held_out[k])},
          lens);
  for (int64_t k = 0; k < o.turntable; ++k) {
    char name[40];
    std::snprintf(name, sizeof name, "turntable_%03lld.png", static_cast<long long>(k));
    write(folder / name,
          {fit.view(
              Camera(2 * M_PI * static_cast<double>(k) / static_cast<double>(o.turntable), 1.5))},
          lens);
  }
  std::printf(
      "PSNR of held-out views: %.2f dB before, %.2f dB after\n%s: view_*.png (traced, fitted), "
      "turntable_*.png\n",
      before, after, folder.string().c_str());
  if (stopped) return 130;
  if (!(after > before))
    throw std::runtime_error("the fit has not come closer to the held-out views");
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a pipe gets each line at once
  std::signal(SIGINT, stop);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe does not end the fit
  return run(options);
} catch (const Usage& e) {
  std::fprintf(stderr, "splat: %s\n%s", e.what(), kUsage);
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "splat: %s\n", e.what());
  return 1;
}
