// SPDX-License-Identifier: Apache-2.0
// The header of .npy files, the order of their elements, and archives of them.
#include "import/npy.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <functional>
#include <optional>

#include "base/error.hpp"
#include "base/file.hpp"
#include "import/zip.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kMostHeader = 1 << 16;

struct Kind {
  DType dtype;
  std::string_view text;  // without the byte order
  size_t part;            // bytes that big-endian files swap
};
constexpr Kind kKinds[] = {{kBool, "b1", 1},
                           {kI8, "i1", 1},
                           {kI16, "i2", 2},
                           {kI32, "i4", 4},
                           {kI64, "i8", 8},
                           {kU8, "u1", 1},
                           {kU16, "u2", 2},
                           {kU32, "u4", 4},
                           {kU64, "u8", 8},
                           {kF16, "f2", 2},
                           {kF32, "f4", 4},
                           {kF64, "f8", 8},
                           {TENON_DTYPE_C64, "c8", 4},
                           {TENON_DTYPE_C128, "c16", 8}};

struct Header {
  const Kind* kind = nullptr;
  Type type{};
  bool swapped = false, fortran = false;
};

// The header is a literal of Python: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser {
 public:
  HeaderParser(const std::string& who, std::string_view text) : who_(who), text_(text) {}

  Header parse() {
    Header h;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = word();
      expect(':');
      bool* const seen = key == "descr"           ? &descr
                         : key == "fortran_order" ? &order
                         : key == "shape"         ? &shape
                                                  : nullptr;
      if (!seen) bad(cat("key '", key, "' is not known"));
      if (std::exchange(*seen, true)) bad(cat("key '", key, "' is there twice"));
      if (seen == &descr) take_descr(h);
      if (seen == &order) h.fortran = truth();
      if (seen == &shape) take_shape(h);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) bad("there is more behind it");
    if (!descr || !order || !shape) bad("expected descr, fortran_order and shape");
    h.type.dtype = h.kind->dtype;
    return h;
  }

 private:
  [[noreturn]] void bad(std::string_view what) const {
    fail(Code::corrupt, who_, ": the header is damaged at its byte ", at_, ": ", what);
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) bad(cat("expected '", c, "'"));
  }
  std::string_view word() {
    const char quote = accept('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const size_t end = text_.find(quote, at_);
    if (end == text_.npos) bad("a string has no end");
    const std::string_view w = text_.substr(at_, end - at_);
    at_ = end + 1;
    return w;
  }
  bool truth() {
    skip_space();
    for (const bool value : {false, true}) {
      const std::string_view name = value ? "True" : "False";
      if (!text_.substr(at_).starts_with(name)) continue;
      at_ += name.size();
      return value;
    }
    bad("expected True or False");
  }
  void take_descr(Header& h) {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[')
      fail(Code::unsupported, who_, ": is an array of structs; expected numbers");
    const std::string_view descr = word();
    const char order = descr.empty() ? '\0' : descr[0];
    if (order == '<' || order == '>' || order == '|' || order == '=')
      for (const Kind& k : kKinds)
        if (k.text == descr.substr(1)) h.kind = &k;
    if (!h.kind)
      fail(
          Code::unsupported, who_, ": dtype '", descr,
          "': expected bool, an integer, f2, f4, f8, c8 or c16",
          descr.size() > 1 && descr[1] == 'V' ? "; hint: save bfloat16 and float8 as float32" : "");
    h.swapped = order == '>';
  }
  void take_shape(Header& h) {
    expect('(');
    while (!accept(')')) {
      skip_space();
      int64_t dim = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0) bad("expected a dim, 0 or more");
      at_ = static_cast<size_t>(end - text_.data());
      accept('L');  // of Python 2
      if (h.type.shape.rank() == TENON_MAX_RANK)
        fail(Code::unsupported, who_, ": has more than ", TENON_MAX_RANK, " dims");
      h.type.shape.push(dim);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }

  const std::string& who_;
  std::string_view text_;
  size_t at_ = 0;
};

// A .npy file: a whole file, or a member of an archive.
struct Source {
  std::string who;
  uint64_t size;
  std::function<void(uint64_t offset, void* out, size_t size)> read;
  Bytes* whole = nullptr;  // the file in memory, from which the content is taken
};

void swap_parts(Bytes& bytes, size_t part) {
  if (part < 2) return;
  for (size_t at = 0; at + part <= bytes.size(); at += part)
    std::reverse(bytes.begin() + static_cast<ptrdiff_t>(at),
                 bytes.begin() + static_cast<ptrdiff_t>(at + part));
}

// From Fortran's order, where the first axis is the fastest, to row-major.
Bytes transposed(const Shape& shape, size_t each, const Bytes& from) {
  Bytes out(from.size());
  const int rank = shape.rank();
  std::array<size_t, TENON_MAX_RANK> stride{}, index{};
  size_t step = each;
  for (int i = 0; i < rank; ++i) {
    stride[static_cast<size_t>(i)] = step;
    step *= static_cast<size_t>(shape[i]);
  }
  size_t at = 0;
  for (size_t to = 0; to < out.size(); to += each) {
    std::memcpy(out.data() + to, from.data() + at, each);
    for (int k = rank - 1; k >= 0; --k) {
      const auto axis = static_cast<size_t>(k);
      at += stride[axis];
      if (++index[axis] < static_cast<size_t>(shape[k])) break;
      at -= index[axis] * stride[axis];
      index[axis] = 0;
    }
  }
  return out;
}

NamedTensor read(const Source& s) {
  std::array<char, 12> begin{};
  if (s.size < 10) fail(Code::corrupt, s.who, ": is no .npy file: it has ", s.size, " bytes");
  s.read(0, begin.data(), 10);
  if (std::string_view(begin.data(), 6) != kMagic)
    fail(Code::corrupt, s.who, ": is no .npy file: it does not begin with its mark");
  const auto version = static_cast<unsigned char>(begin[6]);
  if (version < 1 || version > 3)
    fail(Code::unsupported, s.who, ": version ", unsigned{version},
         " of the format is not known; expected 1 to 3");
  const size_t prefix = version == 1 ? 10 : 12;
  uint32_t size = 0;
  if (s.size < prefix) fail(Code::corrupt, s.who, ": ends within its header");
  s.read(8, &size, prefix - 8);
  if (size > kMostHeader || size > s.size - prefix)
    fail(Code::corrupt, s.who, ": the header of ", size, " bytes does not fit; expected at most ",
         std::min<uint64_t>(kMostHeader, s.size - prefix));
  std::string text(size, '\0');
  s.read(prefix, text.data(), text.size());
  const Header h = HeaderParser(s.who, text).parse();

  NamedTensor t{.type = h.type};
  uint64_t expected = 0;
  try {
    expected = type_bytes(t.type);
  } catch (const Error& e) {
    fail(Code::corrupt, s.who, ": ", e.what());
  }
  const uint64_t data = prefix + size;
  if (s.size - data != expected)
    fail(Code::corrupt, s.who, ": ", t.type.text(), " has ", expected, " bytes, the file has ",
         s.size - data);
  if (s.whole) {
    t.content = std::move(*s.whole);
    t.content.erase(t.content.begin(), t.content.begin() + static_cast<ptrdiff_t>(data));
  } else {
    t.content.resize(expected);
    s.read(data, t.content.data(), t.content.size());
  }
  if (h.swapped) swap_parts(t.content, h.kind->part);
  if (h.fortran && t.type.shape.rank() > 1)
    t.content = transposed(t.type.shape, tenon_dtype_bits(t.type.dtype) / 8, t.content);
  if (t.type.dtype == kBool)
    for (std::byte& b : t.content) b = std::byte{b != std::byte{0}};
  return t;
}

std::string header_of(const TensorView& t) {
  const auto kind =
      std::ranges::find_if(kKinds, [&](const Kind& k) { return k.dtype == t.type.dtype; });
  if (kind == std::end(kKinds))
    fail(Code::unsupported, "tensor '", t.name, "': NumPy has no dtype for ",
         dtype_name(t.type.dtype), "; hint: convert it to f32");
  check(t.content.size() == type_bytes(t.type), "tensor '", t.name, "': its content has ",
        t.content.size(), " bytes");
  std::string text = cat("{'descr': '", kind->part == 1 ? '|' : '<', kind->text,
                         "', 'fortran_order': False, 'shape': (");
  for (int i = 0; i < t.type.shape.rank(); ++i)
    text += cat(i ? ", " : "", t.type.shape[i], t.type.shape.rank() == 1 ? "," : "");
  text += "), }";
  constexpr size_t kPrefix = 10, kAligned = 64;
  text.append(kAligned - 1 - (kPrefix + text.size()) % kAligned, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\1';
  header += '\0';
  const auto size = static_cast<uint16_t>(text.size());
  header.append(reinterpret_cast<const char*>(&size), sizeof size);
  return header + text;
}

}  // namespace

NamedTensor read_npy(const std::string& path) {
  const FileReader file(path);
  return read({path, file.size(),
               [&](uint64_t offset, void* out, size_t size) { file.read(offset, out, size); }});
}

std::vector<NamedTensor> read_npz(const std::string& path) {
  constexpr std::string_view kEnd = ".npy";
  const ZipReader archive(path);
  std::vector<NamedTensor> out;
  for (const ZipMember& m : archive.members()) {
    if (!m.name.ends_with(kEnd))
      fail(Code::unsupported, path, ": member '", m.name, "' is no array; expected NAME.npy");
    Bytes bytes = archive.content(m);
    out.push_back(read({cat(path, ": member '", m.name, "'"), bytes.size(),
                        [&](uint64_t offset, void* to, size_t size) {
                          if (size > 0) std::memcpy(to, bytes.data() + offset, size);
                        },
                        &bytes}));
    out.back().name = m.name.substr(0, m.name.size() - kEnd.size());
  }
  return out;
}

void write_npy(const std::string& path, const TensorView& t) {
  const std::string header = header_of(t);
  FileWriter out(path);
  out.write(header.data(), header.size());
  out.write(t.content.data(), t.content.size());
  out.commit();
}

void write_npz(const std::string& path, std::span<const TensorView> tensors, bool deflate) {
  ZipWriter out(path);
  for (const TensorView& t : tensors) {
    const std::string header = header_of(t);
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(header)), t.content};
    out.add(std::string(t.name) + ".npy", parts, deflate);
  }
  out.commit();
}

}  // namespace tenon::core
