// SPDX-License-Identifier: Apache-2.0
// Reads the directory of a ZIP archive and its members; writes archives.
#include "import/zip.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "base/error.hpp"

namespace tenon::core {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                   kEnd64 = 0x06064b50, kLocator = 0x07064b50;
constexpr size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56,
                 kLocatorSize = 20;
constexpr uint16_t kStored = 0, kDeflated = 8, kZip64 = 1;
constexpr uint16_t kUtf8Names = 1 << 11;
constexpr uint64_t kMostRatio = 1032;  // of deflate

template <class T>
T load(const std::string& bytes, size_t at) {
  T v;
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}

template <class T>
void append(std::string& to, T v) {
  to.append(reinterpret_cast<const char*>(&v), sizeof v);
}

std::string read_text(const FileReader& file, uint64_t offset, size_t size) {
  std::string text(size, '\0');
  file.read(offset, text.data(), text.size());
  return text;
}

// The sizes and the offset that do not fit in 32 bits are in an extra field, in this order.
void take_zip64(const std::string& extra, ZipMember& m) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const auto id = load<uint16_t>(extra, at), size = load<uint16_t>(extra, at + 2);
    at += 4;
    if (size > extra.size() - at) return;
    if (id == kZip64) {
      const size_t end = at + size;
      for (uint64_t* v : {&m.size, &m.packed, &m.offset})
        if (*v == UINT32_MAX && at + 8 <= end) {
          *v = load<uint64_t>(extra, at);
          at += 8;
        }
      return;
    }
    at += size;
  }
}

