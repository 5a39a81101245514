// SPDX-License-Identifier: Apache-2.0
//
// For backends that compile code for their device: a cache of what was built. A maker asks for the
// entry of a key, which builds nothing; Kernel::prepare builds it, once for all kernels with that
// key; run() uses it.
//
//   // in the device:  sdk::BuildCache<Program> programs;
//   Kernel make_relu(const op::unary& n, const Node& node) {
//     const std::string text = text_of(n);
//     const auto entry = device_of(node).programs.entry(text, [text] { return compile(text); });
//     return {.run = [entry](const Call& c) { enqueue(c, entry->built()); },
//             .prepare = [entry] { entry->build(); }};
//   }
//
// All functions may be called by any thread.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernel.hpp"

namespace tenon::sdk {

// True for a failed build that may succeed later: without memory, on a lost device, cancelled. Call
// it in a catch block.
inline bool may_build_later() noexcept {
  try {
    throw;
  } catch (const Failure& e) {
    return e.code() == TENON_OUT_OF_MEMORY || e.code() == TENON_DEVICE_LOST ||
           e.code() == TENON_CANCELLED;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

// Built: what a build makes, such as a handle of the driver in a type that releases it.
template <class Built>
class BuildCache {
 public:
  using Build = std::function<Built()>;

  // What one key stands for. It may outlive the cache.
  class Entry {
   public:
    explicit Entry(Build build) : build_(std::move(build)) {}
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    // Builds it, unless it is built. Threads that come meanwhile wait; builds of other keys go on.
    // Throws what the build throws. A failure is remembered: later calls throw it again, without a
    // new attempt. If it may pass (may_build_later), it is not, and the next call tries again.
    const Built& build() {
      if (is_built()) return *built_;
      const std::lock_guard lock(mutex_);
      if (built_) return *built_;
      if (failed_) std::rethrow_exception(failed_);
      try {
        built_.emplace(build_());
      } catch (...) {
        if (!may_build_later()) failed_ = std::current_exception();
        throw;
      }
      done_.store(true, std::memory_order_release);
      return *built_;
    }
    // What build() made. Throws Failure (INTERNAL) before. Takes no lock: for run().
    const Built& built() const {
      if (!is_built())
        throw Failure(TENON_INTERNAL,
                      "a kernel runs before its code is built; expected a Kernel::prepare that "
                      "calls Entry::build()");
      return *built_;
    }
    bool is_built() const { return done_.load(std::memory_order_acquire); }

   private:
    const Build build_;
    std::mutex mutex_{};
    std::optional<Built> built_{};  // does not change once done_
    std::exception_ptr failed_{};
    std::atomic<bool> done_{false};
  };
  using EntryPtr = std::shared_ptr<Entry>;

  // most: how many entries the cache keeps. Of more, those that no kernel uses go, the one that was
  // asked for longest ago first. Entries in use always stay, so that a key is built once.
  explicit BuildCache(size_t most = 1024) : most_(most) {}
  BuildCache(const BuildCache&) = delete;
  BuildCache& operator=(const BuildCache&) = delete;

  // The entry of a key. The key must state all that the build depends on: the text, options, and
  // the device if several share the cache. `build` is kept if the key is new, and ignored otherwise.
  // Throws std::bad_alloc.
  EntryPtr entry(const std::string& key, Build build) {
    std::vector<EntryPtr> dropped;  // released without the lock: that may call the driver
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(key);
    if (at != entries_.end()) {
      order_.splice(order_.end(), order_, at->second.order);
      return at->second.entry;
    }
    auto made = std::make_shared<Entry>(std::move(build));
    order_.push_back(key);
    try {
      entries_.emplace(key, Slot{made, std::prev(order_.end())});
    } catch (...) {
      order_.pop_back();
      throw;
    }
    drop(most_, dropped);
    return made;
  }

  // Releases the entries that no kernel uses, for example when memory is short.
  void drop_unused() {
    std::vector<EntryPtr> dropped;
    const std::lock_guard lock(mutex_);
    drop(0, dropped);
  }

  // How many keys have an entry.
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  struct Slot {
    EntryPtr entry;
    std::list<std::string>::iterator order;
  };

  // Under the lock, an entry that only the cache holds cannot get another holder.
  void drop(size_t most, std::vector<EntryPtr>& dropped) {
    for (auto key = order_.begin(); key != order_.end() && entries_.size() > most;) {
      const auto at = entries_.find(*key);
      if (at->second.entry.use_count() > 1) {
        ++key;
        continue;
      }
      dropped.push_back(std::move(at->second.entry));
      entries_.erase(at);
      key = order_.erase(key);
    }
  }

  const size_t most_;
  mutable std::mutex mutex_{};
  std::unordered_map<std::string, Slot> entries_{};
  std::list<std::string> order_{};  // keys, the one asked for last at the end
};

}  // namespace tenon::sdk
