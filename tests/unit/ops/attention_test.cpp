// SPDX-License-Identifier: Apache-2.0
// attention, attention_backward and decode_attention: types and refusals.
#include <limits>

#include "ops/lower.hpp"
#include "rig.hpp"

using namespace tenon::core;

TEST_SUITE_BEGIN("ops/attention");

namespace {
op::attention grouped(Rig& r, DType t = kF32) {
  return {.q = r(t, {2, 6, 5, 8}), .k = r(t, {2, 3, 7, 8}), .v = r(t, {2, 3, 7, 4})};
}
}  // namespace

TEST_CASE("attention: o as q with v's width, lse per query in the accumulation dtype") {
  Rig r;
  op::attention n = grouped(r, kBF16);
  n.want_lse = true;
  CHECK(r.infer(n) == "bf16[2,6,5,4]");
  CHECK(r.infer(n, 1) == "f32[2,6,5]");
  op::attention swapped{.layout = "bshd",
                        .q = r(kF64, {2, 5, 6, 8}),
                        .k = r(kF64, {2, 7, 3, 8}),
                        .v = r(kF64, {2, 7, 3, 4}),
                        .want_lse = true};
  CHECK(r.infer(swapped) == "f64[2,5,6,4]");
  CHECK(r.infer(swapped, 1) == "f64[2,6,5]");
}

TEST_CASE("attention: masks broadcast to the scores") {
  Rig r;
  for (const Shape& shape :
       {Shape{}, Shape{7}, Shape{5, 1}, Shape{2, 1, 1, 7}, Shape{2, 6, 5, 7}}) {
    op::attention n = grouped(r);
    n.mask = r(kBool, shape);
    CHECK(r.infer(n) == "f32[2,6,5,4]");
  }
  op::attention n = grouped(r);
  n.mask = r(kBool, {2, 7});
  r.refuses(n, Code::shape_mismatch, {"mask", "[2,6,5,7]", "bool[2,7]"});
  n.mask = r(kF32, {1, 2, 6, 5, 7});
  r.refuses(n, Code::shape_mismatch, {"mask", "f32[1,2,6,5,7]"});
  n.mask = r(kI8, {5, 7});
  r.refuses(n, Code::dtype_mismatch, {"mask", "bool or f32", "i8[5,7]"});
  n.mask = r(kF64, {5, 7});
  r.refuses(n, Code::dtype_mismatch, {"mask", "f64[5,7]"});
}

TEST_CASE("attention: heads, lengths and options") {
  Rig r;
  op::attention n = grouped(r);
  n.q = r(kF32, {2, 5, 5, 8});
  r.refuses(n, Code::shape_mismatch, {"operand q", "multiple of the 3 heads", "5"});
  n = grouped(r);
  n.v = r(kF32, {2, 3, 8, 4});
  r.refuses(n, Code::shape_mismatch, {"operand v", "[2,3,7,4]", "f32[2,3,8,4]"});
  n = grouped(r);
  n.k = r(kF16, {2, 3, 7, 8});
  r.refuses(n, Code::dtype_mismatch, {"operand k", "f32", "f16"});
  n = grouped(r);
  n.kv_len = r(kI32, {2, 1});
  r.refuses(n, Code::shape_mismatch, {"kv_len", "[2]", "i32[2,1]"});
  n.kv_len = r(kF32, {2});
  r.refuses(n, Code::dtype_mismatch, {"kv_len", "f32[2]"});
  n.kv_len = r(kI64, {2});
  n.past_len = r(kI32, {2});
  CHECK(r.infer(n) == "f32[2,6,5,4]");
  n.offset = 3;
  r.refuses(n, Code::invalid_argument, {"offset", "past_len", "3"});
  n = grouped(r);
  n.softcap = -1;
  r.refuses(n, Code::invalid_argument, {"softcap", "-1"});
  n = grouped(r);
  n.left_window = -2;
  r.refuses(n, Code::invalid_argument, {"left_window", "-2"});
  n = grouped(r);
  n.scale = std::numeric_limits<double>::infinity();
  r.refuses(n, Code::invalid_argument, {"scale"});
  n = grouped(r);
  n.layout = "sbhd";
  r.refuses(n, Code::invalid_argument, {"layout", "sbhd"});
}

