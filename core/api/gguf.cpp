// SPDX-License-Identifier: Apache-2.0
// C functions for GGUF files.
#include "import/gguf.hpp"
#include "api/door.hpp"
#include "base/blocks.hpp"
#include "import/gguf_write.hpp"
#include "tenon/tenon_gguf.h"

using namespace tenon::core;

struct tenon_gguf {
  GgufFile file;
};
struct tenon_gguf_writer {
  GgufWriter writer;
};

namespace {

tenon_dtype plain_dtype(const BlockFormat& f) { return f.plain() ? f.dtype : TENON_DTYPE_NONE; }

tenon_gguf_format to_c(const BlockFormat& f) {
  tenon_gguf_format out{};
  out.name = c_str(f.name);
  out.type = f.gguf_type;
  out.elements = f.elements;
  out.bytes = f.bytes;
  out.dtype = plain_dtype(f);
  out.decodes = f.decodes();
  out.encodes = f.encodes();
  return out;
}

const BlockFormat& format_of(uint32_t type) {
  const BlockFormat* f = block_format(type);
  if (!f) fail(Code::not_found, "type ", type, " is not known");
  return *f;
}

const GgufValue& key_of(const tenon_gguf* gguf, uint32_t key) {
  const auto& values = need(gguf, "gguf").file.values();
  if (key >= values.size()) fail(Code::not_found, "key ", key, ": there are ", values.size());
  return values[key];
}

const GgufTensor& tensor_of(const tenon_gguf* gguf, uint32_t tensor) {
  const auto& tensors = need(gguf, "gguf").file.tensors();
  if (tensor >= tensors.size())
    fail(Code::not_found, "tensor ", tensor, ": there are ", tensors.size());
  return tensors[tensor];
}

template <class T>
uint32_t index_in(const std::vector<T>& list, const T* element) {
  return element ? static_cast<uint32_t>(element - list.data()) : TENON_NONE;
}

void check_room(uint64_t size, uint64_t expected) {
  if (size != expected)
    fail(Code::invalid_argument, "target_size: expected ", expected, " bytes, got ", size);
}

GgufType number_type(uint32_t type) {
  const auto t = static_cast<GgufType>(type);
  if (gguf_type_bytes(t) == 0)
    fail(Code::invalid_argument, "type: expected TENON_GGUF_* of a number or bool, got ", type);
  return t;
}

}  // namespace

// ---- Formats

uint32_t tenon_gguf_format_count() { return static_cast<uint32_t>(block_formats().size()); }

tenon_status* tenon_gguf_format_at(uint32_t index, tenon_gguf_format* out_format) {
  return door("tenon_gguf_format_at", [&] {
    if (index >= block_formats().size())
      fail(Code::not_found, "format ", index, ": there are ", block_formats().size());
    give(need(out_format, "out_format"), to_c(block_formats()[index]), "out_format");
  });
}

tenon_status* tenon_gguf_find_format(tenon_str name, uint32_t type, tenon_gguf_format* out_format) {
  return door("tenon_gguf_find_format", [&] {
    const std::string_view wanted = view(name);
    const BlockFormat* f = wanted.empty() ? &format_of(type) : block_format(wanted);
    if (!f) fail(Code::not_found, "format '", wanted, "' is not known");
    give(need(out_format, "out_format"), to_c(*f), "out_format");
  });
}

tenon_status* tenon_gguf_decode(uint32_t type, const void* blocks, uint64_t size, tenon_dtype to,
                                void* target, uint64_t target_size) {
  return door("tenon_gguf_decode", [&] {
    const BlockFormat& f = format_of(type);
    if (size) need(static_cast<const char*>(blocks), "blocks");
    if (target_size) need(static_cast<char*>(target), "target");
    if (size % f.bytes == 0 && to < TENON_DTYPE_COUNT) {  // else the decoder says what is wrong
      const uint64_t elements = size / f.bytes * f.elements;
      check_room(target_size, elements * tenon_dtype_bits(to) / 8);
    }
    decode_blocks(f, {static_cast<const std::byte*>(blocks), size}, to, target);
  });
}

