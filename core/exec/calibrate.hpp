// SPDX-License-Identifier: Apache-2.0
// Measures a device's rates with graphs of plain ops and with copies of buffers, so that it works
// for any plugin.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "exec/runtime.hpp"
#include "host/rates.hpp"

namespace tenon::core {

struct CalibrateOptions {
  double seconds = 0.2;  // for each thing that is measured
  // Before each thing: what, how many are done, of how many. False: stop.
  std::function<bool(std::string_view what, uint32_t done, uint32_t total)> progress{};
};

// Nothing is kept. Throws cancelled when progress says so.
Rates measure_rates(const std::shared_ptr<Runtime>& runtime, const std::string& device,
                    const CalibrateOptions& options);

}  // namespace tenon::core
