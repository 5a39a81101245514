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
    const auto* step = dynamic_cast<const StepError*>(&e);
    return make_status(&desc, step ? &step->at() : nullptr);
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

SymbolNumbers numbers_of(const tenon_str* symbols, const int64_t* numbers, uint32_t count) {
  if (count) need(symbols, "symbols"), need(numbers, "numbers");
  SymbolNumbers out;
  for (uint32_t i = 0; i < count; ++i)
    if (!out.emplace(view(symbols[i]), numbers[i]).second)
      fail(Code::invalid_argument, "symbol '", view(symbols[i]), "' is given twice");
  return out;
}

}  // namespace tenon::core

using namespace tenon::core;

tenon_code tenon_status_code(const tenon_status* status) { return status_code(status); }
tenon_str tenon_status_text(const tenon_status* status) { return status_text(status); }
tenon_status* tenon_status_where(const tenon_status* status, tenon_status_place* out_place) {
  return door("tenon_status_where", [&] {
    need(out_place, "out_place");
    const StatusPlace known = status_place(status);
    tenon_status_place place{};
    place.run_id = known.run_id;
    place.index = known.index;
    place.step = TENON_NONE;
    place.retryable = known.retryable;
    if (known.at) {
      place.node = c_str(known.at->node);
      place.op = c_str(known.at->op);
      place.device = c_str(known.at->device);
      place.step = known.at->step;
    }
    give(*out_place, place, "out_place");
  });
}
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