TEST_CASE("attention: keys and values may be blocks of elements") {
  constexpr DType kQ8 = TENON_DTYPE_Q8_0;
  Rig r;
  op::attention n{.q = r(kF16, {2, 6, 5, 64}),
                  .k = r(kQ8, {2, 3, 7, 64}),
                  .v = r(kQ8, {2, 3, 7, 32}),
                  .want_lse = true};
  CHECK(r.infer(n) == "f16[2,6,5,32]");
  CHECK(r.infer(n, 1) == "f32[2,6,5]");
  op::attention paged = n;
  paged.k = r(kQ8, {9, 3, 16, 64}), paged.v = r(kQ8, {9, 3, 16, 32});
  paged.kv_len = r(kI64, {2}), paged.block_table = r(kI32, {2, 4});
  CHECK(r.infer(paged) == "f16[2,6,5,32]");
  n.v = r(kF16, {2, 3, 7, 32});
  r.refuses(n, Code::dtype_mismatch, {"operand v", "q8_0 as operand k", "f16[2,3,7,32]"});
  n.k = r(kF16, {2, 3, 7, 64}), n.v = r(kQ8, {2, 3, 7, 32});
  r.refuses(n, Code::dtype_mismatch, {"operand v", "q8_0[2,3,7,32]"});
  n.k = r(DType{TENON_DTYPE_IQ1_S}, {2, 3, 7, 256});
  r.refuses(n, Code::unsupported, {"operand k", "iq1_s"});
}

TEST_CASE("attention: a block table makes pools of k and v") {
  Rig r;
  const auto paged = [&] {
    return op::attention{.layout = "bshd",
                         .q = r(kF16, {2, 5, 6, 8}),
                         .k = r(kF16, {9, 16, 3, 8}),
                         .v = r(kF16, {9, 16, 3, 4}),
                         .kv_len = r(kI64, {2}),
                         .block_table = r(kI32, {2, 4}),
                         .want_lse = true};
  };
  CHECK(r.infer(paged()) == "f16[2,5,6,4]");
  CHECK(r.infer(paged(), 1) == "f32[2,6,5]");
  op::attention n = paged();
  n.mask = r(kBool, {5, 64});
  CHECK(r.infer(n) == "f16[2,5,6,4]");
  n.mask = r(kBool, {5, 16});
  r.refuses(n, Code::shape_mismatch, {"mask", "[2,6,5,64]"});
  n = paged();
  n.layout = "bhsd", n.q = r(kF16, {2, 6, 5, 8}), n.k = r(kF16, {9, 3, 16, 8}),
  n.v = r(kF16, {9, 3, 16, 4});
  CHECK(r.infer(n) == "f16[2,6,5,4]");
  n = paged();
  n.kv_len = {};
  r.refuses(n, Code::invalid_argument, {"kv_len", "block_table", "none"});
  n = paged();
  n.block_table = r(kI64, {3, 4});
  r.refuses(n, Code::shape_mismatch, {"block_table", "[2,4]", "i64[3,4]"});
  n.block_table = r(kI64, {8});
  r.refuses(n, Code::shape_mismatch, {"block_table", "i64[8]"});
  n.block_table = r(kF32, {2, 4});
  r.refuses(n, Code::dtype_mismatch, {"block_table", "f32[2,4]"});
  n = paged();
  n.v = r(kF16, {8, 16, 3, 4});
  r.refuses(n, Code::shape_mismatch, {"operand v", "[9,16,3,4]", "f16[8,16,3,4]"});
  n = paged();
  n.k = r(kF16, {0, 16, 3, 8}), n.v = r(kF16, {0, 16, 3, 4});
  r.refuses(n, Code::shape_mismatch, {"operand k", "at least one block", "f16[0,16,3,8]"});
  n.block_table = r(kI64, {2, 0});
  CHECK(r.infer(n) == "f16[2,5,6,4]");
  n = paged();
  n.k = r(kF16, {9, 0, 3, 8}), n.v = r(kF16, {9, 0, 3, 4});
  r.refuses(n, Code::shape_mismatch, {"operand k", "at least one key", "f16[9,0,3,8]"});
  n = paged();
  n.block_table = r(kI64, {2, int64_t{1} << 52});
  r.refuses(n, Code::invalid_argument, {"overflows"});
}

