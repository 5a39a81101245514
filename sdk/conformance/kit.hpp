// SPDX-License-Identifier: Apache-2.0
// What a case is. A row says how to build a graph over a data dtype, what its error may be and
// whether it is differentiable; from each row the kit derives its proofs (proof.hpp).
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenon/unary.hpp>

#include "number.hpp"

namespace tenon::conform {

using Dims = std::vector<int64_t>;

// Content of an input: the same for every device, dtype and layout, but for the dtype's rounding.
class Fill {
 public:
  static Fill uniform(double lo, double hi) { return Fill(Kind::uniform, lo, hi); }
  static Fill normal(double scale = 1) { return Fill(Kind::normal, 0, scale); }
  // Evenly spaced numbers in random order: no two are equal.
  static Fill distinct(double lo, double hi) { return Fill(Kind::distinct, lo, hi); }
  static Fill integers(int64_t lo, int64_t hi) {
    return Fill(Kind::integers, static_cast<double>(lo), static_cast<double>(hi));
  }
  // Repeated when there are fewer than elements.
  static Fill list(std::vector<double> values) {
    Fill f(Kind::list, 0, 0);
    f.values_ = std::move(values);
    return f;
  }
  static Fill exact(std::vector<int64_t> values) {
    Fill f(Kind::exact, 0, 0);
    f.exact_ = std::move(values);
    return f;
  }
  // Blocks of random bytes, with scales of ordinary size; anything: their scales are random too, with
  // infinities and NaN among them.
  static Fill blocks(bool anything = false) {
    return Fill(Kind::blocks, 0, anything ? 1 : 0).fixed();
  }
  // Blocks of f8e4m3_128 with all codes: subnormals, zeros of both signs, and NaN in few blocks. Scales
  // are large, small, negative and 0.
  static Fill f8_specials() { return Fill(Kind::blocks, 0, 2).fixed(); }
  // Puts these at places spread over the tensor.
  Fill with(std::vector<double> specials) const {
    Fill f = *this;
    f.specials_ = std::move(specials);
    return f;
  }
  // Takes no part in gradients: neither scaled nor differentiated.
  Fill fixed() const {
    Fill f = *this;
    f.fixed_ = true;
    return f;
  }
  bool is_fixed() const { return fixed_; }
  HostTensor make(const TensorType& type, std::string_view seed, double scale) const;

 private:
  enum class Kind : uint8_t { uniform, normal, distinct, integers, list, exact, blocks };
  Fill(Kind kind, double lo, double hi) : kind_(kind), lo_(lo), hi_(hi) {}
  Kind kind_;
  double lo_, hi_;
  bool fixed_ = false;
  std::vector<double> values_{}, specials_{};
  std::vector<int64_t> exact_{};
};

// How far an output may be from the reference y, see judge.hpp:
//   exact   the reference, rounded to the output's dtype
//   ulps    that many units in the last place of f32 or f64, one of a half dtype
//   factor  factor * eps_acc * scale + eps_out * |y|, scale being |y| unless the case says its own
// ulps and factor add up where both are given.
struct Tolerance {
  bool is_exact = false;
  double ulps = 0;
  double factor = 0;
};
inline constexpr Tolerance kExact{.is_exact = true};
constexpr Tolerance ulps(double n) { return {.ulps = n}; }
Tolerance sum_of(int64_t terms);      // 2 log2 n + 16
Tolerance product_of(int64_t terms);  // 2 sqrt K + 16
constexpr Tolerance scaled(double factor) { return {.factor = factor}; }

// What a device must do for a case, each level with those before it; README.md says when a device
// reaches one.
//   primitive  an op, or a kind of one, without a decomposition
//   core       an op of tenon that has a decomposition
//   full       all else: control flow, registered ops, gradients, fusion
enum class Level : uint8_t { primitive, core, full };
constexpr Level level_of(OpLevel op, bool composite) {
  if (op == OpLevel::meta || op == OpLevel::control) return Level::full;
  return composite ? Level::core : Level::primitive;
}

// What a build function sees. Data inputs have the case's dtype; in the reference all floats are
// f64 and hold the same rounded numbers.
class CaseBuilder {
 public:
  struct Mode {
    std::string seed;
    tenon_dtype dtype = f32;  // whose rounding the inputs have
    bool reference = false;   // floats are f64, and the error scales are computed
    bool strided = false;     // inputs arrive transposed or with gaps, the graph restores them
    double scale = 1;         // of inputs that are not fixed
    bool made = false;        // operands are made by elementwise nodes that keep every number
    bool blank = false;       // inputs are zeros: the case is only compiled and run, or looked at
    int64_t zero = -1;        // input dims of this length are zero instead
  };
  struct Input {
    std::string name;
    HostTensor content;
    bool differentiable;
    Value value;
    Value restored{}, read{};  // in the case's layout; what the case reads
  };
  struct Output {
    std::string name;
    Value value;
    std::optional<Tolerance> tolerance;
    bool differentiable = true;
    std::vector<double> expected;
    bool has_expected = false;
  };

