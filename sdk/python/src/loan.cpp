// SPDX-License-Identifier: Apache-2.0
// Reads objects of Python as tensors: buffers (NumPy), DLPack producers (PyTorch, CuPy, JAX).
#include <cstring>

#include "tensor.hpp"

namespace tenon::python {
namespace {

struct Pair {
  tenon_dtype dtype;
  uint8_t code, bits;
};
constexpr Pair kPairs[] = {
    {TENON_DTYPE_F32, 2, 32},    {TENON_DTYPE_F16, 2, 16},   {TENON_DTYPE_BF16, 4, 16},
    {TENON_DTYPE_F64, 2, 64},    {TENON_DTYPE_I8, 0, 8},     {TENON_DTYPE_I16, 0, 16},
    {TENON_DTYPE_I32, 0, 32},    {TENON_DTYPE_I64, 0, 64},   {TENON_DTYPE_U8, 1, 8},
    {TENON_DTYPE_U16, 1, 16},    {TENON_DTYPE_U32, 1, 32},   {TENON_DTYPE_U64, 1, 64},
    {TENON_DTYPE_BOOL, 6, 8},    {TENON_DTYPE_C64, 5, 64},   {TENON_DTYPE_F8E4M3, 10, 8},
    {TENON_DTYPE_F8E5M2, 12, 8}, {TENON_DTYPE_C128, 5, 128},
};

// The dtype of a buffer's format; NONE if tenon has none.
tenon_dtype dtype_of_format(const char* format, Py_ssize_t size) {
  if (!format) return TENON_DTYPE_U8;
  if (*format == '@' || *format == '=' || *format == '<' || *format == '|') ++format;
  if (std::strcmp(format, "Zf") == 0) return TENON_DTYPE_C64;
  if (std::strcmp(format, "Zd") == 0) return TENON_DTYPE_C128;
  if (format[0] == 0 || format[1] != 0) return TENON_DTYPE_NONE;
  const auto integer = [&](bool is_signed) -> tenon_dtype {
    const int k = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;
    if (k < 0) return TENON_DTYPE_NONE;
    return static_cast<tenon_dtype>((is_signed ? TENON_DTYPE_I8 : TENON_DTYPE_U8) + k);
  };
  switch (*format) {
    case 'f':
      return TENON_DTYPE_F32;
    case 'd':
      return TENON_DTYPE_F64;
    case 'e':
      return TENON_DTYPE_F16;
    case '?':
      return TENON_DTYPE_BOOL;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return integer(true);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      return integer(false);
    default:
      return TENON_DTYPE_NONE;
  }
}

struct Named {
  const char* name;
  tenon_dtype dtype;
  const char* bits;  // the dtype of NumPy whose buffer has these bits
};
// Of ml_dtypes. NumPy gives no buffers of them.
constexpr Named kNamed[] = {{"bfloat16", TENON_DTYPE_BF16, "uint16"},
                            {"float8_e4m3fn", TENON_DTYPE_F8E4M3, "uint8"},
                            {"float8_e5m2", TENON_DTYPE_F8E5M2, "uint8"}};

void check_rank(int64_t rank, const std::string& what) {
  if (rank < 0 || rank > TENON_MAX_RANK)
    fail(TENON_UNSUPPORTED, what + ": rank " + std::to_string(rank) + "; expected 0 to " +
                                std::to_string(TENON_MAX_RANK));
}

void read_view(const Py_buffer& b, tenon_dtype dtype, View& view, const std::string& what) {
  check_rank(b.ndim, what);
  view.data = b.buf;
  view.dtype = dtype;
  view.read_only = b.readonly != 0;
  view.rank = static_cast<uint32_t>(b.ndim);
  view.device = {kDlCpu, 0};
  for (uint32_t i = 0; i < view.rank; ++i) {
    view.dims[i] = b.shape ? b.shape[i] : b.len / b.itemsize;
    const Py_ssize_t bytes = b.strides ? b.strides[i] : b.itemsize;
    if (bytes % b.itemsize != 0)
      fail(TENON_UNSUPPORTED, what + ": stride of " + std::to_string(bytes) + " bytes of axis " +
                                  std::to_string(i) + "; expected a multiple of its elements of " +
                                  std::to_string(b.itemsize) + " bytes");
    view.strides[i] = bytes / b.itemsize;
  }
  if (!b.strides) view.make_dense();
}

void read_view(const DLTensor& t, View& view, const std::string& what) {
  check_rank(t.ndim, what);
  view.dtype = TENON_DTYPE_NONE;
  for (const Pair& p : kPairs)
    if (p.code == t.dtype.code && p.bits == t.dtype.bits && t.dtype.lanes == 1)
      view.dtype = p.dtype;
  if (view.dtype == TENON_DTYPE_NONE)
    fail(TENON_UNSUPPORTED, what + ": DLPack's dtype of code " + std::to_string(t.dtype.code) +
                                " and " + std::to_string(t.dtype.bits) +
                                " bits; expected a dtype that tenon has");
  view.data = t.data ? static_cast<std::byte*>(t.data) + t.byte_offset : nullptr;
  view.rank = static_cast<uint32_t>(t.ndim);
  view.device = t.device;
  for (uint32_t i = 0; i < view.rank; ++i) {
    view.dims[i] = t.shape[i];
    if (t.strides) view.strides[i] = t.strides[i];
  }
  if (!t.strides) view.make_dense();
}

}  // namespace

std::pair<uint8_t, uint8_t> dlpack_dtype(tenon_dtype dtype) {
  for (const Pair& p : kPairs)
    if (p.dtype == dtype) return {p.code, p.bits};
  return {0, 0};
}

void Loan::end() noexcept {
  switch (std::exchange(kind_, Kind::none)) {
    case Kind::none:
      break;
    case Kind::object:
      Py_DECREF(static_cast<PyObject*>(pointer_));
      break;
    case Kind::buffer:
      PyBuffer_Release(&buffer_);
      break;
    case Kind::dl: {
      auto* t = static_cast<DLManagedTensorVersioned*>(pointer_);
      if (t->deleter) t->deleter(t);
      break;
    }
    case Kind::old_dl: {
      auto* t = static_cast<DLManagedTensor*>(pointer_);
      if (t->deleter) t->deleter(t);
      break;
    }
  }
}

bool Loan::read_buffer(nb::handle object, View& view, const std::string& what) {
  tenon_dtype known = TENON_DTYPE_NONE;
  if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_RECORDS_RO) != 0) {
    nb::python_error refusal;
    const nb::object dtype = nb::getattr(object, "dtype", nb::none());
    if (dtype.is_none()) return false;
    const auto name = nb::cast<std::string>(nb::str(dtype));
    for (const Named& n : kNamed) {
      if (name != n.name) continue;
      const nb::object bits = object.attr("view")(n.bits);
      if (PyObject_GetBuffer(bits.ptr(), &buffer_, PyBUF_RECORDS_RO) != 0) throw nb::python_error();
      known = n.dtype;
    }
    if (known == TENON_DTYPE_NONE) {
      if (name == "int4" || name == "uint4")
        fail(TENON_UNSUPPORTED,
             what + ": dtype " + name +
                 " has a byte per element in NumPy; expected two per byte, which "
                 "NumPy cannot state. hint: pass int8 and cast in the graph");
      return false;
    }
  }
  kind_ = Kind::buffer;
  if (known == TENON_DTYPE_NONE) known = dtype_of_format(buffer_.format, buffer_.itemsize);
  if (known == TENON_DTYPE_NONE) {
    const char first = buffer_.format[0];
    fail(TENON_DTYPE_MISMATCH,
         what + ": elements of format '" + buffer_.format + "'" +
             (first == '>' || first == '!' ? " have their bytes in the other order"
                                           : " have no dtype in tenon") +
             "; expected one of float32, float16, float64, int8 to int64, uint8 to uint64, bool, "
             "complex64, complex128, bfloat16, float8_e4m3fn, float8_e5m2 of this machine's byte "
             "order");
  }
  read_view(buffer_, known, view, what);
  return true;
}

