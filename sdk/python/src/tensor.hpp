// SPDX-License-Identifier: Apache-2.0
// Tensors of Python: elements in memory that tenon or somebody else owns, and the reading of other
// objects as such.
#pragma once

#include <array>

#include "common.hpp"
#include "dlpack.hpp"

namespace tenon::python {

// What keeps memory in place. Its end needs no GIL: it takes it where Python is involved.
using Keeper = std::shared_ptr<void>;

// Elements with their type and place. Strides are in elements.
struct View {
  void* data = nullptr;
  tenon_dtype dtype = TENON_DTYPE_NONE;
  bool read_only = false;
  uint32_t rank = 0;
  DLDevice device{kDlCpu, 0};
  std::array<int64_t, TENON_MAX_RANK> dims{}, strides{};

  bool dense() const;
  int64_t elements() const;
  uint64_t bytes() const { return tenon_dense_bytes(dtype, elements()); }
  void make_dense();  // sets the strides
  std::string text() const { return type_text(dtype, dims.data(), rank); }
  // Points into this view. device: its id.
  tenon_tensor c_tensor(std::string_view device_id = {}) const;
};

// A tensor of Python.
struct PyTensor {
  View view{};
  Keeper keeper{};
  std::string device{};  // "cpu", "cuda:0"
};

// Null for objects of other classes.
inline const PyTensor* tensor_of(nb::handle object) {
  if (!nb::isinstance<PyTensor>(object)) return nullptr;
  if (!nb::inst_ready(object)) fail(TENON_INVALID_ARGUMENT, "tensor: __init__() was not called");
  return nb::inst_ptr<PyTensor>(object);
}

// What an object lends for a run. Needs the GIL.
class Loan {
 public:
  Loan() = default;
  Loan(Loan&& other) noexcept { swap(other); }
  Loan& operator=(Loan&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Loan() { end(); }
  void end() noexcept;
  explicit operator bool() const { return kind_ != Kind::none; }

  // Reads a tensor, a buffer or a DLPack producer. what: "input 'x'". stream: for producers on a
  // device, the stream that must be able to read.
  static Loan of(nb::handle object, View& view, const std::string& what, nb::handle stream = {});
  // Only of objects that take no stream and no capsule: the usual ones. None of others.
  static Loan simple(nb::handle object, View& view, const std::string& what);

 private:
  enum class Kind { none, object, buffer, dl, old_dl };
  void swap(Loan& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(buffer_, other.buffer_);
    std::swap(pointer_, other.pointer_);
  }
  bool read_exchange(nb::handle object, View& view, const std::string& what);
  bool read_buffer(nb::handle object, View& view, const std::string& what);
  void read_dlpack(nb::handle object, View& view, const std::string& what, nb::handle stream);

  Kind kind_ = Kind::none;
  Py_buffer buffer_{};
  void* pointer_ = nullptr;
};

// A tensor in memory of its own.
PyTensor new_tensor(tenon_dtype dtype, const std::vector<int64_t>& dims);
// Copies elements of any strides to dense memory.
void copy_dense(const View& from, void* to);
// Takes over a DLPack tensor.
PyTensor take_dlpack(DLManagedTensorVersioned* tensor, tenon_runtime* runtime);
// The device of a runtime that DLPack calls so; "cpu" for host memory.
std::string device_id(tenon_runtime* runtime, const View& view);

std::pair<uint8_t, uint8_t> dlpack_dtype(tenon_dtype dtype);  // code, bits

}  // namespace tenon::python
