// SPDX-License-Identifier: Apache-2.0
// Choosing among ways to do the same thing by timing them on the device. Ways may differ in the
// last bits of a result, so a choice is made once and kept, beside the machine code: every later
// run takes the same one. Where nothing can be kept nothing is timed.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache.hpp"
#include "driver.hpp"

namespace tenon::cuda {

class CudaDevice;

// Ways by index; way 0 is the one to take untimed.
class Trial {
 public:
  virtual ~Trial() = default;
  virtual size_t ways() const = 0;
  // Seconds of one run, with nothing of it in the device's caches, or run again and again.
  // Infinite when the way fails.
  virtual double cold(size_t way) = 0;
  virtual double warm(size_t way) = 0;
  // Runs a way for so many seconds, so that the device's clocks settle.
  virtual void heat(size_t way, double seconds) = 0;
};
// Returns the way with the least sum of both times; 0 unless another is clearly faster. The clocks
// settle first, candidates run by turns, and the best two run against each other once more.
size_t fastest(Trial& trial);

// Runs enqueued on a stream of its own, timed by events. Throws Failure when the device is lost.
class StreamTrial final : public Trial {
 public:
  using Way = std::function<void(Stream)>;
  StreamTrial(CudaDevice& device, std::vector<Way> ways);
  ~StreamTrial() override;
  StreamTrial(const StreamTrial&) = delete;
  StreamTrial& operator=(const StreamTrial&) = delete;
  static bool possible();  // has the driver what it takes?
  size_t ways() const override { return ways_.size(); }
  double cold(size_t way) override;
  double warm(size_t way) override;
  void heat(size_t way, double seconds) override;

 private:
  double time(size_t way, int repeats, bool flush);
  void release() noexcept;
  CudaDevice& device_;
  std::vector<Way> ways_;
  std::vector<double> seconds_;  // last known, 0 = unknown
  Stream stream_ = nullptr;
  Event begin_ = nullptr, end_ = nullptr;
  void* flushed_ = nullptr;
  uint64_t flushed_bytes_ = 0;
};

// Device memory for a while, filled with floats around 0 of type t unless that is NONE. No bytes:
// no address. Throws Failure.
class TrialMemory {
 public:
  TrialMemory(CudaDevice& device, tenon_dtype t, uint64_t bytes);
  ~TrialMemory();
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  void* at() const { return memory_; }

 private:
  CudaDevice& device_;
  uint64_t bytes_;
  void* memory_ = nullptr;
};

// What was chosen, as text, by all that the choice depends on. For any thread; of one object at a
// time one choice is being made, so that timings do not disturb each other.
class Choices {
 public:
  // directory: empty = nothing is kept. timed: false = choices are made without timing.
  Choices(std::string directory, bool timed);
  // TENON_CUDA_TUNE=0 turns timing off.
  static bool usually_timed();
  // choose(timed): the choice; nothing where it could not be timed, then it is asked again without.
  using Choose = std::function<std::optional<std::string>(bool timed)>;
  // offered: is a choice that comes from the disk or from a stranger among those that there are?
  using Accept = std::function<bool(const std::string&)>;
  std::string of(const std::string& key, const Choose& choose, const Accept& offered);
  // Those that were made, each with its key, to be kept with what was computed.
  std::vector<std::string> texts();
  // One of these, to be used in place of what would be chosen; what is none of them is ignored.
  void take(std::string_view text);

 private:
  DiskCache disk_;
  bool timed_;
  std::mutex mutex_{};
  std::map<std::string, std::string> made_{}, taken_{};
};

}  // namespace tenon::cuda
