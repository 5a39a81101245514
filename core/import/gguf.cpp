// SPDX-License-Identifier: Apache-2.0
// Opens the files of a GGUF model and finds keys and tensors in them.
#include "import/gguf.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "import/gguf_part.hpp"

namespace tenon::core {
namespace {

// Indices of the elements, sorted by their names.
template <class List, class Name>
std::vector<uint32_t> sorted_by(const List& list, Name name) {
  std::vector<uint32_t> order(list.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](uint32_t i) { return list[i].*name; });
  return order;
}

template <class List, class Name>
auto* found(const List& list, const std::vector<uint32_t>& order, Name name,
            std::string_view wanted) {
  const auto at =
      std::ranges::lower_bound(order, wanted, {}, [&](uint32_t i) { return list[i].*name; });
  return at != order.end() && list[*at].*name == wanted ? &list[*at] : nullptr;
}

template <class List, class Name>
void refuse_twins(const List& list, const std::vector<uint32_t>& order, Name name,
                  const std::string& path, std::string_view what) {
  for (size_t i = 1; i < order.size(); ++i)
    if (list[order[i]].*name == list[order[i - 1]].*name)
      fail(Code::corrupt, path, ": ", what, " '", list[order[i]].*name, "' is there twice");
}

// A whole number of any type; `otherwise` where the key is missing.
uint64_t whole_number(const std::string& path, const std::vector<GgufValue>& values,
                      std::string_view key, uint64_t otherwise) {
  for (const GgufValue& v : values) {
    if (v.key != key) continue;
    const bool is_signed =
        v.type == GgufType::i8 || v.type == GgufType::i16 || v.type == GgufType::i32;
    const bool is_unsigned =
        v.type == GgufType::u8 || v.type == GgufType::u16 || v.type == GgufType::u32;
    if (!is_signed && !is_unsigned)
      fail(Code::corrupt, path, ": key '", key, "': is of type ", gguf_type_name(v.type),
           "; expected a whole number of at most 32 bits");
    uint64_t number = 0;
    std::memcpy(&number, v.content.data(), v.content.size());
    if (is_signed && number >> (8 * v.content.size() - 1) != 0)
      fail(Code::corrupt, path, ": key '", key, "': is negative");
    return number;
  }
  return otherwise;
}

std::string shard_suffix(uint64_t number, uint64_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05llu-of-%05llu.gguf",
                static_cast<unsigned long long>(number + 1),
                static_cast<unsigned long long>(count));
  return text;
}

}  // namespace

GgufFile::GgufFile(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  GgufPart part = parse_gguf(path, file->bytes());
  version_ = part.version;
  const uint64_t count = whole_number(path, part.values, "split.count", 1);
  const uint64_t number = whole_number(path, part.values, "split.no", 0);
  if (count > 1) {
    open_shards(path, number, count);
  } else {
    shards_.push_back(std::move(file));
    values_ = std::move(part.values);
    tensors_ = std::move(part.tensors);
  }
  check_names(path);
}

void GgufFile::open_shards(const std::string& path, uint64_t number, uint64_t count) {
  if (count > 65535 || number >= count)
    fail(Code::corrupt, path, ": split.no is ", number, " and split.count is ", count,
         "; expected a number below the count, and at most 65535 files");
  const std::string suffix = shard_suffix(number, count);
  if (!path.ends_with(suffix))
    fail(Code::io_error, path, ": is file ", number + 1, " of ", count,
         "; expected a name that ends with ", suffix, ", to find the others");
  const std::string stem = path.substr(0, path.size() - suffix.size());
  for (uint64_t i = 0; i < count; ++i) {
    const std::string name = stem + shard_suffix(i, count);
    std::shared_ptr<const MappedFile> file;
    try {
      file = std::make_shared<const MappedFile>(name);
    } catch (const Error& e) {
      fail(Code::io_error, e.what(), "; ", path, " is one of ", count, " files");
    }
    GgufPart part = parse_gguf(name, file->bytes());
    const uint64_t its_number = whole_number(name, part.values, "split.no", 0),
                   its_count = whole_number(name, part.values, "split.count", 1);
    if (its_number != i || its_count != count)
      fail(Code::corrupt, name, ": is file ", its_number + 1, " of ", its_count, "; expected file ",
           i + 1, " of ", count);
    if (tensors_.size() + part.tensors.size() > (1 << 18))
      fail(Code::unsupported, name, ": the files have more than ", 1 << 18, " tensors");
    for (GgufTensor& t : part.tensors) {
      t.shard = static_cast<uint32_t>(i);
      tensors_.push_back(t);
    }
    if (i == 0) {
      version_ = part.version;
      values_ = std::move(part.values);
    }
    shards_.push_back(std::move(file));
  }
  const uint64_t stated = whole_number(path, values_, "split.tensors.count", tensors_.size());
  if (stated != tensors_.size())
    fail(Code::corrupt, path, ": the ", count, " files have ", tensors_.size(),
         " tensors; expected ", stated, " (split.tensors.count)");
}

void GgufFile::check_names(const std::string& path) {
  by_key_ = sorted_by(values_, &GgufValue::key);
  by_name_ = sorted_by(tensors_, &GgufTensor::name);
  refuse_twins(values_, by_key_, &GgufValue::key, path, "key");
  refuse_twins(tensors_, by_name_, &GgufTensor::name, path, "tensor");
}

const GgufValue* GgufFile::find(std::string_view key) const {
  return found(values_, by_key_, &GgufValue::key, key);
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  return found(tensors_, by_name_, &GgufTensor::name, name);
}

std::span<const std::byte> GgufFile::content(const GgufTensor& tensor) const {
  if (!tensor.format)
    fail(Code::unsupported, "tensor '", tensor.name, "': its type ", tensor.type, " is not known");
  return shards_[tensor.shard]->bytes().subspan(tensor.begin, tensor.size);
}

}  // namespace tenon::core
