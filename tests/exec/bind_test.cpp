// SPDX-License-Identifier: Apache-2.0
// Memory of the app: inputs and outputs in place, what is refused, and when memory is given back.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using Floats = std::vector<float>;

// Floats at an address that is `offset` bytes behind a multiple of 64.
class Room {
 public:
  explicit Room(size_t count, size_t offset = 0) : bytes_(count * 4 + 64 + offset), count_(count) {
    const auto at = reinterpret_cast<uintptr_t>(bytes_.data());
    begin_ = bytes_.data() + (64 - at % 64) % 64 + offset;
  }
  Room(const Floats& values, size_t offset = 0) : Room(values.size(), offset) { *this = values; }
  Room& operator=(const Floats& values) {
    std::memcpy(begin_, values.data(), count_ * 4);
    return *this;
  }
  std::span<float> span() { return {data(), count_}; }
  float* data() { return reinterpret_cast<float*>(begin_); }
  Floats values() { return {data(), data() + count_}; }

 private:
  std::vector<std::byte> bytes_;
  std::byte* begin_;
  size_t count_;
};

// y = a + b, z = y * b, of N rows.
const char* const kText = R"(graph {
  input a: f32[N,3]
  input b: f32[3]
  y = binary(a, b) {kind="add"}
  z = binary(y, b) {kind="mul"}
  output "y" = y
  output "z" = z
})";

struct Subject {
  Store store{runtime()};
  Graph graph;
  Executable executable;
  Context context;
  explicit Subject(const std::string& device, const char* text = kText)
      : graph(Graph::parse(text, "bind")),
        executable(runtime(), graph, store, {.device = device}),
        context(executable) {}
};

const Floats kA = {1, 2, 3, 4, 5, 6}, kB = {10, 20, 30};
const Floats kY = {11, 22, 33, 14, 25, 36}, kZ = {110, 440, 990, 140, 500, 1080};

tenon_tensor tensor_of(std::vector<int64_t>& dims, void* data, uint64_t size) {
  tenon_tensor t{};
  t.struct_size = sizeof t;
  t.dims = dims.data();
  t.rank = static_cast<uint32_t>(dims.size());
  t.dtype = TENON_DTYPE_F32;
  t.data = data;
  t.size = size;
  return t;
}

void bind(Context& context, std::string_view name, const tenon_tensor& t) {
  detail::check(tenon_context_bind(context.handle(), detail::str(name), &t));
}

// The trace of one run, as the categories of its slices.
std::vector<std::string> slices_of(Context& context) {
  detail::check(tenon_trace_start(runtime().handle(), nullptr));
  context.run();
  tenon_text* text = nullptr;
  detail::check(tenon_trace_stop(runtime().handle(), &text));
  const tenon_str json = tenon_text_str(text);
  const auto trace = nlohmann::json::parse(std::string(json.data, json.size));
  std::vector<std::string> out;
  for (const auto& e : trace["traceEvents"])
    if (e["ph"] == "X") out.push_back(e["cat"]);
  tenon_text_destroy(text);
  return out;
}

int copies_in(const std::vector<std::string>& slices) {
  int count = 0;
  for (const char* kind : {"write", "copy", "read"})
    count += static_cast<int>(std::ranges::count(slices, kind));
  return count;
}

const char* const kDevices[] = {"cpu:0", "template:0", "adversary:0", "adversary:1"};
bool computes_in_host_memory(std::string_view device) { return device.find("adversary") != 0; }

}  // namespace

TEST_CASE("bind: inputs and outputs in host memory, on every device") {
  for (const std::string device : kDevices) {
    CAPTURE(device);
    Subject s(device);
    Room a(kA), b(kB), y(6), z(6);
    s.context.bind("a", {2, 3}, a.span());
    s.context.bind("b", {3}, std::span<const float>(b.span()));
    s.context.bind("y", {2, 3}, y.span());
    s.context.run();
    CHECK(y.values() == kY);
    CHECK(s.context.get<float>("y") == kY);
    CHECK(s.context.get<float>("z") == kZ);
    // Runs see what the app writes, without a word to tenon.
    a = {0, 0, 0, 0, 0, 0};
    s.context.run_async();
    s.context.wait();
    CHECK(y.values() == Floats{10, 20, 30, 10, 20, 30});
    // To other memory, and back.
    Room other(6);
    s.context.bind("y", {2, 3}, other.span());
    s.context.bind("z", {2, 3}, z.span());
    a = kA;
    y = Floats(6, -1);
    s.context.run();
    CHECK(other.values() == kY);
    CHECK(z.values() == kZ);
    CHECK(y.values() == Floats(6, -1));
    s.context.bind("y", {2, 3}, y.span());
    s.context.run();
    CHECK(y.values() == kY);
  }
}

