// SPDX-License-Identifier: Apache-2.0
// Rates of devices that a test chooses, below a cache folder of its own.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tenon/tenon.hpp"

namespace tenon::test {

// Rates are kept here for a while.
class RatesFolder {
 public:
  RatesFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("tenon-rates-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    setenv("XDG_CACHE_HOME", path_.c_str(), 1);
  }
  ~RatesFolder() {
    before_ ? setenv("XDG_CACHE_HOME", before_->c_str(), 1) : unsetenv("XDG_CACHE_HOME");
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  RatesFolder(const RatesFolder&) = delete;
  RatesFolder& operator=(const RatesFolder&) = delete;

 private:
  std::filesystem::path path_;
  std::optional<std::string> before_{};
};

// Replaces some rates of a calibrated device, by their names in its file.
inline void set_rates(const Runtime& rt, const char* device, const nlohmann::json& rates) {
  const std::string file = nlohmann::json::parse(rt.rates(device)).at("file");
  std::ifstream in(file);
  nlohmann::json known = nlohmann::json::parse(in);
  known.at("rates").update(rates);
  std::ofstream(file) << known.dump();
}

}  // namespace tenon::test
