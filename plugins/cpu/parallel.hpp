// SPDX-License-Identifier: Apache-2.0
// How kernels of the cpu plugin use the machine's cores. TBB itself is included by parallel.cpp
// alone.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tenon::cpu {

// A borrowed callable: no allocation, valid for the call it is passed to.
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

// Threads that work at once in the current arena, the caller's included; >= 1.
int width();

// Calls body(begin, end) over [0, n) in pieces whose borders are multiples of `grain`, on the
// current arena's threads; returns when all are done. Which thread takes a piece is open, the
// borders are not: a kernel that computes a piece the same way whoever runs it is deterministic.
// With one piece, or a width of 1, body runs in the caller. An exception of body is rethrown here.
void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

// The same with a place to work in: at most `slots` pieces are under way at once, each with its own
// slot in [0, slots).
void parallel_for_slots(int64_t n, int64_t grain, int slots,
                        FunctionRef<void(int slot, int64_t, int64_t)> body);

// The widest arena that was ever made, at least 1: how many slots of scratch a kernel should ask
// for.
int widest_arena();

// How many threads an arena of `wanted` gets, the caller's included; at least 1. Its workers are
// made now: TBB makes them late and keeps them, and where the system refuses one then, TBB waits
// forever or aborts.
int make_threads(int wanted);

// A team of threads of its own: the caller and up to width - 1 workers.
class Arena {
 public:
  explicit Arena(int width);
  ~Arena();
  // Runs work in the caller with this arena as the current one. Several threads may be inside.
  void execute(FunctionRef<void()> work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Keeps the worker threads; destroying it, when no arena is left, waits until they have ended.
class Workers {
 public:
  Workers();
  ~Workers();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A grain for items of `cost` each (bytes moved, or half the flops), so that a piece is worth a
// task: about 32 KiB.
inline int64_t grain_for(int64_t cost) {
  constexpr int64_t kPiece = 32 << 10;
  return cost >= kPiece ? 1 : kPiece / (cost > 0 ? cost : 1);
}

}  // namespace tenon::cpu
