// SPDX-License-Identifier: Apache-2.0
// Export to ONNX: names, dims, files, refusals. What single ops become is tested on the cases of the
// kit (tests/conformance/exported.cpp).
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/number.hpp"
#include "cpu.hpp"
#include "export/export.hpp"

namespace tenon::core::onnx {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / cat("tenon_exported_test_", ::getpid());
  Folder() { fs::create_directories(path); }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path, error);
  }
  std::string file(std::string_view name) const { return (path / name).string(); }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
};

// Weights hold 0, 1, 2, ...
Bytes counting(Space, const std::string&, const Type& type) {
  Bytes out(type_bytes(type));
  const size_t each = tenon_dtype_bits(type.dtype) / 8;
  for (size_t k = 0; k < out.size() / each; ++k)
    store_number(type.dtype, out.data() + k * each, static_cast<double>(k));
  return out;
}

std::string refusal(const core::Graph& g, const std::string& file) {
  try {
    export_model(g, file, false, counting);
  } catch (const Error& e) {
    CHECK(e.code() == Code::unsupported);
    return e.what();
  }
  return "";
}

const Type kRow{kF32, {4}};

TEST_SUITE("onnx/exported") {
  TEST_CASE("names: those of inputs, outputs and weights are kept, also where values are shared") {
    const Folder folder;
    core::Graph g;
    const Value x = g.input("x", kRow), unused = g.input("unused", kRow);
    const Value w = g.weight("w", kRow);
    Builder b(g);
    const Value y = b.plus(x, w);
    g.output("sum", y);
    g.output("again", y);
    g.output("weight", w);
    g.output("x", x);
    CHECK(bool(unused));
    export_model(g, folder.file("m.onnx"), false, counting);
    const Model m = read_model(folder.file("m.onnx"));
    REQUIRE(m.graph.inputs.size() == 2);
    CHECK(m.graph.inputs[0].name == "x");
    CHECK(m.graph.inputs[1].name == "unused");
    REQUIRE(m.graph.initializers.size() == 1);
    CHECK(m.graph.initializers[0].name == "w");
    CHECK(m.opsets.at("") == 21);
    const std::vector<Numbers> out = run(import_model(m, {}), {f32({4}, {1, 1, 1, 1})});
    REQUIRE(out.size() == 4);
    for (const size_t k : {0, 1}) CHECK(out[k].data == std::vector<double>{1, 2, 3, 4});
    CHECK(out[2].data == std::vector<double>{0, 1, 2, 3});
    CHECK(out[3].data == std::vector<double>{1, 1, 1, 1});
  }

  TEST_CASE("symbols: dims have their names; other dims that depend on them have none") {
    const Folder folder;
    core::Graph g;
    const Value x = g.input("x", {kF32, {g.symbol("N"), 6}});
    const NodeId flat = g.add(op::reshape{.shape = {-1}, .x = x});
    const NodeId last = g.add(op::sort{.axis = 0, .x = g[flat].outputs[0]});
    const NodeId half = g.add(op::reshape{.shape = {0, 2, 3}, .x = x});
    g.output("sorted", g[last].outputs[0]);
    g.output("halves", g[half].outputs[0]);
    export_model(g, folder.file("m.onnx"), false, counting);
    const Model m = read_model(folder.file("m.onnx"));
    CHECK((*m.graph.inputs[0].dims)[0].symbol == "N");
    CHECK((*m.graph.inputs[0].dims)[1].size == 6);
    const auto& sorted = *m.graph.outputs[0].dims;
    REQUIRE(sorted.size() == 1);
    CHECK(sorted[0].size == -1);
    CHECK(sorted[0].symbol.empty());
    const auto& halves = *m.graph.outputs[1].dims;
    REQUIRE(halves.size() == 3);
    CHECK(halves[0].symbol == "N");
    CHECK(halves[2].size == 3);
    std::vector<double> data(12);
    for (size_t k = 0; k < 12; ++k) data[k] = static_cast<double>((5 * k) % 12);
    const std::vector<Numbers> out = run(import_model(m, {}), {f32({2, 6}, data)});
    CHECK(out[0].type.shape == Shape{12});
    for (size_t k = 0; k < 12; ++k) CHECK(out[0][k] == static_cast<double>(k));
    CHECK(out[1].type.shape == Shape{2, 2, 3});
    CHECK(out[1].data == data);
  }

  TEST_CASE("symbols: strides and thresholds make no dim a number") {
    const Folder folder;
    core::Graph g;
    const Value x = g.input("x", {kF32, {g.symbol("N")}});
    const NodeId some = g.add(op::narrow{.step = {100}, .x = x});
    const NodeId sorted = g.add(op::sort{.x = g[some].outputs[0]});
    g.output("sorted", g[sorted].outputs[0]);
    export_model(g, folder.file("m.onnx"), false, counting);
    const Model m = read_model(folder.file("m.onnx"));
    CHECK((*m.graph.outputs[0].dims)[0].size == -1);
    std::vector<double> data(1000), every;
    for (size_t k = 0; k < data.size(); ++k) data[k] = -static_cast<double>(k);
    for (size_t k = 1000; k > 0; k -= 100) every.push_back(data[k - 100]);
    CHECK(run(import_model(m, {}), {f32({1000}, data)})[0].data == every);
    // Its sums are i32 or i64, by their number.
    core::Graph q;
    const Dim k = q.symbol("K");
    const Value a = q.input("a", {kI8, {1, k}}), b = q.input("b", {kI8, {k, 1}});
    const Value by = q.input("by", {kF32, {}});
    const NodeId product = q.add(op::qmatmul{.to = kI8, .a = a, .b = b, .multiplier = by});
    q.output("y", q[product].outputs[0]);
    CHECK(refusal(q, folder.file("q.onnx")).find("sizes that only the run knows") !=
          std::string::npos);
  }

  TEST_CASE("symbols: those that must agree for one node are not those of others") {
    const Folder folder;
    core::Graph g;
    const Value a = g.input("a", {kF32, {g.symbol("A")}}),
                b = g.input("b", {kF32, {g.symbol("B")}}),
                c = g.input("c", {kF32, {g.symbol("C")}});
    Builder at(g);
    g.output("y", at.plus(a, b));
    g.output("z", at.exp(c));
    export_model(g, folder.file("m.onnx"), false, counting);
    const Model m = read_model(folder.file("m.onnx"));
    for (size_t k = 0; k < 3; ++k)
      CHECK((*m.graph.inputs[k].dims)[0].symbol == std::string(1, static_cast<char>('A' + k)));
    for (const ValueInfo& v : m.graph.outputs) CHECK((*v.dims)[0].size == -1);
    const auto ones = f32({3}, {1, 1, 1});
    CHECK(run(import_model(m, {}), {ones, ones, f32({2}, {0, 0})})[1].data ==
          std::vector<double>{1, 1});
  }

  TEST_CASE("casts: floats are cut to the range of integers before, NaN to 0") {
    const Folder folder;
    for (const DType to : {kI8, kU8, kI32, kI64}) {
      core::Graph g;
      const NodeId n = g.add(op::cast{.to = to, .x = g.input("x", kRow)});
      g.output("y", g[n].outputs[0]);
      export_model(g, folder.file("m.onnx"), false, counting);
      std::vector<std::string> ops;
      for (const Node& node : read_model(folder.file("m.onnx")).graph.nodes) ops.push_back(node.op);
      const auto before = std::ranges::find(ops, "Cast");
      for (const char* op : {"IsNaN", "Clip"}) CHECK(std::find(ops.begin(), before, op) != before);
      // f32 does not hold the ends of 32 bits and more.
      CHECK((std::ranges::count(ops, "Where") == 2) == (to == kI32 || to == kI64));
    }
  }

  TEST_CASE("parameters that f32 does not hold are no attributes of f64 nodes") {
    const Folder folder;
    core::Graph g;
    const Value x = g.input("x", {kF64, {2, 2}});
    Builder b(g);
    g.output("y", b.matmul(x, x, false, false, 0.1));
    g.output("z", b.add(op::unary{.kind = "leaky_relu", .alpha = 0.1, .x = x}));
    export_model(g, folder.file("m.onnx"), false, counting);
    const std::vector<Numbers> out = run(import_model(read_model(folder.file("m.onnx")), {}),
                                         {numbers(kF64, {2, 2}, {-1, -2, 3, 4})});
    const double y[] = {-0.5, -0.6, 0.9, 1.0}, z[] = {-0.1, -0.2, 3, 4};
    for (size_t k = 0; k < 4; ++k) {
      CHECK(out[0][k] == doctest::Approx(y[k]).epsilon(1e-15));
      CHECK(out[1][k] == doctest::Approx(z[k]).epsilon(1e-15));
    }
  }

  TEST_CASE("a negative start of a slice is out of range") {
    const Folder folder;
    core::Graph g;
    const Value x = g.input("x", kRow), start = g.input("start", {kI64, {1}});
    const NodeId n = g.add(op::dynamic_slice{.size = {2}, .oob = "error", .x = x, .start = start});
    g.output("y", g[n].outputs[0]);
    export_model(g, folder.file("m.onnx"), false, counting);
    const Model m = read_model(folder.file("m.onnx"));
    const auto slice = [&](double at) {
      return result(m, {f32({4}, {0, 1, 2, 3}), numbers(kI64, {1}, {at})});
    };
    CHECK(slice(1) == std::vector<double>{1, 2});
    CHECK_THROWS_AS(slice(-1), Error);
  }

  TEST_CASE("a model with symbols: written as it was read, under other names of outputs as well") {
    const Folder folder;
    const Model given = model({value("x", 1, {"N", "2"})},
                              {node("Celu", {"x"}, {"c"}, {}), node("MatMul", {"c", "w"}, {"y"})},
                              {"y"}, {floats("w", {2, 1}, {3, 5})});
    core::Graph g = import_model(given, {.trainable = {"w"}}).graph;
    const Value y = g.outputs().at(0).value;
    g.output("renamed", y);
    export_model(part_of(g, {"renamed"}), folder.file("m.onnx"), false, counting);
    const Model m = read_model(folder.file("m.onnx"));
    CHECK(m.graph.nodes.at(0).op == "Celu");
    CHECK(m.graph.nodes.at(1).op == "MatMul");
    REQUIRE(m.graph.outputs.size() == 1);
    CHECK(m.graph.outputs[0].name == "renamed");
    // The weight has the content that the store has, not that of the first file.
    CHECK(result(m, {f32({1, 2}, {7, 2})}) == std::vector<double>{2});
  }

  TEST_CASE("a model with symbols: only what the outputs need") {
    const Folder folder;
    const Model given = model({value("x", 1, {"N"}), value("other", 1, {"N"})},
                              {node("Exp", {"x"}, {"y"}), node("Mul", {"other", "w"}, {"z"})},
                              {"y", "z"}, {floats("w", {1}, {3})});
    const core::Graph g = import_model(given, {.trainable = {"w"}}).graph;
    export_model(part_of(g, {"y"}), folder.file("m.onnx"), false, counting);
    const Model m = read_model(folder.file("m.onnx"));
    REQUIRE(m.graph.inputs.size() == 1);
    CHECK(m.graph.inputs[0].name == "x");
    CHECK(m.graph.nodes.size() == 1);
    CHECK(m.graph.initializers.empty());
  }

  TEST_CASE("a model whose symbols have numbers keeps the names of its initializers") {
    const Folder folder;
    const Model given = model({value("x", 1, {"2"})}, {node("Add", {"x", "shift"}, {"y"})}, {"y"},
                              {floats("shift", {2}, {3, 5})});
    export_model(import_model(given, {}).graph, folder.file("m.onnx"), false, counting);
    const Model m = read_model(folder.file("m.onnx"));
    REQUIRE(m.graph.initializers.size() == 1);
    CHECK(m.graph.initializers[0].name == "shift");
  }

  TEST_CASE("links: both files lie where the link leads") {
    const Folder folder;
    fs::create_directory(folder.path / "sub");
    std::ofstream(folder.file("sub/m.onnx")) << "old";
    fs::create_symlink("sub/m.onnx", folder.file("link.onnx"));
    core::Graph g;
    g.output("y", Builder(g).exp(g.weight("large", {kF32, {512}})));
    export_model(g, folder.file("link.onnx"), true, counting);
    CHECK(fs::is_symlink(folder.file("link.onnx")));
    CHECK(fs::file_size(folder.file("sub/m.onnx.data")) == 2048);
    CHECK(read_model(folder.file("sub/m.onnx")).graph.outputs.size() == 1);
    CHECK_THROWS_AS(export_model(g, folder.file("sub"), true, counting), Error);
    CHECK(folder.files() == 2);
  }

  TEST_CASE("weights beside the model: the same results; small ones stay inside") {
    const Folder folder;
    core::Graph g;
    Builder b(g);
    const Value x = g.input("x", {kF32, {1, 64}});
    const Value y = b.matmul(x, g.weight("large", {kF32, {64, 8}}));
    g.output("y", b.plus(y, g.weight("small", {kF32, {8}})));
    export_model(g, folder.file("in.onnx"), false, counting);
    CHECK(folder.files() == 1);
    export_model(g, folder.file("out.onnx"), true, counting);
    CHECK(fs::file_size(folder.file("out.onnx.data")) == 64 * 8 * 4);
    CHECK(fs::file_size(folder.file("out.onnx")) < 1024);
    const std::vector<double> ones(64, 1);
    const auto of = [&](const char* name) {
      return result(read_model(folder.file(name)), {f32({1, 64}, ones)});
    };
    CHECK(of("in.onnx") == of("out.onnx"));
    CHECK(of("out.onnx")[1] == 64 * 63 / 2 * 8 + 64 + 1);
  }

  TEST_CASE("refusals: all nodes at once, with names and reasons; no file changes") {
    const Folder folder;
    const std::string file = folder.file("m.onnx");
    core::Graph g;
    const Value rng = g.input("rng", {kI64, {2}}), x = g.input("x", kRow);
    const NodeId noise = g.add(op::random_normal{.shape = {4}, .rng = rng}, "noise");
    const NodeId kept = g.add(op::dropout{.x = x, .rng = rng}, "drop");
    Builder b(g);
    g.output("y", b.plus(g[noise].outputs[0], g[kept].outputs[0]));
    g.output("fine", b.exp(x));
    const std::string text = refusal(g, file);
    CHECK(text.starts_with("export: 2 nodes have no form in ONNX:\n"));
    CHECK(text.find("'noise' (random_normal): needs") != std::string::npos);
    CHECK(text.find("'drop' (dropout): needs") != std::string::npos);
    CHECK(text.find("random_bits: ONNX has no op for it") != std::string::npos);
    CHECK(folder.files() == 0);
    // What is not asked for may have no form.
    export_model(part_of(g, {"fine"}), file, false, counting);
    CHECK(read_model(file).graph.inputs.size() == 1);
    const auto before = fs::file_size(file);
    CHECK(!refusal(g, file).empty());
    CHECK(fs::file_size(file) == before);
    CHECK(folder.files() == 1);
  }

  TEST_CASE("refusals: updates, one name for two values, outputs that are not there") {
    const Folder folder;
    const std::string file = folder.file("m.onnx");
    core::Graph g;
    Builder b(g);
    const Value x = g.input("x", kRow), s = g.state("s", kRow);
    const Value next = b.plus(s, x);
    g.output("y", next);
    g.update(s, next);
    CHECK(refusal(g, file).find("updates 's'") != std::string::npos);
    export_model(part_of(g, {"y"}), file, false, counting);
    CHECK(result(read_model(file), {f32({4}, {1, 1, 1, 1})}) == std::vector<double>{1, 2, 3, 4});
    CHECK_THROWS_WITH_AS(part_of(g, {"z"}), "export: the graph has no output 'z'", Error);
    CHECK_THROWS_WITH_AS(export_model(part_of(g, {}), file, false, counting),
                         "export: the graph has no outputs, and an ONNX model needs one", Error);
    core::Graph two;
    Builder c(two);
    two.output("x", c.exp(two.input("x", kRow)));
    CHECK(refusal(two, file).find("have the name 'x'") != std::string::npos);
  }

  TEST_CASE("a file that fails half-way leaves the old one") {
    const Folder folder;
    const std::string file = folder.file("m.onnx");
    core::Graph g;
    g.output("w2", Builder(g).exp(g.weight("w", kRow)));
    export_model(g, file, false, counting);
    const Model before = read_model(file);
    CHECK_THROWS_AS(export_model(g, file, false,
                                 [](Space, const std::string&, const Type&) -> Bytes {
                                   fail(Code::not_found, "no content");
                                 }),
                    Error);
    CHECK(folder.files() == 1);
    CHECK(read_model(file).graph.nodes.size() == before.graph.nodes.size());
  }
}

}  // namespace
}  // namespace tenon::core::onnx
