// SPDX-License-Identifier: Apache-2.0
// Any bytes as the config.json of a model of each architecture whose weights are sound: refused with
// an Error, or the graphs of what was read can be built.
#include <algorithm>

#include "lm_folder.hpp"

using namespace tenon;
using namespace tenon::fuzz;

namespace {

struct Rig {
  LmFolder folder;
  MemoryFile config;
  explicit Rig(lm::Config c) : folder(c) { folder.replace("config.json", config); }
};

lm::Config small(lm::Arch arch) {
  lm::Config c = LmFolder::kConfig;
  c.arch = arch;
  c.state_size = 4;
  return c;
}

void try_config(Rig& rig, std::string_view bytes) {
  rig.config.write(bytes);
  try {
    Store store(rig.folder.runtime());
    lm::Config config = lm::load_model(rig.folder.path(), store);
    config.check();
    config.context = std::min<int64_t>(config.context, 16);  // its tables take time, no more
    lm::decode_graph(config, {});
    lm::train_graph(config, {.batch = 2});
  } catch (const Error& e) {
    must(e.code() != TENON_INTERNAL, e.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Rig llama(small(lm::Arch::llama)), mamba(small(lm::Arch::mamba)),
      delta(small(lm::Arch::delta));
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // Weights of another architecture are refused before anything else happens.
  const auto names = [&](std::string_view arch) { return bytes.find(arch) != bytes.npos; };
  try_config(names("mamba") ? mamba : names("delta") ? delta : llama, bytes);
  return 0;
}
