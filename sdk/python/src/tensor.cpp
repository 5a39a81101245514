// SPDX-License-Identifier: Apache-2.0
// The class Tensor: its memory, its places, and how other libraries read it.
#include "tensor.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tenon::python {

// ---- Views

bool View::dense() const {
  int64_t stride = 1;
  for (uint32_t i = rank; i-- > 0;) {
    if (dims[i] == 0) return true;
    if (dims[i] != 1 && strides[i] != stride) return elements() == 0;
    stride *= dims[i];
  }
  return true;
}

int64_t View::elements() const {
  int64_t n = 1;
  for (uint32_t i = 0; i < rank; ++i) n *= dims[i];
  return n;
}

void View::make_dense() {
  int64_t stride = 1;
  for (uint32_t i = rank; i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(dims[i], 1);
  }
}

tenon_tensor View::c_tensor(std::string_view id) const {
  tenon_tensor t{};
  t.struct_size = sizeof t;
  t.dims = dims.data();
  t.data = data;
  t.size = bytes();
  t.rank = rank;
  t.dtype = dtype;
  t.device = detail::str(id);
  t.flags = read_only ? TENON_TENSOR_READ_ONLY : 0;
  return t;
}

// ---- Memory

namespace {

// The elements of one axis and those behind it. The innermost axis, if it is dense, in one piece.
void copy_axis(const View& from, uint32_t axis, const std::byte* source, std::byte*& to,
               size_t element) {
  if (axis == from.rank) {
    std::memcpy(to, source, element);
    to += element;
    return;
  }
  const int64_t step = from.strides[axis] * static_cast<int64_t>(element);
  if (axis + 1 == from.rank && from.strides[axis] == 1) {
    const size_t all = static_cast<size_t>(from.dims[axis]) * element;
    std::memcpy(to, source, all);
    to += all;
    return;
  }
  for (int64_t i = 0; i < from.dims[axis]; ++i)
    copy_axis(from, axis + 1, source + i * step, to, element);
}

}  // namespace

PyTensor new_tensor(tenon_dtype dtype, const std::vector<int64_t>& dims) {
  if (dims.size() > TENON_MAX_RANK)
    fail(TENON_UNSUPPORTED, "tensor: rank " + std::to_string(dims.size()) + "; expected 0 to " +
                                std::to_string(TENON_MAX_RANK));
  for (const int64_t d : dims)
    if (d < 0) fail(TENON_SHAPE_MISMATCH, "tensor: dim " + std::to_string(d) + " is negative");
  const uint64_t bytes = TensorType(dtype, dims).bytes();  // throws if it overflows
  PyTensor t;
  t.view.dtype = dtype;
  t.view.rank = static_cast<uint32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), t.view.dims.begin());
  t.view.make_dense();
  constexpr uint64_t kAlignment = 64;
  void* memory = std::aligned_alloc(
      kAlignment, (std::max<uint64_t>(bytes, 1) + kAlignment - 1) & ~(kAlignment - 1));
  if (!memory) throw std::bad_alloc();
  t.keeper = Keeper(memory, std::free);
  t.view.data = memory;
  t.device = "cpu";
  return t;
}

void copy_dense(const View& from, void* to) {
  if (from.elements() == 0) return;
  if (from.dense()) {
    std::memcpy(to, from.data, from.bytes());
    return;
  }
  auto* target = static_cast<std::byte*>(to);
  copy_axis(from, 0, static_cast<const std::byte*>(from.data), target,
            static_cast<size_t>(sdk::element_bytes(from.dtype)));
}

std::string device_id(tenon_runtime* runtime, const View& view) {
  if (on_host(view.device)) return "cpu";
  if (!runtime)
    fail(TENON_INVALID_ARGUMENT,
         "tensor: it is on device (" + std::to_string(view.device.device_type) + ", " +
             std::to_string(view.device.device_id) + ") of DLPack; expected host memory");
  const auto [code, bits] = dlpack_dtype(view.dtype);
  View copy = view;
  DLManagedTensorVersioned m{};
  m.major = 1;
  m.dl_tensor = {view.data,
                 view.device,
                 static_cast<int32_t>(view.rank),
                 {code, bits, 1},
                 copy.dims.data(),
                 copy.strides.data(),
                 0};
  tenon_tensor found{};
  found.struct_size = sizeof found;
  detail::check(tenon_tensor_from_dlpack(runtime, &m, &found));
  return detail::string(found.device);
}

