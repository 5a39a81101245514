// SPDX-License-Identifier: Apache-2.0
// attention attention_backward: grouping, masks, windows, lengths, decode.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// far, lowest: every third query adds a number far below zero (-1e9, -3e38) to all its scores, the
// others to those of their first keys. shift: each query adds a number of its own to all its
// scores. later: the first batch sees nothing, the others all keys.
enum class Mask : uint8_t {
  none,
  flags,
  numbers,
  numbers_inf,
  keys,
  row,
  key_numbers,
  far,
  lowest,
  shift,
  later
};

struct Form {
  std::string id;
  const char* sentence;
  int64_t batch = 2, q_heads = 2, k_heads = 2, q_len = 5, k_len = 7, dim = 6, v_dim = 6;
  Mask mask = Mask::none;
  bool causal = false;
  int64_t offset = 0, left = -1, right = -1;
  double scale = TENON_UNSET, softcap = 0;
  bool kv_len = false, past_len = false, bshd = false;
  bool dead_rows = false;  // rows without a key: lse is -inf
  int64_t nan_douts = 0;   // so many first queries have no key, and a dout of NaN and infinities
  bool nan_keys = false;   // k and v of the first batch hold NaN and infinities
  bool dmask = true;       // the gradient of a float mask is wanted
  int64_t block = 0;       // not 0: k and v are pools of blocks of so many keys
  bool q8_0 = false;       // the dtype of k and v
  // Queries whose scores are far from zero are zero themselves: what is left of their scores beside
  // the mask would be lost in rounding, and differently in each dtype.
  bool is_far() const { return mask == Mask::far || mask == Mask::lowest || mask == Mask::shift; }
  bool is_far(int64_t query, int64_t key) const {
    return mask == Mask::shift || query % 3 == 0 || key * 3 < k_len * 2;
  }
  bool is_all_far(int64_t query) const {
    return is_far(query, causal ? std::min(query, k_len - 1) : k_len - 1);
  }
  DTypes dtypes() const {  // -1e9 is infinite in f16
    return mask == Mask::far || mask == Mask::lowest ? DTypes{f32, bf16, f64} : kFloats;
  }
};

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
  const auto add_blocks = [&](const std::string& id, const char* sentence, int64_t block,
                              auto change) {
    add("blocks-" + id, sentence, [&](Form& f) {
      f.block = block;
      f.kv_len = true;
      change(f);
    });
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
  const auto add_q8_0 = [&](const std::string& id, const char* sentence, auto change) {
    add("q8-0-" + id, sentence, [&](Form& f) {
      f.q8_0 = true;
      f.dim = f.v_dim = 32;
      change(f);
    });
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
  add_blocks("decode-rows-first", "one query, keys in blocks by head, a window", 96, [](Form& f) {
    f.q_len = 1;
    f.q_heads = 4;
    f.k_len = 480;
    f.dim = f.v_dim = 128;
    f.causal = f.past_len = true;
    f.left = 150;
  });
  return all;
}

Dims laid_out(const Form& f, int64_t heads, int64_t len, int64_t last) {
  return f.bshd ? Dims{f.batch, len, heads, last} : Dims{f.batch, heads, len, last};
}

bool big(const Form& f) { return f.k_len > 64 || f.batch * f.k_heads > 20; }

Value mask_of(CaseBuilder& b, const Form& f) {
  const Dims all{f.batch, f.q_heads, f.q_len, f.k_len};
  switch (f.mask) {
    case Mask::flags: {
      // The first query row of each head sees nothing.
      std::vector<double> flags(static_cast<size_t>(f.q_len * f.k_len));
      for (size_t k = 0; k < flags.size(); ++k)
        flags[k] = k >= static_cast<size_t>(f.k_len) && k % 3 != 1;
      return b.input("mask", boolean, {f.q_len, f.k_len}, Fill::list(flags).fixed());
    }
    case Mask::numbers:
      return b.input("mask", {f.batch, 1, f.q_len, f.k_len});
    case Mask::numbers_inf: {
      std::vector<double> m(static_cast<size_t>(f.q_len * f.k_len));
      for (size_t k = 0; k < m.size(); ++k)
        m[k] = k < static_cast<size_t>(f.k_len) || k % 4 == 2 ? -kInf
                                                              : 0.1 * static_cast<double>(k % 7);
      return b.input("mask", {f.q_len, f.k_len}, Fill::list(m).fixed());
    }
    case Mask::far:
    case Mask::lowest: {
      std::vector<double> m;
      for (int64_t i = 0; i < f.q_len; ++i)
        for (int64_t j = 0; j < f.k_len; ++j)
          m.push_back(!f.is_far(i, j) ? 0 : f.mask == Mask::far ? -1e9 : -3e38);
      return b.input("mask", {f.q_len, f.k_len}, Fill::list(m).fixed());
    }
    case Mask::shift: {
      static constexpr double kShifts[] = {0, 9, -13, 40, -77, 300, 1000, -2000, 3e4, -6e4};
      std::vector<double> m;
      for (int64_t i = 0; i < f.q_len; ++i) m.push_back(kShifts[i % 10]);
      return b.input("mask", {f.q_len, 1}, Fill::list(m).fixed());
    }
    case Mask::keys:
      return b.input("mask", boolean, {f.batch, 1, 1, f.k_len},
                     Fill::list({1, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1}).fixed());
    case Mask::later: {
      std::vector<double> flags(static_cast<size_t>(f.batch * f.k_len), 1);
      std::fill_n(flags.begin(), f.k_len, 0);
      return b.input("mask", boolean, {f.batch, 1, 1, f.k_len}, Fill::list(flags).fixed());
    }
    case Mask::row:
      return b.input("mask", {f.k_len});
    case Mask::key_numbers: {
      std::vector<double> m;
      for (int64_t k = 0; k < f.batch * f.k_len; ++k)
        m.push_back(k % 5 == 3 ? -kInf : 0.1 * static_cast<double>(k % 7));
      return b.input("mask", {f.batch, 1, 1, f.k_len}, Fill::list(m).fixed());
    }
    default:
      return {};
  }
}

// k or v, `last` wide.
Fill keys_of(const Form& f, int64_t last) {
  if (!f.nan_keys) return Fill::normal();
  const int64_t batch = f.k_heads * f.k_len * last;
  std::vector<double> keys;
  for (int64_t i = 0; i < f.batch * batch; ++i)
    keys.push_back(i >= batch ? 0.2 * static_cast<double>(i % 19 - 9) : i % 2 == 0 ? kNan : kInf);
  return Fill::list(keys);
}

Value stored(CaseBuilder& b, const Form& f, const char* name, const Dims& dims, int64_t last) {
  return f.q8_0 ? b.input(name, TENON_DTYPE_Q8_0, dims, Fill::blocks())
                : b.input(name, dims, keys_of(f, last));
}

// Batch entries share their first block, and the others lie backwards in the pool. Numbers that are
// not read are out of range.
void set_blocks(CaseBuilder& b, const Form& f, op::attention& n, const std::vector<int64_t>& lens) {
  const int64_t blocks = f.k_len / f.block, pool = f.batch * blocks + 1;
  const auto place = [&](int64_t last) {
    return f.bshd ? Dims{pool, f.block, f.k_heads, last} : Dims{pool, f.k_heads, f.block, last};
  };
  n.k = stored(b, f, "k", place(f.dim), f.dim);
  n.v = stored(b, f, "v", place(f.v_dim), f.v_dim);
  std::vector<int64_t> table;
  for (int64_t e = 0; e < f.batch; ++e)
    for (int64_t k = 0; k < blocks; ++k)
      table.push_back(k * f.block >= lens[static_cast<size_t>(e)] ? (k % 2 ? -1 : 1 << 30)
                      : k == 0                                    ? 1
                                                                  : pool - 1 - e * blocks - k + 1);
  n.block_table = b.ints("block_table", {f.batch, blocks}, table, f.bshd ? i32 : i64);
}

template <class Op>
void set_operands(CaseBuilder& b, const Form& f, Op& n) {
  n.layout = f.bshd ? "bshd" : "bhsd";
  n.scale = f.scale;
  n.softcap = f.softcap;
  n.causal = f.causal;
  n.left_window = f.left;
  n.right_window = f.right;
  n.offset = f.offset;
  n.q = b.input("q", laid_out(f, f.q_heads, f.q_len, f.dim));
  if (f.is_far()) {
    std::vector<double> near;
    for (int64_t i = 0; i < f.q_len; ++i) near.push_back(f.is_all_far(i) ? 0 : 1);
    n.q = b.binary("mul", n.q, b.input("near", {f.q_len, 1}, Fill::list(near).fixed()));
  }
  const int64_t last = f.k_len - 2;
  const std::vector<int64_t> lens =
      f.batch == 3 ? std::vector<int64_t>{0, f.k_len, 3} : std::vector<int64_t>{last, f.k_len};
  if constexpr (requires { n.block_table; })
    if (f.block > 0) set_blocks(b, f, n, lens);
  if (f.block == 0) {
    n.k = stored(b, f, "k", laid_out(f, f.k_heads, f.k_len, f.dim), f.dim);
    n.v = stored(b, f, "v", laid_out(f, f.k_heads, f.k_len, f.v_dim), f.v_dim);
  }
  n.mask = mask_of(b, f);
  if (f.kv_len) n.kv_len = b.ints("kv_len", {f.batch}, lens, i32);
  if (f.past_len)
    n.past_len = b.ints("past_len", {f.batch}, {last - f.q_len, f.k_len - f.q_len}, i32);
}

// The exponent's error grows with the scores.
double cost(const Form& f) { return 64 + 4 * std::sqrt(static_cast<double>(f.k_len)); }

void forward_row(Suite& s, const Form& f) {
  s.add(
      {.id = "attention-" + f.id,
       .sentence = std::string("attention: ") + f.sentence,
       .dtypes = f.dtypes(),
       .build =
           [=](CaseBuilder& b) {
             op::attention n{.want_lse = true};
             set_operands(b, f, n);
             const Node y = b.add(n);
             b.output("o", y[0]);
             b.scale("o", [&] { return b.number(3); });
             if (f.dead_rows)
               b.side_output("lse", y[1]);
             else
               b.output("lse", y[1]);
             b.scale("lse", [&] {
               return f.is_far() ? b.binary("max", b.abs(y[1]), b.number(8)) : b.number(8);
             });
           },
       .tolerance = scaled(cost(f)),
       .decomposed = 2,
       .gradient = !big(f) && !f.is_far() && !f.nan_keys && f.q_len > 0 && f.k_len > 0,
       .scales = f.mask == Mask::none ? std::vector<double>{0.05, 1, 4} : std::vector<double>{1}});
}

Fill dout_of(const Form& f) {
  if (f.nan_douts == 0) return Fill::normal();
  std::vector<double> dout;  // of one head: all have the same
  for (int64_t i = 0; i < f.q_len * f.v_dim; ++i)
    dout.push_back(i >= f.nan_douts * f.v_dim ? 0.2 * static_cast<double>(i % 19 - 9)
                   : i % 2 == 0               ? kNan
                                              : kInf);
  return Fill::list(dout);
}

void backward_row(Suite& s, const Form& f) {
  s.add({.id = "attention-backward-" + f.id,
         .sentence = std::string("gradient of attention: ") + f.sentence,
         .dtypes = f.dtypes(),
         .build =
             [=](CaseBuilder& b) {
               op::attention_backward n{};
               set_operands(b, f, n);
               n.dout = b.input("dout", laid_out(f, f.q_heads, f.q_len, f.v_dim), dout_of(f));
               const Node y = b.add(op::attention{.layout = n.layout,
                                                  .scale = n.scale,
                                                  .softcap = n.softcap,
                                                  .causal = n.causal,
                                                  .left_window = n.left_window,
                                                  .right_window = n.right_window,
                                                  .offset = n.offset,
                                                  .q = n.q,
                                                  .k = n.k,
                                                  .v = n.v,
                                                  .mask = n.mask,
                                                  .kv_len = n.kv_len,
                                                  .past_len = n.past_len,
                                                  .want_lse = true});
               n.o = y[0];
               n.lse = y[1];
               n.want_dmask = f.dmask && (f.mask == Mask::numbers || f.mask == Mask::numbers_inf ||
                                          f.mask == Mask::row);
               const Node d = b.add(n);
               static constexpr const char* kNames[] = {"dq", "dk", "dv", "dmask"};
               // o was rounded to the dtype, and the gradients have lost that much.
               const double rounded = unit_roundoff(b.own()) / unit_roundoff(b.own_acc());
               for (size_t k = 0; k < (n.want_dmask ? 4 : 3); ++k) {
                 b.output(kNames[k], d[k]);
                 b.scale(kNames[k], [&] {
                   return b.binary("mul", b.number(1 + rounded / 16),
                                   b.binary("max", largest_of(b, d[k]), b.number(1)));
                 });
               }
             },
         .tolerance = scaled(2 * cost(f)),
         .decomposed = 2});
}

}  // namespace

