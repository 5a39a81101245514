// SPDX-License-Identifier: Apache-2.0
// Tensors of ONNX files: every way to store their numbers, data in other files, damaged ones.
#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "import/onnx/model.hpp"
#include "proto_writer.hpp"

using namespace tenon::core;
using tenon::test::Proto;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path;
  Folder() {
    char name[] = "/tmp/tenon-onnx-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { fs::remove_all(path); }
  std::string write(const std::string& name, std::string_view bytes) const {
    const fs::path file = path / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
    return file.string();
  }
};

// TensorProto: 1 dims, 2 data_type, 4 float_data, 5 int32_data, 7 int64_data, 8 name, 9 raw_data,
// 10 double_data, 11 uint64_data, 13 external_data, 14 data_location.
Proto tensor(std::initializer_list<int64_t> dims, int32_t element) {
  return Proto().packed(1, dims).number(2, element).text(8, "t");
}
// In a model whose only initializer it is.
onnx::Tensor read(const Proto& t, const std::string& folder = "") {
  const Proto model = Proto().message(7, Proto().message(5, t));
  return onnx::read_model(model.bytes(), folder).graph.initializers.at(0);
}
template <class T>
Bytes bytes_of(std::initializer_list<T> values) {
  Bytes out(values.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), values.begin(), out.size());
  return out;
}
std::string_view text_of(const Bytes& b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

std::string failure(const Proto& t, Code code = Code::corrupt, const std::string& folder = "") {
  try {
    static_cast<void>(read(t, folder).content());
  } catch (const Error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  return "no failure";
}
void check_failure(const std::string& text, std::string_view part) {
  CHECK_MESSAGE(text.find(part) != text.npos, "expected '", part, "' in: ", text);
}

Proto external(std::string_view location, std::string_view offset = "",
               std::string_view length = "") {
  Proto t = tensor({2}, 1).number(14, 1);
  const auto entry = [&](std::string_view key, std::string_view value) {
    if (!value.empty()) t.message(13, Proto().text(1, key).text(2, value));
  };
  entry("location", location);
  entry("offset", offset);
  entry("length", length);
  return t;
}

}  // namespace

TEST_SUITE("import/onnx_tensor") {
  TEST_CASE("tensor: raw data of each dtype") {
    constexpr std::pair<int32_t, DType> kAll[] = {{1, kF32},
                                                  {2, kU8},
                                                  {3, kI8},
                                                  {4, kU16},
                                                  {5, kI16},
                                                  {6, kI32},
                                                  {7, kI64},
                                                  {9, kBool},
                                                  {10, kF16},
                                                  {11, kF64},
                                                  {12, kU32},
                                                  {13, kU64},
                                                  {14, TENON_DTYPE_C64},
                                                  {16, kBF16},
                                                  {17, TENON_DTYPE_F8E4M3},
                                                  {19, TENON_DTYPE_F8E5M2},
                                                  {21, TENON_DTYPE_U4},
                                                  {22, TENON_DTYPE_I4}};
    for (const auto& [element, dtype] : kAll) {
      CAPTURE(element);
      const std::string raw(tenon_dense_bytes(dtype, 6), '\1');
      const onnx::Tensor t = read(tensor({2, 3}, element).text(9, raw));
      CHECK(t.dtype == dtype);
      CHECK(t.dims == std::vector<int64_t>{2, 3});
      CHECK(text_of(t.content()) == raw);
      check_failure(failure(tensor({2, 3}, element).text(9, raw + "x")), "raw_data has");
    }
  }

  TEST_CASE("tensor: numbers in typed fields") {
    CHECK(read(tensor({2}, 1).packed_fixed<float>(4, {1.5f, -2})).content() ==
          bytes_of<float>({1.5f, -2}));
    CHECK(read(tensor({1}, 14).packed_fixed<float>(4, {1, 2})).content() ==
          bytes_of<float>({1, 2}));
    CHECK(read(tensor({2}, 11).packed_fixed<double>(10, {1.5, -2})).content() ==
          bytes_of<double>({1.5, -2}));
    CHECK(read(tensor({2}, 6).packed(5, {-1, INT32_MAX})).content() ==
          bytes_of<int32_t>({-1, INT32_MAX}));
    CHECK(read(tensor({2}, 3).packed(5, {-128, 127})).content() == bytes_of<int8_t>({-128, 127}));
    CHECK(read(tensor({2}, 2).packed(5, {0, 255})).content() == bytes_of<uint8_t>({0, 255}));
    CHECK(read(tensor({2}, 5).packed(5, {-32768, 7})).content() == bytes_of<int16_t>({-32768, 7}));
    CHECK(read(tensor({2}, 4).packed(5, {65535, 7})).content() == bytes_of<uint16_t>({65535, 7}));
    CHECK(read(tensor({2}, 9).packed(5, {0, 1})).content() == bytes_of<uint8_t>({0, 1}));
    for (const int element : {10, 16})  // halves as their bits
      CHECK(read(tensor({2}, element).packed(5, {0x3c00, 0xbc00})).content() ==
            bytes_of<uint16_t>({0x3c00, 0xbc00}));
    for (const int element : {17, 19})
      CHECK(read(tensor({2}, element).packed(5, {0x38, 0xb8})).content() ==
            bytes_of<uint8_t>({0x38, 0xb8}));
    CHECK(read(tensor({2}, 7).packed(7, {INT64_MIN, 5})).content() ==
          bytes_of<int64_t>({INT64_MIN, 5}));
    CHECK(read(tensor({2}, 12).packed(11, {0xffffffff, 5})).content() ==
          bytes_of<uint32_t>({0xffffffff, 5}));
    CHECK(read(tensor({2}, 13).packed(11, {-1, 5})).content() ==
          bytes_of<uint64_t>({UINT64_MAX, 5}));
  }

  TEST_CASE("tensor: typed fields unpacked, and in several pieces") {
    CHECK(read(tensor({3}, 7).number(7, 1).packed(7, {2}).number(7, 3)).content() ==
          bytes_of<int64_t>({1, 2, 3}));
    CHECK(read(tensor({2}, 1).real(4, 1).real(4, 2)).content() == bytes_of<float>({1, 2}));
  }

  TEST_CASE("tensor: 4-bit numbers are two per byte, the first in the low half") {
    CHECK(read(tensor({3}, 21).packed(5, {0x21, 0x03})).content() ==
          bytes_of<uint8_t>({0x21, 0x03}));
    CHECK(read(tensor({3}, 22).packed(5, {0xef, 0xfd})).content() ==
          bytes_of<uint8_t>({0xef, 0x0d}));
    CHECK(read(tensor({3}, 22).text(9, "\xef\xfd")).content() == bytes_of<uint8_t>({0xef, 0x0d}));
    check_failure(failure(tensor({3}, 21).packed(5, {1})), "int32_data has 1 entries; expected 2");
  }

  TEST_CASE("tensor: scalars, empty ones, strings, and bools of other writers") {
    CHECK(read(tensor({}, 1).real(4, 3)).content() == bytes_of<float>({3}));
    CHECK(read(tensor({0, 4}, 1)).content().empty());
    CHECK(read(tensor({0, int64_t{1} << 55}, 1).text(9, "")).elements() == 0);
    const onnx::Tensor s = read(tensor({2}, 8).text(6, "a").text(6, ""));
    CHECK(s.strings == std::vector<std::string>{"a", ""});
    CHECK(s.dtype == TENON_DTYPE_NONE);
    check_failure(failure(tensor({2}, 8).text(6, "a").text(6, ""), Code::unsupported),
                  "tensor 't': tenon has no dtype for STRING");
    check_failure(failure(tensor({2}, 8).text(6, "a")), "string_data has 1 entries; expected 2");
    CHECK(read(tensor({3}, 9).text(9, std::string_view("\0\2\xff", 3))).content() ==
          bytes_of<uint8_t>({0, 1, 1}));
    const onnx::Tensor z = read(tensor({1}, 15).text(9, "0123456789abcdef"));
    CHECK(z.dtype == TENON_DTYPE_C128);
    CHECK(z.content().size() == 16);
    check_failure(failure(tensor({1}, 99).text(9, "x"), Code::unsupported), "element type 99");
  }

  TEST_CASE("hostile: dims that are negative or overflow, and data that is too short or long") {
    check_failure(failure(tensor({2, -3}, 1)), "graph.initializer[0]: byte 4: dim -3 is negative");
    check_failure(failure(tensor({1 << 30, 1 << 26}, 1)), "the number of elements overflows");
    check_failure(failure(tensor({INT64_MAX}, 1)), "the number of elements overflows");
    // Nothing is allocated for what the file cannot hold.
    check_failure(failure(tensor({1 << 30, 1 << 24}, 7)),
                  "expected 144115188075855872 bytes of data in raw_data or int64_data");
    check_failure(failure(tensor({2}, 1)), "float_data has 0 entries; expected 2");
    check_failure(failure(tensor({2}, 1).packed(7, {1, 2})), "float_data has 0 entries");
    check_failure(failure(tensor({1}, 1).real(4, 1).real(4, 2)),
                  "float_data has too many entries; expected 1");
    check_failure(failure(tensor({1}, 3).number(5, 256)), "int32_data: 256 does not fit in 8 bits");
    check_failure(failure(tensor({1}, 3).number(5, -129)), "-129 does not fit in 8 bits");
    check_failure(failure(tensor({1}, 12).number(11, int64_t{1} << 32)), "does not fit in 32 bits");
    check_failure(failure(tensor({1}, 1).text(4, "abc")), "float_data: the message ends within it");
    check_failure(failure(tensor({1}, 1).message(3, Proto()), Code::unsupported), "segment");
    Proto dims = tensor({1}, 1);
    for (int i = 0; i < 1024; ++i) dims.number(1, 1);
    check_failure(failure(dims), "more than 1024 dims");
  }

  TEST_CASE("external data: range, folder, and a length that is left out") {
    const Folder f;
    f.write("a/w.bin", "0123456789abcdef");
    const std::string folder = f.path.string();
    CHECK(text_of(read(external("a/w.bin", "4", "8"), folder).content()) == "456789ab");
    CHECK(text_of(read(external("a/w.bin", "8"), folder).content()) == "89abcdef");
    CHECK(text_of(read(external("./a//w.bin"), folder).content()) == "01234567");
    check_failure(
        failure(external("a/w.bin", "9", "8"), Code::corrupt, folder),
        "tensor 't': external data 'a/w.bin': 8 bytes from offset 9 leave the file of 16");
    check_failure(failure(external("a/w.bin", "18446744073709551615"), Code::corrupt, folder),
                  "leave the file");
    check_failure(failure(external("a/w.bin", "0", "4"), Code::corrupt, folder),
                  "length 4; expected 8 bytes");
    check_failure(failure(external("a/w.bin", "-1"), Code::corrupt, folder),
                  "external_data offset: expected a number of bytes, got '-1'");
    check_failure(failure(external("b.bin"), Code::not_found, folder), "external data 'b.bin'");
    check_failure(failure(external(""), Code::corrupt, folder), "without a location");
    check_failure(failure(external("a"), Code::io_error, folder), "no regular file");
    check_failure(failure(external("a/w.bin"), Code::invalid_argument),
                  "the model is in memory; expected a folder for it");
  }

  TEST_CASE("external data: nothing outside of the folder is opened") {
    const Folder f, other;
    const std::string secret = other.write("secret", "0123456789abcdef");
    const std::string folder = f.path.string();
    f.write("in/w.bin", "0123456789abcdef");
    fs::create_symlink(secret, f.path / "link");
    fs::create_directory_symlink(other.path, f.path / "folder_link");
    fs::create_symlink("in/w.bin", f.path / "inner");
    check_failure(failure(external(secret), Code::invalid_argument, folder),
                  "expected a path relative to the model's folder");
    const std::string up = "../" + other.path.filename().string() + "/secret";
    for (const std::string& way : {up, "in/../" + up, std::string("in/../in/w.bin")})
      check_failure(failure(external(way), Code::invalid_argument, folder),
                    "leaves the model's folder");
    for (const char* way : {"link", "folder_link/secret"})
      check_failure(failure(external(way), Code::invalid_argument, folder), "a link leads out of");
    CHECK(text_of(read(external("inner"), folder).content()) == "01234567");
  }

  TEST_CASE("file: contents are read when they are asked for, also from a model that is gone") {
    const Folder f;
    const std::string large(100000, 'x');
    const Proto t = tensor({100000}, 2).text(9, large), last = tensor({1}, 1).real(4, 2);
    const std::string path =
        f.write("m.onnx", Proto().message(7, Proto().message(5, t).message(5, last)).bytes());
    onnx::Model m = onnx::read_model(path);
    const onnx::Tensor kept = m.graph.initializers.at(0);
    CHECK(m.graph.initializers.at(1).content() == bytes_of<float>({2}));
    m = {};
    CHECK(text_of(kept.content()) == large);
    fs::resize_file(path, 1000);
    CHECK_THROWS_AS(static_cast<void>(kept.content()), Error);
    check_failure(failure(tensor({3}, 1).text(9, "x")), "model in memory: graph.initializer[0]");
  }

  TEST_CASE("file: a tensor in a file of its own") {
    const Folder f;
    const onnx::Tensor t =
        onnx::read_tensor(f.write("t.pb", tensor({2}, 7).packed(7, {1, 2}).bytes()));
    CHECK(t.name == "t");
    CHECK(t.content() == bytes_of<int64_t>({1, 2}));
  }
}
