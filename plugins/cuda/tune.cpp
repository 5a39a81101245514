// SPDX-License-Identifier: Apache-2.0
// Times candidates on the device and keeps the choice.
#include "tune.hpp"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "device.hpp"

namespace tenon::cuda {
namespace {

constexpr double kFails = std::numeric_limits<double>::infinity();
constexpr double kHopeless = 1.4;             // times the best of a first look
constexpr double kClearly = 0.98;             // less than this part of way 0's time
constexpr int kRounds = 5, kFinalRounds = 9;  // odd
constexpr double kLong = 2e-2;                // seconds; then one look must do
// How long clocks take to settle, in seconds: long runs draw enough power to lower them.
constexpr double kLeastHeat = 5e-3, kMostHeat = 0.2, kHeatRuns = 200;

// Of either sign, between 1/8 and 1/4 or near it: no product of them overflows.
std::vector<uint64_t> some_floats(tenon_dtype t, size_t words) {
  struct Form {
    uint64_t random, fixed;
  };
  constexpr Form kF16{0x83FF83FF83FF83FF, 0x3000300030003000},
      kBf16{0x807F807F807F807F, 0x3E003E003E003E00}, kF32{0x807FFFFF807FFFFF, 0x3E0000003E000000},
      kF64{0x800FFFFFFFFFFFFF, 0x3FC0000000000000};
  const Form form = t == TENON_DTYPE_F16    ? kF16
                    : t == TENON_DTYPE_BF16 ? kBf16
                    : t == TENON_DTYPE_F64  ? kF64
                                            : kF32;
  std::vector<uint64_t> list(words);
  uint64_t state = 1;
  for (uint64_t& word : list) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    word = ((state ^ state >> 29) & form.random) | form.fixed;
  }
  return list;
}

// Times of one way, from turns with others.
struct Times {
  std::vector<double> cold{}, warm{};
  void add(Trial& trial, size_t way) {
    cold.push_back(trial.cold(way));
    warm.push_back(trial.warm(way));
  }
  double total() const { return cold.empty() ? kFails : median(cold) + median(warm); }

 private:
  static double median(std::vector<double> times) {
    std::ranges::sort(times);
    return times[times.size() / 2];
  }
};

// Each round begins with another way, so that none always follows the same one.
std::vector<double> by_turns(Trial& trial, const std::vector<size_t>& ways, int rounds) {
  std::vector<Times> times(ways.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < ways.size(); ++i) {
      const size_t k = (i + static_cast<size_t>(round)) % ways.size();
      times[k].add(trial, ways[k]);
    }
  std::vector<double> totals;
  for (const Times& t : times) totals.push_back(t.total());
  return totals;
}

}  // namespace

size_t fastest(Trial& trial) {
  const size_t count = trial.ways();
  std::vector<double> first(count);
  for (size_t w = 0; w < count; ++w) {
    first[w] = trial.cold(w);  // the first run of code loads it
    if (first[w] < kLong) first[w] = std::min(trial.cold(w), trial.cold(w));
  }
  const auto quickest = std::ranges::min_element(first);
  const double best = *quickest;
  std::vector<size_t> hopeful;
  for (size_t w = 0; w < count; ++w)
    if (std::isfinite(first[w]) && (w == 0 || first[w] <= kHopeless * best)) hopeful.push_back(w);
  if (hopeful.size() < 2) return hopeful.empty() ? 0 : hopeful[0];
  const bool is_long = best >= kLong;
  if (!is_long)
    trial.heat(static_cast<size_t>(quickest - first.begin()),
               std::clamp(kHeatRuns * best, kLeastHeat, kMostHeat));
  std::vector<double> total(count, kFails);
  const auto measure = [&](const std::vector<size_t>& ways, int rounds) {
    const std::vector<double> totals = by_turns(trial, ways, rounds);
    for (size_t i = 0; i < ways.size(); ++i) total[ways[i]] = totals[i];
  };
  measure(hopeful, is_long ? 1 : kRounds);
  std::ranges::sort(hopeful, {}, [&](size_t w) { return total[w]; });
  // Way 0 as well: totals of other rounds may have been measured with other clocks.
  std::vector<size_t> finalists = {hopeful[0], hopeful[1]};
  if (!std::ranges::count(finalists, 0u)) finalists.push_back(0);
  if (!is_long) measure(finalists, kFinalRounds);
  const size_t w = *std::ranges::min_element(finalists, {}, [&](size_t f) { return total[f]; });
  return total[w] < kClearly * total[0] ? w : 0;
}

// ---- Timing on the device

bool StreamTrial::possible() { return driver().event_elapsed != nullptr; }

StreamTrial::StreamTrial(CudaDevice& device, std::vector<Way> ways)
    : device_(device), ways_(std::move(ways)), seconds_(ways_.size(), 0) {
  constexpr uint64_t kLeastFlush = 8 << 20;
  const Current current(device_.context());
  try {
    TENON_CUDA(stream_create, &stream_, kStreamNonBlocking);
    TENON_CUDA(event_create, &begin_, kEventTiming);
    TENON_CUDA(event_create, &end_, kEventTiming);
    flushed_bytes_ = std::max(device_.properties().l2_bytes, kLeastFlush);
    flushed_ = device_.allocate(flushed_bytes_, 0);
  } catch (...) {
    release();
    throw;
  }
}

