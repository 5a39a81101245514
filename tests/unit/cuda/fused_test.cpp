// SPDX-License-Identifier: Apache-2.0
// Bodies of fused nodes as device text: what is taken, and that it compiles.
#include "kernels/fused.hpp"

#include <doctest/doctest.h>

#include "compiles.hpp"
#include "cubin.hpp"
#include "ir/blob.hpp"
#include "ir/graph.hpp"
#include "ir/text.hpp"

using namespace tenon;
using namespace tenon::cuda;

namespace {

// A graph of one fused node, as a plugin gets it.
struct Given {
  explicit Given(const std::string& graph_text)
      : fused(core::write_blob(core::parse("graph {" + graph_text + "}", "test"))) {
    REQUIRE(tenon_blob_open(fused.blob.data(), fused.blob.size(), &blob) == nullptr);
    tenon_node_view view = tenon_node_at(&blob, 0, 0);
    body = {&blob, tenon_node_function(&view, "body")};
    const tenon_blob_function* all = tenon_blob_function_at(&blob, 0);
    const uint32_t* operands = tenon_blob_indices(&blob, view.node->operands);
    for (uint32_t k = 0; k < view.node->operand_count; ++k)
      types.push_back(sdk::layer::type_of(blob, *tenon_blob_value_at(&blob, all, operands[k])));
  }
  std::vector<sdk::Value> values(size_t first, size_t count) const {
    std::vector<sdk::Value> list;
    for (size_t k = first; k < first + count; ++k)
      list.emplace_back(&types[k], static_cast<int>(k), nullptr, false, 256);
    return list;
  }
  core::RegionBlob fused;
  tenon_blob blob{};
  sdk::Function body{};
  std::vector<sdk::Type> types{};
};

// The kernel's text for all operands under one shape. sets: of a batch.
std::string text_of(const std::string& graph_text, std::vector<int64_t> shape, int64_t sets = 0) {
  const Given given(graph_text);
  const FusedText fused{sdk::Body(given.body)};
  const Frame frame(fused.text, given.values(0, fused.text.inputs().size()), shape,
                    {.batch = sets > 0, .fold = fused.fold_over(shape), .multiprocessors = 100});
  CHECK(frame.blocks() > 0);
  CHECK(frame.arguments(fused.outputs.size()).size() < 512);
  return frame.text(fused.text, sets);
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace

TEST_SUITE("cuda/fused") {
  TEST_CASE("compiler: present, else the rest is skipped with the reason") {
    skip_without_compiler();
  }

  TEST_CASE("text: steps in registers, numbers as their bits, several outputs") {
    const std::string s = text_of(R"(
      input x: bf16[6,64] input g: bf16[64] input c: f32[6,1]
      (y, z) = elementwise_region(x, g, c) {body=graph {
        input x: bf16[6,64] input g: bf16[64] input c: f32[6,1]
        const k: f32[] = {0.1}
        t = binary(x, g) {kind="mul"} u = cast(t) {to=f32} v = binary(u, c) {kind="add"}
        w = binary(v, k) {kind="mul"} a = unary(w) {kind="silu"} b = cast(a) {to=bf16}
        l = compare(v, k) {kind="lt"}
        output "b" = b output "l" = l }}
      output "y" = y output "z" = z)",
                                  {6, 64});
    CHECK(has(s, "constexpr int kWidth = 8;"));
    CHECK(has(s, "__uint_as_float(0x3dcccccdu)"));
    CHECK(has(s, "load<T0, kWidth>"));
    CHECK(has(s, "const T2 v2 = *p2;"));
    CHECK(has(s, "store(to1, y1);"));
    check_compiles("fused", s);
  }

  TEST_CASE("text: integers, bools and 8-bit floats") {
    check_compiles("integers", text_of(R"(
      input x: i16[7,5] input y: u64[5] input m: bool[7,1] input e: f8e5m2[7,5]
      (p, q, r) = elementwise_region(x, y, m, e) {body=graph {
        input x: i16[7,5] input y: u64[5] input m: bool[7,1] input e: f8e5m2[7,5]
        const k: i16[] = {-3} const n: bool[] = {1}
        a = binary(x, k) {kind="mod"} b = cast(y) {to=i16} c = where(m, a, b)
        d = logical(m, n) {kind="xor"} f = logical(d) {kind="not"}
        g = cast(e) {to=f64} h = unary(g) {kind="is_inf"} i = logical(h, f) {kind="and"}
        j = copy(e) o = where(i, e, j)
        output "c" = c output "i" = i output "o" = o }}
      output "p" = p output "q" = q output "r" = r)",
                                       {7, 5}));
  }

