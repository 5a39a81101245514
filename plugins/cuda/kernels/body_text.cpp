// SPDX-License-Identifier: Apache-2.0
// Writes each elementwise op as device text over registers.
#include "body_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace tenon::cuda {
namespace {

using sdk::Refusal;

template <size_t N>
void check_kind(std::string_view op, const std::array<std::string_view, N>& known,
                std::string_view kind) {
  if (std::ranges::find(known, kind) == known.end())
    throw Refusal::unknown(std::string(op) + " kind", kind);
}

bool is_f8(tenon_dtype t) { return t == TENON_DTYPE_F8E4M3 || t == TENON_DTYPE_F8E5M2; }

const UnaryInfo& find_kind(std::string_view kind) {
  const UnaryInfo* info = find_unary(kind);
  if (!info) throw Refusal::unknown("unary kind", kind);
  return *info;
}

std::string call(const std::string& name, tenon_dtype t, const UnaryInfo& info, double alpha,
                 double beta, const Register& x) {
  return name + "(" + x.text + ", " + literal(t, unary_alpha(info, alpha)) + ", " +
         literal(t, unary_beta(info, beta)) + ")";
}

// What takes most arithmetic, and is made to 16 bits where no more are kept.
bool has_short_form(UnaryKind kind, tenon_dtype out) {
  return is_half(out) && (kind == UnaryKind::gelu || kind == UnaryKind::gelu_tanh);
}

template <class T>
T read(const void* content) {
  T value;
  std::memcpy(&value, content, sizeof value);
  return value;
}

}  // namespace

tenon_dtype computed_dtype(tenon_dtype stored) {
  return is_half(stored) || is_f8(stored) ? tenon_dtype{TENON_DTYPE_F32} : stored;
}

std::string computed_name(std::string_view operand, tenon_dtype t) {
  if (t == TENON_DTYPE_C64) throw Refusal::dtype(operand, t);
  return t == TENON_DTYPE_BOOL ? "bool" : type_name(operand, t);
}

std::string literal(tenon_dtype t, double value) {
  char text[64];
  if (std::isnan(value)) return t == TENON_DTYPE_F64 ? "nan(\"\")" : "nanf(\"\")";
  if (std::isinf(value))
    return std::string(value < 0 ? "(-" : "(") +
           (t == TENON_DTYPE_F64 ? "__longlong_as_double(0x7FF0000000000000ll))"
                                 : "__int_as_float(0x7F800000))");
  if (t == TENON_DTYPE_F64) {
    std::snprintf(text, sizeof text, "(%a)", value);
  } else if (t == TENON_DTYPE_F32) {
    std::snprintf(text, sizeof text, "(%af)", static_cast<double>(static_cast<float>(value)));
  } else {
    std::snprintf(text, sizeof text, "(%s)(%.0f)", computed_name("constant", t).c_str(), value);
  }
  return text;
}

std::string BodyText::stored_name(std::string_view name, tenon_dtype t, bool raw) {
  if (!raw) return type_name(name, t);
  switch (tenon_dtype_bits(t)) {
    case 8:
      return "u8";
    case 16:
      return "u16";
    case 32:
      return "u32";
    case 64:
      return "u64";
    default:
      throw Refusal::dtype(name, t);
  }
}

Register BodyText::input(std::string_view name, tenon_dtype stored, bool raw) {
  const std::string k = std::to_string(inputs_.size());
  types_ += "typedef " + stored_name(name, stored, raw) + " T" + k + ";\n";
  parameters_ += "const T" + k + " i" + k + ", ";
  inputs_.push_back(stored);
  if (raw) return {"i" + k, stored};
  const tenon_dtype dtype = computed_dtype(stored);
  lines_ += "  const " + computed_name(name, dtype) + " x" + k + " = widen(i" + k + ");\n";
  return {"x" + k, dtype};
}

Register BodyText::constant(tenon_dtype computed, double value) {
  return {literal(computed, value), computed};
}

