// SPDX-License-Identifier: Apache-2.0
// Tensors for people: their types, their values in a few words, where two of them differ.
#pragma once

#include <string>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::cli {

std::string dtype_text(tenon_dtype t);
std::string type_text(const TensorType& type);                      // "f32[2,3]"
std::string type_text(const Graph& graph, const TensorType& type);  // "f32[N,3]"

// The elements as numbers; a complex number is two. Other dtypes (f8, i4): the bytes.
std::vector<double> numbers_of(const Tensor& tensor);
// "min -1.2, max 3, mean 0.1, 2 NaN"
std::string summary(const Tensor& tensor);

// Converts between floats, and between integers where no value changes. Throws otherwise.
Tensor converted(const Tensor& tensor, tenon_dtype dtype, const std::string& what);

struct Tolerance {
  double relative = 1e-3, absolute = 1e-5;
};
// Empty if each number is within absolute + relative * |expected|; NaN equals NaN. Else what differs,
// with the element that differs most.
std::string difference(const Tensor& got, const Tensor& expected, const Tolerance& tolerance);

}  // namespace tenon::cli
