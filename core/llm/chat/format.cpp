// SPDX-License-Identifier: Apache-2.0
// The fields of a text and the values that fill them.
#include "llm/chat/format.hpp"

#include <algorithm>
#include <cmath>

#include "llm/chat/format_spec.hpp"
#include "llm/chat/print.hpp"

namespace tenon::llm::jinja {
namespace {

class Braces {
 public:
  Braces(Machine& m, const Args& args, bool markup) : m_(m), args_(args), markup_(markup) {}

  std::string run(std::string_view format, int nesting = 0) {
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at];
      if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
        out += c;
        at += 2;
      } else if (c == '{') {
        const size_t end = end_of_field(format, at + 1);
        out += field(format.substr(at + 1, end - at - 1), nesting);
        m_.charge(out.size() > 4096 ? 4096 : 0);
        at = end + 1;
      } else if (c == '}') {
        m_.fail("format: a single '}' in the text");
      } else {
        out += c;
        ++at;
      }
    }
    return out;
  }

 private:
  size_t end_of_field(std::string_view format, size_t at) {
    int open = 1;
    for (; at < format.size(); ++at) {
      if (format[at] == '{') ++open;
      if (format[at] == '}' && --open == 0) return at;
    }
    m_.fail("format: '{' without '}'");
  }

  std::string field(std::string_view field, int nesting) {
    if (nesting > 1) m_.fail("format: fields are nested too deeply");
    size_t end = 0;
    for (bool brackets = false; end < field.size(); ++end) {
      if (field[end] == '[') brackets = true;
      if (field[end] == ']') brackets = false;
      if (!brackets && (field[end] == ':' || field[end] == '!')) break;
    }
    Value v = value(field.substr(0, end));
    if (end < field.size() && field[end] == '!') {
      const char how = end + 1 < field.size() ? field[end + 1] : '\0';
      if (how != 's' && how != 'r') m_.fail("format: expected the conversion !s or !r");
      v = m_.text(how == 's' ? to_text(m_, v) : to_repr(m_, v));
      end += 2;
      if (end < field.size() && field[end] != ':') m_.fail("format: expected ':'");
    }
    const std::string spec =
        end < field.size() ? run(field.substr(end + 1), nesting + 1) : std::string();
    const std::string text = format_field(m_, v, spec);
    return markup_ && !(v.is(Kind::text) && v.text->markup) ? escape(text) : text;
  }

  Value value(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value v = first(path.substr(0, end));
    for (size_t at = end; at < path.size();) {
      const bool item = path[at] == '[';
      const size_t stop =
          item ? path.find(']', at) : std::min(path.find_first_of(".[", at + 1), path.size());
      if (stop == path.npos) m_.fail("format: '[' without ']'");
      const std::string_view name = path.substr(at + 1, stop - at - 1);
      const bool number =
          item && !name.empty() && name.find_first_not_of("0123456789") == name.npos;
      v = number ? m_.item(v, make_int(index_of(name)))
          : item ? m_.item(v, m_.text(std::string(name)))
                 : m_.attribute(v, m_.text(std::string(name)));
      m_.require_defined(v);
      at = item ? stop + 1 : stop;
    }
    return v;
  }

  int64_t index_of(std::string_view digits) {
    size_t at = 0;
    return read_count(m_, digits, at, 1'000'000);
  }

  Value first(std::string_view name) {
    if (name.empty() || name.find_first_not_of("0123456789") == name.npos) {
      const auto i = name.empty() ? next_++ : static_cast<size_t>(index_of(name));
      if (i >= args_.values.size())
        m_.fail("format: the text needs more than " + std::to_string(args_.values.size()) +
                " values");
      return args_.values[i];
    }
    for (const auto& [known, v] : args_.named)
      if (known == name) return v;
    m_.fail("format: no value for '" + std::string(name) + "'");
  }

  Machine& m_;
  const Args& args_;
  bool markup_;
  size_t next_ = 0;
};

class Percent {
 public:
  Percent(Machine& m, const Value& values, bool markup) : m_(m), values_(values), markup_(markup) {}