PyTensor take_dlpack(DLManagedTensorVersioned* tensor, tenon_runtime* runtime) {
  PyTensor out;
  out.keeper = Keeper(tensor, [](void* p) {
    auto* t = static_cast<DLManagedTensorVersioned*>(p);
    if (t->deleter && !is_forked()) t->deleter(t);
  });
  const DLTensor& t = tensor->dl_tensor;
  View& v = out.view;
  v.data = t.data ? static_cast<std::byte*>(t.data) + t.byte_offset : nullptr;
  v.rank = static_cast<uint32_t>(t.ndim);
  std::copy(t.shape, t.shape + t.ndim, v.dims.begin());
  std::copy(t.strides, t.strides + t.ndim, v.strides.begin());
  v.device = t.device;
  v.read_only = tensor->flags & kDlReadOnly;
  for (tenon_dtype d = 1; d < TENON_DTYPE_COUNT; ++d)
    if (dlpack_dtype(d) == std::pair(t.dtype.code, t.dtype.bits)) v.dtype = d;
  out.device = device_id(runtime, v);
  return out;
}

namespace {

// ---- As a buffer

constexpr const char* kFormats[TENON_DTYPE_COUNT] = {
    nullptr, "f", "e", nullptr, "d",     "b", "h",  "i",     "q",     "B",
    "H",     "I", "Q", nullptr, nullptr, "?", "Zf", nullptr, nullptr, "Zd"};

// Shape and strides in bytes live as long as the buffer.
struct BufferInfo {
  std::array<Py_ssize_t, TENON_MAX_RANK> shape{}, strides{};
};

View reversed(View v) {
  std::reverse(v.dims.begin(), v.dims.begin() + v.rank);
  std::reverse(v.strides.begin(), v.strides.begin() + v.rank);
  return v;
}

int get_buffer(PyObject* self, Py_buffer* out, int flags) noexcept {
  const auto refuse = [&](const std::string& why) {
    PyErr_SetString(PyExc_BufferError, why.c_str());
    out->obj = nullptr;
    return -1;
  };
  if (!nb::inst_ready(self)) return refuse("tenon.Tensor: __init__() was not called");
  const View& v = nb::inst_ptr<PyTensor>(nb::handle(self))->view;
  if (!on_host(v.device))
    return refuse("tenon.Tensor: it is in memory of a device; to(\"cpu\") copies it");
  if (sdk::is_blocks(v.dtype))
    return refuse("tenon.Tensor: buffers have no format for the blocks of " +
                  std::string(sdk::dtype_name(v.dtype)));
  if (!kFormats[v.dtype])
    return refuse("tenon.Tensor: buffers have no format for " +
                  std::string(sdk::dtype_name(v.dtype)) + "; numpy() and __dlpack__ have");
  if (v.read_only && (flags & PyBUF_WRITABLE)) return refuse("tenon.Tensor: it is read-only");
  if (!v.dense() && (flags & PyBUF_STRIDES) != PyBUF_STRIDES)
    return refuse("tenon.Tensor: it is not contiguous");
  const auto wants = [&](int order) { return (flags & order) == order; };
  const bool row_major = v.dense(), column_major = reversed(v).dense();
  if ((wants(PyBUF_C_CONTIGUOUS) && !row_major) || (wants(PyBUF_F_CONTIGUOUS) && !column_major) ||
      (wants(PyBUF_ANY_CONTIGUOUS) && !row_major && !column_major))
    return refuse("tenon.Tensor: its elements are not in the order that was asked for");
  auto* info = new (std::nothrow) BufferInfo;
  if (!info) return refuse("tenon.Tensor: out of memory");
  const Py_ssize_t element = sdk::element_bytes(v.dtype);
  for (uint32_t i = 0; i < v.rank; ++i) {
    info->shape[i] = v.dims[i];
    info->strides[i] = v.strides[i] * element;
  }
  out->obj = Py_NewRef(self);
  out->buf = v.data ? v.data : info;  // no elements: any address that is not null
  out->len = static_cast<Py_ssize_t>(v.bytes());
  out->readonly = v.read_only;
  out->itemsize = element;
  out->format = (flags & PyBUF_FORMAT) ? const_cast<char*>(kFormats[v.dtype]) : nullptr;
  out->ndim = static_cast<int>(v.rank);
  out->shape = (flags & PyBUF_ND) ? info->shape.data() : nullptr;
  out->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? info->strides.data() : nullptr;
  out->suboffsets = nullptr;
  out->internal = info;
  return 0;
}

void release_buffer(PyObject*, Py_buffer* buffer) noexcept {
  delete static_cast<BufferInfo*>(buffer->internal);
}

// ---- As a DLPack tensor

struct Given {
  DLManagedTensorVersioned versioned{};
  DLManagedTensor old{};
  View view;
  Keeper keeper;
};

template <class Managed>
nb::object capsule_of(const PyTensor& t, Managed Given::*form, const char* name, bool copied) {
  const auto [code, bits] = dlpack_dtype(t.view.dtype);
  if (bits == 0)
    throw nb::buffer_error(
        ("tenon.Tensor: DLPack has no dtype for " + std::string(sdk::dtype_name(t.view.dtype)))
            .c_str());
  auto given = std::make_unique<Given>();
  given->view = t.view;
  given->keeper = t.keeper;
  Managed& m = (*given).*form;
  m.dl_tensor = {given->view.data,
                 given->view.device,
                 static_cast<int32_t>(given->view.rank),
                 {code, bits, 1},
                 given->view.dims.data(),
                 given->view.strides.data(),
                 0};
  m.manager_ctx = given.get();
  m.deleter = [](Managed* managed) { delete static_cast<Given*>(managed->manager_ctx); };
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
    m.major = 1;
    m.flags = (t.view.read_only ? kDlReadOnly : 0) | (copied ? kDlCopied : 0);
  }
  PyObject* capsule = PyCapsule_New(&m, name, [](PyObject* c) {
    const char* now = PyCapsule_GetName(c);
    if (std::strncmp(now, "used", 4) == 0) return;  // the consumer owns it
    auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(c, now));
    managed->deleter(managed);
  });
  if (!capsule) throw nb::python_error();
  given.release();
  return nb::steal(capsule);
}

