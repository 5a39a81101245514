// SPDX-License-Identifier: Apache-2.0
// Output for terminals: width, wrapping, and escaping of control characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::cli {

bool is_terminal(int descriptor);
// Columns of the terminal, else $COLUMNS, else 100.
size_t terminal_width(int descriptor);

// Cuts text to at most `columns` bytes, with "..." at the end. Never cuts within a character.
std::string cut_to(std::string_view text, size_t columns);
// Wraps text at blanks to lines of at most `columns` bytes. All lines but the first are indented by
// `indent`. The first starts in column `at`. Longer words stay whole. Adds no final newline.
std::string wrapped(std::string_view text, size_t columns, size_t indent, size_t at);
// 59 s, 12:34, 3:02:01
std::string duration_text(double seconds);
// "1 step", "2 steps"
std::string counted(uint64_t count, std::string_view noun);
// 512 bytes, 1.5 KiB, 23.5 GiB
std::string size_text(uint64_t bytes);
// As a shell takes it for one word.
std::string shell_word(const std::string& text);

// Control bytes become \xNN, but for newline and tab; bytes above 7F pass.
std::string without_control_bytes(std::string_view text);

// Bytes that come one by one, as a terminal may show them: whole UTF-8 characters, newlines and
// tabs pass, control characters and bytes that are no character become \xNN.
class SafeText {
 public:
  std::string add(char byte);  // what can be shown now
  std::string end();           // what is left of a cut character

 private:
  std::string pending_{};  // begins with the first byte of a character of several bytes
};

}  // namespace tenon::cli
