// SPDX-License-Identifier: Apache-2.0
// Rates of devices as files.
#include "host/rates.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "host/rates_check.hpp"

using namespace tenon::core;
namespace fs = std::filesystem;

namespace {

// The user's cache directory for a while.
struct CacheHome {
  fs::path path = fs::temp_directory_path() / ("tenon_rates_" + std::to_string(getpid()));
  CacheHome() {
    fs::remove_all(path);
    if (const char* old = getenv("XDG_CACHE_HOME")) before = old;
    setenv("XDG_CACHE_HOME", path.c_str(), 1);
  }
  ~CacheHome() {
    before ? setenv("XDG_CACHE_HOME", before->c_str(), 1) : unsetenv("XDG_CACHE_HOME");
    fs::remove_all(path);
  }
  std::optional<std::string> before;
};

const RatesKey kKey{.device = "cpu:0",
                    .name = "a processor",
                    .plugin = "cpu",
                    .plugin_version = "1.2",
                    .note = "driver 5",
                    .threads = 2};
const Rates kRates{.copy = 2.5e10,
                   .run = 1e-6,
                   .step = 0,
                   .fork = 3e-6,
                   .to_device = 1.25e10,
                   .from_device = 1e10,
                   .transfer = 1e-7,
                   .products = {{"f32", 1e11}, {"bf16", 2e12}}};

DeviceInfo cpu() {
  DeviceInfo d;
  d.id = "cpu:0";
  d.host_threads = true;
  return d;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("host/rates") {
  TEST_CASE("rates: what is kept is read again, number by number") {
    const CacheHome home;
    CHECK_FALSE(load_rates(kKey, cpu()).measured);
    const std::string path = keep_rates(kKey, kRates);
    CHECK(path.starts_with((home.path / "tenon" / "rates" / "cpu_0-").string()));
    const KnownRates known = load_rates(kKey, cpu());
    CHECK(known.measured);
    CHECK(known.remark.empty());
    CHECK(known.rates.copy == kRates.copy);
    CHECK(known.rates.step == 0);
    CHECK(known.rates.fork == kRates.fork);
    CHECK(known.rates.from_device == kRates.from_device);
    CHECK(known.rates.products == kRates.products);
    CHECK(std::distance(fs::directory_iterator(home.path / "tenon" / "rates"), {}) == 1);
  }

  TEST_CASE("rates: another device, version, driver or width is not measured") {
    const CacheHome home;
    keep_rates(kKey, kRates);
    for (const auto& change :
         {+[](RatesKey& k) { k.device = "cpu:1"; }, +[](RatesKey& k) { k.name = "another"; },
          +[](RatesKey& k) { k.plugin_version = "1.3"; }, +[](RatesKey& k) { k.note = "driver 6"; },
          +[](RatesKey& k) { k.threads = 4; }}) {
      RatesKey key = kKey;
      change(key);
      const KnownRates known = load_rates(key, cpu());
      CHECK_FALSE(known.measured);
      CHECK(contains(known.remark, "not measured"));
      CHECK(known.rates.copy == default_rates(cpu()).copy);
    }
  }

  TEST_CASE("rates: a damaged file is ignored, told by its path, and replaced") {
    const CacheHome home;
    const std::string path = keep_rates(kKey, kRates), sound = rates_text(kKey, kRates);
    const auto with = [&](std::string_view from, std::string_view to) {
      std::string text = sound;
      const size_t at = text.find(from);
      REQUIRE(at != std::string::npos);
      return text.replace(at, from.size(), to);
    };
    const std::pair<std::string, std::string_view> damaged[] = {
        {"", "no JSON object"},
        {sound.substr(0, sound.size() / 2), "no JSON object"},
        {with("\"format\": 1", "\"format\": 2"), "its format is 2"},
        {with("a processor", "b processor"), "another device"},
        {with("\"copy_bytes_per_second\": 25000000000.0", "\"copy_bytes_per_second\": 0"),
         "'copy_bytes_per_second' is 0"},
        {with("\"run_seconds\": 1e-06", "\"run_seconds\": \"fast\""), "'run_seconds'"},
        {with("\"transfer_seconds\"", "\"transfer\""), "'transfer_seconds' is missing"},
        {with("\"f32\": 100000000000.0", "\"f32\": -1"), "'f32' is -1"},
    };
    for (const auto& [text, why] : damaged) {
      std::ofstream(path, std::ios::trunc) << text;
      const KnownRates known = load_rates(kKey, cpu());
      CHECK_FALSE(known.measured);
      CHECK_MESSAGE(contains(known.remark, path), known.remark);
      CHECK_MESSAGE(contains(known.remark, why), known.remark);
      CHECK(known.rates.copy == default_rates(cpu()).copy);
    }
    keep_rates(kKey, kRates);
    CHECK(load_rates(kKey, cpu()).measured);
  }

  TEST_CASE(
      "rates: a file that is deep, huge, a pipe, a folder or a link is ignored, with a remark") {
    const CacheHome home;
    const std::string path = keep_rates(kKey, kRates), sound = rates_text(kKey, kRates);
    const std::string deep(2000000, '['), deep_end(2000000, ']');
    const auto with = [&](std::string_view from, const std::string& to) {
      std::string text = sound;
      return text.replace(text.find(from), from.size(), to);
    };
    const std::string contents[] = {
        deep, with("\"format\": 1", "\"format\": " + deep + deep_end),
        with("\"cpu:0\"", std::string(400000, '[') + std::string(400000, ']')),
        with("\"format\": 1", "\"format\": " + std::string(400000, '[') + std::string(400000, ']')),
        with("1e-06", std::string(400000, '[') + std::string(400000, ']'))};
    const auto ignored = [&](const char* what) {
      const KnownRates known = load_rates(kKey, cpu());
      CHECK_FALSE_MESSAGE(known.measured, what);
      CHECK_MESSAGE(contains(known.remark, path), known.remark);
      CHECK(known.remark.size() < 1000);
      CHECK(known.rates.copy == default_rates(cpu()).copy);
    };
    for (const std::string& text : contents) {
      std::ofstream(path, std::ios::trunc) << text;
      ignored("nested");
    }
    fs::remove(path);
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    ignored("a pipe");  // and nobody waits for a writer
    fs::remove(path);
    fs::create_directory(path);
    ignored("a folder");
    CHECK_THROWS_AS(check_rates_can_be_kept(kKey), Error);
    fs::remove(path);
    fs::create_symlink("/dev/zero", path);
    ignored("an endless device");
    fs::remove(path);
    fs::create_symlink(path, path);
    ignored("a link to itself");
    keep_rates(kKey, kRates);
    CHECK(load_rates(kKey, cpu()).measured);
  }

  TEST_CASE("rates: a place that cannot be written is an error that names it") {
    const CacheHome home;
    fs::create_directories(home.path);
    std::ofstream(home.path / "tenon") << "a file where the directory should be";
    CHECK_THROWS_AS(check_rates_can_be_kept(kKey), Error);
    try {
      keep_rates(kKey, kRates);
      FAIL("kept");
    } catch (const Error& e) {
      CHECK(e.code() == Code::io_error);
      CHECK(contains(e.what(), (home.path / "tenon").string()));
    }
  }

  TEST_CASE("rates: XDG_CACHE_HOME counts when it is absolute, else HOME") {
    const CacheHome home;
    CHECK(rates_directory() == (home.path / "tenon" / "rates").string());
    setenv("XDG_CACHE_HOME", "relative", 1);
    const char* user = getenv("HOME");
    if (user && *user == '/')
      CHECK(rates_directory() == (fs::path(user) / ".cache" / "tenon" / "rates").string());
  }
}