  TEST_CASE("fold: rows by lanes, whole or in pieces; what it folds may leave as well") {
    const auto fused = [](const std::string& x, const std::string& m, const std::string& dtype,
                          const std::string& reduce) {
      const std::string inputs = "input x: " + dtype + x + " input m: " + dtype + m + " ";
      return inputs + "(r, t) = elementwise_region(x, m) {body=graph { " + inputs +
             "a = binary(x, m) {kind=\"sub\"} b = binary(a, a) {kind=\"mul\"} r = reduce(b) {" +
             reduce + "} output \"r\" = r output \"b\" = b }} output \"r\" = r output \"t\" = t";
    };
    const std::string rows =
        text_of(fused("[4096,512]", "[512]", "bf16", "kind=\"mean\", axes=[1]"), {4096, 512});
    CHECK(has(rows, "constexpr int kLanes = 32;"));
    CHECK(has(rows, "#define LAST 1"));
    check_compiles("rows", rows);
    const std::string all =
        text_of(fused("[3,5,70000]", "[5,1]", "f32", "kind=\"logsumexp\""), {3, 5, 70000});
    CHECK(has(all, "#define LAST 0"));
    check_compiles("all", all);
    const std::string shorter =
        text_of(fused("[33,6,1]", "[6,1]", "i8", "kind=\"l1\", axes=[-1,-2]"), {33, 6, 1});
    CHECK(has(shorter, "constexpr int kWidth = 2;"));
    check_compiles("shorter", shorter);
    check_compiles("f64",
                   text_of(fused("[9,5000]", "[9,1]", "f64", "kind=\"l2\", axes=[1]"), {9, 5000}));
  }

  TEST_CASE("fold: columns by blocks") {
    const auto fused = [](const std::string& x, const std::string& m, const std::string& dtype,
                          const std::string& reduce) {
      const std::string inputs = "input x: " + dtype + x + " input m: " + dtype + m + " ";
      return inputs + "(r, t) = elementwise_region(x, m) {body=graph { " + inputs +
             "a = binary(x, m) {kind=\"mul\"} b = unary(a) {kind=\"abs\"} r = reduce(b) {" +
             reduce + "} output \"r\" = r output \"b\" = b }} output \"r\" = r output \"t\" = t";
    };
    const std::string bias =
        text_of(fused("[8192,1000]", "[1000]", "bf16", "kind=\"sum\", axes=[0]"), {8192, 1000});
    CHECK(has(bias, "constexpr int kLanes = 32;"));
    CHECK(has(bias, "#define LAST 0"));
    CHECK(bias.find("load<T1, kWidth>") < bias.find("for (i64 at"));  // once for all rows
    check_compiles("bias", bias);
    check_compiles("middle",
                   text_of(fused("[3,17,2,6]", "[17,1,6]", "f32", "kind=\"logsumexp\", axes=[1]"),
                           {3, 17, 2, 6}));
    check_compiles("bytes",
                   text_of(fused("[9,64]", "[9,1]", "i8", "kind=\"mean\", axes=[0]"), {9, 64}));
    CHECK_THROWS_WITH_AS(
        text_of(fused("[3,7,5]", "[5]", "f32", "kind=\"sum\", axes=[0,2]"), {3, 7, 5}),
        "a reduction of axes that lie apart", sdk::Refusal);
  }

