// SPDX-License-Identifier: Apache-2.0
// Models and tensors from files, through the host API.
#include <filesystem>
#include <fstream>

#include "../unit/import/proto_writer.hpp"
#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

struct Folder {
  std::filesystem::path path;
  Folder() {
    char name[] = "/tmp/tenon-files-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator()(const std::string& name) const { return (path / name).string(); }
};

constexpr int64_t kFloat = 1;  // TensorProto.DataType

Proto value(const char* name, std::initializer_list<int64_t> dims) {
  Proto shape;
  for (const int64_t d : dims) shape.message(1, Proto().number(1, d));
  const Proto type = Proto().message(1, Proto().number(1, kFloat).message(2, shape));
  return Proto().text(1, name).message(2, type);
}
Proto node(const char* op, const char* a, const char* b, const char* out) {
  return Proto().text(1, a).text(1, b).text(2, out).text(4, op);
}
Proto weight(const char* name, std::initializer_list<int64_t> dims,
             std::initializer_list<float> values) {
  return Proto().packed(1, dims).number(2, kFloat).text(8, name).packed_fixed<float>(4, values);
}
// y = x * fc.w + fc.b - shift, with x: f32[4,2] and an input `shift`: f32[1]
std::string write_model(const std::string& path, const char* last_op = "Sub") {
  Proto graph;
  graph.message(1, node("MatMul", "x", "fc.w", "p")).message(1, node("Add", "p", "fc.b", "q"));
  graph.message(1, node(last_op, "q", "shift", "y"));
  graph.message(5, weight("fc.w", {2, 1}, {2, -1})).message(5, weight("fc.b", {1}, {0.5f}));
  graph.message(11, value("x", {4, 2})).message(11, value("shift", {1}));
  graph.message(12, value("y", {4, 1}));
  const Proto model = Proto().number(1, 8).message(8, Proto().number(2, 17)).message(7, graph);
  std::ofstream(path, std::ios::binary) << model.bytes();
  return path;
}

const Tensor kX({4, 2}, {1.f, 0.f, 0.f, 1.f, 1.f, 1.f, 2.f, 1.f});

std::vector<float> outputs_of(const Graph& graph, const Store& store, const std::string& device,
                              bool shift) {
  const Executable executable(runtime(), graph, store, {.device = device});
  Context run(executable);
  run.set("x", kX);
  if (shift) run.set("shift", Tensor({1}, {1.f}));
  run.run();
  return run.get<float>("y");
}

tenon_code code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.code();
  }
  return TENON_OK;
}

}  // namespace

