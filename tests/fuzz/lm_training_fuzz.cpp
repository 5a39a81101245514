// SPDX-License-Identifier: Apache-2.0
// Any bytes as the training.json of a saved training: refused with an Error, or what lm train goes
// on with keeps its promises. Behind a line "---" may stand the header of optimizer.safetensors.
#include <cmath>
#include <cstring>

#include "cli/lm/chart.hpp"
#include "lm_folder.hpp"

using namespace tenon;
using namespace tenon::fuzz;

namespace {

constexpr std::string_view kSoundOptimizer = R"({"__metadata__":{"step":"2"}})";

struct Rig {
  LmFolder folder;
  MemoryFile training, optimizer;
  Rig() {
    folder.replace("training.json", training);
    folder.replace("optimizer.safetensors", optimizer);
  }
};

std::string file_of(std::string_view header) {
  const uint64_t size = header.size();
  std::string file(sizeof size, '\0');
  std::memcpy(file.data(), &size, sizeof size);
  return file.append(header);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Rig rig;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view line = "\n---\n";
  const size_t at = input.find(line);
  rig.training.write(input.substr(0, at));
  rig.optimizer.write(file_of(at == input.npos ? kSoundOptimizer : input.substr(at + line.size())));
  try {
    Store store(rig.folder.runtime());
    const lm::TrainingState s = lm::load_training(rig.folder.path(), store);
    must(s.done_steps >= 0 && s.done_steps <= s.total_steps && s.batch > 0 && s.warmup >= 0 &&
             std::isfinite(s.lr),
         "a training that makes no sense was accepted");
    lm::loss_chart(s);
  } catch (const Error& e) {
    must(e.code() != TENON_INTERNAL, e.what());
  }
  return 0;
}
