// SPDX-License-Identifier: Apache-2.0
// llm_speed FOLDER IDS TOKENS DEVICE: seconds to read a prompt, and seconds for each further token, of
// a model of a Hugging Face folder. The first runs, which compile, are not counted.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "llm/engine.hpp"

int main(int argc, char** argv) {
  using namespace tenon::llm;
  using Clock = std::chrono::steady_clock;
  try {
    if (argc < 5) throw tenon::Error(TENON_INVALID_ARGUMENT, "expected FOLDER IDS TOKENS DEVICE");
    std::ifstream in(argv[2]);
    const std::vector<int64_t> ids{std::istream_iterator<int64_t>(in), {}};
    const int64_t count = std::atoll(argv[3]);
    const tenon::Runtime runtime;
    Engine engine(runtime, argv[1], {.device = argv[4]});
    Clock::time_point start, first;
    for (int64_t tokens : {int64_t{8}, count}) {
      int64_t at = 0;
      start = Clock::now();
      engine.generate(ids, {.tokens = tokens, .stop_at_end = false}, [&](int64_t) {
        if (at++ == 0) first = Clock::now();
        return true;
      });
    }
    const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    std::printf(
        "%.9f %.9f\n", seconds(first - start),
        seconds(Clock::now() - first) / static_cast<double>(std::max<int64_t>(count - 1, 1)));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "llm_speed: %s\n", e.what());
    return 1;
  }
}
