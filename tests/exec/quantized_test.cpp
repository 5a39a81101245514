// SPDX-License-Identifier: Apache-2.0
// Random chains of dequantized products whose results are quantized: joined into products of
// integers, results are at most one unit away from those of the parts. Some are no such chain
// (another scale of the bias, several scales of the result, a float reader): they stay exact.
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
  const int64_t groups = conv && below(random, 4) == 0 ? 2 : 1;
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
  if (conv)
    g << "input q: " << x_dtype << "[2," << channels << ",6,5]\ninput w: i8[" << filters << ","
      << channels / groups << "," << 1 + below(random, 3) << "," << 1 + below(random, 3) << "]\n";
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
    << "x = dequantize(q, sx, zx)\nf = dequantize(w, sw, zw) {axis=" << (conv ? 0 : 1) << "}\n"
    << "b = dequantize(bq, sb) {axis=0}\n";
  const bool bias = below(random, 2) != 0;
  if (conv)
    g << "y0 = conv(x, f" << (bias ? ", b" : "") << ") {groups=" << groups << ", stride=["
      << 1 + below(random, 2) << ",1], pads=[" << below(random, 2) << ",1,0,1]}\n";
  else
    g << (bias ? "y0 = linear(x, f, b)\n" : "y0 = matmul(x, f)\n");
  const int64_t act = below(random, 4);
  if (act < 2) g << "y = unary(y0) {kind=\"" << (act == 0 ? "tanh" : "relu") << "\"}\n";
  g << "t = quantize(" << (act < 2 ? "y" : "y0") << ", sy, zy)\noutput \"t\" = t\n";
  if (miss == 1) g << "output \"float\" = y0\n";
  chain.joins = act != 0 && !(miss == 0 && bias) && miss != 1;
  chain.text = g.str() + "}\n";
  return chain;
}

struct Run {
  std::vector<int> t;
  bool joined = false;
};

Run computed(const Chain& chain, bool fuse, uint64_t seed) {
  const Graph graph = Graph::parse(chain.text, "chain");
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
  if (chain.text.find("zy: u8") != std::string::npos)
    for (const uint8_t v : run.get<uint8_t>("t")) out.t.push_back(v);
  else
    for (const int8_t v : run.get<int8_t>("t")) out.t.push_back(v);
  const std::string report = executable.report();
  out.joined =
      report.find("qmatmul") != std::string::npos || report.find("qconv") != std::string::npos;
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
    const Run one = computed(chain, true, seed), parts = computed(chain, false, seed);
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
