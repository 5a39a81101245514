// SPDX-License-Identifier: Apache-2.0
// Cases of ops that are not tenon's, read from a file. README.md describes the form.
#pragma once

#include <string>

#include "kit.hpp"

namespace tenon::conform {

// Adds the rows of a file. The plugins that register its ops are loaded. Throws std::runtime_error
// with the file, the case and what is wrong.
void add_cases(Suite& suite, const std::string& file);

}  // namespace tenon::conform
