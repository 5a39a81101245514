// SPDX-License-Identifier: Apache-2.0
// C functions that take DLPack tensors, and pass outputs on as such.
#include "api/dlpack.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "api/door.hpp"
#include "api/tensor.hpp"

namespace tenon::core::dlpack {
namespace {

struct Pair {
  DType dtype;
  uint8_t code, bits;
};
constexpr uint8_t kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6,
                  kFloat8E4m3fn = 10, kFloat8E5m2 = 12;
constexpr Pair kPairs[] = {
    {TENON_DTYPE_F32, kFloat, 32},
    {TENON_DTYPE_F16, kFloat, 16},
    {TENON_DTYPE_BF16, kBfloat, 16},
    {TENON_DTYPE_F64, kFloat, 64},
    {TENON_DTYPE_I8, kInt, 8},
    {TENON_DTYPE_I16, kInt, 16},
    {TENON_DTYPE_I32, kInt, 32},
    {TENON_DTYPE_I64, kInt, 64},
    {TENON_DTYPE_U8, kUint, 8},
    {TENON_DTYPE_U16, kUint, 16},
    {TENON_DTYPE_U32, kUint, 32},
    {TENON_DTYPE_U64, kUint, 64},
    {TENON_DTYPE_I4, kInt, 4},
    {TENON_DTYPE_U4, kUint, 4},
    {TENON_DTYPE_BOOL, kBool, 8},
    {TENON_DTYPE_C64, kComplex, 64},
    {TENON_DTYPE_C128, kComplex, 128},
    {TENON_DTYPE_F8E4M3, kFloat8E4m3fn, 8},
    {TENON_DTYPE_F8E5M2, kFloat8E5m2, 8},
};

bool is_device(const core::Device& device, const Device& wanted) {
  const ImportInfo& known = device.import_info();
  return known.alignment && static_cast<int64_t>(known.dlpack_type) == wanted.type &&
         static_cast<int64_t>(known.dlpack_id) == wanted.id;
}

// Finds the device that DLPack calls (type, id). open: devices to look among first. Opens others
// until one fits.
std::string device_of(Runtime& runtime, std::span<const std::shared_ptr<core::Device>> open,
                      const Device& wanted, std::string_view what) {
  for (const auto& device : open)
    if (is_device(*device, wanted)) return device->info().id;
  std::vector<DeviceInfo> infos = runtime.host.devices();
  std::ranges::stable_sort(
      infos, {}, [&](const DeviceInfo& i) { return i.index != static_cast<uint32_t>(wanted.id); });
  for (const DeviceInfo& info : infos) {
    if (!info.reason.empty()) continue;
    try {
      if (is_device(*runtime.host.open(info.id), wanted)) return info.id;
    } catch (const Error&) {  // a device that cannot be opened is not the one that made the tensor
    }
  }
  fail(Code::unsupported, what, ": it is on device (", wanted.type, ", ", wanted.id,
       ") of DLPack, expected one whose memory a loaded device imports");
}

}  // namespace

DType dtype_of(DataType type) {
  const auto is_it = [&](const Pair& p) { return p.code == type.code && p.bits == type.bits; };
  const auto* found = std::ranges::find_if(kPairs, is_it);
  return type.lanes == 1 && found != std::end(kPairs) ? found->dtype : TENON_DTYPE_NONE;
}

DataType dtype_of(DType dtype) {
  const auto* found = std::ranges::find(kPairs, dtype, &Pair::dtype);
  return found == std::end(kPairs) ? DataType{} : DataType{found->code, found->bits, 1};
}

namespace {

// The bytes that the elements of a tensor span. DLPack states no size: it is trusted here.
uint64_t reach(const Tensor& t, DType dtype, std::string_view what) {
  const Shape shape = shape_from(static_cast<uint32_t>(t.rank), t.shape);
  if (!shape.numeric()) fail(Code::shape_mismatch, what, ": a dim is negative");
  const uint64_t dense = dense_bytes({dtype, shape}, what);
  if (!t.strides || dense == 0) return dense;
  uint64_t elements = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;  // its stride means nothing
    uint64_t span = 0;
    if (t.strides[i] < 0)
      fail(Code::unsupported, what, ": stride ", t.strides[i], " of axis ", i, " is negative");
    if (__builtin_mul_overflow(static_cast<uint64_t>(shape[i] - 1),
                               static_cast<uint64_t>(t.strides[i]), &span) ||
        __builtin_add_overflow(elements, span, &elements) || elements > INT64_MAX / 64)
      fail(Code::invalid_argument, what, ": its strides overflow");
  }
  return (elements * static_cast<uint64_t>(tenon_dtype_bits(dtype)) + 7) / 8;
}

// A tensor of DLPack as one of tenon.h; texts and dims live as long as this and the tensor.
struct Described {
  std::string device;
  tenon_tensor tensor{};
};

void describe(Runtime& runtime, std::span<const std::shared_ptr<core::Device>> open,
              const Managed* managed, std::string_view what, Described& out) {
  if (!managed) fail(Code::invalid_argument, what, ": the DLPack tensor is NULL");
  if (managed->major != kMajor)
    fail(Code::incompatible, what, ": DLPack ", managed->major, ".", managed->minor,
         ", expected version ", kMajor);
  const Tensor& t = managed->tensor;
  const DType dtype = dtype_of(t.dtype);
  if (dtype == TENON_DTYPE_NONE)
    fail(Code::unsupported, what, ": the dtype of DLPack has code ", unsigned{t.dtype.code}, ", ",
         unsigned{t.dtype.bits}, " bits and ", t.dtype.lanes, " lanes, which tenon does not have");
  if (tenon_dtype_bits(dtype) < 8 && (managed->flags & kPaddedSubBytes))
    fail(Code::unsupported, what, ": elements of ", tenon_dtype_bits(dtype),
         " bits with a byte each; expected them packed");
  if (t.rank < 0 || t.rank > TENON_MAX_RANK)
    fail(Code::unsupported, what, ": rank ", t.rank, ", expected 0 to ", TENON_MAX_RANK);
  if (t.rank && !t.shape) fail(Code::invalid_argument, what, ": its shape is NULL");

  if (std::ranges::find(kHostMemory, t.device.type) == std::end(kHostMemory))
    out.device = device_of(runtime, open, t.device, what);
  out.tensor.struct_size = sizeof out.tensor;
  out.tensor.dims = t.shape;
  out.tensor.strides = t.strides;
  out.tensor.data = t.data ? static_cast<std::byte*>(t.data) + t.byte_offset : nullptr;
  out.tensor.rank = static_cast<uint32_t>(t.rank);
  out.tensor.dtype = dtype;
  out.tensor.device = c_str(out.device);
  out.tensor.flags = managed->flags & kReadOnly ? TENON_TENSOR_READ_ONLY : 0;
  out.tensor.size = reach(t, dtype, what);
}

// An output that was passed on.
struct Given {
  Managed managed{};
  SharedOutput output;
  std::array<int64_t, TENON_MAX_RANK> dims{}, strides{};
};

}  // namespace
}  // namespace tenon::core::dlpack

