// SPDX-License-Identifier: Apache-2.0
// Reads and writes the cache of device rates.
#include "host/rates.hpp"

#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "host/rates_check.hpp"

namespace tenon::core {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
constexpr int kFormat = 1;
constexpr size_t kMostBytes = 1 << 20;  // per file

struct Field {
  const char* name;
  double Rates::*at;
  bool may_be_zero;
};
constexpr Field kFields[] = {
    {"copy_bytes_per_second", &Rates::copy, false},
    {"run_seconds", &Rates::run, false},
    {"step_seconds", &Rates::step, true},
    {"fork_seconds", &Rates::fork, true},
    {"to_device_bytes_per_second", &Rates::to_device, false},
    {"from_device_bytes_per_second", &Rates::from_device, false},
    {"transfer_seconds", &Rates::transfer, false},
};

json key_json(const RatesKey& key) {
  return {{"device", key.device}, {"name", key.name},
          {"plugin", key.plugin}, {"plugin_version", key.plugin_version},
          {"note", key.note},     {"threads", key.threads}};
}

double number(const json& from, const std::string& name, bool may_be_zero) {
  const auto at = from.find(name);
  if (at == from.end() || !at->is_number())
    fail(Code::corrupt, "'", name, "' is missing or no number");
  const double v = at->get<double>();
  if (!std::isfinite(v) || v < 0 || (v == 0 && !may_be_zero))
    fail(Code::corrupt, "'", name, "' is ", v);
  return v;
}

// The name of a file contains the device; the rest of the key is a hash.
uint64_t fnv(const std::string& text) {
  uint64_t h = 14695981039346656037u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

}  // namespace

Rates default_rates(const DeviceInfo& device) {
  if (device.host_threads)
    return {
        .copy = 2e10,
        .run = 1e-6,
        .step = 2e-7,
        .fork = 5e-6,
        .to_device = 1e10,
        .from_device = 1e10,
        .transfer = 1e-7,
        .products = {{"f32", 1e11}, {"tf32", 1e11}, {"f16", 5e10}, {"bf16", 5e10}, {"f64", 5e10}}};
  return {
      .copy = 1e12,
      .run = 2e-5,
      .step = 3e-6,
      .fork = 0,
      .to_device = 1e10,
      .from_device = 1e10,
      .transfer = 2e-5,
      .products = {{"f32", 2e13}, {"tf32", 1e14}, {"f16", 2e14}, {"bf16", 2e14}, {"f64", 1e12}}};
}

std::string rates_directory() {
  if (const char* base = secure_getenv("XDG_CACHE_HOME"); base && *base == '/')
    return (fs::path(base) / "tenon" / "rates").string();
  if (const char* home = secure_getenv("HOME"); home && *home == '/')
    return (fs::path(home) / ".cache" / "tenon" / "rates").string();
  return {};
}

std::string rates_file(const std::string& directory, const RatesKey& key) {
  std::string device;
  for (const char c : key.device)
    device += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
  char digits[32];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(
                    fnv(key_json(key).dump(-1, ' ', false, json::error_handler_t::replace))));
  return (fs::path(directory) / (device + "-" + digits + ".json")).string();
}

std::string rates_text(const RatesKey& key, const Rates& rates) {
  json j{{"format", kFormat}, {"key", key_json(key)}};
  for (const Field& f : kFields) j["rates"][f.name] = rates.*f.at;
  j["rates"]["product_flops_per_second"] = json::object();
  for (const auto& [dtype, rate] : rates.products)
    j["rates"]["product_flops_per_second"][dtype] = rate;
  return j.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Rates rates_from(const std::string& text, const RatesKey& key) {
  const json j = json::parse(text, nullptr, false);
  if (!j.is_object()) fail(Code::corrupt, "it is no JSON object");
  const auto format = j.find("format"), given = j.find("key"), all = j.find("rates");
  // Values of a damaged file are compared, never printed, because dump() is recursive.
  if (format == j.end() || *format != kFormat)
    fail(Code::corrupt, "its format is ",
         format == j.end()             ? "missing"
         : format->is_number_integer() ? format->dump()
                                       : "no number",
         ", expected is ", kFormat);
  // Names that are not UTF-8, in the form that JSON stores.
  const json wanted =
      json::parse(key_json(key).dump(-1, ' ', false, json::error_handler_t::replace));
  if (given == j.end() || *given != wanted)
    fail(Code::corrupt, "it is of another device or version");
  if (all == j.end() || !all->is_object()) fail(Code::corrupt, "'rates' is missing");
  Rates rates;
  for (const Field& f : kFields) rates.*f.at = number(*all, f.name, f.may_be_zero);
  const auto products = all->find("product_flops_per_second");
  if (products == all->end() || !products->is_object())
    fail(Code::corrupt, "'product_flops_per_second' is missing");
  for (const auto& [dtype, rate] : products->items())
    rates.products[dtype] = number(*products, dtype, false);
  return rates;
}

KnownRates load_rates(const RatesKey& key, const DeviceInfo& device) {
  KnownRates known{.rates = default_rates(device)};
  const std::string directory = rates_directory();
  if (directory.empty()) {
    known.remark = "not measured, and there is no cache directory to keep rates in";
    return known;
  }
  const std::string path = rates_file(directory, key);
  std::error_code failure;
  if (!fs::exists(fs::symlink_status(path, failure))) {
    known.remark = "not measured; 'tenon calibrate' does it";
    return known;
  }
  try {
    known.rates = rates_from(read_file(path, kMostBytes), key);
    known.measured = true;
  } catch (const Error& e) {
    known.rates = default_rates(device);
    known.remark = cat("ignored: ", path, " is damaged: ", e.what());
  }
  return known;
}

void check_rates_can_be_kept(const RatesKey& key) {
  const std::string directory = rates_directory();
  if (directory.empty())
    fail(Code::io_error,
         "there is no cache directory to keep rates in: neither XDG_CACHE_HOME nor HOME is an "
         "absolute path, or the process is privileged");
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) fail(Code::io_error, directory, ": cannot be made: ", failure.message());
  const std::string path = rates_file(directory, key);
  if (fs::is_directory(fs::symlink_status(path, failure)))
    fail(Code::io_error, path, ": is a directory, expected a file");
  const FileWriter file(path);  // removed again
}

std::string keep_rates(const RatesKey& key, const Rates& rates) {
  check_rates_can_be_kept(key);
  const std::string path = rates_file(rates_directory(), key), text = rates_text(key, rates);
  FileWriter file(path);
  file.write(text.data(), text.size());
  file.commit();
  return path;
}

}  // namespace tenon::core
