// SPDX-License-Identifier: Apache-2.0
// The tensors of a model: where they are, and which of them a graph uses.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::llm {

// True for dtypes of blocks (GGUF's q4_k and others).
inline bool in_blocks(tenon_dtype t) { return tenon_dtype_block(t).elements > 0; }
// Is a dtype of blocks a format of GGUF files? f8e4m3_128 and what follows it are none (types.h).
inline bool in_gguf(tenon_dtype blocks) {
  return in_blocks(blocks) && blocks < TENON_DTYPE_F8E4M3_128;
}

// The tensors of a model, by the names of Hugging Face folders.
struct TensorSource {
  std::map<std::string, TensorType, std::less<>> types = {};
  // Those that change nothing where no graph uses them.
  std::set<std::string, std::less<>> unneeded = {};
  // Makes a tensor in blocks a plain one, before it is loaded, and returns its type. Empty: the
  // source cannot.
  std::function<TensorType(const std::string& name)> plain = {};
  // Sets all of them as weights of these names.
  std::function<void(Store& store)> load = {};
};

// The safetensors files of a folder: model.safetensors, or those that model.safetensors.index.json
// names. Reads names and types only. Throws if there is neither, or if a tensor is in two files.
TensorSource folder_tensors(const std::string& folder);

// The weights that a graph uses, and how each is made from the tensors of a folder. Graphs ask for
// weights while they are built; then load() fills a store.
class Weights {
 public:
  explicit Weights(TensorSource tensors) : tensors_(std::move(tensors)) {}

  // A tensor as the folder has it. Throws if it is missing or has other dims.
  TensorType plain(const std::string& name, const std::vector<int64_t>& dims);
  // The tensor, or nothing if the folder has none of this name.
  bool has(const std::string& name) const;

  using Make = std::function<Tensor(const std::vector<Tensor>&)>;
  // A weight of the graph that is made of tensors of the folder, which must all have the type
  // `sources` x source_dims. dtype NONE: that of the sources. may_be_blocks: `make` takes sources
  // in blocks, too, which all have the same dtype.
  TensorType made(const std::string& name, const std::vector<std::string>& sources,
                  const std::vector<int64_t>& source_dims, tenon_dtype dtype,
                  const std::vector<int64_t>& dims, Make make, bool may_be_blocks = false);

  // What plain() returns, without asking for it.
  const TensorType& type_of(const std::string& name, const std::vector<int64_t>& dims) const {
    return source(name, dims, true);
  }
  // Several tensors [rows[i], columns] of one dtype, also of blocks, one below the other; columns
  // 0: vectors.
  TensorType stacked(const std::string& name, const std::vector<std::string>& sources,
                     const std::vector<int64_t>& rows, int64_t columns);

  // A table of f32 numbers, such as those of the rotary embedding. It replaces one of this name.
  TensorType table(const std::string& name, const std::vector<int64_t>& dims,
                   const std::function<std::vector<float>()>& numbers);

  // Throws if the folder has a tensor that no graph has asked for, unless harmless(name).
  void check_unused(const std::function<bool(const std::string&)>& harmless) const;
  // Of all weights that graphs asked for.
  uint64_t bytes() const;
  // Is one of them in blocks?
  bool has_blocks() const;
  // Sets all weights that graphs asked for.
  void load(Store& store) const;

 private:
  struct Recipe {
    std::vector<std::string> sources{};
    TensorType type{};  // of the weight
    Make make{};        // empty: the tensor itself
    std::vector<float> numbers{};
  };
  const TensorType& source(const std::string& name, const std::vector<int64_t>& dims,
                           bool may_be_blocks) const;
  void make_plain(const std::string& name);
  void expect_dtype(const std::string& name, tenon_dtype got, const std::string& first) const;
  // The name of the tensor in the source: checkpoints of base models lack the first part of names.
  std::string found_name(const std::string& name) const;

  TensorSource tensors_;
  std::map<std::string, Recipe, std::less<>> recipes_;
};

}  // namespace tenon::llm
