// SPDX-License-Identifier: Apache-2.0
// Reads and writes safetensors files. Checks every number of a header before using it.
#include "import/safetensors.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tenon::core {
namespace {

constexpr uint64_t kMostHeader = 100 << 20;  // limit of the format

constexpr std::pair<std::string_view, DType> kDTypes[] = {{"F64", kF64},
                                                          {"F32", kF32},
                                                          {"F16", kF16},
                                                          {"BF16", kBF16},
                                                          {"I64", kI64},
                                                          {"I32", kI32},
                                                          {"I16", kI16},
                                                          {"I8", kI8},
                                                          {"U64", kU64},
                                                          {"U32", kU32},
                                                          {"U16", kU16},
                                                          {"U8", kU8},
                                                          {"BOOL", kBool},
                                                          {"F8_E4M3", TENON_DTYPE_F8E4M3},
                                                          {"F8_E5M2", TENON_DTYPE_F8E5M2}};

// Reads one entry of the header. Each error names the file and the tensor.
SafetensorsEntry read_entry(const std::string& path, const std::string& name,
                            const nlohmann::json& j, uint64_t data_size) {
  const auto bad = [&](std::string_view what) {
    fail(Code::corrupt, path, ": tensor '", name, "': ", what);
  };
  if (!j.is_object() || !j.contains("dtype") || !j.contains("shape") || !j.contains("data_offsets"))
    bad("expected dtype, shape and data_offsets");
  const auto &dtype = j["dtype"], &shape = j["shape"], &offsets = j["data_offsets"];
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2 ||
      !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    bad("dtype, shape or data_offsets has the wrong form");
  SafetensorsEntry e{.name = name, .type = {}};
  const std::string text = dtype.get<std::string>();
  for (const auto& [word, t] : kDTypes)
    if (word == text) e.type.dtype = t;
  if (e.type.dtype == TENON_DTYPE_NONE)
    fail(Code::unsupported, path, ": tensor '", name, "': dtype ", text, " is not known");
  if (shape.size() > TENON_MAX_RANK)
    fail(Code::unsupported, path, ": tensor '", name, "': rank ", shape.size(), " is over 8");
  for (const auto& d : shape) {
    if (!d.is_number_unsigned() || d.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      bad("a dim is no size");
    e.type.shape.push(d.get<int64_t>());
  }
  e.begin = offsets[0].get<uint64_t>();
  e.end = offsets[1].get<uint64_t>();
  if (e.begin > e.end || e.end > data_size)
    fail(Code::corrupt, path, ": tensor '", name, "': bytes ", e.begin, " to ", e.end,
         " leave the file's ", data_size, " bytes of data");
  uint64_t size = 0;
  try {
    size = type_bytes(e.type);
  } catch (const Error&) {
    bad("its size overflows");
  }
  if (e.end - e.begin != size)
    fail(Code::corrupt, path, ": tensor '", name, "': ", e.type.text(), " has ", size,
         " bytes, the file gives it ", e.end - e.begin);
  return e;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  read_header(path);
}

Bytes SafetensorsFile::content(const SafetensorsEntry& e) const {
  Bytes bytes(e.end - e.begin);
  file_.read(data_ + e.begin, bytes.data(), bytes.size());
  return bytes;
}

std::span<const std::byte> SafetensorsFile::content_in(const MappedFile& map,
                                                       const SafetensorsEntry& e) const {
  if (map.bytes().size() < data_ + e.end)
    fail(Code::io_error, path_, ": ends at byte ", map.bytes().size(), ", it had ", file_.size(),
         " when it was opened");
  return map.bytes().subspan(data_ + e.begin, e.end - e.begin);
}

void SafetensorsFile::read_header(const std::string& path) {
  uint64_t header_size = 0;
  if (file_.size() < 8)
    fail(Code::corrupt, path, ": is no safetensors file: it has ", file_.size(), " bytes");
  file_.read(0, &header_size, 8);
  if (header_size > kMostHeader || header_size > file_.size() - 8)
    fail(Code::corrupt, path, ": the header of ", header_size, " bytes does not fit the file of ",
         file_.size(), " bytes");
  std::string text(header_size, '\0');
  file_.read(8, text.data(), text.size());
  data_ = 8 + header_size;
  const uint64_t data_size = file_.size() - data_;
  const auto header = nlohmann::json::parse(text, nullptr, false);
  if (!header.is_object()) fail(Code::corrupt, path, ": the header is no JSON object");
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) fail(Code::corrupt, path, ": __metadata__ is no JSON object");
      // Also limits the nesting depth that dump() sees.
      for (const auto& [key, value] : entry.items())
        if (!value.is_string())
          fail(Code::corrupt, path, ": __metadata__: '", key, "' is no string");
      metadata_ = entry.dump();
      continue;
    }
    tensors_.push_back(read_entry(path, name, entry, data_size));
  }
  std::vector<const SafetensorsEntry*> by_place;
  for (const auto& e : tensors_) by_place.push_back(&e);
  std::sort(by_place.begin(), by_place.end(), [](auto* a, auto* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t at = 0;
  for (const auto* e : by_place) {
    if (e->begin != at)
      fail(Code::corrupt, path, ": tensor '", e->name, "': overlaps another or leaves a hole");
    at = e->end;
  }
  if (at != data_size)
    fail(Code::corrupt, path, ": ", data_size - at, " bytes at the end belong to no tensor");
}

void write_safetensors(const std::string& path, std::vector<SafetensorsEntry> entries,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<Bytes(const SafetensorsEntry&)>& content) {
  // Larger elements first, so that each tensor is aligned to its element.
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return tenon_dtype_bits(a.type.dtype) > tenon_dtype_bits(b.type.dtype);
  });
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (SafetensorsEntry& e : entries) {
    e.begin = at;
    e.end = at += type_bytes(e.type);
    const auto word = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                   [&](const auto& d) { return d.second == e.type.dtype; });
    if (word == std::end(kDTypes))
      fail(Code::unsupported, path, ": '", e.name, "' of dtype ", dtype_name(e.type.dtype),
           " has no form in safetensors");
    header[e.name] = {{"dtype", word->first},
                      {"shape", std::vector<int64_t>(e.type.shape.begin(), e.type.shape.end())},
                      {"data_offsets", {e.begin, e.end}}};
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t size = text.size();

  FileWriter out(path);
  out.write(&size, 8);
  out.write(text.data(), text.size());
  for (const SafetensorsEntry& e : entries) {
    const Bytes bytes = content(e);
    check(bytes.size() == e.end - e.begin, path, ": '", e.name,
          "' changed its size while it was written");
    out.write(bytes.data(), bytes.size());
  }
  out.commit();
}

}  // namespace tenon::core
