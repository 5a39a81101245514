// SPDX-License-Identifier: Apache-2.0
// llm_probe FOLDER IDS OUT DEVICE MODE [OPTION...]: writes logits of a model of a Hugging Face folder as
// raw f32, for comparison. IDS: a file of token ids as text.
//   prefill     behind each token, read in large pieces
//   decode      behind each token, read one by one
//   pieces N    behind each N tokens, read as pieces of N
//   company     as decode, in slot 2 of 4, while other slots read other tokens
// Options: --context N, --compute f32|f16|bf16, --cache f32|f16|bf16|q8_0, --products f32|int8, --lora DIR,
// --lora-half DIR (with scale 0.5).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "llm/engine.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

void append(std::vector<float>& to, const std::vector<float>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

std::vector<float> by_pieces(Engine& engine, const std::vector<int64_t>& ids, size_t size) {
  std::vector<float> out;
  for (size_t at = 0; at + size <= ids.size(); at += size) {
    const auto from = ids.begin() + static_cast<ptrdiff_t>(at);
    const Engine::Piece piece{.slot = 0, .tokens = {from, from + static_cast<ptrdiff_t>(size)}};
    append(out, engine.step({&piece, 1}, true)[0].logits);
  }
  return out;
}

// The others read what was read before, begin again, and read pieces of several lengths.
std::vector<float> in_company(Engine& engine, const std::vector<int64_t>& ids) {
  std::vector<float> out;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<Engine::Piece> pieces = {{.slot = 2, .tokens = {ids[i]}}};
    pieces.push_back({.slot = 0, .tokens = {ids[ids.size() - 1 - i]}});
    if (i % 3 == 0) {
      if (i % 6 == 0) engine.clear(3);
      const auto end = ids.begin() + static_cast<ptrdiff_t>(1 + i % 7);
      pieces.push_back({.slot = 3, .tokens = {ids.begin(), end}});
    }
    append(out, engine.step(pieces, true)[0].logits);
  }
  return out;
}

tenon_dtype dtype_of(const char* name) { return sdk::dtype_named(name); }

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 6) throw Error(TENON_INVALID_ARGUMENT, "expected FOLDER IDS OUT DEVICE MODE");
    const std::string mode = argv[5];
    EngineOptions options{.device = argv[4], .slots = mode == "company" ? 4 : 1};
    for (int i = 6; i + 1 < argc; ++i) {
      if (std::strcmp(argv[i], "--context") == 0) options.context = std::atoll(argv[i + 1]);
      if (std::strcmp(argv[i], "--compute") == 0) options.compute = dtype_of(argv[i + 1]);
      if (std::strcmp(argv[i], "--cache") == 0) options.cache = dtype_of(argv[i + 1]);
      if (std::strcmp(argv[i], "--lora") == 0) options.adapters.push_back({argv[i + 1], 1});
      if (std::strcmp(argv[i], "--lora-half") == 0) options.adapters.push_back({argv[i + 1], 0.5});
      if (std::strcmp(argv[i], "--products") == 0)
        options.products = std::strcmp(argv[i + 1], "int8") == 0 ? Products::int8 : Products::f32;
    }
    std::ifstream in(argv[2]);
    const std::vector<int64_t> ids{std::istream_iterator<int64_t>(in), {}};
    const Runtime runtime;
    Engine engine(runtime, argv[1], options);
    const std::vector<float> logits =
        mode == "prefill"   ? engine.all_logits(ids)
        : mode == "decode"  ? by_pieces(engine, ids, 1)
        : mode == "company" ? in_company(engine, ids)
                            : by_pieces(engine, ids, static_cast<size_t>(std::atoll(argv[6])));
    std::ofstream out(argv[3], std::ios::binary);
    out.write(reinterpret_cast<const char*>(logits.data()),
              static_cast<std::streamsize>(logits.size() * sizeof(float)));
    return out ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "llm_probe: %s\n", e.what());
    return 1;
  }
}