TEST_SUITE("files") {
  TEST_CASE("import: a model computes what its file says, on each device") {
    const Folder f;
    Store store(runtime());
    const Graph model = Graph::import(write_model(f("m.onnx")), store);
    for (const char* device : {"cpu:0", "template:0"})
      CHECK(outputs_of(model, store, device, true) == std::vector<float>{1.5f, -1.5f, 0.5f, 2.5f});
    CHECK(model.outputs().at(0).first == "y");
    for (const auto& w : model.named(TENON_SPACE_WEIGHT)) CHECK(!w.trainable);
  }

  TEST_CASE("import: patterns name the weights that are trained") {
    const Folder f;
    Store store(runtime());
    Graph model = Graph::import(write_model(f("m.onnx")), store, {.trainable = {"fc.?"}});
    const auto weights = model.named(TENON_SPACE_WEIGHT);
    REQUIRE(weights.size() == 2);
    for (const auto& w : weights) CHECK(w.trainable);
    CHECK(store.get<float>(TENON_SPACE_WEIGHT, "fc.w") == std::vector<float>{2, -1});
    const Value t = model.input("t", {f32, {4, 1}});
    const Value loss = model.mean(model.square(model.outputs().at(0).second - t));
    model.output("loss", loss);
    model.minimize(loss, {.learning_rate = model.scalar(0.05f), .weight_decay = 0});
    store.add_missing(model);
    const Executable executable(runtime(), model, store, {.device = "cpu:0"});
    Context run(executable);
    run.set("x", kX);
    run.set("shift", Tensor({1}, {0.f}));
    run.set("t", Tensor({4, 1}, {1.f, 1.f, 2.f, 3.f}));
    run.run();
    const float first = run.get_scalar<float>("loss");
    for (int i = 0; i < 100; ++i) run.run();
    CHECK(run.get_scalar<float>("loss") < 0.1f * first);
    CHECK(store.get<float>(TENON_SPACE_WEIGHT, "fc.w") != std::vector<float>{2, -1});
  }

  TEST_CASE("import: an input that becomes a constant") {
    const Folder f;
    Store store(runtime());
    const Graph model =
        Graph::import(write_model(f("m.onnx")), store, {.fixed = {{"shift", Tensor({1}, {1.f})}}});
    CHECK(model.named(TENON_SPACE_INPUT).size() == 1);
    CHECK(outputs_of(model, store, "cpu:0", false) == std::vector<float>{1.5f, -1.5f, 0.5f, 2.5f});
    const ImportOptions twice{
        .fixed = {{"shift", Tensor({1}, {1.f})}, {"shift", Tensor({1}, {2.f})}}};
    CHECK(code_of([&] { Graph::import(f("m.onnx"), store, twice); }) == TENON_INVALID_ARGUMENT);
  }

  TEST_CASE("import: without a store; a failure leaves the store as it was") {
    const Folder f;
    const Graph model = Graph::import(write_model(f("m.onnx")), {.trainable = {"*"}});
    CHECK(model.named(TENON_SPACE_WEIGHT).size() == 2);
    Store store(runtime());
    CHECK(code_of([&] { Graph::import(write_model(f("bad.onnx"), "Fly"), store); }) ==
          TENON_UNSUPPORTED);
    CHECK(code_of([&] { Graph::import(f("none.onnx"), store); }) == TENON_NOT_FOUND);
    CHECK(store.names(TENON_SPACE_WEIGHT).empty());
  }

  TEST_CASE("symbols: a dim has the name that it was made with") {
    Graph g;
    const int64_t n = g.symbol("N"), m = g.symbol("M");
    CHECK((g.symbol_name(n) == "N" && g.symbol_name(m) == "M"));
    for (const int64_t dim : {int64_t{0}, int64_t{4}, m - 1, INT64_MIN})
      CHECK(code_of([&] { static_cast<void>(g.symbol_name(dim)); }) == TENON_NOT_FOUND);
  }

  TEST_CASE("tensors: what is written is read, one or many, packed or not") {
    const Folder f;
    const std::vector<std::pair<std::string, Tensor>> all = {
        {"a", kX}, {"b", Tensor({2}, {int64_t{1}, int64_t{-1}})}, {"none", Tensor({f32, {0, 3}})}};
    for (const bool deflate : {false, true}) {
      write_tensors(f("t.npz"), all, deflate);
      const auto again = read_tensors(f("t.npz"));
      REQUIRE(again.size() == all.size());
      for (size_t i = 0; i < all.size(); ++i) {
        CHECK(again[i].first == all[i].first);
        CHECK(again[i].second.type().dims == all[i].second.type().dims);
        CHECK(again[i].second.size() == all[i].second.size());
      }
      CHECK(again[1].second.at<int64_t>({1}) == -1);
    }
    write_tensors(f("t.npy"), {{"", kX}});
    CHECK(read_tensors(f("t.npy")).at(0).second.at<float>({3, 0}) == 2);
    CHECK(code_of([&] { write_tensors(f("t.npy"), all); }) == TENON_INVALID_ARGUMENT);
    CHECK(code_of([&] { write_tensors(f("h.npy"), {{"h", kX.to(bf16)}}); }) == TENON_UNSUPPORTED);
    CHECK(code_of([&] { static_cast<void>(read_tensors(f("none.npy"))); }) == TENON_NOT_FOUND);
  }

  TEST_CASE("tensors: strides are gathered; an index beyond the end is refused") {
    const Folder f;
    const float data[] = {1, 2, 3, 4, 5, 6};
    const int64_t dims[] = {3, 2}, strides[] = {1, 3};  // the transpose of [2,3]
    tenon_tensor t{};
    t.struct_size = sizeof t;
    t.dims = dims;
    t.strides = strides;
    t.data = const_cast<float*>(data);
    t.size = sizeof data;
    t.rank = 2;
    t.dtype = f32;
    const tenon_tensor* const list[] = {&t};
    const std::string path = f("t.npy");
    detail::check(tenon_tensors_write(detail::str(path), nullptr, list, 1, 0));
    const Tensor read = read_tensors(path).at(0).second;
    CHECK(read.dims() == std::vector<int64_t>{3, 2});
    CHECK(Tensor(read).values<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
    t.device = {"cpu:0", 5};
    CHECK(code_of([&] {
            detail::check(tenon_tensors_write(detail::str(path), nullptr, list, 1, 0));
          }) == TENON_INVALID_ARGUMENT);
    tenon_tensors* tensors = nullptr;
    detail::check(tenon_tensors_read(detail::str(path), &tensors));
    tenon_str name{};
    CHECK(code_of([&] { detail::check(tenon_tensors_get(tensors, 1, &name, &t)); }) ==
          TENON_NOT_FOUND);
    tenon_tensors_destroy(tensors);
    CHECK(tenon_tensors_count(nullptr) == 0);
  }
}