void Loan::read_dlpack(nb::handle object, View& view, const std::string& what, nb::handle stream) {
  nb::dict options;
  options["max_version"] = nb::make_tuple(1, 1);
  if (stream.is_valid() && !stream.is_none()) options["stream"] = stream;
  nb::object capsule;
  try {
    capsule = object.attr("__dlpack__")(**options);
  } catch (nb::python_error& e) {
    if (e.matches(PyExc_BufferError))
      fail(TENON_INVALID_ARGUMENT, what + ": " + class_name(object) + " lends no memory: " +
                                       nb::cast<std::string>(nb::str(e.value())));
    if (!e.matches(PyExc_TypeError)) throw;
    nb::del(options["max_version"]);  // producers before version 1 do not know it
    capsule = object.attr("__dlpack__")(**options);
  }
  PyObject* c = capsule.ptr();
  if (PyCapsule_IsValid(c, kCapsule)) {
    auto* t = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(c, kCapsule));
    if (t->major != 1)
      fail(TENON_INCOMPATIBLE,
           what + ": DLPack " + std::to_string(t->major) + "; expected version 1");
    PyCapsule_SetName(c, kUsedCapsule);
    pointer_ = t;
    kind_ = Kind::dl;
    read_view(t->dl_tensor, view, what);
    view.read_only = t->flags & kDlReadOnly;
  } else if (PyCapsule_IsValid(c, kOldCapsule)) {
    auto* t = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(c, kOldCapsule));
    PyCapsule_SetName(c, kUsedOldCapsule);
    pointer_ = t;
    kind_ = Kind::old_dl;
    read_view(t->dl_tensor, view, what);
    view.read_only = false;
  } else {
    fail(TENON_INVALID_ARGUMENT,
         what + ": __dlpack__() of " + class_name(object) + " returned no DLPack capsule");
  }
}

