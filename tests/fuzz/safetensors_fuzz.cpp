// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: refused with an Error, or every tensor lies in the file and what
// the writer makes of them reads back the same. An input that begins with '{' is a header up to its
// last line end and data behind it, so that an edit of the header leaves the file a sound frame;
// any other input is the file itself.
#include "import/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "memory_file.hpp"

using namespace tenon::core;
using namespace tenon::fuzz;

namespace {

std::string framed(std::string_view input) {
  if (!input.starts_with('{')) return std::string(input);
  const size_t end = input.find_last_of('\n');
  const std::string_view header = input.substr(0, end);
  const uint64_t size = header.size();
  std::string file(sizeof size, '\0');
  std::memcpy(file.data(), &size, sizeof size);
  file += header;
  if (end != input.npos) file += input.substr(end + 1);
  return file;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// The writer replaces a file of a folder.
struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "tenon-fuzz-XXXXXX").string();
  Folder() { must(::mkdtemp(path.data()) != nullptr, "no folder for temporary files"); }
  ~Folder() { std::filesystem::remove_all(path); }
};

void write_again(const SafetensorsFile& file) {
  static const Folder folder;
  const std::string path = folder.path + "/again.safetensors";
  write_safetensors(path, file.tensors(), {{"step", "1"}}, [&](const SafetensorsEntry& e) {
    for (const SafetensorsEntry& t : file.tensors()) {
      if (t.name != e.name) continue;
      const auto bytes = file.content(t);
      return Bytes(bytes.begin(), bytes.end());
    }
    must(false, "the writer asks for an unknown tensor");
    return Bytes();
  });
  const SafetensorsFile again(path);
  must(again.metadata_json() == R"({"step":"1"})", "the metadata changed");
  must(again.tensors().size() == file.tensors().size(), "a tensor got lost");
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const SafetensorsEntry &a = file.tensors()[i], &b = again.tensors()[i];
    must(a.name == b.name && a.type == b.type, "a tensor's name or type changed");
    must(same(file.content(a), again.content(b)), "a tensor's content changed");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile memory;
  static unsigned accepted = 0;
  memory.write(framed({reinterpret_cast<const char*>(data), size}));
  try {
    const SafetensorsFile file(memory.path());
    read(file.metadata_json().data(), file.metadata_json().size());
    for (const SafetensorsEntry& e : file.tensors()) {
      must(file.content(e).size() == type_bytes(e.type), "a tensor's content is not of its size");
      read(file.content(e).data(), file.content(e).size());
    }
    if (accepted++ % 64 == 0) write_again(file);  // it syncs the disk
  } catch (const Error& e) {
    must(e.code() != Code::internal, e.what());
  }
  return 0;
}
