// SPDX-License-Identifier: Apache-2.0
// Rows, numbers and error scales that several families share.
#pragma once

#include <string>
#include <vector>

#include "kit.hpp"

namespace tenon::conform {

// Numbers a few units apart, all shifted by the same offset; exact in f32, and in f16 up to 1e3.
struct Offset {
  const char* id;
  double value;
  DTypes dtypes;
  std::vector<double> numbers() const;
};
const std::vector<Offset>& offsets();

// The error scale of e^(x - max): the rounding of the exponent grows with the distance to the
// maximum over `axes`.
Value distance_scale(CaseBuilder& b, Value x, const Dims& axes);

// Parameters of a norm and their dtypes beside half data: what each gradient must keep.
struct ParameterForm {
  const char* id;
  bool gamma, gamma_wide, beta_wide;  // wide: in the accumulation dtype
};
inline constexpr ParameterForm kParameterForms[] = {
    {"beta-wide", false, false, true},
    {"half-gamma-beta-wide", true, false, true},
    {"gamma-wide-half-beta", true, true, false},
};
// gamma and beta of length `channels` for `n`, and the gradients of both from an upstream gradient.
template <class Op>
void add_parameter_gradients(CaseBuilder& b, const ParameterForm& f, const Dims& dims, Op n) {
  const auto dtype = [&](bool wide) { return wide ? b.own_acc() : b.own(); };
  std::vector<Value> wrt;
  if (f.gamma) {
    n.gamma = b.input("gamma", dtype(f.gamma_wide), dims, Fill::uniform(0.5, 1.5));
    wrt.push_back(n.gamma);
  }
  n.beta = b.input("beta", dtype(f.beta_wide), dims, Fill::normal());
  wrt.push_back(n.beta);
  const Value y = b.add(n)[0];
  const Value dy = b.input("dy", b.graph().type(y).dims, Fill::normal().fixed());
  const Value loss = b.reduce("sum", b.binary("mul", y, dy), {}, false);
  const std::vector<Value> d = b.graph().gradients(loss, wrt);
  for (size_t k = 0; k < d.size(); ++k) {
    const std::string name = k + 1 == d.size() ? "dbeta" : "dgamma";
    b.output(name, d[k]);
    b.scale(name, [&] { return b.reduce("sum", b.abs(dy), {}, false); });
  }
}

}  // namespace tenon::conform
