// SPDX-License-Identifier: Apache-2.0
// An app that captures a graph in the same process, beside tenon, through the driver's own calls.
#pragma once

#include "rig.hpp"
#include "state.hpp"

namespace tenon::test {

class ForeignCapture {
 public:
  // Begins in the thread that makes it, and there it ends.
  explicit ForeignCapture(int mode) {
    CHECK(cuda::cuDevicePrimaryCtxRetain(&context_, 0) == 0);
    CHECK(cuda::cuCtxPushCurrent_v2(context_) == 0);
    CHECK(cuda::cuStreamCreate(&stream_, 0) == 0);
    CHECK(cuda::cuStreamBeginCapture_v2(stream_, mode) == 0);
  }
  ForeignCapture(const ForeignCapture&) = delete;
  ForeignCapture& operator=(const ForeignCapture&) = delete;
  ~ForeignCapture() {
    end();
    cuda::cuStreamDestroy_v2(stream_);
    cuda::Context left = nullptr;
    cuda::cuCtxPopCurrent_v2(&left);
    CHECK(left == context_);
    cuda::cuDevicePrimaryCtxRelease_v2(0);
  }
  // Did the capture come to its end, nobody having broken it? Only the first call asks.
  bool end() {
    if (over_) return whole_;
    over_ = true;
    cuda::Graph graph = nullptr;
    whole_ = cuda::cuStreamEndCapture(stream_, &graph) == 0;
    if (graph) cuda::cuGraphDestroy(graph);
    return whole_;
  }

 private:
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  bool over_ = false, whole_ = false;
};

}  // namespace tenon::test
