// SPDX-License-Identifier: Apache-2.0
// Rows that the norms over rows (cases/norm.cpp) and over channels (cases/channel_norm.cpp) share.
#pragma once

#include <algorithm>
#include <string>

#include "rows.hpp"

namespace tenon::conform {

// Asks a forward op for its statistics.
template <class Op>
void want_statistics(Op& n) {
  if constexpr (requires { n.want_mean; })
    n.want_mean = n.want_inv_std = true;
  else
    n.want_inv_rms = true;
}

// Refusals of a negative eps, and of a gamma that is shorter than its 4 elements.
template <class Op>
void norm_refusal_rows(Suite& s, const std::string& name, const Dims& dims) {
  const auto refused = [&](const char* what, double eps, int64_t gamma, tenon_code code) {
    s.add({.id = name + "-" + what + "-refused",
           .sentence = name + ": " + what + " that does not fit is refused",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 Op n{};
                 n.eps = eps;
                 n.x = b.input("x", dims);
                 n.gamma = b.input("gamma", {gamma});
                 b.output("y", b.add(n)[0]);
               },
           .error = code,
           .error_text = what});
  };
  refused("eps", -1, 4, TENON_INVALID_ARGUMENT);
  refused("gamma", 1e-5, 3, TENON_SHAPE_MISMATCH);
}

// The gradients of a node d that wants all three. Sums that cancel: their terms are of the size of
// the largest result, or of 1 / sqrt(eps) where a statistic is made of one term.
inline void gradient_outputs(CaseBuilder& b, const Node& d, int64_t terms) {
  static constexpr const char* kNames[] = {"dx", "dgamma", "dbeta"};
  for (size_t k = 0; k < 3; ++k) {
    b.output(kNames[k], d[k]);
    b.scale(kNames[k],
            [&] { return b.binary("max", largest_of(b, d[k]), b.number(terms == 1 ? 400 : 1)); });
  }
}

// A backward op that is asked for some of its gradients. terms: of the longest sum.
template <class Op>
void some_gradients_row(Suite& s, const std::string& name, const Dims& dims, int64_t parameters,
                        int64_t terms) {
  s.add({.id = name + "-parts",
         .sentence = name + ": only some of the outputs",
         .build =
             [=](CaseBuilder& b) {
               Op n{};
               n.dy = b.input("dy", dims);
               n.x = b.input("x", dims);
               n.gamma = b.input("gamma", {parameters}, Fill::uniform(0.5, 1.5));
               Op m = n;
               n.want_dx = true;
               m.want_dgamma = true;
               const Value dx = b.add(n)[0], dgamma = b.add(m)[1];
               b.output("dx", dx);
               b.scale("dx", [&] { return largest_of(b, dx); });
               b.output("dgamma", dgamma);
               b.scale("dgamma", [&] { return largest_of(b, dgamma); });
             },
         .tolerance = sum_of(terms),
         .decomposed = 2});
}

// A backward op of an empty x, whose parameters have 3 elements.
template <class Op>
void empty_gradients_row(Suite& s, const std::string& id, const std::string& name,
                         const Dims& dims) {
  s.add({.id = id,
         .sentence = name + ": parameter gradients of nothing are zero",
         .dtypes = {f32, bf16},
         .build =
             [=](CaseBuilder& b) {
               Op n{};
               n.dy = b.input("dy", dims);
               n.x = b.input("x", dims);
               n.gamma = b.input("gamma", {3});
               n.want_dx = n.want_dgamma = n.want_dbeta = true;
               const Node d = b.add(n);
               b.output("dx", d[0]);
               b.output("dgamma", d[1]);
               b.expect("dgamma", {0, 0, 0});
               b.output("dbeta", d[2]);
               b.expect("dbeta", {0, 0, 0});
             },
         .strided = false});
}

// Parameters and their dtypes beside half data: what each gradient must keep.
struct ParameterForm {
  const char* id;
  bool gamma, gamma_wide, beta_wide;  // wide: in the accumulation dtype
};
inline constexpr ParameterForm kParameterForms[] = {
    {"beta-wide", false, false, true},
    {"half-gamma-beta-wide", true, false, true},
    {"gamma-wide-half-beta", true, true, false},
};
// The gradients of gamma and beta, of `parameters` elements each. terms: of their sums.
template <class Op>
void parameter_gradient_rows(Suite& s, const std::string& name, const Dims& dims,
                             int64_t parameters, int64_t terms) {
  for (const ParameterForm& f : kParameterForms)
    s.add({.id = name + "-gradients-" + f.id,
           .sentence = name + ": the gradient of each parameter has that parameter's dtype",
           .dtypes = {bf16, f16},
           .build =
               [=](CaseBuilder& b) {
                 const auto dtype = [&](bool wide) { return wide ? b.own_acc() : b.own(); };
                 Op n{.x = b.input("x", dims)};
                 std::vector<Value> wrt;
                 if (f.gamma) {
                   n.gamma =
                       b.input("gamma", dtype(f.gamma_wide), {parameters}, Fill::uniform(0.5, 1.5));
                   wrt.push_back(n.gamma);
                 }
                 n.beta = b.input("beta", dtype(f.beta_wide), {parameters}, Fill::normal());
                 wrt.push_back(n.beta);
                 const Value y = b.add(n)[0];
                 const Value dy = b.input("dy", dims, Fill::normal().fixed());
                 const Value loss = b.reduce("sum", b.binary("mul", y, dy), {}, false);
                 const std::vector<Value> d = b.graph().gradients(loss, wrt);
                 for (size_t k = 0; k < d.size(); ++k) {
                   const std::string out = k + 1 == d.size() ? "dbeta" : "dgamma";
                   b.output(out, d[k]);
                   b.scale(out, [&] { return b.reduce("sum", b.abs(dy), {}, false); });
                 }
               },
           .tolerance = sum_of(terms)});
}

}  // namespace tenon::conform
