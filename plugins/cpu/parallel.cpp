// SPDX-License-Identifier: Apache-2.0
// The only file that includes TBB: its pool of workers, arenas, the parallel loop, and the
// annotations that ThreadSanitizer needs.
#include "parallel.hpp"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "threads.hpp"

#ifdef TENON_CPU_TSAN
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace tenon::cpu {
namespace {

// A fork happens before the pieces of the loop; the pieces happen before the join.
struct Handover {
#ifdef TENON_CPU_TSAN
  void acquire() { __tsan_acquire(this); }
  void release() { __tsan_release(this); }
#else
  void acquire() {}
  void release() {}
#endif
  char address = 0;
};

// Suppresses ThreadSanitizer's checks inside libtbb and enables them in the code that it calls
// back, for the current thread and the lifetime of the object.
class Watched {
 public:
  explicit Watched(bool watched) : before_(current_) { set(watched); }
  ~Watched() { set(before_); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  static void set([[maybe_unused]] bool watched) {
#ifdef TENON_CPU_TSAN
    if (watched == current_) return;
    current_ = watched;
    if (watched) {
      AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
      AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    } else {
      AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
      AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
#endif
  }
#ifdef TENON_CPU_TSAN
  static inline thread_local bool current_ = true;
#else
  static constexpr bool current_ = true;
#endif
  bool before_;
};

// The first exception among the threads. Caught here, because TBB's own exception transport is
// invisible to ThreadSanitizer.
class FirstFailure {
 public:
  void capture() {
    if (!taken_.exchange(true)) failure_ = std::current_exception();
  }
  bool taken() const { return taken_.load(std::memory_order_relaxed); }
  void rethrow() {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  std::atomic<bool> taken_{false};
  std::exception_ptr failure_;
};

std::atomic<int> widest{1};

// Balances the load at little cost.
constexpr int64_t kPiecesPerThread = 4;

std::atomic<bool> tbb_failed{false};  // TBB itself threw; waiting for its threads would hang

// Runs code that calls TBB. Our exceptions never pass through TBB.
template <class Call>
void call_tbb(const Call& call) {
  try {
    call();
  } catch (...) {
    tbb_failed = true;
    throw;
  }
}

// TBB has one pool of workers for all arenas.
std::mutex pool_mutex;
int pool_workers = 0;  // known to exist
// including the caller; set when the system refuses more
std::atomic<int> pool_threads_limit{INT_MAX};

// A barrier for the threads of a loop: all wait until the last one has arrived.
class Gathering {
 public:
  explicit Gathering(int expected) : expected_(expected) {}

  void join() {
    std::unique_lock lock(mutex_);
    if (over_) return;
    over_ = ++here_ >= expected_;
    changed_.notify_all();
    while (!over_) {
      const int seen = here_;
      if (!changed_.wait_for(lock, kPatience, [&] { return over_ || here_ != seen; })) over_ = true;
    }
    changed_.notify_all();
  }
  int here() const { return here_; }

 private:
  // Gives up if no more threads arrive: loops of the app may occupy the workers of the pool.
  static constexpr auto kPatience = std::chrono::seconds(2);
  const int expected_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0;
  bool over_ = false;
};

// Makes TBB create its workers, by a loop that needs all of them at once. Returns how many arrived.
int gather(int workers) {
  Handover fork, join;
  fork.release();
  const Watched library(false);
  int came = 0;
  call_tbb([&] {
    using tbb::global_control;
    const auto wanted = static_cast<size_t>(workers) + 1;
    const global_control enough(global_control::max_allowed_parallelism, wanted);
    const auto allowed =
        std::min(wanted, global_control::active_value(global_control::max_allowed_parallelism));
    const int threads = static_cast<int>(allowed);
    Gathering all(threads);
    tbb::task_arena crowd(threads);
    crowd.execute([&] {
      tbb::parallel_for(
          tbb::blocked_range<int>(0, threads, 1),
          [&](const tbb::blocked_range<int>&) {
            const Watched ours(true);
            fork.acquire();
            all.join();
            join.release();
          },
          tbb::simple_partitioner());
    });
    came = all.here() - 1;
  });
  join.acquire();
  return came;
}

}  // namespace

int make_threads(int wanted) {
  wanted = std::max(wanted, 1);
  const std::lock_guard lock(pool_mutex);
  // All arenas may run at once, on the workers of the one pool.
  const int workers = std::max(wanted, tbb::info::default_concurrency()) - 1;
  const int missing = std::min(workers, pool_workers + wanted - 1) - pool_workers;
  if (missing > 0 && pool_threads_limit == INT_MAX) {
    const int makeable = makeable_threads(missing);
    if (makeable < missing) pool_threads_limit = pool_workers + makeable + 1;
    const bool within_a_loop =
        tbb::this_task_arena::current_thread_index() != tbb::task_arena::not_initialized;
    if (makeable > 0 && !within_a_loop)
      pool_workers = std::max(pool_workers, gather(pool_workers + makeable));
  }
  return std::min(wanted, pool_threads_limit.load());
}

struct Arena::Impl {
  explicit Impl(int width) : arena(width) {
    // By default, TBB uses at most one thread per core. Allow more if asked, but no more than the
    // system can create.
    const int threads =
        std::min(pool_threads_limit.load(), std::max(width, tbb::info::default_concurrency()));
    if (threads != tbb::info::default_concurrency())
      limit.emplace(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads));
  }
  std::optional<tbb::global_control> limit;
  tbb::task_arena arena;
};

Arena::Arena(int width) {
  const Watched library(false);
  impl_ = std::make_unique<Impl>(std::max(width, 1));
  for (int seen = widest; seen < width && !widest.compare_exchange_weak(seen, width);) {
  }
}
Arena::~Arena() {
  const Watched library(false);
  impl_.reset();
}

void Arena::execute(FunctionRef<void()> work) {
  Handover fork, join;
  FirstFailure failure;
  fork.release();
  const Watched library(false);
  call_tbb([&] {
    impl_->arena.execute([&] {
      const Watched ours(true);
      fork.acquire();
      try {
        work();
      } catch (...) {
        failure.capture();
      }
      join.release();
    });
  });
  join.acquire();
  failure.rethrow();
}

struct Workers::Impl {
  tbb::task_scheduler_handle handle{tbb::attach{}};
};

Workers::Workers() : impl_(std::make_unique<Impl>()) {}
Workers::~Workers() {
  if (tbb_failed) {
    static_cast<void>(impl_.release());  // its destructor would wait for threads that do not exist
    return;
  }
  tbb::finalize(impl_->handle, std::nothrow);
  const std::lock_guard lock(pool_mutex);
  pool_workers = 0;
  pool_threads_limit = INT_MAX;
}

int width() { return tbb::this_task_arena::max_concurrency(); }

int widest_arena() { return widest.load(std::memory_order_relaxed); }

namespace {

// Pieces that follow each other. Threads take them from a counter.
struct alignas(64) Stretch {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};
constexpr int64_t kMostStretches = 16;

}  // namespace

// The pieces are fixed. Each thread takes those of its own stretch first, so that it finds in its
// cache what it wrote in the loop before; then those of the others. So a loop costs width - 1 tasks,
// regardless of its length, and a thread that starts late leaves its pieces to the others.
void parallel_for_slots(int64_t n, int64_t grain, int slots,
                        FunctionRef<void(int, int64_t, int64_t)> body) {
  if (n <= 0) return;
  const int64_t threads = std::min(width(), slots);
  const int64_t grains = (n + grain - 1) / grain;
  if (threads == 1 || grains == 1) return body(0, 0, n);
  const int64_t pieces = std::min(grains, threads * kPiecesPerThread);

  const int64_t count = std::min({threads, pieces, kMostStretches});
  std::array<Stretch, kMostStretches> stretches;
  for (int64_t s = 0; s < count; ++s) {
    stretches[s].next.store(pieces * s / count, std::memory_order_relaxed);
    stretches[s].end = pieces * (s + 1) / count;
  }
  FirstFailure failure;
  Handover fork, join;
  const auto draw = [&](int slot) {
    const Watched ours(true);
    fork.acquire();
    for (int64_t s = 0; s < count; ++s) {
      Stretch& stretch = stretches[(slot + s) % count];
      for (int64_t piece;
           (piece = stretch.next.fetch_add(1, std::memory_order_relaxed)) < stretch.end &&
           !failure.taken();) {
        try {
          body(slot, grains * piece / pieces * grain,
               std::min(n, grains * (piece + 1) / pieces * grain));
        } catch (...) {
          failure.capture();
        }
      }
    }
    join.release();
  };
  fork.release();
  const Watched library(false);
  call_tbb([&] {
    tbb::parallel_for(
        tbb::blocked_range<int>(0, static_cast<int>(std::min(threads, pieces)), 1),
        [&](const tbb::blocked_range<int>& slot) { draw(slot.begin()); },
        tbb::simple_partitioner());
  });
  join.acquire();
  failure.rethrow();
}

void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  parallel_for_slots(n, grain, width(), [&](int, int64_t begin, int64_t end) { body(begin, end); });
}

}  // namespace tenon::cpu
