// SPDX-License-Identifier: Apache-2.0
// Random convolutions with random readers: fused as without fusion, also where a reader comes close
// to a form that is joined (equal dims, factors along other axes, values that others read).
#include <cmath>
#include <nlohmann/json.hpp>
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

std::string text_of(const std::vector<int64_t>& dims) {
  std::ostringstream out;
  for (size_t i = 0; i < dims.size(); ++i) out << (i ? "," : "") << dims[i];
  return "[" + out.str() + "]";
}

struct Chain {
  std::string text;
  std::vector<std::string> outputs;
};

// Channels and spatial dims are drawn from few numbers, so that many are equal.
Chain random_chain(Random& random) {
  const size_t axes = 1 + static_cast<size_t>(below(random, 2));
  const int64_t groups = below(random, 3) == 0 ? 2 : 1;
  const int64_t channels = groups * (1 + below(random, 2)), filters = 4;
  std::vector<int64_t> x{1 + below(random, 2), channels}, w{filters, channels / groups};
  std::vector<int64_t> stride, pads(2 * axes), dilation, y{x[0], filters};
  for (size_t k = 0; k < axes; ++k) {
    x.push_back(4 + below(random, 3));
    w.push_back(1 + below(random, 3));
    stride.push_back(1 + below(random, 2));
    dilation.push_back(1);
    pads[k] = below(random, 2), pads[k + axes] = below(random, 2);
    y.push_back((x.back() + pads[k] + pads[k + axes] - w.back()) / stride.back() + 1);
  }
  std::ostringstream g;
  g << "graph \"chain\" {\n  input x: f32" << text_of(x) << "\n  weight w: f32" << text_of(w)
    << "\n  weight b: f32[" << filters << "]\n  input r: f32" << text_of(y) << "\n";
  std::ostringstream nodes;
  nodes << "  v0 = conv(x, w" << (below(random, 2) ? ", b" : "") << ") {stride=" << text_of(stride)
        << ", pads=" << text_of(pads) << ", groups=" << groups << "}\n";
  Chain chain;
  int at = 0;
  const int64_t length = 1 + below(random, 5);
  for (int64_t k = 0; k < length; ++k) {
    const std::string from = "v" + std::to_string(at), to = "v" + std::to_string(at + 1);
    const int64_t what = below(random, 8);
    if (what < 4) {  // a constant, along an axis that may be that of the channels
      std::vector<int64_t> dims(y.size() - static_cast<size_t>(below(random, 2)), 1);
      const size_t axis = static_cast<size_t>(below(random, static_cast<int64_t>(dims.size())));
      const size_t of_y = axis + y.size() - dims.size();
      if (below(random, 4) != 0) dims[axis] = y[of_y];
      const std::string name = "k" + std::to_string(k);
      g << "  const " << name << ": f32" << text_of(dims) << " = {";
      int64_t elements = 1;
      for (const int64_t d : dims) elements *= d;
      for (int64_t e = 0; e < elements; ++e)
        g << (e ? ", " : "") << 0.25 * static_cast<double>(1 + below(random, 7));
      g << "}\n";
      const char* kinds[] = {"mul", "add", "sub", "mul"};
      const char* kind = kinds[below(random, 4)];
      const bool swapped = below(random, 3) == 0;
      nodes << "  " << to << " = binary(" << (swapped ? name : from) << ", "
            << (swapped ? from : name) << ") {kind=\"" << kind << "\"}\n";
    } else if (what == 4) {
      nodes << "  " << to << " = binary(" << from << ", r) {kind=\""
            << (below(random, 3) ? "add" : "sub") << "\"}\n";
    } else if (what == 5) {
      nodes << "  " << to << " = binary(" << from << ", " << from << ") {kind=\"add\"}\n";
    } else {
      const char* kinds[] = {"relu", "silu", "tanh", "abs", "hard_swish"};
      nodes << "  " << to << " = unary(" << from << ") {kind=\"" << kinds[below(random, 5)]
            << "\"}\n";
    }
    if (below(random, 8) == 0) chain.outputs.push_back(from);
    ++at;
  }
  chain.outputs.push_back("v" + std::to_string(at));
  chain.text = g.str() + nodes.str();
  for (const std::string& name : chain.outputs)
    chain.text += "  output \"" + name + "\" = " + name + "\n";
  chain.text += "}\n";
  return chain;
}

std::vector<float> noise_of(const TensorType& type, const std::string& name) {
  std::vector<float> data(static_cast<size_t>(type.elements()));
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<float>(noise(std::hash<std::string>{}(name), i));
  return data;
}

