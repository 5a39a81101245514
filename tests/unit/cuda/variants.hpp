// SPDX-License-Identifier: Apache-2.0
// The lines "//variant: NAME=VALUE ..." of a kernel text.
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cuda {

// The defines of each variant, one without any when the file names none.
inline std::vector<std::string> variants_of(std::string_view content) {
  std::vector<std::string> list;
  std::istringstream lines{std::string(content)};
  constexpr std::string_view kMark = "//variant:";
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kMark)) continue;
    std::istringstream words(line.substr(kMark.size()));
    std::string defines;
    for (std::string word; words >> word;) {
      const size_t equal = word.find('=');
      defines += "#define " + word.substr(0, equal) +
                 (equal == word.npos ? " 1" : " " + word.substr(equal + 1)) + "\n";
    }
    list.push_back(std::move(defines));
  }
  if (list.empty()) list.emplace_back();
  return list;
}

}  // namespace tenon::cuda
