// SPDX-License-Identifier: Apache-2.0
// Parses one GGUF file: header, metadata, descriptions of tensors.
#include "import/gguf_part.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.hpp"

namespace tenon::core {
namespace {

constexpr uint64_t kMostKeys = 1 << 16, kMostTensors = 1 << 18;  // bounds of the memory for tables
constexpr uint64_t kMostName = 65535;
constexpr int kMostNesting = 4;
constexpr uint64_t kMarkStep = 64;

class Parser {
 public:
  Parser(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  GgufPart parse() {
    GgufPart part;
    header(part);
    const uint64_t tensor_count = size("the number of tensors");
    const uint64_t key_count = size("the number of keys");
    // A key takes a length, one byte, a type and one byte; a tensor two lengths, a byte, a type.
    need_room(key_count, size_bytes() + 6, "keys");
    if (key_count > kMostKeys) unsupported(key_count, "keys", kMostKeys);
    part.values.reserve(key_count);
    for (uint64_t i = 0; i < key_count; ++i) part.values.push_back(key_and_value());
    where_.clear();
    need_room(tensor_count, size_bytes() + 17, "tensors");
    if (tensor_count > kMostTensors) unsupported(tensor_count, "tensors", kMostTensors);
    part.tensors.reserve(tensor_count);
    for (uint64_t i = 0; i < tensor_count; ++i) part.tensors.push_back(tensor());
    where_.clear();
    place(part);
    return part;
  }

 private:
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(Code::corrupt, path_, ": byte ", at_, ": ", where_, parts...);
  }
  [[noreturn]] void unsupported(uint64_t count, std::string_view what, uint64_t most) const {
    fail(Code::unsupported, path_, ": byte ", at_, ": ", count, " ", what, "; expected at most ",
         most);
  }
  uint64_t left() const { return bytes_.size() - at_; }
  uint64_t size_bytes() const { return short_sizes_ ? 4 : 8; }

  void need_room(uint64_t count, uint64_t least, std::string_view what) const {
    if (count > left() / least)
      bad(count, " ", what, " do not fit the ", left(), " bytes behind it");
  }

  template <class T>
  T number(std::string_view what) {
    if (left() < sizeof(T)) bad("the file ends before ", what);
    T v;
    std::memcpy(&v, bytes_.data() + at_, sizeof v);
    at_ += sizeof v;
    return v;
  }
  uint64_t size(std::string_view what) {
    return short_sizes_ ? number<uint32_t>(what) : number<uint64_t>(what);
  }
  std::string_view text(std::string_view what) {
    const uint64_t count = size(what);
    if (count > left()) bad(what, " of ", count, " bytes does not fit the ", left(), " bytes left");
    const std::string_view out(reinterpret_cast<const char*>(bytes_.data()) + at_, count);
    at_ += count;
    return out;
  }
  std::string_view name(std::string_view what) {
    const uint64_t begin = at_;
    const std::string_view out = text(what);
    if (out.empty() || out.size() > kMostName) {
      at_ = begin;
      bad(what, " has ", out.size(), " bytes; expected 1 to ", kMostName);
    }
    return out;
  }

  void header(GgufPart& part) {
    if (bytes_.size() < 8 || std::memcmp(bytes_.data(), "GGUF", 4) != 0)
      bad("is no GGUF file: expected it to begin with 'GGUF'");
    at_ = 4;
    part.version = number<uint32_t>("the version");
    if (part.version != 0 && (part.version & 0xFFFF) == 0)
      fail(Code::unsupported, path_, ": is a big-endian file; expected a little-endian one");
    if (part.version < 1 || part.version > 3)
      fail(Code::unsupported, path_, ": GGUF version ", part.version, "; expected 1 to 3");
    short_sizes_ = part.version == 1;
  }

