// SPDX-License-Identifier: Apache-2.0
// Compiles a body: selects the tile function of each step, and assigns a tile to each value.
#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "fused.hpp"
#include "quantize.hpp"

namespace tenon::cpu {
namespace {

using sdk::Body;
using sdk::Refusal;

// The dtype of a value's tile.
tenon_dtype work_dtype(tenon_dtype t) { return is_half(t) ? tenon_dtype{TENON_DTYPE_F32} : t; }
int64_t work_size(tenon_dtype t) { return tenon_dtype_bits(work_dtype(t)) / 8; }

// A constant's element as float.
float scalar_of(const Body& body, uint32_t v) {
  float value;
  if (is_half(body.type(v).dtype))
    widen(body.type(v).dtype, body.content(v), &value, 1);
  else
    std::memcpy(&value, body.content(v), sizeof value);
  return value;
}

TileOp copy_tiles(tenon_dtype t) {
  return [size = work_size(t)](const void* const* x, void* y, int64_t n) {
    std::memcpy(y, x[0], static_cast<size_t>(n * size));
  };
}

// Rounds to the half-precision dtype, then widens again.
TileOp cast_tiles(tenon_dtype from, tenon_dtype to, bool saturate) {
  if (!castable(from)) throw Refusal::dtype("x", from);
  if (!castable(to)) throw Refusal::attribute("to", sdk::dtype_name(to));
  const tenon_dtype source = work_dtype(from);
  if (is_half(to)) {
    return [=](const void* const* x, void* y, int64_t n) {
      alignas(64) uint16_t rounded[kTile];
      cast_tile(source, to, saturate, x[0], rounded, n);
      widen(to, rounded, static_cast<float*>(y), n);
    };
  }
  if (source == to) return copy_tiles(to);
  return [=](const void* const* x, void* y, int64_t n) {
    cast_tile(source, to, saturate, x[0], y, n);
  };
}

template <class Op, TileOp (*tiles)(const Op&, tenon_dtype)>
TileOp step_tiles(const Body& body, uint32_t step, tenon_dtype out) {
  return tiles(body.as<Op>(step), out);
}

struct Maker {
  std::string_view op;
  TileOp (*make)(const Body& body, uint32_t step, tenon_dtype out);
};
constexpr Maker kMakers[] = {
    {sdk::op::binary::kName, step_tiles<sdk::op::binary, binary_tiles>},
    {sdk::op::compare::kName, step_tiles<sdk::op::compare, compare_tiles>},
    {sdk::op::logical::kName, step_tiles<sdk::op::logical, logical_tiles>},
    {sdk::op::unary::kName, step_tiles<sdk::op::unary, unary_tiles>},
    {sdk::op::activation_backward::kName,
     step_tiles<sdk::op::activation_backward, activation_backward_tiles>},
    {sdk::op::where::kName, step_tiles<sdk::op::where, where_tiles>},
    {sdk::op::cast::kName,
     [](const Body& body, uint32_t step, tenon_dtype out) {
       const auto n = body.as<sdk::op::cast>(step);
       if (n.to != out) throw Refusal::dtype("y", out);
       return cast_tiles(n.x.type().dtype, out, n.saturate);
     }},
    {sdk::op::quantize::kName, step_tiles<sdk::op::quantize, quantize_tiles>},
    {sdk::op::dequantize::kName, step_tiles<sdk::op::dequantize, dequantize_tiles>},
    {sdk::op::copy::kName,
     [](const Body& body, uint32_t step, tenon_dtype out) {
       if (body.as<sdk::op::copy>(step).x.type().dtype != out) throw Refusal::dtype("y", out);
       return copy_tiles(out);
     }},
};

}  // namespace

FusedBody::FusedBody(const Body& body) {
  read_values(body);
  outputs_.assign(body.outputs().size(), -1);
  for (uint32_t i = 0; i < body.step_count(); ++i) {
    if (body.op(i) == sdk::op::reduce::kName)
      read_fold(body, i);
    else
      read_step(body, i);
  }
  for (size_t k = 0; k < outputs_.size(); ++k) {
    if (fold_ && fold_->output == static_cast<int>(k)) continue;
    outputs_[k] = register_of_[body.outputs()[k]];
  }
  fill_constants(body);
  if (tabulate()) drop_unread_steps();
  if (join_bytes(body)) drop_unread_steps();
  give_slots();
}

void FusedBody::read_values(const Body& body) {
  register_of_.assign(body.value_count(), -1);
  const auto add = [&](uint32_t v, Register r) {
    if (tenon_dtype_bits(r.dtype) < 8) throw Refusal::dtype("xs", r.dtype);
    register_of_[v] = static_cast<int>(registers_.size());
    registers_.push_back(r);
    slot_bytes_ = std::max(slot_bytes_, kTile * work_size(r.dtype));
  };
  for (uint32_t v : body.inputs())
    add(v, {.kind = Register::Kind::input, .index = input_count_++, .dtype = body.type(v).dtype});
  for (uint32_t v = 0; v < body.value_count(); ++v) {
    if (body.space(v) != TENON_SPACE_CONSTANT) continue;
    add(v, {.kind = Register::Kind::constant,
            .index = static_cast<int>(constant_values_.size()),
            .dtype = body.type(v).dtype});
    constant_values_.push_back(v);
    least_rank_ = std::max(least_rank_, body.type(v).rank);
  }
}

void FusedBody::read_step(const Body& body, uint32_t i) {
  const auto maker = std::ranges::find(kMakers, body.op(i), &Maker::op);
  if (maker == std::end(kMakers))
    throw Refusal(TENON_REASON_OP, "step " + std::string(body.op(i)) + " of the body");
  const uint32_t result = body.outputs(i)[0];
  const tenon_dtype dtype = body.type(result).dtype;
  Step step{.op = maker->make(body, i, dtype), .source = i};
  const int at = static_cast<int>(steps_.size());
  for (uint32_t v : body.operands(i)) {
    if (v == TENON_NONE) continue;
    const int r = register_of_[v];
    step.operands[static_cast<size_t>(step.operand_count++)] = r;
    registers_[r].last = at;
  }
  find_block(body, i, &step);
  step.result = register_of_[result] = static_cast<int>(registers_.size());
  registers_.push_back({.kind = Register::Kind::slot, .made = at, .last = at, .dtype = dtype});
  slot_bytes_ = std::max(slot_bytes_, kTile * work_size(dtype));
  if (registers_.size() > kMaxRegisters)
    throw Refusal::shape("the body has more than " + std::to_string(kMaxRegisters) + " values");
  steps_.push_back(std::move(step));
}

// Called only after the tile functions were made, so that it cannot refuse.
void FusedBody::find_block(const Body& body, uint32_t i, Step* to) const {
  const auto operands = body.operands(i);
  if (work_dtype(body.type(body.outputs(i)[0]).dtype) != TENON_DTYPE_F32) return;
  if (body.op(i) == sdk::op::unary::kName) {
    const auto n = body.as<sdk::op::unary>(i);
    to->run = block_unary(make_activation(n.kind, n.alpha, n.beta));
  } else if (body.op(i) == sdk::op::binary::kName) {
    const bool left = body.space(operands[0]) == TENON_SPACE_CONSTANT,
               right = body.space(operands[1]) == TENON_SPACE_CONSTANT;
    const BlockForm form = left == right ? BlockForm::tiles
                           : right       ? BlockForm::right
                                         : BlockForm::left;
    to->run = block_binary(find_binary(body.as<sdk::op::binary>(i).kind), form);
    if (form != BlockForm::tiles) to->scalar = scalar_of(body, operands[right ? 1 : 0]);
  }
}

void FusedBody::read_fold(const Body& body, uint32_t i) {
  const auto n = body.as<sdk::op::reduce>(i);
  const std::optional<Reduction> how = find_reduction(n.kind);
  if (!how) throw Refusal::attribute("kind", n.kind);
  if (!is_float(n.x.type().dtype)) throw Refusal::dtype("x", n.x.type().dtype);
  if (n.axes.empty() && n.noop_with_empty_axes)
    throw Refusal::attribute("noop_with_empty_axes", "true");
  const auto output = std::ranges::find(body.outputs(), body.outputs(i)[0]);
  const int r = register_of_[body.operands(i)[0]];
  fold_ = {.how = *how,
           .axes = n.axes,
           .all = n.axes.empty(),
           .operand = r,
           .output = static_cast<int>(output - body.outputs().begin())};
  registers_[r].last = static_cast<int>(steps_.size());
}

void FusedBody::fill_constants(const Body& body) {
  const size_t bytes = constant_values_.size() * static_cast<size_t>(slot_bytes_);
  constants_ = {new (std::align_val_t{64}) char[bytes + 64],
                [](char* p) { operator delete[](p, std::align_val_t{64}); }};
  for (size_t k = 0; k < constant_values_.size(); ++k) {
    const uint32_t v = constant_values_[k];
    char* tile = constants_.get() + static_cast<int64_t>(k) * slot_bytes_;
    const tenon_dtype dtype = body.type(v).dtype;
    char element[8];
    std::memcpy(element, body.content(v), static_cast<size_t>(element_bytes(dtype)));
    if (is_half(dtype)) {
      float wide;
      widen(dtype, body.content(v), &wide, 1);
      std::memcpy(element, &wide, sizeof wide);
    }
    with_size(work_size(dtype), [&]<class T>(T value) {
      std::memcpy(&value, element, sizeof value);
      std::fill_n(reinterpret_cast<T*>(tile), kTile, value);
    });
  }
}

void FusedBody::drop_unread_steps() {
  std::vector<bool> read(registers_.size());
  for (const int r : outputs_)
    if (r >= 0) read[static_cast<size_t>(r)] = true;
  if (fold_) read[static_cast<size_t>(fold_->operand)] = true;
  std::vector<Step> left;
  for (size_t i = steps_.size(); i-- > 0;) {
    Step& step = steps_[i];
    if (!read[static_cast<size_t>(step.result)]) continue;
    for (int k = 0; k < step.operand_count; ++k)
      read[static_cast<size_t>(step.operands[static_cast<size_t>(k)])] = true;
    left.push_back(std::move(step));
  }
  std::ranges::reverse(left);
  steps_ = std::move(left);
  for (Register& r : registers_) r.made = r.last = -1;
  for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
    const Step& step = steps_[static_cast<size_t>(i)];
    for (int k = 0; k < step.operand_count; ++k)
      registers_[static_cast<size_t>(step.operands[static_cast<size_t>(k)])].last = i;
    Register& result = registers_[static_cast<size_t>(step.result)];
    result.made = result.last = i;
  }
  if (fold_) registers_[static_cast<size_t>(fold_->operand)].last = static_cast<int>(steps_.size());
}

