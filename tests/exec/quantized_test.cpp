// SPDX-License-Identifier: Apache-2.0
// Random chains of dequantized products whose results are quantized: joined into products of
// integers, results are at most one unit away from those of the parts. Some are no such chain
// (another scale of the bias, several scales of the result, a float reader): they stay exact.
// Elementwise ops, and ops that move elements, between dequantize and quantize: always exact.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <sstream>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using Random = std::mt19937_64;

int64_t below(Random& random, int64_t n) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
}

// Powers of two and others, so that products of scales are rounded in some chains only.
double scale(Random& random) {
  return below(random, 2) ? 0.0078125 : 0.01 + 0.001 * static_cast<double>(below(random, 9));
}

std::string list(const std::vector<double>& numbers) {
  std::ostringstream out;
  out.precision(9);
  for (size_t i = 0; i < numbers.size(); ++i) out << (i ? ", " : "") << numbers[i];
  return "{" + out.str() + "}";
}

struct Chain {
  std::string text;
  bool joins = true;
};

Chain random_chain(Random& random) {
  const bool conv = below(random, 3) != 0;
  const bool transposed = conv && below(random, 4) == 0;
  const int64_t groups = conv && !transposed && below(random, 4) == 0 ? 2 : 1;
  const int64_t channels = groups * (1 + below(random, 6)),
                filters = groups * (1 + below(random, 9));
  const bool per_filter = below(random, 2) != 0;
  const std::string x_dtype = below(random, 2) ? "u8" : "i8",
                    y_dtype = below(random, 2) ? "u8" : "i8";
  std::ostringstream g;
  g.precision(9);
  const double sx = scale(random), sy = 4 * scale(random);
  std::vector<double> sw, sb, zeros;
  for (int64_t k = 0; k < (per_filter ? filters : 1); ++k)
    sw.push_back(scale(random)), zeros.push_back(0);
  for (const double s : sw)
    sb.push_back(static_cast<float>(sx) * static_cast<double>(static_cast<float>(s)));
  Chain chain;
  const int64_t miss = below(random, 8);
  if (miss == 0) sb[0] *= 1.01;
  const std::string count = "[" + std::to_string(sw.size()) + "]";
  g << "graph \"chain\" {\n";
  const int64_t high = 1 + below(random, 3), wide = 1 + below(random, 3);
  if (transposed)
    g << "input q: " << x_dtype << "[2," << channels << ",6,19]\ninput w: i8[" << channels << ","
      << filters << "," << high << "," << wide << "]\n";
  else if (conv)
    g << "input q: " << x_dtype << "[2," << channels << ",6,5]\ninput w: i8[" << filters << ","
      << channels / groups << "," << high << "," << wide << "]\n";
  else
    g << "input q: " << x_dtype << "[2,5," << channels << "]\ninput w: i8[" << channels << ","
      << filters << "]\n";
  g << "input bq: i32[" << filters << "]\n"
    << "const sx: f32[] = {" << sx << "}\nconst zx: " << x_dtype << "[] = {" << below(random, 100)
    << "}\n"
    << "const sw: f32" << count << " = " << list(sw) << "\nconst zw: i8" << count << " = "
    << list(zeros) << "\n"
    << "const sb: f32" << count << " = " << list(sb) << "\n"
    << "const sy: f32[1] = {" << sy << "}\nconst zy: " << y_dtype << "[1] = {" << below(random, 100)
    << "}\n"
    << "x = dequantize(q, sx, zx)\nf = dequantize(w, sw, zw) {axis="
    << (conv && !transposed ? 0 : 1) << "}\n"
    << "b = dequantize(bq, sb) {axis=0}\n";
  const bool bias = below(random, 2) != 0;
  const bool overlaps = transposed && miss == 2;
  if (transposed)
    g << "y0 = conv_transpose(x, f" << (bias ? ", b" : "") << ") {stride=[" << high + overlaps
      << "," << wide << "]}\n";
  else if (conv)
    g << "y0 = conv(x, f" << (bias ? ", b" : "") << ") {groups=" << groups << ", stride=["
      << 1 + below(random, 2) << ",1], pads=[" << below(random, 2) << ",1,0,1]}\n";
  else
    g << (bias ? "y0 = linear(x, f, b)\n" : "y0 = matmul(x, f)\n");
  const int64_t act = below(random, 4);
  if (act < 2) g << "y = unary(y0) {kind=\"" << (act == 0 ? "tanh" : "relu") << "\"}\n";
  g << "t = quantize(" << (act < 2 ? "y" : "y0") << ", sy, zy)\noutput \"" << y_dtype << "\" = t\n";
  if (miss == 1) g << "output \"y\" = y0\n";
  chain.joins = act != 0 && !overlaps && !(miss == 0 && bias) && miss != 1;
  chain.text = g.str() + "}\n";
  return chain;
}

