// SPDX-License-Identifier: Apache-2.0
// .npy and .npz files: what NumPy writes, what tenon writes, damaged ones.
#include "import/npy.hpp"

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "import/tensor_file.hpp"

using namespace tenon::core;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path;
  Folder() {
    char name[] = "/tmp/tenon-npy-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator()(const std::string& name) const { return (path / name).string(); }
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream((*this)(name), std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return (*this)(name);
  }
};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
std::string data_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}
std::string little(uint64_t v, size_t size) { return {reinterpret_cast<const char*>(&v), size}; }
// A file as NumPy writes it.
std::string npy(const std::string& header, const std::string& data, int version = 1) {
  return "\x93NUMPY" + std::string(1, static_cast<char>(version)) + '\0' +
         little(header.size(), version == 1 ? 2 : 4) + header + data;
}
std::string header(const std::string& descr, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }\n";
}
std::string_view text_of(const Bytes& b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

template <class Read>
void check_failure(Code code, std::string_view part, const Read& read) {
  try {
    static_cast<void>(read());
    FAIL("no failure; expected '" << part << "'");
  } catch (const Error& e) {
    const std::string text = e.what();
    CHECK(e.code() == code);
    CHECK_MESSAGE(text.find(part) != text.npos, "expected '", part, "' in: ", text);
  }
}

NamedTensor sample(const std::string& name, DType dtype = kI32) {
  NamedTensor t{.name = name, .type = {dtype, {2, 3}}, .content = {}};
  t.content.resize(type_bytes(t.type));
  for (size_t i = 0; i < t.content.size(); ++i)
    t.content[i] = std::byte(dtype == kBool ? i % 2 : i);
  return t;
}
TensorView view(const NamedTensor& t) { return {t.name, t.type, t.content}; }

}  // namespace