tenon_status* tenon_gguf_encode(uint32_t type, const float* numbers, const float* importance,
                                uint64_t count, void* target, uint64_t target_size) {
  return door("tenon_gguf_encode", [&] {
    const BlockFormat& f = format_of(type);
    if (count) need(numbers, "numbers");
    if (target_size) need(static_cast<char*>(target), "target");
    check_room(target_size, block_bytes(f, count));
    encode_blocks(f, {numbers, count},
                  importance ? std::span(importance, count) : std::span<const float>(),
                  static_cast<std::byte*>(target));
  });
}

// ---- Reading

tenon_status* tenon_gguf_open(tenon_str path, tenon_gguf** out_gguf) {
  return door("tenon_gguf_open", [&] {
    need(out_gguf, "out_gguf");
    *out_gguf = new tenon_gguf{GgufFile(std::string(view(path)))};
  });
}

void tenon_gguf_destroy(tenon_gguf* gguf) { delete gguf; }

uint32_t tenon_gguf_version(const tenon_gguf* gguf) { return gguf ? gguf->file.version() : 0; }

uint32_t tenon_gguf_shard_count(const tenon_gguf* gguf) {
  return gguf ? static_cast<uint32_t>(gguf->file.shard_count()) : 0;
}

uint32_t tenon_gguf_key_count(const tenon_gguf* gguf) {
  return gguf ? static_cast<uint32_t>(gguf->file.values().size()) : 0;
}

tenon_status* tenon_gguf_key_at(const tenon_gguf* gguf, uint32_t index, tenon_gguf_key* out_key) {
  return door("tenon_gguf_key_at", [&] {
    const GgufValue& v = key_of(gguf, index);
    tenon_gguf_key out{};
    out.name = c_str(v.key);
    out.type = static_cast<uint32_t>(v.type);
    out.element_type = static_cast<uint32_t>(v.element);
    out.count = v.count;
    out.size = v.count * gguf_type_bytes(v.element);
    give(need(out_key, "out_key"), out, "out_key");
  });
}

uint32_t tenon_gguf_find_key(const tenon_gguf* gguf, tenon_str name) {
  if (!gguf || (!name.data && name.size)) return TENON_NONE;
  return index_in(gguf->file.values(), gguf->file.find(view(name)));
}

tenon_status* tenon_gguf_numbers(const tenon_gguf* gguf, uint32_t key, void* target,
                                 uint64_t size) {
  return door("tenon_gguf_numbers", [&] {
    const GgufValue& v = key_of(gguf, key);
    if (gguf_type_bytes(v.element) == 0)
      fail(Code::dtype_mismatch, "key '", v.key, "': is of type ", gguf_type_name(v.element),
           "; expected numbers");
    check_room(size, v.content.size());
    if (size) std::memcpy(&need(static_cast<char*>(target), "target"), v.content.data(), size);
  });
}

tenon_status* tenon_gguf_text(const tenon_gguf* gguf, uint32_t key, uint64_t element,
                              tenon_str* out_text) {
  return door("tenon_gguf_text", [&] {
    const std::string_view text = gguf_text(key_of(gguf, key), element);
    need(out_text, "out_text") = c_str(text);
  });
}

tenon_status* tenon_gguf_json(const tenon_gguf* gguf, uint32_t key, uint64_t most,
                              tenon_text** out_json) {
  return door("tenon_gguf_json", [&] {
    need(out_json, "out_json");
    *out_json = new tenon_text{gguf_json(key_of(gguf, key), most)};
  });
}

uint32_t tenon_gguf_tensor_count(const tenon_gguf* gguf) {
  return gguf ? static_cast<uint32_t>(gguf->file.tensors().size()) : 0;
}

tenon_status* tenon_gguf_tensor_at(const tenon_gguf* gguf, uint32_t index,
                                   tenon_gguf_tensor* out_tensor) {
  return door("tenon_gguf_tensor_at", [&] {
    const GgufTensor& t = tensor_of(gguf, index);
    tenon_gguf_tensor out{};
    out.name = c_str(t.name);
    out.dims = t.dims.data();
    out.rank = t.rank;
    out.type = t.type;
    out.shard = t.shard;
    if (t.format) {
      out.format = c_str(t.format->name);
      out.dtype = plain_dtype(*t.format);
      out.data = gguf->file.content(t).data();
      out.size = t.size;
    }
    give(need(out_tensor, "out_tensor"), out, "out_tensor");
  });
}

