// SPDX-License-Identifier: Apache-2.0
// Loops over host memory as the code of a launch. The simulated device can run them; a real one
// cannot: replace them, family by family, by code as in copy.cpp, and delete this file.
#include <algorithm>

#include "../device.hpp"
#include "../kernels.hpp"

namespace tenon::sample_stream {

namespace {

// For the device: writes a report to Call::error. sdk::kErrorRecordText is the same for code that is
// a text. Without atomics the last report remains instead of the first.
void report(uint32_t* words, const sdk::ErrorRecord& record, bool atomics) {
  if (!atomics)
    words[0] = record.position;
  else if (simulator::atomic_min(words, record.position) <= record.position)
    return;
  words[1] = record.code;
  words[2] = record.low;
  words[3] = record.high;
  words[4] = record.check;
}

// Arguments: operands, outputs, scratch, error record.
struct LoopCode {
  std::function<void(const sdk::Call&)> loops;
  size_t inputs, outputs;
  int checked;  // position of the operand whose data may be bad, -1 = none
  bool wide;    // its indices are i64, not i32
  bool atomics;

  void operator()(void* const* memory, const uint64_t*) const {
    alignas(
        16) static char nothing[16];  // loops want an address, also for tensors without elements
    std::vector<void*> pointers(memory, memory + inputs + outputs);
    std::ranges::replace(pointers, nullptr, static_cast<void*>(nothing));
    sdk::Call call;
    call.inputs = pointers.data();
    call.outputs = pointers.data() + inputs;
    call.scratch = memory[inputs + outputs];
    try {
      loops(call);
    } catch (const sdk::Failure& e) {
      if (checked < 0) throw;
      const int64_t at = std::max<int64_t>(e.index(), 0);
      int64_t bad = 0;
      if (e.code() == TENON_INDEX_OUT_OF_RANGE)
        bad = wide ? call.in<int64_t>(checked)[at] : call.in<int32_t>(checked)[at];
      report(static_cast<uint32_t*>(memory[inputs + outputs + 1]),
             sdk::ErrorRecord::of(e.code(), static_cast<uint64_t>(at), bad), atomics);
    }
  }
};

}  // namespace

Kernel launch_of(Kernel kernel, const Node& node, const sdk::Value& checked) {
  if (!kernel.run) return kernel;
  const size_t inputs = node.input_count(), outputs = node.output_count();
  // Loops have no text that could be a key of the cache: each kernel has an entry of its own.
  const LoopCode loops{std::move(kernel.run),
                       inputs,
                       outputs,
                       checked.position(),
                       checked && checked.type().dtype == TENON_DTYPE_I64,
                       has_atomics(node)};
  const auto code =
      std::make_shared<CodeCache::Entry>([loops] { return simulator::compile(loops); });
  kernel.prepare = [code] { code->build(); };
  kernel.run = nullptr;
  kernel.bind = [=, device = node.device()](const sdk::Call& c) {
    simulator::Arguments arguments;
    for (size_t k = 0; k < inputs; ++k) arguments.memory.push_back(part_of(c.input_places[k]));
    for (size_t k = 0; k < outputs; ++k) arguments.memory.push_back(part_of(c.output_places[k]));
    arguments.memory.push_back(part_of(c.scratch_place));
    arguments.memory.push_back(part_of(c.error_place));
    return launcher(device, code->built(), std::move(arguments));
  };
  kernel.can_fail = static_cast<bool>(checked);
  return kernel;
}

}  // namespace tenon::sample_stream
