// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file of a language model: its configuration, tokenizer and tensors become the
// files of a folder, or are refused with an Error.
#include <filesystem>

#include "llm/files/config_keys.hpp"
#include "llm/files/convert.hpp"
#include "llm/files/tokenizer_keys.hpp"
#include "memory_file.hpp"

using namespace tenon;
using namespace tenon::fuzz;
using namespace tenon::llm::files;

namespace {

struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "tenon-fuzz-XXXXXX").string();
  Folder() { must(::mkdtemp(path.data()) != nullptr, "no folder for temporary files"); }
  ~Folder() { std::filesystem::remove_all(path); }
};

template <class Call>
bool refused(const Call& call) {
  try {
    call();
    return false;
  } catch (const Error& e) {
    must(e.code() != TENON_INTERNAL, e.what());
    must(*e.what() != 0, "an error without a text");
    return true;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile memory;
  static const Folder folder;
  static unsigned accepted = 0;
  memory.write({reinterpret_cast<const char*>(data), size});
  const std::string path = memory.path();
  refused([&] {
    const Gguf model(path);
    const Family& family = family_of_gguf(model, path);
    const bool good = !refused([&] {
      const Json config = config_from_keys(model, family, "float32", path);
      must(Json::parse(config.dump()) == config, "config.json changes when it is read back");
    });
    refused([&] {
      const TokenizerFiles files = tokenizer_files(model, path);
      must(Json::accept(files.tokenizer_config), "tokenizer_config.json is no JSON");
      must(model.has("tokenizer.huggingface.json") || files.tokenizer.empty() ||
               Json::accept(files.tokenizer),
           "tokenizer.json is no JSON");
    });
    // It syncs the disk.
    if (good && accepted++ % 32 == 0) refused([&] { gguf_to_folder(path, folder.path, {}); });
  });
  return 0;
}
