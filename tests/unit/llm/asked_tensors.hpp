// SPDX-License-Identifier: Apache-2.0
// Configurations of all families, and the tensors that their graphs ask for.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "llm/arch/config_reader.hpp"
#include "llm/arch/tensors.hpp"
#include "llm/model_folder.hpp"

namespace tenon::llm {

// The name of a family and its configuration. folder: those of the fuzzer.
inline std::vector<std::pair<std::string, Json>> family_configs(const std::string& folder) {
  std::vector<std::pair<std::string, Json>> out;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    Json json = Json::parse(read_text(file.path().string()));
    const std::string name = file.path().stem();
    // The fuzzer's configurations of these are refused.
    if (name.starts_with("deepseek")) json["num_key_value_heads"] = json["num_attention_heads"];
    if (name != "quantized" && !json.contains("text_config"))
      out.emplace_back(name, std::move(json));
  }
  REQUIRE(out.size() >= 15);
  return out;
}

// The tensors that build() asks for, by what it says is missing or wrong.
inline TensorSource asked_tensors(const std::string& family,
                                  const std::function<void(const TensorSource&)>& build) {
  TensorSource out;
  for (int tries = 0; tries < 1000; ++tries) {
    try {
      build(out);
      return out;
    } catch (const Error& e) {
      const std::string text = e.what();
      const size_t begin = text.find("weight '") + 8, end = text.find("'", begin);
      CAPTURE(family);
      CAPTURE(text);
      REQUIRE(begin != std::string::npos + 8);
      const std::string name = text.substr(begin, end - begin);
      std::vector<int64_t> dims{1};
      if (e.code() == TENON_SHAPE_MISMATCH) {
        dims.clear();
        std::istringstream list(text.substr(text.find("expected [") + 10));
        char c = ',';
        for (int64_t dim = 0; c == ',' && list >> dim; list >> c) dims.push_back(dim);
      } else {
        REQUIRE(e.code() == TENON_NOT_FOUND);
      }
      out.types.insert_or_assign(name, TensorType(f32, dims));
    }
  }
  FAIL("the graph asks for ever more weights");
  return out;
}

}  // namespace tenon::llm