void FusedBody::run(const Step& s, void* const* tiles, int64_t n) {
  const void* x[3] = {};
  for (size_t k = 0; k < static_cast<size_t>(s.operand_count); ++k)
    x[k] = tiles[static_cast<size_t>(s.operands[k])];
  void* const y = tiles[static_cast<size_t>(s.result)];
  if (s.run)
    s.run(static_cast<const float*>(x[0]), static_cast<const float*>(x[1]), s.scalar,
          static_cast<float*>(y), n);
  else
    s.op(x, y, n);
}

// Outputs are computed in place. Other values share slots; a slot is free again after the last step
// that reads it.
void FusedBody::give_slots() {
  for (size_t k = 0; k < outputs_.size(); ++k) {
    if (outputs_[k] < 0) continue;
    Register& r = registers_[outputs_[k]];
    r.last = static_cast<int>(steps_.size());
    if (is_half(r.dtype)) continue;
    r.kind = Register::Kind::output;
    r.index = static_cast<int>(k);
  }
  std::vector<int> free;
  for (int i = 0; i < static_cast<int>(steps_.size()); ++i) {
    const Step& step = steps_[static_cast<size_t>(i)];
    Register& result = registers_[step.result];
    const auto release = [&](bool in_place) {
      for (int k = 0; k < step.operand_count; ++k) {
        Register& r = registers_[step.operands[static_cast<size_t>(k)]];
        const bool same = work_size(r.dtype) == work_size(result.dtype);
        if (r.kind == Register::Kind::slot && r.last == i && same == in_place &&
            std::ranges::find(free, r.index) == free.end())
          free.push_back(r.index);
      }
    };
    release(true);
    if (result.kind == Register::Kind::slot) {
      if (free.empty()) free.push_back(slot_count_++);
      result.index = free.back();
      free.pop_back();
    }
    release(false);
  }
}

}  // namespace tenon::cpu