void attention_cases(Suite& s) {
  s.floor({.joined = 270, .own_joined = 0});
  for (const Form& f : forms()) {
    if (f.nan_douts == 0) forward_row(s, f);
    if (f.block == 0 && !f.q8_0) backward_row(s, f);
  }
  s.add({.id = "attention-beyond-length",
         .sentence = "keys and values beyond kv_len may hold NaN and infinities",
         .build =
             [](CaseBuilder& b) {
               std::vector<double> k(40), v(40);
               for (size_t i = 0; i < 40; ++i) {
                 const bool beyond = i % 20 >= 12;  // steps 3 and 4 of five, four wide
                 k[i] = beyond ? kNan : 0.1 * static_cast<double>(i % 7);
                 v[i] = beyond ? (i % 2 ? kInf : kNan) : 0.3 * static_cast<double>(i % 5);
               }
               op::attention n{.want_lse = true};
               n.q = b.input("q", {1, 4, 3, 4});
               n.k = b.input("k", {1, 2, 5, 4}, Fill::list(k));
               n.v = b.input("v", {1, 2, 5, 4}, Fill::list(v));
               n.kv_len = b.ints("kv_len", {1}, {3});
               const Node y = b.add(n);
               b.output("o", y[0]);
               b.scale("o", [&] { return b.number(2); });
               b.output("lse", y[1]);
               b.scale("lse", [&] { return b.number(4); });
             },
         .tolerance = scaled(64),
         .decomposed = 2,
         .strided = false});
  s.add({.id = "attention-dead-row-known",
         .sentence = "a row without a key gives zeros, not a mean",
         .build =
             [](CaseBuilder& b) {
               const Node y = b.add(op::attention{
                   .q = b.input("q", {1, 1, 2, 2}),
                   .k = b.input("k", {1, 1, 2, 2}),
                   .v = b.input("v", {1, 1, 2, 1}, Fill::list({3, 5})),
                   .mask = b.input("mask", boolean, {2, 2}, Fill::list({0, 0, 0, 1}).fixed()),
                   .want_lse = true});
               b.output("o", y[0]);
               b.expect("o", {0, 5});
             },
         .tolerance = ulps(4)});
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
  s.add({.id = "attention-heads-refused",
         .sentence = "query heads that are no multiple of the key heads are refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("o", b.add(op::attention{.q = b.input("q", {1, 3, 2, 4}),
                                                 .k = b.input("k", {1, 2, 2, 4}),
                                                 .v = b.input("v", {1, 2, 2, 4})}));
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "heads"});
}

}  // namespace tenon::conform
