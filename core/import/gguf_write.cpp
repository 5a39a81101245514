// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files.
#include "import/gguf_write.hpp"

#include "base/error.hpp"

namespace tenon::core {
namespace {

constexpr uint64_t kAlignment = 32, kMostName = 65535;

template <class T>
void put(std::string& to, T number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void put_text(std::string& to, std::string_view text) {
  put<uint64_t>(to, text.size());
  to += text;
}

uint64_t padding(uint64_t size) { return (kAlignment - size % kAlignment) % kAlignment; }

}  // namespace

GgufWriter::GgufWriter(const std::string& path) : path_(path), file_(path) {}

void GgufWriter::check_open(std::string_view what) const {
  if (header_done_)
    fail(Code::invalid_argument, path_, ": ", what, " after the first content of a tensor");
}

void GgufWriter::key(std::string_view key, GgufType type) {
  check_open("a key");
  if (key.empty() || key.size() > kMostName)
    fail(Code::invalid_argument, path_, ": a key has ", key.size(), " bytes; expected 1 to ",
         kMostName);
  if (key == "general.alignment")
    fail(Code::invalid_argument, path_, ": key 'general.alignment': the writer sets it to 32");
  if (!key_names_.emplace(key).second)
    fail(Code::invalid_argument, path_, ": key '", key, "' is set twice");
  put_text(keys_, key);
  put(keys_, static_cast<uint32_t>(type));
}

void GgufWriter::set(std::string_view name, GgufType type, const void* numbers,
                     std::optional<uint64_t> count) {
  const uint64_t width = gguf_type_bytes(type), most = (uint64_t{1} << 40);
  if (width == 0)
    fail(Code::invalid_argument, path_, ": key '", name, "': type ", static_cast<uint32_t>(type),
         "; expected one of numbers or bool");
  if (count.value_or(1) > most)
    fail(Code::invalid_argument, path_, ": key '", name, "': ", *count, " elements");
  const auto* bytes = static_cast<const char*>(numbers);
  if (type == GgufType::boolean)
    for (uint64_t i = 0; i < count.value_or(1); ++i)
      if (static_cast<uint8_t>(bytes[i]) > 1)
        fail(Code::invalid_argument, path_, ": key '", name, "': a bool is ",
             static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])), "; expected 0 or 1");
  key(name, count ? GgufType::array : type);
  if (count) {
    put(keys_, static_cast<uint32_t>(type));
    put(keys_, *count);
  }
  keys_.append(bytes, count.value_or(1) * width);
}

void GgufWriter::set(std::string_view name, std::string_view text) {
  key(name, GgufType::string);
  put_text(keys_, text);
}

void GgufWriter::set(std::string_view name, std::span<const std::string_view> texts) {
  key(name, GgufType::array);
  put(keys_, static_cast<uint32_t>(GgufType::string));
  put<uint64_t>(keys_, texts.size());
  for (const std::string_view t : texts) put_text(keys_, t);
}

void GgufWriter::add(std::string_view name, const BlockFormat& format,
                     std::span<const int64_t> dims) {
  check_open("a tensor");
  if (name.empty() || name.size() > kMostName)
    fail(Code::invalid_argument, path_, ": the name of a tensor has ", name.size(),
         " bytes; expected 1 to ", kMostName);
  if (dims.size() > 4)
    fail(Code::unsupported, path_, ": tensor '", name, "': rank ", dims.size(),
         "; expected at most 4");
  int64_t elements = 1;
  for (const int64_t d : dims)
    if (d < 0 || __builtin_mul_overflow(elements, d, &elements))
      fail(Code::invalid_argument, path_, ": tensor '", name, "': dim ", d,
           " is negative, or the size overflows");
  const uint64_t row = dims.empty() ? 1 : static_cast<uint64_t>(dims.back());
  if (row % format.elements != 0)
    fail(Code::shape_mismatch, path_, ": tensor '", name, "': its rows have ", row,
         " elements; expected a multiple of ", format.elements, " for ", format.name);
  const uint64_t size = block_bytes(format, static_cast<uint64_t>(elements));
  if (size > static_cast<uint64_t>(INT64_MAX) / 2 - offset_)
    fail(Code::invalid_argument, path_, ": tensor '", name, "': the size of the file overflows");
  if (!tensor_names_.emplace(name).second)
    fail(Code::invalid_argument, path_, ": tensor '", name, "' is added twice");
  put_text(infos_, name);
  put(infos_, static_cast<uint32_t>(dims.size()));
  for (size_t i = dims.size(); i > 0; --i) put(infos_, static_cast<uint64_t>(dims[i - 1]));
  put(infos_, format.gguf_type);
  put(infos_, offset_);
  offset_ += size + padding(size);
  tensors_.push_back({std::string(name), size});
}

void GgufWriter::finish_header() {
  if (header_done_) return;
  header_done_ = true;
  std::string header = "GGUF";
  put(header, uint32_t{3});
  put<uint64_t>(header, tensors_.size());
  put<uint64_t>(header, key_names_.size());
  header += keys_;
  header += infos_;
  header.append(padding(header.size()), '\0');
  file_.write(header.data(), header.size());
  std::string().swap(keys_);
  std::string().swap(infos_);
}

// Pads tensors that are full.
void GgufWriter::pass_full() {
  while (current_ < tensors_.size() && written_ == tensors_[current_].size) {
    const std::string zeros(padding(written_), '\0');
    file_.write(zeros.data(), zeros.size());
    ++current_;
    written_ = 0;
  }
}

void GgufWriter::content(std::span<const std::byte> piece) {
  finish_header();
  pass_full();
  if (piece.empty()) return;
  if (current_ == tensors_.size())
    fail(Code::invalid_argument, path_, ": ", piece.size(), " bytes after the last tensor");
  const Tensor& t = tensors_[current_];
  if (piece.size() > t.size - written_)
    fail(Code::invalid_argument, path_, ": tensor '", t.name, "': ", piece.size(),
         " bytes of content; expected at most ", t.size - written_);
  file_.write(piece.data(), piece.size());
  written_ += piece.size();
}

void GgufWriter::commit() {
  finish_header();
  pass_full();
  if (current_ < tensors_.size())
    fail(Code::invalid_argument, path_, ": tensor '", tensors_[current_].name, "': ", written_,
         " bytes of content; expected ", tensors_[current_].size);
  file_.commit();
}

}  // namespace tenon::core
