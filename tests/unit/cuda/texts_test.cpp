// SPDX-License-Identifier: Apache-2.0
// Every kernel text compiles for every architecture that is supported: the files of device/ with
// each of their "//variant: NAME=VALUE ..." lines, the functions of math.cuh, and generated texts.
#include "texts.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <iostream>
#include <sstream>

#include "kernels/elementwise.hpp"
#include "tenon/unary.hpp"

using namespace tenon;
using namespace tenon::cuda;

namespace {

constexpr int kArchitectures[] = {75, 80, 90, 100, 120};

void check_compiles(const std::string& name, const std::string& text) {
  for (const int number : kArchitectures) {
    if (!compiler().knows(number / 10, number % 10)) {
      MESSAGE("NVRTC ", compiler().version(), " knows no sm_", number);
      continue;
    }
    const std::string architecture = compiler().architecture(number / 10, number % 10);
    CAPTURE(name);
    CAPTURE(architecture);
    const std::vector<std::string> options = compile_options(architecture);
    std::string code;
    CHECK_NOTHROW(code = compiler().compile(name, text, options, texts()));
    CHECK(code.size() > 100);
    CHECK(code.compare(0, 4, "\177ELF") == 0);
  }
}

// The defines of each variant, one without any when the file names none.
std::vector<std::string> variants_of(std::string_view content) {
  std::vector<std::string> list;
  std::istringstream lines{std::string(content)};
  constexpr std::string_view kMark = "//variant:";
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kMark)) continue;
    std::istringstream words(line.substr(kMark.size()));
    std::string defines;
    for (std::string word; words >> word;) {
      const size_t equal = word.find('=');
      defines += "#define " + word.substr(0, equal) +
                 (equal == word.npos ? " 1" : " " + word.substr(equal + 1)) + "\n";
    }
    list.push_back(std::move(defines));
  }
  if (list.empty()) list.emplace_back();
  return list;
}

sdk::Type type(tenon_dtype dtype, std::vector<int64_t> dims) {
  sdk::Type t{.dtype = dtype, .rank = static_cast<int>(dims.size())};
  std::copy(dims.begin(), dims.end(), t.dims.begin());
  t.set_dense_strides();
  return t;
}

}  // namespace

TEST_SUITE("cuda/texts") {
  TEST_CASE("compiler: present, else the rest is skipped with the reason") {
    if (!compiler()) {
      std::cout << "skipped: " << compiler().reason() << "\n";
      std::exit(77);
    }
    CHECK(compiler().knows(9, 0));
    std::string said;
    try {
      compiler().compile("bad.cu", "this is no text", {}, {});
    } catch (const sdk::Failure& e) {
      said = e.what();
    }
    CHECK(said.find("bad.cu") != said.npos);
    CHECK(said.find("error") != said.npos);
  }

  TEST_CASE("device: every file in every variant") {
    for (const Text& t : texts())
      for (const std::string& defines : variants_of(t.content))
        check_compiles(std::string(t.name), defines + std::string(t.content));
  }

  TEST_CASE("math: every kind for every dtype that it takes") {
    std::string s =
        "#include \"elementwise.cuh\"\nextern \"C\" __global__ void k(f32* f, f64* d, "
        "i32* i, i64* l, u8* u, i8* s, u64* v) {\n";
    for (const UnaryInfo& info : kUnaryKinds) {
      const std::string n(info.name);
      for (const char* function : {"unary_", "slope_"})
        s += std::string("*f += ") + function + n + "(*f, 1.f, 1.f); *d += " + function + n +
             "(*d, 1., 1.);\n";
      if (info.from_output)
        s += "*f += output_slope_" + n + "(*f); *d += output_slope_" + n + "(*d);\n";
      if (info.integer)
        s += "*i += unary_" + n + "<i32>(*i, 0, 0); *l += unary_" + n +
             "<i64>(*l, 0, 0); *u += unary_" + n + "<u8>(*u, 0, 0);\n";
    }
    for (const char* n : {"add", "sub", "mul", "div", "max", "min", "pow", "mod", "fmod"})
      for (const char* x : {"f", "d", "i", "l", "u", "s", "v"})
        s += std::string("*") + x + " = binary_" + n + "(*" + x + ", " + x + "[1]);\n";
    for (const char* to : {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64",
                           "f16", "bf16", "b8", "f8e4m3", "f8e5m2"})
      for (const char* from : {"*f", "*d", "*l", "*v", "*u"})
        s += std::string("*f += (f32)widen(convert<") + to + ">(" + from + ", true));\n";
    check_compiles("math", s + "}\n");
  }

  TEST_CASE("elementwise: whole vectors, tails, broadcasts and strides") {
    const sdk::Type whole = type(TENON_DTYPE_BF16, {8, 64}), odd = type(TENON_DTYPE_BF16, {7, 5});
    const sdk::Type row = type(TENON_DTYPE_F32, {64}), column = type(TENON_DTYPE_BF16, {8, 1});
    sdk::Type turned = type(TENON_DTYPE_BF16, {8, 64});
    turned.strides = {1, 8};
    const auto text_for = [](std::vector<const sdk::Type*> types, const sdk::Type& out) {
      BodyText t;
      Register sum;
      std::vector<sdk::Value> in;
      for (const sdk::Type* x : types) {
        const Register r = t.input("x", x->dtype);
        sum = sum.text.empty() ? r : binary_step(t, "add", sum, r);
        in.emplace_back(x, static_cast<int>(in.size()), nullptr, false, 256);
      }
      t.output(cast_step(t, TENON_DTYPE_BF16, true, sum), TENON_DTYPE_BF16);
      return elementwise_text(t, in, out.shape());
    };
    const std::string flat = text_for({&whole, &whole}, whole);
    CHECK(flat.find("constexpr int W = 8;") != flat.npos);
    CHECK(flat.find("load<T1, W>") != flat.npos);
    check_compiles("flat", flat);
    const std::string tail = text_for({&odd, &odd}, odd);
    CHECK(tail.find("n == W") != tail.npos);
    check_compiles("tail", tail);
    check_compiles("broadcast", text_for({&whole, &row, &column, &turned}, whole));
  }
}