// Elementwise ops, quantize, dequantize and moves in random order. Values are full, or one number per
// channel.
class Steps {
 public:
  explicit Steps(Random& random) : random_(random) {
    g_.precision(9);
    g_ << "graph \"steps\" {\n";
    channels_ = 1 + below(random_, 5), pixels_ = 1 + below(random_, 700);
    for (int k = 0; k < 3; ++k) {
      const bool full = k != 1;
      const std::string dtype = below(random_, 2) ? "u8" : "i8";
      const std::string name = "in" + std::to_string(k);
      g_ << "input " << name << ": " << dtype << "[2," << channels_ << "," << (full ? pixels_ : 1)
         << "]\n";
      integers_.push_back({name, dtype, full});
    }
    dequantize(0);
    const int64_t count = 4 + below(random_, 14);
    for (int64_t k = 0; k < count; ++k) step();
    for (size_t k = 0; k < floats_.size(); k += 3) quantize(k);
    for (size_t k = 3; k < integers_.size(); ++k)
      if (k % 2 == 0 || k + 1 == integers_.size())
        g_ << "output \"" << integers_[k].dtype << k << "\" = " << integers_[k].name << "\n";
    if (below(random_, 8) == 0) g_ << "output \"f\" = " << floats_.back().name << "\n";
  }
  std::string text() const { return g_.str() + "}\n"; }

 private:
  struct Made {
    std::string name, dtype;
    bool full;
  };

  std::string next(const char* what) { return what + std::to_string(count_++); }
  size_t any(const std::vector<Made>& of) {
    return below(random_, static_cast<int64_t>(of.size()));
  }

  void step() {
    switch (below(random_, 8)) {
      case 0:
        return dequantize(any(integers_));
      case 1:
      case 2:
        return quantize(any(floats_));
      case 3:
        return move();
      case 4:
      case 5:
        return unary();
      default:
        return binary();
    }
  }
  // " {axis=1}" after a scale and a zero point, of several numbers now and then.
  std::string scaled(const std::string& dtype, std::string* attributes) {
    const bool several = below(random_, 12) == 0, zero = below(random_, 4) != 0;
    const int64_t count = several ? channels_ : 1;
    const std::string list_of = several             ? "[" + std::to_string(count) + "]"
                                : below(random_, 2) ? "[1]"
                                                    : "[]";
    const std::string s = next("s"), z = next("z");
    std::vector<double> scales, zeros;
    for (int64_t k = 0; k < count; ++k) {
      // Often those of another one, or nearly so.
      scales.push_back(std::array{0.015625, 0.1, 0.2,
                                  2 * scale(random_)}[static_cast<size_t>(below(random_, 4))]);
      if (below(random_, 6) == 0) scales.back() *= 1 + 0x1p-23;
      zeros.push_back(static_cast<double>(below(random_, 3) ? 7 : below(random_, 100)));
    }
    g_ << "const " << s << ": f32" << list_of << " = " << list(scales) << "\n";
    if (zero) g_ << "const " << z << ": " << dtype << list_of << " = " << list(zeros) << "\n";
    *attributes = " {axis=1" + (zero ? std::string() : ", to=" + dtype) + "}";
    return s + (zero ? ", " + z : "");
  }
  void dequantize(size_t k) {
    const Made from = integers_[k];
    std::string attributes;
    const std::string by = scaled(from.dtype, &attributes), name = next("f");
    g_ << name << " = dequantize(" << from.name << ", " << by << ") {axis=1}\n";
    floats_.push_back({name, {}, from.full});
  }
  void quantize(size_t k) {
    const Made from = floats_[k];
    const std::string dtype = below(random_, 2) ? "u8" : "i8";
    std::string attributes;
    const std::string by = scaled(dtype, &attributes), name = next("q");
    g_ << name << " = quantize(" << from.name << ", " << by << ")" << attributes << "\n";
    integers_.push_back({name, dtype, from.full});
  }
  void unary() {
    constexpr const char* kKinds[] = {"relu", "tanh", "gelu", "hard_sigmoid", "erf", "neg", "exp"};
    const Made from = floats_[any(floats_)];
    const std::string name = next("f");
    g_ << name << " = unary(" << from.name << ") {kind=\"" << kKinds[below(random_, 7)] << "\"}\n";
    floats_.push_back({name, {}, from.full});
  }
  void binary() {
    constexpr const char* kKinds[] = {"add", "mul", "sub", "max", "div"};
    const Made a = floats_[any(floats_)], b = floats_[any(floats_)];
    const std::string name = next("f");
    g_ << name << " = binary(" << a.name << ", " << b.name << ") {kind=\""
       << kKinds[below(random_, 5)] << "\"}\n";
    floats_.push_back({name, {}, a.full || b.full});
  }
  // Between two values of the same shape.
  void move() {
    const Made from = floats_[any(floats_)];
    if (!from.full) return;
    const std::string name = next("f");
    if (below(random_, 2)) {
      g_ << name << "t = transpose(" << from.name << ") {perm=[1,0,2]}\n"
         << name << " = transpose(" << name << "t) {perm=[1,0,2]}\n";
    } else {
      g_ << name << "c = concat(" << from.name << ", " << floats_[0].name << ") {axis=1}\n"
         << name << " = narrow(" << name << "c) {start=[0," << channels_ << ",0], len=[2,"
         << channels_ << "," << pixels_ << "]}\n";
    }
    floats_.push_back({name, {}, true});
  }

