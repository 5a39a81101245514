// SPDX-License-Identifier: Apache-2.0
// The parts of a step: inputs, weights, products, norms and rope.
#include "llm/arch/step.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::llm {

Step::Step(Graph& graph, const ModelConfig& config, const StepShape& shape, Weights& w,
           const StepValues& given)
    : g(graph), c(config), s(shape), weights(w) {
  tokens = given.tokens ? given.tokens : g.input("tokens", {i64, {s.batch, s.time}});
  if (s.whole && s.lora && s.lora->dropout > 0) rng_ = g.input("rng", {i64, {2}});
  if (s.whole) return;
  past_ = given.past ? given.past : g.input("past", {i64, {s.batch}});
  count_ = given.count ? given.count : g.input("count", {i64, {s.batch}});
  if (s.block > 0) {
    rows_ = reshape(g.input("rows", {i64, {s.batch, s.time}}), {s.batch * s.time});
    table_ = g.input("block_table", {i64, {s.batch, s.table()}});
  } else if (s.batch < s.slots) {
    slot_ = g.input("slot", {i64, {s.batch}});
  }
}

// ---- Weights

Value Step::once(const std::string& name, const TensorType& type) {
  const auto [at, is_new] = weights_.try_emplace(name);
  if (is_new) at->second = g.weight(name, type, s.trainable);
  return at->second;
}

Value Step::weight(const std::string& name, const std::vector<int64_t>& dims) {
  return once(name, weights.plain(name, dims));
}

Value Step::parameter(const std::string& name, const std::vector<int64_t>& dims) {
  return cast(weight(name, dims), s.compute);
}

Value Step::made(const std::string& name, const std::vector<std::string>& sources,
                 const std::vector<int64_t>& source_dims, tenon_dtype dtype,
                 const std::vector<int64_t>& dims, Weights::Make make, bool may_be_blocks) {
  if (weights.has(name)) return weight(name, dims);  // GGUF files have some of them
  return once(
      name, weights.made(name, sources, source_dims, dtype, dims, std::move(make), may_be_blocks));
}

Value Step::wide(const std::string& name, const std::vector<int64_t>& dims) {
  return made(name + ".f32", {name}, dims, f32, dims,
              [](const std::vector<Tensor>& from) { return from[0].to(f32); });
}

Value Step::table(const std::string& name, const std::vector<int64_t>& dims,
                  const std::function<std::vector<float>()>& numbers) {
  if (s.constants) {
    const auto [at, is_new] = weights_.try_emplace(name);
    if (is_new) at->second = g.constant<float>(dims, numbers());
    return at->second;
  }
  return once(name, weights.table(name, dims, numbers));
}

// ---- Nodes

Value Step::embed(const std::string& name) {
  return scaled(rows_of(name, c.vocab, c.embed_dim > 0 ? c.embed_dim : c.dim), c.embed_scale);
}

Value Step::rows_of(const std::string& name, int64_t rows, int64_t dim) {
  const Value table = weight(name + ".weight", {rows, dim});
  Value ids = tokens;
  if (rows < c.vocab) {
    const Value known = g.add(op::compare{.kind = "lt", .a = tokens, .b = constant({rows})});
    ids = g.add(op::where{.cond = known, .a = tokens, .b = constant({0})});
  }
  return cast(in_blocks(g.dtype(table))
                  ? g.add(op::dequant_rows{.to = s.compute, .w = table, .ids = ids}, name)
                  : g.add(op::gather{.data = table, .indices = ids}, name),
              s.compute);
}

Value Step::multiply(Value x, Value w, const std::string& name, bool transposed, Value bias,
                     Value residual, bool f32_result) {
  const Value y = product(x, w, name, transposed, bias, residual, f32_result);
  const std::vector<int64_t> dims = g.type(w).dims;
  if (dims.size() != 2) return y;  // of each head
  return changed(y, x, name, dims[transposed ? 1 : 0], dims[transposed ? 0 : 1]);
}

