// SPDX-License-Identifier: Apache-2.0
// Kernels for devices of other plugins (kernels.h), on both sides: makers of a guest, and their
// kernels on the device of a plugin that accepts them.
#pragma once

#include <exception>
#include <mutex>
#include <optional>

#include "../kernels.h"
#include "lowering.hpp"
#include "objects.hpp"

namespace tenon::sdk::layer {

// ---- The guest's side ---------------------------------------------------------------------------

// Opens the node of a request, and calls `body` with the decoded op and the node.
template <class Op, class Body>
void with_request(const tenon_kernel_request* r, Body body) noexcept {
  const auto refuse = [&](uint32_t reason, const char* why) { r->refuse(r, reason, str(why)); };
  try {
    const tenon_blob blob = {
        static_cast<const unsigned char*>(r->blob), r->blob_size,
        static_cast<const tenon_blob_header*>(r->blob)};  // checked by the host
    tenon_node_view view = tenon_node_at(&blob, 0, r->node);
    check_type(tenon_node_unknown_type(&view), " of an operand, an output or an attribute");
    check_blocks(view, Op::kDomain, Op::kName, 0);
    check_complete(schema_of<Op>(), view);
    std::deque<Type> types;  // Values point into it
    const Target target{nullptr, r->alignment, true, r->abi_minor};
    const Node node = read_node(
        blob, view, Op::kDomain, Op::kName, target, types,
        [&](uint32_t v) { return type_of(blob, *tenon_blob_value_at(&blob, view.function, v)); },
        [&](uint32_t) { return r->alignment; });
    Op op;
    visit(op, Decoder(view, node));
    check_known(view);
    body(op, node);
  } catch (const Refusal& e) {
    refuse(e.reason(), e.what());
  } catch (const std::exception& e) {
    refuse(TENON_REASON_OTHER, e.what());
  } catch (...) {
    refuse(TENON_REASON_OTHER, "an exception of unknown type");
  }
}

// What a tenon_host_kernel points to.
struct GuestKernel {
  Kernel kernel;
  std::vector<uint32_t> in_place;
  std::once_flag prepared{};

  explicit GuestKernel(Kernel k) : kernel(std::move(k)) {
    for (const InPlace& pair : kernel.in_place) {
      in_place.push_back(static_cast<uint32_t>(pair.input));
      in_place.push_back(static_cast<uint32_t>(pair.output));
    }
  }
  static void run(void* self, const tenon_kernel_call* call) noexcept {
    auto& guest = *static_cast<GuestKernel*>(self);
    const auto fail = [&](tenon_code code, const char* text, int64_t index = -1) {
      call->fail(call, code, str(text), index);
    };
    try {
      if (guest.kernel.prepare) std::call_once(guest.prepared, guest.kernel.prepare);
      Call c;
      c.inputs = call->inputs;
      c.outputs = call->outputs;
      c.scratch = call->scratch;
      guest.kernel.run(c);
    } catch (const Failure& e) {
      fail(e.code(), e.what(), e.index());
    } catch (const std::bad_alloc&) {
      fail(TENON_OUT_OF_MEMORY, "host memory ran out");
    } catch (const std::exception& e) {
      fail(TENON_INTERNAL, e.what());
    } catch (...) {
      fail(TENON_INTERNAL, "an exception of unknown type");
    }
  }
  static void destroy(void* self) noexcept { delete static_cast<GuestKernel*>(self); }
};

template <class Op, Kernel (*make)(const Op&, const Node&)>
void make_host_kernel(const void*, const tenon_kernel_request* r) noexcept {
  with_request<Op>(r, [&](const Op& op, const Node& node) {
    auto guest = std::make_unique<GuestKernel>(make(op, node));
    const Kernel& k = guest->kernel;
    if (!k.run || !k.view.empty() || !k.derived.empty() || k.tune)
      throw Refusal(TENON_REASON_OTHER,
                    "a kernel for a device of another plugin has run() and neither view, derived "
                    "nor tune");
    tenon_host_kernel out{};
    out.struct_size = sizeof out;
    out.self = guest.get();
    out.run = GuestKernel::run;
    out.destroy = GuestKernel::destroy;
    out.scratch = k.scratch;
    out.cost = k.cost;
    out.in_place = guest->in_place.data();
    out.in_place_count = static_cast<uint32_t>(guest->in_place.size() / 2);
    r->give(r, &out);
    static_cast<void>(guest.release());
  });
}

// Both strings live as long as the program.
template <class Op>
constexpr tenon_kernel_row kernel_row(std::string_view device_kind, std::string_view form,
                                      void (*make)(const void*, const tenon_kernel_request*)) {
  tenon_kernel_row row{};
  row.device_kind = {device_kind.data(), device_kind.size()};
  row.form = {form.data(), form.size()};
  row.domain = {Op::kDomain.data(), Op::kDomain.size()};
  row.op = {Op::kName.data(), Op::kName.size()};
  row.version = Op::kVersion;
  row.make = make;
  return row;
}

// ---- The side of the device ---------------------------------------------------------------------

// A guest's kernel, destroyed with the last Kernel that refers to it.
class HostGuest {
 public:
  HostGuest(const tenon_host_kernel& kernel, const Node& node)
      : kernel_(kernel),
        input_count_(static_cast<uint32_t>(node.input_count())),
        output_count_(static_cast<uint32_t>(node.output_count())) {}
  HostGuest(const HostGuest&) = delete;
  HostGuest& operator=(const HostGuest&) = delete;
  ~HostGuest() {
    if (kernel_.destroy) kernel_.destroy(kernel_.self);
  }
  void run(const Call& c) const {
    std::optional<Failure> failure;
    tenon_kernel_call call{};
    call.struct_size = sizeof call;
    call.owner = &failure;
    call.inputs = c.inputs;
    call.outputs = c.outputs;
    call.input_count = input_count_;
    call.output_count = output_count_;
    call.scratch = c.scratch;
    call.fail = [](const tenon_kernel_call* at, tenon_code code, tenon_str why, int64_t index) {
      auto& first = *static_cast<std::optional<Failure>*>(at->owner);
      try {
        if (!first)
          first.emplace(code == TENON_OK ? TENON_INTERNAL : code, std::string(text(why)), index);
      } catch (...) {
        first.emplace(TENON_OUT_OF_MEMORY, std::string(), index);
      }
    };
    kernel_.run(kernel_.self, &call);
    if (failure) throw Failure(*failure);
  }

