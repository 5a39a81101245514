// SPDX-License-Identifier: Apache-2.0
// The ops that apps and plugins registered: one list per process, which only grows.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ops/record.hpp"
#include "tenon/op.h"

namespace tenon::core {

inline constexpr std::string_view kOfTheApp = "the app";

// Adds all of the ops, or none. origin: kOfTheApp or the name of a plugin. Throws invalid_argument if
// a description is not valid, and incompatible if another one is registered under its domain, name
// and version. Thread-safe.
void register_ops(std::span<const tenon_op_desc> ops, std::string_view origin);

// In the order of registration. Thread-safe.
std::vector<const OpRecord*> registered_records();
// The given version, else the lowest one above it; 0 = the newest. Thread-safe.
const OpRecord* find_registered(std::string_view domain, std::string_view name, uint32_t version);
// Who registered the op; "tenon" for its own.
std::string_view origin_of(const OpRecord& op);

}  // namespace tenon::core
