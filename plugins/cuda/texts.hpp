// SPDX-License-Identifier: Apache-2.0
// The files of device/, embedded at build (embed.cmake).
#pragma once

#include <span>

#include "compiler.hpp"

namespace tenon::cuda {

std::span<const Text> texts();
// Its content; a file that is not there is a bug of the caller and throws.
std::string_view text_of(std::string_view name);

}  // namespace tenon::cuda
