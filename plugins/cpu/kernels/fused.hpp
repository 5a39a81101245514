// SPDX-License-Identifier: Apache-2.0
// Fused nodes: a body, compiled to a short list of steps over tiles. Tiles stay in the first-level
// cache between steps, with halves widened to float. Ops are looked up when the body is compiled,
// never at run time.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "elementwise.hpp"
#include "fused_block.hpp"
#include "reduce.hpp"
#include "tenon/body.hpp"

namespace tenon::cpu {

// A compiled body, independent of shapes. Its values are registers: inputs, constants, and results
// of steps.
class FusedBody {
 public:
  static constexpr int kMaxRegisters = 160;
  struct Step {
    TileOp op;
    std::array<int, 3> operands{};
    int operand_count = 0;
    int result = 0;
    // If set, replaces `op`. Takes the first and the last operand, or one operand and the scalar.
    BlockRun run = nullptr;
    float scalar = 0;
    uint32_t source = TENON_NONE;  // the step of the body; none where a step does what several do
  };
  struct Register {
    enum class Kind : uint8_t { input, constant, slot, output } kind{};
    int index = 0;  // of the input, constant, slot or output
    int made = -1;  // the step that computes it; -1: an input or constant
    int last = -1;  // the last step that reads it
    tenon_dtype dtype = TENON_DTYPE_NONE;
  };
  struct Fold {
    Reduction how;
    std::vector<int64_t> axes;  // empty if `all`
    bool all = false;
    int operand = 0;  // register
    int output = 0;
  };

  // Throws Refusal if a step has no tile function.
  explicit FusedBody(const sdk::Body& body);

  std::span<const Step> steps() const { return steps_; }
  std::span<const Register> registers() const { return registers_; }
  int input_count() const { return input_count_; }
  // The register of output k; -1 for the output of the fold.
  std::span<const int> outputs() const { return outputs_; }
  const std::optional<Fold>& fold() const { return fold_; }
  int slot_count() const { return slot_count_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  const void* constant(int k) const { return constants_.get() + k * slot_bytes_; }
  // The least rank of the shape, as the constants require it.
  int least_rank() const { return least_rank_; }
  // Runs a step over n elements. tiles: by register.
  static void run(const Step& step, void* const* tiles, int64_t n);

 private:
  void read_values(const sdk::Body& body);
  void read_step(const sdk::Body& body, uint32_t step);
  void find_block(const sdk::Body& body, uint32_t step, Step* to) const;
  void read_fold(const sdk::Body& body, uint32_t step);
  void fill_constants(const sdk::Body& body);
  bool tabulate();                         // false if there is nothing to look up
  bool join_bytes(const sdk::Body& body);  // false if there is nothing to join
  void drop_unread_steps();
  void give_slots();

  std::vector<Step> steps_;
  std::vector<Register> registers_;
  std::vector<int> register_of_;  // by value of the body
  std::vector<uint32_t> constant_values_;
  std::vector<int> outputs_;
  std::optional<Fold> fold_;
  int input_count_ = 0, slot_count_ = 0, least_rank_ = 0;
  int64_t slot_bytes_ = 0;
  std::shared_ptr<char> constants_;
};

sdk::Kernel make_elementwise_region(const sdk::op::elementwise_region& n, const sdk::Node& node);
sdk::Kernel make_batch_elementwise_region(const sdk::op::batch_elementwise_region& n,
                                          const sdk::Node& node);

}  // namespace tenon::cpu
