// SPDX-License-Identifier: Apache-2.0
// The rates of a device. Measured on request (exec/calibrate) and stored in the user's cache
// directory: one file per device, version of its plugin, and driver.
#pragma once

#include <map>
#include <string>

#include "host/device.hpp"

namespace tenon::core {

struct Rates {
  double copy = 0;         // bytes/s, read and written in device memory
  double run = 0;          // seconds of a run with one trivial step
  double step = 0;         // seconds of one more such step
  double fork = 0;         // seconds that distributing a step over threads takes; 0: none
  double to_device = 0;    // bytes/s from host memory
  double from_device = 0;  // bytes/s to host memory
  double transfer = 0;     // seconds to copy a few bytes between host and device
  // flop/s of a large product, by dtype of its operands, and "tf32". Absent if not supported.
  std::map<std::string, double, std::less<>> products{};
};

// Typical rates for this kind of device, if nothing was measured.
Rates default_rates(const DeviceInfo& device);

// Everything that the rates of a device depend on.
struct RatesKey {
  std::string device, name;                  // "cuda:0", of the hardware
  std::string plugin, plugin_version, note;  // the note names the driver
  uint32_t threads = 0;                      // for devices that compute on host threads
};

struct KnownRates {
  Rates rates{};
  bool measured = false;
  std::string remark{};  // why it is the default
};

// $XDG_CACHE_HOME/tenon/rates, else ~/.cache/tenon/rates. Empty for a privileged process, or if
// neither variable is set.
std::string rates_directory();
std::string rates_file(const std::string& directory, const RatesKey& key);
std::string rates_text(const RatesKey& key, const Rates& rates);  // JSON, as stored
// Throws corrupt, with the reason, unless the text is what rates_text gives for this key.
Rates rates_from(const std::string& text, const RatesKey& key);

// Returns the default, with a remark, if the file is missing or damaged.
KnownRates load_rates(const RatesKey& key, const DeviceInfo& device);
// Throws io_error. Returns the path.
std::string keep_rates(const RatesKey& key, const Rates& rates);

}  // namespace tenon::core