TEST_SUITE("import/npy") {
  TEST_CASE("npy: what NumPy writes, in each version of the format") {
    const Folder f;
    for (const int version : {1, 2, 3}) {
      const NamedTensor t = read_npy(f.write(
          "a.npy", npy(header("<f4", "(2, 3)"), data_of<float>({1, 2, 3, 4, 5, 6}), version)));
      CHECK(t.type == Type{kF32, {2, 3}});
      CHECK(text_of(t.content) == data_of<float>({1, 2, 3, 4, 5, 6}));
    }
    CHECK(read_npy(f.write("a.npy", npy(header("<i8", "()"), data_of<int64_t>({7})))).type ==
          Type{kI64, {}});
    CHECK(read_npy(f.write("a.npy", npy(header("|u1", "(3,)"), "abc"))).type == Type{kU8, {3}});
    CHECK(read_npy(f.write("a.npy", npy(header("<f8", "(0, 4)"), ""))).content.empty());
    // Other writers: keys in another order, double quotes, long integers of Python 2.
    CHECK(
        read_npy(f.write("a.npy", npy("{\"shape\":(3L,),\"fortran_order\":False,\"descr\":\"=i2\"}",
                                      "abcdef")))
            .type == Type{kI16, {3}});
  }

  TEST_CASE("npy: Fortran's order, big-endian numbers, and bools that are neither 0 nor 1") {
    const Folder f;
    // [[1, 2, 3], [4, 5, 6]] by columns
    CHECK(text_of(read_npy(f.write("a.npy", npy(header("<i4", "(2, 3)", true),
                                                data_of<int32_t>({1, 4, 2, 5, 3, 6}))))
                      .content) == data_of<int32_t>({1, 2, 3, 4, 5, 6}));
    CHECK(text_of(
              read_npy(f.write("a.npy", npy(header(">u2", "(2,)"), "\x01\x02\x03\x04"))).content) ==
          "\x02\x01\x04\x03");
    // Of a complex number each part is swapped.
    CHECK(text_of(read_npy(f.write("a.npy", npy(header(">c8", "(1,)"), "abcdefgh"))).content) ==
          "dcbahgfe");
    CHECK(text_of(read_npy(f.write("a.npy", npy(header("|b1", "(2,)"), "\x02\xff"))).content) ==
          "\x01\x01");
  }

  TEST_CASE("npy: each dtype is read as it was written; the header ends on 64 bytes") {
    const Folder f;
    for (const DType dtype : {kBool, kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kF16, kF32, kF64,
                              DType{TENON_DTYPE_C64}, DType{TENON_DTYPE_C128}}) {
      const NamedTensor t = sample("", dtype);
      write_npy(f("a.npy"), view(t));
      const NamedTensor again = read_npy(f("a.npy"));
      CHECK(again.type == t.type);
      CHECK(again.content == t.content);
      const std::string bytes = bytes_of(f("a.npy"));
      CHECK((bytes.size() - t.content.size()) % 64 == 0);
      CHECK(bytes[bytes.size() - t.content.size() - 1] == '\n');
    }
    const NamedTensor half = sample("h", kBF16);
    check_failure(Code::unsupported, "tensor 'h': NumPy has no dtype for bf16", [&] {
      write_npy(f("b.npy"), view(half));
      return 0;
    });
    CHECK(!fs::exists(f("b.npy")));
  }

  TEST_CASE("npy: damaged headers, data of another size, dtypes that tenon lacks") {
    const Folder f;
    const auto bad = [&](Code code, std::string_view part, const std::string& bytes) {
      check_failure(code, part, [&] { return read_npy(f.write("bad.npy", bytes)); });
    };
    const std::string good = npy(header("<i4", "(2,)"), "12345678");
    for (size_t size = 0; size < good.size(); ++size)
      check_failure(Code::corrupt, "bad.npy: ", [&] {
        return read_npy(f.write("bad.npy", good.substr(0, size)));
      });
    bad(Code::corrupt, "i32[2] has 8 bytes, the file has 9", good + "x");
    bad(Code::unsupported, "version 4 of the format", npy(header("<i4", "()"), "1234", 4));
    bad(Code::unsupported, "dtype '|O': expected bool", npy(header("|O", "()"), ""));
    bad(Code::unsupported, "hint: save bfloat16", npy(header("<V2", "()"), "12"));
    bad(Code::unsupported, "array of structs",
        npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (), }", ""));
    bad(Code::unsupported, "more than 8 dims", npy(header("|u1", "(1,1,1,1,1,1,1,1,1)"), "1"));
    bad(Code::corrupt, "size overflows", npy(header("<f8", "(4294967296, 4294967296)"), ""));
    bad(Code::corrupt, "u8[1099511627776] has", npy(header("|u1", "(1099511627776,)"), "1"));
    bad(Code::corrupt, "expected a dim", npy(header("|u1", "(-1,)"), ""));
    bad(Code::corrupt, "expected a dim", npy(header("|u1", "(99999999999999999999,)"), ""));
    bad(Code::corrupt, "key 'descr' is there twice", npy("{'descr': '<i4', 'descr': '<i4'}", ""));
    bad(Code::corrupt, "key 'a' is not known", npy("{'a': 1}", ""));
    bad(Code::corrupt, "expected descr, fortran_order and shape", npy("{}", ""));
    bad(Code::corrupt, "there is more behind it", npy(header("|u1", "()") + "x", "1"));
    bad(Code::corrupt, "expected True or False",
        npy("{'fortran_order': 0, 'descr': '<i4', 'shape': ()}", ""));
    bad(Code::corrupt, "a string has no end", npy("{'descr", ""));
    // A header of 2^32 - 1 bytes.
    bad(Code::corrupt, "the header of 4294967295 bytes does not fit",
        std::string("\x93NUMPY\2\0", 8) + "\xff\xff\xff\xff{}");
  }

  TEST_CASE("npz: members are read as they were written, stored and deflated") {
    const Folder f;
    NamedTensor empty{.name = "empty", .type = {kF32, {0}}, .content = {}};
    NamedTensor zeros{.name = "zeros", .type = {kF64, {300, 300}}, .content = Bytes(720000)};
    const std::vector<NamedTensor> all = {sample("a"), sample("b/c", kU8), empty, zeros};
    std::vector<TensorView> views;
    for (const NamedTensor& t : all) views.push_back(view(t));
    for (const bool deflate : {false, true}) {
      write_npz(f("a.npz"), views, deflate);
      CHECK((fs::file_size(f("a.npz")) < 10000) == deflate);
      const std::vector<NamedTensor> again = read_npz(f("a.npz"));
      REQUIRE(again.size() == all.size());
      for (size_t i = 0; i < all.size(); ++i) {
        CHECK(again[i].name == all[i].name);
        CHECK(again[i].type == all[i].type);
        CHECK(again[i].content == all[i].content);
      }
    }
    write_npz(f("none.npz"), {}, false);
    CHECK(read_npz(f("none.npz")).empty());
    const TensorView twice[] = {views[0], views[0]};
    check_failure(Code::invalid_argument, "member 'a.npy' is there twice", [&] {
      write_npz(f("twice.npz"), twice, false);
      return 0;
    });
    CHECK(!fs::exists(f("twice.npz")));
  }

  TEST_CASE("npz: archives that are cut or damaged at any byte are refused or read as they were") {
    const Folder f;
    const NamedTensor t = sample("a");
    for (const bool deflate : {false, true}) {
      const TensorView v = view(t);
      write_npz(f("a.npz"), {&v, 1}, deflate);
      const std::string good = bytes_of(f("a.npz"));
      size_t refused = 0;
      for (size_t at = 0; at < good.size(); ++at) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 0x55);
        try {
          const std::vector<NamedTensor> got = read_npz(f.write("bad.npz", bad));
          // What changed is a date, a version, an attribute or the name.
          REQUIRE(got.size() == 1);
          CHECK(got[0].content == t.content);
        } catch (const Error& e) {
          CHECK((e.code() == Code::corrupt || e.code() == Code::unsupported));
          ++refused;
        }
        check_failure(Code::corrupt, "bad.npz",
                      [&] { return read_npz(f.write("bad.npz", good.substr(0, at))); });
      }
      CHECK(refused > good.size() / 2);
    }
  }

  TEST_CASE("npz: sizes that do not fit the archive, and members that are no arrays") {
    const Folder f;
    const NamedTensor t = sample("a");
    const TensorView v = view(t);
    write_npz(f("a.npz"), {&v, 1}, true);
    const std::string good = bytes_of(f("a.npz"));
    const size_t central = good.find("PK\1\2"), end = good.find("PK\5\6");
    REQUIRE((central != good.npos && end != good.npos));
    const auto bad = [&](Code code, std::string_view part, size_t at, const std::string& with) {
      std::string bytes = good;
      bytes.replace(at, with.size(), with);
      check_failure(code, part, [&] { return read_npz(f.write("bad.npz", bytes)); });
    };
    // A bomb: a gigabyte from some hundred bytes.
    bad(Code::corrupt, "bytes cannot give 1073741824", central + 24, little(1 << 30, 4));
    bad(Code::corrupt, "the members have more than", central + 20, little(1 << 30, 4));
    bad(Code::corrupt, "compressed data is damaged", central + 24, little(200, 4));
    bad(Code::corrupt, "checksum is wrong", central + 16, little(1, 4));
    bad(Code::corrupt, "its header is beyond the end", central + 42, little(1 << 30, 4));
    bad(Code::corrupt, "its header is damaged", central + 42, little(1, 4));
    bad(Code::unsupported, "is encrypted", central + 8, little(1, 2));
    bad(Code::unsupported, "compression method 12", central + 10, little(12, 2));
    bad(Code::corrupt, "an entry leaves the directory", central + 28, little(1000, 2));
    bad(Code::unsupported, "is no array; expected NAME.npy", central + 46, "x.txt");
    bad(Code::corrupt, "does not fit its 65534 members", end + 10, little(65534, 2));
    bad(Code::corrupt, "the directory of", end + 16, little(1 << 30, 4));
    bad(Code::unsupported, "one of several files", end + 4, little(1, 2));
    check_failure(Code::corrupt, "is no ZIP archive",
                  [&] { return read_npz(f.write("bad.npz", std::string(100000, 'x'))); });
  }

  TEST_CASE("tensor file: the content says what it is, the name what is written") {
    const Folder f;
    const NamedTensor t = sample("a");
    const TensorView v[] = {view(t), {"b", t.type, t.content}};
    write_tensors(f("a.npy"), {v, 1}, false);
    write_tensors(f("b.npz"), v, true);
    fs::rename(f("a.npy"), f("x"));
    fs::rename(f("b.npz"), f("y"));
    CHECK(read_tensors(f("x")).at(0).content == t.content);
    CHECK(read_tensors(f("y")).at(1).name == "b");
    // TensorProto: dims 2, int64_data 1 2, name.
    const std::vector<NamedTensor> proto =
        read_tensors(f.write("t.pb", std::string("\x0a\1\2\x10\7\x3a\2\1\2\x42\1n", 12)));
    CHECK((proto.at(0).name == "n" && proto[0].type == Type{kI64, {2}}));
    check_failure(Code::unsupported, "is no file of tensors",
                  [&] { return read_tensors(f.write("t.txt", "hello")); });
    check_failure(Code::unsupported, "is no file of tensors",
                  [&] { return read_tensors(f.write("t.txt", "")); });
    const auto write = [&](const std::string& name, size_t count, bool deflate) {
      write_tensors(f(name), {v, count}, deflate);
      return 0;
    };
    check_failure(Code::invalid_argument, "ends with .npy or .npz",
                  [&] { return write("a.txt", 1, false); });
    check_failure(Code::invalid_argument, "holds one tensor, got 2",
                  [&] { return write("a.npy", 2, false); });
    check_failure(Code::invalid_argument, "is not compressed",
                  [&] { return write("a.npy", 1, true); });
  }
}
