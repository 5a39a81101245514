// SPDX-License-Identifier: Apache-2.0
// Divides work between threads.
#include "llm/threads.hpp"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

namespace tenon::llm {

void in_threads(size_t parts, unsigned threads, const std::function<void(size_t part)>& work) {
  const size_t count = std::clamp<size_t>(threads, 1, std::max<size_t>(parts, 1));
  std::vector<std::exception_ptr> failures(count);
  const auto run = [&](size_t thread) {
    try {
      for (size_t part = thread; part < parts; part += count) work(part);
    } catch (...) {
      failures[thread] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;  // joined also if one cannot be made
    for (size_t i = 1; i < count; ++i) others.emplace_back(run, i);
    run(0);
  }
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace tenon::llm
