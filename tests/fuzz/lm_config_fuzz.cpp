// SPDX-License-Identifier: Apache-2.0
// Any bytes as the config.json of a model whose weights are sound: refused with an Error, or the
// graphs of what was read can be built.
#include <algorithm>

#include "lm_folder.hpp"

using namespace tenon;
using namespace tenon::fuzz;

namespace {

struct Rig {
  LmFolder folder;
  MemoryFile config;
  Rig() { folder.replace("config.json", config); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Rig rig;
  rig.config.write({reinterpret_cast<const char*>(data), size});
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
  return 0;
}
