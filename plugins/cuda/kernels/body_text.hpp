// SPDX-License-Identifier: Apache-2.0
// Elementwise ops as device text: steps over registers, whatever shapes they run over. Single ops
// and fused bodies are both made of these; frame.hpp puts a finished text over shapes.
#pragma once

#include <string>
#include <vector>

#include "args.hpp"

namespace tenon::cuda {

// What a step computes with: floats in their accumulation dtype, others as they are stored.
struct Register {
  std::string text;
  tenon_dtype dtype = TENON_DTYPE_NONE;  // F32, F64, BOOL, an integer
};

class BodyText {
 public:
  // The next operand, of a stored dtype. raw: its bits are moved, not computed with.
  Register input(std::string_view name, tenon_dtype stored, bool raw = false);
  // A constant of one element, from its stored bytes.
  Register constant(tenon_dtype stored, const void* content);
  Register constant(tenon_dtype computed, double value);
  // dtype: of the result.
  Register step(const std::string& expression, tenon_dtype dtype);
  // The next result, rounded to its stored dtype. raw as for inputs.
  void output(const Register& r, tenon_dtype stored, bool raw = false);

  const std::vector<tenon_dtype>& inputs() const { return inputs_; }
  const std::vector<tenon_dtype>& outputs() const { return outputs_; }
  int steps() const { return registers_; }
  // "__device__ void body(const f32 i0, ..., f32& o0, ...)" with the types T<k> and U<k> it uses.
  std::string function() const;

 private:
  static std::string stored_name(std::string_view name, tenon_dtype t, bool raw);
  std::vector<tenon_dtype> inputs_, outputs_;
  std::string types_, parameters_, lines_;
  int registers_ = 0;
};

// The name in device text of what a dtype is computed in; refuses what cannot be computed with.
std::string computed_name(std::string_view operand, tenon_dtype t);
tenon_dtype computed_dtype(tenon_dtype stored);
// A number as device text that gives the same bits.
std::string literal(tenon_dtype computed, double value);

// One step per op; x and the like are registers of the operands, in order. What the op refuses is
// refused. `out` is the stored dtype of the result.
Register unary_step(BodyText& t, const sdk::op::unary& n, const Register& x, tenon_dtype out);
Register slope_step(BodyText& t, const sdk::op::activation_backward& n, const Register& x,
                    const Register& dy, tenon_dtype out);
Register binary_step(BodyText& t, std::string_view kind, const Register& a, const Register& b);
Register compare_step(BodyText& t, std::string_view kind, const Register& a, const Register& b);
// b is absent (no text) for "not".
Register logical_step(BodyText& t, std::string_view kind, const Register& a, const Register& b);
Register where_step(BodyText& t, const Register& cond, const Register& a, const Register& b);
// Really rounds: the register holds a value of dtype `to`.
Register cast_step(BodyText& t, tenon_dtype to, bool saturate, const Register& x);
// act(x) for any kind of unary on floats, with its parameters.
Register activation(BodyText& t, std::string_view kind, double alpha, double beta,
                    const Register& x);

}  // namespace tenon::cuda
