// SPDX-License-Identifier: Apache-2.0
// Steps of a body between 8-bit integers that become one: a table, or a sum or product of dequantized
// operands that is quantized.
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <vector>

#include "byte_table.hpp"
#include "fused.hpp"
#include "quantize.hpp"

namespace tenon::cpu {

using sdk::Body;

// ---- tables: an 8-bit value that depends on one 8-bit value alone is looked up, whatever the steps
// between them compute

bool FusedBody::tabulate() {
  constexpr int kNone = -1, kAny = -2;  // depends on several values, on constants alone
  constexpr int64_t kEntries = 256;
  const auto is_byte = [&](int r) {
    const tenon_dtype t = registers_[static_cast<size_t>(r)].dtype;
    return t == TENON_DTYPE_I8 || t == TENON_DTYPE_U8;
  };
  std::vector<int> root(registers_.size(), kNone);
  for (int r = 0; r < static_cast<int>(registers_.size()); ++r)
    if (registers_[static_cast<size_t>(r)].kind == Register::Kind::constant)
      root[static_cast<size_t>(r)] = kAny;
    else if (registers_[static_cast<size_t>(r)].made < 0 && is_byte(r))
      root[static_cast<size_t>(r)] = r;
  std::vector<int> looked_up;  // steps
  for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
    const Step& step = steps_[static_cast<size_t>(i)];
    int& of = root[static_cast<size_t>(step.result)];
    of = kAny;
    bool bytes = true;
    for (int k = 0; k < step.operand_count; ++k) {
      const int r = step.operands[static_cast<size_t>(k)];
      const int from = root[static_cast<size_t>(r)];
      bytes &= is_byte(r);
      if (from != kAny && of != kNone) of = of == kAny || of == from ? from : kNone;
    }
    if (!is_byte(step.result)) continue;
    if (of == kNone)
      of = step.result;
    else if (of != kAny && !bytes)
      looked_up.push_back(i);
  }
  if (looked_up.empty()) return false;
  std::vector<char> memory(registers_.size() * kEntries * sizeof(double));
  std::vector<void*> tiles(registers_.size());
  for (size_t r = 0; r < registers_.size(); ++r)
    tiles[r] = registers_[r].kind == Register::Kind::constant
                   ? const_cast<void*>(constant(registers_[r].index))  // only read
                   : memory.data() + r * kEntries * sizeof(double);
  const auto value = [&](int r) { return static_cast<uint8_t*>(tiles[static_cast<size_t>(r)]); };
  for (size_t r = 0; r < root.size(); ++r)
    if (root[r] == static_cast<int>(r)) std::iota(value(root[r]), value(root[r]) + kEntries, 0);
  for (const Step& step : steps_) {
    const int of = root[static_cast<size_t>(step.result)];
    if (of != kNone && of != step.result) run(step, tiles.data(), kEntries);
  }
  for (const int i : looked_up) {
    Step& step = steps_[static_cast<size_t>(i)];
    const auto table = std::make_shared<ByteTable>();
    std::copy_n(value(step.result), kEntries, table->begin());
    step = {.op =
                [table](const void* const* x, void* y, int64_t n) {
                  look_up(*table, static_cast<const uint8_t*>(x[0]), static_cast<uint8_t*>(y), n);
                },
            .operands = {root[static_cast<size_t>(step.result)]},
            .operand_count = 1,
            .result = step.result};
  }
  return true;
}

// ---- quantize(a op b): one step, with the dequantize of a and of b

bool FusedBody::join_bytes(const Body& body) {
  std::vector<int> readers(registers_.size());
  for (const Step& step : steps_)
    for (int k = 0; k < step.operand_count; ++k)
      ++readers[static_cast<size_t>(step.operands[static_cast<size_t>(k)])];
  for (const int r : outputs_)
    if (r >= 0) ++readers[static_cast<size_t>(r)];
  if (fold_) ++readers[static_cast<size_t>(fold_->operand)];
  // The step of this op that makes a register for one reader.
  const auto maker = [&](int r, std::string_view op) -> const Step* {
    const int made = registers_[static_cast<size_t>(r)].made;
    if (made < 0 || readers[static_cast<size_t>(r)] != 1) return nullptr;
    const Step& step = steps_[static_cast<size_t>(made)];
    return step.source != TENON_NONE && body.op(step.source) == op ? &step : nullptr;
  };
  bool any = false;
  for (Step& step : steps_) {
    if (step.source == TENON_NONE || body.op(step.source) != sdk::op::quantize::kName) continue;
    const Step* const binary = maker(step.operands[0], sdk::op::binary::kName);
    if (binary == nullptr) continue;
    std::optional<QuantizedBinary> joined = quantized_binary(
        body.as<sdk::op::binary>(binary->source), body.as<sdk::op::quantize>(step.source),
        registers_[static_cast<size_t>(step.result)].dtype);
    if (!joined) continue;
    std::array<int, 3> operands = binary->operands;
    for (size_t k = 0; k < 2; ++k) {
      const Step* const made = maker(operands[k], sdk::op::dequantize::kName);
      const auto from =
          made == nullptr ? std::nullopt
                          : dequantized_operand(body.as<sdk::op::dequantize>(made->source),
                                                registers_[static_cast<size_t>(operands[k])].dtype);
      if (!from) continue;
      (k == 0 ? joined->a : joined->b) = *from;
      operands[k] = made->operands[0];
    }
    step = {.op = quantized_binary_tiles(*joined),
            .operands = operands,
            .operand_count = 2,
            .result = step.result};
    any = true;
  }
  return any;
}

}  // namespace tenon::cpu