Value Step::product(Value x, Value w, const std::string& name, bool transposed, Value bias,
                    Value residual, bool f32_result) {
  if (in_blocks(g.dtype(w))) {
    if (!transposed)
      throw Error(TENON_UNSUPPORTED, name + ": the columns of a weight in blocks are no rows");
    // The result has the dtype of x. Where weights may be rounded to it, so may results.
    const bool may_round = s.block_product == sdk::dtype_name(g.dtype(x));
    if (f32_result && !may_round) x = cast(x, f32);
    if (bias) bias = cast(bias, g.dtype(x));
    Value y =
        g.add(op::dequant_matmul{.compute = s.block_product, .x = x, .w = w, .bias = bias}, name);
    if (residual) y = binary("add", y, residual);
    return f32_result ? cast(y, f32) : y;
  }
  // A product takes one dtype, or a half beside f32.
  if (s.compute != f32 && g.dtype(w) != s.compute && g.dtype(w) != g.dtype(x))
    w = cast(w, s.compute);
  const tenon_dtype out =
      f32_result && g.dtype(x) != f32 ? tenon_dtype{f32} : tenon_dtype{TENON_DTYPE_NONE};
  // The planner makes the residual a part of the product where that is faster.
  const Value y =
      bias
          ? Value(g.add(
                op::linear{.trans_b = transposed, .out_dtype = out, .a = x, .b = w, .bias = bias},
                name))
          : Value(g.add(op::matmul{.trans_b = transposed, .out_dtype = out, .a = x, .b = w}, name));
  return residual ? binary("add", y, residual) : y;
}

Value Step::project(Value x, const std::string& name, int64_t in, int64_t out, bool bias,
                    Value residual) {
  return multiply(x, weight(name + ".weight", {out, in}), name, true,
                  bias ? parameter(name + ".bias", {out}) : Value{}, residual);
}

bool Step::stacks(const std::vector<std::string>& names, int64_t in,
                  const std::vector<int64_t>& outs, bool bias) const {
  if (!s.stack_weights || s.lora) return false;
  const auto weight_of = [&](size_t i) {
    return weights.type_of(names[i] + ".weight", {outs[i], in}).dtype;
  };
  const auto bias_of = [&](size_t i) {
    return weights.type_of(names[i] + ".bias", {outs[i]}).dtype;
  };
  for (size_t i = 1; i < names.size(); ++i)
    if (weight_of(i) != weight_of(0) || (bias && bias_of(i) != bias_of(0))) return false;
  return true;
}

Value Step::project_stacked(Value x, const std::vector<std::string>& names, int64_t in,
                            const std::vector<int64_t>& outs, bool bias) {
  std::string all;  // layer.q_proj+k_proj
  std::vector<std::string> of_weights, of_biases;
  for (const std::string& name : names) {
    all += all.empty() ? name : "+" + name.substr(name.rfind('.') + 1);
    of_weights.push_back(name + ".weight"), of_biases.push_back(name + ".bias");
  }
  const std::string w = all + ".weight", b = all + ".bias";
  return multiply(
      x, once(w, weights.stacked(w, of_weights, outs, in)), all, true,
      bias ? cast(once(b, weights.stacked(b, of_biases, outs, 0)), s.compute) : Value{});
}

std::vector<Value> Step::project_all(Value x, const std::vector<std::string>& names, int64_t in,
                                     const std::vector<int64_t>& outs, bool bias) {
  std::vector<Value> results;
  for (size_t first = 0; first < names.size();) {
    // As many as stack with the first one.
    std::vector<std::string> own = {names[first]};
    std::vector<int64_t> own_outs = {outs[first]};
    for (size_t i = first + 1; i < names.size(); ++i) {
      own.push_back(names[i]), own_outs.push_back(outs[i]);
      if (stacks(own, in, own_outs, bias)) continue;
      own.pop_back(), own_outs.pop_back();
      break;
    }
    if (own.size() == 1) {
      results.push_back(project(x, own[0], in, own_outs[0], bias));
    } else {
      const Value all = project_stacked(x, own, in, own_outs, bias);
      int64_t at = 0;
      for (const int64_t out : own_outs) {
        results.push_back(part(all, {s.batch, s.time}, at, out));
        parts_[results.back().id] = {all, at, out};
        at += out;
      }
    }
    first += own.size();
  }
  return results;
}