TEST_CASE("attention_backward: gradients as the operands, dmask for a float mask only") {
  Rig r;
  op::attention_backward n{.dout = r(kBF16, {2, 6, 5, 4}),
                           .q = r(kBF16, {2, 6, 5, 8}),
                           .k = r(kBF16, {2, 3, 7, 8}),
                           .v = r(kBF16, {2, 3, 7, 4}),
                           .o = r(kBF16, {2, 6, 5, 4}),
                           .lse = r(kF32, {2, 6, 5})};
  CHECK(r.infer(n, 0) == "bf16[2,6,5,8]");
  CHECK(r.infer(n, 1) == "bf16[2,3,7,8]");
  CHECK(r.infer(n, 2) == "bf16[2,3,7,4]");
  n.want_dmask = true;
  r.refuses(n, Code::invalid_argument, {"dmask", "none"});
  n.mask = r(kBool, {5, 7});
  r.refuses(n, Code::invalid_argument, {"dmask", "bool[5,7]"});
  n.mask = r(kBF16, {5, 7});
  CHECK(r.infer(n, 3) == "bf16[5,7]");
  n.lse = r(kBF16, {2, 6, 5});
  r.refuses(n, Code::dtype_mismatch, {"lse", "f32"});
  n.lse = r(kF32, {2, 5, 6});
  r.refuses(n, Code::shape_mismatch, {"lse", "[2,6,5]"});
}

namespace {
// Two sequences, six query heads for three key heads, room for seven keys of each.
op::decode_attention token(Rig& r, DType t = kF16) {
  return {.q = r(t, {2, 6, 8}),
          .k = r(t, {2, 3, 8}),
          .v = r(t, {2, 3, 4}),
          .k_cache = r(t, {14, 3, 8}),
          .v_cache = r(t, {14, 3, 4}),
          .rows = r(kI64, {2}),
          .kv_len = r(kI32, {2}),
          .past_len = r(kI64, {2})};
}
op::decode_attention turning(Rig& r) {
  op::decode_attention n = token(r);
  n.cos = r(kF32, {9, 4}), n.sin = r(kF32, {9, 4}), n.position_ids = r(kI32, {2});
  return n;
}
op::decode_attention in_blocks(Rig& r) {
  op::decode_attention n = token(r);
  n.k_cache = r(kF16, {15, 3, 8}), n.v_cache = r(kF16, {15, 3, 4});
  n.block_size = 5, n.block_table = r(kI32, {2, 2});
  return n;
}
}  // namespace

TEST_CASE("decode_attention: o as q with v's width, the caches as they were") {
  Rig r;
  CHECK(r.infer(token(r)) == "f16[2,6,4]");
  CHECK(r.infer(token(r), 1) == "f16[14,3,8]");
  CHECK(r.infer(token(r), 2) == "f16[14,3,4]");
  CHECK(r.infer(turning(r)) == "f16[2,6,4]");
  CHECK(r.infer(in_blocks(r), 1) == "f16[15,3,8]");
  op::decode_attention wide = token(r, kF64);
  wide.cos = r(kF64, {9, 2}), wide.sin = r(kF64, {9, 2}), wide.position_ids = r(kI64, {2});
  wide.n_rot = 4, wide.interleaved = true;
  CHECK(r.infer(wide) == "f64[2,6,4]");
  op::decode_attention nobody{.q = r(kF16, {0, 6, 8}),
                              .k = r(kF16, {0, 3, 8}),
                              .v = r(kF16, {0, 3, 4}),
                              .k_cache = r(kF16, {0, 3, 8}),
                              .v_cache = r(kF16, {0, 3, 4}),
                              .rows = r(kI64, {0}),
                              .kv_len = r(kI32, {0}),
                              .past_len = r(kI64, {0})};
  CHECK(r.infer(nobody) == "f16[0,6,4]");
  nobody.k_cache = r(kF16, {3, 3, 8}), nobody.v_cache = r(kF16, {3, 3, 4});
  r.refuses(nobody, Code::shape_mismatch, {"operand k_cache", "multiple of 0 rows"});
}

