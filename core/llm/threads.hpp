// SPDX-License-Identifier: Apache-2.0
// Work that is divided between threads: a model that is loaded or converted, draws of a step.
#pragma once

#include <cstddef>
#include <functional>

namespace tenon::llm {

// Calls work(part) for the parts 0 to `parts` - 1, by this thread and up to `threads` - 1 others.
// Throws what one of them threw; the parts behind it of its thread are left out then.
void in_threads(size_t parts, unsigned threads, const std::function<void(size_t part)>& work);

}  // namespace tenon::llm
