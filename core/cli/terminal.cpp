// SPDX-License-Identifier: Apache-2.0
// Reads the terminal's width. Cuts, wraps and escapes text.
#include "cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace tenon::cli {

bool is_terminal(int descriptor) { return ::isatty(descriptor) != 0; }

size_t terminal_width(int descriptor) {
  constexpr size_t kDefault = 100;
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  if (const char* columns = std::getenv("COLUMNS")) {
    const std::string_view text(columns);
    size_t width = 0;
    const auto end = text.data() + text.size();
    if (std::from_chars(text.data(), end, width).ptr == end && width > 0 && width < 10000)
      return width;
  }
  return kDefault;
}

std::string cut_to(std::string_view text, size_t columns) {
  if (text.size() <= columns) return std::string(text);
  constexpr std::string_view kCut = "...";
  size_t end = columns < kCut.size() ? 0 : columns - kCut.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + std::string(kCut.substr(0, columns));
}

std::string wrapped(std::string_view text, size_t columns, size_t indent, size_t at) {
  std::string out;
  size_t column = at;
  bool line_begins = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!line_begins && column + 1 + word.size() > columns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
      line_begins = true;
    }
    if (!line_begins) out += ' ', ++column;
    out += word;
    column += word.size();
    line_begins = false;
  }
  return out;
}

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e12)));
  char text[48];
  const auto ll = [](int64_t v) { return static_cast<long long>(v); };
  if (s >= 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", ll(s / 3600), ll(s / 60 % 60),
                  ll(s % 60));
  else if (s >= 60)
    std::snprintf(text, sizeof text, "%lld:%02lld", ll(s / 60), ll(s % 60));
  else
    std::snprintf(text, sizeof text, "%lld s", ll(s));
  return text;
}

std::string size_text(uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string counted(uint64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string shell_word(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./:=,+@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

namespace {

std::string escaped(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    char text[8];
    std::snprintf(text, sizeof text, "\\x%02X", static_cast<unsigned char>(c));
    out += text;
  }
  return out;
}

bool is_control(unsigned char byte) {
  return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
}

// Bytes of the character that a byte begins; 0: it begins none.
size_t character_size(unsigned char first) {
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  return first >= 0xF0 && first <= 0xF4 ? 4 : 0;
}

// A character of several bytes that UTF-8 knows and that is no control character.
bool is_shown(std::string_view c) {
  uint32_t code = static_cast<unsigned char>(c[0]) & (0xFFu >> (c.size() + 1));
  for (const char byte : c.substr(1)) code = code << 6 | (static_cast<unsigned char>(byte) & 0x3F);
  constexpr uint32_t kLeast[] = {0, 0, 0xA0, 0x800, 0x10000};  // below A0 are controls
  return code >= kLeast[c.size()] && code <= 0x10FFFF && !(code >= 0xD800 && code <= 0xDFFF);
}

}  // namespace

std::string without_control_bytes(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += is_control(static_cast<unsigned char>(c)) ? escaped({&c, 1}) : std::string(1, c);
  return out;
}

std::string SafeText::add(char c) {
  const auto byte = static_cast<unsigned char>(c);
  std::string out;
  if (!pending_.empty()) {
    if ((byte & 0xC0) == 0x80) {
      pending_ += c;
      if (pending_.size() < character_size(static_cast<unsigned char>(pending_[0]))) return out;
      out = is_shown(pending_) ? pending_ : escaped(pending_);
      pending_.clear();
      return out;
    }
    out = end();
  }
  if (byte < 0x80) return out + (is_control(byte) ? escaped({&c, 1}) : std::string(1, c));
  if (character_size(byte) == 0) return out + escaped({&c, 1});
  pending_ = c;
  return out;
}

std::string SafeText::end() {
  std::string out = escaped(pending_);
  pending_.clear();
  return out;
}

}  // namespace tenon::cli