TEST_CASE("bind: a device that computes in host memory copies nothing") {
  for (const std::string device : kDevices) {
    CAPTURE(device);
    Subject s(device);
    Room a(kA), b(kB), y(6), z(6);
    s.context.bind("a", {2, 3}, a.span());
    s.context.bind("b", {3}, b.span());
    s.context.bind("y", {2, 3}, y.span());
    s.context.bind("z", {2, 3}, z.span());
    s.context.run();
    CHECK(copies_in(slices_of(s.context)) == (computes_in_host_memory(device) ? 0 : 4));
    if (computes_in_host_memory(device)) {
      CHECK(s.context.output("y").data == y.data());
      CHECK(s.context.output("z").data == z.data());
      CHECK(s.context.output("z").device.size == 0);
    }
  }
}

TEST_CASE("bind: memory of a device with memory of its own") {
  Subject s("adversary:0");
  Room a(kA), b(kB), y(6), host(6);
  std::vector<int64_t> dims = {2, 3};
  tenon_tensor ta = tensor_of(dims, a.data(), 24), ty = tensor_of(dims, y.data(), 24);
  ta.device = ty.device = detail::str("adversary:0");
  bind(s.context, "a", ta);
  bind(s.context, "y", ty);
  s.context.bind("b", {3}, b.span());
  s.context.run();
  CHECK(y.values() == kY);
  CHECK(s.context.output("y").data == y.data());
  CHECK(std::string_view(s.context.output("y").device.data, s.context.output("y").device.size) ==
        "adversary:0");
  CHECK(copies_in(slices_of(s.context)) == 1);  // b is host memory

  // The same memory for a run on another device: through the host.
  for (const std::string device : {"cpu:0", "adversary:1"}) {
    CAPTURE(device);
    Subject other(device);
    y = Floats(6, -1);
    bind(other.context, "a", ta);
    bind(other.context, "y", ty);
    other.context.bind("b", {3}, b.span());
    other.context.run();
    CHECK(y.values() == kY);
    CHECK(copies_in(slices_of(other.context)) == (device == "cpu:0" ? 2 : 3));
  }
  // set() copies from there.
  Subject copied("cpu:0");
  detail::check(tenon_context_set(copied.context.handle(), detail::str("a"), &ta));
  a = Floats(6, 0);
  copied.context.set("b", {3}, kB);
  copied.context.run();
  CHECK(copied.context.get<float>("y") == kY);
  // And so does a store.
  a = kA;
  detail::check(tenon_store_set(copied.store.handle(), TENON_SPACE_WEIGHT, detail::str("w"), &ta));
  Floats w(6);
  copied.store.get(TENON_SPACE_WEIGHT, "w", w.data(), 24);
  CHECK(w == kA);
}

TEST_CASE("bind: addresses that are aligned to an element and no more") {
  // Enough elements for every vector width and its rest.
  const char* const text = R"(graph {
    input x: f32[37,131]
    input w: f32[131,67]
    input g: f32[67]
    m = matmul(x, w)
    n = layer_norm(m, g, g)
    s = softmax(n)
    t = transpose(s) {perm=[1, 0]}
    r = reduce(x) {kind="sum", axes=[0]}
    e = unary(x) {kind="gelu"}
    (v, i) = topk(x) {k=5}
    output "m" = m
    output "n" = n
    output "s" = s
    output "t" = t
    output "r" = r
    output "e" = e
    output "v" = v
  })";
  const Floats x = noise_of(1, 37 * 131), w = noise_of(2, 131 * 67), g = noise_of(3, 67);
  const std::pair<const char*, std::vector<int64_t>> outputs[] = {
      {"m", {37, 67}}, {"n", {37, 67}},  {"s", {37, 67}}, {"t", {67, 37}},
      {"r", {131}},    {"e", {37, 131}}, {"v", {37, 5}}};
  for (const std::string device : {"cpu:0", "template:0"}) {
    Subject plain(device, text), bound(device, text);
    plain.context.set("x", {37, 131}, x);
    plain.context.set("w", {131, 67}, w);
    plain.context.set("g", {67}, g);
    plain.context.run();
    for (const size_t offset : {4u, 8u, 16u, 36u, 60u}) {
      CAPTURE(device);
      CAPTURE(offset);
      Room rx(x, offset), rw(w, offset), rg(g, offset);
      bound.context.bind("x", {37, 131}, rx.span());
      bound.context.bind("w", {131, 67}, rw.span());
      bound.context.bind("g", {67}, rg.span());
      std::vector<std::pair<std::string, Room>> rooms;
      for (const auto& [name, dims] : outputs) {
        const auto count = static_cast<size_t>(TensorType(f32, dims).elements());
        rooms.emplace_back(name, Room(count, offset));
        bound.context.bind(name, dims, rooms.back().second.span());
      }
      bound.context.run();
      for (auto& [name, room] : rooms) {
        CAPTURE(name);
        CHECK(room.values() == plain.context.get<float>(name));
      }
      for (const auto& [name, dims] : outputs) bound.context.unbind(name);
    }
  }
}