StreamTrial::~StreamTrial() {
  const Relaxed relaxed;
  if (driver().context_push(device_.context()) != result::success) return;
  release();
  Context left = nullptr;
  driver().context_pop(&left);
}

void StreamTrial::release() noexcept {
  if (stream_) driver().stream_synchronize(stream_);
  if (flushed_) device_.deallocate(flushed_, flushed_bytes_);
  if (begin_) driver().event_destroy(begin_);
  if (end_) driver().event_destroy(end_);
  if (stream_) driver().stream_destroy(stream_);
}

double StreamTrial::time(size_t way, int repeats, bool flush) {
  const Current current(device_.context());
  if (flush)
    TENON_CUDA(fill_bytes, reinterpret_cast<Address>(flushed_), 0, flushed_bytes_, stream_);
  TENON_CUDA(event_record, begin_, stream_);
  try {
    for (int i = 0; i < repeats; ++i) ways_[way](stream_);
  } catch (const sdk::Failure& e) {  // one that the library refuses after all
    if (e.code() == TENON_DEVICE_LOST) throw;
    driver().stream_synchronize(stream_);
    return kFails;
  }
  TENON_CUDA(event_record, end_, stream_);
  TENON_CUDA(event_synchronize, end_);
  float milliseconds = 0;
  TENON_CUDA(event_elapsed, &milliseconds, begin_, end_);
  return seconds_[way] = static_cast<double>(milliseconds) * 1e-3 / repeats;
}

double StreamTrial::cold(size_t way) { return time(way, 1, true); }

double StreamTrial::warm(size_t way) {
  constexpr double kEnough = 2e-4, kNoCacheMatters = 2e-3;  // seconds
  constexpr double kMost = 20;
  const double one = std::max(seconds_[way], 1e-6);
  if (one > kNoCacheMatters) return one;
  const int repeats = static_cast<int>(std::clamp(kEnough / one, 1.0, kMost));
  // The last run but one left in the caches what the next one finds there.
  time(way, 1, false);
  return time(way, repeats, false);
}

void StreamTrial::heat(size_t way, double seconds) {
  constexpr double kMost = 2000;
  time(way, static_cast<int>(std::clamp(seconds / std::max(seconds_[way], 1e-6), 1.0, kMost)),
       false);
}

TrialMemory::TrialMemory(CudaDevice& device, tenon_dtype t, uint64_t bytes)
    : device_(device), bytes_(bytes) {
  constexpr uint64_t kPiece = 1 << 20;
  if (bytes == 0) return;
  memory_ = device.allocate(bytes, 0);
  if (t == TENON_DTYPE_NONE) return;
  try {
    const std::vector<uint64_t> floats = some_floats(t, kPiece / sizeof(uint64_t));
    uint64_t filled = std::min(bytes, kPiece);
    device.write({memory_, 0}, floats.data(), filled, nullptr);
    for (uint64_t n; filled < bytes; filled += n) {
      n = std::min(filled, bytes - filled);
      device.copy({memory_, filled}, device, {memory_, 0}, n, nullptr);
    }
  } catch (...) {
    device.deallocate(memory_, bytes);
    throw;
  }
}
TrialMemory::~TrialMemory() {
  if (memory_) device_.deallocate(memory_, bytes_);
}

// ---- Choices

Choices::Choices(std::string directory, bool timed)
    : disk_(std::move(directory), kChoiceFiles), timed_(timed) {}

bool Choices::usually_timed() {
  const char* text = secure_getenv("TENON_CUDA_TUNE");
  return !text || std::string_view(text) != "0";
}

std::vector<std::string> Choices::texts() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> list;
  for (const auto& [key, choice] : made_)
    if (!choice.empty()) list.push_back(key + "\n" + choice);
  return list;
}

void Choices::take(std::string_view text) {
  const size_t end = text.rfind('\n');
  if (end == text.npos) return;
  const std::lock_guard lock(mutex_);
  taken_[std::string(text.substr(0, end))] = text.substr(end + 1);
}

std::string Choices::of(const std::string& key, const Choose& choose, const Accept& offered) {
  const std::lock_guard lock(mutex_);
  if (const auto found = made_.find(key); found != made_.end()) return found->second;
  std::optional<std::string> choice;
  const auto remembered = [&] {
    std::optional<std::string> text = disk_.find(key);
    return text && offered(*text) ? text : std::nullopt;
  };
  if (const auto taken = taken_.find(key); taken != taken_.end() && offered(taken->second))
    return made_[key] = taken->second;
  if (timed_) choice = remembered();
  if (timed_ && !choice && disk_.writable()) {
    choice = choose(true);
    // Another process may have been first; all take the same. Nothing to choose from is not kept.
    if (choice && !choice->empty()) {
      std::optional<std::string> kept = disk_.keep_first(key, *choice);
      if (kept && !offered(*kept)) kept = disk_.keep(key, *choice) ? choice : std::nullopt;
      choice = kept;
    }
  }
  if (!choice) choice = choose(false);
  return made_[key] = choice.value_or("");
}

}  // namespace tenon::cuda
