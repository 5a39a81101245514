// SPDX-License-Identifier: Apache-2.0
// Folders with quantized weights that tests write, and the numbers they stand for.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "llm/arch/config.hpp"
#include "tenon/blocks.hpp"

namespace tenon::llm {

struct Folder {
  std::filesystem::path path;
  Runtime runtime{{.threads = 1, .use_environment = false, .use_builtin_dir = false}};
  Store store{runtime};
  Folder() {
    char name[] = "/tmp/tenon-quantized-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }

  template <class T>
  void add(const std::string& name, tenon_dtype dtype, std::vector<int64_t> dims,
           const std::vector<T>& numbers) {
    store.set(TENON_SPACE_WEIGHT, name, {dtype, std::move(dims)}, numbers.data(),
              numbers.size() * sizeof(T));
  }
  // f32 numbers in another dtype.
  void add_floats(const std::string& name, tenon_dtype dtype, std::vector<int64_t> dims,
                  const std::vector<float>& numbers) {
    store.set(TENON_SPACE_WEIGHT, name, Tensor(std::move(dims), numbers).to(dtype));
  }
  TensorSource source(const Quantization& q, const DecodeOptions& o = {}) const {
    store.save(TENON_SPACE_WEIGHT, (path / "model.safetensors").string());
    return quantized_tensors(path.string(), q, o);
  }
  // A weight as f32 numbers.
  std::vector<float> decoded(const TensorSource& s, const std::string& name) const {
    Store to(runtime);
    s.load(to);
    const Tensor t = to.get(TENON_SPACE_WEIGHT, name);
    CHECK(t.type() == s.types.at(name));
    if (in_blocks(t.dtype())) {
      const tenon_block block = tenon_dtype_block(t.dtype());
      std::vector<float> out(t.size() / block.bytes * block.elements);
      const auto* const bytes = static_cast<const std::byte*>(t.data());
      for (size_t b = 0; b < t.size() / block.bytes; ++b)
        sdk::decode_block(t.dtype(), bytes + b * block.bytes, &out[b * block.elements]);
      return out;
    }
    const Tensor wide = t.to(f32);
    const auto v = wide.values<float>();
    return {v.begin(), v.end()};
  }
  std::string refusal(const Quantization& q) const {
    try {
      source(q);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
};

inline Quantization read(const Json& object, const char* model_type = "llama") {
  const Json config{{"model_type", model_type}, {"quantization_config", object}};
  ConfigReader r(config, "config.json");
  return read_quantization(r);
}

inline std::string refused(const Json& object, const char* model_type = "llama") {
  try {
    read(object, model_type);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

inline bool contains(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CAPTURE(part);
  return text.find(part) != text.npos;
}

// Columns and rows of a packed weight, and its integers (column + 3 * row) % 16.
inline constexpr int64_t kIn = 64, kOut = 8;
inline uint32_t level(int64_t row, int64_t column) {
  return static_cast<uint32_t>(column + 3 * row) % 16;
}

// zeros: one per output, the same in both groups of 32 inputs. Scales are (1 + row) / 8, and twice
// that in the second group.
inline void add_gptq(Folder& f, const std::vector<uint32_t>& zeros, tenon_dtype scale_dtype = f16) {
  std::vector<uint32_t> words(kIn / 8 * kOut), z(2);
  for (int64_t c = 0; c < kIn; ++c)
    for (int64_t r = 0; r < kOut; ++r)
      words[static_cast<size_t>(c / 8 * kOut + r)] |= level(r, c) << 4 * (c % 8);
  for (size_t r = 0; r < zeros.size(); ++r) z[0] |= zeros[r] << 4 * r;
  z[1] = z[0];
  std::vector<float> scales(2 * kOut);
  for (int64_t r = 0; r < kOut; ++r) {
    scales[static_cast<size_t>(r)] = static_cast<float>(1 + r) / 8;
    scales[static_cast<size_t>(kOut + r)] = static_cast<float>(1 + r) / 4;
  }
  f.add("a.qweight", i32, {kIn / 8, kOut}, words);
  f.add("a.qzeros", i32, {2, 1}, z);
  f.add_floats("a.scales", scale_dtype, {2, kOut}, scales);
}

// The weight that add_gptq() describes.
inline std::vector<float> expected(const std::vector<int>& zeros) {
  std::vector<float> out;
  for (int64_t r = 0; r < kOut; ++r)
    for (int64_t c = 0; c < kIn; ++c)
      out.push_back(
          static_cast<float>(static_cast<int>(level(r, c)) - zeros[static_cast<size_t>(r)]) *
          static_cast<float>(1 + r) / (c < 32 ? 8 : 4));
  return out;
}

inline Json packed_groups(const Json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

inline const Json kGptq{
    {"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"desc_act", false}};

}  // namespace tenon::llm
