// SPDX-License-Identifier: Apache-2.0
// Any bytes as a .npy or .npz file: refused with an Error, or tensors of the size that they state,
// which read back the same after they are written.
#include <algorithm>
#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "import/tensor_file.hpp"
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

void write_again(const std::vector<NamedTensor>& tensors, bool deflate) {
  static const Folder folder;
  const std::string path = folder.path + "/again.npz";
  std::vector<TensorView> views;
  for (const NamedTensor& t : tensors) views.push_back({t.name, t.type, t.content});
  write_tensors(path, views, deflate);
  const std::vector<NamedTensor> again = read_tensors(path);
  must(again.size() == tensors.size(), "a tensor got lost");
  for (size_t i = 0; i < tensors.size(); ++i)
    must(again[i].name == tensors[i].name && again[i].type == tensors[i].type &&
             again[i].content == tensors[i].content,
         "a tensor changed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile file;
  static unsigned accepted = 0;
  file.write({reinterpret_cast<const char*>(data), size});
  try {
    const std::vector<NamedTensor> tensors = read_tensors(file.path());
    for (const NamedTensor& t : tensors) {
      must(t.content.size() == type_bytes(t.type), "a content has another size");
      read(t.content.data(), t.content.size());
    }
    if (++accepted % 64 == 1) write_again(tensors, accepted % 128 == 1);  // it syncs the disk
  } catch (const Error& e) {
    must(e.code() != Code::internal, e.what());
  }
  return 0;
}
