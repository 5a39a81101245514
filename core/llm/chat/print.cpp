// SPDX-License-Identifier: Apache-2.0
// Python's str() and repr(), and JSON.
#include "llm/chat/print.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "llm/chat/unicode.hpp"

namespace tenon::llm::jinja {
namespace {

void append_hex(std::string& out, char mark, uint32_t code, int digits) {
  out += '\\';
  out += mark;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out += "0123456789abcdef"[code >> shift & 15];
}

void append_repr(std::string& out, std::string_view text) {
  const bool single = text.find('\'') == text.npos || text.find('"') != text.npos;
  const char quote = single ? '\'' : '"';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (python::is_printable(c)) {
      append_character(out, c);
    } else if (c < 0x100) {
      append_hex(out, 'x', c, 2);
    } else if (c < 0x10000) {
      append_hex(out, 'u', c, 4);
    } else {
      append_hex(out, 'U', c, 8);
    }
  }
  out += quote;
}

// Writes into one text, whose growth it charges.
class Printer {
 public:
  explicit Printer(Machine& m) : m_(m) {}
  std::string run(const Value& v) {
    repr(v);
    m_.charge(out_.size() - charged_);
    return std::move(out_);
  }

 private:
  void repr(const Value& v) {
    Deeper deeper(m_);
    m_.work(1);
    if (out_.size() - charged_ > 4096) {
      m_.charge(out_.size() - charged_);
      charged_ = out_.size();
    }
    switch (v.kind) {
      case Kind::undefined:
        out_ += "Undefined";
        break;
      case Kind::none:
        out_ += "None";
        break;
      case Kind::boolean:
        out_ += v.boolean ? "True" : "False";
        break;
      case Kind::integer:
        out_ += std::to_string(v.integer);
        break;
      case Kind::real:
        out_ += real_text(v.real);
        break;
      case Kind::text:
        m_.work_on(text_of(v));
        if (v.text->markup) out_ += "Markup(";
        append_repr(out_, text_of(v));
        if (v.text->markup) out_ += ")";
        break;
      case Kind::list:
        sequence(*v.list);
        break;
      case Kind::dict:
        dict(*v.dict);
        break;
      case Kind::space:
        out_ += "<Namespace ";
        dict(*v.dict);
        out_ += ">";
        break;
      case Kind::function:
        out_ += "<function " + std::string(v.function->name) + ">";
        break;
      case Kind::loop:
        out_ += "<LoopContext " + std::to_string(v.loop->index + 1) + "/" +
                std::to_string(m_.length(v)) + ">";
        break;
    }
  }

  void sequence(const List& list) {
    if (list.form == Form::range) {
      out_ += "range(" + std::to_string(list.start) + ", " + std::to_string(list.stop);
      if (list.step != 1) out_ += ", " + std::to_string(list.step);
      out_ += ")";
      return;
    }
    const char* names[] = {"[",          "(", "", "dict_keys([", "dict_values([", "dict_items([",
                           "<generator", "("};
    out_ += names[static_cast<size_t>(list.form)];
    if (list.form == Form::generator) {
      out_ += ">";
      return;
    }
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i) out_ += ", ";
      repr(list.items[i]);
    }
    if (list.is_tuple())
      out_ += list.items.size() == 1 ? ",)" : ")";
    else
      out_ += list.form == Form::list ? "]" : "])";
  }

  void dict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
      if (!first) out_ += ", ";
      first = false;
      repr(key);
      out_ += ": ";
      repr(value);
    }
    out_ += '}';
  }

  Machine& m_;
  std::string out_;
  size_t charged_ = 0;
};

class JsonWriter {
 public:
  JsonWriter(Machine& m, const JsonStyle& style) : m_(m), style_(style) {}
  std::string run(const Value& v) {
    write(v, 0);
    m_.charge(out_.size() - charged_);
    return std::move(out_);
  }