// Of PyTorch, above all: ten times as fast as a capsule. What its capsules refuse is left to them.
bool Loan::read_exchange(nb::handle object, View& view, const std::string& what) {
  const nb::object capsule =
      nb::getattr(nb::handle(Py_TYPE(object.ptr())), "__dlpack_c_exchange_api__", nb::none());
  constexpr const char* kName = "dlpack_exchange_api";
  if (!PyCapsule_IsValid(capsule.ptr(), kName)) return false;
  const auto* api =
      static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(capsule.ptr(), kName));
  while (api && api->major > 1) api = api->older;
  if (!api || api->major != 1 || !api->to_tensor) return false;
  DLTensor t{};
  if (api->to_tensor(object.ptr(), &t) != 0) {
    PyErr_Clear();
    return false;
  }
  constexpr uint8_t kComplex = 5;  // may be conjugated only later
  if (!on_host(t.device) || t.dtype.code == kComplex) return false;
  if (nb::cast<bool>(nb::getattr(object, "requires_grad", nb::bool_(false)))) return false;
  if (nb::hasattr(object, "is_neg") && nb::cast<bool>(object.attr("is_neg")())) return false;
  read_view(t, view, what);
  view.read_only = false;
  kind_ = Kind::object;
  pointer_ = object.inc_ref().ptr();
  return true;
}

Loan Loan::simple(nb::handle object, View& view, const std::string& what) {
  Loan loan;
  if (const PyTensor* tensor = tensor_of(object)) {
    view = tensor->view;
    loan.kind_ = Kind::object;
    loan.pointer_ = object.inc_ref().ptr();
  } else if (!PyObject_CheckBuffer(object.ptr()) || !loan.read_buffer(object, view, what)) {
    loan.read_exchange(object, view, what);
  }
  return loan;
}

Loan Loan::of(nb::handle object, View& view, const std::string& what, nb::handle stream) {
  Loan loan = simple(object, view, what);
  if (loan) return loan;
  if (nb::hasattr(object, "__dlpack__")) {
    loan.read_dlpack(object, view, what, stream);
    return loan;
  }
  fail(TENON_INVALID_ARGUMENT,
       what + ": got an object of type " + class_name(object) +
           "; expected a tensor of tenon, a NumPy array, a buffer, or an object with __dlpack__. "
           "hint: numpy.asarray() makes arrays of lists and numbers");
}

}  // namespace tenon::python
