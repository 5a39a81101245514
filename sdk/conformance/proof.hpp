// SPDX-License-Identifier: Apache-2.0
// What is proven of a row: kernel = reference, also with strided operands; decomposition = kernel;
// gradients = finite differences; expected failures.
#pragma once

#include "kit.hpp"

namespace tenon::conform {

struct Bench {  // where the proofs run
  const Runtime& runtime;
  std::string device;     // judged
  std::string reference;  // the oracle
  bool partial = false;   // what the judged device refuses is skipped
};

enum class Outcome : uint8_t { pass, fail, skip };
struct Result {
  std::string id;
  std::string sentence;
  std::string_view family;
  Outcome outcome = Outcome::pass;
  std::string reason{};
  double milliseconds = 0;
};

// A piece of work whose proofs share the reference's result: a row at one dtype, or its gradients.
struct Unit {
  const FamilyRow* row;
  tenon_dtype dtype;  // NONE: the gradients
  std::vector<std::string> ids() const;
};
std::vector<Unit> units_of(const Suite& suite);

// `wanted` says which case ids to prove.
std::vector<Result> prove(const Bench& bench, const Unit& unit,
                          const std::function<bool(const std::string&)>& wanted);

// gradient.cpp. Empty, or what is off. order 1 or 2.
std::string prove_gradient(const Bench& bench, const CaseRow& row, double scale, int order);

}  // namespace tenon::conform
