// SPDX-License-Identifier: Apache-2.0
// Chooses radices and threads of transforms, and makes the tables of their roots.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "fft.hpp"

namespace tenon::cuda {
namespace {

constexpr int kMostRadix = 16;
// Complex numbers in the registers of a thread: those of 1024 threads of a multiprocessor, or of 512.
constexpr int kUsuallyHeld = 16, kMostHeld = 30, kMostLanesThen = 512;

int rounds(int points, int radix, int lanes) { return (points / radix + lanes - 1) / lanes; }

// Registers that all threads spend on all passes, idle ones included; each pass costs an exchange as well.
double cost_of(int points, const std::vector<int>& radices, int lanes, int most_held) {
  constexpr double kExchange = 0.6;
  int held = 0;
  for (const int r : radices) {
    const int own = rounds(points, r, lanes) * r;
    if (own > most_held) return HUGE_VAL;
    held += own;
  }
  return lanes * held + kExchange * points * static_cast<double>(radices.size());
}

struct Search {
  int points, most_lanes, most_held;
  FftPlan best{};
  double cost = HUGE_VAL;

  void judge(const std::vector<int>& radices) {
    // A number of threads that divides the butterflies of a pass wastes none there.
    for (const int radix : radices)
      for (int parts = 1; parts <= most_held; ++parts) {
        const int lanes = (points / radix + parts - 1) / parts;
        if (lanes > most_lanes) continue;
        const double found = cost_of(points, radices, lanes, most_held);
        if (found < cost || (found == cost && found < HUGE_VAL && lanes > best.lanes)) {
          cost = found;
          best = {points, radices, lanes};
        }
      }
  }
  // Radices in descending order.
  void extend(std::vector<int>& radices, int rest) {
    if (rest == 1) return judge(radices);
    for (int r = std::min(radices.empty() ? kMostRadix : radices.back(), rest); r > 1; --r) {
      if (rest % r != 0) continue;
      radices.push_back(r);
      extend(radices, rest / r);
      radices.pop_back();
    }
  }
};

void put_root(std::vector<float>& list, int64_t k, int64_t n) {
  const double angle = -2 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n);
  list.push_back(static_cast<float>(std::cos(angle)));
  list.push_back(static_cast<float>(std::sin(angle)));
}

}  // namespace

std::optional<FftPlan> try_fft_plan(int64_t points, int most_lanes) {
  if (points < 1 || points > kMostOnChip) return std::nullopt;
  if (points == 1) return FftPlan{.points = 1, .radices = {1}, .lanes = 1};
  int64_t rest = points;
  for (const int prime : {2, 3, 5, 7, 11, 13})
    while (rest % prime == 0) rest /= prime;
  if (rest != 1) return std::nullopt;
  for (const int held : {kUsuallyHeld, kMostHeld}) {
    Search search{
        .points = static_cast<int>(points),
        .most_lanes = held == kMostHeld ? std::min(most_lanes, kMostLanesThen) : most_lanes,
        .most_held = held};
    std::vector<int> radices;
    search.extend(radices, search.points);
    std::vector<int>& found = search.best.radices;
    if (found.empty()) continue;
    // A large radix in the last pass as well: what it does for each butterfly is done once.
    if (found.size() > 2) std::rotate(found.begin() + 1, found.begin() + 2, found.end());
    return search.best;
  }
  return std::nullopt;
}

FftPlan fft_plan(int64_t points) {
  if (points > kMostOnChip)
    throw sdk::Refusal::shape("a transform of more than " + std::to_string(kMostOnChip) +
                              " points");
  const std::optional<FftPlan> plan = try_fft_plan(points);
  if (!plan)
    throw sdk::Refusal::shape(
        "a transform of " + std::to_string(points) +
        " points, whose prime factors are not all from 2 to 13, or are too unequal");
  return *plan;
}

int FftPlan::held() const {
  int most = 0;
  for (const int r : radices) most = std::max(most, rounds(points, r, lanes) * r);
  return most;
}

std::vector<std::string> FftPlan::defines(int columns, int parts, uint32_t threads) const {
  std::string list;
  for (const int r : radices) list += (list.empty() ? "" : ",") + std::to_string(r);
  return {define("POINTS", points),   "RADICES=" + list,      define("LANES", lanes),
          define("COLUMNS", columns), define("PARTS", parts), define("THREADS", threads)};
}

std::vector<float> fft_roots(const FftPlan& plan, bool split) {
  std::vector<float> list;
  int64_t stride = plan.radices[0];
  for (size_t pass = 1; pass < plan.radices.size(); ++pass) {
    const int radix = plan.radices[pass];
    for (int64_t q = 1; q < radix; ++q)
      for (int64_t p = 0; p < stride; ++p) put_root(list, q * p, stride * radix);
    stride *= radix;
  }
  if (split)
    for (int64_t k = 0; k < plan.points; ++k) put_root(list, k, 2 * int64_t{plan.points});
  if (list.empty()) put_root(list, 0, 1);  // a table has an address
  return list;
}

double fft_factor(const std::string& norm, bool inverse, int64_t n) {
  const auto count = static_cast<double>(n);
  if (norm == "ortho") return 1 / std::sqrt(count);
  if (norm != "forward" && norm != "backward") throw sdk::Refusal::attribute("norm", norm);
  return (norm == "forward") != inverse ? 1 / count : 1;
}

DeviceTable::~DeviceTable() {
  if (memory_) device_.deallocate(memory_, bytes_);
}

void DeviceTable::fill() {
  const std::lock_guard lock(mutex_);
  if (memory_) return;
  const std::vector<float> values = values_();
  const uint64_t bytes = values.size() * sizeof(float);
  void* const memory = device_.allocate(bytes, 16);
  try {
    device_.write({memory, 0}, values.data(), bytes, nullptr);
  } catch (...) {
    device_.deallocate(memory, bytes);
    throw;
  }
  memory_ = memory, bytes_ = bytes;
}

sdk::Kernel kernel_with(std::vector<std::shared_ptr<DeviceTable>> tables, std::vector<Code> codes,
                        std::function<void(const sdk::Call&)> run) {
  sdk::Kernel kernel = kernel_of(std::move(codes), std::move(run));
  kernel.prepare = [tables = std::move(tables), prepare = std::move(kernel.prepare)] {
    prepare();
    for (const std::shared_ptr<DeviceTable>& t : tables) t->fill();
  };
  return kernel;
}

}  // namespace tenon::cuda
