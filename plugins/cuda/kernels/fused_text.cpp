// SPDX-License-Identifier: Apache-2.0
// Writes the device text of a body.
#include <algorithm>

#include "fused.hpp"

namespace tenon::cuda {
namespace {

using sdk::Body;
using sdk::Refusal;
namespace op = sdk::op;

bool is_short_float(tenon_dtype t) { return t == TENON_DTYPE_F8E4M3 || t == TENON_DTYPE_F8E5M2; }

// One step of a body; operands as registers, without text where absent.
class Step {
 public:
  Step(BodyText& text, const Body& body, uint32_t step, std::span<const Register> operands)
      : t_(text), body_(body), step_(step), operands_(operands) {}

  Register made(tenon_dtype out) {
    const std::string_view name = body_.op(step_);
    if (name == op::cast::kName) return made_cast(out);
    if (name == op::copy::kName) return at(body_.as<op::copy>(step_).x);
    if (name == op::where::kName) {
      const auto n = body_.as<op::where>(step_);
      return where_step(t_, at(n.cond), at(n.a), at(n.b));
    }
    for (const uint32_t v : body_.operands(step_))  // only moved, as alone
      if (v != TENON_NONE && is_short_float(body_.type(v).dtype))
        throw Refusal::dtype("of " + std::string(name), body_.type(v).dtype);
    if (name == op::binary::kName) {
      const auto n = body_.as<op::binary>(step_);
      return binary_step(t_, n.kind, at(n.a), at(n.b));
    }
    if (name == op::compare::kName) {
      const auto n = body_.as<op::compare>(step_);
      return compare_step(t_, n.kind, at(n.a), at(n.b));
    }
    if (name == op::logical::kName) {
      const auto n = body_.as<op::logical>(step_);
      return logical_step(t_, n.kind, at(n.a), n.b ? at(n.b) : Register{});
    }
    if (name == op::unary::kName) {
      const auto n = body_.as<op::unary>(step_);
      return unary_step(t_, n, at(n.x), out);
    }
    if (name == op::activation_backward::kName) {
      const auto n = body_.as<op::activation_backward>(step_);
      return slope_step(t_, n, at(n.x), at(n.dy), out);
    }
    throw Refusal(TENON_REASON_OP, "a step '" + std::string(name) + "' has no text");
  }

 private:
  const Register& at(const sdk::Value& v) const {
    return operands_[static_cast<size_t>(v.position())];
  }
  Register made_cast(tenon_dtype out) {
    const auto n = body_.as<op::cast>(step_);
    if (n.to != out) throw Refusal::dtype("y", out);
    return cast_step(t_, out, n.saturate, at(n.x));
  }

  BodyText& t_;
  const Body& body_;
  uint32_t step_;
  std::span<const Register> operands_;
};

}  // namespace

FusedText::FusedText(const Body& body) {
  std::vector<Register> values(body.value_count());
  for (const uint32_t v : body.inputs()) values[v] = text.input("xs", body.type(v).dtype);
  for (uint32_t v = 0; v < body.value_count(); ++v) {
    if (body.space(v) != TENON_SPACE_CONSTANT) continue;
    if (body.type(v).elements() != 1)
      throw Refusal::shape("a constant of the body has not one element");
    values[v] = text.constant(body.type(v).dtype, body.content(v));
    least_rank = std::max(least_rank, body.type(v).rank);
  }
  uint32_t reduced = TENON_NONE, result = TENON_NONE;
  for (uint32_t i = 0; i < body.step_count(); ++i) {
    if (result != TENON_NONE) throw Refusal::shape("a step of the body follows its reduction");
    if (body.outputs(i).size() != 1 || body.outputs(i)[0] == TENON_NONE)
      throw Refusal::shape("a step of the body has not one output");
    const uint32_t made = body.outputs(i)[0];
    std::vector<Register> operands;
    for (const uint32_t v : body.operands(i)) {
      operands.push_back(v == TENON_NONE ? Register{} : values[v]);
      if (v != TENON_NONE && values[v].text.empty())
        throw Refusal::shape("a step of the body reads what no step makes");
    }
    const tenon_dtype dtype = body.type(made).dtype;
    if (body.op(i) == op::reduce::kName) {
      const auto n = body.as<op::reduce>(i);
      if (n.axes.empty() && n.noop_with_empty_axes)
        throw Refusal::attribute("axes", "of the body's reduction");
      fold_axes = n.axes;
      fold = {.how = find_reduction(n.kind, dtype), .result = dtype};
      reduced = body.operands(i)[0], result = made;
    } else {
      values[made] = Step(text, body, i, operands).made(dtype);
      if (values[made].dtype != computed_dtype(dtype)) throw Refusal::dtype("ys", dtype);
    }
  }
  for (const uint32_t v : body.outputs()) {
    outputs.push_back(body.type(v).dtype);
    if (v == result) {
      fold->output = outputs.size() - 1;
      text.output(values[reduced], values[reduced].dtype);
    } else if (body.space(v) != TENON_SPACE_NODE || values[v].text.empty()) {
      throw Refusal::shape("an output of the body is made by no step");
    } else {
      text.output(values[v], body.type(v).dtype);
    }
  }
  if (fold && std::ranges::find(body.outputs(), result) == body.outputs().end())
    throw Refusal::shape("the body's reduction does not end it");
}

std::optional<Fold> FusedText::fold_over(std::span<const int64_t> shape) const {
  if (!fold) return {};
  const auto rank = static_cast<int64_t>(shape.size());
  std::vector<bool> folded(shape.size(), fold_axes.empty());
  for (const int64_t axis : fold_axes) {
    if (axis < -rank || axis >= rank) throw Refusal::attribute("axes", "of the body's reduction");
    folded[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
  }
  Fold f = *fold;
  f.first = f.last = shape.size();
  bool none = true, behind = false;  // no axis is reduced; one behind it is not
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (!folded[i]) {
      if (!none && !behind) f.last = i;
      behind |= !none;
    } else {
      if (behind) throw Refusal::shape("a reduction of axes that lie apart");
      if (none) f.first = i;
      none = false;
    }
  }
  return f;
}

}  // namespace tenon::cuda