TEST_CASE("bind: symbols") {
  Subject s("cpu:0");
  Room a(kA), b(kB), y(6);
  s.context.bind("b", {3}, b.span());
  s.context.bind("a", {2, 3}, a.span());
  s.context.run();
  CHECK(s.context.get<float>("y") == kY);
  s.context.bind("a", {1, 3}, a.span().first(3));
  s.context.run();
  CHECK(s.context.get<float>("y") == Floats{11, 22, 33});
  // A bound output has one shape.
  s.context.bind("y", {2, 3}, y.span());
  tenon_code code = TENON_OK;
  CHECK(says(error_of([&] { s.context.run(); }, &code), {"'y'", "f32[1,3]", "f32[2,3]"}));
  CHECK(code == TENON_SHAPE_MISMATCH);
  s.context.bind("a", {2, 3}, a.span());
  s.context.run();
  CHECK(y.values() == kY);
}

TEST_CASE("bind: one value as two outputs, both bound") {
  for (const std::string device : kDevices) {
    CAPTURE(device);
    Subject s(device, R"(graph {
      input x: f32[2]
      y = unary(x) {kind="neg"}
      output "y" = y
      output "again" = y
      output "same" = x
    })");
    Room x(Floats{1, 2}), y(2), again(2), same(2);
    s.context.bind("x", {2}, x.span());
    s.context.bind("y", {2}, y.span());
    s.context.bind("again", {2}, again.span());
    s.context.bind("same", {2}, same.span());
    s.context.run();
    CHECK(y.values() == Floats{-1, -2});
    CHECK(again.values() == Floats{-1, -2});
    CHECK(same.values() == Floats{1, 2});
  }
}

TEST_CASE("bind: without elements") {
  Subject s("cpu:0");
  Room b(kB);
  s.context.bind("a", {f32, {0, 3}}, nullptr, 0);
  s.context.bind("y", {f32, {0, 3}}, nullptr, 0);
  s.context.bind("b", {3}, b.span());
  s.context.run();
  CHECK(s.context.get<float>("y").empty());
  CHECK(s.context.output("y").data == nullptr);
}

