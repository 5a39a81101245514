// SPDX-License-Identifier: Apache-2.0
// DLPack in both directions: who owns what until when, and what is refused.
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "rig.hpp"

// The structs of DLPack 1, written down here from its specification once more.
struct DLDevice {
  int32_t device_type, device_id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor dl_tensor;
};

using namespace tenon;
using namespace tenon::test;

namespace {

using Floats = std::vector<float>;

// A producer: one tensor of floats, which counts how often it is deleted.
struct Producer {
  alignas(64) float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t shape[9] = {2, 3, 1, 1, 1, 1, 1, 1, 1}, strides[9] = {3, 1, 0, 0, 0, 0, 0, 0, 0};
  std::atomic<int> deleted{0};
  DLManagedTensorVersioned managed{};

  Producer() {
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* m) {
      ++static_cast<Producer*>(m->manager_ctx)->deleted;
    };
    managed.dl_tensor = {data, {1, 0}, 2, {2, 32, 1}, shape, strides, 0};
  }
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;
};

const char* const kText = R"(graph {
  input x: f32[2,3]
  y = unary(x) {kind="neg"}
  output "y" = y
})";

struct Subject {
  std::optional<Store> store;
  std::optional<Executable> executable;
  std::optional<Context> context;
  explicit Subject(const std::string& device, const std::string& text = kText) {
    store.emplace(runtime());
    executable.emplace(runtime(), Graph::parse(text, "dlpack"), *store,
                       ExecutableOptions{.device = device});
    context.emplace(*executable);
  }
};

Floats floats_of(const DLManagedTensorVersioned& m, size_t count) {
  const auto* data = static_cast<const float*>(m.dl_tensor.data);
  return {data, data + count};
}

}  // namespace

TEST_CASE("dlpack: an input, read in place and given back") {
  for (const std::string device : {"cpu:0", "template:0", "adversary:0", "adversary:1"}) {
    CAPTURE(device);
    Producer first, second, third;
    {
      Subject s(device);
      s.context->bind_dlpack("x", &first.managed);
      s.context->run();
      CHECK(s.context->get<float>("y") == Floats{-1, -2, -3, -4, -5, -6});
      first.data[0] = 50;
      s.context->run();
      CHECK(s.context->get<float>("y")[0] == -50);
      CHECK(first.deleted == 0);
      // Another tensor takes its place: at the latest when the next run begins.
      second.managed.dl_tensor.byte_offset = 8;
      s.context->bind_dlpack("x", &second.managed);
      s.context->run();
      CHECK(s.context->get<float>("y") == Floats{-3, -4, -5, -6, -7, -8});
      CHECK(first.deleted == 1);
      CHECK(second.deleted == 0);
      s.context->unbind("x");
      CHECK(second.deleted == 1);
      s.context->bind_dlpack("x", &third.managed);
      s.context->run();
      s.context->set("x", {2, 3}, Floats(6, 2));
      CHECK(third.deleted == 1);
      s.context->run();
      CHECK(s.context->get<float>("y") == Floats(6, -2));
    }
    Producer last, unused;
    {
      Subject s(device);
      s.context->bind_dlpack("x", &unused.managed);
      s.context->bind_dlpack("x", &last.managed);
      s.context->run();
      CHECK(unused.deleted == 1);
      CHECK(last.deleted == 0);
    }
    CHECK(last.deleted == 1);
    CHECK(first.deleted + second.deleted + third.deleted == 3);
  }
}

TEST_CASE("dlpack: with symbols, the tensor of another size is given back too") {
  Subject s("cpu:0",
            "graph {\n input x: f32[N,3]\n y = unary(x) {kind=\"neg\"}\n output \"y\" = y\n}");
  Producer two, one;
  s.context->bind_dlpack("x", &two.managed);
  s.context->run();
  one.shape[0] = 1;
  s.context->bind_dlpack("x", &one.managed);
  s.context->run();
  CHECK(s.context->get<float>("y") == Floats{-1, -2, -3});
  CHECK(two.deleted == 1);
  CHECK(one.deleted == 0);
}

TEST_CASE("dlpack: an output outlives its runtime") {
  DLManagedTensorVersioned* y = nullptr;
  {
    const Runtime own(
        {.plugin_dirs = {TENON_TEST_PLUGINS}, .threads = 2, .use_environment = false});
    Store store(own);
    const Executable executable(own, Graph::parse(kText, "dlpack"), store,
                                {.device = "adversary:0"});
    Context context(executable);
    context.set("x", {2, 3}, Floats(6, 4));
    context.run();
    y = context.output_dlpack("y");
  }
  CHECK(floats_of(*y, 6) == Floats(6, -4));
  std::thread([y] { y->deleter(y); }).join();
}

TEST_CASE("dlpack: an output written in place") {
  Producer x, y;
  Subject s("cpu:0");
  s.context->bind_dlpack("x", &x.managed);
  s.context->bind_dlpack("y", &y.managed);
  s.context->run();
  CHECK(floats_of(y.managed, 6) == Floats{-1, -2, -3, -4, -5, -6});
  CHECK(s.context->output("y").data == y.data);
  tenon_code code = TENON_OK;
  CHECK(
      says(error_of([&] { s.context->output_dlpack("y"); }, &code), {"'y'", "memory of the app"}));
  CHECK(code == TENON_INVALID_ARGUMENT);
  s.context.reset();
  CHECK(y.deleted == 1);
}

