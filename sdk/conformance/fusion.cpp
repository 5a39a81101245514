// SPDX-License-Identifier: Apache-2.0
// A case among neighbours that fusion may take, compiled with fusion and without.
//   beside  operands are made by elementwise nodes; outputs leave the graph and are read by others;
//           a second copy of the case shares an operand with the first
//   chain   outputs do not leave: a bias, an activation and a residual come after them
// Where no node of the case was joined, the same kernels ran on the same numbers and the case's
// outputs are equal; where one was, they are as near to the reference as the case asks for. What
// neighbours make of an output moves no further than the output did, but for their own rounding.
#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "judge.hpp"
#include "proof.hpp"

namespace tenon::conform {
namespace {

constexpr const char* kForms[] = {"beside", "chain"};

// An output of the surrounded graph: the case's own (no parts) or what neighbours made of it.
struct Made {
  std::string name;
  const CaseBuilder::Output* of;
  std::vector<std::string> parts{};  // inputs: how large the numbers were that it came from
};

struct Surrounded {
  CaseBuilder builder;
  std::vector<CaseBuilder::Output> outputs{};  // the case's
  std::vector<Made> made{};
};

bool computes(const TensorType& t) { return is_float(t.dtype) || is_integer(t.dtype); }

class Surrounding {
 public:
  Surrounding(const CaseRow& row, tenon_dtype dtype, bool blank)
      : s_{CaseBuilder({.seed = row.id, .dtype = dtype, .made = true, .blank = blank})} {
    row.build(s_.builder);
    s_.outputs = s_.builder.take_outputs();
  }

  Surrounded beside(const CaseRow& row) && {
    CaseBuilder& b = s_.builder;
    for (const auto& o : s_.outputs) {
      keep(o.name, o.value, o);
      const TensorType type = b.graph().type(o.value);
      if (!computes(type)) continue;
      const Value r = part(o, "r", type);
      if (is_float(type.dtype)) {
        keep(o.name + " size", b.abs(o.value), o, {"r"});
        keep(o.name + " gate", b.binary("mul", b.unary("relu", o.value), r), o, {"r"});
        keep(o.name + " sum", b.binary("add", o.value, r), o, {"r"});
      } else {
        keep(o.name + " most", b.binary("max", o.value, r), o, {"r"});
      }
    }
    b.begin_twin();
    row.build(b);
    const auto again = b.take_outputs();
    for (size_t k = 0; k < again.size(); ++k)
      keep(again[k].name + " again", again[k].value, s_.outputs[k]);
    return finish();
  }

  Surrounded chain() && {
    CaseBuilder& b = s_.builder;
    for (const auto& o : s_.outputs) {
      const TensorType type = b.graph().type(o.value);
      if (!computes(type)) {
        keep(o.name, o.value, o);
        continue;
      }
      Value z = o.value;
      std::vector<std::string> parts;
      const char* const join = is_float(type.dtype) ? "add" : "max";
      if (!type.dims.empty()) {
        z = b.binary(join, z, part(o, "bias", {type.dtype, {type.dims.back()}}));
        parts.push_back("bias");
      }
      if (is_float(type.dtype)) z = b.unary("relu", z);
      parts.push_back("r");
      keep(o.name + " chain", b.binary(join, z, part(o, "r", type)), o, parts);
    }
    return finish();
  }

 private:
  // Of at most 1, so that what is made with it moves no further than the output.
  Value part(const CaseBuilder::Output& o, const std::string& what, const TensorType& type) {
    const Fill fill = is_float(type.dtype) ? Fill::uniform(-1, 1) : Fill::integers(0, 3);
    return s_.builder.neighbour(what + " of " + o.name, type, fill);
  }
  void keep(const std::string& name, Value v, const CaseBuilder::Output& o,
            const std::vector<std::string>& parts = {}) {
    s_.made.push_back({name, &o, {}});
    for (const std::string& p : parts) s_.made.back().parts.push_back(p + " of " + o.name);
    puts_.push_back({name, v, {}, true, {}, false});
  }
  Surrounded finish() {
    for (auto& o : puts_) s_.builder.put_output(std::move(o));
    return std::move(s_);  // moving a vector leaves its elements where `of` points
  }

  Surrounded s_;
  std::vector<CaseBuilder::Output> puts_{};
};

// What a report says was joined.
struct Joins {
  bool any = false;
  bool own = false;          // a node of the case's
  bool regions_only = true;  // whose results are those of their nodes one by one
};
Joins joins_of(const std::string& report) {
  Joins out;
  const auto read = nlohmann::json::parse(report);
  for (const auto& n : read["nodes"]) {
    const std::string note = n["note"], op = n["op"];
    if (!note.starts_with("joined: ") && !note.starts_with("raised")) continue;
    out.any = true;
    out.own |= n["name"] == "node";
    out.regions_only &= op.find("elementwise_region") != std::string::npos;
  }
  return out;
}

class FusionProof {
 public:
  FusionProof(const Bench& bench, const FamilyRow& row, tenon_dtype dtype)
      : bench_(bench), row_(row.row), dtype_(dtype) {}

