// SPDX-License-Identifier: Apache-2.0
// Tensors in memory of the app: elements with their dtype and shape, to set inputs and weights, for
// constants, and as results. The C++ types of dtypes: float, double, bool, the integers of 8 to 64
// bits, F16 and BF16 (half.hpp).
//
//   tenon::Tensor x({2, 3}, {1.f, 2.f, 3.f, 4.f, 5.f, 6.f});  // f32[2,3]
//   x.at<float>({1, 2});                                      // 6
//   tenon::Tensor half = x.to(tenon::bf16);
//   for (tenon::BF16 v : half.values<tenon::BF16>()) std::cout << v << '\n';
//
// A tensor owns its elements; copies are deep. Thread safety is that of std::vector.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <span>

#include "handle.hpp"

namespace tenon {

class Tensor {
 public:
  // An empty tensor without a dtype; ops refuse it.
  Tensor() = default;
  // Zeros. Throws if the type has symbols.
  explicit Tensor(TensorType type) : type_(std::move(type)), bytes_(type_.bytes()) {}
  // values: row-major, as many as the shape has elements.
  template <class T, size_t extent>
  Tensor(std::vector<int64_t> dims, std::span<T, extent> values)
      : Tensor(TensorType(detail::dtype_of<std::remove_const_t<T>>(), std::move(dims))) {
    want_count(values.size());
    if (!values.empty()) std::memcpy(bytes_.data(), values.data(), bytes_.size());
  }
  template <class T>
  Tensor(std::vector<int64_t> dims, std::initializer_list<T> values)
      : Tensor(std::move(dims), std::span<const T>(values.begin(), values.size())) {}
  template <class T>
  Tensor(std::vector<int64_t> dims, const std::vector<T>& values)
      : Tensor(TensorType(detail::dtype_of<T>(), std::move(dims))) {
    want_count(values.size());
    std::copy(values.begin(), values.end(), this->values<T>().begin());  // bools are packed
  }
  // Rank 0.
  template <class T>
  static Tensor scalar(T value) {
    return Tensor({}, std::span<const T>(&value, 1));
  }

  const TensorType& type() const { return type_; }
  tenon_dtype dtype() const { return type_.dtype; }
  const std::vector<int64_t>& dims() const { return type_.dims; }
  int64_t elements() const { return bytes_.empty() ? 0 : type_.elements(); }

  // All elements, row-major. Valid until the tensor is assigned to, moved or destroyed; of a
  // temporary, a copy. T must be the C++ type of the dtype.
  template <class T>
  std::span<T> values() & {
    want<T>();
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <class T>
  std::span<const T> values() const& {
    want<T>();
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <class T>
  std::vector<T> values() && {
    const std::span<const T> all = std::as_const(*this).template values<T>();
    return {all.begin(), all.end()};
  }
  // One index per axis. Throws if it is out of range.
  template <class T>
  T& at(std::initializer_list<int64_t> index) & {
    return values<T>()[offset(index)];
  }
  template <class T>
  const T& at(std::initializer_list<int64_t> index) const& {
    return values<T>()[offset(index)];
  }
  template <class T>
  T at(std::initializer_list<int64_t> index) && {
    return std::as_const(*this).template at<T>(index);
  }
  // The element of a tensor that has one.
  template <class T>
  T item() const {
    if (elements() != 1)
      throw Error(TENON_SHAPE_MISMATCH,
                  "tensor: expected one element, got " + std::to_string(elements()));
    return values<T>()[0];
  }
  // The bytes of all elements, as in tenon_tensor; for dtypes without a C++ type as well.
  void* data() & { return bytes_.data(); }
  const void* data() const& { return bytes_.data(); }
  void* data() && = delete;
  uint64_t size() const { return bytes_.size(); }

  // Rounds, saturates and wraps as the op cast does, see tenon_convert().
  Tensor to(tenon_dtype dtype) const {
    if (dtype == type_.dtype) return *this;
    Tensor out(TensorType(dtype, type_.dims));
    detail::check(
        tenon_convert(type_.dtype, data(), dtype, out.data(), static_cast<uint64_t>(elements())));
    return out;
  }

 private:
  void want_count(size_t count) const {
    if (count != static_cast<uint64_t>(type_.elements()))
      throw Error(TENON_SHAPE_MISMATCH, "tensor: expected " + std::to_string(type_.elements()) +
                                            " values for its shape, got " + std::to_string(count));
  }
  template <class T>
  void want() const {
    if (detail::dtype_of<std::remove_const_t<T>>() != type_.dtype)
      throw Error(TENON_DTYPE_MISMATCH,
                  "tensor: its elements have another dtype; to() converts them");
  }
  size_t offset(std::initializer_list<int64_t> index) const {
    bool right = index.size() == type_.dims.size() && !bytes_.empty();
    size_t at = 0, axis = 0;
    for (const int64_t i : index) {
      if (!right) break;
      const int64_t length = type_.dims[axis++];
      right = i >= 0 && i < length;
      at = at * static_cast<size_t>(length) + static_cast<size_t>(i);
    }
    if (!right)
      throw Error(TENON_INVALID_ARGUMENT, "tensor: expected an index into each of " +
                                              std::to_string(type_.dims.size()) +
                                              " axes, below its length");
    return at;
  }

  TensorType type_{};
  std::vector<std::byte> bytes_{};
};

}  // namespace tenon