TEST_CASE("bind: what is refused") {
  Subject s("cpu:0");
  Room a(kA), b(kB), y(8);
  s.context.bind("b", {3}, b.span());
  s.context.bind("a", {2, 3}, a.span());
  std::vector<int64_t> dims = {2, 3};
  const auto refused = [&](std::string_view name, const tenon_tensor& t, tenon_code expected,
                           std::initializer_list<std::string_view> words) {
    tenon_code code = TENON_OK;
    CHECK(says(error_of([&] { bind(s.context, name, t); }, &code), words));
    CHECK(code == expected);
  };
  const tenon_tensor good = tensor_of(dims, y.data(), 24);
  tenon_tensor t = good;
  refused("q", t, TENON_NOT_FOUND, {"'q'", "'a', 'b'", "'y', 'z'"});
  t.dtype = TENON_DTYPE_I32;
  refused("a", t, TENON_DTYPE_MISMATCH, {"input 'a'", "f32[?,3]", "i32[2,3]"});
  t = good;
  std::vector<int64_t> wide = {3, 2};
  t.dims = wide.data();
  refused("a", t, TENON_SHAPE_MISMATCH, {"input 'a'", "f32[?,3]", "f32[3,2]"});
  t = good;
  t.data = nullptr;
  refused("y", t, TENON_INVALID_ARGUMENT, {"'y'", "NULL"});
  t = good;
  t.size = 20;
  refused("y", t, TENON_INVALID_ARGUMENT, {"'y'", "24 bytes", "got 20"});
  t = good;
  t.data = reinterpret_cast<char*>(y.data()) + 2;
  refused("y", t, TENON_INVALID_ARGUMENT, {"'y'", "aligned to 2 bytes"});
  const int64_t turned[] = {1, 2}, dense[] = {3, 1};
  t = good;
  t.strides = turned;
  refused("y", t, TENON_INVALID_ARGUMENT, {"'y'", "strides", "dense"});
  t = good;
  t.flags = TENON_TENSOR_READ_ONLY;
  refused("y", t, TENON_INVALID_ARGUMENT, {"output 'y'", "read-only"});
  t.flags = 6;
  refused("y", t, TENON_INVALID_ARGUMENT, {"flags 6"});
  t = good;
  t.device = detail::str("nowhere:3");
  refused("y", t, TENON_NOT_FOUND, {"nowhere:3"});
  // Overlaps, of a single element too.
  t = good;
  t.data = a.data();
  refused("y", t, TENON_INVALID_ARGUMENT, {"output 'y'", "overlaps", "input 'a'"});
  t.data = b.data() + 2;
  refused("y", t, TENON_INVALID_ARGUMENT, {"output 'y'", "overlaps", "input 'b'"});
  t = good;
  t.strides = dense;
  bind(s.context, "y", t);
  t.data = y.data() + 2;
  refused("z", t, TENON_INVALID_ARGUMENT, {"output 'z'", "overlaps", "output 'y'"});
  refused("a", t, TENON_INVALID_ARGUMENT, {"input 'a'", "overlaps", "output 'y'"});
  // What was refused has changed nothing. Inputs may share memory.
  s.context.run();
  CHECK(Floats(y.data(), y.data() + 6) == kY);
  s.context.bind("b", {3}, a.span().first(3));
  s.context.run();
  CHECK(Floats(y.data(), y.data() + 6) == Floats{2, 4, 6, 5, 7, 9});
  // A name may be bound again over its own memory.
  bind(s.context, "y", good);

  Subject twice("cpu:0",
                "graph {\n input x: f32[2]\n y = unary(x) {kind=\"neg\"}\n output \"x\" = y\n}");
  Room x(2);
  tenon_code code = TENON_OK;
  CHECK(says(error_of([&] { twice.context.bind("x", {2}, x.span()); }, &code),
             {"'x'", "an input and an output"}));
  // Types that do not depend on symbols are checked at once.
  Subject fixed("cpu:0",
                "graph {\n input x: f32[2]\n y = unary(x) {kind=\"neg\"}\n output \"y\" = y\n}");
  CHECK(says(error_of(
                 [&] {
                   fixed.context.bind("y", {1, 2}, x.span());
                 },
                 &code),
             {"output 'y'", "f32[2]", "f32[1,2]"}));
  CHECK(code == TENON_SHAPE_MISMATCH);
  // An address that is not aligned as the device wants it.
  Subject picky("adversary:0");
  t = good;
  t.data = y.data() + 1;
  t.device = detail::str("adversary:0");
  CHECK(says(error_of([&] { bind(picky.context, "y", t); }, &code),
             {"output 'y'", "aligned to 4 bytes", "expected 32"}));
  CHECK(code == TENON_INVALID_ARGUMENT);
  // A device that imports nothing.
  t.device = detail::str("adversary:1");
  Subject other("cpu:0");
  Room b2(kB), a2(kA);
  other.context.bind("a", {2, 3}, a2.span());
  other.context.bind("b", {3}, b2.span());
  CHECK(says(error_of([&] { bind(other.context, "y", t); }, &code),
             {"output 'y'", "adversary:1", "imports no memory"}));
  CHECK(code == TENON_UNSUPPORTED);
}

TEST_CASE("bind: set and unbind end a binding") {
  for (const std::string device : {"cpu:0", "adversary:1"}) {
    CAPTURE(device);
    Subject s(device);
    Room a(kA), b(kB), y(6);
    s.context.bind("a", {2, 3}, a.span());
    s.context.bind("b", {3}, b.span());
    s.context.bind("y", {2, 3}, y.span());
    s.context.run();
    s.context.set("a", {2, 3}, Floats(6, 1));
    a = Floats(6, 99);
    s.context.run();
    CHECK(y.values() == Floats{11, 21, 31, 11, 21, 31});
    s.context.unbind("y");
    y = Floats(6, -1);
    if (device == "cpu:0")
      CHECK(says(error_of([&] { s.context.get<float>("y"); }), {"'y'", "no longer bound"}));
    s.context.run();
    CHECK(y.values() == Floats(6, -1));
    CHECK(s.context.get<float>("y") == Floats{11, 21, 31, 11, 21, 31});
    s.context.unbind("b");
    CHECK(says(error_of([&] { s.context.run(); }), {"'b' is not set"}));
    CHECK(says(error_of([&] { s.context.unbind("b"); }), {"'b'"}));
    CHECK(says(error_of([&] { s.context.unbind("q"); }), {"'q'"}));
    s.context.set("b", {3}, Floats{1, 2, 3});  // other values than those that were bound
    s.context.run();
    CHECK(s.context.get<float>("y") == Floats{2, 3, 4, 2, 3, 4});
    s.context.set("a", {2, 3}, kA);
    s.context.run();
    s.context.bind("a", {2, 3}, a.span());
    s.context.run();
    s.context.unbind("a");
    s.context.set("a", {2, 3}, Floats(6, 7));
    s.context.run();
    CHECK(s.context.get<float>("y") == Floats{8, 9, 10, 8, 9, 10});
  }
}

