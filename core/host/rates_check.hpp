// SPDX-License-Identifier: Apache-2.0
// Checks whether rates can be stored, before anything is measured.
#pragma once

#include "host/rates.hpp"

namespace tenon::core {

// Throws io_error if keep_rates would.
void check_rates_can_be_kept(const RatesKey& key);

}  // namespace tenon::core