  Random& random_;
  std::ostringstream g_;
  int64_t channels_, pixels_;
  int count_ = 0;
  std::vector<Made> integers_, floats_;
};

struct Run {
  std::vector<int> t;
  bool joined = false;  // into a product
  bool body = false;    // with quantize or dequantize as steps
};

Run computed(const std::string& text, bool fuse, uint64_t seed) {
  const Graph graph = Graph::parse(text, "chain");
  Store store(runtime());
  const Executable executable(runtime(), graph, store,
                              {.device = "cpu:0", .allow_fallback = false, .fuse = fuse});
  Context run(executable);
  Random random(seed);
  for (uint32_t i = 0; i < tenon_graph_count(graph.handle(), TENON_SPACE_INPUT); ++i) {
    tenon_str name{};
    tenon_value value = 0;
    REQUIRE(!tenon_graph_name(graph.handle(), TENON_SPACE_INPUT, i, &name, &value, nullptr));
    const TensorType type = graph.type(Value{value});
    const auto count = static_cast<size_t>(type.elements());
    std::vector<int32_t> wide(count);
    std::vector<uint8_t> bytes(count);
    for (size_t k = 0; k < count; ++k) {
      wide[k] = static_cast<int32_t>(random() % 20001) - 10000;
      bytes[k] = static_cast<uint8_t>(random());
    }
    const bool bias = type.dtype == TENON_DTYPE_I32;
    run.set(std::string_view(name.data, name.size), type,
            bias ? static_cast<const void*>(wide.data()) : bytes.data(), bias ? 4 * count : count);
  }
  run.run();
  Run out;
  constexpr std::string_view kOutput = "output \"";
  for (size_t at = 0; (at = text.find(kOutput, at)) != std::string::npos;) {
    at += kOutput.size();
    const std::string name = text.substr(at, text.find('"', at) - at);
    const auto add = [&](const auto& values) {
      for (const auto v : values) out.t.push_back(v);
    };
    if (name[0] == 'u') add(run.get<uint8_t>(name));
    if (name[0] == 'i') add(run.get<int8_t>(name));
    if (name[0] == 'f')
      for (const float v : run.get<float>(name)) out.t.push_back(std::bit_cast<int>(v));
  }
  const std::string report = executable.report();
  const auto has = [&](const char* part) { return report.find(part) != std::string::npos; };
  out.joined = has("qmatmul") || has("qconv");
  out.body = has("+ dequantize") || has("+ quantize");
  return out;
}

}  // namespace

