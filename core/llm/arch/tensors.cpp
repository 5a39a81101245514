// SPDX-License-Identifier: Apache-2.0
// Finds the tensors of a folder, checks them against a graph, and loads them into a store.
#include "llm/arch/tensors.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "llm/arch/text_part.hpp"
#include "llm/dims_text.hpp"
#include "llm/model_folder.hpp"

namespace tenon::llm {

TensorSource folder_tensors(const std::string& folder) {
  TensorSource out;
  const std::vector<std::string> files = safetensors_files(folder);
  for (const std::string& file : files) {
    for (auto& [tensor, type] : safetensors_tensors(file))
      if (!out.types.emplace(tensor, std::move(type)).second)
        throw Error(TENON_CORRUPT, file + ": tensor '" + tensor + "' is also in another file");
  }
  out.load = [files](Store& store) {
    for (const std::string& file : files) store.load(TENON_SPACE_WEIGHT, file);
  };
  return out;
}

bool Weights::has(const std::string& name) const { return !found_name(name).empty(); }

std::string Weights::found_name(const std::string& name) const {
  if (tensors_.types.contains(name)) return name;
  const std::string rest = name.substr(name.find('.') + 1);
  if (tensors_.types.contains(rest)) return rest;
  for (std::string& wrapped : wrapped_names(name))
    if (tensors_.types.contains(wrapped)) return std::move(wrapped);
  return {};
}

const TensorType& Weights::source(const std::string& name, const std::vector<int64_t>& dims,
                                  bool may_be_blocks) const {
  const std::string found = found_name(name);
  if (found.empty()) throw Error(TENON_NOT_FOUND, "weight '" + name + "' is missing in the model");
  const TensorType& type = tensors_.types.at(found);
  if (type.dtype != f32 && type.dtype != f16 && type.dtype != bf16 &&
      !(may_be_blocks && in_blocks(type.dtype)))
    throw Error(TENON_UNSUPPORTED, "weight '" + found +
                                       "': expected a dtype f32, f16 or bf16, got " +
                                       std::string(sdk::dtype_name(type.dtype)));
  if (type.dims != dims)
    throw Error(TENON_SHAPE_MISMATCH, "weight '" + found + "': expected " + dims_text(dims) +
                                          " by its configuration, got " + dims_text(type.dims));
  return type;
}

void Weights::make_plain(const std::string& name) {
  const auto at = tensors_.types.find(found_name(name));
  if (at != tensors_.types.end() && in_blocks(at->second.dtype) && tensors_.plain)
    at->second = tensors_.plain(at->first);
}

TensorType Weights::plain(const std::string& name, const std::vector<int64_t>& dims) {
  const TensorType type = source(name, dims, true);
  recipes_.emplace(name, Recipe{.sources = {found_name(name)}, .type = type});
  return type;
}

// As the first of several tensors that make a weight.
void Weights::expect_dtype(const std::string& name, tenon_dtype got,
                           const std::string& first) const {
  const tenon_dtype expected = tensors_.types.at(found_name(first)).dtype;
  if (got != expected)
    throw Error(TENON_DTYPE_MISMATCH, "weight '" + name + "': expected " +
                                          std::string(sdk::dtype_name(expected)) + " as '" + first +
                                          "' has, got " + std::string(sdk::dtype_name(got)));
}

TensorType Weights::made(const std::string& name, const std::vector<std::string>& sources,
                         const std::vector<int64_t>& source_dims, tenon_dtype dtype,
                         const std::vector<int64_t>& dims, Make make, bool may_be_blocks) {
  Recipe recipe{.make = std::move(make)};
  for (const std::string& s : sources)
    may_be_blocks = may_be_blocks && source(s, source_dims, true).dtype ==
                                         source(sources[0], source_dims, true).dtype;
  for (const std::string& s : sources) {
    if (!may_be_blocks) make_plain(s);
    const TensorType& type = source(s, source_dims, may_be_blocks);
    expect_dtype(s, type.dtype, sources[0]);
    recipe.type = {dtype == TENON_DTYPE_NONE ? type.dtype : dtype, dims};
    recipe.sources.push_back(found_name(s));
  }
  return recipes_.emplace(name, std::move(recipe)).first->second.type;
}

TensorType Weights::stacked(const std::string& name, const std::vector<std::string>& sources,
                            const std::vector<int64_t>& rows, int64_t columns) {
  Recipe recipe;
  int64_t all = 0;
  const auto dims = [&](int64_t count) {
    return columns > 0 ? std::vector<int64_t>{count, columns} : std::vector<int64_t>{count};
  };
  for (size_t i = 0; i < sources.size(); ++i) {
    recipe.type.dtype = source(sources[i], dims(rows[i]), true).dtype;
    expect_dtype(sources[i], recipe.type.dtype, sources[0]);
    recipe.sources.push_back(found_name(sources[i]));
    all += rows[i];
  }
  recipe.type = {recipe.type.dtype, dims(all)};
  recipe.make = [type = recipe.type](const std::vector<Tensor>& from) {
    Tensor to(type);
    auto* at = static_cast<std::byte*>(to.data());
    for (const Tensor& t : from)
      at = std::copy_n(static_cast<const std::byte*>(t.data()), t.size(), at);
    return to;
  };
  return recipes_.emplace(name, std::move(recipe)).first->second.type;
}

TensorType Weights::table(const std::string& name, const std::vector<int64_t>& dims,
                          const std::function<std::vector<float>()>& numbers) {
  const TensorType type(f32, dims);
  const auto at = recipes_.find(name);
  if (at == recipes_.end()) recipes_.emplace(name, Recipe{.type = type, .numbers = numbers()});
  return type;
}

void Weights::check_unused(const std::function<bool(const std::string&)>& harmless) const {
  std::set<std::string, std::less<>> used;
  for (const auto& [name, recipe] : recipes_)
    used.insert(recipe.sources.begin(), recipe.sources.end());
  for (const auto& [name, type] : tensors_.types)
    if (!used.contains(name) && !tensors_.unneeded.contains(name) && !harmless(name))
      throw Error(
          TENON_UNSUPPORTED,
          "weight '" + name + "' is not used by the model that the configuration describes");
}

uint64_t Weights::bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, recipe] : recipes_) sum += recipe.type.bytes();
  return sum;
}

