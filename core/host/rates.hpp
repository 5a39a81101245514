// SPDX-License-Identifier: Apache-2.0
// How fast a device is: measured on request (exec/calibrate), kept in the user's cache directory,
// one file per device and version of its plugin and driver.
#pragma once

#include <map>
#include <string>

#include "host/device.hpp"

namespace tenon::core {

struct Rates {
  double copy = 0;         // bytes/s, read and written in the device's own memory
  double run = 0;          // seconds of a run of one step that does next to nothing
  double step = 0;         // seconds of one more such step
  double fork = 0;         // seconds that a step of many threads takes beside its work; 0: none
  double to_device = 0;    // bytes/s from host memory
  double from_device = 0;  // bytes/s to host memory
  double transfer = 0;     // seconds of a copy of a few bytes between host and device
  // flop/s of a large product by the dtype of its operands, and "tf32"; absent: not taken.
  std::map<std::string, double, std::less<>> products{};
};

// Of what kind of device it is, where nothing was measured.
Rates default_rates(const DeviceInfo& device);

// All that the rates of a device depend on, as far as it can be told.
struct RatesKey {
  std::string device, name;                  // "cuda:0", of the hardware
  std::string plugin, plugin_version, note;  // the note names the driver
  uint32_t threads = 0;                      // of a device that computes on host threads
};

struct KnownRates {
  Rates rates{};
  bool measured = false;
  std::string remark{};  // why it is the default
};

// $XDG_CACHE_HOME/tenon/rates, else ~/.cache/tenon/rates; empty for a privileged process or
// without either.
std::string rates_directory();
std::string rates_file(const std::string& directory, const RatesKey& key);
std::string rates_text(const RatesKey& key, const Rates& rates);  // JSON, as kept
// Throws corrupt, saying what is wrong, unless it is what rates_text gives for this key.
Rates rates_from(const std::string& text, const RatesKey& key);

// The default, with a remark, when there is no file or a damaged one.
KnownRates load_rates(const RatesKey& key, const DeviceInfo& device);
// Throws io_error. Returns the path.
std::string keep_rates(const RatesKey& key, const Rates& rates);

}  // namespace tenon::core
