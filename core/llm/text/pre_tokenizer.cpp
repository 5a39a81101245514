// SPDX-License-Identifier: Apache-2.0
// Cuts of texts by expressions, classes of characters, and spaces.
#include "llm/text/pre_tokenizer.hpp"

#include <memory>
#include <utility>

#include "llm/text/normalizer.hpp"
#include "llm/text/unicode.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

// Collects the pieces of one piece from its spans, which cover it from left to right.
class Cutter {
 public:
  Cutter(Behavior behavior, std::vector<Range>& out) : behavior_(behavior), out_(out) {}

  void start() {
    first_ = out_.size();
    last_matched_ = false;
  }

  void add(size_t begin, size_t end, bool matched) {
    const Range r{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
    switch (behavior_) {
      case Behavior::removed:
        if (!matched) push(r);
        break;
      case Behavior::isolated:
        push(r);
        break;
      case Behavior::contiguous:
        join(r, matched == last_matched_);
        break;
      case Behavior::merged_with_previous:
        join(r, matched && !last_matched_);
        break;
      case Behavior::merged_with_next:
        // A match waits for the span behind it, unless that is a match too.
        if (waiting_ && matched) flush();
        if (matched) {
          waiting_ = true;
          held_ = r;
          break;
        }
        push({waiting_ ? held_.begin : r.begin, r.end});
        waiting_ = false;
        break;
    }
    last_matched_ = matched;
  }

  void finish() { flush(); }

 private:
  void push(Range r) {
    if (r.begin != r.end) out_.push_back(r);
  }
  void join(Range r, bool together) {
    if (together && out_.size() > first_)
      out_.back().end = r.end;
    else
      push(r);
  }
  void flush() {
    if (waiting_) push(held_);
    waiting_ = false;
  }

  Behavior behavior_;
  std::vector<Range>& out_;
  size_t first_ = 0;
  bool last_matched_ = false, waiting_ = false;
  Range held_{};
};

// spans(piece, add): calls add(begin, end, matched) for the spans of a piece.
template <class F>
void cut(Pieces& p, Behavior behavior, F&& spans) {
  std::vector<Range> out;
  out.reserve(2 * p.ranges.size());
  const size_t begin = p.ranges.empty() ? 0 : p.ranges[0].begin;
  Cutter cutter(behavior, out);
  for (const Range& r : p.ranges) {
    cutter.start();
    spans(p.piece(r), [&](size_t from, size_t to, bool matched) {
      cutter.add(r.begin + from, r.begin + to, matched);
    });
    cutter.finish();
  }
  if (out.empty() || out[0].begin != begin) p.at_start = false;
  p.ranges = std::move(out);
}

template <class F>
void class_spans(std::string_view piece, F&& in_class, const auto& add) {
  size_t from = 0;
  for (size_t at = 0; at < piece.size();) {
    const size_t begin = at;
    if (!in_class(next_character(piece, at))) continue;
    if (from < begin) add(from, begin, false);
    add(begin, at, true);
    from = at;
  }
  if (from < piece.size()) add(from, piece.size(), false);
}

// Writes each piece anew: write(piece, index, out).
template <class F>
void rewrite(Pieces& p, F&& write) {
  std::string text;
  text.reserve(p.text.size() + p.text.size() / 4);
  for (size_t i = 0; i < p.ranges.size(); ++i) {
    const size_t begin = text.size();
    write(p.piece(p.ranges[i]), i, text);
    p.ranges[i] = {static_cast<uint32_t>(begin), static_cast<uint32_t>(text.size())};
  }
  p.text = std::move(text);
}

}  // namespace

PreTokenizer split_by(Regex pattern, Behavior behavior, bool invert) {
  auto shared = std::make_shared<const Regex>(std::move(pattern));
  return [=](Pieces& p) {
    cut(p, behavior, [&](std::string_view piece, const auto& add) {
      size_t from = 0;
      shared->each(piece, [&](size_t begin, size_t end) {
        if (from < begin) add(from, begin, invert);
        add(begin, end, !invert);
        from = end;
      });
      if (from < piece.size()) add(from, piece.size(), invert);
    });
  };
}

PreTokenizer split_by_class(bool (*in_class)(char32_t), Behavior behavior) {
  return [=](Pieces& p) {
    cut(p, behavior,
        [&](std::string_view piece, const auto& add) { class_spans(piece, in_class, add); });
  };
}

PreTokenizer split_by_character(char32_t c) {
  return [=](Pieces& p) {
    cut(p, Behavior::removed, [&](std::string_view piece, const auto& add) {
      class_spans(
          piece, [c](char32_t x) { return x == c; }, add);
    });
  };
}

PreTokenizer split_by_length(size_t characters) {
  return [=](Pieces& p) {
    cut(p, Behavior::isolated, [&](std::string_view piece, const auto& add) {
      size_t begin = 0, count = 0;
      for (size_t at = 0; at < piece.size();) {
        next_character(piece, at);
        if (++count < characters && at < piece.size()) continue;
        add(begin, at, true);
        begin = at;
        count = 0;
      }
    });
  };
}

PreTokenizer bert_pieces() {
  return [](Pieces& p) {
    cut(p, Behavior::removed,
        [](std::string_view piece, const auto& add) { class_spans(piece, is_space, add); });
    cut(p, Behavior::isolated,
        [](std::string_view piece, const auto& add) { class_spans(piece, is_punctuation, add); });
  };
}

PreTokenizer byte_level(bool prefix_space, bool use_regex) {
  PreTokenizer split;
  if (use_regex)
    split = split_by(
        Regex(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
              "ByteLevel"),
        Behavior::isolated, false);
  return [=](Pieces& p) {
    if (prefix_space)
      rewrite(p, [](std::string_view piece, size_t, std::string& out) {
        if (!piece.starts_with(' ')) out += ' ';
        out += piece;
      });
    if (split) split(p);
    rewrite(p,
            [](std::string_view piece, size_t, std::string& out) { append_visible(out, piece); });
  };
}

PreTokenizer metaspace(std::string replacement, PrefixScheme scheme, bool split) {
  return [=](Pieces& p) {
    rewrite(p, [&](std::string_view piece, size_t i, std::string& out) {
      const bool prefix =
          scheme == PrefixScheme::always || (scheme == PrefixScheme::first && i == 0 && p.at_start);
      if (prefix && !piece.starts_with(' ') && !piece.starts_with(replacement)) out += replacement;
      for (const char c : piece) {
        if (c == ' ')
          out += replacement;
        else
          out += c;
      }
    });
    if (!split) return;
    cut(p, Behavior::merged_with_next, [&](std::string_view piece, const auto& add) {
      size_t from = 0;
      for (size_t at; (at = piece.find(replacement, from)) != piece.npos;
           from = at + replacement.size()) {
        if (from < at) add(from, at, false);
        add(at, at + replacement.size(), true);
      }
      if (from < piece.size()) add(from, piece.size(), false);
    });
  };
}

}  // namespace tenon::llm
