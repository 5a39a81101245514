// SPDX-License-Identifier: Apache-2.0
// PCRE2: compiled once, matched by its just-in-time compiler where the machine has one.
#include "llm/text/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "llm/text/unicode.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

constexpr uint32_t kMostSteps = 10'000'000;  // of one search
constexpr uint32_t kMostHeap = 256 << 10;    // KiB
constexpr size_t kJitStack = 32 << 20;       // reserved addresses, not memory

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <class T>
using Owner = std::unique_ptr<T, Free>;

template <class T>
Owner<T> made(T* p) {
  if (!p) throw std::bad_alloc();
  return Owner<T>(p);
}

// The memory of a search, once per thread.
struct Search {
  Owner<pcre2_match_data> data = made(pcre2_match_data_create(1, nullptr));
  Owner<pcre2_match_context> limits = made(pcre2_match_context_create(nullptr));
  Owner<pcre2_jit_stack> stack;
  Search() {
    pcre2_set_match_limit(limits.get(), kMostSteps);
    pcre2_set_heap_limit(limits.get(), kMostHeap);
  }
  void grow_stack() {
    stack = made(pcre2_jit_stack_create(32 << 10, kJitStack, nullptr));
    pcre2_jit_stack_assign(limits.get(), nullptr, stack.get());
  }
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Code {
  std::string pattern, where;
  Owner<pcre2_code> code;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Regex::Regex(std::string_view pattern, const std::string& where) : code_(new Code) {
  code_->pattern = pattern;
  code_->where = where;
  const std::string translated = pcre_pattern(pattern, where);
  const auto context = made(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  code_->code.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE,
      &error, &at, context.get()));
  if (!code_->code)
    throw Error(TENON_CORRUPT, where + ": the regular expression '" + std::string(pattern) +
                                   "' is not valid: " + message_of(error));
  pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE);  // without it, searches interpret
}

Regex Regex::literal(std::string_view text, const std::string& where) {
  std::string pattern;
  for (const char c : text) {
    const bool plain = static_cast<unsigned char>(c) >= 0x80 ||
                       is_space(static_cast<char32_t>(c)) || is_word(static_cast<char32_t>(c)) ||
                       c < ' ' || c == 0x7F;
    if (!plain) pattern += '\\';
    pattern += c;
  }
  return Regex(pattern, where);
}

size_t Regex::next(std::string_view text, size_t at) {
  return character_size(static_cast<unsigned char>(text[at]));
}

bool Regex::find(std::string_view text, size_t from, size_t& begin, size_t& end) const {
  thread_local Search search;
  const auto run = [&] {
    return pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       from, PCRE2_NO_UTF_CHECK, search.data.get(), search.limits.get());
  };
  int found = run();
  if (found == PCRE2_ERROR_JIT_STACKLIMIT && !search.stack) {
    search.grow_stack();
    found = run();
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    throw Error(TENON_UNSUPPORTED, code_->where + ": the regular expression '" + code_->pattern +
                                       "' takes too long on this text, from byte " +
                                       std::to_string(from) + ": " + message_of(found));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(search.data.get());
  begin = ends[0];
  end = ends[1];
  // \K in a lookahead can put the begin behind the end.
  if (begin > end || begin < from || end > text.size())
    throw Error(TENON_CORRUPT, code_->where + ": the regular expression '" + code_->pattern +
                                   "' finds a match that ends before it begins");
  return true;
}

}  // namespace tenon::llm
