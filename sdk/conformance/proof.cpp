// SPDX-License-Identifier: Apache-2.0
// Runs a case in every form and proves it, except for fusion and gradients.
#include "proof.hpp"

#include <algorithm>
#include <chrono>
#include <set>

#include "judge.hpp"

namespace tenon::conform {

namespace {

constexpr std::string_view kDecomposed = "\"verdict\":\"decomposed\"";

size_t count_of(const std::string& text, std::string_view word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

}  // namespace

size_t decomposed_count(const std::string& report) { return count_of(report, kDecomposed); }

Ran run_case(const Bench& bench, CaseBuilder& b, const ExecutableOptions& options) {
  for (const auto& o : b.outputs()) b.graph().output(o.name, o.value);
  for (const auto& [name, value] : b.scales()) b.graph().output("scale of " + name, value);
  Store store(bench.runtime);
  ExecutableOptions with_modes = options;
  if (options.device == bench.device) {
    with_modes.exec_mode = bench.modes.exec_mode;
    with_modes.lanes = bench.modes.lanes;
    with_modes.aot = bench.modes.aot;
  }
  const Executable exe(bench.runtime, b.graph(), store, with_modes);
  std::vector<std::unique_ptr<Context>> rooms;  // outlive the context that is bound to them
  Context context(exe);
  const Rooms* from = options.device == bench.device ? bench.rooms : nullptr;
  // A name of both an input and an output cannot be bound.
  const auto has = [](const auto& list, const std::string& name) {
    return std::ranges::any_of(list, [&](const auto& each) { return each.name == name; });
  };
  for (const auto& in : b.inputs()) {
    const HostTensor& x = in.content;
    if (from && !has(b.outputs(), in.name))
      rooms.push_back(from->bind(context, in.name, x.type, x.bytes));
    else
      context.set(in.name, x.type, x.bytes.data(), x.bytes.size());
  }
  for (const auto& o : b.outputs()) {
    const HostTensor nothing(b.graph().type(o.value));
    if (from && !has(b.inputs(), o.name))
      rooms.push_back(from->bind(context, o.name, nothing.type, nothing.bytes));
  }
  context.run();
  Ran out{.report = exe.report()};
  const auto take = [&](const std::string& name) {
    HostTensor t(context.output_type(name));
    context.get(name, t.bytes.data(), t.bytes.size());
    out.outputs.emplace(name, std::move(t));
  };
  for (const auto& o : b.outputs()) take(o.name);
  for (const auto& [name, value] : b.scales()) take("scale of " + name);
  return out;
}

Result judged(const Bench& bench, Result r, const std::function<std::string(Result&)>& proof) {
  if (bench.begin) bench.begin(r.id);
  const auto start = std::chrono::steady_clock::now();
  try {
    r.reason = proof(r);
    if (!r.reason.empty()) r.outcome = Outcome::fail;
    if (r.reason.starts_with(kSkip)) {
      r.outcome = Outcome::skip;
      r.reason.erase(0, kSkip.size());
    }
  } catch (const Error& e) {
    const bool refused = (bench.partial || bench.run_only) && e.code() == TENON_UNSUPPORTED;
    r.outcome = refused ? Outcome::skip : Outcome::fail;
    r.refused = refused && !bench.may_refuse;
    r.reason = code_name(e.code()) + ": " + e.what();
  }
  r.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (bench.end) bench.end(r);
  return r;
}

namespace {

// One op after the other, as the graph has them.
ExecutableOptions as_it_stands(const std::string& device, bool decompose = false) {
  return {
      .device = device, .allow_fallback = false, .simplify = decompose, .decompose_all = decompose};
}

// The proofs of a row at one dtype.
class Prover {
 public:
  Prover(const Bench& bench, const FamilyRow& row, tenon_dtype dtype,
         const std::function<bool(const std::string&)>& wanted)
      : bench_(bench), family_(row.family), row_(row.row), dtype_(dtype), wanted_(wanted) {}

  std::vector<Result> run_all() {
    const std::string id = stem(row_, dtype_);
    if (row_.error != TENON_OK) {
      prove_one(id, "", [&] { return expect_error(); });
      return std::move(results_);
    }
    prove_one(id, "", [&] { return against_reference(built(false)); });
    if (row_.strided)
      prove_one(id + "-strided", ", operands with strides",
                [&] { return against_reference(built(true)); });
    if (has_composite_)
      prove_one(id + "-decomposed", ", in primitives", [&] { return decomposed(); });
    if (has_zeros(row_, dtype_))
      prove_one(id + "-zeros", ", each dimension zero in turn", [&] { return zeros(); });
    return std::move(results_);
  }

