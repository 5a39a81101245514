// SPDX-License-Identifier: Apache-2.0
// tokenizer_probe FILE: encodes and decodes for tokenizer.py. FILE is a tokenizer.json or a GGUF file. Requests
// and answers are pairs of 32-bit integers and bytes: (flags, size) and bytes, (failed, size) and bytes.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gguf_metadata.hpp"
#include "llm/text/tokenizer.hpp"

namespace {

using namespace tenon;

enum Flag : uint32_t {
  kAddSpecial = 1,
  kParseSpecial = 2,
  kDecode = 4,
  kSkipSpecial = 8,
  kStream = 16,
  kTime = 32
};

bool read(void* to, size_t size) { return std::fread(to, 1, size, stdin) == size; }

std::string bytes_of(const std::vector<llm::TokenId>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]};
}

std::string answer(const llm::Tokenizer& tokenizer, uint32_t flags, const std::string& input) {
  if (!(flags & kDecode)) {
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode(input, {.add_special = (flags & kAddSpecial) != 0,
                                              .parse_special = (flags & kParseSpecial) != 0});
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    return flags & kTime ? std::to_string(time.count()) : bytes_of(ids);
  }
  std::vector<llm::TokenId> ids(input.size() / sizeof(llm::TokenId));
  std::memcpy(ids.data(), input.data(), ids.size() * sizeof ids[0]);
  const bool skip = flags & kSkipSpecial;
  if (!(flags & kStream)) return tokenizer.decode(ids, skip);
  llm::Detokenizer stream(tokenizer, skip);
  std::string out;
  for (const llm::TokenId id : ids) out += stream.push(id);
  return out + stream.flush();
}

std::string content(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

llm::Tokenizer load(const char* path) {
  const std::string bytes = content(path);
  if (bytes.starts_with("GGUF"))
    return llm::Tokenizer::from_metadata(test::GgufMetadata(bytes), path);
  return llm::Tokenizer::from_json(bytes, "", path);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw std::runtime_error("usage: tokenizer_probe FILE");
    const llm::Tokenizer tokenizer = load(argv[1]);
    for (uint32_t head[2]; read(head, sizeof head);) {
      std::string input(head[1], '\0');
      if (!read(input.data(), input.size())) return 1;
      uint32_t failed = 0;
      std::string out;
      try {
        out = answer(tokenizer, head[0], input);
      } catch (const std::exception& e) {
        failed = 1;
        out = e.what();
      }
      const uint32_t reply[2] = {failed, static_cast<uint32_t>(out.size())};
      std::fwrite(reply, 1, sizeof reply, stdout);
      std::fwrite(out.data(), 1, out.size(), stdout);
      std::fflush(stdout);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