  TEST_CASE("fold: bools") {
    check_compiles("any", text_of(R"(
      input x: f16[9,40] input y: f16[40]
      r = elementwise_region(x, y) {body=graph { input x: f16[9,40] input y: f16[40]
        a = compare(x, y) {kind="gt"} r = reduce(a) {kind="any", axes=[1]} output "r" = r }}
      output "r" = r)",
                                  {9, 40}));
  }

  TEST_CASE("batch: sets of other sizes have one text") {
    const auto fused = [](const std::string& n) {
      const std::string inputs = "input w: f32[" + n + "] input g: f32[" + n + "] input lr: f32[] ";
      return inputs + "r = elementwise_region(w, g, lr) {body=graph { " + inputs +
             "q = binary(g, lr) {kind=\"mul\"} r = binary(w, q) {kind=\"sub\"} output \"r\" = r }} "
             "output \"r\" = r";
    };
    const std::string first = text_of(fused("64,33"), {64, 33}, 8);
    CHECK(first == text_of(fused("5"), {5}, 8));
    CHECK(first != text_of(fused("64,33"), {64, 33}));
    CHECK(has(first, "Sets<Set, 8>"));
    check_compiles("batch", first);
  }

  TEST_CASE("arguments: the kernel's parameter has as many bytes as the host's words") {
    const std::string inputs = "input x: f32[6,8,5] input y: bf16[8,1] ";
    const auto fused = [&](const std::string& more) {
      return inputs + "r = elementwise_region(x, y) {body=graph { " + inputs +
             "a = cast(y) {to=f32} b = binary(x, a) {kind=\"add\"} " + more +
             " output \"r\" = r }} output \"r\" = r";
    };
    const std::string plain = fused("r = unary(b) {kind=\"exp\"}"),
                      rows = fused("r = reduce(b) {kind=\"sum\", axes=[2]}");
    for (const auto& [graph, sets] : {std::pair{plain, 0}, {rows, 0}, {plain, 3}}) {
      CAPTURE(graph);
      CAPTURE(sets);
      const Given given(graph);
      const FusedText body{sdk::Body(given.body)};
      const std::vector<int64_t> shape = {6, 8, 5};
      const Frame frame(body.text, given.values(0, 2), shape,
                        {.batch = sets > 0, .fold = body.fold_over(shape), .multiprocessors = 100});
      const size_t words = frame.arguments(body.text.outputs().size()).size();
      const std::string bytes = compiler().compile("fused", frame.text(body.text, sets),
                                                   compile_options("sm_90a"), texts());
      const Cubin code(bytes);
      const size_t all = sets == 0 ? words : words * static_cast<size_t>(sets) + 1;
      CHECK(code.parameters("elementwise") ==
            std::vector<uint32_t>{static_cast<uint32_t>(8 * all)});
    }
  }

  TEST_CASE("arguments: a set's first block stands behind its divisors") {
    const Given given(R"(input x: f32[3,1,5] input y: f32[4,1]
      r = elementwise_region(x, y) {body=graph { input x: f32[3,1,5] input y: f32[4,1]
        r = binary(x, y) {kind="add"} output "r" = r }} output "r" = r)");
    const FusedText fused{sdk::Body(given.body)};
    const Frame frame(fused.text, given.values(0, 2), std::vector<int64_t>{3, 4, 5},
                      {.batch = true});
    FrameArguments a = frame.arguments(1);
    // 3 pointers, 6 numbers, 3 dims, 2 times 3 strides, 3 divisors of 12 bytes and a block of 4.
    REQUIRE(a.size() == 3 + 6 + 3 + 6 + 5);
    CHECK(a[3] == 60);
    frame.set_first_block(a, 77);
    CHECK((a.back() >> 32) == 77);
    CHECK((a.back() & 0xFFFFFFFF) == (frame.arguments(1).back() & 0xFFFFFFFF));
  }
}
