// SPDX-License-Identifier: Apache-2.0
// Loops over host memory as the code of a launch. The simulated device can run them; a real one
// cannot: replace them, family by family, by code as in copy.cpp, and delete this file.
#include <algorithm>
#include <atomic>

#include "../device.hpp"
#include "../kernels.hpp"

namespace tenon::sample_stream {

namespace {

// For the device: replaces the error word by the smaller of the word and `value`.
void report(void* word, uint64_t value) {
  std::atomic_ref<uint64_t> shared(*static_cast<uint64_t*>(word));
  uint64_t seen = shared.load();
  while (value < seen && !shared.compare_exchange_weak(seen, value)) {
  }
}

// Arguments: operands, outputs, scratch, error word; the number is the step.
struct LoopCode {
  std::function<void(const sdk::Call&)> loops;
  size_t inputs, outputs;
  bool can_fail;

  void operator()(void* const* memory, const uint64_t* numbers) const {
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
      if (!can_fail) throw;
      const auto index = static_cast<uint64_t>(std::max<int64_t>(e.index(), 0));
      report(memory[inputs + outputs + 1], sdk::error_value(numbers[0], e.code(), index));
    }
  }
};

}  // namespace

Kernel launch_of(Kernel kernel, const Node& node, bool can_fail) {
  if (!kernel.run) return kernel;
  const size_t inputs = node.input_count(), outputs = node.output_count();
  const auto code = std::make_shared<const simulator::Code>(
      LoopCode{std::move(kernel.run), inputs, outputs, can_fail});
  kernel.prepare = [code] { code->build(); };
  kernel.run = [=](const sdk::Call& c) {
    simulator::Arguments arguments;
    for (size_t k = 0; k < inputs; ++k) arguments.memory.push_back(part_of(c.input_places[k]));
    for (size_t k = 0; k < outputs; ++k) arguments.memory.push_back(part_of(c.output_places[k]));
    arguments.memory.push_back(part_of(c.scratch_place));
    arguments.memory.push_back({c.error, 0});
    arguments.numbers = {c.step};
    queue_of(c).launch(code, std::move(arguments));
  };
  kernel.can_fail = can_fail;
  return kernel;
}

}  // namespace tenon::sample_stream