uint32_t checksum(std::span<const std::byte> bytes, uint32_t crc = 0) {
  if (bytes.empty()) return crc;  // zlib starts again where the address is null
  return static_cast<uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

struct Inflater {
  z_stream s{};
  Inflater() { check(::inflateInit2(&s, -MAX_WBITS) == Z_OK, "zlib: inflateInit2"); }
  ~Inflater() { ::inflateEnd(&s); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

struct Deflater {
  z_stream s{};
  Deflater() {
    check(::deflateInit2(&s, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8,
                         Z_DEFAULT_STRATEGY) == Z_OK,
          "zlib: deflateInit2");
  }
  ~Deflater() { ::deflateEnd(&s); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
};

constexpr size_t kPiece = 256 << 10;

// Returns false if the data is damaged or has another size.
bool inflate_into(const FileReader& file, uint64_t at, uint64_t packed, Bytes& out) {
  Inflater inflater;
  z_stream& s = inflater.s;
  std::string piece;
  uint64_t made = 0;
  Bytef none = 0;  // zlib wants a place also where nothing is left to write
  for (;;) {
    if (s.avail_in == 0 && packed > 0) {
      piece = read_text(file, at, static_cast<size_t>(std::min<uint64_t>(packed, kPiece)));
      at += piece.size();
      packed -= piece.size();
      s.next_in = reinterpret_cast<Bytef*>(piece.data());
      s.avail_in = static_cast<uInt>(piece.size());
    }
    const auto room = static_cast<uInt>(std::min<uint64_t>(out.size() - made, 1 << 30));
    s.next_out = room ? reinterpret_cast<Bytef*>(out.data() + made) : &none;
    s.avail_out = room;
    const uInt before = s.avail_in;
    const int result = ::inflate(&s, Z_NO_FLUSH);
    const uInt written = room - s.avail_out;
    made += written;
    if (result == Z_STREAM_END) return made == out.size() && s.avail_in == 0 && packed == 0;
    if (result != Z_OK && result != Z_BUF_ERROR) return false;
    if (written == 0 && s.avail_in == before && (before > 0 || packed == 0)) return false;
  }
}

std::string deflated(std::span<const std::span<const std::byte>> parts) {
  Deflater deflater;
  z_stream& s = deflater.s;
  std::string out, piece(kPiece, '\0');
  const auto run = [&](int flush) {
    do {
      s.next_out = reinterpret_cast<Bytef*>(piece.data());
      s.avail_out = static_cast<uInt>(piece.size());
      check(::deflate(&s, flush) != Z_STREAM_ERROR, "zlib: deflate");
      out.append(piece, 0, piece.size() - s.avail_out);
    } while (s.avail_out == 0);
  };
  for (std::span<const std::byte> part : parts)
    while (!part.empty()) {
      const auto some = part.first(std::min<size_t>(part.size(), 1 << 30));
      s.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(some.data()));
      s.avail_in = static_cast<uInt>(some.size());
      run(Z_NO_FLUSH);
      part = part.subspan(some.size());
    }
  run(Z_FINISH);
  return out;
}

}  // namespace

ZipReader::ZipReader(const std::string& path) : path_(path), file_(path) {
  read_directory(find_directory());
}

ZipReader::Directory ZipReader::find_directory() const {
  // At the end of the file, before a comment of at most 65535 bytes.
  const auto tail = std::min<uint64_t>(file_.size(), kEndSize + UINT16_MAX);
  const uint64_t tail_at = file_.size() - tail;
  const std::string text = read_text(file_, tail_at, static_cast<size_t>(tail));
  size_t at = text.size();
  bool found = false;
  while (!found && at-- > 0)
    found = text.size() - at >= kEndSize && load<uint32_t>(text, at) == kEnd &&
            load<uint16_t>(text, at + 20) == text.size() - at - kEndSize;
  if (!found) fail(Code::corrupt, path_, ": is no ZIP archive: it has no end of directory");
  Directory d{load<uint32_t>(text, at + 16), load<uint32_t>(text, at + 12),
              load<uint16_t>(text, at + 10)};
  if (load<uint16_t>(text, at + 4) != 0 && load<uint16_t>(text, at + 4) != UINT16_MAX)
    fail(Code::unsupported, path_, ": is one of several files of an archive");
  const uint64_t end = tail_at + at;
  const bool large = d.offset == UINT32_MAX || d.size == UINT32_MAX || d.count == UINT16_MAX;
  if (large && end >= kLocatorSize) {
    const std::string locator = read_text(file_, end - kLocatorSize, kLocatorSize);
    const auto end64 = load<uint64_t>(locator, 8);
    if (load<uint32_t>(locator, 0) == kLocator) {
      if (file_.size() < kEnd64Size || end64 > file_.size() - kEnd64Size)
        fail(Code::corrupt, path_, ": byte ", end - kLocatorSize,
             ": the ZIP64 directory is beyond the end of the file");
      const std::string record = read_text(file_, end64, kEnd64Size);
      if (load<uint32_t>(record, 0) != kEnd64)
        fail(Code::corrupt, path_, ": byte ", end64, ": expected the end of a ZIP64 directory");
      d = {load<uint64_t>(record, 48), load<uint64_t>(record, 40), load<uint64_t>(record, 32)};
    }
  }
  if (d.offset > end || d.size > end - d.offset || d.count > d.size / kCentralSize)
    fail(Code::corrupt, path_, ": the directory of ", d.size, " bytes at byte ", d.offset,
         " does not fit its ", d.count, " members and the file of ", file_.size(), " bytes");
  return d;
}

void ZipReader::read_directory(const Directory& d) {
  const std::string text = read_text(file_, d.offset, static_cast<size_t>(d.size));
  size_t at = 0;
  uint64_t taken = 0;
  std::set<std::string_view> names;
  members_.reserve(static_cast<size_t>(d.count));  // names refers to them
  for (uint64_t i = 0; i < d.count; ++i) {
    if (text.size() - at < kCentralSize || load<uint32_t>(text, at) != kCentral)
      fail(Code::corrupt, path_, ": byte ", d.offset + at, ": expected an entry of the directory");
    const auto flags = load<uint16_t>(text, at + 8), method = load<uint16_t>(text, at + 10);
    const size_t name = load<uint16_t>(text, at + 28), extra = load<uint16_t>(text, at + 30),
                 comment = load<uint16_t>(text, at + 32);
    if (name + extra + comment > text.size() - at - kCentralSize)
      fail(Code::corrupt, path_, ": byte ", d.offset + at, ": an entry leaves the directory");
    ZipMember m{.name = text.substr(at + kCentralSize, name),
                .offset = load<uint32_t>(text, at + 42),
                .packed = load<uint32_t>(text, at + 20),
                .size = load<uint32_t>(text, at + 24),
                .crc = load<uint32_t>(text, at + 16),
                .deflated = method == kDeflated};
    take_zip64(text.substr(at + kCentralSize + name, extra), m);
    at += kCentralSize + name + extra + comment;
    if (flags & 1) fail(Code::unsupported, path_, ": member '", m.name, "' is encrypted");
    if (method != kStored && method != kDeflated)
      fail(Code::unsupported, path_, ": member '", m.name, "': compression method ", method,
           " is not known; expected 0 (stored) or 8 (deflated)");
    if (m.packed > d.offset - std::min(taken, d.offset))
      fail(Code::corrupt, path_, ": member '", m.name, "': the members have more than the ",
           d.offset, " bytes before the directory");
    taken += m.packed;
    if (m.deflated ? m.size / kMostRatio > m.packed : m.size != m.packed)
      fail(Code::corrupt, path_, ": member '", m.name, "': ", m.packed, " bytes cannot give ",
           m.size);
    members_.push_back(std::move(m));
    if (!names.insert(members_.back().name).second)
      fail(Code::corrupt, path_, ": member '", members_.back().name, "' is there twice");
  }
}

Bytes ZipReader::content(const ZipMember& m) const {
  const auto bad = [&](std::string_view what) {
    fail(Code::corrupt, path_, ": member '", m.name, "': ", what);
  };
  const uint64_t size = file_.size();
  if (m.offset > size || size - m.offset < kLocalSize)
    bad("its header is beyond the end of the file");
  const std::string header = read_text(file_, m.offset, kLocalSize);
  if (load<uint32_t>(header, 0) != kLocal) bad("its header is damaged");
  const uint64_t data =
      m.offset + kLocalSize + load<uint16_t>(header, 26) + load<uint16_t>(header, 28);
  if (data > size || m.packed > size - data) bad("its content is beyond the end of the file");
  Bytes out(m.size);
  if (!m.deflated)
    file_.read(data, out.data(), out.size());
  else if (!inflate_into(file_, data, m.packed, out))
    bad("its compressed data is damaged");
  if (checksum(out) != m.crc) bad("its checksum is wrong");
  return out;
}

void ZipWriter::put(const std::string& bytes) {
  file_.write(bytes.data(), bytes.size());
  at_ += bytes.size();
}

namespace {

// What the local header and the directory have in common; the sizes are 32 bits wide there.
void append_entry(std::string& to, const ZipMember& m, bool large) {
  append<uint16_t>(to, large ? 45 : 20);  // version that is needed
  append<uint16_t>(to, kUtf8Names);
  append<uint16_t>(to, m.deflated ? kDeflated : kStored);
  append<uint16_t>(to, 0);       // time and date: the first of 1980, so that equal
  append<uint16_t>(to, 0x0021);  // tensors give equal files
  append<uint32_t>(to, m.crc);
  append<uint32_t>(to, large ? UINT32_MAX : static_cast<uint32_t>(m.packed));
  append<uint32_t>(to, large ? UINT32_MAX : static_cast<uint32_t>(m.size));
  append<uint16_t>(to, static_cast<uint16_t>(m.name.size()));
}

bool is_large(const ZipMember& m) {
  return m.size >= UINT32_MAX || m.packed >= UINT32_MAX || m.offset >= UINT32_MAX;
}

}  // namespace

void ZipWriter::add(const std::string& name, std::span<const std::span<const std::byte>> parts,
                    bool deflate) {
  if (name.empty() || name.size() > UINT16_MAX)
    fail(Code::invalid_argument, "a member of an archive has a name of 1 to 65535 bytes, got ",
         name.size());
  for (const ZipMember& m : members_)
    if (m.name == name) fail(Code::invalid_argument, "member '", name, "' is there twice");
  ZipMember m{.name = name, .offset = at_, .deflated = deflate};
  for (const auto part : parts) {
    m.size += part.size();
    m.crc = checksum(part, m.crc);
  }
  const std::string packed = deflate ? deflated(parts) : std::string();
  m.packed = deflate ? packed.size() : m.size;
  std::string header;
  append(header, kLocal);
  append_entry(header, m, is_large(m));
  append<uint16_t>(header, is_large(m) ? 20 : 0);
  header += name;
  if (is_large(m)) {
    append(header, kZip64);
    append<uint16_t>(header, 16);
    append(header, m.size);
    append(header, m.packed);
  }
  put(header);
  if (deflate) {
    put(packed);
  } else {
    for (const auto part : parts) file_.write(part.data(), part.size());
    at_ += m.size;
  }
  members_.push_back(std::move(m));
}

void ZipWriter::commit() {
  const uint64_t begin = at_;
  std::string text;
  for (const ZipMember& m : members_) {
    const bool large = is_large(m);
    append(text, kCentral);
    append<uint16_t>(text, large ? 45 : 20);  // version that made it
    append_entry(text, m, large);
    append<uint16_t>(text, large ? 28 : 0);
    text.append(10, '\0');  // comment, disk, attributes
    append<uint32_t>(text, large ? UINT32_MAX : static_cast<uint32_t>(m.offset));
    text += m.name;
    if (!large) continue;
    append(text, kZip64);
    append<uint16_t>(text, 24);
    append(text, m.size);
    append(text, m.packed);
    append(text, m.offset);
  }
  const uint64_t size = text.size(), count = members_.size();
  const bool large = begin >= UINT32_MAX || size >= UINT32_MAX || count >= UINT16_MAX;
  if (large) {
    append(text, kEnd64);
    append<uint64_t>(text, kEnd64Size - 12);
    append<uint16_t>(text, 45);
    append<uint16_t>(text, 45);
    append<uint64_t>(text, 0);  // disks
    append(text, count);
    append(text, count);
    append(text, size);
    append(text, begin);
    append(text, kLocator);
    append<uint32_t>(text, 0);
    append<uint64_t>(text, begin + size);
    append<uint32_t>(text, 1);
  }
  append(text, kEnd);
  append<uint32_t>(text, 0);  // disks
  for (int i = 0; i < 2; ++i)
    append<uint16_t>(text, large ? UINT16_MAX : static_cast<uint16_t>(count));
  append<uint32_t>(text, large ? UINT32_MAX : static_cast<uint32_t>(size));
  append<uint32_t>(text, large ? UINT32_MAX : static_cast<uint32_t>(begin));
  append<uint16_t>(text, 0);  // comment
  put(text);
  file_.commit();
}

}  // namespace tenon::core
