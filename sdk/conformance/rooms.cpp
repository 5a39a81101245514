// SPDX-License-Identifier: Apache-2.0
// Memory of the device comes from tenon itself, so that the kit needs no driver: it is the output
// of a copy.
#include "rooms.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tenon::conform {

Rooms::Rooms(const Runtime& runtime, const std::string& device) : store_(runtime) {
  detail::check(tenon_runtime_import_alignment(runtime.handle(), detail::str(device), &alignment_));
  if (alignment_ == 0) throw Error(TENON_UNSUPPORTED, device + " imports no memory of the app");
  const Graph copy = Graph::parse(
      "graph \"room\" {\n  input x: u8[N]\n  y = copy(x)\n  output \"y\" = y\n}\n", "room");
  copy_ = std::make_unique<Executable>(
      runtime, copy, store_, ExecutableOptions{.device = device, .allow_fallback = false});
  Context probe(*copy_);
  probe.set("x", std::vector<uint8_t>(1));
  probe.run();
}

std::unique_ptr<Context> Rooms::bind(Context& context, const std::string& name,
                                     const TensorType& type,
                                     const std::vector<std::byte>& content) const {
  const uint64_t element = std::max<uint64_t>(tenon_dtype_bits(type.dtype) / 8, 1);
  const uint64_t offset = std::max(alignment_, element);
  // Rounds sizes up, so that few plans are made.
  std::vector<uint8_t> bytes(std::bit_ceil(offset + std::max<size_t>(content.size(), 1)));
  if (!content.empty()) std::memcpy(bytes.data() + offset, content.data(), content.size());
  auto room = std::make_unique<Context>(*copy_);
  room->set("x", bytes);
  room->run();
  const tenon_tensor out = room->output("y");
  const std::string device(out.device.data ? out.device.data : "", out.device.size);
  context.bind(name, type, static_cast<std::byte*>(out.data) + offset, content.size(), device);
  return room;
}

}  // namespace tenon::conform
