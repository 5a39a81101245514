// SPDX-License-Identifier: Apache-2.0
// C functions for statuses, texts, versions and the log.
#include "api/door.hpp"

#include "base/log.hpp"

namespace tenon::core {

tenon_status* status_of_current_exception(const char* name) noexcept {
  tenon_status_desc desc{};
  desc.struct_size = sizeof desc;
  desc.origin = c_str(name);
  desc.step = TENON_NONE;
  desc.index = -1;
  try {
    throw;
  } catch (const DeviceError& e) {
    desc.code = static_cast<tenon_code>(e.code());
    desc.text = c_str(e.what());
    desc.flags = e.retryable() ? TENON_STATUS_RETRYABLE : 0;
    desc.run_id = e.run_id();
    desc.step = e.step();
    desc.index = e.index();
    return make_status(&desc);
  } catch (const Error& e) {
    desc.code = static_cast<tenon_code>(e.code());
    desc.text = c_str(e.what());
    return make_status(&desc);
  } catch (const std::bad_alloc&) {
    desc.code = TENON_OUT_OF_MEMORY;
    desc.text = c_str("host memory ran out");
    return make_status(&desc);
  } catch (const std::exception& e) {
    desc.code = TENON_INTERNAL;
    desc.text = c_str(e.what());
    return make_status(&desc);
  } catch (...) {
    desc.code = TENON_INTERNAL;
    desc.text = c_str("something that is no exception of ours was thrown");
    return make_status(&desc);
  }
}

namespace {

// Checks that all elements that the strides address are among the `room` elements at data.
void check_reach(const Shape& shape, const int64_t* strides, uint64_t room, std::string_view what) {
  if (shape.elements() == 0) return;
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

}  // namespace

HostTensor host_tensor(const tenon_tensor* given, std::string_view what) {
  if (!given) fail(Code::invalid_argument, what, ": the tensor is NULL");
  const tenon_tensor t = taken(given, what);
  HostTensor out;
  if (tenon_dtype_bits(t.dtype) == 0) fail(Code::dtype_mismatch, what, ": the dtype is unknown");
  out.type = {t.dtype, shape_from(t.rank, t.dims)};
  if (!out.type.shape.numeric()) fail(Code::shape_mismatch, what, ": a dim is negative");
  const uint64_t dense = type_bytes(out.type);
  if (dense && !t.data) fail(Code::invalid_argument, what, ": data is NULL");
  const auto* bytes = static_cast<const std::byte*>(t.data);
  if (!t.strides) {
    if (t.size < dense)
      fail(Code::invalid_argument, what, ": ", out.type.text(), " has ", dense, " bytes, got ",
           t.size);
    out.content = {bytes, dense};
    return out;
  }
  const uint64_t each = tenon_dtype_bits(t.dtype) / 8;
  if (each == 0) fail(Code::unsupported, what, ": strides on a dtype of less than a byte");
  const int rank = out.type.shape.rank();
  const int64_t elements = out.type.shape.elements();
  check_reach(out.type.shape, t.strides, t.size / each, what);
  out.gathered.resize(dense);
  out.content = out.gathered;
  std::array<int64_t, TENON_MAX_RANK> index{};
  int64_t offset = 0;
  for (int64_t i = 0; i < elements; ++i) {
    std::memcpy(out.gathered.data() + static_cast<uint64_t>(i) * each,
                bytes + static_cast<uint64_t>(offset) * each, each);
    for (int k = rank - 1; k >= 0; --k) {
      const auto axis = static_cast<size_t>(k);
      offset += t.strides[axis];
      if (++index[axis] < out.type.shape[k]) break;
      offset -= index[axis] * t.strides[axis];
      index[axis] = 0;
    }
  }
  return out;
}

}  // namespace tenon::core

using namespace tenon::core;

tenon_code tenon_status_code(const tenon_status* status) { return status_code(status); }
tenon_str tenon_status_text(const tenon_status* status) { return status_text(status); }
void tenon_status_release(tenon_status* status) { release_status(status); }

tenon_str tenon_code_name(tenon_code code) {
  constexpr std::string_view names[] = {"ok",
                                        "invalid_argument",
                                        "shape_mismatch",
                                        "dtype_mismatch",
                                        "unsupported",
                                        "index_out_of_range",
                                        "numeric_error",
                                        "out_of_memory",
                                        "not_found",
                                        "io_error",
                                        "corrupt",
                                        "incompatible",
                                        "undefined_state",
                                        "device_lost",
                                        "cancelled",
                                        "internal"};
  return c_str(code < std::size(names) ? names[code] : "unknown");
}

tenon_str tenon_text_str(const tenon_text* text) {
  return text ? c_str(text->text) : tenon_str{"", 0};
}
void tenon_text_destroy(tenon_text* text) { delete text; }

#define TENON_QUOTE(x) #x
#define TENON_STRING(x) TENON_QUOTE(x)
tenon_str tenon_version(void) {
  return c_str(TENON_STRING(TENON_VERSION_MAJOR) "." TENON_STRING(
      TENON_VERSION_MINOR) "." TENON_STRING(TENON_VERSION_PATCH));
}
uint32_t tenon_api_version(void) { return TENON_API_MAJOR << 16 | TENON_API_MINOR; }
uint32_t tenon_abi_version(void) { return TENON_ABI_MAJOR << 16 | TENON_ABI_MINOR; }

namespace {
struct Sink {
  void (*call)(void*, uint32_t, tenon_str) = nullptr;
  void* user = nullptr;
} sink;
}  // namespace

void tenon_log_to(void (*call)(void* user, uint32_t level, tenon_str text), void* user) {
  set_log_sink(nullptr, nullptr);
  sink = {call, user};
  if (call)
    set_log_sink([](LogLevel level, std::string_view text,
                    void*) { sink.call(sink.user, static_cast<uint32_t>(level), c_str(text)); },
                 nullptr);
}