PyTensor copy_of(const View& view) {
  if (!on_host(view.device))
    fail(TENON_UNSUPPORTED, "tensor: a copy of memory of a device; hint: to(\"cpu\")");
  PyTensor out = new_tensor(view.dtype, {view.dims.begin(), view.dims.begin() + view.rank});
  const Released unlocked;
  copy_dense(view, out.view.data);
  return out;
}

nb::object dlpack(const PyTensor& t, nb::object, nb::object max_version, nb::object dl_device,
                  std::optional<bool> copy) {
  if (!dl_device.is_none()) {
    const auto [type, id] = nb::cast<std::pair<int32_t, int32_t>>(dl_device);
    if (type != t.view.device.device_type || id != t.view.device.device_id)
      throw nb::buffer_error("tenon.Tensor: __dlpack__ copies to no other device; use to()");
  }
  const bool copied = copy.value_or(false);
  const PyTensor given = copied ? copy_of(t.view) : t;
  const bool versioned = !max_version.is_none() && nb::cast<int64_t>(max_version[nb::int_(0)]) >= 1;
  if (!versioned && given.view.read_only)
    throw nb::buffer_error(
        "tenon.Tensor: it is read-only, which DLPack before version 1 cannot state");
  return versioned ? capsule_of(given, &Given::versioned, kCapsule, copied)
                   : capsule_of(given, &Given::old, kOldCapsule, copied);
}

// ---- The class

PyTensor borrow(nb::handle object, tenon_runtime* runtime) {
  PyTensor out;
  if (const PyTensor* tensor = tensor_of(object)) return *tensor;
  auto* loan = new Loan;
  out.keeper = Keeper(loan, [](void* p) {  // in whichever thread this is
    if (const Acquired locked; locked) delete static_cast<Loan*>(p);
  });
  *loan = Loan::of(object, out.view, "tensor");
  out.device = device_id(runtime, out.view);
  return out;
}

nb::tuple shape_of(const PyTensor& t) {
  nb::list dims;
  for (uint32_t i = 0; i < t.view.rank; ++i) dims.append(t.view.dims[i]);
  return nb::tuple(dims);
}

nb::tuple strides_of(const PyTensor& t) {
  nb::list strides;
  for (uint32_t i = 0; i < t.view.rank; ++i) strides.append(t.view.strides[i]);
  return nb::tuple(strides);
}

// The same memory as unsigned integers, for libraries that do not know the dtype.
PyTensor bits_of(const PyTensor& t) {
  PyTensor out = t;
  const int64_t bytes = sdk::element_bytes(t.view.dtype);
  if (bytes != 1 && bytes != 2)
    fail(TENON_UNSUPPORTED, "tensor: " + t.view.text() + " as unsigned integers");
  out.view.dtype = bytes == 1 ? TENON_DTYPE_U8 : TENON_DTYPE_U16;
  return out;
}

void want_whole_blocks(tenon_dtype dtype, const std::vector<int64_t>& dims) {
  const tenon_block block = tenon_dtype_block(dtype);
  if (block.elements && (dims.empty() || dims.back() % block.elements != 0))
    fail(TENON_SHAPE_MISMATCH, "tensor: " + type_text(dtype, dims.data(), dims.size()) +
                                   "; expected a last dim that is a multiple of " +
                                   std::to_string(block.elements));
}

