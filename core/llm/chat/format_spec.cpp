// SPDX-License-Identifier: Apache-2.0
// Fields of formats: parsing of specifiers, digits, signs and padding.
#include "llm/chat/format_spec.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "llm/chat/print.hpp"
#include "llm/chat/unicode.hpp"

namespace tenon::llm::jinja {
namespace {

std::string digits_of(uint64_t value, int base, bool upper) {
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, base).ptr;
  std::string text(buffer, end);
  if (upper)
    for (char& c : text)
      if (c >= 'a') c = static_cast<char>(c - 32);
  return text;
}

std::string real_digits(double magnitude, char type, int64_t precision, bool alternate) {
  if (std::isinf(magnitude)) return type >= 'A' && type <= 'Z' ? "INF" : "inf";
  if (std::isnan(magnitude)) return type >= 'A' && type <= 'Z' ? "NAN" : "nan";
  const std::string format = std::string(alternate ? "%#.*" : "%.*") + type;
  std::string out(400 + static_cast<size_t>(precision), '\0');
  const int size =
      std::snprintf(out.data(), out.size(), format.c_str(), static_cast<int>(precision), magnitude);
  out.resize(static_cast<size_t>(size));
  return out;
}

// Separators between groups of digits in front of the point.
std::string grouped(const std::string& digits, char separator, size_t group) {
  const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(end);
}

std::string sign_of(const Spec& spec, bool negative) {
  return negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
}

Spec parse_spec(Machine& m, std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    size_t next = 0;
    next_character(text, next);
    if (next < text.size() && is_align(text[next])) {
      spec.fill = text.substr(0, next);
      spec.align = text[next];
      at = next + 1;
    } else if (is_align(text[0])) {
      spec.align = text[at++];
    }
  }
  const auto accept = [&](std::string_view any) {
    return at < text.size() && any.find(text[at]) != any.npos ? text[at++] : '\0';
  };
  if (const char sign = accept("+- ")) spec.sign = sign;
  spec.alternate = accept("#") != '\0';
  if (accept("0") && !spec.align) {
    spec.fill = "0";
    spec.align = '=';
    spec.zero = true;
  }
  spec.width = read_count(m, text, at, kMostWidth);
  spec.group = accept(",_");
  if (accept(".")) {
    const size_t start = at;
    spec.precision = read_count(m, text, at, kMostPrecision);
    if (at == start) m.fail("format: a precision is missing");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) m.fail("format: the specifier '" + std::string(text) + "' is wrong");
  return spec;
}

}  // namespace

int64_t read_count(Machine& m, std::string_view text, size_t& at, int64_t most) {
  int64_t n = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    n = n * 10 + (text[at++] - '0');
    if (n > most) m.fail("format: a width or precision exceeds " + std::to_string(most));
  }
  return n;
}

std::string padded(Machine& m, const Spec& spec, const std::string& sign, const std::string& body,
                   char otherwise) {
  const size_t size = count_chars(sign) + count_chars(body);
  const size_t width = static_cast<size_t>(spec.width);
  if (size >= width) return sign + body;
  const char align = spec.align ? spec.align : otherwise;
  const size_t missing = width - size;
  const size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  m.charge(width * 4);
  std::string left, right;
  for (size_t i = 0; i < before; ++i) left += spec.fill;
  for (size_t i = before; i < missing; ++i) right += spec.fill;
  return align == '=' ? sign + left + body : left + sign + body + right;
}

std::string format_whole(Machine& m, const Spec& spec, int64_t value) {
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string body, sign = sign_of(spec, value < 0);
  if (spec.type == 'c') {
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      m.fail("format: %c: " + std::to_string(value) + " is no character");
    append_character(body, static_cast<char32_t>(value));
    return padded(m, spec, "", body, '<');
  }
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  body = digits_of(magnitude, base, spec.type == 'X');
  if (spec.group) body = grouped(body, spec.group, base == 10 ? 3 : 4);
  if (spec.alternate && base != 10) sign += std::string("0") + spec.type;
  return padded(m, spec, sign, body, '>');
}

std::string format_real(Machine& m, const Spec& spec, double value) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  std::string body;
  if (spec.type == '%') {
    body =
        real_digits(magnitude * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) +
        "%";
  } else if (spec.type == '\0' || spec.type == 'n') {
    if (spec.precision < 0) {
      body = real_text(magnitude);
    } else {
      body = real_digits(magnitude, 'g', spec.precision ? spec.precision : 1, spec.alternate);
      const bool plain = body.find_first_of(".en") == body.npos;
      if (plain && spec.type == '\0') body += ".0";
    }
  } else {
    const int64_t precision = spec.precision < 0                                 ? 6
                              : (spec.type | 0x20) == 'g' && spec.precision == 0 ? 1
                                                                                 : spec.precision;
    body = real_digits(magnitude, spec.type, precision, spec.alternate);
  }
  if (spec.group && std::isfinite(value)) body = grouped(body, spec.group, 3);
  return padded(m, spec, sign_of(spec, negative), body, '>');
}

std::string format_text(Machine& m, const Spec& spec, std::string_view text) {
  if (spec.precision >= 0)
    text = text.substr(0, offset_of_char(text, static_cast<size_t>(spec.precision)));
  return padded(m, spec, "", std::string(text), '<');
}

std::string format_field(Machine& m, const Value& v, std::string_view text) {
  if (text.empty()) return to_text(m, v);
  m.require_defined(v);
  Spec spec = parse_spec(m, text);
  const auto one_of = [&](std::string_view types) {
    return spec.type == '\0' || types.find(spec.type) != types.npos;
  };
  const std::string_view whole = "bcdoxXn", real = "eEfFgG%n";
  if (v.is(Kind::text) && one_of("s") && spec.sign == '-' && !spec.group && !spec.alternate) {
    if (spec.align == '=' && spec.zero) spec.align = '<';
    if (spec.align != '=') return format_text(m, spec, text_of(v));
  }
  if (v.is_whole() && spec.precision < 0 && one_of(whole)) return format_whole(m, spec, v.whole());
  if (v.is_number() && spec.type && real.find(spec.type) != real.npos)
    return format_real(m, spec, v.number());
  if (v.is(Kind::real) && spec.type == '\0') return format_real(m, spec, v.real);
  m.fail("format: the specifier '" + std::string(text) + "' does not fit a value of the type " +
         std::string(type_name(v)));
}

}  // namespace tenon::llm::jinja