  std::string run(std::string_view format) {
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at++];
      if (c != '%')
        out += c;
      else
        at = field(format, at, out);
    }
    const bool one = !values_.is(Kind::dict) && !is_tuple();
    if (!one && !is_tuple()) return out;
    if (taken_ < (one ? 1 : values_.list->items.size()) && !(one && is_mapping()))
      m_.fail("'%': the text does not use all values");
    return out;
  }

 private:
  bool is_tuple() const { return values_.is(Kind::list) && values_.list->is_tuple(); }
  // Python takes lists for mappings here.
  bool is_mapping() const {
    return values_.is(Kind::dict) || (values_.is(Kind::list) && !is_tuple());
  }

  Value next() {
    if (!is_tuple()) {
      if (taken_++ > 0) m_.fail("'%': the text needs more values");
      return values_;
    }
    if (taken_ >= values_.list->items.size()) m_.fail("'%': the text needs more values");
    return values_.list->items[taken_++];
  }

  int64_t count(std::string_view format, size_t& at, int64_t most) {
    if (at >= format.size() || format[at] != '*') return read_count(m_, format, at, most);
    ++at;
    const Value v = next();
    if (!v.is_whole() || v.whole() > most || v.whole() < -most) m_.fail("'%': * needs a small int");
    return v.whole();
  }

  size_t field(std::string_view format, size_t at, std::string& out) {
    Spec spec;
    Value named;
    bool has_name = false;
    if (at < format.size() && format[at] == '(') {
      const size_t end = format.find(')', at);
      if (end == format.npos || !values_.is(Kind::dict)) m_.fail("'%': %(name) needs a dict");
      const std::string_view key = format.substr(at + 1, end - at - 1);
      const Value* v = find(m_, *values_.dict, key);
      if (!v) m_.fail("'%': no value for '" + std::string(key) + "'");
      named = *v;
      has_name = true;
      at = end + 1;
    }
    bool zero = false;
    for (;
         at < format.size() && std::string_view("-+ #0").find(format[at]) != std::string_view::npos;
         ++at) {
      const char c = format[at];
      if (c == '-') spec.align = '<';
      if (c == '+' || (c == ' ' && spec.sign != '+')) spec.sign = c;
      spec.alternate |= c == '#';
      zero |= c == '0';
    }
    spec.width = count(format, at, kMostWidth);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (at < format.size() && format[at] == '.') {
      ++at;
      spec.precision = std::max<int64_t>(count(format, at, kMostPrecision), 0);
    }
    while (at < format.size() && (format[at] == 'l' || format[at] == 'h' || format[at] == 'L'))
      ++at;
    if (at >= format.size()) m_.fail("'%': the text ends inside a field");
    const char type = format[at++];
    if (type == '%') {
      out += '%';
      return at;
    }
    const Value v = has_name ? named : next();
    const bool number = std::string_view("sra").find(type) == std::string_view::npos && type != 'c';
    if (zero && number && !spec.align) {
      spec.fill = "0";
      spec.align = '=';
    }
    out += one(v, type, spec);
    m_.charge(static_cast<uint64_t>(spec.width));
    return at;
  }

  std::string one(const Value& v, char type, Spec& spec) {
    if (!spec.align) spec.align = '>';
    if (type == 's' || type == 'r') {
      const std::string text = type == 's' ? to_text(m_, v) : to_repr(m_, v);
      const bool safe = !markup_ || (type == 's' && v.is(Kind::text) && v.text->markup);
      return format_text(m_, spec, safe ? text : escape(text));
    }
    m_.require_defined(v);
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (type == 'c' && v.is(Kind::text) && v.text->chars == 1)
      return format_text(m_, spec, text_of(v));
    if (std::string_view("eEfFgG").find(type) != std::string_view::npos && v.is_number())
      return format_real(m_, spec, v.number());
    if (spec.type == 'd' && v.is(Kind::real)) {
      if (!(std::fabs(v.real) < 9.2e18)) m_.fail("'%': %d needs a number below 2^63");
      return whole(static_cast<int64_t>(v.real), spec);
    }
    if (std::string_view("dxXoc").find(spec.type) != std::string_view::npos && v.is_whole())
      return whole(v.whole(), spec);
    m_.fail(std::string("'%': %") + type + " does not fit a value of the type " +
            std::string(type_name(v)));
  }

  // The precision of an integer is its least number of digits.
  std::string whole(int64_t value, Spec& spec) {
    if (spec.type == 'c' || spec.precision < 0) return format_whole(m_, spec, value);
    Spec bare = spec;
    bare.width = 0;
    std::string digits = format_whole(m_, bare, value);
    const size_t sign = digits.find_first_not_of("+- ");
    size_t prefix = sign == digits.npos ? digits.size() : sign;
    if (spec.alternate && spec.type != 'd') prefix += 2;
    const size_t have = digits.size() - prefix;
    if (have < static_cast<size_t>(spec.precision))
      digits.insert(prefix, static_cast<size_t>(spec.precision) - have, '0');
    return padded(m_, spec, digits.substr(0, prefix), digits.substr(prefix), '>');
  }

  Machine& m_;
  const Value& values_;
  bool markup_;
  size_t taken_ = 0;
};

}  // namespace

Value format_percent(Machine& m, const Value& format, const Value& values) {
  m.work_on(text_of(format));
  return m.text(Percent(m, values, format.text->markup).run(text_of(format)), format.text->markup);
}

Value format_braces(Machine& m, const Value& format, const Args& args) {
  m.work_on(text_of(format));
  return m.text(Braces(m, args, format.text->markup).run(text_of(format)), format.text->markup);
}

}  // namespace tenon::llm::jinja
