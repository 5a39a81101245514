// SPDX-License-Identifier: Apache-2.0
// attention over keys in blocks of a pool: layouts, windows, lengths, numbers out of range.
#include "cases/attention.hpp"

namespace tenon::conform {
namespace {

using Form = AttentionForm;
using Mask = AttentionMask;

std::vector<Form> forms() {
  std::vector<Form> all;
  const auto add_blocks = [&](const std::string& id, const char* sentence, int64_t block,
                              auto change) {
    Form f{.id = "blocks-" + id, .sentence = sentence, .kv_len = true, .block = block};
    change(f);
    all.push_back(f);
  };
  add_blocks("plain", "keys in blocks", 2, [](Form& f) { f.k_len = 8; });
  add_blocks("bshd", "keys in blocks, heads behind steps, grouped, causal", 3, [](Form& f) {
    f.k_len = 9;
    f.q_heads = 6;
    f.bshd = f.causal = true;
    f.offset = 4;
  });
  add_blocks("one", "a block has one key", 1, [](Form& f) { f.v_dim = 3; });
  add_blocks("none", "keys in blocks, a length of zero", 2, [](Form& f) {
    f.batch = 3;
    f.k_len = 6;
    f.dead_rows = true;
  });
  add_blocks("mask", "keys in blocks, a float mask, capped scores, a window", 4, [](Form& f) {
    f.k_len = 8;
    f.mask = Mask::numbers;
    f.softcap = 1.5;
    f.left = 4;
    f.offset = 3;
  });
  const auto add_long_blocks = [&](const std::string& id, const char* sentence, auto change) {
    for (const int64_t block : {32, 64, 96, 160, 192})
      add_blocks(id + "-" + std::to_string(block), sentence, block, [&](Form& f) {
        f.k_len = 5 * block;
        f.q_heads = 8;
        f.bshd = f.causal = f.past_len = true;
        f.dim = f.v_dim = 64;
        change(f);
      });
  };
  add_long_blocks("decode", "one query and many keys in blocks", [](Form& f) { f.q_len = 1; });
  add_long_blocks("append", "some queries and many keys in blocks", [](Form& f) {
    f.q_len = 40;
    f.v_dim = 48;
  });
  add_blocks("decode-rows-first", "one query, keys in blocks by head, a window", 96, [](Form& f) {
    f.q_len = 1;
    f.q_heads = 4;
    f.k_len = 480;
    f.dim = f.v_dim = 128;
    f.causal = f.past_len = true;
    f.left = 150;
  });
  add_blocks("decode-lengths", "one query, no keys, all of them and three of them", 96,
             [](Form& f) {
               f.batch = 3;
               f.q_len = 1;
               f.q_heads = 8;
               f.k_len = 960;
               f.dim = f.v_dim = 64;
               f.bshd = f.dead_rows = true;
             });
  add_blocks("decode-capped", "one query, capped scores, a window", 32, [](Form& f) {
    f.q_len = 1;
    f.q_heads = 8;
    f.k_len = 640;
    f.dim = f.v_dim = 64;
    f.bshd = f.causal = f.past_len = true;
    f.left = 100;
    f.softcap = 3;
  });
  add_blocks("decode-odd", "two queries, three heads per key head, blocks of five keys", 5,
             [](Form& f) {
               f.q_len = 2;
               f.q_heads = 6;
               f.k_len = 700;
               f.dim = 40;
               f.v_dim = 24;
               f.causal = f.past_len = true;
             });
  add_blocks("decode-wide", "one query, wide heads", 96, [](Form& f) {
    f.q_len = 1;
    f.k_heads = 1;
    f.k_len = 960;
    f.dim = f.v_dim = 160;
    f.bshd = f.causal = f.past_len = true;
  });
  add_blocks("append-window", "some queries, a window that begins inside of a block", 96,
             [](Form& f) {
               f.q_len = 40;
               f.q_heads = 8;
               f.k_len = 480;
               f.dim = f.v_dim = 64;
               f.bshd = f.causal = f.past_len = true;
               f.left = 100;
             });
  add_blocks("append-wide", "more queries, wide heads, blocks of half a tile", 48, [](Form& f) {
    f.q_len = 70;
    f.q_heads = 4;
    f.k_len = 480;
    f.dim = f.v_dim = 128;
    f.causal = f.past_len = true;
  });
  add_blocks("append-mask", "some queries, a bool mask, blocks that are no part of a tile", 20,
             [](Form& f) {
               f.q_len = 40;
               f.q_heads = 4;
               f.k_len = 440;
               f.dim = 72;
               f.v_dim = 64;
               f.mask = Mask::flags;
               f.bshd = f.dead_rows = true;
             });
  for (const int64_t queries : {16, 40})
    add_blocks("many-" + std::to_string(queries), "more heads than processors, short blocks", 24,
               [&](Form& f) {
                 f.q_heads = f.k_heads = 70;
                 f.q_len = queries;
                 f.k_len = 72;
                 f.dim = 32;
                 f.v_dim = 12;
                 f.bshd = f.causal = f.past_len = true;
               });
  return all;
}

}  // namespace

void attention_blocks_rows(Suite& s) {
  for (const Form& f : forms()) attention_forward_row(s, f);
  const auto known_blocks = [](CaseBuilder& b, std::vector<int64_t> table) {
    return b.add(op::attention{.layout = "bshd",
                               .q = b.input("q", {1, 1, 1, 2}, Fill::list({0, 0})),
                               .k = b.input("k", {3, 2, 1, 2}),
                               .v = b.input("v", {3, 2, 1, 1}, Fill::list({3, 5, 7, 11, 13, 17})),
                               .kv_len = b.ints("kv_len", {1}, {3}),
                               .block_table = b.ints("block_table", {1, 3}, std::move(table))});
  };
  s.add({.id = "attention-blocks-known",
         .sentence = "the mean of a block and of the first row of another one",
         .build =
             [=](CaseBuilder& b) {
               b.output("o", known_blocks(b, {2, 0, -7}));
               b.expect("o", {11});
             },
         .tolerance = ulps(4)});
  for (const int64_t block : {int64_t{3}, int64_t{-1}, int64_t{1} << 40})
    s.add({.id = "attention-blocks-range-" + std::string(block < 0    ? "below"
                                                         : block == 3 ? "above"
                                                                      : "far"),
           .sentence = "the number of a block that is read is out of range: an error",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 b.output("o", known_blocks(b, {0, block, 0}));
               },
           .error = TENON_INDEX_OUT_OF_RANGE,
           .error_text = ""});
}

}  // namespace tenon::conform
