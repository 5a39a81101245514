// SPDX-License-Identifier: Apache-2.0
// What a terminal needs: its width, text that fits it, and nothing that it would take for a
// command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::cli {

bool is_terminal(int descriptor);
// Columns: of the terminal, else $COLUMNS, else 100.
size_t terminal_width(int descriptor);

// At most `columns` bytes, "..." at the end where something was cut. Never cuts inside a character.
std::string cut_to(std::string_view text, size_t columns);
// Lines of at most `columns` bytes, broken at blanks; all but the first begin with `indent` blanks.
// The first begins in column `at`. A longer word stays whole. Ends without a newline.
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
