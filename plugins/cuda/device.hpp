// SPDX-License-Identifier: Apache-2.0
// One NVIDIA GPU: its primary context, memory, streams, and the code that runs on it.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "blas.hpp"
#include "code.hpp"
#include "memory.hpp"
#include "ranges.hpp"
#include "static_shared.hpp"
#include "stream.hpp"
#include "tenon/stream_plugin.hpp"
#include "tune.hpp"

namespace tenon::cuda {

// When rows have the same bits alone and among others, in what the page of the plugin lists (Batch invariance).
enum class Invariance : uint8_t { never, where_asked, always };

struct Properties {
  std::string name{};
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 1;
  bool integrated = false;  // it shares the host's memory
  uint32_t shared_per_block =
      48 << 10;               // bytes, the most that a block may have, static and dynamic
  bool early_starts = false;  // Grid::early is understood
  Invariance invariance = Invariance::never;
  uint64_t l2_bytes = 0;
  uint64_t memory_bytes = 0;

  // The most dynamic shared memory that a launch of kernel `entry` of device/<file> may ask for, in
  // bytes: what is left of a block's beside the kernel's static part.
  uint32_t shared_room(std::string_view file, std::string_view entry,
                       std::span<const std::string> defines = {}) const {
    const uint32_t own = static_shared(file, entry, defines);
    return shared_per_block > own ? shared_per_block - own : 0;
  }
};

// Of what the driver sees; `reason` of a spec says why a device cannot be opened.
std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&);
std::string note(const sdk::Runtime& runtime);
std::unique_ptr<sdk::Device> open(const sdk::Runtime& runtime, uint32_t index, uint32_t threads);

class CudaDevice final : public sdk::StreamDevice {
 public:
  explicit CudaDevice(DeviceId id);
  ~CudaDevice() override;

  const Properties& properties() const { return properties_; }
  Context context() const { return context_.handle; }
  // The kernel `entry` of device/<file>, with defines "NAME=VALUE"; shared: the most bytes of
  // dynamic shared memory. Throws sdk::Refusal when it cannot be made. Nothing is compiled yet.
  Code code(std::string_view file, const std::string& entry,
            const std::vector<std::string>& defines = {}, uint32_t shared = 0) {
    return codes_.code(file, entry, defines, shared);
  }
  template <class... Parameters>
  TypedCode<Parameters...> code(const Entry<Parameters...>& entry,
                                const std::vector<std::string>& defines = {}, uint32_t shared = 0) {
    return TypedCode<Parameters...>(codes_.code(entry.file, entry.name, defines, shared));
  }
  // The same of a text made at run time.
  Code generated(std::string_view name, std::string text, const std::string& entry,
                 uint32_t shared = 0) {
    return codes_.generated(name, std::move(text), entry, shared);
  }

  // Can cuBLASLt be used on this device? Throws Failure when the device is lost or full.
  bool multiplies();
  // cuBLASLt's handle on this device, made when first asked for. Throws Failure.
  BlasHandle blas_handle();
  // What was chosen by timing; keys name the device, whose kind others may share a directory with.
  Choices& choices() { return choices_; }

  bool has_addresses() const override { return true; }
  void* allocate(uint64_t bytes, uint64_t alignment) override;
  void deallocate(void* memory, uint64_t bytes) noexcept override;
  void* allocate(uint64_t bytes, uint64_t alignment, uint32_t kind) override;
  void deallocate(void* memory, uint64_t bytes, uint32_t kind) noexcept override;
  void run(void (*body)(void*), void* arg) override;

  bool imports() const override { return true; }
  void* import_memory(void* address, uint64_t bytes) override;

  void* stream_create() override;
  void stream_destroy(void* stream) noexcept override;
  void stream_synchronize(void* stream) override;
  void stream_wait(void* stream, void* event) override;
  void* event_create() override;
  void event_destroy(void* event) noexcept override;
  void event_record(void* event, void* stream) override;
  bool event_done(void* event) override;
  void event_synchronize(void* event) override;
  void event_on_done(void* event, void (*callback)(void*), void* user) override;

  void write(sdk::Place target, const void* source, uint64_t size, void* stream) override;
  void read(void* target, sdk::Place source, uint64_t size, void* stream) override;
  void copy(sdk::Place target, StreamDevice& from, sdk::Place source, uint64_t size,
            void* stream) override;

  ErrorWord error_word_create() override;
  void error_word_destroy(const ErrorWord& word) noexcept override;
  void error_word_reset(const ErrorWord& word, void* stream) override;
  void error_word_fetch(const ErrorWord& word, void* stream) override;

  bool records() const override { return driver().has_graphs(); }
  void record_begin(void* stream) override;
  void* record_end(void* stream) override;
  void replay(void* recording, void* stream) override;
  void recording_destroy(void* recording) noexcept override;

  bool has_timers() const override { return driver().event_elapsed != nullptr; }
  void* timer_create() override;
  void timer_destroy(void* timer) noexcept override;
  void timer_record(void* timer, void* stream) override;
  double timer_elapsed(void* from, void* to) override;

  std::vector<std::string> choice_texts() override { return choices_.texts(); }
  void take_choice(std::string_view text) override { choices_.take(text); }

  bool shows_ranges() const override { return static_cast<bool>(ranges()); }
  void range_begin(const std::string& name) override { ranges().push(name.c_str()); }
  void range_end() noexcept override { ranges().pop(); }

 private:
  // The primary context is shared with whoever else uses the device in this process.
  struct Primary {
    explicit Primary(DeviceId device);
    ~Primary();
    DeviceId id;
    Context handle = nullptr;
  };
  template <class Body>
  void quietly(Body&& body) const noexcept;
  // From here on the peer's copies reach this device's memory, where the two can do that; the
  // driver takes copies through the host where they cannot.
  void let_in(const CudaDevice& peer);

  Primary context_;
  Properties properties_;
  CodeStore codes_;
  Choices choices_;
  std::mutex blas_mutex_;
  BlasHandle blas_ = nullptr;
  std::unique_ptr<Memory> memory_;
  std::mutex peers_mutex_;
  std::set<DeviceId> peers_;  // that were let in, or cannot be
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Callbacks> callbacks_;
};

// The device of the node that a maker looks at.
inline CudaDevice& device_of(const sdk::Node& node) {
  return static_cast<CudaDevice&>(*node.device());
}

// Must rows have the same bits alone and among others?
inline bool is_batch_invariant(const sdk::Node& node) {
  const Invariance when = device_of(node).properties().invariance;
  return when == Invariance::always ||
         (when == Invariance::where_asked && (node.hints() & TENON_HINT_BATCH_INVARIANT) != 0);
}

}  // namespace tenon::cuda