TEST_CASE("decode_attention: refusals of tokens and caches") {
  Rig r;
  const auto refused = [&](Code code, std::initializer_list<std::string_view> words, auto change) {
    op::decode_attention n = token(r);
    change(n);
    r.refuses(n, code, words);
  };
  using Op = op::decode_attention;
  refused(Code::dtype_mismatch, {"operand q", "i32[2,6,8]"}, [&](Op& n) {
    n.q = r(kI32, {2, 6, 8});
  });
  refused(Code::dtype_mismatch, {"operand k_cache", "f16", "bf16"}, [&](Op& n) {
    n.k_cache = r(kBF16, {14, 3, 8});
  });
  refused(Code::shape_mismatch, {"operand v", "rank 3", "f16[2,1,3,4]"}, [&](Op& n) {
    n.v = r(kF16, {2, 1, 3, 4});
  });
  refused(Code::shape_mismatch, {"operand q", "D >= 1", "f16[2,6,0]"}, [&](Op& n) {
    n.q = r(kF16, {2, 6, 0});
  });
  refused(Code::shape_mismatch, {"operand k", "[2,3,8]", "f16[1,3,8]"}, [&](Op& n) {
    n.k = r(kF16, {1, 3, 8});
  });
  refused(Code::shape_mismatch, {"operand v", "[2,3,4]", "f16[2,2,4]"}, [&](Op& n) {
    n.v = r(kF16, {2, 2, 4});
  });
  refused(Code::shape_mismatch, {"operand k_cache", "[14,3,8]", "f16[14,3,4]"}, [&](Op& n) {
    n.k_cache = r(kF16, {14, 3, 4});
  });
  refused(Code::shape_mismatch, {"operand v_cache", "[14,3,4]", "f16[12,3,4]"}, [&](Op& n) {
    n.v_cache = r(kF16, {12, 3, 4});
  });
  refused(Code::shape_mismatch, {"operand q", "multiple of the 3 heads of k", "got 5"}, [&](Op& n) {
    n.q = r(kF16, {2, 5, 8});
  });
  refused(Code::dtype_mismatch, {"operand rows", "f32[2]"}, [&](Op& n) { n.rows = r(kF32, {2}); });
  refused(Code::shape_mismatch, {"operand kv_len", "[2]", "i32[3]"},
          [&](Op& n) { n.kv_len = r(kI32, {3}); });
  refused(Code::shape_mismatch, {"operand past_len", "[2]", "i64[2,1]"}, [&](Op& n) {
    n.past_len = r(kI64, {2, 1});
  });
  refused(Code::shape_mismatch, {"operand k_cache", "multiple of 2 rows", "f16[13,3,8]"},
          [&](Op& n) {
            n.k_cache = r(kF16, {13, 3, 8}), n.v_cache = r(kF16, {13, 3, 4});
          });
  refused(Code::invalid_argument, {"block_size", "expected 0", "given 7"},
          [](Op& n) { n.block_size = 7; });
  refused(Code::invalid_argument, {"attribute scale", "finite"},
          [](Op& n) { n.scale = std::numeric_limits<double>::infinity(); });
  refused(Code::invalid_argument, {"attribute softcap", "-1"}, [](Op& n) { n.softcap = -1; });
  refused(Code::invalid_argument, {"attribute left_window", "-2"},
          [](Op& n) { n.left_window = -2; });
}