Value Step::side_by_side(Value a, Value b) {
  const auto left = parts_.find(a.id), right = parts_.find(b.id);
  if (left == parts_.end() || right == parts_.end()) return {};
  const Part &l = left->second, &r = right->second;
  if (l.of != r.of || l.start + l.length != r.start) return {};
  return part(l.of, {s.batch, s.time}, l.start, l.length + r.length);
}

Value Step::rms_norm(Value x, const std::string& name, int64_t dims, double eps) {
  return rms_norm_by(x, parameter(name + ".weight", {dims}), name, eps);
}

Value Step::bare_rms_norm(Value x, const std::string& name, double eps) {
  const int64_t dims = g.type(x).dims.back();
  const Value ones = g.constant<float>({dims}, std::vector<float>(static_cast<size_t>(dims), 1));
  return rms_norm_by(x, ones, name, eps);
}

Value Step::norm(Value x, const std::string& name, int64_t dims) {
  if (c.norm == Norm::bare_rms) return bare_rms_norm(x, name, c.norm_eps);
  const auto layer_norm = [&](Value gamma, Value beta) -> Value {
    if (wanted_sum_.of == x)
      return g.add(op::residual_layer_norm{.eps = c.norm_eps,
                                           .x = wanted_sum_.a,
                                           .residual = wanted_sum_.b,
                                           .gamma = gamma,
                                           .beta = beta},
                   name)[0];
    return g.add(op::layer_norm{.eps = c.norm_eps, .x = x, .gamma = gamma, .beta = beta}, name);
  };
  if (c.norm == Norm::bare_layer) return layer_norm({}, {});
  const auto plus_one = [](const std::vector<Tensor>& from) {
    Tensor out = from[0].to(f32);
    for (float& v : out.values<float>()) v += 1;
    return out;
  };
  // The sum is rounded once, as transformers has it.
  const bool plain = c.norm == Norm::rms || c.norm == Norm::layer;
  const Value gamma =
      plain ? parameter(name + ".weight", {dims})
            : cast(made(name + ".gamma", {name + ".weight"}, {dims}, f32, {dims}, plus_one),
                   s.compute);
  if (c.norm == Norm::rms || c.norm == Norm::rms_plus_one)
    return rms_norm_by(x, gamma, name, c.norm_eps);
  return layer_norm(gamma, c.norm_bias ? parameter(name + ".bias", {dims}) : Value{});
}

Value Step::rms_norm_by(Value x, Value gamma, const std::string& name, double eps) {
  if (wanted_sum_.of == x)
    return g.add(op::residual_rms_norm{.eps = eps,
                                       .x = wanted_sum_.a,
                                       .residual = wanted_sum_.b,
                                       .gamma = cast(gamma, s.compute)},
                 name)[0];
  return g.add(op::rms_norm{.eps = eps, .x = x, .gamma = cast(gamma, s.compute)}, name);
}

bool is_gate(const std::string& activation) {
  constexpr std::string_view kGates[] = {"silu", "gelu", "gelu_tanh", "relu", "sigmoid"};
  return std::ranges::find(kGates, activation) != std::end(kGates);
}

Value Step::activated(Value x, const std::string& activation, const std::string& name) {
  const bool squared = activation == "relu2";
  const Value y = g.add(op::unary{.kind = squared ? "relu" : activation, .x = x}, name);
  return squared ? binary("mul", y, y) : y;
}

Value Step::gated(Value gate, Value up, const std::string& activation, const std::string& name) {
  if (is_gate(activation))
    return g.add(op::swiglu{.act = activation, .gate = gate, .up = up}, name);
  if (!up)
    throw Error(TENON_UNSUPPORTED, name +
                                       ": a packed gate takes silu, gelu, gelu_tanh, relu or "
                                       "sigmoid, got " +
                                       activation);
  return binary("mul", activated(gate, activation, name), up);
}

Step::RopeTables Step::rope_tables(const RopeConfig& rope, const std::string& name) {
  const int64_t half = rope.dims / 2;
  const auto numbers = [&](double (*function)(double)) {
    return [this, &rope, function] {
      std::vector<float> out;
      const std::vector<double> frequencies = rope.frequencies(s.capacity);
      for (int64_t p = 0; p < s.capacity; ++p)
        for (const double f : frequencies)
          out.push_back(static_cast<float>(function(static_cast<double>(p) * f) *
                                           rope.amplitude(s.capacity)));
      return out;
    };
  };
  return {.cos = table(name + ".cos", {s.capacity, half},
                       numbers([](double angle) { return std::cos(angle); })),
          .sin = table(name + ".sin", {s.capacity, half},
                       numbers([](double angle) { return std::sin(angle); }))};
}

