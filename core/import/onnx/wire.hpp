// SPDX-License-Identifier: Apache-2.0
// The wire format of protocol buffers, read in pieces: a large field is skipped, not loaded. Each
// error names the file, the path of fields and the byte.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"

namespace tenon::core::onnx {

// A file, or bytes in memory, at which tensors point.
class Input {
 public:
  explicit Input(const std::string& path);       // external data: in the folder of path
  Input(std::string bytes, std::string folder);  // empty folder: no external data
  uint64_t size() const { return file_ ? file_->size() : bytes_.size(); }
  void read(uint64_t offset, void* out, size_t size) const;
  const std::string& name() const { return name_; }  // for messages
  const std::string& folder() const { return folder_; }

 private:
  std::string name_, folder_;
  std::optional<FileReader> file_;
  std::string bytes_;
};

// A position in an input, with the bytes around it.
class Cursor {
 public:
  explicit Cursor(std::shared_ptr<const Input> input) : input_(std::move(input)) {}
  uint64_t at() const { return at_; }
  void move_to(uint64_t at) { at_ = at; }
  uint8_t byte() {  // only below the size of the input
    if (at_ - window_at_ >= window_.size()) fill();
    return static_cast<uint8_t>(window_[at_++ - window_at_]);
  }
  void read(void* out, size_t size);
  const std::shared_ptr<const Input>& input() const { return input_; }

 private:
  void fill();

  std::shared_ptr<const Input> input_;
  uint64_t at_ = 0, window_at_ = 0;
  std::string window_;
};

enum class WireType : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

// One message. next() goes to a field, whose value must be taken or skipped before the following
// next(). A message that is taken must be read to its end first.
class Message {
 public:
  explicit Message(Cursor& cursor) : Message(cursor, 0, cursor.input()->size()) {}
  Message(Cursor& cursor, uint64_t begin, uint64_t end) : in_(cursor), end_(end) {
    in_.move_to(begin);
  }

  bool next();
  uint32_t field() const { return field_; }
  WireType wire() const { return wire_; }
  uint64_t at() const { return in_.at(); }
  uint64_t end() const { return end_; }
  Cursor& cursor() const { return in_; }

  // `name` is the name of the field; errors have it. index: the position in a repeated field.
  uint64_t varint(const char* name);
  int64_t integer(const char* name) { return static_cast<int64_t>(varint(name)); }
  int32_t int32(const char* name);
  uint32_t fixed32(const char* name);
  uint64_t fixed64(const char* name);
  float real(const char* name);
  std::string bytes(const char* name);
  std::string text(const char* name);  // bytes without a zero byte: names are C strings in the API
  Message message(const char* name, int64_t index = -1);
  uint64_t range(const char* name);  // skips bytes; returns their number; at() is their end
  void skip();

  // The entries of a repeated number, which may be packed or not.
  template <class Take>
  void varints(const char* name, const Take& take);
  template <class Take>
  void fixed32s(const char* name, const Take& take);
  template <class Take>
  void fixed64s(const char* name, const Take& take);

  // `at`: the byte that the message names.
  template <class... Parts>
  [[noreturn]] void fail_at(uint64_t at, Code code, const Parts&... parts) const {
    fail(code, where(), ": byte ", at, ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail_at(tag_at_, Code::corrupt, parts...);
  }
  std::string where() const;  // "model.onnx: graph.node[3]"

 private:
  Message(const Message& up, uint64_t end, const char* name, int64_t index)
      : in_(up.in_), end_(end), tag_at_(up.tag_at_), up_(&up), name_(name), index_(index) {}
  void expect(const char* name, WireType wire) const;
  uint64_t raw_varint(const char* name);
  uint64_t length(const char* name);
  void raw(const char* name, void* out, size_t size);
  template <class One>
  void packed(const char* name, WireType one, const One& take_one);

  Cursor& in_;
  uint64_t end_;
  uint64_t tag_at_ = 0;
  uint32_t field_ = 0;
  WireType wire_ = WireType::varint;
  const Message* up_ = nullptr;
  const char* name_ = "";
  int64_t index_ = -1;
};

template <class One>
void Message::packed(const char* name, WireType one, const One& take_one) {
  if (wire_ != WireType::bytes) {
    expect(name, one);
    take_one();
    return;
  }
  const uint64_t size = length(name), end = in_.at() + size, outer = end_;
  end_ = end;  // an entry that crosses the end of the list is refused
  while (in_.at() < end) take_one();
  end_ = outer;
}

template <class Take>
void Message::varints(const char* name, const Take& take) {
  packed(name, WireType::varint, [&] { take(raw_varint(name)); });
}

template <class Take>
void Message::fixed32s(const char* name, const Take& take) {
  packed(name, WireType::fixed32, [&] {
    uint32_t v;
    raw(name, &v, sizeof v);
    take(v);
  });
}

template <class Take>
void Message::fixed64s(const char* name, const Take& take) {
  packed(name, WireType::fixed64, [&] {
    uint64_t v;
    raw(name, &v, sizeof v);
    take(v);
  });
}

}  // namespace tenon::core::onnx