uint32_t tenon_gguf_find_tensor(const tenon_gguf* gguf, tenon_str name) {
  if (!gguf || (!name.data && name.size)) return TENON_NONE;
  return index_in(gguf->file.tensors(), gguf->file.find_tensor(view(name)));
}

tenon_status* tenon_gguf_load(const tenon_gguf* gguf, uint32_t tensor, tenon_store* store,
                              uint32_t space, tenon_str name, tenon_dtype to) {
  return door("tenon_gguf_load", [&] {
    const GgufTensor& t = tensor_of(gguf, tensor);
    Store& s = *need(store, "store").store;
    const Space where = space_from(space);
    const std::string key(view(name));
    const auto content = gguf->file.content(t);
    if (to == TENON_DTYPE_NONE && !t.format->plain() && where != Space::weight)
      fail(Code::unsupported, "tensor '", t.name, "': is of the block format ", t.format->name,
           "; only weights may have blocks");
    if (to == TENON_DTYPE_NONE || to == plain_dtype(*t.format)) {
      s.borrow(where, key, {t.format->dtype, Shape(t.shape())}, content, gguf->file.owner(t));
      return;
    }
    const Type type{to, Shape(t.shape())};
    Bytes decoded(to < TENON_DTYPE_COUNT ? type_bytes(type) : 0);
    decode_blocks(*t.format, content, to, decoded.data());
    s.set(where, key, type, decoded);
  });
}

// ---- Writing

tenon_status* tenon_gguf_writer_create(tenon_str path, tenon_gguf_writer** out_writer) {
  return door("tenon_gguf_writer_create", [&] {
    need(out_writer, "out_writer");
    *out_writer = new tenon_gguf_writer{GgufWriter(std::string(view(path)))};
  });
}

void tenon_gguf_writer_destroy(tenon_gguf_writer* writer) { delete writer; }

tenon_status* tenon_gguf_writer_number(tenon_gguf_writer* writer, tenon_str key, uint32_t type,
                                       const void* number) {
  return door("tenon_gguf_writer_number", [&] {
    need(static_cast<const char*>(number), "number");
    need(writer, "writer").writer.set(view(key), number_type(type), number);
  });
}

tenon_status* tenon_gguf_writer_numbers(tenon_gguf_writer* writer, tenon_str key, uint32_t type,
                                        const void* numbers, uint64_t count) {
  return door("tenon_gguf_writer_numbers", [&] {
    if (count) need(static_cast<const char*>(numbers), "numbers");
    need(writer, "writer").writer.set(view(key), number_type(type), numbers, count);
  });
}

tenon_status* tenon_gguf_writer_text(tenon_gguf_writer* writer, tenon_str key, tenon_str text) {
  return door("tenon_gguf_writer_text",
              [&] { need(writer, "writer").writer.set(view(key), view(text)); });
}

tenon_status* tenon_gguf_writer_texts(tenon_gguf_writer* writer, tenon_str key,
                                      const tenon_str* texts, uint64_t count) {
  return door("tenon_gguf_writer_texts", [&] {
    if (count) need(texts, "texts");
    std::vector<std::string_view> list;
    for (uint64_t i = 0; i < count; ++i) list.push_back(view(texts[i]));
    need(writer, "writer").writer.set(view(key), list);
  });
}

tenon_status* tenon_gguf_writer_tensor(tenon_gguf_writer* writer, tenon_str name, uint32_t type,
                                       const int64_t* dims, uint32_t rank) {
  return door("tenon_gguf_writer_tensor", [&] {
    if (rank) need(dims, "dims");
    need(writer, "writer").writer.add(view(name), format_of(type), {dims, rank});
  });
}

tenon_status* tenon_gguf_writer_content(tenon_gguf_writer* writer, const void* data,
                                        uint64_t size) {
  return door("tenon_gguf_writer_content", [&] {
    if (size) need(static_cast<const char*>(data), "data");
    need(writer, "writer").writer.content({static_cast<const std::byte*>(data), size});
  });
}

tenon_status* tenon_gguf_writer_commit(tenon_gguf_writer* writer) {
  return door("tenon_gguf_writer_commit", [&] { need(writer, "writer").writer.commit(); });
}
