// SPDX-License-Identifier: Apache-2.0
// The parallel loop for kernels. Only parallel.cpp includes TBB.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tenon::cpu {

// A reference to a callable. Does not allocate; valid for the duration of the call it is passed to.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(static_cast<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, static_cast<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// The number of threads of the current arena, including the caller; at least 1.
int width();

// Calls body(begin, end) for pieces of [0, n) on the threads of the current arena, and returns when
// all are done. Piece boundaries are multiples of `grain` and do not depend on timing; which thread
// runs a piece does. So a kernel that computes each piece independently is deterministic. With one
// piece, or one thread, body runs in the caller. Exceptions of body are rethrown here.
void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

// The same with work areas: at most `slots` pieces run at once, each with its own slot in [0,
// slots).
void parallel_for_slots(int64_t n, int64_t grain, int slots,
                        FunctionRef<void(int slot, int64_t, int64_t)> body);

// The number of threads of the widest arena so far, at least 1. Kernels size their scratch memory
// for this number of slots.
int widest_arena();

// The number of threads, including the caller, that an arena of `wanted` gets; at least 1. Creates
// TBB's workers now: TBB creates them lazily, and hangs or aborts if the system refuses one.
int make_threads(int wanted);

// A pool of threads: the caller and up to width - 1 workers.
class Arena {
 public:
  explicit Arena(int width);
  ~Arena();
  // Runs work in the caller, with this arena as the current one. Thread-safe.
  void execute(FunctionRef<void()> work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Keeps the worker threads alive. The destructor waits until they have ended; all arenas must be
// gone by then.
class Workers {
 public:
  Workers();
  ~Workers();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The grain for items of `cost` each (bytes moved, or half the flops): one piece is worth about 32
// KiB, enough to pay for a task.
inline int64_t grain_for(int64_t cost) {
  constexpr int64_t kPiece = 32 << 10;
  return cost >= kPiece ? 1 : kPiece / (cost > 0 ? cost : 1);
}

}  // namespace tenon::cpu
