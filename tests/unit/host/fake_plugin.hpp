// SPDX-License-Identifier: Apache-2.0
// A plugin inside the test: memory is the host's, runs are recorded, and every answer can be
// changed by the test. Streams run at once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tenon/backend.h"

namespace fake {

struct StepPlan {
  uint32_t node = TENON_NONE;
  std::vector<uint32_t> reads, writes;
  std::vector<tenon_alias> aliases;
  uint64_t scratch = 0;
  std::string label;
};

// What the plugin says; reset() makes it honest again.
struct Answers {
  std::vector<tenon_device_info> devices;  // of the list; filled by reset()
  std::string note;
  bool open_fails = false;
  bool opens_nothing = false;  // success without a device
  bool no_address = false, crooked_address = false;

  tenon_query_result query{};  // verdicts and count are set from here on
  std::vector<tenon_verdict> verdicts;

  bool compile_fails = false;
  tenon_program_info info{};  // arrays and counts are set by publish()
  bool no_info = false;
  std::vector<tenon_program_value> values;
  std::vector<StepPlan> steps;
  std::vector<tenon_step> raw_steps;
  void publish();  // values and steps -> info

  std::function<tenon_status*(const tenon_run_args&)> run;
  tenon_status* pending = nullptr;  // the next synchronization's failure

  // What happened.
  int created = 0, shut_down = 0, opened = 0, buffers = 0, programs = 0, instances = 0;
  int native_copies = 0, rebinds = 0;
  std::vector<tenon_slot> bound;
  std::vector<uint32_t> lanes;  // of the last binding
  std::vector<tenon_lane_wait> waits;
  tenon_create_options create{};     // the last ones
  tenon_compile_options compiled{};  // the last ones
  uint32_t buffer_kind = 0;          // of the last buffer
  std::string buffer_name;
  uint32_t threads = 0;
};
extern Answers answers;
extern const tenon_host* host;
extern tenon_backend table;  // with streams, buffer_copy and rebind; a test may null them

void reset();
tenon_status* failure(tenon_code code, const char* text, tenon_status* cause = nullptr);
const tenon_backend* entry(const tenon_host* host);        // plugin "fake", devices of kind "fake"
const tenon_backend* other_entry(const tenon_host* host);  // plugin "other", the same devices

// The graph of the tests: c = add(a, b); d = relu(c); outputs d and a. f32[4], a an input, b a
// weight. Values 0 to 3.
std::vector<uint64_t> graph();
// Its honest program: values a b c d and one of 8 bytes of its own, then a's copy that leaves.
// Steps: add; relu with a view of c's half beside; copy.
void declare_honest_program();

}  // namespace fake
