// SPDX-License-Identifier: Apache-2.0
// Forms of delta rules, and the parts of their cases.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "cases/families.hpp"

namespace tenon::conform {

struct DeltaRuleForm {
  const char* id;
  const char* sentence;
  int64_t batch, tokens, heads, each, keys, values;
  bool by_key = false, l2norm = false, state = false, last = false;
  double scale = TENON_UNSET;
  std::vector<int64_t> ends{};  // cu_seqlens
  tenon_dtype index = i32;
  bool growing = false;    // g > 0
  bool one_grows = false;  // g > 0 at one token of the last value head
  bool gradient = false;

  int64_t sequences() const { return ends.empty() ? batch : static_cast<int64_t>(ends.size()) - 1; }
  Dims states() const { return {sequences(), heads * each, keys, values}; }
};

// Keys are short enough that no step lets the state grow.
template <class Op>
void fill(CaseBuilder& b, const DeltaRuleForm& f, Op& n) {
  const int64_t rows = f.heads * f.each;
  const Dims key = {f.batch, f.tokens, f.heads, f.keys}, row = {f.batch, f.tokens, rows};
  const double length = f.l2norm ? 1 : 0.7 / std::sqrt(static_cast<double>(f.keys));
  n.scale = f.scale, n.qk_l2norm = f.l2norm;
  n.q = b.input("q", key);
  n.k = b.input("k", key, Fill::normal(length));
  n.v = b.input("v", {f.batch, f.tokens, rows, f.values});
  Dims decay = row;
  if (f.by_key) decay.push_back(f.keys);
  Fill decays = f.growing ? Fill::uniform(0.1, 0.4) : Fill::uniform(-0.7, -0.01);
  if (f.one_grows) {
    std::vector<double> g(static_cast<size_t>(f.batch * f.tokens * rows));
    for (size_t i = 0; i < g.size(); ++i) g[i] = -0.03 * static_cast<double>(1 + i * 7 % 11);
    g[static_cast<size_t>(6 * rows - 1)] = 0.2;
    decays = Fill::list(std::move(g));
  }
  n.g = b.input("g", b.own_acc(), decay, decays);
  n.beta = b.input("beta", row, Fill::uniform(0.1, 0.9));
  if (f.state) n.state = b.input("state", b.own_acc(), f.states(), Fill::normal());
  if (!f.ends.empty()) n.cu_seqlens = b.ints("cu_seqlens", {f.sequences() + 1}, f.ends, f.index);
}

void delta_rule_known_rows(Suite& s);  // known by hand, and what is refused

}  // namespace tenon::conform