TEST_CASE("dlpack: outputs that were given away never change, and outlive everything") {
  for (const std::string device : {"cpu:0", "adversary:0"}) {
    CAPTURE(device);
    std::vector<DLManagedTensorVersioned*> kept;
    {
      Subject s(device);
      for (int k = 0; k < 7; ++k) {  // each run needs another buffer
        s.context->set("x", {2, 3}, Floats(6, static_cast<float>(k)));
        s.context->run();
        kept.push_back(s.context->output_dlpack("y"));
        if (k == 3) {  // the same output twice is the same memory
          kept.push_back(s.context->output_dlpack("y"));
          CHECK(kept[4]->dl_tensor.data == kept[3]->dl_tensor.data);
          kept.back()->deleter(kept.back());
          kept.pop_back();
        }
        for (int j = 0; j <= k; ++j)
          REQUIRE(floats_of(*kept[static_cast<size_t>(j)], 6) == Floats(6, static_cast<float>(-j)));
      }
      // What was given back is used again.
      void* const free = kept[6]->dl_tensor.data;
      kept[6]->deleter(kept[6]);
      kept.pop_back();
      s.context->run();
      CHECK(s.context->output("y").data == free);
    }
    const DLTensor& t = kept[5]->dl_tensor;
    CHECK(kept[5]->version.major == 1);
    CHECK(kept[5]->flags == 0);
    CHECK(t.device.device_type == (device == "cpu:0" ? 1 : 12));
    CHECK(t.device.device_id == 0);
    CHECK(t.dtype.code == 2);
    CHECK(t.dtype.bits == 32);
    CHECK(t.dtype.lanes == 1);
    REQUIRE(t.ndim == 2);
    CHECK(t.shape[0] == 2);
    CHECK(t.shape[1] == 3);
    CHECK(t.strides[0] == 3);
    CHECK(t.strides[1] == 1);
    CHECK(floats_of(*kept[5], 6) == Floats(6, -5));
    for (auto* m : kept) std::thread([m] { m->deleter(m); }).join();
  }
}

TEST_CASE("dlpack: from one context into another, without a copy") {
  Subject first("cpu:0"), second("cpu:0");
  void* before = nullptr;
  for (int k = 0; k < 5; ++k) {
    first.context->set("x", {2, 3}, Floats(6, static_cast<float>(k)));
    first.context->run();
    // The second context still reads what the first one wrote before.
    CHECK(first.context->output("y").data != before);
    DLManagedTensorVersioned* y = first.context->output_dlpack("y");
    before = y->dl_tensor.data;
    CHECK(first.context->output("y").data == before);
    second.context->bind_dlpack("x", y);
    second.context->run();
    CHECK(second.context->get<float>("y") == Floats(6, static_cast<float>(k)));
  }
}

TEST_CASE("dlpack: every dtype, there and back") {
  const struct {
    const char* name;
    uint8_t code, bits;
  } kinds[] = {{"f32", 2, 32}, {"f16", 2, 16},    {"bf16", 4, 16},  {"f64", 2, 64},
               {"i8", 0, 8},   {"i16", 0, 16},    {"i32", 0, 32},   {"i64", 0, 64},
               {"u8", 1, 8},   {"u16", 1, 16},    {"u32", 1, 32},   {"u64", 1, 64},
               {"bool", 6, 8}, {"f8e4m3", 10, 8}, {"f8e5m2", 12, 8}};
  for (const auto& kind : kinds) {
    CAPTURE(kind.name);
    Subject s("cpu:0", std::string("graph {\n input x: ") + kind.name +
                           "[2,3]\n y = reshape(x) {shape=[6]}\n output \"y\" = y\n}");
    Producer x;
    x.managed.dl_tensor.dtype = {kind.code, kind.bits, 1};
    x.managed.dl_tensor.strides = nullptr;
    // 48 bytes of f64 and i64 do not fit the producer's data: a tensor of its own.
    alignas(64) unsigned char wide[48];
    std::fill_n(wide, 48, 1);
    x.managed.dl_tensor.data = wide;
    s.context->bind_dlpack("x", &x.managed);
    s.context->run();
    DLManagedTensorVersioned* y = s.context->output_dlpack("y");
    CHECK(y->dl_tensor.dtype.code == kind.code);
    CHECK(y->dl_tensor.dtype.bits == kind.bits);
    CHECK(
        std::equal(wide, wide + 6 * kind.bits / 8, static_cast<unsigned char*>(y->dl_tensor.data)));
    y->deleter(y);
  }
}

