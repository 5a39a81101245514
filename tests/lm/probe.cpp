// SPDX-License-Identifier: Apache-2.0
// lm_probe MODEL_DIR TEXT_FILE LOGITS_FILE [DEVICE]: writes the logits of the first bytes of a text
// as f32, for comparison with other implementations. TEXT_FILE's size is the sequence's length.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "cli/lm/checkpoint.hpp"

int main(int argc, char** argv) {
  if (argc < 4)
    return std::fprintf(stderr, "usage: lm_probe MODEL_DIR TEXT_FILE LOGITS_FILE [DEVICE]\n"), 2;
  try {
    const tenon::Runtime runtime;
    tenon::Store store(runtime);
    const tenon::lm::Config config = tenon::lm::load_model(argv[1], store);
    std::ifstream in(argv[2], std::ios::binary);
    std::vector<int64_t> tokens;
    for (std::istreambuf_iterator<char> i(in), end; i != end; ++i)
      tokens.push_back(static_cast<unsigned char>(*i));
    const auto length = static_cast<int64_t>(tokens.size());
    const tenon::Graph graph = tenon::lm::logits_graph(config, length);
    const tenon::Executable executable(runtime, graph, store,
                                       {.device = argc > 4 ? argv[4] : "auto"});
    tenon::Context run(executable);
    run.set("tokens", {1, length}, tokens);
    run.run();
    const std::vector<float> logits = run.get<float>("logits");
    std::ofstream out(argv[3], std::ios::binary);
    out.write(reinterpret_cast<const char*>(logits.data()),
              static_cast<std::streamsize>(logits.size() * sizeof(float)));
    return out ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "lm_probe: %s\n", e.what());
    return 1;
  }
}