TEST_CASE("quantized: joined as its parts, but for one unit") {
  int joined = 0, apart = 0;
  size_t elements = 0, differ = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const Chain chain = random_chain(random);
    CAPTURE(seed);
    CAPTURE(chain.text);
    const Run one = computed(chain.text, true, seed), parts = computed(chain.text, false, seed);
    CHECK(one.joined == chain.joins);
    CHECK_FALSE(parts.joined);
    REQUIRE(one.t.size() == parts.t.size());
    for (size_t k = 0; k < one.t.size(); ++k) {
      CHECK(std::abs(one.t[k] - parts.t[k]) <= (chain.joins ? 1 : 0));
      differ += one.t[k] != parts.t[k];
    }
    elements += one.t.size();
    (chain.joins ? joined : apart) += 1;
  }
  CHECK(joined > 150);
  CHECK(apart > 100);
  CHECK(differ * 100 < elements);  // only where a quotient is near a half
}

TEST_CASE("quantized: elementwise steps and moves give the bits of their parts") {
  int bodies = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const std::string text = Steps(random).text();
    CAPTURE(seed);
    CAPTURE(text);
    const Run one = computed(text, true, seed), parts = computed(text, false, seed);
    CHECK_FALSE(parts.body);
    CHECK(one.t == parts.t);
    bodies += one.body;
  }
  CHECK(bodies > 350);
}

// Kernels may multiply by 1/scale where that rounds the same.
TEST_CASE("quantized: quotients near halves, and beyond the range") {
  Random random(1);
  for (int k = 0; k < 60; ++k) {
    const bool is_signed = below(random, 2) != 0;
    const int low = is_signed ? -128 : 0, high = low + 255;
    const int zero = low + static_cast<int>(below(random, 256));
    float scale =
        static_cast<float>(std::exp(static_cast<double>(below(random, 2001) - 1000) / 50));
    if (k == 0) scale = 1e-38f;
    if (k == 1) scale = 1e-39f;  // 1/scale overflows
    if (k == 2) scale = 3e38f;
    std::vector<float> x;
    for (int level = -600; level < 600; ++level) {
      float half = (static_cast<float>(level) + 0.5f) * scale;
      for (int step = 0; step < 3; ++step) half = std::nextafter(half, -INFINITY);
      for (int step = 0; step < 7; ++step, half = std::nextafter(half, INFINITY)) x.push_back(half);
    }
    for (const float other : {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, 3e38f})
      x.push_back(other);
    std::shuffle(x.begin(), x.end(), random);
    const std::string dtype = is_signed ? "i8" : "u8", n = std::to_string(x.size());
    const Graph graph = Graph::parse("graph \"halves\" {\ninput x: f32[" + n +
                                         "]\ninput s: f32[]\n"
                                         "input z: " +
                                         dtype +
                                         "[]\nq = quantize(x, s, z)\n"
                                         "output \"q\" = q\n}\n",
                                     "halves");
    Store store(runtime());
    const Executable executable(runtime(), graph, store, {.device = "cpu:0"});
    Context run(executable);
    const auto byte = static_cast<uint8_t>(zero);
    run.set("x", {TENON_DTYPE_F32, {static_cast<int64_t>(x.size())}}, x.data(), 4 * x.size());
    run.set("s", {TENON_DTYPE_F32, {}}, &scale, 4);
    run.set("z", {is_signed ? TENON_DTYPE_I8 : TENON_DTYPE_U8, {}}, &byte, 1);
    run.run();
    std::vector<int> got;
    if (is_signed)
      for (const int8_t v : run.get<int8_t>("q")) got.push_back(v);
    else
      for (const uint8_t v : run.get<uint8_t>("q")) got.push_back(v);
    CAPTURE(scale);
    for (size_t i = 0; i < x.size(); ++i) {
      const float exact = x[i] / scale;
      const float level = std::isnan(exact) ? 0 : std::nearbyint(exact);
      const auto expected = static_cast<int>(std::clamp(
          level + static_cast<float>(zero), static_cast<float>(low), static_cast<float>(high)));
      if (got[i] != expected) FAIL_CHECK(x[i] << ": expected " << expected << ", got " << got[i]);
    }
  }
}
