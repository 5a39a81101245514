// SPDX-License-Identifier: Apache-2.0
// GGUF files: every type of metadata, tensors, shards, what the writer writes, and each fault that a
// file can have.
#include "import/gguf.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "gguf_bytes.hpp"
#include "import/gguf_write.hpp"

using namespace tenon::core;
using tenon::test::GgufBytes;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path;
  Folder() {
    char name[] = "/tmp/tenon-gguf-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path); }
  std::string file(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return (path / name).string();
  }
};

// Opens the bytes as a file and returns the message, without the folder.
std::string refusal(const GgufBytes& b, Code code = Code::corrupt) {
  const Folder folder;
  const std::string path = folder.file("m.gguf", b.bytes());
  try {
    const GgufFile file(path);
  } catch (const Error& e) {
    CHECK(e.code() == code);
    const std::string text = e.what();
    REQUIRE(text.starts_with(path));
    return text.substr(path.size() - 6);
  }
  return "accepted";
}

GgufBytes with_key(std::string_view name, uint32_t type) {
  GgufBytes b(3, 0, 1);
  b.key(name, type);
  return b;
}

}  // namespace

TEST_SUITE("import/gguf") {
  TEST_CASE("gguf: every type of metadata, as values and as JSON") {
    GgufBytes b(3, 0, 15);
    b.key("u8", 0).number<uint8_t>(200);
    b.key("i8", 1).number<int8_t>(-5);
    b.key("u16", 2).number<uint16_t>(65535);
    b.key("i16", 3).number<int16_t>(-300);
    b.key("u32", 4).number<uint32_t>(4000000000);
    b.key("i32", 5).number<int32_t>(-70000);
    b.key("f32", 6).number(1e-6F);
    b.key("bool", 7).number<uint8_t>(1);
    b.key("text", 8).text("a \"b\"\n\xff");
    b.key("u64", 10).u64(UINT64_MAX);
    b.key("i64", 11).number<int64_t>(INT64_MIN);
    b.key("f64", 12).number(0.1);
    b.key("numbers", 9).u32(3).size(3).number<int16_t>(1).number<int16_t>(-2).number<int16_t>(3);
    b.key("words", 9).u32(8).size(200);
    for (int i = 0; i < 200; ++i) b.text("w" + std::to_string(i));
    b.key("nested", 9).u32(9).size(2);
    b.u32(0).size(2).number<uint8_t>(7).number<uint8_t>(8);
    b.u32(8).size(1).text("x");
    const Folder folder;
    const GgufFile file(folder.file("m.gguf", b.bytes()));
    const auto json = [&](std::string_view key, uint64_t most = UINT64_MAX) {
      const GgufValue* v = file.find(key);
      REQUIRE(v);
      return gguf_json(*v, most);
    };
    CHECK(file.values().size() == 15);
    CHECK(file.version() == 3);
    CHECK(json("u8") == "200");
    CHECK(json("i8") == "-5");
    CHECK(json("u16") == "65535");
    CHECK(json("i16") == "-300");
    CHECK(json("u32") == "4000000000");
    CHECK(json("i32") == "-70000");
    CHECK(json("f32") == "1e-06");
    CHECK(json("bool") == "true");
    CHECK(json("text") == "\"a \\\"b\\\"\\n\xef\xbf\xbd\"");
    CHECK(json("u64") == "18446744073709551615");
    CHECK(json("i64") == "-9223372036854775808");
    CHECK(json("f64") == "0.1");
    CHECK(json("numbers") == "[1, -2, 3]");
    CHECK(json("words", 2) == R"(["w0", "w1", ...])");
    CHECK(json("nested") == R"([[7, 8], ["x"]])");
    const GgufValue& words = *file.find("words");
    for (const uint64_t i : {0, 1, 63, 64, 65, 128, 199})
      CHECK(gguf_text(words, i) == "w" + std::to_string(i));
    CHECK(gguf_text(gguf_nested(*file.find("nested"), 1)) == "x");
    CHECK_THROWS_WITH_AS(gguf_text(words, 200), "key 'words': element 200 of 200", Error);
    CHECK_THROWS_WITH_AS(gguf_text(*file.find("u8")), "key 'u8': is of type u8; expected string",
                         Error);
    CHECK(file.find("word") == nullptr);
  }

  TEST_CASE("gguf: tensors of versions 1, 2 and 3, with their shapes reversed") {
    for (const uint32_t version : {1, 2, 3}) {
      GgufBytes b(version, 4, 1);
      b.key("general.alignment", 4).u32(64);
      b.tensor("w", {64, 3}, 8, 0).tensor("s", {}, 0, 256).tensor("e", {0, 5}, 1, 256);
      b.tensor("odd", {8}, 1000, 0).data(260, 64);
      const Folder folder;
      const GgufFile file(folder.file("m.gguf", b.bytes()));
      REQUIRE(file.tensors().size() == 4);
      const GgufTensor& w = *file.find_tensor("w");
      CHECK(w.format->name == "Q8_0");
      CHECK(w.rank == 2);
      CHECK(w.dims[0] == 3);
      CHECK(w.dims[1] == 64);
      CHECK(file.content(w).size() == 204);
      CHECK(file.content(w)[203] == std::byte{203});
      CHECK(w.begin % 64 == 0);
      CHECK(file.content(*file.find_tensor("s")).size() == 4);
      CHECK(file.content(*file.find_tensor("s"))[1] == std::byte{1});
      CHECK(file.content(*file.find_tensor("e")).empty());
      CHECK_THROWS_WITH_AS(file.content(*file.find_tensor("odd")),
                           "tensor 'odd': its type 1000 is not known", Error);
      CHECK(file.find_tensor("x") == nullptr);
    }
  }

  TEST_CASE("gguf: faults of headers and metadata are named with their byte") {
    CHECK(refusal(GgufBytes().cut(4)) ==
          "m.gguf: byte 16: the file ends before the number of keys");
    CHECK(refusal(GgufBytes().cut(20)) ==
          "m.gguf: byte 0: is no GGUF file: expected it to begin with 'GGUF'");
    CHECK(refusal(GgufBytes(0), Code::unsupported) == "m.gguf: GGUF version 0; expected 1 to 3");
    CHECK(refusal(GgufBytes(4), Code::unsupported) == "m.gguf: GGUF version 4; expected 1 to 3");
    CHECK(refusal(GgufBytes(3 << 24), Code::unsupported) ==
          "m.gguf: is a big-endian file; expected a little-endian one");
    CHECK(refusal(GgufBytes(3, 0, uint64_t{1} << 60)) ==
          "m.gguf: byte 24: 1152921504606846976 keys do not fit the 0 bytes behind it");
    CHECK(refusal(GgufBytes(3, 7, 0)) ==
          "m.gguf: byte 24: 7 tensors do not fit the 0 bytes behind it");
    CHECK(refusal(with_key("", 0).u64(0)) ==
          "m.gguf: byte 24: a key has 0 bytes; expected 1 to 65535");
    CHECK(refusal(with_key(std::string(65536, 'k'), 0).u64(0)) ==
          "m.gguf: byte 24: a key has 65536 bytes; expected 1 to 65535");
    CHECK(refusal(with_key("k", 13).u64(0)) == "m.gguf: byte 37: key 'k': type 13 is not known");
    CHECK(refusal(with_key("key", 10).u32(0)) ==
          "m.gguf: byte 39: key 'key': the file ends before the value");
  }

  TEST_CASE("gguf: faults of values") {
    CHECK(refusal(with_key("b", 7).number<uint8_t>(2).u64(0)) ==
          "m.gguf: byte 37: key 'b': a bool is 2; expected 0 or 1");
    CHECK(refusal(with_key("s", 8).u64(9).u32(0)) ==
          "m.gguf: byte 45: key 's': a string of 9 bytes does not fit the 4 bytes left");
    CHECK(
        refusal(with_key("a", 9).u32(4).u64(uint64_t{1} << 62)) ==
        "m.gguf: byte 49: key 'a': 4611686018427387904 elements do not fit the 0 bytes behind it");
    CHECK(refusal(with_key("a", 9).u32(8).u64(3).text("x")) ==
          "m.gguf: byte 49: key 'a': 3 elements do not fit the 9 bytes behind it");
    GgufBytes deep = with_key("a", 9);
    for (int i = 0; i < 4; ++i) deep.u32(9).u64(1);
    CHECK(refusal(deep.u32(0).u64(0)) == "m.gguf: byte 85: key 'a': arrays in more than 4 arrays");
    GgufBytes twice(3, 0, 2);
    twice.key("k", 0).number<uint8_t>(1).key("k", 0).number<uint8_t>(1);
    CHECK(refusal(twice) == "m.gguf: key 'k' is there twice");
    CHECK(refusal(with_key("general.alignment", 4).u32(24)) ==
          "m.gguf: byte 57: general.alignment is 24; expected a power of two");
    CHECK(refusal(with_key("general.alignment", 4).u32(0)) ==
          "m.gguf: byte 57: general.alignment is 0; expected a power of two");
    CHECK(refusal(with_key("general.alignment", 10).u64(32)) ==
          "m.gguf: byte 61: general.alignment is of type u64; expected u32");
  }

  TEST_CASE("gguf: faults of tensors") {
    const auto one = [](std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset) {
      GgufBytes b(3, 1, 0);
      b.tensor("w", dims, type, offset);
      return b.data(4096);
    };
    CHECK(refusal(one({1, 1, 1, 1, 1}, 0, 0)) ==
          "m.gguf: byte 37: tensor 'w': rank 5; expected at most 4");
    CHECK(refusal(one({uint64_t{1} << 63}, 0, 0)) ==
          "m.gguf: byte 45: tensor 'w': dim 9223372036854775808 overflows");
    CHECK(refusal(one({uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0)) ==
          "m.gguf: byte 53: tensor 'w': the product of its dims overflows");
    CHECK(refusal(one({uint64_t{1} << 62}, 0, 0)).ends_with("tensor 'w': its size overflows"));
    CHECK(refusal(one({33}, 8, 0))
              .ends_with(
                  "tensor 'w': its rows have 33 elements; expected a multiple of 32 for Q8_0"));
    CHECK(
        refusal(one({}, 8, 0))
            .ends_with("tensor 'w': its rows have 1 elements; expected a multiple of 32 for Q8_0"));
    CHECK(refusal(one({4}, 0, 16))
              .ends_with("tensor 'w': offset 16 is no multiple of the alignment 32"));
    CHECK(refusal(one({1025}, 0, 0))
              .ends_with("tensor 'w': 4100 bytes at offset 0 leave the file, whose data begins at "
                         "byte 64 of 4160"));
    CHECK(refusal(one({4}, 0, UINT64_MAX - 31)).find("leave the file") != std::string::npos);
    CHECK(refusal(one({8}, 77, UINT64_MAX - 31)).find("leave the file") != std::string::npos);
    CHECK(refusal(one({1024}, 0, 0)) == "accepted");
    GgufBytes two(3, 2, 0);
    two.tensor("a", {16}, 0, 0).tensor("b", {16}, 0, 32).data(96);
    CHECK(refusal(two) == "m.gguf: byte 128: tensors 'a' and 'b' overlap");
    GgufBytes twins(3, 2, 0);
    twins.tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32).data(64);
    CHECK(refusal(twins) == "m.gguf: tensor 'a' is there twice");
    GgufBytes cut(3, 1, 0);
    cut.tensor("a", {8}, 0, 0).cut(1);
    CHECK(refusal(cut) == "m.gguf: byte 49: tensor 'a': the file ends before the offset");
  }

  TEST_CASE("gguf: any cut of a sound file is refused, none crashes") {
    GgufBytes b(3, 1, 2);
    b.key("words", 9).u32(8).size(2).text("ab").text("c").key("n", 12).number(2.5);
    b.tensor("w", {32}, 2, 0).data(18);
    CHECK(refusal(b) == "accepted");
    for (size_t cut = 1; cut < b.bytes().size(); ++cut) {
      GgufBytes part = b;
      CHECK(refusal(part.cut(cut)) != "accepted");
    }
  }

  TEST_CASE("gguf: shards are found from any of them, and must be whole") {
    const auto shard = [](uint16_t number, uint16_t count, std::string_view name,
                          int32_t total = 2) {
      GgufBytes b(3, 1, 3);
      b.key("split.no", 2).number(number).key("split.count", 2).number(count);
      b.key("split.tensors.count", 5).number(total);
      return b.tensor(name, {8}, 0, 0).data(32).bytes();
    };
    const Folder folder;
    const std::string first = folder.file("m-00001-of-00002.gguf", shard(0, 2, "a")),
                      second = folder.file("m-00002-of-00002.gguf", shard(1, 2, "b"));
    for (const std::string& path : {first, second}) {
      const GgufFile file(path);
      CHECK(file.shard_count() == 2);
      REQUIRE(file.tensors().size() == 2);
      CHECK(file.tensors()[1].name == "b");
      CHECK(file.tensors()[1].shard == 1);
      CHECK(file.content(*file.find_tensor("b"))[7] == std::byte{7});
    }
    const auto failure = [&](const std::string& path) {
      try {
        const GgufFile file(path);
      } catch (const Error& e) {
        return std::pair(e.code(), std::string(e.what()).substr(folder.path.string().size() + 1));
      }
      return std::pair(Code::ok, std::string());
    };
    folder.file("m-00002-of-00002.gguf", shard(1, 2, "a"));
    CHECK(
        failure(first) ==
        std::pair(Code::corrupt, std::string("m-00001-of-00002.gguf: tensor 'a' is there twice")));
    folder.file("m-00002-of-00002.gguf", shard(0, 2, "b"));
    CHECK(failure(first).second == "m-00002-of-00002.gguf: is file 1 of 2; expected file 2 of 2");
    folder.file("m-00002-of-00002.gguf", shard(1, 2, "b", 2));
    folder.file("m-00001-of-00002.gguf", shard(0, 2, "a", 3));
    CHECK(failure(first).second ==
          "m-00001-of-00002.gguf: the 2 files have 2 tensors; expected 3 (split.tensors.count)");
    fs::remove(second);
    CHECK(failure(first).first == Code::io_error);
    CHECK(failure(first).second.starts_with("m-00002-of-00002.gguf: open: "));
    const std::string renamed = folder.file("other.gguf", shard(0, 2, "a"));
    CHECK(failure(renamed).second ==
          "other.gguf: is file 1 of 2; expected a name that ends with -00001-of-00002.gguf, to "
          "find the others");
    CHECK(failure(folder.file("bad.gguf", shard(2, 2, "a"))).first == Code::corrupt);
  }

  TEST_CASE("gguf: the writer's file has what was set, in order, and is aligned") {
    const Folder folder;
    const std::string path = (folder.path / "w.gguf").string();
    const uint32_t layers = 7;
    const float eps[] = {1e-5F, 2};
    const std::string_view words[] = {"a", "", "\xc3\xa9"};
    std::vector<std::byte> q8(68), plain(12);
    for (size_t i = 0; i < q8.size(); ++i) q8[i] = static_cast<std::byte>(i);
    {
      GgufWriter w(path);
      w.set("general.architecture", "llama");
      w.set("llama.block_count", GgufType::u32, &layers);
      w.set("eps", GgufType::f32, eps, 2);
      w.set("words", words);
      w.add("a", *block_format("Q8_0"), std::vector<int64_t>{2, 32});
      w.add("none", *block_format("F32"), std::vector<int64_t>{0});
      w.add("b", *block_format("F32"), std::vector<int64_t>{3, 1, 1});
      CHECK_THROWS_AS(w.add("b", *block_format("F32"), std::vector<int64_t>{3}), Error);
      CHECK_THROWS_AS(w.add("c", *block_format("Q4_K"), std::vector<int64_t>{2, 32}), Error);
      CHECK_THROWS_AS(w.set("words", "again"), Error);
      w.content(std::span(q8).first(50));
      w.content(std::span(q8).subspan(50));
      CHECK_THROWS_AS(w.set("late", "x"), Error);
      CHECK_THROWS_AS(w.content(std::vector<std::byte>(13)), Error);
      CHECK_THROWS_AS(w.commit(), Error);
      CHECK(!fs::exists(path));
      w.content(plain);
      CHECK_THROWS_AS(w.content(plain), Error);
      w.commit();
    }
    const GgufFile file(path);
    CHECK(file.version() == 3);
    REQUIRE(file.values().size() == 4);
    CHECK(gguf_text(file.values()[0]) == "llama");
    CHECK(gguf_json(file.values()[1]) == "7");
    CHECK(gguf_json(file.values()[2]) == "[1e-05, 2]");
    CHECK(gguf_text(file.values()[3], 2) == "\xc3\xa9");
    REQUIRE(file.tensors().size() == 3);
    const GgufTensor &a = file.tensors()[0], &b = file.tensors()[2];
    CHECK(a.dims[1] == 32);
    CHECK(b.rank == 3);
    CHECK(b.dims[0] == 3);
    CHECK(a.begin % 32 == 0);
    CHECK(b.begin % 32 == 0);
    CHECK(b.begin == a.begin + 96);
    CHECK(std::ranges::equal(file.content(a), q8));
    CHECK(fs::file_size(path) == b.begin + 32);
    CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
  }
}