TEST_CASE("dlpack: what is refused stays the caller's") {
  Subject s("cpu:0");
  const auto refused = [&](const std::function<void(DLManagedTensorVersioned&)>& change,
                           tenon_code expected, std::initializer_list<std::string_view> words) {
    Producer p;
    change(p.managed);
    tenon_code code = TENON_OK;
    CHECK(says(error_of([&] { s.context->bind_dlpack("x", &p.managed); }, &code), words));
    CHECK(code == expected);
    CHECK(p.deleted == 0);
  };
  refused([](auto& m) { m.version.major = 2; }, TENON_INCOMPATIBLE, {"DLPack 2.0", "version 1"});
  refused([](auto& m) { m.dl_tensor.dtype.lanes = 4; }, TENON_UNSUPPORTED, {"4 lanes"});
  refused(
      [](auto& m) {
        m.dl_tensor.dtype = {5, 32, 1};
      },
      TENON_UNSUPPORTED, {"code 5", "32 bits"});
  refused([](auto& m) { m.dl_tensor.dtype = {0, 32, 1}; }, TENON_DTYPE_MISMATCH, {"i32[2,3]"});
  refused([](auto& m) { m.dl_tensor.ndim = 9; }, TENON_UNSUPPORTED, {"rank 9"});
  refused([](auto& m) { m.dl_tensor.ndim = -1; }, TENON_UNSUPPORTED, {"rank -1"});
  refused([](auto& m) { m.dl_tensor.shape = nullptr; }, TENON_INVALID_ARGUMENT, {"shape is NULL"});
  refused([](auto& m) { m.dl_tensor.data = nullptr; }, TENON_INVALID_ARGUMENT, {"data is NULL"});
  refused([](auto& m) { m.dl_tensor.shape[0] = -2; }, TENON_SHAPE_MISMATCH, {"negative"});
  refused([](auto& m) { m.dl_tensor.shape[0] = int64_t{1} << 62; }, TENON_INVALID_ARGUMENT,
          {"'x'"});
  refused([](auto& m) { m.dl_tensor.strides[0] = 4; }, TENON_INVALID_ARGUMENT, {"strides"});
  refused([](auto& m) { m.dl_tensor.strides[0] = -3; }, TENON_UNSUPPORTED, {"stride -3"});
  {  // of an axis of one element, the stride means nothing
    Producer row;
    row.shape[0] = 1;
    row.strides[0] = -7;
    tenon_tensor t{};
    t.struct_size = sizeof t;
    detail::check(tenon_tensor_from_dlpack(runtime().handle(), &row.managed, &t));
    CHECK(t.size == 12);
  }
  refused([](auto& m) { m.dl_tensor.strides[0] = INT64_MAX; }, TENON_INVALID_ARGUMENT, {"'x'"});
  refused([](auto& m) { m.dl_tensor.byte_offset = 1; }, TENON_INVALID_ARGUMENT,
          {"aligned to 1 bytes"});
  refused([](auto& m) { m.dl_tensor.device = {2, 77}; }, TENON_UNSUPPORTED, {"(2, 77)"});
  refused([](auto& m) { m.dl_tensor.device = {12, 1}; }, TENON_UNSUPPORTED, {"(12, 1)"});
  CHECK(says(error_of([&] { s.context->bind_dlpack("x", nullptr); }), {"NULL"}));
  Producer p;
  CHECK(says(error_of([&] { s.context->bind_dlpack("nope", &p.managed); }), {"'nope'"}));
  p.managed.flags = 1;
  CHECK(says(error_of([&] { s.context->bind_dlpack("y", &p.managed); }), {"'y'", "read-only"}));
  CHECK(p.deleted == 0);
  // A producer without a deleter, and memory that only the driver of a GPU has pinned.
  p.managed.deleter = nullptr;
  p.managed.dl_tensor.device = {3, 5};
  s.context->bind_dlpack("x", &p.managed);
  s.context->run();
  CHECK(s.context->get<float>("y")[5] == -6);
  // No output before the first run.
  Subject fresh("cpu:0");
  CHECK(says(error_of([&] { fresh.context->output_dlpack("y"); }), {"'y'"}));
  CHECK(says(error_of([&] { fresh.context->output("y"); }), {"'y'"}));
}

TEST_CASE("dlpack: set and stores copy, strides and all") {
  Producer p;
  // The transpose of 3x2.
  p.managed.dl_tensor.strides[0] = 1;
  p.managed.dl_tensor.strides[1] = 2;
  tenon_tensor t{};
  t.struct_size = sizeof t;
  detail::check(tenon_tensor_from_dlpack(runtime().handle(), &p.managed, &t));
  CHECK(t.size == 24);
  Subject s("cpu:0");
  detail::check(tenon_context_set(s.context->handle(), detail::str("x"), &t));
  detail::check(tenon_store_set(s.store->handle(), TENON_SPACE_WEIGHT, detail::str("w"), &t));
  s.context->run();
  CHECK(s.context->get<float>("y") == Floats{-1, -3, -5, -2, -4, -6});
  Floats w(6);
  s.store->get(TENON_SPACE_WEIGHT, "w", w.data(), 24);
  CHECK(w == Floats{1, 3, 5, 2, 4, 6});
  p.managed.dl_tensor.device = {12, 0};
  detail::check(tenon_tensor_from_dlpack(runtime().handle(), &p.managed, &t));
  CHECK(std::string_view(t.device.data, t.device.size) == "adversary:0");
}