 private:
  CaseBuilder built(bool strided, bool reference = false) {
    CaseBuilder b({.seed = row_.id,
                   .dtype = dtype_,
                   .reference = reference,
                   .strided = strided,
                   .blank = bench_.run_only});
    row_.build(b);
    has_composite_ = b.has_composite();
    return b;
  }

  template <class Proof>
  void prove_one(const std::string& id, const std::string& how, Proof proof) {
    if (!wanted_(id)) {
      has_composite_ = true;  // not known yet: the filter decides
      return;
    }
    results_.push_back(judged(bench_,
                              {.id = id, .sentence = row_.sentence + how, .family = family_},
                              [&](Result&) { return proof(); }));
  }

  const Tensors& reference() {
    if (!reference_ && row_.known_only) {
      const CaseBuilder b = built(false, true);
      reference_.emplace();
      for (const auto& o : b.outputs()) reference_->emplace(o.name, expected_of(b, o));
    }
    if (!reference_) {
      CaseBuilder b = built(false, true);
      reference_ = run_case(bench_, b, as_it_stands(bench_.reference)).outputs;
    }
    return *reference_;
  }

  static HostTensor expected_of(const CaseBuilder& b, const CaseBuilder::Output& o) {
    HostTensor out(b.graph().type(o.value));
    if (out.size() != o.expected.size())
      throw Error(TENON_INVALID_ARGUMENT,
                  "output " + o.name + ": expected values for " + std::to_string(out.size()) +
                      " elements, the case has " + std::to_string(o.expected.size()));
    for (size_t i = 0; i < out.size(); ++i) out.set_real(i, o.expected[i]);
    return out;
  }

  std::string compare(const CaseBuilder& b, const Tensors& got, double times) {
    return compare(b, reference(), got, times, true);
  }

  // `expected`: what the case says its outputs are is compared too.
  std::string compare(const CaseBuilder& b, const Tensors& want, const Tensors& got, double times,
                      bool expected) {
    for (const auto& o : b.outputs()) {
      const auto scale = want.find("scale of " + o.name);
      const Tolerance t = o.tolerance.value_or(row_.tolerance);
      const Verdict how{.dtype = dtype_, .times = times};
      const HostTensor* s = scale == want.end() ? nullptr : &scale->second;
      std::string off = judge(o.name, got.at(o.name), want.at(o.name), s, t, how);
      if (off.empty() && expected && o.has_expected)
        off = known(o, got.at(o.name), want.at(o.name), s, t, how);
      if (!off.empty()) return off;
    }
    return {};
  }

  // Both the result and the reference must be what the case says.
  static std::string known(const CaseBuilder::Output& o, const HostTensor& got,
                           const HostTensor& reference, const HostTensor* s, const Tolerance& t,
                           const Verdict& how) {
    HostTensor want(reference.type);
    if (want.size() != o.expected.size())
      return "output " + o.name + ": expected " + std::to_string(o.expected.size()) +
             " elements, got " + std::to_string(want.size());
    for (size_t i = 0; i < want.size(); ++i) want.set_real(i, o.expected[i]);
    std::string off = judge(o.name, got, want, s, t, how);
    if (!off.empty()) return off + " (known value)";
    // What a half input holds is not quite what the case wrote down: the reference has it exact.
    off = judge(o.name, reference, want, s, t.is_exact ? t : scaled(1e7), {.dtype = f64});
    return off.empty() || got.type.dtype != f64 ? "" : "reference: " + off + " (known value)";
  }

  std::string against_reference(CaseBuilder b) {
    const Ran ran = run_case(bench_, b, as_it_stands(bench_.device));
    if (bench_.run_only) return {};
    double times = 1;
    // The reference is a decomposition too; in f64 its error counts.
    if (dtype_ == f64 || decomposed_count(ran.report)) times *= row_.decomposed;
    return compare(b, ran.outputs, times);
  }

  std::string decomposed() {
    CaseBuilder native = built(false), primitive = built(false);
    if (!native.has_composite()) return std::string(kSkip);
    const Ran a = run_case(bench_, native, as_it_stands(bench_.device));
    const Ran p = run_case(bench_, primitive, as_it_stands(bench_.device, true));
    if (bench_.run_only) return {};
    if (decomposed_count(p.report) <= decomposed_count(a.report))
      return std::string(kSkip) + "the device has no kernel of its own";
    // The native result is within 1 of the reference, so the two are within the sum.
    return compare(primitive, p.outputs, row_.decomposed);
  }