TEST_CASE("decode_attention: refusals of blocks") {
  Rig r;
  const auto refused = [&](Code code, std::initializer_list<std::string_view> words, auto change) {
    op::decode_attention n = in_blocks(r);
    change(n);
    r.refuses(n, code, words);
  };
  using Op = op::decode_attention;
  refused(Code::dtype_mismatch, {"operand block_table", "f32[2,2]"}, [&](Op& n) {
    n.block_table = r(kF32, {2, 2});
  });
  refused(Code::shape_mismatch, {"operand block_table", "rank 2", "i64[4]"},
          [&](Op& n) { n.block_table = r(kI64, {4}); });
  refused(Code::shape_mismatch, {"operand block_table", "[2,4]", "i64[3,4]"}, [&](Op& n) {
    n.block_table = r(kI64, {3, 4});
  });
  for (const int64_t size : {0, -5, 4})
    refused(Code::shape_mismatch, {"block_size", "divisor of the 15 rows"},
            [=](Op& n) { n.block_size = size; });
  const auto no_rows = [&](Op& n) {
    n.k_cache = r(kF16, {0, 3, 8}), n.v_cache = r(kF16, {0, 3, 4});
  };
  refused(Code::shape_mismatch, {"operand k_cache", "at least one block", "f16[0,3,8]"}, no_rows);
  op::decode_attention n = in_blocks(r);
  no_rows(n);
  n.block_table = r(kI32, {2, 0});
  CHECK(r.infer(n) == "f16[2,6,4]");
}

TEST_CASE("decode_attention: refusals of rope") {
  Rig r;
  const auto refused = [&](Code code, std::initializer_list<std::string_view> words, auto change) {
    op::decode_attention n = turning(r);
    change(n);
    r.refuses(n, code, words);
  };
  using Op = op::decode_attention;
  for (const int missing : {0, 1, 2})
    refused(Code::invalid_argument, {"cos, sin and position_ids", "all three or none"}, [=](Op& n) {
      (missing == 0 ? n.cos : missing == 1 ? n.sin : n.position_ids) = {};
    });
  const auto without_tables = [](Op& n) { n.cos = n.sin = n.position_ids = {}; };
  refused(Code::invalid_argument, {"attribute n_rot", "operand cos"}, [&](Op& n) {
    without_tables(n);
    n.n_rot = 4;
  });
  refused(Code::invalid_argument, {"attribute interleaved", "operand cos"}, [&](Op& n) {
    without_tables(n);
    n.interleaved = true;
  });
  for (const int64_t n_rot : {10, 3, -2})
    refused(Code::shape_mismatch, {"attribute n_rot", "even number up to 8"},
            [=](Op& n) { n.n_rot = n_rot; });
  refused(Code::shape_mismatch, {"operand cos", "[9,2]", "f32[9,4]"}, [](Op& n) { n.n_rot = 4; });
  refused(Code::shape_mismatch, {"operand sin", "[9,4]", "f32[8,4]"}, [&](Op& n) {
    n.sin = r(kF32, {8, 4});
  });
  refused(Code::shape_mismatch, {"operand cos", "rank 2"}, [&](Op& n) {
    n.cos = r(kF32, {2, 9, 4});
  });
  refused(Code::dtype_mismatch, {"operand cos", "f32", "f16"}, [&](Op& n) {
    n.cos = r(kF16, {9, 4});
  });
  refused(Code::dtype_mismatch, {"operand position_ids"},
          [&](Op& n) { n.position_ids = r(kF32, {2}); });
  refused(Code::shape_mismatch, {"operand position_ids", "[2]", "i32[2,1]"}, [&](Op& n) {
    n.position_ids = r(kI32, {2, 1});
  });
  refused(Code::index_out_of_range, {"operand position_ids", "empty tables"}, [&](Op& n) {
    n.cos = n.sin = r(kF32, {0, 4});
  });
}

TEST_CASE("decode_attention: decomposition") {
  Rig r;
  const auto ops = [&](const op::decode_attention& n) {
    const NodeInfo info = r.graph[r.graph.add(n, "here")];
    const NodeId before = r.graph.node_count();
    Builder b(r.graph);
    std::vector<Value> results(3);
    Lower l(b, info, results);
    REQUIRE(info.op->lower(l, r.graph, info));
    std::string text;
    for (NodeId k = before; k < r.graph.node_count(); ++k)
      if (const std::string_view name = r.graph[k].op->name(); name != "reshape")
        text += cat(text.empty() ? "" : " ", name);
    for (size_t k = 0; k < 3; ++k) CHECK(r.graph.type(results[k]) == r.graph.type(info.outputs[k]));
    return text;
  };
  CHECK(ops(token(r)) == "scatter scatter attention");
  CHECK(ops(in_blocks(r)) == "scatter scatter attention");
  CHECK(ops(turning(r)) == "rope scatter scatter rope attention");
}

TEST_SUITE_END();
