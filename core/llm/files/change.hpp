// SPDX-License-Identifier: Apache-2.0
// Contents that differ between a folder and GGUF (Change), in f32.
#pragma once

#include <string>
#include <vector>

#include "llm/files/families.hpp"

namespace tenon::llm::files {

// Heads of linear attention.
struct LinearHeads {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;

  int64_t rows_of_keys() const { return 2 * key_heads * key_dim; }  // of q and k
  int64_t rows_of_values() const { return value_heads * value_dim; }
};
// Rows of kv_b_proj that belong to each head: those of keys, then those of values. groups: of the norm
// of a mixer.
struct HeadRows {
  int64_t heads = 0, keys = 0, values = 0, groups = 1;
  int64_t key_heads = 0;  // of by_part
  LinearHeads linear{};
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
// Value heads in the order of GGUF, or `back` in that of the folder. dims: of the tensor, the same on
// both sides. Throws TENON_SHAPE_MISMATCH, with `name`, for dims that it cannot have.
std::vector<float> reordered(Order order, std::vector<float> numbers,
                             const std::vector<int64_t>& dims, const LinearHeads& heads, bool back,
                             const std::string& name);
// in_proj_qkvz of the two parts that GGUF has of it.
std::vector<int64_t> joined_dims_of_linear(const std::vector<int64_t>& qkv,
                                           const std::vector<int64_t>& gate,
                                           const LinearHeads& heads, const std::string& name);
std::vector<float> joined_linear(const std::vector<float>& qkv, const std::vector<float>& gate,
                                 const LinearHeads& heads);

// The two halves of the rows of a matrix as one; both have `dims`.
std::vector<int64_t> stacked_dims(const std::vector<int64_t>& first,
                                  const std::vector<int64_t>& second, const std::string& name);
// kv_b_proj [heads * (rows of keys + rows of values), rank] of keys [heads, rank, rows] and values
// [heads, rows, rank].
std::vector<int64_t> joined_dims(const std::vector<int64_t>& keys,
                                 const std::vector<int64_t>& values, const std::string& name);
std::vector<float> joined_halves(const std::vector<float>& keys,
                                 const std::vector<int64_t>& key_dims,
                                 const std::vector<float>& values,
                                 const std::vector<int64_t>& value_dims);

}  // namespace tenon::llm::files
