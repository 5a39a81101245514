// SPDX-License-Identifier: Apache-2.0
// The folder that a training writes to.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cli/lm/lock.hpp"
#include "cli/progress.hpp"

namespace tenon::lm {

// Creates and locks a folder. One that cannot be written, or that another training writes to, is told
// before the work, not after.
void take_folder(const std::string& folder, std::optional<FolderLock>& lock);

// Throws if a file of kModelFiles would have to take the place of a folder.
void check_places(const std::string& folder);

// save(), within a training: a disk that is full now may have room at the next save.
void save_meanwhile(cli::Progress& progress, int64_t step, const std::function<void()>& save);

}  // namespace tenon::lm
