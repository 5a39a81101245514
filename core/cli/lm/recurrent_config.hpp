// SPDX-License-Identifier: Apache-2.0
// config.json of a recurrent model of tenon. Its model_type is "tenon-mamba" or "tenon-delta", which
// no other program uses, so configurations of others stay refused.
#pragma once

#include <string>

#include "cli/lm/json_file.hpp"
#include "cli/lm/model.hpp"

namespace tenon::lm {

bool is_recurrent(const Json& config);
// Throws unless every key is known, and none is missing.
Config read_recurrent(const Json& config, const std::string& file);
Json recurrent_json(const Config& config);

}  // namespace tenon::lm
