// SPDX-License-Identifier: Apache-2.0
// Steps in which rope, cache and attention of a layer are one node give the bits of those in which
// they are nodes of their own, in all families, on the cpu.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "asked_tensors.hpp"
#include "llm/arch/config.hpp"
#include "llm/arch/step.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

constexpr int64_t kSlots = 3, kCapacity = 12, kBlock = 4, kBlocks = 11, kSteps = 17;

// Random numbers, the same for each name. Rows of matrices have a length of about 1.
std::vector<std::byte> numbers(const std::string& name, const TensorType& type) {
  std::seed_seq seed(name.begin(), name.end());
  std::mt19937 random(seed);
  Tensor t(type);
  const double scale =
      type.dims.size() < 2 ? 1 : 1.7 / std::sqrt(static_cast<double>(type.dims.back()));
  for (int64_t i = 0; i < type.elements(); ++i) {
    const float v = static_cast<float>(scale * (random() * 0x1p-31 - 1));
    if (type.dtype == f32)
      static_cast<float*>(t.data())[i] = v;
    else  // bf16
      static_cast<uint16_t*>(t.data())[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
  }
  const auto* const bytes = static_cast<const std::byte*>(t.data());
  return {bytes, bytes + t.size()};
}

StepShape shape_of(tenon_dtype compute, bool blocks, bool joint) {
  return {.slots = kSlots,
          .capacity = kCapacity,
          .block = blocks ? kBlock : 0,
          .blocks = blocks ? kBlocks : 0,
          .batch = kSlots,
          .time = 1,
          .compute = compute,
          .cache = compute,
          .joint_decoding = joint};
}

const Runtime& runtime() {
  static const Runtime the;
  return the;
}

struct Run {
  std::string graph;
  std::vector<std::vector<float>> logits;      // of each token that was read
  std::vector<std::vector<std::byte>> caches;  // behind the last step
};
// Sequences that read tokens, and now and then nothing.
Run run(const ModelConfig& config, TensorSource tensors, const StepShape& shape) {
  tensors.load = [types = tensors.types](Store& store) {
    for (const auto& [name, type] : types) {
      const auto bytes = numbers(name, type);
      store.set(TENON_SPACE_WEIGHT, name, type, bytes.data(), bytes.size());
    }
  };
  Weights weights(std::move(tensors));
  std::vector<CacheState> caches;
  const Graph g = step_graph(config, shape, weights, &caches);
  Store store(runtime());
  weights.load(store);
  store.add_missing(g);
  for (const CacheState& c : caches) {
    const auto bytes = numbers(c.name, c.type);
    store.set(TENON_SPACE_STATE, c.name, c.type, bytes.data(), bytes.size());
  }
  const Executable executable(runtime(), g, store, {.device = "cpu"});
  Context context(executable);
  Run out{.graph = g.print(), .logits = {}, .caches = {}};
  std::vector<int64_t> past(kSlots);
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<int64_t> tokens, count, rows, table;
    for (int64_t b = 0; b < kSlots; ++b) {
      const int64_t at = past[static_cast<size_t>(b)];
      count.push_back((step + b) % 5 != 0 && at < kCapacity);
      tokens.push_back((step * 31 + b * 7) % config.vocab);
      for (int64_t k = 0; k < kCapacity / kBlock; ++k)
        table.push_back((b * (kCapacity / kBlock) + k) * 7 % kBlocks);
      rows.push_back(count.back() == 0
                         ? shape.rows()
                         : table[table.size() - kCapacity / kBlock + at / kBlock] * kBlock +
                               at % kBlock);
    }
    context.set("tokens", {kSlots, 1}, tokens);
    context.set("past", past);
    context.set("count", count);
    if (shape.block > 0) {
      context.set("rows", {kSlots, 1}, rows);
      context.set("block_table", {kSlots, kCapacity / kBlock}, table);
    }
    context.run();
    const auto logits = context.get<float>("logits");
    for (int64_t b = 0; b < kSlots; ++b) {
      if (count[static_cast<size_t>(b)] == 0) continue;
      ++past[static_cast<size_t>(b)];
      const auto begin = logits.begin() + b * config.vocab;
      out.logits.emplace_back(begin, begin + config.vocab);
    }
  }
  for (const CacheState& c : caches) {
    std::vector<std::byte> bytes(c.type.bytes());
    store.get(TENON_SPACE_STATE, c.name, bytes.data(), bytes.size());
    out.caches.push_back(std::move(bytes));
  }
  return out;
}

bool decodes_jointly(const Run& r) { return r.graph.find("decode_attention") != std::string::npos; }

}  // namespace

TEST_CASE("joint decoding: the bits of nodes of their own") {
  // Of these, attention has more parts, a mask, another cache, or is built by itself.
  const std::set<std::string> apart{"bloom",          "deepseek_v2", "deepseek_v3", "falcon_alibi",
                                    "glm4_moe_lite",  "gpt2",        "gpt_oss",     "granite_swa",
                                    "granitemoe_swa", "minicpm3",    "ministral3",  "mpt",
                                    "sarvam_mla",     "youtu"};
  int joint = 0;
  for (const auto& [family, json] : family_configs(TENON_LLM_CONFIGS)) {
    const ModelConfig config = parse_config(json.dump(), "config.json");
    if (config.recurrent()) continue;
    const TensorSource tensors = asked_tensors(family, [&](const TensorSource& source) {
      Weights weights(source);
      step_graph(config, shape_of(f32, false, false), weights);
    });
    for (const bool blocks : {false, true})
      for (const tenon_dtype compute : {f32, bf16}) {
        CAPTURE(family);
        CAPTURE(blocks);
        CAPTURE(compute);
        const Run nodes = run(config, tensors, shape_of(compute, blocks, false)),
                  one = run(config, tensors, shape_of(compute, blocks, true));
        CHECK(!decodes_jointly(nodes));
        CHECK(decodes_jointly(one) != apart.contains(family));
        joint += decodes_jointly(one);
        CHECK(one.logits == nodes.logits);
        CHECK(one.caches == nodes.caches);
        REQUIRE(nodes.logits.size() == kSlots * kCapacity);
        for (const std::vector<float>& row : nodes.logits)
          REQUIRE(std::ranges::all_of(row, [](float v) { return std::isfinite(v); }));
        CHECK(nodes.logits[4] != nodes.logits[5]);
      }
  }
  CHECK(joint >= 80);
}