 private:
  void text(std::string_view t) {
    m_.work_on(t);
    out_ += '"';
    for (size_t at = 0; at < t.size();) {
      const char32_t c = next_character(t, at);
      static constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";
      const size_t known = c < 0x80 ? kShort.find(static_cast<char>(c)) : kShort.npos;
      if (known != kShort.npos) {
        out_ += '\\';
        out_ += kNames[known];
      } else if (c < 0x20 || (style_.ascii && c > 0x7E && c < 0x10000)) {
        append_hex(out_, 'u', c, 4);
      } else if (style_.ascii && c > 0xFFFF) {
        append_hex(out_, 'u', 0xD800 + ((c - 0x10000) >> 10), 4);
        append_hex(out_, 'u', 0xDC00 + ((c - 0x10000) & 0x3FF), 4);
      } else {
        append_character(out_, c);
      }
    }
    out_ += '"';
  }

  void real(double d) {
    out_ += std::isnan(d)   ? "NaN"
            : std::isinf(d) ? (d < 0 ? "-Infinity" : "Infinity")
                            : real_text(d);
  }

  void newline(size_t level) {
    if (!style_.lines) return;
    out_ += '\n';
    for (size_t i = 0; i < level; ++i) out_ += style_.indent;
  }

  void scalar(const Value& v) {
    switch (v.kind) {
      case Kind::none:
        out_ += "null";
        break;
      case Kind::boolean:
        out_ += v.boolean ? "true" : "false";
        break;
      case Kind::integer:
        out_ += std::to_string(v.integer);
        break;
      case Kind::real:
        real(v.real);
        break;
      default:
        m_.fail("tojson: cannot write " + std::string(type_name(v)) +
                (v.is(Kind::undefined) && v.text ? " '" + v.text->bytes + "'" : std::string()));
    }
  }

  void write(const Value& v, size_t level) {
    Deeper deeper(m_);
    m_.work(1);
    if (out_.size() - charged_ > 4096) {
      m_.charge(out_.size() - charged_);
      charged_ = out_.size();
    }
    if (v.is(Kind::text)) return text(text_of(v));
    if (v.is(Kind::dict)) return dict(*v.dict, level);
    const bool array = v.is(Kind::list) && (v.list->form == Form::list || v.list->is_tuple());
    if (!array) return scalar(v);
    if (v.list->items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (size_t i = 0; i < v.list->items.size(); ++i) {
      if (i) out_ += style_.item_separator;
      newline(level + 1);
      write(v.list->items[i], level + 1);
    }
    newline(level);
    out_ += ']';
  }

  void dict(const Dict& dict, size_t level) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return compare(m_, a->first, b->first, "<") < 0;
      });
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i) out_ += style_.item_separator;
      newline(level + 1);
      const Value& key = entries[i]->first;
      if (key.is(Kind::text)) {
        text(text_of(key));
      } else {
        out_ += '"';
        scalar(key);
        out_ += '"';
      }
      out_ += style_.key_separator;
      write(entries[i]->second, level + 1);
    }
    newline(level);
    out_ += '}';
  }

  Machine& m_;
  const JsonStyle& style_;
  std::string out_;
  size_t charged_ = 0;
};

}  // namespace

std::string real_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  std::string shortest(buffer, end);
  const size_t mark = shortest.find('e');
  const int exponent = std::atoi(shortest.c_str() + mark + 1);
  if (exponent < -4 || exponent >= 16) return shortest;
  const auto fixed_end =
      std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed).ptr;
  std::string fixed(buffer, fixed_end);
  return fixed.find('.') == fixed.npos ? fixed + ".0" : fixed;
}

std::string to_text(Machine& m, const Value& v) {
  if (v.is(Kind::text)) return v.text->bytes;
  if (v.is(Kind::undefined)) return {};
  return to_repr(m, v);
}

std::string to_repr(Machine& m, const Value& v) { return Printer(m).run(v); }

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string to_json(Machine& m, const Value& v, const JsonStyle& style) {
  return JsonWriter(m, style).run(v);
}

}  // namespace tenon::llm::jinja