  explicit CaseBuilder(Mode mode) : mode_(std::move(mode)) {}

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  tenon_dtype dtype() const { return as(mode_.dtype); }
  // The case's dtype, and the one its sums are made in: what inputs are rounded to.
  tenon_dtype own() const { return mode_.dtype; }
  tenon_dtype own_acc() const { return acc_dtype(mode_.dtype); }
  // A dtype as this graph has it.
  tenon_dtype as(tenon_dtype dtype) const {
    return mode_.reference && is_float(dtype) ? f64 : dtype;
  }

  Value input(std::string_view name, const Dims& dims, const Fill& fill = Fill::normal()) {
    return input(name, mode_.dtype, dims, fill);
  }
  Value input(std::string_view name, tenon_dtype dtype, const Dims& dims, const Fill& fill);
  // An operand of what surrounds the case: nothing is done to it.
  Value neighbour(std::string_view name, const TensorType& type, const Fill& fill);
  Value ints(std::string_view name, const Dims& dims, std::vector<int64_t> values,
             tenon_dtype dtype = i64) {
    return input(name, dtype, dims, Fill::exact(std::move(values)).fixed());
  }

  template <class Op>
  Node add(const Op& op) {
    const OpSchema* schema = find_op(Op::kName);
    bool composite = schema->level != OpLevel::primitive;
    if constexpr (std::is_same_v<Op, op::unary>) {
      const UnaryInfo* info = find_unary(op.kind);
      composite = info && !info->primitive;
    }
    has_composite_ |= composite;
    std::string kind;
    if constexpr (requires { std::string(op.kind); }) kind = op.kind;
    uses({std::string(Op::kName), kind, level_of(schema->level, composite)});
    remember(Op::kName);
    return graph_.add(op, "node");
  }
  // Shorthands that error scales are written in.
  Value unary(std::string_view kind, Value x) {
    return graph_.add(op::unary{.kind = std::string(kind), .x = x});
  }
  Value binary(std::string_view kind, Value a, Value b) {
    return graph_.add(op::binary{.kind = std::string(kind), .a = a, .b = b});
  }
  Value abs(Value x) { return unary("abs", x); }
  Value reduce(std::string_view kind, Value x, const Dims& axes, bool keepdims = true) {
    return graph_.add(
        op::reduce{.kind = std::string(kind), .axes = axes, .keepdims = keepdims, .x = x});
  }
  Value number(double x);  // of the data dtype

  void output(std::string_view name, Value v, std::optional<Tolerance> tolerance = {}) {
    outputs_.push_back({std::string(name), v, tolerance, true, {}, false});
  }
  // A float output whose gradient is not asked for.
  void side_output(std::string_view name, Value v, std::optional<Tolerance> tolerance = {}) {
    output(name, v, tolerance);
    outputs_.back().differentiable = false;
  }
  // Known values of an output, checked beside the reference and against it.
  void expect(std::string_view name, std::vector<double> values);
  // The error scale of an output, of its shape or broadcast to it; made in the reference only.
  void scale(std::string_view name, const std::function<Value()>& make) {
    if (mode_.reference) scales_.emplace(name, make());
  }

