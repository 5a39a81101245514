// SPDX-License-Identifier: Apache-2.0
// Which cases run: filters, --quick, --shard, and the list of known failures.
#pragma once

#include <optional>
#include <set>

#include "options.hpp"
#include "proof.hpp"

namespace tenon::conform {

struct Chosen {
  Unit unit;
  Facts facts;  // its cases: only those that were chosen
};

struct Selection {
  std::vector<Chosen> units{};
  size_t cases = 0;  // of these units
  size_t kit = 0;    // cases before anything was left out
  // "op" or "op/kind", with its level: what cases of the suite that expect no error build.
  std::map<std::string, Level> ops{};
  std::vector<std::string> ids{}, requirements{};  // of the suite
};

// "unary/exp", "matmul".
std::string op_text(const CaseBuilder::Used& op);

// The rows that the options leave. The plugins that register ops of --cases are loaded.
Suite suite_of(const Options& options);
// Throws std::logic_error if two cases have the same id. The suite outlives the selection.
Selection select(const Options& options, const Suite& suite);

// --expect FILE
struct Known {
  std::string glob, reason;
};
// Throws Usage if the file is not readable. all_families: also if an entry matches no case of the
// suite.
std::vector<Known> read_known(const std::string& file, const Selection& selection,
                              bool all_families);
// The entry that names the case, or nullptr.
const Known* find_known(const std::vector<Known>& known, const Case& c);

}  // namespace tenon::conform
