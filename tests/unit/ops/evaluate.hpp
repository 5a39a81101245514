// SPDX-License-Identifier: Apache-2.0
// Runs graphs in the tests of records, with no plugin: composite ops through their decompositions,
// primitives by plain loops in double, each result rounded to its dtype. Knows the primitives that
// these families need.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "ops/build.hpp"

namespace tenon::core {

struct Tensor {
  Type type{};
  std::vector<double> data{};  // integers too: the tests keep them below 2^53
  double operator[](size_t k) const { return data[k]; }
};

// A tensor of given numbers, rounded to the dtype.
Tensor tensor(DType dtype, Shape shape, std::vector<double> data);
// Numbers spread over [-scale, scale], the same for the same seed.
Tensor noise(Shape shape, double scale, unsigned seed, DType dtype = kF64);

using Values = std::map<Value, Tensor>;

// Values of `wanted`; `given` has those of inputs, weights and state.
std::vector<Tensor> evaluate(const Graph& graph, const Values& given,
                             const std::vector<Value>& wanted);

// Writes something in ops over some operands and returns its result.
using Function = std::function<Value(Builder&, const std::vector<Value>&)>;

// The function's value at `at`, and gradients of its weighted sum (Σ cos(k)·y_k) for the operands
// marked in `wrt`.
Tensor forward(const Function& f, const std::vector<Tensor>& at);
std::vector<Tensor> gradients(const Function& f, const std::vector<Tensor>& at,
                              const std::vector<bool>& wrt);

// Largest difference between the records' gradients and central differences, each divided by 1 +
// the difference quotient. All operands are f64.
double gradient_error(const Function& f, const std::vector<Tensor>& at,
                      const std::vector<bool>& wrt = {}, double step = 1e-6);
// The same for the gradient itself, as a function: second order.
double second_order_error(const Function& f, const std::vector<Tensor>& at,
                          const std::vector<bool>& wrt = {}, double step = 1e-5);

}  // namespace tenon::core
