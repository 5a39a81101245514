// SPDX-License-Identifier: Apache-2.0
// attention over keys and values of 8-bit integers (q8_0), in one piece and in blocks of keys.
#include <cmath>
#include <limits>

#include "cases/attention.hpp"

namespace tenon::conform {
namespace {

using Form = AttentionForm;
using Mask = AttentionMask;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<Form> forms() {
  std::vector<Form> all;
  const auto add_q8_0 = [&](const std::string& id, const char* sentence, auto change) {
    Form f{.id = "q8-0-" + id, .sentence = sentence, .dim = 32, .v_dim = 32, .q8_0 = true};
    change(f);
    all.push_back(f);
  };
  add_q8_0("plain", "keys and values of 8-bit integers", [](Form& f) { f.v_dim = 96; });
  add_q8_0("mask", "keys and values of 8-bit integers, a float mask, capped scores", [](Form& f) {
    f.mask = Mask::numbers;
    f.softcap = 1.5;
    f.q_heads = 4;
    f.bshd = true;
  });
  add_q8_0("none", "keys and values of 8-bit integers, lengths of zero", [](Form& f) {
    f.batch = 3;
    f.kv_len = f.dead_rows = true;
  });
  add_q8_0("decode", "one query and many keys of 8-bit integers, a window", [](Form& f) {
    f.q_len = 1;
    f.q_heads = 8;
    f.k_len = 700;
    f.dim = f.v_dim = 128;
    f.past_len = f.kv_len = f.causal = true;
    f.left = 350;
  });
  add_q8_0("append", "some queries and many keys of 8-bit integers", [](Form& f) {
    f.q_len = 70;
    f.k_len = 230;
    f.dim = 64;
    f.causal = true;
    f.offset = 160;
    f.bshd = true;
  });
  // One query: rows of blocks on 2, 4 and 8 bytes, heads that share keys, masks.
  const auto add_one = [&](const std::string& id, const char* sentence, int64_t keys, int64_t dim,
                           auto change) {
    add_q8_0("one-" + id, sentence, [&](Form& f) {
      f.q_len = 1, f.q_heads = 6, f.k_len = keys, f.dim = f.v_dim = dim;
      change(f);
    });
  };
  for (const int64_t dim : {32, 64, 96, 128, 192, 256})
    add_one("of-" + std::to_string(dim), "one query, keys of 8-bit integers", 150, dim,
            [&](Form& f) { f.bshd = dim % 64 == 0, f.kv_len = true; });
  add_one("wide-values", "one query, values of 8-bit integers wider than keys", 90, 32,
          [](Form& f) { f.v_dim = 224; });
  add_one("flags", "one query, a mask of keys of 8-bit integers", 7, 64, [](Form& f) {
    f.mask = Mask::keys;
    f.k_len = 7;
  });
  add_one("numbers", "one query, numbers added to capped scores, keys of 8-bit integers", 75, 96,
          [](Form& f) {
            f.mask = Mask::numbers;
            f.softcap = 2;
            f.bshd = true;
          });
  add_one("many-heads", "one query, 40 heads share keys of 8-bit integers", 530, 64,
          [](Form& f) { f.q_heads = 40, f.k_heads = 1, f.kv_len = f.past_len = f.causal = true; });
  add_one("dead", "one query, lengths of zero, keys of 8-bit integers", 40, 64,
          [](Form& f) { f.batch = 3, f.kv_len = f.dead_rows = true; });
  // Few queries, and more.
  for (const int64_t queries : {7, 33, 90})
    for (const bool bshd : {false, true})
      add_q8_0("queries-" + std::to_string(queries) + (bshd ? "-bshd" : ""),
               "some queries, a window, keys of 8-bit integers", [&](Form& f) {
                 f.bshd = bshd;
                 f.q_len = queries, f.q_heads = 6, f.k_len = 210;
                 f.dim = bshd ? 96 : 64, f.v_dim = 128;
                 f.kv_len = f.past_len = f.causal = true;
                 f.left = 100;
               });
  add_q8_0("queries-mask", "many queries, flags as a mask, keys of 8-bit integers", [](Form& f) {
    f.q_len = 80, f.k_len = 100, f.dim = f.v_dim = 256;
    f.mask = Mask::flags;
    f.dead_rows = true;
  });
  add_q8_0("queries-cap", "many queries, numbers added to capped scores, keys of 8-bit integers",
           [](Form& f) {
             f.q_len = 80, f.k_len = 100, f.dim = f.v_dim = 64;
             f.mask = Mask::numbers;
             f.softcap = 1.5;
             f.bshd = true;
           });
  // Keys in blocks of 16: 2-byte rows, windows.
  for (const int64_t queries : {1, 9, 70})
    add_q8_0("pool-of-" + std::to_string(queries), "keys of 8-bit integers in blocks, a window",
             [&](Form& f) {
               f.block = 16;
               f.k_len = 320;
               f.q_len = queries;
               f.q_heads = 4;
               f.dim = 96;
               f.v_dim = 32;
               f.bshd = queries == 9;
               f.kv_len = f.causal = f.past_len = true;
               f.left = 130;
             });
  for (const int64_t block : {1, 64, 96})
    for (const int64_t queries : {1, 40})
      add_q8_0("blocks-" + std::to_string(block) + "-of-" + std::to_string(queries),
               "keys of 8-bit integers in blocks of keys", [&](Form& f) {
                 f.block = block;
                 f.k_len = block == 1 ? 50 : 5 * block;
                 f.q_len = queries;
                 f.q_heads = 8;
                 f.dim = 64;
                 f.v_dim = 96;
                 f.bshd = block != 64;
                 f.kv_len = f.causal = f.past_len = true;
               });
  return all;
}

}  // namespace

void attention_q8_0_rows(Suite& s) {
  for (const Form& f : forms()) attention_forward_row(s, f);
  for (const int64_t queries : {1, 40})
    s.add({.id = "attention-q8-0-beyond-length-" + std::to_string(queries),
           .sentence = "blocks of keys and values beyond kv_len may hold NaN",
           .dtypes = {f32, f16, bf16},
           .build =
               [=](CaseBuilder& b) {
                 constexpr int64_t kKeys = 70, kLength = 37, kDim = 64;
                 const auto stored = [&](const char* name, double step) {
                   std::vector<double> x;
                   for (int64_t i = 0; i < kKeys * kDim; ++i)
                     x.push_back(i / kDim < kLength ? step * static_cast<double>(i % 23 - 11)
                                 : i % 3 == 0       ? kNan
                                                    : kInf);
                   const Value in = b.input(name, {1, 1, kKeys, kDim}, Fill::list(x));
                   return b.add(op::cast{.to = TENON_DTYPE_Q8_0, .x = in});
                 };
                 op::attention n{};
                 n.q = b.input("q", {1, 2, queries, kDim});
                 n.k = stored("k", 0.05);
                 n.v = stored("v", 0.1);
                 n.kv_len = b.ints("kv_len", {1}, {kLength});
                 const double lost = unit_roundoff(b.own()) / unit_roundoff(b.own_acc()) / 32;
                 b.output("o", b.add(n));
                 b.scale("o", [&] { return b.number(queries == 1 ? 2 : 2 + 2 * lost); });
               },
           .tolerance = scaled(64),
           .decomposed = 2,
           .strided = false,
           .may_refuse = true});
}

}  // namespace tenon::conform
