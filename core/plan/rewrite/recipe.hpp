// SPDX-License-Identifier: Apache-2.0
// Decompositions whose nodes a device takes, and what nodes cost on a device.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "host/rates.hpp"
#include "plan/rewrite/claims.hpp"

namespace tenon::core {

// A node written in ops that its device takes, in a graph of its own.
struct Recipe {
  bool legal = false;
  std::string why{};  // when not legal: what no device op could be found for
  Graph graph{};
  std::vector<Value> operands{};  // of graph: what stands for the node's, by position
  std::optional<double> said{},
      priced{};  // seconds: as the device says, and as rates tell the rest
};

// Seconds so far and those of one part more; unknown when one of them is.
void add_seconds(std::optional<double>& sum, std::optional<double> part);
std::optional<double> said_by(const Verdict& v);

class Recipes {
 public:
  // decompose_all: a claim of what can be decomposed counts as refused. rates: of all devices, or
  // none.
  Recipes(const Query& query, bool decompose_all, std::span<const Rates> rates)
      : query_(query), decompose_all_(decompose_all), rates_(rates) {}

  std::vector<Verdict> verdicts(const Graph& g, uint32_t d) const;
  // Of a node of g on device d, each form once.
  const Recipe& of(const Graph& g, const NodeInfo& node, uint32_t d);
  // Seconds, as the device says, else as its rates tell; unknown without them.
  std::optional<double> price(const Graph& g, const NodeInfo& node, const Verdict& v,
                              uint32_t d) const;
  // Copies a recipe's nodes into `to`, in the node's place; returns its results, by position.
  std::vector<Value> write(const Recipe& recipe, const std::vector<Value>& operands, Graph& to,
                           const NodeInfo& node, Marks marks);
  // A number that no group of the written graphs has.
  uint32_t new_group() { return next_group_++; }

 private:
  Recipe make(const Graph& g, const NodeInfo& node, uint32_t d);

  const Query& query_;
  bool decompose_all_;
  std::span<const Rates> rates_;
  std::unordered_map<std::string, Recipe> known_;  // by form_key and device
  int depth_ = 0;                                  // of recipes in the making
  uint32_t next_group_ = 0;
};

}  // namespace tenon::core
