// SPDX-License-Identifier: Apache-2.0
// Any bytes as a folder with quantized weights: refused with an Error, or every weight is decoded to
// the type that was promised. The first line is quantization_config; behind it is a safetensors file
// without its length: the header up to the last line end, then data.
#include <cstring>
#include <filesystem>

#include "llm/arch/quantization.hpp"
#include "llm/json_text.hpp"
#include "memory_file.hpp"

using namespace tenon;
using namespace tenon::fuzz;

namespace {

// A folder whose model.safetensors is the file in memory.
struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "tenon-fuzz-XXXXXX").string();
  explicit Folder(const MemoryFile& memory) {
    must(::mkdtemp(path.data()) != nullptr, "no folder for temporary files");
    std::filesystem::create_symlink(memory.path(), path + "/model.safetensors");
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string framed(std::string_view input) {
  const size_t end = input.find_last_of('\n');
  const std::string_view header = input.substr(0, end);
  const uint64_t size = header.size();
  std::string file(sizeof size, '\0');
  std::memcpy(file.data(), &size, sizeof size);
  file += header;
  if (end != input.npos) file += input.substr(end + 1);
  return file;
}

void decode(const llm::Json& config, const std::string& folder, const llm::DecodeOptions& options) {
  static const Runtime runtime(RuntimeOptions{.use_environment = false, .use_builtin_dir = false});
  llm::ConfigReader reader(config, "config.json");
  llm::TensorSource source =
      llm::quantized_tensors(folder, llm::read_quantization(reader), options);
  for (const bool plain : {false, true}) {
    if (plain)
      for (auto& [name, type] : source.types)
        if (llm::in_blocks(type.dtype)) type = source.plain(name);
    Store store(runtime);
    source.load(store);
    for (const auto& [name, type] : source.types) {
      const Tensor t = store.get(TENON_SPACE_WEIGHT, name);
      must(t.type() == type, "a weight has another type than its source says");
      read(static_cast<const std::byte*>(t.data()), t.size());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile memory;
  static const Folder folder(memory);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(input.find('\n'), input.size());
  memory.write(framed(input.substr(std::min(line + 1, input.size()))));
  for (const bool rows : {false, true}) {
    try {
      const std::string config =
          R"({"quantization_config": )" + std::string(input.substr(0, line)) + "}";
      decode(llm::parse_object(config, "config.json"), folder.path,
             {.dtype = rows ? tenon_dtype{f16} : tenon_dtype{f32}, .inputs_are_rows = rows});
    } catch (const Error& e) {
      must(e.code() != TENON_INTERNAL, e.what());
      must(*e.what() != 0, "an error without a text");
    }
  }
  return 0;
}
