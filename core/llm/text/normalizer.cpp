// SPDX-License-Identifier: Apache-2.0
// The normalizers of tokenizer.json, and the spaces of SentencePiece.
#include "llm/text/normalizer.hpp"

#include <array>
#include <utility>

#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

// Calls keep(c) for each character; what it returns false for is left out.
template <class F>
std::string filtered(std::string_view text, F&& keep) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (keep(next_character(text, at))) out += text.substr(begin, at - begin);
  }
  return out;
}

// Printable characters of Latin-1 stand for their bytes. The other bytes are the characters from U+0100 on, in order.
struct VisibleBytes {
  std::array<std::string, 256> texts;
  std::array<int16_t, 0x180> bytes;
  VisibleBytes() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
      const char32_t c = printable ? b : next++;
      append_character(texts[b], c);
      bytes[c] = static_cast<int16_t>(b);
    }
  }
};
const VisibleBytes& visible_bytes() {
  static const VisibleBytes table;
  return table;
}

void clean(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_character(text, at);
    const bool space = c == '\t' || c == '\n' || c == '\r' || is_space(c);
    if (c == 0 || c == 0xFFFD || (is_control(c) && c != '\t' && c != '\n' && c != '\r')) continue;
    if (space)
      out += ' ';
    else
      out.append(text, begin, at - begin);
  }
  text = std::move(out);
}

void separate_ideographs(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool apart = is_ideograph(next_character(text, at));
    if (apart) out += ' ';
    out.append(text, begin, at - begin);
    if (apart) out += ' ';
  }
  text = std::move(out);
}

}  // namespace

void append_visible(std::string& out, std::string_view bytes) {
  const VisibleBytes& table = visible_bytes();
  for (const char b : bytes) out += table.texts[static_cast<unsigned char>(b)];
}

int visible_byte(char32_t c) {
  const VisibleBytes& table = visible_bytes();
  return c < table.bytes.size() ? table.bytes[c] : -1;
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  size_t from = 0;
  for (size_t at; !what.empty() && (at = text.find(what, from)) != text.npos;) {
    out += text.substr(from, at - from);
    out += by;
    from = at + what.size();
  }
  return out += text.substr(from);
}

Normalizer form_normalizer(Form form) {
  return [form](std::string_view text) { return normalize(text, form); };
}

Normalizer lowercase_normalizer() {
  return [](std::string_view text) { return lowercase(text); };
}

Normalizer accent_normalizer() {
  return
      [](std::string_view text) { return filtered(text, [](char32_t c) { return !is_mark(c); }); };
}

Normalizer strip_normalizer(bool left, bool right) {
  return [=](std::string_view text) {
    size_t begin = 0, end = 0;  // end: behind the last character that is no space
    bool started = false;
    for (size_t at = 0; at < text.size();) {
      const size_t from = at;
      if (is_space(next_character(text, at))) continue;
      if (!started) begin = from;
      started = true;
      end = at;
    }
    if (!started) return std::string(left || right ? "" : text);
    if (!left) begin = 0;
    if (!right) end = text.size();
    return std::string(text.substr(begin, end - begin));
  };
}

Normalizer prepend_normalizer(std::string prefix) {
  return [prefix = std::move(prefix)](std::string_view text) {
    return text.empty() ? std::string() : prefix + std::string(text);
  };
}

Normalizer replace_normalizer(Regex pattern, std::string by) {
  auto shared = std::make_shared<const Regex>(std::move(pattern));
  return [shared, by = std::move(by)](std::string_view text) {
    std::string out;
    out.reserve(text.size());
    size_t from = 0;
    shared->each(text, [&](size_t begin, size_t end) {
      out += text.substr(from, begin - from);
      out += by;
      from = end;
      check_growth(text.size(), out.size());
    });
    return out += text.substr(from);
  };
}

Normalizer bert_normalizer(BertOptions o) {
  return [o](std::string_view input) {
    std::string text(input);
    if (o.clean_text) clean(text);
    if (o.ideographs && !is_ascii(text)) separate_ideographs(text);
    if (o.strip_accents)
      text =
          filtered(normalize(text, Form::nfd), [](char32_t c) { return !is_nonspacing_mark(c); });
    if (o.lowercase) text = lowercase(text);
    return text;
  };
}

Normalizer nmt_normalizer() {
  return [](std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t c = next_character(text, at);
      const bool dropped = (c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) ||
                           c == 0x7F || c == 0x8F || c == 0x9F;
      const bool space = c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                         c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      if (dropped) continue;
      if (space)
        out += ' ';
      else
        out += text.substr(begin, at - begin);
    }
    return out;
  };
}

Normalizer byte_level_normalizer() {
  return [](std::string_view text) {
    std::string out;
    append_visible(out, text);
    return out;
  };
}

Normalizer charsmap_normalizer(Charsmap map, bool sentence_piece) {
  auto shared = std::make_shared<const Charsmap>(std::move(map));
  return [shared, sentence_piece](std::string_view text) {
    return sentence_piece ? shared->longest(text) : shared->by_clusters(text);
  };
}

Normalizer space_normalizer(SpaceOptions o) {
  return [o](std::string_view text) {
    std::string out;
    bool inside = false, started = false;  // a word; the first word
    const bool prefix = o.prefix && !o.suffix;
    if (prefix && !o.remove_extra && !text.empty()) out += kMetaspace;
    for (const char c : text) {
      if (c == ' ') {
        inside = false;
        if (!o.remove_extra) out += kMetaspace;
        continue;
      }
      if (o.remove_extra && !inside && (started || prefix)) out += kMetaspace;
      inside = started = true;
      out += c;
    }
    if (o.prefix && o.suffix) out += kMetaspace;
    return out;
  };
}

}  // namespace tenon::llm
