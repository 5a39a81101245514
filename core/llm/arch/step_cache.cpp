// SPDX-License-Identifier: Apache-2.0
// The caches of a step: rows of keys and values, attention over them, and states of recurrent
// models.
#include "llm/arch/step.hpp"

namespace tenon::llm {

Value Step::positions() {
  if (positions_) return positions_;
  if (s.whole)
    return positions_ = g.add(op::iota{.shape = {1, s.time}, .axis = 1, .dtype = i64}, "positions");
  const Value first = reshape(past_, {s.batch, 1});
  const Value step = g.add(op::iota{.shape = {1, s.time}, .axis = 1, .dtype = i64});
  // Tokens behind the count may have no place; their results are not used.
  positions_ = g.add(
      op::binary{.kind = "min", .a = binary("add", first, step), .b = constant({s.capacity - 1})},
      "positions");
  return positions_;
}

// i64 [batch * time]: the row of each token in a cache [slots * capacity, ..]; behind the count
// slots * capacity, which the scatter skips.
Value Step::cache_rows() {
  if (rows_) return rows_;
  const Value slot =
      slot_ ? slot_ : Value(g.add(op::iota{.shape = {s.batch}, .axis = 0, .dtype = i64}));
  const Value first = reshape(binary("mul", slot, constant({s.capacity})), {s.batch, 1});
  const Value step = g.add(op::iota{.shape = {1, s.time}, .axis = 1, .dtype = i64});
  const Value counts =
      g.add(op::compare{.kind = "lt", .a = step, .b = reshape(count_, {s.batch, 1})});
  const Value row = binary("add", first, positions());
  const Value none = constant({s.rows()});  // skipped: out of range
  rows_ = reshape(g.add(op::where{.cond = counts, .a = row, .b = none}, "cache_rows"),
                  {s.batch * s.time});
  return rows_;
}

Value Step::gather_slots(Value state, const std::string& name) {
  return slot_ ? Value(g.add(op::gather{.data = state, .indices = slot_}, name)) : state;
}

// One axis for slots and tokens: a new row is then written in place.
Value Step::cache_state(const std::string& name, int64_t heads, int64_t dim) {
  const TensorType type(s.cache, {s.rows(), heads, dim});
  caches_.push_back({"cache." + name, type});
  return g.state("cache." + name, type);
}

Value Step::append(const std::string& name, Value rows, int64_t heads, int64_t dim) {
  if (in_blocks(s.cache) && dim % tenon_dtype_block(s.cache).elements != 0)
    throw Error(TENON_UNSUPPORTED, "cache." + name +
                                       ": expected a head_dim that is a multiple of " +
                                       std::to_string(tenon_dtype_block(s.cache).elements) +
                                       ", the block of " + std::string(sdk::dtype_name(s.cache)) +
                                       ", got " + std::to_string(dim) + "; hint: a cache of f16");
  if (s.whole) return appended_[name] = cast(reshape(rows, {s.batch, s.time, heads, dim}), s.cache);
  const Value state = cache_state(name, heads, dim);
  const Value now =
      g.add(op::scatter{.oob = "skip",
                        .base = state,
                        .indices = cache_rows(),
                        .updates = reshape(cast(rows, s.cache), {s.batch * s.time, heads, dim})},
            "cache." + name);
  g.update(state, now);
  appended_[name] = now;
  return of_sequences(now, name);
}

// A cache as attend() takes it.
Value Step::of_sequences(Value state, const std::string& name) {
  const std::vector<int64_t> dims = g.type(state).dims;
  if (table_) return reshape(state, {s.blocks, s.block, dims[1], dims[2]});
  return gather_slots(reshape(state, {s.slots, s.capacity, dims[1], dims[2]}), "cache." + name);
}

Value Step::appended(const std::string& name) {
  const Value now = appended_.at(name);
  return s.whole ? now : of_sequences(now, name);
}

op::attention Step::attention_of(Value q, Value keys, Value values, const Attention& options) {
  op::attention a{.layout = "bshd",
                  .softcap = options.softcap,
                  .causal = true,
                  .left_window = options.window > 0 ? options.window - 1 : -1,
                  // Attention takes one dtype, but keys and values in blocks beside any.
                  .q = in_blocks(s.cache) ? q : cast(q, s.cache),
                  .k = keys,
                  .v = values,
                  .mask = mask(options)};
  if (!s.whole) a.kv_len = binary("add", past_, count_), a.past_len = past_, a.block_table = table_;
  if (options.scale > 0) a.scale = options.scale;
  return a;
}

Value Step::attend(Value q, Value keys, Value values, const Attention& options,
                   const std::string& name) {
  return cast(g.add(attention_of(q, keys, values, options), name), s.compute);
}

Value Step::decode(Value q, Value k, Value v, const std::string& cache, const JointRope* rope,
                   const Attention& options, const std::string& name) {
  const auto token = [&](Value x) {
    const std::vector<int64_t> dims = g.type(x).dims;
    return reshape(x, {s.batch, dims[2], dims[3]});
  };
  const auto state = [&](const char* which, Value x) {
    const std::vector<int64_t> dims = g.type(x).dims;
    return cache_state(cache + which, dims[2], dims[3]);
  };
  op::decode_attention a{.block_size = s.block,
                         .softcap = options.softcap,
                         .left_window = options.window > 0 ? options.window - 1 : -1,
                         .q = token(q),
                         .k = token(k),
                         .v = token(v),
                         .k_cache = state(".k", k),
                         .v_cache = state(".v", v),
                         .rows = cache_rows(),
                         .kv_len = binary("add", past_, count_),
                         .past_len = past_,
                         .block_table = table_};
  if (options.scale > 0) a.scale = options.scale;
  if (rope) {
    const RopeTables tables = rope_tables(rope->config, rope->table);
    a.n_rot = rope->config.dims, a.interleaved = rope->interleaved;
    a.cos = tables.cos, a.sin = tables.sin, a.position_ids = reshape(positions(), {s.batch});
  }
  const auto y = g.add(a, name);
  g.update(a.k_cache, y[1]);
  g.update(a.v_cache, y[2]);
  appended_[cache + ".k"] = y[1], appended_[cache + ".v"] = y[2];
  return y[0];
}

Value Step::recurrent_state(const std::string& name, tenon_dtype dtype, std::vector<int64_t> dims) {
  dims.insert(dims.begin(), s.slots);
  if (s.whole)
    return g.add(op::expand{.shape = dims, .x = cast(g.constant<float>({}, {0.f}), dtype)});
  const Value state = g.state("cache." + name, {dtype, dims});
  states_["cache." + name] = state;
  const Value mine = gather_slots(state, "cache." + name);
  // A sequence begins with zeros, whatever the slot held before.
  std::vector<int64_t> ones(dims.size(), 1);
  ones[0] = s.batch;
  const Value begins = g.add(op::compare{.kind = "eq", .a = past_, .b = constant({0})});
  const Value zero = cast(g.constant<float>({}, {0.f}), dtype);
  return g.add(op::where{.cond = reshape(begins, ones), .a = zero, .b = mine});
}

void Step::update_state(const std::string& name, Value now) {
  if (s.whole) return;
  const Value state = states_.at("cache." + name);
  const TensorType type = g.type(state);
  std::vector<int64_t> ones(type.dims.size(), 1);
  ones[0] = s.batch;
  const Value reads =
      reshape(g.add(op::compare{.kind = "gt", .a = count_, .b = constant({0})}), ones);
  const Value kept =
      g.add(op::where{.cond = reads, .a = now, .b = gather_slots(state, "cache." + name)});
  g.update(state, slot_ ? Value(g.add(op::scatter{.base = state, .indices = slot_, .updates = kept},
                                      "cache." + name))
                        : kept);
}

}  // namespace tenon::llm
