// SPDX-License-Identifier: Apache-2.0
// The header-only reader: what it rejects, and that no byte can make it (or a plugin behind it)
// read out of bounds.
#include <doctest/doctest.h>

#include "fake_host.hpp"

namespace tenon::test {

namespace {

// y = transpose(a + constant), with an attribute list, a string attribute and a constant's content.
BlobBuilder small_graph() {
  BlobBuilder b;
  const uint32_t a = b.input({TENON_DTYPE_F32, {2, 3}});
  const uint32_t c = b.constant<float>({TENON_DTYPE_F32, {3}}, {1, 2, 3});
  const uint32_t sum = b.node("binary", {a, c}, {{TENON_DTYPE_F32, {2, 3}}}, {{"kind", "add"}});
  b.output(b.node("transpose", {sum}, {{TENON_DTYPE_F32, {3, 2}}},
                  {{"perm", std::vector<int64_t>{1, 0}}}));
  return b;
}

std::string open(const std::vector<uint64_t>& words, uint64_t size) {
  tenon_blob blob;
  const char* bad = tenon_blob_open(words.data(), size, &blob);
  return bad ? bad : "";
}
std::string open(const std::vector<uint64_t>& words) { return open(words, words.size() * 8); }

template <class T>
T& at(std::vector<uint64_t>& words, uint64_t offset) {
  return *reinterpret_cast<T*>(reinterpret_cast<char*>(words.data()) + offset);
}
tenon_blob_function& function(std::vector<uint64_t>& words) {
  return at<tenon_blob_function>(words, at<tenon_blob_header>(words, 0).functions);
}
tenon_blob_node& node(std::vector<uint64_t>& words, uint64_t k) {
  return at<tenon_blob_node>(words, function(words).nodes + k * sizeof(tenon_blob_node));
}
tenon_blob_value& value(std::vector<uint64_t>& words, uint64_t k) {
  return at<tenon_blob_value>(words, function(words).values + k * sizeof(tenon_blob_value));
}

// Reads all that an accepted blob holds.
uint64_t read_all(const std::vector<uint64_t>& words) {
  tenon_blob b;
  uint64_t sum = 0;
  if (tenon_blob_open(words.data(), words.size() * 8, &b)) return 0;
  const auto read = [&](tenon_str s) {
    for (uint64_t i = 0; i < s.size; ++i) sum += static_cast<unsigned char>(s.data[i]);
  };
  for (uint32_t f = 0; f < b.header->function_count; ++f) {
    const tenon_blob_function& fn = *tenon_blob_function_at(&b, f);
    for (uint32_t v = 0; v < fn.value_count; ++v) {
      const tenon_blob_value* value = tenon_blob_value_at(&b, &fn, v);
      sum += static_cast<uint64_t>(tenon_blob_elements(&b, value));
      for (uint64_t i = 0; i < (value->data ? value->data_size : 0); ++i)
        sum += b.bytes[value->data + i];
    }
    for (uint32_t n = 0; n < fn.node_count; ++n) {
      tenon_node_view view = tenon_node_at(&b, f, n);
      read(tenon_blob_str(&b, view.node->op));
      for (uint32_t k = 0; k < view.node->operand_count; ++k)
        sum += tenon_node_operand(&view, k) != nullptr;
      read(tenon_node_str(&view, "kind", ""));
      uint32_t count = 0;
      const int64_t* perm = tenon_node_ints(&view, "perm", &count);
      for (uint32_t i = 0; i < count; ++i) sum += static_cast<uint64_t>(perm[i]);
      sum += tenon_node_operand_list(&view, 0) + tenon_node_output_list(&view, 0);
      sum += tenon_node_unknown_type(&view) != nullptr;
      tenon_str name;
      if (tenon_node_unknown(&view, &name)) read(name);
    }
  }
  return sum;
}

}  // namespace

TEST_SUITE("abi/blob") {
  TEST_CASE("open: a sound blob is accepted") { CHECK(open(small_graph().bytes()) == ""); }

  TEST_CASE("open: blocks fill the last axis, and contents have their bytes") {
    const auto graph = [](std::vector<int64_t> dims, size_t bytes) {
      BlobBuilder b;
      const uint32_t w =
          b.constant<uint8_t>({TENON_DTYPE_Q8_0, std::move(dims)}, std::vector<uint8_t>(bytes));
      b.output(b.node("dequantize_blocks", {w}, {{TENON_DTYPE_F32, {1}}}));
      return open(b.bytes());
    };
    CHECK(graph({2, 64}, 136) == "");
    CHECK(graph({2, 64}, 128) == "a constant's content has the wrong size");
    CHECK(graph({64, 2}, 136) == "a value's last dim is no multiple of its block");
    CHECK(graph({}, 34) == "a value's last dim is no multiple of its block");
    tenon_blob_value value{};
    value.dtype = TENON_DTYPE_IQ1_M;
    CHECK(tenon_blob_unknown(&value) == nullptr);
    value.dtype = TENON_DTYPE_BLOCKS_END;
    CHECK(std::string(tenon_blob_unknown(&value)) == "dtype");
  }

  TEST_CASE("open: every truncation is rejected") {
    const std::vector<uint64_t> words = small_graph().bytes();
    for (uint64_t size = 0; size < words.size() * 8; ++size) CHECK_FALSE(open(words, size).empty());
  }

  TEST_CASE("open: broken fields are named") {
    const std::vector<uint64_t> sound = small_graph().bytes();
    const auto breaks = [&](auto change) {
      std::vector<uint64_t> words = sound;
      change(words);
      return open(words);
    };
    using Words = std::vector<uint64_t>;
    CHECK(breaks([](Words& w) { w[0] ^= 1; }) == "the bytes are not a graph blob");
    CHECK(breaks([](Words& w) { at<tenon_blob_header>(w, 0).version = 3; }) ==
          "the blob's version is newer than this reader");
    CHECK(breaks([](Words& w) { at<tenon_blob_header>(w, 0).version = 1; }) ==
          "the blob's version is too old");
    CHECK(breaks([](Words& w) { at<tenon_blob_header>(w, 0).header_size = 56; }) ==
          "the size of the blob's header is wrong");
    for (uint32_t tenon_blob_header::*stride :
         {&tenon_blob_header::function_stride, &tenon_blob_header::value_stride,
          &tenon_blob_header::node_stride, &tenon_blob_header::attr_stride}) {
      CHECK(breaks([&](Words& w) { at<tenon_blob_header>(w, 0).*stride -= 8; }) ==
            "a stride of the blob is wrong");
      CHECK(breaks([&](Words& w) { at<tenon_blob_header>(w, 0).*stride += 4; }) ==
            "a stride of the blob is wrong");
    }
    CHECK(breaks([](Words& w) { at<tenon_blob_header>(w, 0).function_count = 0; }) ==
          "the blob has no function");
    CHECK(breaks([](Words& w) { at<tenon_blob_header>(w, 0).functions = w.size() * 8; }) ==
          "functions are out of bounds");
    CHECK(breaks([](Words& w) { function(w).value_count = 1u << 30; }) ==
          "values are out of bounds");
    CHECK(breaks([](Words& w) { function(w).nodes += 4; }) == "nodes are out of bounds");
    CHECK(breaks([](Words& w) { value(w, 0).rank = 255; }) == "a value's dims are out of bounds");
    CHECK(breaks([](Words& w) { at<int64_t>(w, value(w, 0).dims) = -1; }) ==
          "a value's dim is negative");
    CHECK(breaks([](Words& w) { at<int64_t>(w, value(w, 0).dims) = INT64_MAX / 2; }) ==
          "a value's size overflows");
    CHECK(breaks([](Words& w) { value(w, 1).data_size = 8; }) ==
          "a constant's content has the wrong size");
    CHECK(breaks([](Words& w) { value(w, 3).output = 1; }) == "a value and its node disagree");
    CHECK(breaks([](Words& w) { at<uint32_t>(w, node(w, 0).operands) = 3; }) ==
          "a node reads a value that is made after it");
    CHECK(breaks([](Words& w) { at<uint32_t>(w, node(w, 0).operands) = 77; }) ==
          "a node's operand does not exist");
    CHECK(breaks([](Words& w) {
            node(w, 0).operand_list_count = 1;
            at<uint32_t>(w, node(w, 0).operand_lists = w.size() * 8 - 8) = 3;
          }) == "a node's lists do not fit its operands or outputs");
    CHECK(breaks([](Words& w) { node(w, 0).output_list_count = 1u << 20; }) ==
          "a node's lists do not fit its operands or outputs");
    CHECK(breaks([](Words& w) { node(w, 0).attr_count = 1u << 20; }) ==
          "a node's attributes are out of bounds");
    CHECK(breaks([](Words& w) { at<tenon_blob_attr>(w, node(w, 0).attrs).bits = w.size() * 8; }) ==
          "an attribute's string is out of bounds");
    CHECK(breaks([](Words& w) { at<tenon_blob_attr>(w, node(w, 1).attrs).count = 1u << 20; }) ==
          "an attribute's list is out of bounds");
    CHECK(breaks([](Words& w) { at<uint32_t>(w, function(w).outputs) = 4; }) ==
          "an output does not exist");
  }

  TEST_CASE("open: structs that are longer than this header's are read by their strides") {
    BlobBuilder b = small_graph();
    const uint64_t read = read_all(b.bytes());
    CHECK(read > 0);
    for (const uint32_t grown : {8u, 16u, 64u}) {
      b.grow(grown);
      const std::vector<uint64_t> words = b.bytes();
      REQUIRE(open(words) == "");
      CHECK(read_all(words) == read);
    }
  }

  TEST_CASE("open: misaligned bytes are rejected") {
    const std::vector<uint64_t> words = small_graph().bytes();
    tenon_blob blob;
    CHECK(tenon_blob_open(reinterpret_cast<const char*>(words.data()) + 4, words.size() * 8 - 8,
                          &blob) != nullptr);
  }

  // A mutant that the reader accepts may break the rule of its op. A plugin never sees such a node
  // (backend.h, query), so only the reader is shown it.
  TEST_CASE(
      "mutation: every byte, set to several values, is read within bounds, or rejected by the "
      "reader "
      "and so by a plugin") {
    const Plugin plugin(TENON_TEMPLATE_PLUGIN);
    const std::vector<uint64_t> sound = small_graph().bytes();
    int accepted = 0, rejected = 0;
    for (size_t i = 0; i < sound.size() * 8; ++i) {
      for (unsigned flip : {0x01u, 0x80u, 0xFFu, 0x04u}) {
        std::vector<uint64_t> words = sound;
        at<unsigned char>(words, i) ^= static_cast<unsigned char>(flip);
        read_all(words);
        if (open(words).empty()) {
          ++accepted;
          continue;
        }
        ++rejected;
        const tenon_query_result* result = nullptr;
        const Problem query = Plugin::problem(
            plugin.table().query(plugin.device(), words.data(), words.size() * 8, &result));
        CHECK(query.code == TENON_CORRUPT);
        CHECK(result == nullptr);
        tenon_program* program = nullptr;
        const tenon_compile_options options{sizeof(options), 0, 0, 0};
        const Problem compile = Plugin::problem(plugin.table().compile(
            plugin.device(), words.data(), words.size() * 8, &options, &program));
        CHECK(compile.code == TENON_CORRUPT);
        CHECK(program == nullptr);
      }
    }
    CHECK(accepted > 0);
    CHECK(rejected > accepted / 4);
    CHECK(live_statuses() == 0);
  }
}

}  // namespace tenon::test
