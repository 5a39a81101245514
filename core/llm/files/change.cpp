// SPDX-License-Identifier: Apache-2.0
// Matrices that are turned, logarithms, rows in another order, and the halves of kv_b_proj.
#include "llm/files/change.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace tenon::llm::files {
namespace {

[[noreturn]] void wrong(const std::string& name, const std::string& expected) {
  throw Error(TENON_SHAPE_MISMATCH, "tensor '" + name + "': expected " + expected);
}

// Rows become columns.
std::vector<float> turned(const std::vector<float>& numbers, int64_t rows, int64_t columns) {
  std::vector<float> out(numbers.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      out[static_cast<size_t>(c * rows + r)] = numbers[static_cast<size_t>(r * columns + c)];
  return out;
}

// Biases stay as they are.
bool is_turned(Change change, const std::vector<int64_t>& dims) {
  return change == Change::turned && dims.size() == 2;
}

// Rows of each head of keys with its heads of q, and all of q, all of k, all of v: from the first
// order to the second one, or back.
std::vector<float> by_part(const std::vector<float>& numbers, const HeadRows& rows, bool back) {
  const int64_t queries = rows.heads / rows.key_heads, all = rows.heads + 2 * rows.key_heads,
                each = static_cast<int64_t>(numbers.size()) / all;
  std::vector<float> out(numbers.size());
  int64_t joined = 0;
  for (int64_t group = 0; group < rows.key_heads; ++group)
    for (int64_t i = 0; i < queries + 2; ++i, ++joined) {
      const int64_t apart = i < queries    ? group * queries + i
                            : i == queries ? rows.heads + group
                                           : rows.heads + rows.key_heads + group;
      const int64_t from = back ? apart : joined, to = back ? joined : apart;
      std::copy_n(numbers.begin() + from * each, each, out.begin() + to * each);
    }
  return out;
}

// Numbers [outer, inner, rest] become [inner, outer, rest].
std::vector<float> swapped(const std::vector<float>& numbers, int64_t outer, int64_t inner) {
  std::vector<float> out;
  out.reserve(numbers.size());
  const int64_t each = static_cast<int64_t>(numbers.size()) / (outer * inner);
  for (int64_t i = 0; i < inner; ++i)
    for (int64_t o = 0; o < outer; ++o) {
      const auto first = numbers.begin() + (o * inner + i) * each;
      out.insert(out.end(), first, first + each);
    }
  return out;
}

// Rows of in_proj_qkvz: first, count, and whether they are a part of the gate. In the order that GGUF
// has them in: q of all heads, k, v, and the gate.
struct Rows {
  int64_t first, count;
  bool gate;
};
std::vector<Rows> rows_of_linear(const LinearHeads& h) {
  const int64_t wide = h.value_heads / h.key_heads * h.value_dim, all = 2 * (h.key_dim + wide);
  std::vector<Rows> out;
  const auto add = [&](int64_t first, int64_t count, bool gate) {
    for (int64_t i = 0; i < h.key_heads; ++i) out.push_back({i * all + first, count, gate});
  };
  add(0, h.key_dim, false);
  add(h.key_dim, h.key_dim, false);
  add(2 * h.key_dim, wide, false);
  add(2 * h.key_dim + wide, wide, true);
  return out;
}

void check_parts(const std::vector<int64_t>& dims, const HeadRows& rows, const std::string& name) {
  if (rows.heads < 1 || rows.key_heads < 1 || rows.heads % rows.key_heads != 0 || dims.empty() ||
      dims[0] % (rows.heads + 2 * rows.key_heads) != 0)
    wrong(name, "rows of " + std::to_string(rows.heads) + " heads of q and " +
                    std::to_string(rows.key_heads) + " of k and of v");
}

}  // namespace

std::vector<int64_t> changed_dims(Change change, const std::vector<int64_t>& dims,
                                  const HeadRows& rows, const std::string& name) {
  if (is_turned(change, dims)) return {dims[1], dims[0]};
  if (change == Change::flat && dims.size() != 1) {
    if (dims.size() != 3 || dims[1] != 1) wrong(name, "three axes, the second one of 1");
    return {dims[0], dims[2]};
  }
  if (change == Change::row) {
    if (dims.size() != 2 || dims[0] != 1) wrong(name, "one row");
    return {dims[1]};
  }
  if (change == Change::column || change == Change::exponent_column) {
    if (dims.size() != 1) wrong(name, "one axis");
    return {dims[0], 1};
  }
  if (change == Change::groups) {
    if (dims.size() != 1 || dims[0] % rows.groups != 0)
      wrong(name, "one axis of " + std::to_string(rows.groups) + " groups");
    return {rows.groups, dims[0] / rows.groups};
  }
  if (change == Change::first_half || change == Change::second_half) {
    if (dims.size() != 2 || dims[0] % 2 != 0) wrong(name, "two halves of rows");
    return {dims[0] / 2, dims[1]};
  }
  if (change == Change::by_part) check_parts(dims, rows, name);
  if (change == Change::of_qkv || change == Change::of_gate) {
    const LinearHeads& h = rows.linear;
    const int64_t expected = h.rows_of_keys() + 2 * h.rows_of_values();
    if (dims.size() != 2 || dims[0] != expected)
      wrong(name, "a matrix of " + std::to_string(expected) + " rows");
    const int64_t gate = h.rows_of_values();
    return {change == Change::of_gate ? gate : expected - gate, dims[1]};
  }
  if (change != Change::keys && change != Change::values) return dims;
  if (dims.size() != 2 || dims[0] != rows.heads * (rows.keys + rows.values))
    wrong(name, std::to_string(rows.heads * (rows.keys + rows.values)) + " rows");
  if (change == Change::keys) return {rows.heads, dims[1], rows.keys};
  return {rows.heads, rows.values, dims[1]};
}

std::vector<float> changed(Change change, std::vector<float> numbers,
                           const std::vector<int64_t>& dims, const HeadRows& rows) {
  if (is_turned(change, dims)) return turned(numbers, dims[0], dims[1]);
  if (change == Change::exponent || change == Change::exponent_column)
    for (float& v : numbers) v = -std::exp(v);
  const auto half = numbers.begin() + static_cast<ptrdiff_t>(numbers.size() / 2);
  if (change == Change::first_half) return {numbers.begin(), half};
  if (change == Change::second_half) return {half, numbers.end()};
  if (change == Change::by_part) return by_part(numbers, rows, false);
  if (change == Change::of_qkv || change == Change::of_gate) {
    std::vector<float> out;
    for (const Rows& r : rows_of_linear(rows.linear))
      if (r.gate == (change == Change::of_gate))
        out.insert(out.end(), numbers.begin() + r.first * dims[1],
                   numbers.begin() + (r.first + r.count) * dims[1]);
    return out;
  }
  if (change != Change::keys && change != Change::values) return numbers;
  const int64_t rank = dims[1];
  std::vector<float> out;
  for (int64_t h = 0; h < rows.heads; ++h) {
    const auto first = numbers.begin() + h * (rows.keys + rows.values) * rank,
               middle = first + rows.keys * rank;
    if (change == Change::values) {
      out.insert(out.end(), middle, middle + rows.values * rank);
    } else {
      const std::vector<float> of_head = turned({first, middle}, rows.keys, rank);
      out.insert(out.end(), of_head.begin(), of_head.end());
    }
  }
  return out;
}

std::vector<int64_t> dims_back(Change change, const std::vector<int64_t>& dims,
                               const std::string& name) {
  if (is_turned(change, dims)) return {dims[1], dims[0]};
  if (change == Change::flat && dims.size() != 1) {
    if (dims.size() != 2) wrong(name, "two axes");
    return {dims[0], 1, dims[1]};
  }
  if (change == Change::row) {
    if (dims.size() == 2 && dims[0] == 1) return dims;  // some writers keep the row
    if (dims.size() != 1) wrong(name, "one axis, or one row");
    return {1, dims[0]};
  }
  if (change == Change::column || change == Change::exponent_column) {
    if (dims.size() != 2 || dims[1] != 1) wrong(name, "two axes, the second one of 1");
    return {dims[0]};
  }
  if (change == Change::groups) {
    if (dims.size() != 2) wrong(name, "two axes");
    return {dims[0] * dims[1]};
  }
  return dims;
}

std::vector<float> changed_back(Change change, std::vector<float> numbers,
                                const std::vector<int64_t>& dims, const HeadRows& rows,
                                const std::string& name) {
  if (is_turned(change, dims)) return turned(numbers, dims[0], dims[1]);
  if (change == Change::by_part) {
    check_parts(dims, rows, name);
    return by_part(numbers, rows, true);
  }
  if (change == Change::exponent || change == Change::exponent_column) {
    if (!std::ranges::all_of(numbers, [](float v) { return v < 0; }))
      throw Error(TENON_NUMERIC_ERROR, "tensor '" + name + "': expected numbers below 0");
    for (float& v : numbers) v = std::log(-v);
  }
  return numbers;
}

std::vector<float> reordered(Order order, std::vector<float> numbers,
                             const std::vector<int64_t>& dims, const LinearHeads& heads, bool back,
                             const std::string& name) {
  if (order == Order::same) return numbers;
  const int64_t keys = order == Order::rows_behind_keys ? heads.rows_of_keys() : 0,
                count = dims.empty()              ? 0
                        : order == Order::columns ? dims.back()
                                                  : dims[0] - keys;
  if (heads.key_heads < 1 || count < 1 || count % heads.value_heads != 0)
    wrong(name, (keys > 0 ? std::to_string(keys) + " rows of q and k, and " : std::string()) +
                    "a number of " + (order == Order::columns ? "columns" : "rows") +
                    " for each of " + std::to_string(heads.value_heads) + " value heads");
  const int64_t each = heads.value_heads / heads.key_heads;
  const auto swap = [&](std::span<const float> part) {
    const std::vector<float> from(part.begin(), part.end());
    return back ? swapped(from, each, heads.key_heads) : swapped(from, heads.key_heads, each);
  };
  const size_t size = order == Order::columns ? static_cast<size_t>(count) : numbers.size(),
               kept = static_cast<size_t>(keys) * (numbers.size() / static_cast<size_t>(dims[0]));
  for (size_t at = kept; at < numbers.size(); at += size)
    std::ranges::copy(swap(std::span(numbers).subspan(at, std::min(size, numbers.size() - at))),
                      numbers.begin() + static_cast<ptrdiff_t>(at));
  return numbers;
}

std::vector<int64_t> joined_dims_of_linear(const std::vector<int64_t>& qkv,
                                           const std::vector<int64_t>& gate,
                                           const LinearHeads& heads, const std::string& name) {
  const int64_t values = heads.rows_of_values();
  if (heads.key_heads < 1 || qkv.size() != 2 || gate.size() != 2 || qkv[1] != gate[1] ||
      qkv[0] != heads.rows_of_keys() + values || gate[0] != values)
    wrong(name, std::to_string(heads.rows_of_keys() + values) + " rows, and " +
                    std::to_string(values) + " rows of as many columns in attn_gate");
  return {qkv[0] + gate[0], qkv[1]};
}

std::vector<float> joined_linear(const std::vector<float>& qkv, const std::vector<float>& gate,
                                 const LinearHeads& heads) {
  const auto columns = static_cast<int64_t>(gate.size()) / heads.rows_of_values();
  std::vector<float> out(qkv.size() + gate.size());
  auto from_qkv = qkv.begin(), from_gate = gate.begin();
  for (const Rows& r : rows_of_linear(heads)) {
    auto& from = r.gate ? from_gate : from_qkv;
    std::copy_n(from, r.count * columns, out.begin() + r.first * columns);
    from += r.count * columns;
  }
  return out;
}

std::vector<int64_t> stacked_dims(const std::vector<int64_t>& first,
                                  const std::vector<int64_t>& second, const std::string& name) {
  if (first.size() != 2 || first != second)
    wrong(name, "a matrix, and one of the same dims for the other half");
  return {2 * first[0], first[1]};
}

std::vector<int64_t> joined_dims(const std::vector<int64_t>& keys,
                                 const std::vector<int64_t>& values, const std::string& name) {
  if (keys.size() != 3 || values.size() != 3 || keys[0] != values[0] || keys[1] != values[2])
    wrong(name, "[heads, rank, rows], and attn_v_b of the same heads and rank");
  return {keys[0] * (keys[2] + values[1]), keys[1]};
}

std::vector<float> joined_halves(const std::vector<float>& keys,
                                 const std::vector<int64_t>& key_dims,
                                 const std::vector<float>& values,
                                 const std::vector<int64_t>& value_dims) {
  const int64_t rank = key_dims[1], key_size = rank * key_dims[2],
                value_size = value_dims[1] * rank;
  std::vector<float> out;
  for (int64_t h = 0; h < key_dims[0]; ++h) {
    const auto first = keys.begin() + h * key_size;
    const std::vector<float> of_head = turned({first, first + key_size}, rank, key_dims[2]);
    out.insert(out.end(), of_head.begin(), of_head.end());
    out.insert(out.end(), values.begin() + h * value_size, values.begin() + (h + 1) * value_size);
  }
  return out;
}

}  // namespace tenon::llm::files
