// SPDX-License-Identifier: Apache-2.0
// Checks tensors of the app. Nothing is read beyond the bytes that they state.
#include "api/tensor.hpp"

#include "base/c_struct.hpp"
#include "ops/node_desc.hpp"

namespace tenon::core {

uint64_t dense_bytes(const Type& type, std::string_view what) {
  try {
    return type_bytes(type);
  } catch (const Error& e) {
    fail(e.code(), what, ": ", e.what());
  }
}

namespace {

struct Checked {
  Type type;
  const int64_t* strides;  // null: dense
  std::byte* data;
  uint64_t size;
  std::shared_ptr<Device> device;  // null: host memory
  bool read_only;
};

// Do the strides say that the tensor is dense and row-major?
bool is_dense(const Shape& shape, const int64_t* strides) {
  int64_t dense = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != dense) return false;
    dense *= shape[i];
  }
  return true;
}

// runtime: null: only host memory
Checked checked(Runtime* runtime, const tenon_tensor* given, std::string_view what) {
  if (!given) fail(Code::invalid_argument, what, ": the tensor is NULL");
  const tenon_tensor t = taken(given, what);
  if (!tenon_dtype_known(t.dtype)) fail(Code::dtype_mismatch, what, ": the dtype is unknown");
  if (t.flags & ~TENON_TENSOR_READ_ONLY)
    fail(Code::invalid_argument, what, ": flags ", t.flags, ": bits ",
         t.flags & ~TENON_TENSOR_READ_ONLY, " are unknown");
  Checked out{.type = {t.dtype, shape_from(t.rank, t.dims)},
              .strides = t.strides,
              .data = static_cast<std::byte*>(t.data),
              .size = t.size,
              .device = nullptr,
              .read_only = (t.flags & TENON_TENSOR_READ_ONLY) != 0};
  if (!out.type.shape.numeric()) fail(Code::shape_mismatch, what, ": a dim is negative");
  want_whole_blocks(out.type, what);
  const uint64_t dense = dense_bytes(out.type, what);
  if (dense && !t.data) fail(Code::invalid_argument, what, ": data is NULL");
  if (out.strides && (dense == 0 || is_dense(out.type.shape, out.strides))) out.strides = nullptr;
  if (!out.strides && t.size < dense)
    fail(Code::invalid_argument, what, ": ", out.type.text(), " has ", dense, " bytes, got ",
         t.size);
  if (t.device.size) {
    if (!runtime)
      fail(Code::invalid_argument, what, ": expected host memory, got device '", view(t.device),
           "'");
    out.device = runtime->host.open(view(t.device));
    if (const std::string& id = out.device->info().id; id != view(t.device))
      fail(Code::invalid_argument, what, ": device '", view(t.device),
           "', expected the id of one device, such as '", id, "'");
  }
  return out;
}

// Checks that all elements that the strides address are among the `room` elements at data.
void check_reach(const Shape& shape, const int64_t* strides, uint64_t room, std::string_view what) {
  int64_t lowest = 0, highest = 0;
  bool overflow = false;
  for (int i = 0; i < shape.rank(); ++i) {
    int64_t span = 0;
    overflow |= __builtin_mul_overflow(shape[i] - 1, strides[i], &span);
    int64_t& end = span < 0 ? lowest : highest;
    overflow |= __builtin_add_overflow(end, span, &end);
  }
  if (overflow || lowest < 0 || static_cast<uint64_t>(highest) >= room)
    fail(Code::invalid_argument, what, ": its strides leave the ", room, " elements of data");
}

Bytes gathered(const Checked& t, std::string_view what) {
  const uint64_t each = tenon_dtype_bits(t.type.dtype) / 8;
  if (each == 0)
    fail(Code::unsupported, what, ": strides on ", dtype_name(t.type.dtype),
         ", whose elements are no whole bytes");
  const int rank = t.type.shape.rank();
  const int64_t elements = t.type.shape.elements();
  check_reach(t.type.shape, t.strides, t.size / each, what);
  Bytes out(type_bytes(t.type));
  std::array<int64_t, TENON_MAX_RANK> index{};
  int64_t offset = 0;
  for (int64_t i = 0; i < elements; ++i) {
    std::memcpy(out.data() + static_cast<uint64_t>(i) * each,
                t.data + static_cast<uint64_t>(offset) * each, each);
    for (int k = rank - 1; k >= 0; --k) {
      const auto axis = static_cast<size_t>(k);
      offset += t.strides[axis];
      if (++index[axis] < t.type.shape[k]) break;
      offset -= index[axis] * t.strides[axis];
      index[axis] = 0;
    }
  }
  return out;
}

bool on_other_memory(const Checked& t) { return t.device && !t.device->info().host_addressable; }

HostTensor in_host_memory(const Checked& t, std::string_view what) {
  HostTensor out{.type = t.type, .gathered = {}, .content = {t.data, type_bytes(t.type)}};
  if (on_other_memory(t)) {
    if (t.strides) fail(Code::unsupported, what, ": strides on ", t.device->info().id);
    out.gathered.resize(type_bytes(t.type));
    try {
      if (!out.gathered.empty())
        t.device->import_buffer(t.data, out.gathered.size(), what, nullptr)
            ->read(0, out.gathered.data(), out.gathered.size());
    } catch (const Error& e) {
      fail(e.code(), what, ": ", e.what());
    }
  } else if (t.strides) {
    out.gathered = gathered(t, what);
  } else {
    return out;
  }
  out.content = out.gathered;
  return out;
}

}  // namespace

HostTensor host_tensor(Runtime& runtime, const tenon_tensor* given, std::string_view what) {
  return in_host_memory(checked(&runtime, given, what), what);
}

HostTensor host_tensor(const tenon_tensor* given, std::string_view what) {
  return in_host_memory(checked(nullptr, given, what), what);
}

std::shared_ptr<AppTensor> app_tensor(Runtime& runtime, const tenon_tensor* given,
                                      std::string_view what, std::shared_ptr<void> owner) {
  Checked t = checked(&runtime, given, what);
  if (t.strides)
    fail(Code::invalid_argument, what,
         ": its strides are not those of a dense tensor; only dense memory can be bound");
  const uint64_t each = std::max<uint64_t>(tenon_dtype_bits(t.type.dtype) / 8, 1);
  if (const auto address = reinterpret_cast<uintptr_t>(t.data); address % each != 0)
    fail(Code::invalid_argument, what, ": ", t.type.text(), " is aligned to ",
         address & (~address + 1), " bytes, expected a multiple of ", each);
  return std::make_shared<AppTensor>(std::move(t.type), t.data, std::move(t.device), t.read_only,
                                     std::move(owner));
}

}  // namespace tenon::core