struct Run {
  std::vector<std::vector<float>> outputs;
  bool joined = false;
};

Run computed(const Chain& chain, bool fuse) {
  const Graph graph = Graph::parse(chain.text, "chain");
  Store store(runtime());
  const auto each = [&](uint32_t space, auto use) {
    for (uint32_t i = 0; i < tenon_graph_count(graph.handle(), space); ++i) {
      tenon_str name{};
      tenon_value value = 0;
      REQUIRE(!tenon_graph_name(graph.handle(), space, i, &name, &value, nullptr));
      use(std::string(name.data, name.size), graph.type(Value{value}));
    }
  };
  each(TENON_SPACE_WEIGHT, [&](const std::string& name, const TensorType& type) {
    const std::vector<float> data = noise_of(type, name);
    store.set(TENON_SPACE_WEIGHT, name, type, data.data(), data.size() * sizeof data[0]);
  });
  const Executable executable(runtime(), graph, store,
                              {.device = "cpu:0", .allow_fallback = false, .fuse = fuse});
  Context run(executable);
  each(TENON_SPACE_INPUT, [&](const std::string& name, const TensorType& type) {
    const std::vector<float> data = noise_of(type, name);
    run.set(name, type, data.data(), data.size() * sizeof data[0]);
  });
  run.run();
  Run out;
  for (const std::string& name : chain.outputs) out.outputs.push_back(run.get<float>(name));
  out.joined = executable.report().find("joined: conv") != std::string::npos;
  return out;
}

}  // namespace

TEST_CASE("convolutions: fused as without fusion") {
  int joined = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const Chain chain = random_chain(random);
    CAPTURE(seed);
    CAPTURE(chain.text);
    const Run fused = computed(chain, true), plain = computed(chain, false);
    CHECK_FALSE(plain.joined);
    joined += fused.joined;
    for (size_t k = 0; k < plain.outputs.size(); ++k) {
      REQUIRE(fused.outputs[k].size() == plain.outputs[k].size());
      double largest = 1;
      for (const float v : plain.outputs[k])
        largest = std::max(largest, std::abs(static_cast<double>(v)));
      for (size_t i = 0; i < plain.outputs[k].size(); ++i)
        CHECK(std::abs(fused.outputs[k][i] - plain.outputs[k][i]) < 2e-6 * largest);
    }
  }
  CHECK(joined > 100);
}

TEST_CASE("convolutions: what is added to halves is added up unrounded") {
  // 70000 is no f16. The result of conv is 10000.
  const Graph graph = Graph::parse(R"(graph "sum" {
    input x: f32[1,1,1,1] input w: f32[1,1,1,1] input b: f32[1] const one: f16[1,1,1] = {1}
    h = cast(x) {to=f16} k = cast(w) {to=f16}
    y = conv(h, k, b) z = binary(y, one) {kind="add"} v = cast(z) {to=f32} output "v" = v
  })",
                                   "sum");
  Store store(runtime());
  for (const bool fuse : {true, false}) {
    const Executable executable(runtime(), graph, store,
                                {.device = "cpu:0", .allow_fallback = false, .fuse = fuse});
    Context run(executable);
    run.set("x", {1, 1, 1, 1}, std::vector<float>{-60000});
    run.set("w", {1, 1, 1, 1}, std::vector<float>{1});
    run.set("b", {1}, std::vector<float>{70000});
    run.run();
    CHECK(run.get<float>("v") == std::vector<float>{10000});
  }
}

TEST_CASE("convolutions: long rows, far taps and large windows are planned in little memory") {
  Store store(runtime());
  for (const char* statements :
       {"input x: f32[1,64,480000] weight w: f32[64,64,3] y = conv(x, w) {pads=[1,1]}",
        "input x: f32[1,8,64] weight w: f32[8,8,3] y = conv(x, w) {pads=[100000000,100000000], "
        "dilation=[100000000]}",
        "input x: f32[0,1,20000,20000] input w: f32[1,1,19000,19000] y = conv(x, w)"}) {
    CAPTURE(statements);
    const std::string text = "graph \"g\" { " + std::string(statements) + " output \"y\" = y }";
    const Executable executable(runtime(), Graph::parse(text, "g"), store,
                                {.device = "cpu:0", .allow_fallback = false});
    const auto memory = nlohmann::json::parse(executable.report()).at("memory").at(0);
    CHECK(memory.at("peak").get<uint64_t>() < 16 << 20);  // with the scratch of kernels
  }
}
