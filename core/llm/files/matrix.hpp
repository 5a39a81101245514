// SPDX-License-Identifier: Apache-2.0
// Numbers on their way from one file to the other: converted, reordered, encoded by several threads.
#pragma once

#include <span>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::llm::files {

// As f32. type: f32, f16 or bf16; source need not be aligned.
std::vector<float> widened(tenon_dtype type, std::span<const std::byte> source);

// Pairs of rope: rows i and i + half of each head in a folder are rows 2 i and 2 i + 1 in GGUF.
// `back` goes from GGUF to the folder. Rows must be a multiple of 2 * heads.
// T: float, or std::byte for rows in blocks.
template <class T>
void permute_rope(std::vector<T>& numbers, int64_t rows, int64_t heads, bool back);

// Encodes rows of `columns` numbers with several threads.
std::vector<std::byte> encoded(const GgufFormat& format, std::span<const float> numbers,
                               int64_t columns, unsigned threads);

}  // namespace tenon::llm::files
