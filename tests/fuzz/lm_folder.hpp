// SPDX-License-Identifier: Apache-2.0
// The folder of a small sound model, some of whose files a target then replaces.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "check.hpp"
#include "cli/lm/checkpoint.hpp"
#include "memory_file.hpp"

namespace tenon::fuzz {

class LmFolder {
 public:
  static constexpr lm::Config kConfig{
      .dim = 8, .layers = 1, .heads = 4, .kv_heads = 2, .ffn = 3, .context = 4};

  explicit LmFolder(const lm::Config& config = kConfig) {
    must(::mkdtemp(path_.data()) != nullptr, "no folder for temporary files");
    Store store(runtime_);
    for (const lm::WeightSpec& w : lm::weight_specs(config))
      store.set(TENON_SPACE_WEIGHT, w.name, w.dims,
                std::vector<float>(static_cast<size_t>(TensorType(f32, w.dims).elements())));
    store.set(TENON_SPACE_STATE, "moment", {2}, std::vector<float>(2));
    lm::TrainingState state;
    state.total_steps = 4;
    state.done_steps = 2;
    state.batch = 1;
    lm::save_checkpoint(path_, config, state, store);
  }
  ~LmFolder() { std::filesystem::remove_all(path_); }
  LmFolder(const LmFolder&) = delete;
  LmFolder& operator=(const LmFolder&) = delete;

  const std::string& path() const { return path_; }
  const Runtime& runtime() const { return runtime_; }
  // From here on the file is what the memory holds.
  void replace(const char* name, const MemoryFile& by) const {
    const std::filesystem::path file = std::filesystem::path(path_) / name;
    std::filesystem::remove(file);
    std::filesystem::create_symlink(by.path(), file);
  }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "tenon-fuzz-XXXXXX").string();
  Runtime runtime_{{.threads = 1, .use_environment = false, .use_builtin_dir = false}};
};

}  // namespace tenon::fuzz
