// SPDX-License-Identifier: Apache-2.0
// A driver such as a vendor of GPUs would ship, simulated by threads of this machine. It knows
// nothing of tenon. Replace this folder by the driver of your device.
//
// The threads stand for the hardware of the device.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace simulator {

// A command failed. The device is lost: later commands are skipped, and waits throw this.
struct Lost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ---- Memory -------------------------------------------------------------------------------------

// A handle. It is no address, and a handle plus a number is no handle.
using Memory = void*;

// Bytes of an allocation, from `offset` on. Without memory: a null pointer for code.
struct Part {
  Memory memory = nullptr;
  uint64_t offset = 0;
};

// What a device is called and can do.
struct Properties {
  const char* name;
  bool atomics;   // code may use atomic_min
  bool captures;  // queues record what is enqueued; otherwise recordings are built by hand
};
inline constexpr Properties kDevices[] = {
    {"a simulated GPU", true, true},
    {"a simulated GPU without atomics and capture", false, false},
};

class Device {
 public:
  explicit Device(const Properties& properties) : properties_(properties) {}
  const Properties& properties() const { return properties_; }

  Memory allocate(uint64_t bytes);  // throws std::bad_alloc
  void release(Memory memory) noexcept;

  // For the commands of queues. Throws Lost if the part is not `bytes` long.
  unsigned char* map(const Part& part, uint64_t bytes) const;

  void lose(const std::string& why) noexcept;
  bool lost() const;
  void check() const;  // throws Lost

 private:
  struct Block {
    std::unique_ptr<unsigned char, void (*)(unsigned char*)> bytes;
    uint64_t size;
  };
  const Properties properties_;
  mutable std::mutex mutex_;
  std::unordered_map<Memory, Block> blocks_;
  uint64_t made_ = 0;
  std::string why_lost_;
};

// ---- Code ---------------------------------------------------------------------------------------

// The arguments of a launch: memory, and numbers that are passed by value.
struct Arguments {
  std::vector<Part> memory{};
  std::vector<uint64_t> numbers{};
};

// A function of the device. It gets a pointer for each memory argument.
using Function = std::function<void(void* const* memory, const uint64_t* numbers)>;

// For functions of the device: stores the smaller word, and returns the old one. Throws Lost if the
// device has no atomics.
uint32_t atomic_min(uint32_t* word, uint32_t value);

class Code {
 public:
  explicit Code(Function function) : function_(std::move(function)) {}
  void run(const Device& device, const Arguments& arguments) const;

 private:
  Function function_;
};
using CodePtr = std::shared_ptr<const Code>;

// Code with its arguments, to be launched many times: a cl_kernel whose arguments are set.
struct Launch {
  CodePtr code;
  Arguments arguments;
};
using LaunchPtr = std::shared_ptr<const Launch>;

// Compiles code; slow on a real device.
CodePtr compile(Function function);

// ---- Queues and events --------------------------------------------------------------------------

using Command = std::function<void()>;

// Commands that are replayed together: captured from queues, or added one by one.
class Recording {
 public:
  explicit Recording(Device& device) : device_(device) {}
  void launch(LaunchPtr launch);
  void copy(Part target, Part source, uint64_t bytes);
  void end();  // from here on it can be replayed, and nothing can be added

 private:
  friend class Queue;
  void add(Command command);

  Device& device_;
  std::vector<Command> commands_{};     // in an order that their events allow
  std::vector<class Queue*> queues_{};  // that are captured; the first one began
  bool ended_ = false;
};

// A point in a queue. Each recording of the event is a new point.
class Event {
 public:
  bool done() const;
  void wait() const;
  void on_done(std::function<void()> callback) const;  // also called at once
  // When the point was passed last.
  std::chrono::steady_clock::time_point time() const;

 private:
  friend class Queue;
  // Outlives the event while commands refer to it.
  struct State {
    std::mutex mutex{};
    std::condition_variable changed{};
    uint64_t recorded = 0;      // the last point; 0 = none
    std::set<uint64_t> open{};  // points that are not passed; on several queues, in any order
    std::chrono::steady_clock::time_point time{};
    std::vector<std::pair<uint64_t, std::function<void()>>> callbacks{};
    std::shared_ptr<Recording> recording{};  // the last point is in this recording

    void pass(uint64_t point);
    void wait(uint64_t point);
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Runs commands in order, in a thread of its own.
class Queue {
 public:
  explicit Queue(Device& device) : device_(device), thread_([this] { loop(); }) {}
  ~Queue();       // waits for the commands
  void finish();  // waits for the commands; throws Lost

  void launch(LaunchPtr launch);
  void write(Part target, const void* source, uint64_t bytes);
  void read(void* target, Part source, uint64_t bytes);
  // owner: the device of the source, if it is another one.
  void copy(Part target, Part source, uint64_t bytes, const Device* owner = nullptr);
  void fill(Part target, unsigned char byte, uint64_t bytes);
  void record(const Event& event);
  void wait(const Event& event);

  // From here on commands are captured, if the device can do that. A queue joins when it waits for an event of the recording.
  void begin_recording();
  std::shared_ptr<Recording> end_recording();
  void replay(std::shared_ptr<const Recording> recording);

 private:
  void post(Command command);
  void enqueue(Command command);
  void loop();

  Device& device_;
  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::deque<Command> commands_{};
  bool busy_ = false, stop_ = false;
  std::shared_ptr<Recording> recording_{};  // that it takes part in
  std::thread thread_;                      // last: uses the rest
};

}  // namespace simulator
