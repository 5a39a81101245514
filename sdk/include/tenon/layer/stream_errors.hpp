// SPDX-License-Identifier: Apache-2.0
// What the kernels of an instance report about their data: one word for the run, or a record for
// each step that can fail. Both exist on the device and as a copy on the host.
#pragma once

#include <cstring>
#include <optional>
#include <vector>

#include "../stream_plugin.hpp"

namespace tenon::sdk::layer {

inline StreamDevice& stream_device(const DeviceState& state) {
  return static_cast<StreamDevice&>(*state.device);
}

// One run at a time. A run: reset() if the one before reported something, forget(), the steps,
// fetch(); and after the run first().
class StreamErrors {
 public:
  struct Report {
    uint32_t step = TENON_NONE;
    BadData bad{};
  };

  // May throw Failure or std::bad_alloc.
  StreamErrors(StreamDevice& device, const CompiledProgram& program)
      : device_(device), records_(device.error_scheme() == ErrorScheme::records) {
    const auto& bodies = program.program.bodies;
    for (uint32_t i = 0; i < bodies.size(); ++i)
      if (bodies[i].kernel.run && bodies[i].kernel.can_fail) steps_.push_back(i);
    if (steps_.empty()) return;
    if (!records_) {
      word_ = device_.error_word_create();
      return;
    }
    clean_.assign(steps_.size(), ErrorRecord::none());
    host_ = clean_;
    memory_ = device_.allocate(bytes(), program.device->spec.alignment);
  }
  StreamErrors(const StreamErrors&) = delete;
  StreamErrors& operator=(const StreamErrors&) = delete;
  ~StreamErrors() {
    if (memory_) device_.deallocate(memory_, bytes());
    if (word_.host) device_.error_word_destroy(word_);
  }

  bool any() const { return !steps_.empty(); }

  // Call::error of a step. With records: without memory for steps that cannot fail.
  Place place(uint32_t step) const {
    if (!records_) return {word_.device, 0};
    const auto at = std::ranges::lower_bound(steps_, step);
    if (at == steps_.end() || *at != step) return {};
    return {memory_, static_cast<uint64_t>(at - steps_.begin()) * kErrorRecordBytes};
  }

  // The rest only if any().
  void reset(void* stream) {
    if (records_)
      device_.write({memory_, 0}, clean_.data(), bytes(), stream);
    else
      device_.error_word_reset(word_, stream);
  }
  void forget() {
    if (records_)
      host_ = clean_;
    else
      *word_.host = kNoError;
  }
  void fetch(void* stream) {
    if (records_)
      device_.read(host_.data(), {memory_, 0}, bytes(), stream);
    else
      device_.error_word_fetch(word_, stream);
  }

  // Of the first step that reported something. Call it after fetch() is done.
  std::optional<Report> first() const {
    if (records_) {
      for (size_t k = 0; k < host_.size(); ++k)
        if (const auto bad = host_[k].read()) return Report{steps_[k], *bad};
      return std::nullopt;
    }
    const uint64_t value = *word_.host;
    if (value == kNoError) return std::nullopt;
    Report r{static_cast<uint32_t>(value >> kErrorStepShift), {}};
    r.bad.code = static_cast<tenon_code>(value >> kErrorCodeShift & 15);
    r.bad.position = static_cast<int64_t>(value & ((uint64_t{1} << kErrorCodeShift) - 1));
    return r;
  }

 private:
  uint64_t bytes() const { return clean_.size() * sizeof(ErrorRecord); }

  StreamDevice& device_;
  const bool records_;
  std::vector<uint32_t> steps_;  // that can fail, ascending
  StreamDevice::ErrorWord word_{};
  void* memory_ = nullptr;                 // of the records
  std::vector<ErrorRecord> clean_, host_;  // no reports; what fetch() reads
};

}  // namespace tenon::sdk::layer
