// SPDX-License-Identifier: Apache-2.0
// The families in the order of ops.def; those whose ops no plugin sees (level meta) have no rows.
#include "cases/families.hpp"

#include <algorithm>

namespace tenon::conform {
namespace {

// One entry per op: a family comes as often as it has ops.
std::vector<Family> of_each_op() {
  return {
#define OP_LEVEL_primitive(family) {#family, family##_cases},
#define OP_LEVEL_core(family) {#family, family##_cases},
#define OP_LEVEL_meta(family)
#define OP_LEVEL_control(family) {#family, family##_cases},
#define TENON_OP(name, version, family, level) OP_LEVEL_##level(family)
#include <tenon/each_op.inl>
  };
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> once;
    for (const Family& f : of_each_op())
      if (std::ranges::find(once, f.name, &Family::name) == once.end()) once.push_back(f);
    return once;
  }();
  return all;
}

}  // namespace tenon::conform
