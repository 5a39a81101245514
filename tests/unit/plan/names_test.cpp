// SPDX-License-Identifier: Apache-2.0
// A pass that knew an op by name would treat a plugin's own op worse than ours.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graphs.hpp"

using namespace tenon::core;

namespace {

// The words that stand alone between quotes or after op::.
std::vector<std::string> quoted_or_built(const std::string& source) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  std::vector<std::string> words;
  for (size_t begin = source.find_first_of(kLetters); begin != source.npos;) {
    const size_t end = std::min(source.find_first_not_of(kLetters, begin), source.size());
    const bool quoted =
        begin > 0 && source[begin - 1] == '"' && end < source.size() && source[end] == '"';
    const bool built = begin >= 4 && source.compare(begin - 4, 4, "op::") == 0;
    if (quoted || built) words.push_back(source.substr(begin, end - begin));
    begin = source.find_first_of(kLetters, end);
  }
  return words;
}

}  // namespace

TEST_SUITE("plan/names") {
  TEST_CASE("quoted_or_built: finds names where a pass would write them") {
    CHECK(quoted_or_built("if (is(n, \"add\")) return op::rms_norm(x); // \"not this\" add") ==
          std::vector<std::string>{"add", "rms_norm"});
  }

  TEST_CASE("passes: name no op outside the tables of raise and fuse") {
    int files = 0;
    for (const char* room : {"plan", "grad"}) {
      for (const auto& entry :
           std::filesystem::directory_iterator(std::filesystem::path(TENON_CORE_DIR) / room)) {
        const std::string stem = entry.path().stem().string();
        if (stem.starts_with("raise") || stem.starts_with("fuse")) continue;
        ++files;
        std::ifstream in(entry.path());
        std::stringstream text;
        text << in.rdbuf();
        for (const std::string& name : quoted_or_built(text.str()))
          CHECK_MESSAGE(tenon::find_op(name) == nullptr, entry.path().filename().string(),
                        " names the op ", name);
      }
    }
    CHECK(files >= 6);
  }
}