  std::string prove(const char* form, Result& r) {
    const auto surrounded = [&] {
      Surrounding s(row_, dtype_, bench_.run_only);
      return form == kForms[0] ? std::move(s).beside(row_) : std::move(s).chain();
    };
    Surrounded on = surrounded(), off = surrounded();
    const Ran fused = run_case(bench_, on.builder, options(true));
    if (bench_.run_only) return {};
    const Ran plain = run_case(bench_, off.builder, options(false));
    joins_ = joins_of(fused.report);
    r.joined = joins_.any;
    r.own_joined = joins_.own;
    if (joins_of(plain.report).any) return "something was joined without fusion";
    // The reference is a decomposition too; in f64 its error counts.
    const bool wide = dtype_ == f64 || decomposed_count(fused.report) > 0;
    how_ = {.dtype = dtype_, .times = wide ? row_.decomposed : 1};
    for (const Made& m : on.made) {
      std::string apart = same(m.name, fused.outputs.at(m.name), plain.outputs.at(m.name));
      if (apart.empty()) continue;
      const HostTensor& got = fused.outputs.at(m.name);
      if (m.parts.empty() && joins_.own)
        apart = judge(m.of->name, got, reference().at(m.of->name), scale_of(m), tolerance(m), how_);
      else if (!m.parts.empty() && (joins_.own || !joins_.regions_only))
        apart = same(m.name, got, plain.outputs.at(m.name),
                     [&](size_t i) { return between(on, m, got.type.dtype, i); });
      if (!apart.empty()) return apart;
    }
    return {};
  }

 private:
  ExecutableOptions options(bool fuse) const {
    return {.device = bench_.device, .allow_fallback = false, .fuse = fuse};
  }
  const Tensors& reference() {
    if (!reference_) {
      CaseBuilder b({.seed = row_.id, .dtype = dtype_, .reference = true});
      row_.build(b);
      reference_ =
          run_case(bench_, b,
                   {.device = bench_.reference, .allow_fallback = false, .simplify = false})
              .outputs;
    }
    return *reference_;
  }
  Tolerance tolerance(const Made& m) const { return m.of->tolerance.value_or(row_.tolerance); }
  const HostTensor* scale_of(const Made& m) {
    const auto at = reference().find("scale of " + m.of->name);
    return at == reference().end() ? nullptr : &at->second;
  }
  // Both runs may be off by what the case allows its output, and each of at most three neighbours
  // rounds what is no larger than all that went into it.
  double between(const Surrounded& s, const Made& m, tenon_dtype out, size_t i) {
    const HostTensor& want = reference().at(m.of->name);
    double size = std::fabs(want.real(i));
    if (!std::isfinite(size)) return 0;
    for (const std::string& part : m.parts)
      for (const auto& in : s.builder.inputs())
        if (in.name == part) size += std::fabs(in.content.real(i % in.content.size()));
    const double moved = joins_.own ? 2 * room(want, scale_of(m), i, out, tolerance(m), how_) : 0;
    return moved + 3 * ulp(out, size);
  }

  const Bench& bench_;
  const CaseRow& row_;
  tenon_dtype dtype_;
  Joins joins_{};
  Verdict how_{};
  std::optional<Tensors> reference_{};
};

}  // namespace

std::vector<Case> fusion_cases(const FamilyRow& row, tenon_dtype dtype) {
  std::vector<Case> out;
  if (row.row.error == TENON_OK)
    for (const char* form : kForms)
      out.push_back({stem(row.row, dtype) + "-" + form, requirement(row, form, dtype), form});
  return out;
}

std::vector<Result> prove_fusion(const Bench& bench, const FamilyRow& row, tenon_dtype dtype,
                                 const std::function<bool(const std::string&)>& wanted) {
  std::vector<Result> out;
  if (row.row.error != TENON_OK) return out;
  FusionProof proof(bench, row, dtype);
  for (const char* form : kForms) {
    const std::string id = stem(row.row, dtype) + "-" + form;
    if (!wanted(id)) continue;
    out.push_back(judged(bench,
                         {.id = id,
                          .sentence = row.row.sentence + ", fusion on and off, " + form,
                          .family = row.family},
                         [&](Result& r) { return proof.prove(form, r); }));
  }
  return out;
}

}  // namespace tenon::conform
