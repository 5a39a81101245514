// SPDX-License-Identifier: Apache-2.0
// Contents that differ between a folder and GGUF (Change), in f32.
#pragma once

#include <string>
#include <vector>

#include "llm/files/families.hpp"

namespace tenon::llm::files {

// Rows of kv_b_proj that belong to each head: those of keys, then those of values.
struct HeadRows {
  int64_t heads = 0, keys = 0, values = 0;
  int64_t key_heads = 0;  // of by_part
};

// The dims in GGUF of a tensor of the folder. Throws TENON_SHAPE_MISMATCH, with `name`, for dims that
// such a tensor cannot have.
std::vector<int64_t> changed_dims(Change change, const std::vector<int64_t>& dims,
                                  const HeadRows& rows, const std::string& name);
// Its numbers. dims: in the folder.
std::vector<float> changed(Change change, std::vector<float> numbers,
                           const std::vector<int64_t>& dims, const HeadRows& rows);

// The way back; dims are those in GGUF, rows.heads those of the model. `keys` and `values` are joined
// by joined_halves().
std::vector<int64_t> dims_back(Change change, const std::vector<int64_t>& dims,
                               const std::string& name);
std::vector<float> changed_back(Change change, std::vector<float> numbers,
                                const std::vector<int64_t>& dims, const HeadRows& rows,
                                const std::string& name);
// kv_b_proj [heads * (rows of keys + rows of values), rank] of keys [heads, rank, rows] and values
// [heads, rows, rank].
std::vector<int64_t> joined_dims(const std::vector<int64_t>& keys,
                                 const std::vector<int64_t>& values, const std::string& name);
std::vector<float> joined_halves(const std::vector<float>& keys,
                                 const std::vector<int64_t>& key_dims,
                                 const std::vector<float>& values,
                                 const std::vector<int64_t>& value_dims);

}  // namespace tenon::llm::files