  GgufValue key_and_value() {
    where_.clear();
    GgufValue v;
    v.key = name("a key");
    where_ = cat("key '", v.key, "': ");
    v.type = type();
    v.short_sizes = short_sizes_;
    content(v, 0);
    return v;
  }
  GgufType type() {
    const auto t = static_cast<GgufType>(number<uint32_t>("the type"));
    if (gguf_type_name(t).empty()) bad("type ", static_cast<uint32_t>(t), " is not known");
    return t;
  }
  // Reads what follows a type.
  void content(GgufValue& v, int depth) {
    v.element = v.type;
    if (v.type == GgufType::array) {
      if (depth == kMostNesting) bad("arrays in more than ", kMostNesting, " arrays");
      v.element = type();
      v.count = size("the length of the array");
    }
    const uint64_t begin = at_, width = gguf_type_bytes(v.element);
    if (width > 0) {
      if (v.type != GgufType::array && left() < width) bad("the file ends before the value");
      need_room(v.count, width, "elements");
      at_ += v.count * width;
    } else {
      need_room(v.count, v.element == GgufType::string ? size_bytes() : 4 + size_bytes(),
                "elements");
      for (uint64_t i = 0; i < v.count; ++i) {
        if (i % kMarkStep == 0 && i > 0 && depth == 0) mark(v, begin);
        if (v.element == GgufType::string) {
          text("a string");
        } else {
          GgufValue inner;
          inner.type = GgufType::array;
          content(inner, depth + 1);
        }
      }
    }
    v.content = bytes_.subspan(begin, at_ - begin);
    if (v.element != GgufType::boolean) return;
    for (size_t i = 0; i < v.content.size(); ++i)
      if (static_cast<uint8_t>(v.content[i]) > 1) {
        at_ = begin + i;
        bad("a bool is ", static_cast<uint32_t>(v.content[i]), "; expected 0 or 1");
      }
  }
  void mark(GgufValue& v, uint64_t begin) {
    if (at_ - begin > std::numeric_limits<uint32_t>::max())
      fail(Code::unsupported, path_, ": byte ", at_, ": ", where_,
           "strings of more than 4 GiB in one array");
    v.marks.push_back(static_cast<uint32_t>(at_ - begin));
  }

  GgufTensor tensor() {
    where_.clear();
    GgufTensor t;
    t.name = name("the name of a tensor");
    where_ = cat("tensor '", t.name, "': ");
    t.rank = number<uint32_t>("the rank");
    if (t.rank > t.dims.size()) bad("rank ", t.rank, "; expected at most 4");
    int64_t elements = 1;
    bool empty = false;
    for (uint32_t i = 0; i < t.rank; ++i) {
      const uint64_t d = size("a dim");
      if (d > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        bad("dim ", d, " overflows");
      t.dims[t.rank - 1 - i] = static_cast<int64_t>(d);
      if (d == 0)
        empty = true;
      else if (__builtin_mul_overflow(elements, static_cast<int64_t>(d), &elements))
        bad("the product of its dims overflows");
    }
    if (empty) elements = 0;
    t.type = number<uint32_t>("the type");
    t.format = block_format(t.type);
    t.begin = number<uint64_t>("the offset");
    if (!t.format) return t;
    const uint64_t row = t.rank == 0 ? 1 : static_cast<uint64_t>(t.dims[t.rank - 1]);
    if (row % t.format->elements != 0)
      bad("its rows have ", row, " elements; expected a multiple of ", t.format->elements, " for ",
          t.format->name);
    const uint64_t blocks = static_cast<uint64_t>(elements) / t.format->elements;
    if (blocks > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / t.format->bytes)
      bad("its size overflows");
    t.size = blocks * t.format->bytes;
    return t;
  }

  uint64_t alignment(const GgufPart& part) {
    for (const GgufValue& v : part.values) {
      if (v.key != "general.alignment") continue;
      if (v.type != GgufType::u32)
        bad("general.alignment is of type ", gguf_type_name(v.type), "; expected u32");
      uint32_t a = 0;
      std::memcpy(&a, v.content.data(), sizeof a);
      if (!std::has_single_bit(a)) bad("general.alignment is ", a, "; expected a power of two");
      return a;
    }
    return 32;
  }

  // Turns offsets into places of the file, and checks them.
  void place(GgufPart& part) {
    const uint64_t unit = alignment(part), start = (at_ + unit - 1) & ~(unit - 1);
    std::vector<const GgufTensor*> by_place;
    by_place.reserve(part.tensors.size());
    for (GgufTensor& t : part.tensors) {
      if (t.begin % unit != 0)
        bad("tensor '", t.name, "': offset ", t.begin, " is no multiple of the alignment ", unit);
      if (start > bytes_.size() || t.begin > bytes_.size() - start ||
          t.size > bytes_.size() - start - t.begin)
        bad("tensor '", t.name, "': ", t.size, " bytes at offset ", t.begin,
            " leave the file, whose data begins at byte ", start, " of ", bytes_.size());
      t.begin += start;
      if (t.size > 0) by_place.push_back(&t);
    }
    std::ranges::sort(by_place, {}, [](const GgufTensor* t) { return t->begin; });
    for (size_t i = 1; i < by_place.size(); ++i) {
      const GgufTensor &a = *by_place[i - 1], &b = *by_place[i];
      if (b.begin >= a.begin + a.size) continue;
      at_ = b.begin;
      bad("tensors '", a.name, "' and '", b.name, "' overlap");
    }
  }

  const std::string& path_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  bool short_sizes_ = false;
  std::string where_;  // "key 'x': "
};

}  // namespace

GgufPart parse_gguf(const std::string& path, std::span<const std::byte> bytes) {
  return Parser(path, bytes).parse();
}

}  // namespace tenon::core
