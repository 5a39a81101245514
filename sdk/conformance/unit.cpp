// SPDX-License-Identifier: Apache-2.0
// What is to be proven of a row: its cases, their names and their level.
#include <algorithm>

#include "proof.hpp"

namespace tenon::conform {
namespace {

std::string scale_text(double scale) {
  std::string out = std::to_string(scale);
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out;
}

}  // namespace

std::string stem(const CaseRow& row, tenon_dtype dtype) {
  return row.dtypes.size() > 1 ? row.id + "-" + dtype_text(dtype) : row.id;
}

std::string requirement(const FamilyRow& row, std::string_view proof, tenon_dtype dtype) {
  std::string out = "op." + std::string(row.family) + "." + row.row.id + "." + std::string(proof);
  if (dtype != TENON_DTYPE_NONE) out += "." + dtype_text(dtype);
  return out;
}

bool has_zeros(const CaseRow& row, tenon_dtype dtype) {
  return row.error == TENON_OK && dtype == row.dtypes.front() && !row.known_only;
}

std::vector<GradientCase> gradient_cases(const CaseRow& row) {
  std::vector<GradientCase> out;
  for (const double s : row.scales)
    if (row.gradient)
      out.push_back(
          {row.id + "-grad-" + scale_text(s), ", gradient at scale " + scale_text(s), s, 1});
  if (row.second_order) out.push_back({row.id + "-grad-grad", ", second order", 1, 2});
  return out;
}

namespace {
// The unit's case with zeros for inputs. Of a row that expects an error: what was built before it.
CaseBuilder blank(const Unit& unit) {
  const CaseRow& row = unit.row->row;
  CaseBuilder b(
      {.seed = row.id, .dtype = unit.dtype == TENON_DTYPE_NONE ? f64 : unit.dtype, .blank = true});
  try {
    row.build(b);
  } catch (const Error&) {
    if (row.error == TENON_OK) throw;
  }
  return b;
}

// Rows of the same id have dtypes of different kinds.
std::string kind_of(tenon_dtype dtype) {
  return is_float(dtype) ? "float" : is_integer(dtype) ? "integer" : dtype_text(dtype);
}

std::vector<Case> cases_of(const Unit& unit, bool has_composite) {
  const FamilyRow& row = *unit.row;
  const CaseRow& r = row.row;
  if (unit.fusion) return fusion_cases(row, unit.dtype);
  std::vector<Case> all;
  const auto add = [&](const std::string& id, const char* proof, tenon_dtype dtype,
                       const std::string& more = {}) {
    all.push_back({id, requirement(row, proof + more, dtype), proof});
  };
  if (unit.dtype == TENON_DTYPE_NONE) {
    for (const auto& c : gradient_cases(r)) {
      if (c.order == 1)
        add(c.id, "gradient", TENON_DTYPE_NONE, "." + scale_text(c.scale));
      else
        add(c.id, "second-order", TENON_DTYPE_NONE);
    }
    return all;
  }
  const std::string id = stem(r, unit.dtype);
  add(id, r.error == TENON_OK ? "value" : "error", unit.dtype);
  if (r.error != TENON_OK) return all;
  if (r.strided) add(id + "-strided", "strided", unit.dtype);
  if (has_composite) add(id + "-decomposed", "decomposed", unit.dtype);
  if (has_zeros(r, unit.dtype))
    add(id + "-zeros", "zeros", TENON_DTYPE_NONE, "." + kind_of(unit.dtype));
  return all;
}
}  // namespace

Facts Unit::facts() const {
  CaseBuilder b = blank(*this);
  Facts out{.cases = cases_of(*this, b.has_composite()), .ops = b.used()};
  for (const auto& op : out.ops) out.level = std::max(out.level, op.level);
  if (fusion || dtype == TENON_DTYPE_NONE) out.level = Level::full;
  const auto look_at = [&](int64_t elements) {
    out.elements = std::max(out.elements, elements);
    out.empty |= elements == 0;
  };
  for (const auto& in : b.inputs()) look_at(in.content.type.elements());
  for (const auto& o : b.outputs()) look_at(b.graph().type(o.value).elements());
  return out;
}

std::vector<Unit> units_of(const Suite& suite, bool fusion) {
  std::vector<Unit> out;
  for (const FamilyRow& r : suite.rows()) {
    for (const tenon_dtype d : r.row.dtypes) out.push_back({&r, d, fusion});
    if (fusion) continue;
    if (r.row.gradient || r.row.second_order) out.push_back({&r, TENON_DTYPE_NONE, false});
  }
  return out;
}

}  // namespace tenon::conform
