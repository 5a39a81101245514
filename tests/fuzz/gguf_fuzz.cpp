// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: refused with an Error, or every value can be read and every tensor lies
// in the file, and what the writer makes of them reads back the same.
#include "import/gguf.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "import/gguf_write.hpp"
#include "memory_file.hpp"

using namespace tenon::core;
using namespace tenon::fuzz;

namespace {

// The writer replaces a file of a folder.
struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "tenon-fuzz-XXXXXX").string();
  Folder() { must(::mkdtemp(path.data()) != nullptr, "no folder for temporary files"); }
  ~Folder() { std::filesystem::remove_all(path); }
};

void read_value(const GgufValue& v) {
  const std::string text = gguf_json(v, 1000);
  read(text.data(), text.size());
  read(v.content.data(), v.content.size());
  if (v.count == 0) return;
  const uint64_t last = v.count - 1;
  if (v.element == GgufType::string) {
    const std::string_view s = gguf_text(v, last);
    read(s.data(), s.size());
  } else if (v.element == GgufType::array) {
    read_value(gguf_nested(v, last));
  }
}

void read_tensor(const GgufFile& file, const GgufTensor& t) {
  if (!t.format) return;
  const auto content = file.content(t);
  read(content.data(), content.size());
  if (!t.format->decodes() || content.size() > 4096) return;
  std::vector<float> numbers(content.size() / t.format->bytes * t.format->elements);
  decode_blocks(*t.format, content, numbers.data());
  read(numbers.data(), numbers.size() * sizeof numbers[0]);
}

// Writes what the writer takes: no arrays of arrays, no unknown types.
void write_again(const GgufFile& file) {
  static const Folder folder;
  const std::string path = folder.path + "/again.gguf";
  GgufWriter out(path);
  std::vector<const GgufValue*> values;
  for (const GgufValue& v : file.values()) {
    if (v.key == "general.alignment" || v.element == GgufType::array || v.key == "split.count" ||
        v.key == "split.no")
      continue;
    values.push_back(&v);
    std::vector<std::string_view> texts;
    if (v.element == GgufType::string)
      for (uint64_t i = 0; i < v.count; ++i) texts.push_back(gguf_text(v, i));
    if (v.type == GgufType::string)
      out.set(v.key, texts[0]);
    else if (v.element == GgufType::string)
      out.set(v.key, texts);
    else if (v.type == GgufType::array)
      out.set(v.key, v.element, v.content.data(), v.count);
    else
      out.set(v.key, v.type, v.content.data());
  }
  std::vector<const GgufTensor*> tensors;
  for (const GgufTensor& t : file.tensors())
    if (t.format) tensors.push_back(&t), out.add(t.name, *t.format, t.shape());
  for (const GgufTensor* t : tensors) out.content(file.content(*t));
  out.commit();
  const GgufFile again(path);
  must(again.values().size() == values.size() && again.tensors().size() == tensors.size(),
       "a value or tensor got lost");
  for (size_t i = 0; i < values.size(); ++i)
    must(again.values()[i].key == values[i]->key &&
             gguf_json(again.values()[i]) == gguf_json(*values[i]),
         "a value changed");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const GgufTensor &a = *tensors[i], &b = again.tensors()[i];
    must(a.name == b.name && a.type == b.type && a.dims == b.dims && a.rank == b.rank,
         "a tensor's name or type changed");
    must(std::ranges::equal(file.content(a), again.content(b)), "a tensor's content changed");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile memory;
  static unsigned accepted = 0;
  memory.write({reinterpret_cast<const char*>(data), size});
  try {
    const GgufFile file(memory.path());
    for (const GgufValue& v : file.values()) {
      read_value(v);
      must(file.find(v.key) == &v, "a key is not found");
    }
    for (const GgufTensor& t : file.tensors()) {
      read_tensor(file, t);
      must(file.find_tensor(t.name) == &t, "a tensor is not found");
    }
    if (accepted++ % 64 == 0) write_again(file);  // it syncs the disk
  } catch (const Error& e) {
    must(e.code() != Code::internal, e.what());
  }
  return 0;
}