TEST_CASE("bind: of two outputs that are one value, one is bound") {
  Subject s("cpu:0", R"(graph {
    input x: f32[2]
    y = unary(x) {kind="neg"}
    output "y" = y
    output "again" = y
  })");
  Room x(Floats{1, 2}), y(2);
  s.context.bind("x", {2}, x.span());
  s.context.bind("y", {2}, y.span());
  s.context.run();
  CHECK(y.values() == Floats{-1, -2});
  CHECK(s.context.output("y").data == y.data());
  CHECK(s.context.output("again").data != y.data());
  y = Floats{5, 5};
  CHECK(s.context.get<float>("again") == Floats{-1, -2});
  s.context.unbind("y");
  CHECK(s.context.get<float>("again") == Floats{-1, -2});
}

TEST_CASE("bind: where an output is does not depend on what is bound afterwards") {
  for (const std::string device : {"cpu:0", "adversary:0", "adversary:1"}) {
    CAPTURE(device);
    Subject s(device);
    Room a(kA), other(kA), b(kB), y(6);
    s.context.bind("a", {2, 3}, a.span());
    s.context.bind("b", {3}, b.span());
    s.context.bind("y", {2, 3}, y.span());
    s.context.run();
    s.context.bind("a", {2, 3}, other.span());
    CHECK(s.context.output("y").data == y.data());
    CHECK(s.context.output("y").device.size == 0);
    tenon_code code = TENON_OK;
    CHECK(
        says(error_of([&] { s.context.output_dlpack("y"); }, &code), {"'y'", "memory of the app"}));
    CHECK(code == TENON_INVALID_ARGUMENT);
  }
}

TEST_CASE("bind: an output that is also an update") {
  for (const std::string device : kDevices) {
    CAPTURE(device);
    Store store(runtime());
    store.set(TENON_SPACE_STATE, "s", {2}, Floats{1, 2});
    const Graph graph = Graph::parse(R"(graph {
      state s: f32[2]
      y = unary(s) {kind="neg"}
      update s = y
      output "y" = y
    })",
                                     "update");
    const Executable executable(runtime(), graph, store, {.device = device});
    Context context(executable);
    Room y(2);
    context.bind("y", {2}, y.span());
    for (int k = 0; k < 3; ++k) {
      context.run_async();
      context.wait();
      CHECK(y.values() == (k % 2 ? Floats{1, 2} : Floats{-1, -2}));
      y = Floats{9, 9};
    }
  }
}

TEST_CASE("bind: contexts of one executable do not see each other's memory") {
  Subject s("cpu:0");
  Context second(s.executable);
  Room a(kA), b(kB), y(6), y2(6), a2(Floats(6, 0));
  for (Context* c : {&s.context, &second}) c->bind("b", {3}, b.span());
  s.context.bind("a", {2, 3}, a.span());
  second.bind("a", {2, 3}, a2.span());
  s.context.bind("y", {2, 3}, y.span());
  second.bind("y", {2, 3}, y2.span());
  for (int k = 0; k < 50; ++k) {
    s.context.run_async();
    second.run_async();
    s.context.wait();
    second.wait();
    REQUIRE(y.values() == kY);
    REQUIRE(y2.values() == Floats{10, 20, 30, 10, 20, 30});
  }
}

TEST_CASE("bind: the alignment of a device can be asked for") {
  const auto alignment_of = [](const char* device) {
    uint64_t alignment = 7;
    detail::check(
        tenon_runtime_import_alignment(runtime().handle(), detail::str(device), &alignment));
    return alignment;
  };
  CHECK(alignment_of("cpu:0") == 1);
  CHECK(alignment_of("adversary:0") == 32);
  CHECK(alignment_of("adversary:1") == 0);
}
