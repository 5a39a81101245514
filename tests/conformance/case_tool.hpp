// SPDX-License-Identifier: Apache-2.0
// What tools share that turn the kit's cases into other graphs and run these on the template plugin,
// floats in f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "cases/families.hpp"
#include "kit.hpp"

namespace tenon::case_tool {

using namespace tenon::conform;
using Tensors = std::map<std::string, HostTensor>;

struct Totals {
  size_t compared = 0, failed = 0, skipped = 0;
};

inline Tensors run(const Runtime& runtime, const Graph& g, const Tensors& inputs,
                   ExecutableOptions options = {}) {
  options.device = "template:0";
  Store store(runtime);
  const Executable exe(runtime, g, store, options);
  Context context(exe);
  for (const auto& [name, x] : inputs) context.set(name, x.type, x.bytes.data(), x.bytes.size());
  context.run();
  Tensors out;
  for (const auto& [name, value] : g.outputs()) {
    HostTensor t(context.output_type(name));
    context.get(name, t.bytes.data(), t.bytes.size());
    out.emplace(name, std::move(t));
  }
  return out;
}

// Empty, or the first element that is off.
inline std::string differ(const HostTensor& got, const HostTensor& want) {
  if (got.type != want.type) return "another type";
  if (!is_float(want.type.dtype)) return got.bytes == want.bytes ? "" : "other bytes";
  double most = 1;
  for (size_t i = 0; i < want.size(); ++i)
    if (std::isfinite(want.real(i))) most = std::max(most, std::abs(want.real(i)));
  for (size_t i = 0; i < want.size(); ++i) {
    const double a = got.real(i), b = want.real(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b || std::abs(a - b) <= 1e-10 * most) continue;
    return place(want.type.dims, i) + ": expected " + want.text(i) + ", got " + got.text(i);
  }
  return "";
}

// Inputs and outputs of whole bytes or of blocks, with at most this rank.
inline bool suits(const CaseBuilder& b, size_t most_axes) {
  if (b.inputs().empty() || b.outputs().empty()) return false;
  const auto fits = [&](const TensorType& t) {
    return tenon_dtype_bits(t.dtype) % 8 == 0 && t.dims.size() <= most_axes;
  };
  for (const auto& in : b.inputs())
    if (!fits(in.content.type)) return false;
  for (const auto& o : b.outputs())
    if (!fits(b.graph().type(o.value))) return false;
  return true;
}

// ---- gradients

inline std::vector<Value> differentiable_inputs(const CaseBuilder& b) {
  std::vector<Value> xs;
  for (const auto& in : b.inputs())
    if (in.differentiable) xs.push_back(in.value);
  return xs;
}
inline std::vector<Value> differentiable_outputs(const CaseBuilder& b) {
  std::vector<Value> ys;
  for (const auto& o : b.outputs())
    if (o.differentiable && b.graph().type(o.value).dtype == f64) ys.push_back(o.value);
  return ys;
}
inline Value loss_of(Graph& g, const std::vector<Value>& ys) {
  Value loss;
  for (Value y : ys) {
    const Value part = g.sum(y * y + 0.5 * y);
    loss = loss ? loss + part : part;
  }
  return loss;
}
// Of a loss over the outputs, by the inputs, as outputs "by NAME". False if there are none.
inline bool add_gradients(CaseBuilder& b) {
  const std::vector<Value> xs = differentiable_inputs(b), ys = differentiable_outputs(b);
  if (xs.empty() || ys.empty()) return false;
  Graph& g = b.graph();
  const std::vector<Value> dxs = g.gradients(loss_of(g, ys), xs);
  size_t k = 0;
  for (const auto& in : b.inputs())
    if (in.differentiable) g.output("by " + in.name, dxs[k++]);
  return true;
}

// ---- the cases

// A row of the kit in one dtype, and what is said about it.
class CaseJudge {
 public:
  CaseJudge(const Runtime& runtime, const FamilyRow& row, tenon_dtype dtype, Totals& totals)
      : runtime_(runtime), row_(row.row), dtype_(dtype), totals_(totals) {}

 protected:
  CaseBuilder built(const char* seed) const {
    CaseBuilder b({.seed = seed, .dtype = dtype_, .reference = is_float(dtype_)});
    row_.build(b);
    return b;
  }
  void report(const std::string& what, const std::string& fault) {
    ++totals_.compared;
    if (fault.empty()) return;
    ++totals_.failed;
    std::printf("FAIL %s.%s %s: %s\n", row_.id.c_str(), dtype_text(dtype_).c_str(), what.c_str(),
                fault.c_str());
  }
  template <class Work>
  void guarded(const std::string& what, const Work& work) {
    try {
      work();
    } catch (const std::exception& e) {
      report(what, e.what());
    }
  }

  const Runtime& runtime_;
  const CaseRow& row_;
  tenon_dtype dtype_;
  Totals& totals_;
};

// Floats are all f64 here, so one of them says it all; integers too.
inline std::vector<tenon_dtype> dtypes_of(const CaseRow& row) {
  std::vector<tenon_dtype> out;
  for (const bool floats : {true, false})
    for (tenon_dtype t : row.dtypes)
      if (is_float(t) == floats) {
        out.push_back(t);
        break;
      }
  return out;
}

// The main function of a tool: judges each case of the named families by Judge(...).judge().
//
//   TOOL TEMPLATE_PLUGIN FAMILY... [--every N]
template <class Judge>
int judge_cases(const char* tool, int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s TEMPLATE_PLUGIN FAMILY... [--every N]\n", tool);
    return 2;
  }
  size_t every = 1;
  std::vector<std::string> wanted;
  for (int k = 2; k < argc; ++k) {
    if (std::string(argv[k]) == "--every" && k + 1 < argc)
      every = std::max<size_t>(1, std::strtoul(argv[++k], nullptr, 10));
    else
      wanted.emplace_back(argv[k]);
  }
  try {
    const Runtime runtime({.plugin_files = {argv[1]}, .threads = 2, .use_environment = false});
    Suite suite;
    for (const Family& f : families()) {
      suite.begin(f.name);
      f.cases(suite);
    }
    Totals all;
    for (const std::string& family : wanted) {
      Totals totals;
      size_t k = 0;
      for (const FamilyRow& row : suite.rows()) {
        if (row.family != family || row.row.error != TENON_OK || row.row.known_only) continue;
        if (k++ % every != 0) continue;
        for (tenon_dtype dtype : dtypes_of(row.row)) {
          try {
            Judge(runtime, row, dtype, totals).judge();
          } catch (const std::exception& e) {
            ++totals.failed;
            std::printf("FAIL %s: %s\n", row.row.id.c_str(), e.what());
          }
        }
      }
      std::printf("%-16s %6zu compared, %zu failed, %zu skipped\n", family.c_str(), totals.compared,
                  totals.failed, totals.skipped);
      std::fflush(stdout);
      all.compared += totals.compared;
      all.failed += totals.failed;
    }
    return all.failed == 0 && all.compared > 0 ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", tool, e.what());
    return 1;
  }
}

}  // namespace tenon::case_tool
