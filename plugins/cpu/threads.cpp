// SPDX-License-Identifier: Apache-2.0
// Creates and joins threads to find out how many are possible.
#include "threads.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tenon::cpu {

int makeable_threads(int wanted) {
  std::mutex mutex;
  std::condition_variable wake;
  bool done = false;
  std::vector<std::thread> made;
  made.reserve(static_cast<size_t>(std::max(wanted, 0)));
  try {
    for (int i = 0; i < wanted; ++i)
      made.emplace_back([&] {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return done; });
      });
  } catch (const std::system_error&) {  // keeps those that were created
  }
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  wake.notify_all();
  for (std::thread& t : made) t.join();
  return static_cast<int>(made.size());
}

}  // namespace tenon::cpu