 private:
  const tenon_host_kernel kernel_;
  const uint32_t input_count_, output_count_;
};

// form: tenon.host_kernel/1.
inline Kernel adopt_host_kernel(const void* given, const Node& node) {
  tenon_host_kernel k{};
  uint64_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < TENON_HOST_KERNEL_SIZE_V1)
    throw Refusal(TENON_REASON_OTHER, "the kernel of another plugin is described by " +
                                          std::to_string(size) + " bytes, needed are " +
                                          std::to_string(TENON_HOST_KERNEL_SIZE_V1));
  std::memcpy(&k, given, std::min<uint64_t>(size, sizeof k));
  const auto guest = std::make_shared<const HostGuest>(k, node);
  if (!k.run || (k.in_place_count && !k.in_place))
    throw Refusal(TENON_REASON_OTHER, "the kernel of another plugin is not whole");
  Kernel kernel;
  kernel.run = [guest](const Call& c) { guest->run(c); };
  kernel.scratch = k.scratch;
  kernel.cost = k.cost;
  for (uint32_t i = 0; i < k.in_place_count; ++i)
    kernel.in_place.push_back(
        {static_cast<int>(k.in_place[2 * i]), static_cast<int>(k.in_place[2 * i + 1])});
  return kernel;
}

// The plugin's rows, then those of other plugins for this device.
inline std::vector<Row> rows_of(const DeviceState& device) {
  struct Taken {
    std::vector<Row> rows;
    bool full = false;  // memory ran out
  } taken{device.plugin->rows};
  const PluginSpec& spec = *device.plugin->spec;
  const std::string_view form = spec.streams ? spec.kernel_form : TENON_HOST_KERNEL_ID;
  const tenon_host* host = device.plugin->host;
  if (form.empty() || (spec.streams && !spec.adopt) || !TENON_HAS(tenon_host, host, get_extension))
    return taken.rows;
  const auto* list =
      static_cast<const tenon_kernel_list*>(host->get_extension(str(TENON_KERNELS_ID)));
  if (!list || list->struct_size < TENON_KERNEL_LIST_SIZE_V1) return taken.rows;
  list->each(
      str(device.spec.kind), str(form),
      [](void* user, const tenon_kernel_row* r) {
        auto& to = *static_cast<Taken*>(user);
        try {
          to.rows.push_back({text(r->op), r->version, 0, nullptr, text(r->domain), nullptr, r});
        } catch (...) {
          to.full = true;
        }
      },
      &taken);
  if (taken.full) throw std::bad_alloc();
  return std::move(taken.rows);
}

}  // namespace tenon::sdk::layer

namespace tenon::sdk {

// A kernel over host memory for devices of other plugins: host_kernel<my::softcap, make>("cpu").
template <class Op, Kernel (*make)(const Op&, const Node&)>
constexpr tenon_kernel_row host_kernel(std::string_view device_kind) {
  return layer::kernel_row<Op>(device_kind, TENON_HOST_KERNEL_ID,
                               layer::make_host_kernel<Op, make>);
}

}  // namespace tenon::sdk