bool Weights::has_blocks() const {
  return std::ranges::any_of(recipes_,
                             [](const auto& r) { return in_blocks(r.second.type.dtype); });
}

void Weights::load(Store& store) const {
  tensors_.load(store);
  std::set<std::string, std::less<>> kept;  // names in the store that graphs use
  for (const auto& [name, recipe] : recipes_) kept.insert(name);
  std::map<std::string, int64_t, std::less<>> uses;  // that are still to come
  for (const auto& [name, recipe] : recipes_)
    for (const std::string& s : recipe.sources) ++uses[s];
  const auto done = [&](const std::string& s) {
    if (--uses[s] == 0 && !kept.contains(s)) store.remove(TENON_SPACE_WEIGHT, s);
  };
  for (const auto& [name, recipe] : recipes_) {
    if (recipe.sources.empty()) {
      store.set(TENON_SPACE_WEIGHT, name, recipe.type, recipe.numbers.data(),
                recipe.numbers.size() * sizeof(float));
      continue;
    }
    if (!recipe.make && recipe.sources[0] == name) continue;
    std::vector<Tensor> parts;
    for (const std::string& s : recipe.sources) parts.push_back(store.get(TENON_SPACE_WEIGHT, s));
    store.set(TENON_SPACE_WEIGHT, name, recipe.make ? recipe.make(parts) : parts[0]);
    for (const std::string& s : recipe.sources) done(s);
  }
  for (const auto& [name, type] : tensors_.types)
    if (!uses.contains(name)) store.remove(TENON_SPACE_WEIGHT, name);
}

}  // namespace tenon::llm
