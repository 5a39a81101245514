// SPDX-License-Identifier: Apache-2.0
// attention over keys and values of 8-bit integers (q8_0), in one piece and in blocks of keys.
#include "cases/attention.hpp"

namespace tenon::conform {
namespace {

using Form = AttentionForm;
using Mask = AttentionMask;

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
}

}  // namespace tenon::conform
