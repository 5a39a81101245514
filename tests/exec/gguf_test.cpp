// SPDX-License-Identifier: Apache-2.0
// GGUF files through the API: metadata and tensors written and read back, decoded, loaded into a
// store; memory that a store borrows.
#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/tenon-gguf-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}

tenon_code code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.code();
  }
  return TENON_OK;
}

// y = w + w, and with `update`, w becomes y.
Graph doubling(bool update) {
  Graph g;
  const Value w = g.weight("w", {f32, {4}}), y = w + w;
  g.output("y", y);
  if (update) g.update(w, y);
  return g;
}

const std::vector<float> kOnes{1, 2, 3, 4};

}  // namespace

TEST_SUITE("gguf") {
  TEST_CASE("metadata: what is written is read, and numbers convert if they fit") {
    const Folder folder;
    const std::string path = folder.path + "/m.gguf";
    {
      GgufWriter w(path);
      w.set("general.name", "a model");
      w.set("layers", uint32_t{22});
      w.set("big", uint64_t{1} << 40);
      w.set("below", int8_t{-3});
      w.set("eps", 1e-5F);
      w.set("on", true);
      w.set("words", std::vector<std::string>{"a", "b"});
      w.set("scores", std::vector<float>{0.5F, -1});
      w.commit();
    }
    const Gguf m(path);
    CHECK(m.version() == 3);
    CHECK(m.shard_count() == 1);
    CHECK(m.keys().size() == 8);
    CHECK(m.keys()[6].name == "words");
    CHECK(m.keys()[6].element_type == TENON_GGUF_STRING);
    CHECK(m.text("general.name") == "a model");
    CHECK(m.number<int64_t>("layers") == 22);
    CHECK(m.number<double>("layers") == 22);
    CHECK(m.number<float>("eps") == 1e-5F);
    CHECK(m.number<bool>("on"));
    CHECK(m.texts("words") == std::vector<std::string>{"a", "b"});
    CHECK(m.numbers<double>("scores") == std::vector<double>{0.5, -1});
    CHECK(m.json("words") == R"(["a", "b"])");
    CHECK(code_of([&] { m.number<uint32_t>("big"); }) == TENON_DTYPE_MISMATCH);
    CHECK(code_of([&] { m.number<uint32_t>("below"); }) == TENON_DTYPE_MISMATCH);
    CHECK(code_of([&] { m.number<int>("eps"); }) == TENON_DTYPE_MISMATCH);
    CHECK(code_of([&] { m.number<int>("scores"); }) == TENON_DTYPE_MISMATCH);
    CHECK(code_of([&] { m.number<int>("words"); }) == TENON_DTYPE_MISMATCH);
    CHECK(code_of([&] { m.text("layers"); }) == TENON_DTYPE_MISMATCH);
    CHECK(code_of([&] { m.text("none"); }) == TENON_NOT_FOUND);
    CHECK(!m.has("none"));
  }

  TEST_CASE("tensors: plain ones are borrowed, blocks decoded to the dtype asked for") {
    const Folder folder;
    const std::string path = folder.path + "/m.gguf";
    std::vector<float> numbers(256);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(noise(3, i));
    const GgufFormat q4 = gguf_format("Q4_K");
    const std::vector<std::byte> blocks = gguf_encode(q4, numbers);
    CHECK(blocks.size() == 144);
    {
      GgufWriter w(path);
      w.add("w", gguf_format("F32"), {4});
      w.add("q", q4, {1, 256});
      w.content(bytes_of(kOnes));
      w.content(blocks);
      w.commit();
    }
    Store store(runtime());
    Store other(runtime());
    const std::vector<float> decoded = gguf_decode<float>(q4, blocks);
    {
      const Gguf m(path);
      CHECK(m.tensor("q").dims == std::vector<int64_t>{1, 256});
      CHECK(m.tensor("q").format == "Q4_K");
      CHECK(m.tensor("w").dtype == f32);
      CHECK(std::ranges::equal(m.tensor("q").data, blocks));
      m.load("w", store, TENON_SPACE_WEIGHT, "w");
      m.load("w", other, TENON_SPACE_WEIGHT, "w", f64);
      m.load("q", store, TENON_SPACE_WEIGHT, "q", f32);
      m.load("q", store, TENON_SPACE_WEIGHT, "half", bf16);
      m.load("q", store, TENON_SPACE_WEIGHT, "blocks");
      CHECK(code_of([&] { m.load("q", store, TENON_SPACE_STATE, "q"); }) == TENON_UNSUPPORTED);
      CHECK(code_of([&] { m.load("none", store, TENON_SPACE_WEIGHT, "q"); }) == TENON_NOT_FOUND);
      CHECK(code_of([&] { m.load("q", store, TENON_SPACE_WEIGHT, "q", i32); }) ==
            TENON_UNSUPPORTED);
    }
    // The file is still mapped for the store.
    CHECK(store.get<float>(TENON_SPACE_WEIGHT, "w") == kOnes);
    CHECK(other.get<double>(TENON_SPACE_WEIGHT, "w") == std::vector<double>{1, 2, 3, 4});
    CHECK(store.get<float>(TENON_SPACE_WEIGHT, "q") == decoded);
    const auto half = store.get<BF16>(TENON_SPACE_WEIGHT, "half");
    CHECK(half[77].bits == BF16(decoded[77]).bits);
    {
      // Blocks stay blocks: a product decodes them.
      Graph g;
      const Value w = g.weight("blocks", {static_cast<tenon_dtype>(TENON_DTYPE_Q4_K), {1, 256}});
      g.output("y", g.dequantize_blocks(w)[0]);
      const Executable exe(runtime(), g, store, {.device = "cpu:0"});
      Context run(exe);
      run.run();
      CHECK(run.get<float>("y") == decoded);
    }
    for (const char* device : {"cpu:0", "template:0", "adversary:0"}) {
      const Executable exe(runtime(), doubling(false), store, {.device = device});
      Context run(exe);
      run.run();
      CHECK(run.get<float>("y") == std::vector<float>{2, 4, 6, 8});
    }
  }

  TEST_CASE("safetensors: an open file's tensors, read in place") {
    const Folder folder;
    const std::string path = folder.path + "/m.safetensors";
    Store store(runtime());
    store.set<float>(TENON_SPACE_WEIGHT, "w", {4}, kOnes);
    store.set<int32_t>(TENON_SPACE_WEIGHT, "n", {}, {7});
    store.save(TENON_SPACE_WEIGHT, path);
    Store other(runtime());
    {
      const Safetensors file(path);
      const auto entries = file.entries();
      REQUIRE(entries.size() == 2);
      CHECK(entries[0].name == "n");
      CHECK(entries[1].type == TensorType(f32, {4}));
      CHECK(std::ranges::equal(entries[1].data, bytes_of(kOnes)));
      file.load(1, other, TENON_SPACE_WEIGHT, "w");
      CHECK(code_of([&] { file.load(2, other, TENON_SPACE_WEIGHT, "w"); }) == TENON_NOT_FOUND);
    }
    const Executable exe(runtime(), doubling(false), other, {.device = "cpu:0"});
    Context run(exe);
    run.run();
    CHECK(run.get<float>("y") == std::vector<float>{2, 4, 6, 8});
  }

  TEST_CASE("formats: by name and number; unknown ones are not found") {
    CHECK(gguf_format("q8_0").type == 8);
    CHECK(gguf_format(12).name == "Q4_K");
    CHECK(gguf_format(30).dtype == bf16);
    CHECK(!gguf_format("IQ2_XS").decodes);
    CHECK(gguf_formats().size() == tenon_gguf_format_count());
    CHECK(code_of([] { gguf_format("Q9"); }) == TENON_NOT_FOUND);
    CHECK(code_of([] { gguf_format(""); }) == TENON_NOT_FOUND);
    CHECK(code_of([] { gguf_format(5); }) == TENON_NOT_FOUND);
  }

  TEST_CASE("borrow: the cpu reads in place; an update leaves the memory alone") {
    Store store(runtime());
    const auto w = std::make_shared<Tensor>(std::vector<int64_t>{4}, kOnes);
    store.borrow(TENON_SPACE_WEIGHT, "w", w);
    CHECK(store.get<float>(TENON_SPACE_WEIGHT, "w") == kOnes);
    const Executable exe(runtime(), doubling(false), store, {.device = "cpu:0"});
    Context run(exe);
    run.run();
    CHECK(run.get<float>("y") == std::vector<float>{2, 4, 6, 8});
    // Only a test may do this: it shows that there is no copy.
    w->values<float>()[0] = 10;
    run.run();
    CHECK(run.get<float>("y")[0] == 20);
    w->values<float>()[0] = 1;

    const Executable updating(runtime(), doubling(true), store, {.device = "cpu:0"});
    Context step(updating);
    step.run();
    step.run();
    CHECK(step.get<float>("y") == std::vector<float>{4, 8, 12, 16});
    CHECK(store.get<float>(TENON_SPACE_WEIGHT, "w") == std::vector<float>{4, 8, 12, 16});
    CHECK(std::ranges::equal(w->values<float>(), kOnes));
    run.run();
    CHECK(run.get<float>("y") == std::vector<float>{8, 16, 24, 32});
    store.set<float>(TENON_SPACE_WEIGHT, "w", {4}, {5, 5, 5, 5});
    run.run();
    CHECK(run.get<float>("y") == std::vector<float>{10, 10, 10, 10});
  }

  TEST_CASE("borrow: replaced content on every device, whatever was there before") {
    for (const char* device : {"cpu:0", "template:0", "adversary:0"}) {
      Store store(runtime());
      store.set<float>(TENON_SPACE_WEIGHT, "w", {4}, {0, 0, 0, 0});
      const Executable exe(runtime(), doubling(false), store, {.device = device}),
          updating(runtime(), doubling(true), store, {.device = device});
      Context run(exe), step(updating);
      const auto borrow = [&](float v) {
        const std::vector<float> all(4, v);
        store.borrow(TENON_SPACE_WEIGHT, "w",
                     std::make_shared<Tensor>(std::vector<int64_t>{4}, all));
      };
      const auto doubled = [&] {
        run.run();
        return run.get<float>("y")[3];
      };
      CHECK(doubled() == 0);
      borrow(3);
      CHECK(doubled() == 6);
      step.run();
      CHECK(doubled() == 12);
      borrow(5);
      CHECK(doubled() == 10);
      borrow(6);
      step.run();
      CHECK(step.get<float>("y")[0] == 12);
      CHECK(doubled() == 24);
      store.set<float>(TENON_SPACE_WEIGHT, "w", {4}, {1, 1, 1, 1});
      CHECK(doubled() == 2);
    }
  }

  TEST_CASE("borrow: released once, when nothing reads the memory any more") {
    static std::atomic<int> released;
    released = 0;
    const auto release = [](void*) { ++released; };
    const int64_t dim = 4;
    std::vector<float> memory = kOnes;
    tenon_tensor t{};
    t.struct_size = sizeof t;
    t.dims = &dim, t.rank = 1, t.dtype = f32, t.data = memory.data(), t.size = 16;
    const tenon_str name{"w", 1};
    {
      Store store(runtime());
      const auto borrow = [&] {
        return tenon_store_borrow(store.handle(), TENON_SPACE_WEIGHT, name, &t, release, nullptr);
      };
      CHECK(borrow() == nullptr);
      CHECK(released == 0);
      store.set<float>(TENON_SPACE_WEIGHT, "w", {4}, kOnes);
      CHECK(released == 1);
      CHECK(borrow() == nullptr);
      store.remove(TENON_SPACE_WEIGHT, "w");
      CHECK(released == 2);
      CHECK(borrow() == nullptr);
      t.size = 8;
      tenon_status* status = borrow();
      CHECK(status != nullptr);
      tenon_status_release(status);
      CHECK(released == 2);  // a failure does not release
    }
    CHECK(released == 3);
  }
}
