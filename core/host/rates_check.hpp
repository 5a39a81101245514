// SPDX-License-Identifier: Apache-2.0
// Whether rates can be kept: asked before anything is measured.
#pragma once

#include "host/rates.hpp"

namespace tenon::core {

// Throws io_error where keep_rates would.
void check_rates_can_be_kept(const RatesKey& key);

}  // namespace tenon::core
