// SPDX-License-Identifier: Apache-2.0
// Plans of transforms that stay on chip, and their tables. Shared by fft, stft and log_mel_spectrogram.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../device.hpp"
#include "args.hpp"
#include "entries.hpp"

namespace tenon::cuda {

inline constexpr int64_t kMostOnChip = 1 << 14;

// How a group of threads transforms `points` complex numbers (device/fft.cuh).
struct FftPlan {
  int points = 1;
  std::vector<int> radices{};
  int lanes = 1;

  std::vector<std::string> defines(int columns, int parts, uint32_t threads) const;
  int held() const;  // complex numbers in the registers of a thread
  // Bytes of shared memory of such transforms.
  int64_t bytes(int columns, int parts) const {
    return int64_t{4} * args::fft_area(points, columns, parts, lanes);
  }
};
// Refuses lengths that have other prime factors than 2 to 13, or more than kMostOnChip points, or that need too many
// registers.
FftPlan fft_plan(int64_t points);
// None instead of a Refusal, and where the threads must be more than most_lanes.
std::optional<FftPlan> try_fft_plan(int64_t points, int most_lanes = 1024);

// The roots of 1 of the plan's passes; with `split` also those that split a transform of real numbers.
std::vector<float> fft_roots(const FftPlan& plan, bool split);

// Constants in the device's memory, written once. They live as long as a kernel that names them.
class DeviceTable {
 public:
  DeviceTable(CudaDevice& device, std::function<std::vector<float>()> values)
      : device_(device), values_(std::move(values)) {}
  DeviceTable(const DeviceTable&) = delete;
  DeviceTable& operator=(const DeviceTable&) = delete;
  ~DeviceTable();
  void fill();  // before the first run, by any thread; throws Failure
  const void* at(int64_t offset = 0) const { return static_cast<const float*>(memory_) + offset; }

 private:
  CudaDevice& device_;
  std::function<std::vector<float>()> values_;
  std::mutex mutex_{};
  uint64_t bytes_ = 0;
  void* memory_ = nullptr;
};
// A Kernel that launches these codes, which read the tables.
sdk::Kernel kernel_with(std::vector<std::shared_ptr<DeviceTable>> tables, std::vector<Code> codes,
                        std::function<void(const sdk::Call&)> run);

// Transforms of complex numbers: `rows` of `length` numbers, cut or filled with zeros to `points`.
struct FftJob {
  int64_t points, length, rows;
  bool inverse;
  double factor;
  bool in_pairs, out_pairs;  // operand and result are on 8 bytes
};
// Of [outer, length, inner] along the axis in the middle; rows = outer * inner.
sdk::Kernel fft_along_axis(CudaDevice& device, const FftJob& job, int64_t inner);
// Of rows that do not fit on chip, in two steps. Refuses to cut or fill them.
sdk::Kernel fft_in_steps(CudaDevice& device, const FftJob& job);

sdk::Kernel make_stft(const sdk::op::stft& n, const sdk::Node& node);

// The factor of a transform of n points. Refuses norms that this plugin does not know.
double fft_factor(const std::string& norm, bool inverse, int64_t n);

}  // namespace tenon::cuda
