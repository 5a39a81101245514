// SPDX-License-Identifier: Apache-2.0
// decode_attention: turned and plain heads, caches with and without blocks, windows, split keys,
// entries without a new key, operands that are parts of one value.
#include "cases/attention.hpp"

namespace tenon::conform {
namespace {

using Form = DecodeForm;

std::vector<Form> short_forms() {
  return {
      {.id = "plain", .sentence = "two sequences, one of them without a key before"},
      {.id = "rope", .sentence = "halves of a head turn", .rope = true},
      {.id = "rope-interleaved", .sentence = "neighbours turn", .rope = true, .interleaved = true},
      {.id = "rope-part", .sentence = "half of a head turns", .rope = true, .n_rot = 4},
      {.id = "rope-part-interleaved",
       .sentence = "a part of a head turns, in neighbours, i32",
       .dim = 24,
       .v_dim = 16,
       .rope = true,
       .n_rot = 10,
       .interleaved = true,
       .narrow = true},
      {.id = "odd", .sentence = "odd sizes", .heads = 6, .dim = 5, .v_dim = 3, .narrow = true},
      {.id = "odd-rope",
       .sentence = "odd sizes, all but one element turn",
       .heads = 3,
       .k_heads = 3,
       .dim = 7,
       .v_dim = 9,
       .past = {6, 1, 3},
       .rope = true,
       .n_rot = 6},
      {.id = "multi-query", .sentence = "seven heads, one key head", .heads = 7, .k_heads = 1},
      {.id = "scale", .sentence = "a scale of its own", .rope = true, .scale = 0.13},
      {.id = "softcap", .sentence = "capped scores", .softcap = 0.8},
      {.id = "window", .sentence = "a window of three keys", .past = {6, 1}, .left = 2},
      {.id = "window-own", .sentence = "a window of the new key alone", .rope = true, .left = 0},
      {.id = "first", .sentence = "one sequence, its first token", .past = {0}, .rope = true},
      {.id = "full", .sentence = "the last row of the caches", .past = {6, 6, 6}, .rope = true},
      {.id = "without-row",
       .sentence = "entries that append nothing",
       .past = {4, 3, 0, 5},
       .without_row = {true, true, true, false}},
      {.id = "without-row-rope",
       .sentence = "entries that append nothing, turned queries, i32",
       .past = {4, 3, 0, 5},
       .without_row = {true, true, true, false},
       .rope = true,
       .narrow = true},
      {.id = "packed", .sentence = "q, k and v are parts of one value", .packed = true},
      {.id = "packed-rope",
       .sentence = "q, k and v are parts of one value, turned, keys in blocks",
       .rope = true,
       .interleaved = true,
       .block = 3,
       .packed = true},
      {.id = "nan-rest",
       .sentence = "rows that are not read, and those that are replaced, may hold NaN",
       .rope = true,
       .nan_rest = true},
      {.id = "no-values", .sentence = "values of no elements", .v_dim = 0, .rope = true},
      {.id = "blocks-one", .sentence = "a block has one key", .block = 1},
      {.id = "blocks-shared",
       .sentence = "sequences share their first block",
       .past = {6, 5, 7},
       .rope = true,
       .block = 5,
       .narrow = true},
      {.id = "blocks-without-row",
       .sentence = "keys in blocks, entries that append nothing",
       .past = {4, 3, 0, 5},
       .without_row = {true, true, true, false},
       .block = 2},
  };
}

std::vector<Form> long_forms() {
  std::vector<Form> all;
  const auto add = [&](Form f) { all.push_back(std::move(f)); };
  const auto text = [](int64_t n) { return std::to_string(n); };
  for (const int64_t dim : {64, 80, 96, 128})
    for (const int64_t group : {1, 4, 7, 16}) {
      const bool blocks = group == 4 || group == 16;
      add({.id = text(dim) + "-" + text(group),
           .sentence = "many keys, so many elements in a head and query heads of a key head",
           .heads = 2 * group,
           .dim = dim,
           .v_dim = dim,
           .keys = 480,
           .past = {333, 0, 479},
           .rope = true,
           .interleaved = group == 7,
           .block = blocks ? 96 : 0,
           .narrow = dim == 80,
           .packed = group == 4,
           .dtypes = group == 4 ? kFloats : kHalves});
    }
  add({.id = "values",
       .sentence = "wider values",
       .dim = 64,
       .v_dim = 120,
       .keys = 300,
       .past = {299, 17},
       .rope = true,
       .n_rot = 32,
       .dtypes = kHalves});
  add({.id = "values-slim",
       .sentence = "slimmer values, blocks of five keys",
       .dim = 128,
       .v_dim = 40,
       .keys = 300,
       .past = {299, 17, 4},
       .block = 5,
       .dtypes = kHalves});
  add({.id = "long-nan",
       .sentence = "many keys, other rows hold NaN, a window",
       .heads = 8,
       .dim = 64,
       .v_dim = 64,
       .keys = 700,
       .past = {513, 255},
       .rope = true,
       .left = 300,
       .nan_rest = true,
       .dtypes = kHalves});
  // Keys that a device splits: over the blocks of a cluster, and over more of them.
  const auto add_split = [&](Form f) {
    f.id = "split-" + f.id;
    f.rope = true;
    f.dtypes = kHalves;
    add(std::move(f));
  };
  add_split({.id = "two-heads",
             .sentence = "2304 keys, two key heads",
             .heads = 8,
             .dim = 128,
             .v_dim = 128,
             .keys = 2304,
             .past = {2303}});
  add_split({.id = "batch",
             .sentence = "2304 keys, three sequences, lengths from one to all",
             .heads = 7,
             .k_heads = 1,
             .dim = 64,
             .v_dim = 64,
             .keys = 2304,
             .past = {2303, 0, 1024}});
  add_split({.id = "one-head",
             .sentence = "6144 keys of one key head",
             .k_heads = 1,
             .dim = 64,
             .v_dim = 64,
             .keys = 6144,
             .past = {6143},
             .narrow = true});
  add_split({.id = "one-head-short",
             .sentence = "room for 6144 keys, and 700 of them",
             .heads = 16,
             .k_heads = 1,
             .dim = 80,
             .v_dim = 80,
             .keys = 6144,
             .past = {700}});
  add_split({.id = "window",
             .sentence = "a window that begins in the middle of a split",
             .heads = 8,
             .dim = 64,
             .v_dim = 64,
             .keys = 4096,
             .past = {4000, 300},
             .left = 1111});
  // Of many heads each has fewer warps, and then no splits.
  std::vector<int64_t> lengths;
  for (int64_t e = 0; e < 20; ++e) lengths.push_back(e * 37 % 130);
  add_split({.id = "many-heads",
             .sentence = "130 keys, 20 sequences, two key heads",
             .heads = 8,
             .dim = 128,
             .v_dim = 128,
             .keys = 130,
             .past = lengths,
             .block = 26});
  for (int64_t& length : lengths) length += 70;
  add_split({.id = "many-more-heads",
             .sentence = "200 keys, 20 sequences, seven key heads",
             .heads = 14,
             .k_heads = 7,
             .dim = 32,
             .v_dim = 32,
             .keys = 200,
             .past = lengths,
             .narrow = true});
  add_split({.id = "blocks",
             .sentence = "many blocks of 96 keys",
             .heads = 8,
             .dim = 128,
             .v_dim = 128,
             .keys = 2112,
             .past = {2000},
             .block = 96,
             .packed = true});
  add_split({.id = "blocks-five",
             .sentence = "many blocks of five keys, a window, capped scores",
             .heads = 14,
             .dim = 64,
             .v_dim = 64,
             .keys = 2100,
             .past = {2099, 512, 70},
             .block = 5,
             .left = 1500,
             .softcap = 3,
             .narrow = true});
  add_split({.id = "without-row",
             .sentence = "many keys, an entry that appends nothing",
             .heads = 8,
             .dim = 64,
             .v_dim = 64,
             .keys = 2304,
             .past = {2300, 2200},
             .without_row = {true, false}});
  return all;
}

}  // namespace

void attention_decode_rows(Suite& s) {
  for (const Form& f : short_forms()) decode_attention_row(s, f);
  for (const Form& f : long_forms()) decode_attention_row(s, f);
  attention_decode_known_rows(s);
}

}  // namespace tenon::conform