// The same memory, which holds bytes, as blocks.
PyTensor blocks_of(const PyTensor& bytes, tenon_dtype dtype, const std::vector<int64_t>& dims) {
  if (bytes.view.dtype != TENON_DTYPE_U8 || !bytes.view.dense())
    fail(TENON_DTYPE_MISMATCH, "blocks: expected dense bytes, got " + bytes.view.text());
  if (!sdk::is_blocks(dtype))
    fail(TENON_DTYPE_MISMATCH, "blocks: expected a dtype of blocks such as q8_0, got " +
                                   std::string(sdk::dtype_name(dtype)));
  if (dims.size() > TENON_MAX_RANK || std::ranges::any_of(dims, [](int64_t d) { return d < 0; }))
    fail(TENON_SHAPE_MISMATCH, "blocks: expected at most 8 dims that are not negative, got " +
                                   type_text(dtype, dims.data(), dims.size()));
  want_whole_blocks(dtype, dims);
  PyTensor out = bytes;
  out.view.dtype = dtype;
  out.view.rank = static_cast<uint32_t>(dims.size());
  std::ranges::copy(dims, out.view.dims.begin());
  const uint64_t wanted = TensorType(dtype, dims).bytes();
  if (wanted != bytes.view.bytes())
    fail(TENON_SHAPE_MISMATCH, "blocks: " + out.view.text() + " has " + std::to_string(wanted) +
                                   " bytes, got " + std::to_string(bytes.view.bytes()));
  out.view.make_dense();
  return out;
}

PyType_Slot tensor_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
    {0, nullptr},
};

}  // namespace

void add_tensor(nb::module_& m) {
  nb::class_<PyTensor>(m, "Tensor", nb::type_slots(tensor_slots), nb::is_weak_referenceable(),
                       "Elements with a dtype and a shape, in host memory or on a device. NumPy "
                       "and PyTorch read them without a copy.\n"
                       "\n"
                       "Results of models are tensors. asarray() makes one that borrows memory, "
                       "tensor() one with memory of its own.")
      .def_prop_ro(
          "dtype", [](const PyTensor& t) { return dtype_object(t.view.dtype); }, "The dtype.")
      .def_prop_ro("shape", shape_of, "The dims.")
      .def_prop_ro("strides", strides_of, "Elements from one index of an axis to the next.")
      .def_prop_ro(
          "ndim", [](const PyTensor& t) { return t.view.rank; }, "The number of dims.")
      .def_prop_ro(
          "size", [](const PyTensor& t) { return t.view.elements(); }, "The number of elements.")
      .def_prop_ro(
          "nbytes", [](const PyTensor& t) { return t.view.bytes(); }, "The bytes of all elements.")
      .def_prop_ro(
          "device", [](const PyTensor& t) { return t.device; },
          "Where the elements are: \"cpu\", or a device such as \"cuda:0\".")
      .def_prop_ro(
          "readonly", [](const PyTensor& t) { return t.view.read_only; },
          "Nobody may write the elements.")
      .def_prop_ro(
          "contiguous", [](const PyTensor& t) { return t.view.dense(); },
          "The elements are dense, in row-major order.")
      .def_prop_ro(
          "data_ptr", [](const PyTensor& t) { return reinterpret_cast<uintptr_t>(t.view.data); },
          "The address of the first element.")
      .def("__dlpack__", dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none(),
           "A DLPack capsule, without a copy unless `copy` is true. The results of runs are "
           "complete, so no stream waits.")
      .def(
          "__dlpack_device__",
          [](const PyTensor& t) {
            return nb::make_tuple(t.view.device.device_type, t.view.device.device_id);
          },
          "DLPack's type and number of the device.")
      .def("_bits", bits_of, "The same memory as unsigned integers.")
      .def(
          "_copy", [](const PyTensor& t) { return copy_of(t.view); },
          "A dense copy in host memory.");
  m.def(
      "_borrow",
      [](nb::handle object, Kept<Runtime>* runtime) {
        return borrow(object, runtime ? (*runtime)->handle() : nullptr);
      },
      nb::arg("object"), nb::arg("runtime").none(), "A tensor that borrows memory.");
  m.def(
      "_empty",
      [](tenon_dtype dtype, const std::vector<int64_t>& dims) {
        want_whole_blocks(dtype, dims);
        return new_tensor(dtype, dims);
      },
      nb::arg("dtype"), nb::arg("dims"), "A tensor without values.");
  m.def("_blocks", blocks_of, nb::arg("bytes"), nb::arg("dtype"), nb::arg("dims"),
        "The memory of a tensor of bytes as blocks.");
}

}  // namespace tenon::python
