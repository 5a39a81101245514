// SPDX-License-Identifier: Apache-2.0
// attention attention_backward: grouping, masks, windows, lengths, decode.
#include "cases/attention.hpp"

namespace tenon::conform {
namespace {

using Form = AttentionForm;
using Mask = AttentionMask;

std::vector<Form> forms() {
  std::vector<Form> all;
  const auto add = [&](const std::string& id, const char* sentence, auto change) {
    Form f{.id = id, .sentence = sentence};
    change(f);
    all.push_back(f);
  };
  add("plain", "every key", [](Form&) {});
  add("bshd", "heads behind steps", [](Form& f) { f.bshd = true; });
  add("grouped", "three query heads per key head", [](Form& f) { f.q_heads = 6; });
  add("grouped-bshd", "grouped, heads behind steps, causal", [](Form& f) {
    f.q_heads = 6;
    f.bshd = f.causal = true;
  });
  add("multi-query", "one key head", [](Form& f) {
    f.q_heads = 3;
    f.k_heads = 1;
  });
  add("odd", "odd sizes, v of another width", [](Form& f) {
    f.dim = 5;
    f.v_dim = 3;
    f.q_len = 3;
  });
  add("causal", "no key after the query", [](Form& f) { f.causal = true; });
  add("causal-offset", "causal, aligned at the end", [](Form& f) {
    f.causal = true;
    f.offset = 2;
  });
  add("causal-early", "a negative offset leaves rows without keys", [](Form& f) {
    f.causal = true;
    f.offset = -2;
    f.dead_rows = true;
  });
  add("window-left", "a sliding window", [](Form& f) {
    f.causal = true;
    f.left = 2;
    f.offset = 2;
  });
  add("window-right", "a window ahead", [](Form& f) { f.right = 1; });
  add("window-both", "a window both ways", [](Form& f) {
    f.left = 1;
    f.right = 2;
    f.offset = 1;
  });
  add("mask", "a bool mask", [](Form& f) {
    f.mask = Mask::flags;
    f.dead_rows = true;
  });
  add("mask-keys", "key padding, [B,1,1,Sk]", [](Form& f) {
    f.mask = Mask::keys;
    f.q_heads = 4;
  });
  add("mask-row", "a float mask of one row", [](Form& f) { f.mask = Mask::row; });
  const auto add_key_numbers = [&](const std::string& id, const char* sentence, auto change) {
    add(id, sentence, [&](Form& f) {
      f.mask = Mask::key_numbers;
      f.q_len = 70;
      f.k_len = 134;
      f.dim = f.v_dim = 32;
      f.dmask = false;
      change(f);
    });
  };
  add_key_numbers("mask-key-numbers", "numbers for the keys of a batch, -inf among them",
                  [](Form&) {});
  add_key_numbers("mask-key-numbers-causal", "the same, causal, grouped, wide heads, rows first",
                  [](Form& f) {
                    f.causal = f.bshd = true;
                    f.k_heads = 1;
                    f.dim = f.v_dim = 72;
                  });
  add("mask-float", "a float mask that is added", [](Form& f) { f.mask = Mask::numbers; });
  add("mask-float-inf", "a float mask with -inf", [](Form& f) {
    f.mask = Mask::numbers_inf;
    f.dead_rows = true;
  });
  const auto add_far = [&](const std::string& id, const char* sentence, auto change) {
    for (const Mask mask : {Mask::far, Mask::lowest})
      add(id + (mask == Mask::far ? "" : "-lowest"), sentence, [&](Form& f) {
        f.mask = mask;
        change(f);
      });
  };
  const auto add_nan_dout = [&](const std::string& id, const char* sentence, int64_t rows,
                                auto change) {
    add("nan-dout" + id, sentence, [&](Form& f) {
      f.dead_rows = true;
      f.nan_douts = rows;
      change(f);
    });
  };
  add_nan_dout("", "rows without keys give nothing, even if their dout is NaN", 1,
               [](Form& f) { f.mask = Mask::flags; });
  add_nan_dout("-long", "the same, more than a tile of such rows", 70, [](Form& f) {
    f.batch = f.k_heads = 1;
    f.q_len = f.k_len = 150;
    f.dim = f.v_dim = 64;
    f.causal = true;
    f.offset = -70;
  });
  add_nan_dout("-masked", "the same, a bool mask, grouped", 1, [](Form& f) {
    f.batch = f.k_heads = 1;
    f.mask = Mask::flags;
    f.q_len = 70;
    f.k_len = 150;
    f.dim = 128;
    f.v_dim = 96;
  });
  add_nan_dout("-wide", "the same, a float mask, wide heads", 1, [](Form& f) {
    f.batch = f.q_heads = f.k_heads = 1;
    f.mask = Mask::numbers_inf;
    f.q_len = 70;
    f.k_len = 80;
    f.dim = f.v_dim = 160;
  });
  add_nan_dout("-constant", "the same, a float mask without a gradient, wide heads", 1,
               [](Form& f) {
                 f.batch = f.q_heads = f.k_heads = 1;
                 f.mask = Mask::numbers_inf;
                 f.q_len = 70;
                 f.k_len = 80;
                 f.dim = f.v_dim = 160;
                 f.dmask = false;
               });
  const auto add_nan_keys = [&](const std::string& id, const char* sentence, auto change) {
    add("nan-keys" + id, sentence, [&](Form& f) {
      f.mask = Mask::later;
      f.dead_rows = f.nan_keys = true;
      change(f);
    });
  };
  add_nan_keys("", "rows without keys are zeros, even if k and v hold NaN", [](Form&) {});
  add_nan_keys("-long", "the same, several tiles", [](Form& f) {
    f.k_heads = 1;
    f.q_len = 70;
    f.k_len = 150;
    f.dim = 64;
    f.v_dim = 128;
  });
  add_nan_keys("-wide", "the same, wide heads", [](Form& f) {
    f.q_heads = f.k_heads = 1;
    f.q_len = f.k_len = 70;
    f.dim = f.v_dim = 160;
  });
  add_nan_keys("-capped", "the same, capped scores", [](Form& f) { f.softcap = 1.5; });
  add_nan_keys("-decode", "the same, few queries and many keys", [](Form& f) {
    f.k_heads = 1;
    f.q_len = 2;
    f.k_len = 300;
    f.dim = f.v_dim = 64;
  });
  add_far("mask-far", "rows and first keys that a mask puts far below zero", [](Form&) {});
  add_far("mask-far-long", "the same, whole tiles of keys among them", [](Form& f) {
    f.batch = f.q_heads = f.k_heads = 1;
    f.q_len = 70;
    f.k_len = 200;
    f.dim = f.v_dim = 64;
  });
  add_far("mask-far-causal", "the same, causal, capped, grouped", [](Form& f) {
    f.batch = f.k_heads = 1;
    f.q_len = f.k_len = 130;
    f.dim = f.v_dim = 16;
    f.causal = true;
    f.softcap = 3;
  });
  add_far("mask-far-decode", "the same, few queries and many keys", [](Form& f) {
    f.batch = f.k_heads = 1;
    f.q_len = 2;
    f.k_len = 300;
    f.dim = f.v_dim = 64;
  });
  add("mask-shift", "rows whose scores are far from zero, and alike",
      [](Form& f) { f.mask = Mask::shift; });
  add("mask-shift-long", "the same, of many keys", [](Form& f) {
    f.mask = Mask::shift;
    f.batch = f.q_heads = f.k_heads = 1;
    f.q_len = 70;
    f.k_len = 200;
    f.dim = f.v_dim = 72;
  });
  add("softcap", "capped scores", [](Form& f) { f.softcap = 0.8; });
  add("softcap-mask", "capped scores, a float mask, causal", [](Form& f) {
    f.softcap = 1.5;
    f.mask = Mask::numbers;
    f.causal = true;
  });
  add("scale", "a scale of its own", [](Form& f) { f.scale = 0.13; });
  add("kv-len", "lengths per batch, what is beyond may be NaN", [](Form& f) { f.kv_len = true; });
  add("kv-len-none", "a length of zero leaves rows without keys", [](Form& f) {
    f.kv_len = f.dead_rows = true;
    f.batch = 3;
  });
  add("decode", "one query after past_len keys", [](Form& f) {
    f.q_len = 1;
    f.causal = f.past_len = f.kv_len = true;
    f.q_heads = 4;
  });
  add("decode-window", "one query, a window, grouped", [](Form& f) {
    f.q_len = 1;
    f.causal = f.past_len = true;
    f.left = 2;
    f.q_heads = 4;
  });
  add("append", "three queries after past_len keys", [](Form& f) {
    f.q_len = 3;
    f.causal = f.past_len = f.kv_len = true;
  });
  add("one-key", "one key", [](Form& f) { f.k_len = 1; });
  add("no-keys", "no keys at all", [](Form& f) {
    f.k_len = 0;
    f.dead_rows = true;
  });
  add("no-queries", "no queries", [](Form& f) { f.q_len = 0; });
  add("long", "several blocks of queries and keys", [](Form& f) {
    f.batch = 1;
    f.q_len = 70;
    f.k_len = 133;
    f.dim = f.v_dim = 32;
    f.causal = true;
    f.offset = 63;
  });
  add("long-window", "blocks outside of a window", [](Form& f) {
    f.batch = 1;
    f.q_len = f.k_len = 150;
    f.dim = f.v_dim = 16;
    f.causal = true;
    f.left = 20;
  });
  add("far-offset", "a far offset that a far window makes up for", [](Form& f) {
    f.batch = 1;
    f.q_len = f.k_len = 150;
    f.dim = f.v_dim = 64;
    f.offset = -(int64_t{1} << 31);
    f.right = int64_t{1} << 32;
  });
  add("far-window", "a far offset, and a window as far behind it", [](Form& f) {
    f.batch = 1;
    f.q_len = f.k_len = 150;
    f.dim = f.v_dim = 64;
    f.causal = true;
    f.offset = f.left = int64_t{1} << 32;
  });
  add("long-softcap", "capped scores, blocks with keys that are not allowed", [](Form& f) {
    f.batch = 1;
    f.q_len = f.k_len = 96;
    f.dim = f.v_dim = 128;
    f.causal = true;
    f.softcap = 1.2;
  });
  add("long-wide", "wide heads, rows of many keys", [](Form& f) {
    f.batch = 1;
    f.q_len = 64;
    f.k_len = 700;
    f.dim = f.v_dim = 128;
    f.causal = true;
    f.offset = 636;
  });
  add("no-values", "values of no elements", [](Form& f) { f.v_dim = 0; });
  add("no-values-wide", "values of no elements, more rows and keys than a tile has", [](Form& f) {
    f.batch = 1;
    f.q_len = 40;
    f.k_len = 70;
    f.dim = 64;
    f.v_dim = 0;
  });
  add("no-values-decode", "values of no elements, one query and many keys", [](Form& f) {
    f.q_len = 1;
    f.k_len = 700;
    f.dim = 64;
    f.v_dim = 0;
    f.q_heads = 8;
  });
  add("short", "as many queries as keys, of one small tile", [](Form& f) {
    f.q_len = f.k_len = 16;
    f.dim = f.v_dim = 20;
    f.q_heads = f.k_heads = 3;
    f.bshd = true;
  });
  add("many-short", "more heads than processors, short rows", [](Form& f) {
    f.batch = 10;
    f.q_heads = f.k_heads = 17;
    f.q_len = f.k_len = 24;
    f.dim = 8;
    f.v_dim = 24;
    f.bshd = true;
  });
  add("many-keys", "more heads than processors, short rows that look at two tiles of keys",
      [](Form& f) {
        f.batch = 8;
        f.q_heads = f.k_heads = 17;
        f.q_len = 24;
        f.k_len = 70;
        f.dim = 24;
        f.v_dim = 8;
      });
  add("many", "more heads than processors, a tile of queries and two of keys", [](Form& f) {
    f.batch = 10;
    f.q_heads = f.k_heads = 17;
    f.q_len = 64;
    f.k_len = 70;
    f.dim = 32;
    f.v_dim = 12;
    f.causal = true;
    f.offset = 5;
  });
  add("many-rows", "more heads than processors, a tile of queries and some more, wider values",
      [](Form& f) {
        f.batch = 9;
        f.q_heads = f.k_heads = 15;
        f.q_len = 70;
        f.k_len = 100;
        f.dim = 36;
        f.v_dim = 40;
        f.left = 75;
        f.softcap = 3;
        f.bshd = true;
      });
  add("few-queries", "two queries, a window, a bool mask, capped scores, many keys", [](Form& f) {
    f.q_heads = 4;
    f.mask = Mask::flags;
    f.dead_rows = true;
    f.q_len = 2;
    f.k_len = 230;
    f.dim = 20;
    f.left = 200;
    f.offset = 225;
    f.softcap = 1.5;
  });
  add("few-queries-float", "one query, a float mask, wide values", [](Form& f) {
    f.mask = Mask::row;
    f.q_len = 1;
    f.k_len = 230;
    f.dim = 20;
    f.v_dim = 28;
  });
  add("long-decode", "one query and many keys", [](Form& f) {
    f.q_len = 1;
    f.k_len = 700;
    f.dim = f.v_dim = 64;
    f.q_heads = 8;
    f.past_len = f.kv_len = f.causal = true;
  });
  const auto add_long_window = [&](const std::string& id, const char* sentence, int64_t queries) {
    add(id, sentence, [&](Form& f) {
      f.q_len = queries;
      f.k_len = 700;
      f.dim = f.v_dim = 64;
      f.q_heads = 4;
      f.past_len = f.kv_len = f.causal = true;
      f.left = 333;
    });
  };
  add_long_window("long-decode-window", "one query, a window of many keys", 1);
  add_long_window("long-append-window", "some queries, a window of many keys", 20);
  return all;
}

}  // namespace

void attention_cases(Suite& s) {
  s.floor({.joined = 270, .own_joined = 0});
  for (const Form& f : forms()) {
    if (f.nan_douts == 0) attention_forward_row(s, f);
    attention_backward_row(s, f);
  }
  attention_blocks_rows(s);
  attention_decode_rows(s);
  attention_q8_0_rows(s);
  attention_known_rows(s);
}

}  // namespace tenon::conform
