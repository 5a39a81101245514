// SPDX-License-Identifier: Apache-2.0
// A pass that knew an op by name would treat a plugin's own op worse than ours.
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "ir/graphs.hpp"

using namespace tenon::core;

TEST_SUITE("plan/names") {
  TEST_CASE("passes: name no op outside the tables of raise and fuse") {
    const std::regex quoted_name("\"([a-z][a-z0-9_]*)\"|\\bop::([a-z][a-z0-9_]*)");
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
        const std::string source = text.str();
        for (std::sregex_iterator m(source.begin(), source.end(), quoted_name), end; m != end;
             ++m) {
          const std::string name = (*m)[1].matched ? (*m)[1].str() : (*m)[2].str();
          CHECK_MESSAGE(tenon::find_op(name) == nullptr, entry.path().filename().string(),
                        " names the op ", name);
        }
      }
    }
    CHECK(files >= 6);
  }
}
