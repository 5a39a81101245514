// SPDX-License-Identifier: Apache-2.0
// Reads varints, numbers, strings and nested messages; checks each length against the message that
// it is in.
#include "import/onnx/wire.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tenon::core::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

constexpr size_t kWindow = 64 << 10;

const char* wire_name(WireType wire) {
  switch (wire) {
    case WireType::varint:
      return "varint";
    case WireType::fixed64:
      return "64-bit";
    case WireType::bytes:
      return "length-delimited";
    case WireType::fixed32:
      return "32-bit";
  }
  return "unknown";
}

}  // namespace

Input::Input(const std::string& path) : name_(path), file_(std::in_place, path) {
  const size_t slash = path.rfind('/');
  folder_ = slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

Input::Input(std::string bytes, std::string folder)
    : name_("model in memory"), folder_(std::move(folder)), bytes_(std::move(bytes)) {}

void Input::read(uint64_t offset, void* out, size_t size) const {
  if (offset > this->size() || size > this->size() - offset)
    fail(Code::corrupt, name_, ": bytes ", offset, " to ", offset + size,
         " lie beyond the end; expected at most ", this->size());
  if (file_)
    file_->read(offset, out, size);
  else if (size > 0)
    std::memcpy(out, bytes_.data() + offset, size);
}

void Cursor::fill() {
  window_.clear();  // stays empty if reading fails
  std::string window(std::min<uint64_t>(kWindow, input_->size() - std::min(at_, input_->size())),
                     '\0');
  check(!window.empty(), input_->name(), ": the reader went beyond the end");
  input_->read(at_, window.data(), window.size());
  window_ = std::move(window);
  window_at_ = at_;
}

void Cursor::read(void* out, size_t size) {
  if (size == 0) return;
  if (at_ >= window_at_ && at_ - window_at_ <= window_.size() &&
      size <= window_.size() - (at_ - window_at_)) {
    std::memcpy(out, window_.data() + (at_ - window_at_), size);
  } else if (size < kWindow / 4) {
    fill();
    if (size > window_.size())
      fail(Code::corrupt, input_->name(), ": byte ", at_, ": the file ends before ", size,
           " bytes");
    std::memcpy(out, window_.data(), size);
  } else {
    input_->read(at_, out, size);
  }
  at_ += size;
}

std::string Message::where() const {
  std::string path;
  for (const Message* m = this; m->up_; m = m->up_) {
    std::string part = m->name_;
    if (m->index_ >= 0) part += cat('[', m->index_, ']');
    path = path.empty() ? part : cat(part, '.', path);
  }
  const std::string& name = in_.input()->name();
  return path.empty() ? name : cat(name, ": ", path);
}

void Message::expect(const char* name, WireType wire) const {
  if (wire_ != wire)
    corrupt("field ", name, ": wrong wire type; expected ", wire_name(wire), ", got ",
            wire_name(wire_));
}

uint64_t Message::raw_varint(const char* name) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (in_.at() >= end_)
      fail_at(in_.at(), Code::corrupt, "field ", name, ": the message ends within a varint");
    const uint8_t byte = in_.byte();
    if (shift == 63 && byte > 1) break;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail_at(in_.at(), Code::corrupt, "field ", name, ": a varint has more than 64 bits");
}

bool Message::next() {
  if (in_.at() == end_) return false;
  tag_at_ = in_.at();
  const uint64_t tag = raw_varint("tag");
  const uint64_t wire = tag & 7;
  if (tag > UINT32_MAX || tag >> 3 == 0)
    corrupt("field number ", tag >> 3, " is not valid; expected 1 to 536870911");
  if (wire != 0 && wire != 1 && wire != 2 && wire != 5)
    corrupt("field ", tag >> 3, ": wire type ", wire, " is not known; expected 0, 1, 2 or 5");
  field_ = static_cast<uint32_t>(tag >> 3);
  wire_ = static_cast<WireType>(wire);
  return true;
}

void Message::raw(const char* name, void* out, size_t size) {
  if (size > end_ - in_.at())
    fail_at(in_.at(), Code::corrupt, "field ", name, ": the message ends within it; expected ",
            size, " bytes, got ", end_ - in_.at());
  in_.read(out, size);
}

uint64_t Message::length(const char* name) {
  const uint64_t size = raw_varint(name);
  if (size > end_ - in_.at())
    corrupt("field ", name, ": its length leaves the message; expected at most ", end_ - in_.at(),
            " bytes, got ", size);
  return size;
}

uint64_t Message::varint(const char* name) {
  expect(name, WireType::varint);
  return raw_varint(name);
}

int32_t Message::int32(const char* name) {
  const int64_t v = integer(name);
  if (v < INT32_MIN || v > INT32_MAX) corrupt("field ", name, ": ", v, " does not fit in 32 bits");
  return static_cast<int32_t>(v);
}

uint32_t Message::fixed32(const char* name) {
  expect(name, WireType::fixed32);
  uint32_t v;
  raw(name, &v, sizeof v);
  return v;
}

uint64_t Message::fixed64(const char* name) {
  expect(name, WireType::fixed64);
  uint64_t v;
  raw(name, &v, sizeof v);
  return v;
}

float Message::real(const char* name) { return std::bit_cast<float>(fixed32(name)); }

std::string Message::bytes(const char* name) {
  expect(name, WireType::bytes);
  std::string text(length(name), '\0');
  in_.read(text.data(), text.size());
  return text;
}

std::string Message::text(const char* name) {
  std::string text = bytes(name);
  if (text.find('\0') != std::string::npos) corrupt("field ", name, ": the text has a zero byte");
  return text;
}

uint64_t Message::range(const char* name) {
  expect(name, WireType::bytes);
  const uint64_t size = length(name);
  in_.move_to(in_.at() + size);
  return size;
}

Message Message::message(const char* name, int64_t index) {
  expect(name, WireType::bytes);
  const uint64_t size = length(name);
  return Message(*this, in_.at() + size, name, index);
}

void Message::skip() {
  const std::string name = std::to_string(field_);
  switch (wire_) {
    case WireType::varint:
      raw_varint(name.c_str());
      return;
    case WireType::fixed64:
      fixed64(name.c_str());
      return;
    case WireType::fixed32:
      fixed32(name.c_str());
      return;
    case WireType::bytes:
      range(name.c_str());
      return;
  }
}

}  // namespace tenon::core::onnx