Register BodyText::constant(tenon_dtype stored, const void* content) {
  if (!content) throw Refusal::shape("a constant of a body has no content");
  char bits[32];
  const int64_t bytes = element_bytes(stored);
  uint64_t value = 0;
  std::memcpy(&value, content, bytes);
  std::snprintf(bits, sizeof bits, "0x%llxu", static_cast<unsigned long long>(value));
  const std::string name = type_name("constant", stored);
  const tenon_dtype computed = computed_dtype(stored);
  if (stored == TENON_DTYPE_F32) return {"__uint_as_float(" + std::string(bits) + ")", computed};
  if (stored == TENON_DTYPE_F64)
    return {"__longlong_as_double((i64)" + std::string(bits) + "ll)", computed};
  if (is_integer(stored))
    return {"(" + name + ")" + std::string(bits) + (bytes == 8 ? "ll" : ""), computed};
  return {"widen(" + name + "{" + std::string(bits) + "})", computed};
}

Register BodyText::step(const std::string& expression, tenon_dtype dtype) {
  const std::string name = "r" + std::to_string(registers_++);
  lines_ += "  const " + computed_name("a step", dtype) + " " + name + " = " + expression + ";\n";
  return {name, dtype};
}

void BodyText::output(const Register& r, tenon_dtype stored, bool raw) {
  const std::string k = std::to_string(outputs_.size());
  if (!raw && computed_dtype(stored) != r.dtype) throw Refusal::dtype("y", stored);
  types_ += "typedef " + stored_name("y", stored, raw) + " U" + k + ";\n";
  parameters_ += "U" + k + "& o" + k + ", ";
  // What is left as an 8-bit float was rounded to one: an infinity stays.
  const std::string text = raw             ? r.text
                           : is_f8(stored) ? "convert<U" + k + ">(" + r.text + ", false)"
                                           : "narrow<U" + k + ">(" + r.text + ")";
  lines_ += "  o" + k + " = " + text + ";\n";
  outputs_.push_back(stored);
}

std::string BodyText::function() const {
  return types_ + "__device__ __forceinline__ void body(" +
         parameters_.substr(0, parameters_.size() - 2) + ") {\n" + lines_ + "}\n";
}

// ---- Steps

Register activation(BodyText& t, std::string_view kind, double alpha, double beta,
                    const Register& x) {
  const UnaryInfo& info = find_kind(kind);
  return t.step(call("unary_" + std::string(kind), x.dtype, info, alpha, beta, x), x.dtype);
}

Register unary_step(BodyText& t, const sdk::op::unary& n, const Register& x, tenon_dtype out) {
  const UnaryInfo& info = find_kind(n.kind);
  const bool to_bool = info.kind == UnaryKind::is_nan || info.kind == UnaryKind::is_inf;
  if (x.dtype != TENON_DTYPE_F32 && x.dtype != TENON_DTYPE_F64 &&
      !(info.integer && is_integer(x.dtype)))
    throw Refusal::dtype("x", x.dtype);
  if (to_bool != (out == TENON_DTYPE_BOOL)) throw Refusal::dtype("y", out);
  if (is_integer(x.dtype))
    return t.step("unary_" + n.kind + "<" + computed_name("x", x.dtype) + ">(" + x.text + ", 0, 0)",
                  x.dtype);
  if (has_short_form(info.kind, out))
    return t.step("short_" + n.kind + "(" + x.text + ")", x.dtype);
  const std::string text = call("unary_" + n.kind, x.dtype, info, n.alpha, n.beta, x);
  return t.step(text, to_bool ? tenon_dtype{TENON_DTYPE_BOOL} : x.dtype);
}

