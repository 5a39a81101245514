// SPDX-License-Identifier: Apache-2.0
// Values of the metadata of GGUF files: their types, their elements, and as JSON.
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "import/gguf.hpp"

namespace tenon::core {
namespace {

struct TypeFacts {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<TypeFacts, 13> kTypes = {{{"u8", 1},
                                               {"i8", 1},
                                               {"u16", 2},
                                               {"i16", 2},
                                               {"u32", 4},
                                               {"i32", 4},
                                               {"f32", 4},
                                               {"bool", 1},
                                               {"string", 0},
                                               {"array", 0},
                                               {"u64", 8},
                                               {"i64", 8},
                                               {"f64", 8}}};

// Walks contents that the parser has checked.
class Walk {
 public:
  Walk(std::span<const std::byte> bytes, bool short_sizes)
      : bytes_(bytes), short_sizes_(short_sizes) {}
  size_t at() const { return at_; }
  void move_to(size_t at) { at_ = at; }
  uint64_t size() { return short_sizes_ ? number<uint32_t>() : number<uint64_t>(); }
  std::span<const std::byte> bytes(uint64_t count) {
    check(count <= bytes_.size() - at_, "a value leaves its bytes");
    const auto out = bytes_.subspan(at_, count);
    at_ += count;
    return out;
  }
  std::string_view text() {
    const auto b = bytes(size());
    return {reinterpret_cast<const char*>(b.data()), b.size()};
  }
  // Passes an array; out, if not null, gets its type, length and content.
  void array(GgufValue* out) {
    const auto element = static_cast<GgufType>(number<uint32_t>());
    const uint64_t count = size(), width = gguf_type_bytes(element);
    const size_t begin = at_;
    if (width > 0) {
      bytes(count * width);
    } else {
      for (uint64_t i = 0; i < count; ++i) {
        if (element == GgufType::string)
          text();
        else
          array(nullptr);
      }
    }
    if (!out) return;
    out->type = GgufType::array;
    out->element = element;
    out->count = count;
    out->content = bytes_.subspan(begin, at_ - begin);
    out->short_sizes = short_sizes_;
  }

 private:
  template <class T>
  T number() {
    T v;
    std::memcpy(&v, bytes(sizeof v).data(), sizeof v);
    return v;
  }

  std::span<const std::byte> bytes_;
  bool short_sizes_;
  size_t at_ = 0;
};

// Stands at element i of an array of strings or arrays, or at a string.
Walk at_element(const GgufValue& v, uint64_t i, GgufType wanted) {
  if (v.element != wanted)
    fail(Code::dtype_mismatch, "key '", v.key, "': is of type ", gguf_type_name(v.element),
         "; expected ", gguf_type_name(wanted));
  if (i >= v.count) fail(Code::not_found, "key '", v.key, "': element ", i, " of ", v.count);
  Walk walk(v.content, v.short_sizes);
  const uint64_t mark = std::min<uint64_t>(i / 64, v.marks.size());
  if (mark > 0) walk.move_to(v.marks[mark - 1]);
  for (uint64_t k = mark * 64; k < i; ++k) {
    if (wanted == GgufType::string)
      walk.text();
    else
      walk.array(nullptr);
  }
  return walk;
}

template <class T>
T number_at(const GgufValue& v, uint64_t i) {
  T number;
  std::memcpy(&number, v.content.data() + i * sizeof number, sizeof number);
  return number;
}

std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <class T>
std::string finite(T number) {
  return std::isfinite(number) ? cat(number) : "null";
}

// Element i of anything but strings and arrays.
std::string number_text(const GgufValue& v, uint64_t i) {
  switch (v.element) {
    case GgufType::u8:
      return cat(static_cast<uint32_t>(number_at<uint8_t>(v, i)));
    case GgufType::i8:
      return cat(static_cast<int32_t>(number_at<int8_t>(v, i)));
    case GgufType::u16:
      return cat(number_at<uint16_t>(v, i));
    case GgufType::i16:
      return cat(number_at<int16_t>(v, i));
    case GgufType::u32:
      return cat(number_at<uint32_t>(v, i));
    case GgufType::i32:
      return cat(number_at<int32_t>(v, i));
    case GgufType::f32:
      return finite(number_at<float>(v, i));
    case GgufType::boolean:
      return number_at<uint8_t>(v, i) != 0 ? "true" : "false";
    case GgufType::u64:
      return cat(number_at<uint64_t>(v, i));
    case GgufType::i64:
      return cat(number_at<int64_t>(v, i));
    case GgufType::f64:
      return finite(number_at<double>(v, i));
    default:
      return "null";
  }
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  const auto i = static_cast<size_t>(type);
  return i < kTypes.size() ? kTypes[i].name : std::string_view();
}

uint64_t gguf_type_bytes(GgufType type) {
  const auto i = static_cast<size_t>(type);
  return i < kTypes.size() ? kTypes[i].bytes : 0;
}

std::string_view gguf_text(const GgufValue& value, uint64_t i) {
  return at_element(value, i, GgufType::string).text();
}

GgufValue gguf_nested(const GgufValue& value, uint64_t i) {
  GgufValue out;
  out.key = value.key;
  at_element(value, i, GgufType::array).array(&out);
  return out;
}

std::string gguf_json(const GgufValue& v, uint64_t most) {
  if (v.type == GgufType::string) return quoted(gguf_text(v));
  if (v.type != GgufType::array) return number_text(v, 0);
  std::string out = "[";
  Walk walk(v.content, v.short_sizes);
  for (uint64_t i = 0; i < std::min(most, v.count); ++i) {
    if (i > 0) out += ", ";
    if (v.element == GgufType::string) {
      out += quoted(walk.text());
    } else if (v.element == GgufType::array) {
      GgufValue inner;
      walk.array(&inner);
      out += gguf_json(inner, most);
    } else {
      out += number_text(v, i);
    }
  }
  if (most < v.count) out += most > 0 ? ", ..." : "...";
  return out + "]";
}

}  // namespace tenon::core
