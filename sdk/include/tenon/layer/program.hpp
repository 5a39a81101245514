// SPDX-License-Identifier: Apache-2.0
// A compiled program: the declared values and steps, and the kernel of each step.
#pragma once

#include <deque>
#include <vector>

#include "../kernel.hpp"

namespace tenon::sdk::layer {

// An operand or output of a step: a program value, and the distance of element 0 from its slot.
struct Location {
  uint32_t value = TENON_NONE;  // TENON_NONE: absent
  int64_t displacement = 0;     // bytes
};

struct StepBody {
  Kernel kernel{};  // without run: a view, or a step without output elements
  std::vector<Location> inputs{}, outputs{};
  std::vector<uint32_t> reads{}, writes{};
  std::vector<tenon_alias> aliases{};
  std::string label{};
  uint32_t node = TENON_NONE;
  std::string form{};  // of the node, if claims may be withdrawn
};

struct DerivedValue {
  uint32_t value;        // program value
  uint64_t dense_bytes;  // size of its weight
  std::string layout;
  std::function<void(const void*, void*)> make;
  std::function<void(const Call&)> enqueue;
};

struct Program {
  std::vector<tenon_program_value> values;
  std::vector<DerivedValue> derived;  // by ascending value
  std::deque<StepBody> bodies;        // addresses must not change
  std::vector<tenon_step> steps;
  tenon_program_info info{};

  // Call it once, when values and steps are complete.
  void publish() {
    for (const DerivedValue& d : derived)
      values[d.value].layout = {d.layout.data(), d.layout.size()};
    steps.clear();
    for (const StepBody& b : bodies) {
      tenon_step s{};
      s.node = b.node;
      s.reads = b.reads.data();
      s.read_count = static_cast<uint32_t>(b.reads.size());
      s.writes = b.writes.data();
      s.write_count = static_cast<uint32_t>(b.writes.size());
      s.aliases = b.aliases.data();
      s.alias_count = static_cast<uint32_t>(b.aliases.size());
      s.scratch_size = b.kernel.run ? b.kernel.scratch : 0;
      s.label = {b.label.data(), b.label.size()};
      steps.push_back(s);
    }
    info.struct_size = sizeof(info);
    info.values = values.data();
    info.value_stride = sizeof(tenon_program_value);
    info.value_count = static_cast<uint32_t>(values.size());
    info.steps = steps.data();
    info.step_stride = sizeof(tenon_step);
    info.alias_stride = sizeof(tenon_alias);
    info.step_count = static_cast<uint32_t>(steps.size());
  }
};

}  // namespace tenon::sdk::layer
