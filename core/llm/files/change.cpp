// SPDX-License-Identifier: Apache-2.0
// Matrices that are turned, logarithms, rows in another order, and the halves of kv_b_proj.
#include "llm/files/change.hpp"

#include <algorithm>
#include <cmath>

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
  if (change == Change::by_part) check_parts(dims, rows, name);
  if (change != Change::keys && change != Change::values) return dims;
  if (dims.size() != 2 || dims[0] != rows.heads * (rows.keys + rows.values))
    wrong(name, std::to_string(rows.heads * (rows.keys + rows.values)) + " rows");
  if (change == Change::keys) return {rows.heads, dims[1], rows.keys};
  return {rows.heads, rows.values, dims[1]};
}

std::vector<float> changed(Change change, std::vector<float> numbers,
                           const std::vector<int64_t>& dims, const HeadRows& rows) {
  if (is_turned(change, dims)) return turned(numbers, dims[0], dims[1]);
  if (change == Change::exponent)
    for (float& v : numbers) v = -std::exp(v);
  if (change == Change::by_part) return by_part(numbers, rows, false);
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
    if (dims.size() != 1) wrong(name, "one axis");
    return {1, dims[0]};
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
  if (change == Change::exponent) {
    if (!std::ranges::all_of(numbers, [](float v) { return v < 0; }))
      throw Error(TENON_NUMERIC_ERROR, "tensor '" + name + "': expected numbers below 0");
    for (float& v : numbers) v = std::log(-v);
  }
  return numbers;
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