  CaseBuilder built_with_zero(int64_t length, bool reference) {
    CaseBuilder b({.seed = row_.id,
                   .dtype = dtype_,
                   .reference = reference,
                   .blank = bench_.run_only,
                   .zero = length});
    row_.build(b);
    return b;
  }

  // Every length of a dimension is replaced by zero, one after the other. Where the case has no
  // such form the builder refuses it. Indices that no longer fit are refused when run, but only
  // where there is something to compute with them.
  std::string zeros() {
    const CaseBuilder plain = built(false);
    std::set<int64_t> lengths;
    for (const auto& in : plain.inputs())
      lengths.insert(in.content.type.dims.begin(), in.content.type.dims.end());
    lengths.erase(0);
    for (const int64_t length : lengths) {
      std::optional<CaseBuilder> judged, reference;
      try {
        judged = built_with_zero(length, false);
        reference = built_with_zero(length, true);
      } catch (const Error&) {
        continue;
      }
      const std::string off = compare_with_zero(*judged, *reference);
      if (!off.empty()) return "dimensions of " + std::to_string(length) + " are zero: " + off;
    }
    return {};
  }

  std::string compare_with_zero(CaseBuilder& b, CaseBuilder& reference) {
    if (bench_.run_only) return run_with_zero(b);
    Ran want;
    tenon_code refusal = TENON_OK;
    try {
      want = run_case(bench_, reference, as_it_stands(bench_.reference));
    } catch (const Error& e) {
      refusal = e.code();
    }
    try {
      const Ran got = run_case(bench_, b, as_it_stands(bench_.device));
      if (refusal == TENON_INDEX_OUT_OF_RANGE) return {};
      if (refusal != TENON_OK) return "expected " + code_name(refusal) + ", but it ran";
      return compare(b, want.outputs, got.outputs, 2 * row_.decomposed, false);
    } catch (const Error& e) {
      if (e.code() == refusal || e.code() == TENON_INDEX_OUT_OF_RANGE ||
          (bench_.partial && e.code() == TENON_UNSUPPORTED))
        return {};
      return code_name(e.code()) + ": " + e.what();
    }
  }

  // Without a reference: it runs, or the data is refused.
  std::string run_with_zero(CaseBuilder& b) {
    try {
      run_case(bench_, b, as_it_stands(bench_.device));
    } catch (const Error& e) {
      if (e.code() != TENON_INDEX_OUT_OF_RANGE && e.code() != TENON_UNSUPPORTED) throw;
    }
    return {};
  }

  std::string expect_error() {
    const std::string wanted = code_name(row_.error) + " with '" + row_.error_text + "'";
    try {
      CaseBuilder b = built(false);
      run_case(bench_, b, as_it_stands(bench_.device));
    } catch (const Error& e) {
      // Primitives have but one way to refuse data: an index that is out of range.
      const bool primitive =
          row_.error == TENON_NUMERIC_ERROR && e.code() == TENON_INDEX_OUT_OF_RANGE;
      if ((e.code() == row_.error || primitive) &&
          std::string_view(e.what()).find(row_.error_text) != std::string::npos)
        return {};
      if (bench_.partial && e.code() == TENON_UNSUPPORTED) throw;
      return "expected " + wanted + ", got " + code_name(e.code()) + ": " + e.what();
    }
    return bench_.run_only ? "" : "expected " + wanted + ", but it ran";
  }

  const Bench& bench_;
  std::string_view family_;
  const CaseRow& row_;
  tenon_dtype dtype_;
  const std::function<bool(const std::string&)>& wanted_;
  std::optional<Tensors> reference_{};
  std::vector<Result> results_{};
  bool has_composite_ = false;
};

}  // namespace

std::vector<Result> prove(const Bench& bench, const Unit& unit,
                          const std::function<bool(const std::string&)>& wanted) {
  const CaseRow& row = unit.row->row;
  Bench own = bench;
  own.may_refuse = row.may_refuse;
  own.partial |= row.may_refuse;
  if (unit.fusion) return prove_fusion(own, *unit.row, unit.dtype, wanted);
  if (unit.dtype != TENON_DTYPE_NONE) return Prover(own, *unit.row, unit.dtype, wanted).run_all();
  std::vector<Result> out;
  for (const auto& c : gradient_cases(row)) {
    if (!wanted(c.id)) continue;
    Bench strict = bench;  // gradients are the reference's, which refuses nothing
    strict.partial = false;
    out.push_back(judged(strict,
                         {.id = c.id, .sentence = row.sentence + c.how, .family = unit.row->family},
                         [&](Result&) { return prove_gradient(bench, row, c.scale, c.order); }));
  }
  return out;
}

}  // namespace tenon::conform