Value Step::rotate(Value x, const RopeConfig& rope, const std::string& name_of_table,
                   const std::string& name, bool interleaved) {
  const RopeTables tables = rope_tables(rope, name_of_table);
  return g.add(op::rope{.n_rot = rope.dims,
                        .interleaved = interleaved,
                        .x = x,
                        .cos = tables.cos,
                        .sin = tables.sin,
                        .position_ids = s.whole ? Value{} : positions()},
               name);
}

Value Step::scaled_by_position(Value q, double beta, int64_t every, int64_t first) {
  if (beta == 0 || s.capacity - 1 + first < every) return q;
  const Value factors = table("rope.query_factors", {s.capacity}, [=, this] {
    std::vector<float> out;
    for (int64_t i = 0; i < s.capacity; ++i)
      out.push_back(
          static_cast<float>(1 + beta * std::log(1 + static_cast<double>((i + first) / every))));
    return out;
  });
  const Value mine = g.add(op::gather{.data = factors, .indices = positions()}, "query_factors");
  const int64_t batch = s.whole ? 1 : s.batch;  // as positions() has them
  return binary("mul", q, reshape(cast(mine, s.compute), {batch, s.time, 1, 1}));
}

Value Step::reshape(Value x, std::vector<int64_t> shape) {
  return g.add(op::reshape{.shape = std::move(shape), .x = x});
}

Value Step::part(Value x, std::vector<int64_t> leading, int64_t start, int64_t length) {
  std::vector<int64_t> starts(leading.size(), 0);
  starts.push_back(start), leading.push_back(length);
  return g.add(op::narrow{.start = std::move(starts), .len = std::move(leading), .x = x});
}

Value Step::scaled(Value x, double factor) {
  if (factor == 1) return x;
  return binary("mul", x, cast(g.constant<float>({}, {static_cast<float>(factor)}), g.dtype(x)));
}

Value Step::clipped(Value x, double most) {
  const auto number = [&](double v) {
    return cast(g.constant<float>({}, {static_cast<float>(v)}), g.dtype(x));
  };
  return binary("max", binary("min", x, number(most)), number(-most));
}

Value Step::cast(Value x, tenon_dtype to) {
  return g.dtype(x) == to ? x : Value(g.add(op::cast{.to = to, .x = x}));
}

Value Step::binary(const char* kind, Value a, Value b) {
  const Value y = g.add(op::binary{.kind = kind, .a = a, .b = b});
  if (kind == std::string_view("add") && g.type(a).dims == g.type(b).dims) last_sum_ = {y, a, b};
  return y;
}

Value Step::constant(std::vector<int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  return g.constant<int64_t>({count}, values);
}

Value Step::layer_end(Value x, Value y) {
  if (s.checkpoint) g.checkpoint({x}, {y});
  return y;
}

// ---- Outputs

Value Step::wanted_rows(Value x) {
  const Sum sum = last_sum_;
  const bool all = s.all_logits || s.hidden || s.time == 1;
  Value at;
  if (!s.whole && !all) {
    // The last token of a sequence without tokens is its first one here.
    const Value last = g.add(
        op::binary{.kind = "max", .a = binary("sub", count_, constant({1})), .b = constant({0})});
    const Value first = g.add(
        op::iota{.shape = {s.batch}, .axis = 0, .dtype = i64, .step = static_cast<double>(s.time)});
    at = binary("add", first, last);
  }
  const auto rows = [&](Value v) {
    const Value flat = reshape(v, {s.batch * s.time, c.dim});
    return at ? g.add(op::gather{.data = flat, .indices = at}, "last_rows") : flat;
  };
  if (s.whole || sum.of != x) return rows(x);
  wanted_sum_ = {{}, rows(sum.a), rows(sum.b)};
  return wanted_sum_.of = binary("add", wanted_sum_.a, wanted_sum_.b);
}

}  // namespace tenon::llm