Register slope_step(BodyText& t, const sdk::op::activation_backward& n, const Register& x,
                    const Register& dy, tenon_dtype out) {
  const UnaryInfo& info = find_kind(n.kind);
  if (x.dtype != TENON_DTYPE_F32 && x.dtype != TENON_DTYPE_F64) throw Refusal::dtype("x", x.dtype);
  if (dy.dtype != x.dtype) throw Refusal::dtype("dy", dy.dtype);
  if (n.from_output) {
    if (!info.from_output) throw Refusal::attribute("from_output", "true of " + n.kind);
    return t.step("rounded_product(" + dy.text + ", output_slope_" + n.kind + "(" + x.text + "))",
                  x.dtype);
  }
  if (has_short_form(info.kind, out))
    return t.step("rounded_product(" + dy.text + ", short_slope_" + n.kind + "(" + x.text + "))",
                  x.dtype);
  const bool steps = info.kind == UnaryKind::floor || info.kind == UnaryKind::ceil ||
                     info.kind == UnaryKind::trunc || info.kind == UnaryKind::round;
  const std::string slope =
      call("slope_" + n.kind, x.dtype, info, steps ? (n.ste ? 1.0 : 0.0) : n.alpha, n.beta, x);
  return t.step("rounded_product(" + dy.text + ", " + slope + ")", x.dtype);
}

Register binary_step(BodyText& t, std::string_view kind, const Register& a, const Register& b) {
  check_kind("binary",
             std::array<std::string_view, 15>{"add", "sub", "mul", "div", "max", "min", "pow",
                                              "mod", "fmod", "atan2", "bit_and", "bit_or",
                                              "bit_xor", "shift_left", "shift_right"},
             kind);
  if (b.dtype != a.dtype) throw Refusal::dtype("b", b.dtype);
  if (a.dtype == TENON_DTYPE_BOOL) {  // or, and
    if (kind != "max" && kind != "min") throw Refusal::dtype("a", a.dtype);
    return t.step(a.text + (kind == "max" ? " || " : " && ") + b.text, a.dtype);
  }
  const bool on_bits = kind.starts_with("bit_") || kind.starts_with("shift_");
  if (is_integer(a.dtype) ? kind == "atan2" : on_bits) throw Refusal::dtype("a", a.dtype);
  return t.step("binary_" + std::string(kind) + "(" + a.text + ", " + b.text + ")", a.dtype);
}

Register compare_step(BodyText& t, std::string_view kind, const Register& a, const Register& b) {
  constexpr std::array<std::string_view, 6> kinds = {"eq", "ne", "lt", "le", "gt", "ge"};
  constexpr const char* signs[] = {" == ", " != ", " < ", " <= ", " > ", " >= "};
  check_kind("compare", kinds, kind);
  if (b.dtype != a.dtype) throw Refusal::dtype("b", b.dtype);
  const auto at = std::ranges::find(kinds, kind) - kinds.begin();
  return t.step(a.text + signs[at] + b.text, TENON_DTYPE_BOOL);
}

Register logical_step(BodyText& t, std::string_view kind, const Register& a, const Register& b) {
  check_kind("logical", std::array<std::string_view, 4>{"and", "or", "xor", "not"}, kind);
  if ((kind == "not") != b.text.empty())
    throw Refusal::attribute(
        "kind", std::string(kind) + (b.text.empty() ? " without operand b" : " with operand b"));
  if (a.dtype != TENON_DTYPE_BOOL) throw Refusal::dtype("a", a.dtype);
  if (kind == "not") return t.step("!" + a.text, a.dtype);
  if (b.dtype != TENON_DTYPE_BOOL) throw Refusal::dtype("b", b.dtype);
  const char* sign = kind == "and" ? " && " : kind == "or" ? " || " : " != ";
  return t.step(a.text + sign + b.text, a.dtype);
}

Register where_step(BodyText& t, const Register& cond, const Register& a, const Register& b) {
  if (cond.dtype != TENON_DTYPE_BOOL) throw Refusal::dtype("cond", cond.dtype);
  if (b.dtype != a.dtype) throw Refusal::dtype("b", b.dtype);
  return t.step(cond.text + " ? " + a.text + " : " + b.text, a.dtype);
}

Register cast_step(BodyText& t, tenon_dtype to, bool saturate, const Register& x) {
  computed_name("y", to);  // refuses
  return t.step(
      "widen(convert<" + type_name("y", to) + ">(" + x.text + (saturate ? ", true))" : ", false))"),
      computed_dtype(to));
}

}  // namespace tenon::cuda
