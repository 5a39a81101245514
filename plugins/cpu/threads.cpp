// SPDX-License-Identifier: Apache-2.0
// Makes and ends threads to find out how many there can be.
#include "threads.hpp"

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tenon::cpu {
namespace {

std::mutex guard;
int proven = 1;  // so many lived at once, and TBB may keep them
int limit = INT_MAX;

}  // namespace

int makeable_threads(int wanted) {
  const std::lock_guard one_probe(guard);
  wanted = std::min(std::max(wanted, 1), limit);
  if (wanted <= proven) return wanted;
  std::mutex mutex;
  std::condition_variable wake;
  bool done = false;
  std::vector<std::thread> made;
  made.reserve(static_cast<size_t>(wanted - 1));
  try {
    for (int i = 1; i < wanted; ++i)
      made.emplace_back([&] {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return done; });
      });
  } catch (const std::system_error&) {  // those that there are
  }
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  wake.notify_all();
  for (std::thread& t : made) t.join();
  const int found = static_cast<int>(made.size()) + 1;
  if (found < wanted) limit = std::max(found, proven);
  proven = std::max(proven, found);
  return std::min(wanted, proven);
}

int thread_limit() {
  const std::lock_guard lock(guard);
  return limit;
}

void forget_threads() {
  const std::lock_guard lock(guard);
  proven = 1;
  limit = INT_MAX;
}

}  // namespace tenon::cpu