using namespace tenon::core;

namespace {

dlpack::Managed* managed_of(DLManagedTensorVersioned* tensor) {
  return reinterpret_cast<dlpack::Managed*>(tensor);
}
const dlpack::Managed* managed_of(const DLManagedTensorVersioned* tensor) {
  return reinterpret_cast<const dlpack::Managed*>(tensor);
}

}  // namespace

tenon_status* tenon_context_bind_dlpack(tenon_context* context, tenon_str name,
                                        DLManagedTensorVersioned* tensor) {
  return door("tenon_context_bind_dlpack", [&] {
    Context& c = need(context, "context").context;
    dlpack::Managed* managed = managed_of(tensor);
    const std::string what = cat("'", view(name), "'");
    Runtime& runtime = c.executable().runtime();
    dlpack::Described described;
    dlpack::describe(runtime, c.executable().devices(), managed, what, described);
    // Until it is bound, the tensor stays the caller's.
    const auto owned = std::make_shared<bool>(false);
    const std::shared_ptr<void> owner(managed, [owned](void* m) {
      auto* all = static_cast<dlpack::Managed*>(m);
      if (*owned && all->deleter) all->deleter(all);
    });
    c.bind(view(name), app_tensor(runtime, &described.tensor, what, owner));
    *owned = true;
  });
}

tenon_status* tenon_context_output_dlpack(tenon_context* context, tenon_str output,
                                          DLManagedTensorVersioned** out_tensor) {
  return door("tenon_context_output_dlpack", [&] {
    Context& c = need(context, "context").context;
    need(out_tensor, "out_tensor");
    const Type type = c.output_type(view(output));
    auto given = std::make_unique<dlpack::Given>();
    dlpack::Tensor& t = given->managed.tensor;
    t.dtype = dlpack::dtype_of(type.dtype);
    if (t.dtype.bits == 0)
      fail(Code::unsupported, "output '", view(output), "': DLPack has no dtype for ", type.text());
    given->output = c.share_output(view(output));
    const Device& device = c.output_device(view(output));
    const ImportInfo& info = device.import_info();
    if (info.dlpack_type == 0)
      fail(Code::unsupported, "output '", view(output), "': DLPack has no name for device ",
           device.info().id);
    t.device = {static_cast<int32_t>(info.dlpack_type), static_cast<int32_t>(info.dlpack_id)};
    if (const auto& buffer = given->output.buffer()) t.data = buffer->native_address();
    t.rank = type.shape.rank();
    int64_t stride = 1;
    for (int i = t.rank - 1; i >= 0; --i) {
      const auto k = static_cast<size_t>(i);
      given->dims[k] = type.shape[i];
      given->strides[k] = stride;
      stride *= std::max<int64_t>(type.shape[i], 1);
    }
    t.shape = given->dims.data();
    t.strides = given->strides.data();
    given->managed.major = dlpack::kMajor;
    given->managed.minor = dlpack::kMinor;
    given->managed.context = given.get();
    given->managed.deleter = [](dlpack::Managed* m) noexcept {
      delete static_cast<dlpack::Given*>(m->context);
    };
    *out_tensor = reinterpret_cast<DLManagedTensorVersioned*>(&given.release()->managed);
  });
}

tenon_status* tenon_tensor_from_dlpack(tenon_runtime* runtime,
                                       const DLManagedTensorVersioned* tensor,
                                       tenon_tensor* out_tensor) {
  return door("tenon_tensor_from_dlpack", [&] {
    const tenon_runtime& r = need(runtime, "runtime");
    dlpack::Described described;
    dlpack::describe(*r.runtime, {}, managed_of(tensor), "the DLPack tensor", described);
    for (const DeviceInfo& d : r.devices)
      if (d.id == described.device) described.tensor.device = c_str(d.id);
    if (described.device.empty()) described.tensor.device = {};
    give(need(out_tensor, "out_tensor"), described.tensor, "out_tensor");
  });
}
