// SPDX-License-Identifier: Apache-2.0
// What is proven of a row: kernel = reference, also with strided operands; decomposition = kernel;
// gradients = finite differences; expected failures. Or, of a row among neighbours: fusion on =
// off.
#pragma once

#include "kit.hpp"
#include "rooms.hpp"

namespace tenon::conform {

enum class Outcome : uint8_t { pass, fail, skip, crash, hang };  // the last two: --isolate only
struct Result {
  std::string id;
  std::string sentence;
  std::string_view family;
  Outcome outcome = Outcome::pass;
  std::string reason{};
  double milliseconds = 0;
  bool joined = false;      // of a proof of fusion: something was
  bool own_joined = false;  // a node of the case's own among it
  bool refused = false;     // skipped because the device refuses it
  std::string output{};     // of its process, with --isolate

  // The case turned out to have nothing to prove. It counts nowhere.
  bool is_void() const { return outcome == Outcome::skip && reason.empty(); }
};

struct Bench {  // where the proofs run
  const Runtime& runtime;
  std::string device;            // judged
  std::string reference;         // the oracle
  bool partial = false;          // what the judged device refuses is skipped
  bool may_refuse = false;       // and is not counted as refused: see CaseRow
  bool fusion = false;           // proves that only: see fusion.cpp
  bool run_only = false;         // results are not compared, with nothing
  const Rooms* rooms = nullptr;  // inputs and outputs of the judged device are bound to these
  ExecutableOptions modes{};     // how the judged device compiles and runs: exec_mode, lanes, aot
  // (optional) Called before and after each case. [any thread]
  std::function<void(const std::string& id)> begin{};
  std::function<void(const Result& result)> end{};
};

// One proof of a row. Both names are unique, and stay as they are when cases are added or
// reordered.
struct Case {
  std::string id;           // softmax-f16-strided
  std::string requirement;  // op.softmax.softmax.strided.f16
  const char* proof;  // value strided decomposed zeros error gradient second-order beside chain
};

// What is known of a unit before it runs.
struct Facts {
  std::vector<Case> cases{};
  std::vector<CaseBuilder::Used> ops{};
  Level level = Level::primitive;
  int64_t elements = 0;  // of the greatest among the inputs and outputs
  bool empty = false;    // one of them has no elements
};

// A piece of work whose proofs share the reference's result: a row at one dtype, or its gradients.
struct Unit {
  const FamilyRow* row;
  tenon_dtype dtype;  // NONE: the gradients
  bool fusion = false;
  Facts facts() const;
};
struct GradientCase {
  std::string id, how;
  double scale;
  int order;
};
std::vector<GradientCase> gradient_cases(const CaseRow& row);
// Once a row: zero sizes are the same affair in every dtype.
bool has_zeros(const CaseRow& row, tenon_dtype dtype);

std::vector<Unit> units_of(const Suite& suite, bool fusion);

// `wanted` says which case ids to prove.
std::vector<Result> prove(const Bench& bench, const Unit& unit,
                          const std::function<bool(const std::string&)>& wanted);

using Tensors = std::map<std::string, HostTensor>;
struct Ran {
  Tensors outputs{};
  std::string report{};
};
// Compiles and runs a case as built; its outputs, and its error scales as "scale of NAME".
Ran run_case(const Bench& bench, CaseBuilder& b, const ExecutableOptions& options);
// The row's id with its dtype.
std::string stem(const CaseRow& row, tenon_dtype dtype);
// "op.FAMILY.ROW.PROOF", and the dtype if it is not NONE. Unlike a case's id, it does not depend on
// the row's other dtypes.
std::string requirement(const FamilyRow& row, std::string_view proof, tenon_dtype dtype);
// Of a report's nodes, how many the device has no kernel for.
size_t decomposed_count(const std::string& report);
// Judges one case: `proof` gives what is off, or a reason after kSkip to prove nothing.
inline constexpr std::string_view kSkip = "skip: ";
Result judged(const Bench& bench, Result r, const std::function<std::string(Result&)>& proof);

// fusion.cpp. The row at one dtype among neighbours that fusion may take.
std::vector<Case> fusion_cases(const FamilyRow& row, tenon_dtype dtype);
std::vector<Result> prove_fusion(const Bench& bench, const FamilyRow& row, tenon_dtype dtype,
                                 const std::function<bool(const std::string&)>& wanted);

// gradient.cpp. Empty, or what is off. order 1 or 2.
std::string prove_gradient(const Bench& bench, const CaseRow& row, double scale, int order);

}  // namespace tenon::conform