  // From here on inputs are those there are, by their names: the case is built once more beside
  // itself and shares an operand with itself, the others it reads before anything is done to them.
  void begin_twin() { twin_ = true; }
  // What the case said its outputs are, which then are none of the graph's.
  std::vector<Output> take_outputs() { return std::exchange(outputs_, {}); }
  void put_output(Output o) { outputs_.push_back(std::move(o)); }

  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const std::map<std::string, Value>& scales() const { return scales_; }
  bool has_composite() const { return has_composite_; }
  void set_composite() { has_composite_ = true; }
  // The ops of the case's own nodes, each once. A kind of an op counts as an op.
  struct Used {
    std::string op, kind;
    Level level;
    bool operator==(const Used&) const = default;
  };
  const std::vector<Used>& used() const { return used_; }
  void uses(Used op) {
    if (std::ranges::find(used_, op) == used_.end()) used_.push_back(std::move(op));
  }

  // Has any case of this process added a node of that op?
  static bool remembers(std::string_view op);

 private:
  static void remember(std::string_view op);
  HostTensor content_of(const Fill& fill, const TensorType& type, std::string_view name,
                        double scale) const;
  Value restored(std::string_view name, HostTensor content, bool differentiable);
  Value made(Value x, const std::string& name);

  Mode mode_;
  bool twin_ = false;
  Graph graph_{"case"};
  std::vector<Input> inputs_{};
  std::vector<Output> outputs_{};
  std::map<std::string, Value> scales_{};
  std::vector<Used> used_{};
  bool has_composite_ = false;
};

using Build = std::function<void(CaseBuilder&)>;
using DTypes = std::vector<tenon_dtype>;
inline const DTypes kFloats = {f32, f16, bf16, f64};
inline const DTypes kHalves = {f16, bf16};
inline const DTypes kInts = {i8, i16, i32, i64, u8, u16, u32, u64};
inline const DTypes kSigned = {i8, i16, i32, i64};
DTypes operator+(const DTypes& a, const DTypes& b);

struct CaseRow {
  std::string id;  // kebab, stable
  std::string sentence;
  DTypes dtypes = kFloats;  // one case each
  Build build;
  Tolerance tolerance = kExact;
  double decomposed = 1;  // the decomposition's tolerance, times the kernel's
  bool strided = true;
  bool gradient = false;  // finite differences, in f64 on the reference device
  bool second_order = false;
  std::vector<double> scales = {0.05, 1, 4};  // of the inputs in gradients
  bool known_only = false;  // the reference is what the case expects: no other device has the op
  bool may_refuse = false;  // a device need not have it: a refusal is skipped, and no level suffers
  tenon_code error = TENON_OK;  // expected failure: code and a part of its text
  std::string error_text{};
};

struct FamilyRow {
  std::string_view family;
  CaseRow row;
};

// How many cases of a family had something joined on the cpu plugin, and a node of the case's own, when this was
// written; about half of it, so that a lost claim is seen and a lost case is not.
struct Floor {
  size_t joined = 0, own_joined = 0;
};

// All rows, family by family.
class Suite {
 public:
  void add(CaseRow row) { rows_.push_back({family_, std::move(row)}); }
  // A case that must fail with this code and text.
  void add_failure(std::string id, std::string sentence, Build build, tenon_code code,
                   std::string text, tenon_dtype dtype = TENON_DTYPE_F32) {
    add({.id = std::move(id),
         .sentence = std::move(sentence),
         .dtypes = {dtype},
         .build = std::move(build),
         .error = code,
         .error_text = std::move(text)});
  }
  void begin(std::string_view family) { family_ = family; }
  // Every family says its own.
  void floor(const Floor& floor) { floors_[family_] = floor; }
  const std::vector<FamilyRow>& rows() const { return rows_; }
  const std::map<std::string_view, Floor>& floors() const { return floors_; }

 private:
  std::string_view family_{};
  std::vector<FamilyRow> rows_{};
  std::map<std::string_view, Floor> floors_{};
};

struct Family {
  std::string_view name;
  void (*cases)(Suite&);
};
const std::vector<Family>& families();

}  // namespace tenon::conform
