// SPDX-License-Identifier: Apache-2.0
// Runs the ways and our own tiles on one stream, and compares on the device.
#include "chain_check.hpp"

namespace tenon::cuda {
namespace {

constexpr int64_t kThreads = 256, kMostBlocks = 1024;

Grid grid_for(int64_t elements) {
  return {.blocks = std::min(kMostBlocks, blocks_for(elements, kThreads)),
          .threads = static_cast<uint32_t>(kThreads)};
}

// Waits for its work before it is destroyed.
class OwnStream {
 public:
  OwnStream() { TENON_CUDA(stream_create, &stream_, kStreamNonBlocking); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() {
    driver().stream_synchronize(stream_);
    driver().stream_destroy(stream_);
  }
  operator Stream() const { return stream_; }

 private:
  Stream stream_ = nullptr;
};

// An operand of stored rows of `columns` elements, `ld` apart. in_rows: a row has the terms of a sum.
args::Cancelling cancelling(int64_t rows, int64_t columns, int64_t ld, int64_t k, bool in_rows,
                            bool negated) {
  // Of f16 from 1 to 2, of bf16 from 2^-7 to 2^1, of either sign: the sums of products of bf16 need more bits
  // than f32 has.
  return {.count = (rows - 1) * ld + columns,
          .ld = ld,
          .k = k,
          .in_rows = in_rows,
          .negated = negated,
          .one = 0x3C00u,
          .random = 0x83FFu};
}

}  // namespace

ChainCheck::ChainCheck(CudaDevice& device, const ProductProblem& problem)
    : device_(device),
      problem_(problem),
      tiles_(device, problem),
      cancelling_(device.code(entries::matmul_cancelling)),
      compare_(device.code(entries::matmul_compare)) {}

std::vector<bool> ChainCheck::same(const Memory& memory,
                                   const std::vector<StreamTrial::Way>& ways) const {
  const ProductProblem& p = problem_;
  const Current current(device_.context());
  tiles_.code().prepare(), cancelling_.prepare(), compare_.prepare();
  const auto bytes = [](tenon_dtype t, int64_t elements) {
    return static_cast<uint64_t>(element_bytes(t) * elements);
  };
  const uint64_t y_bytes = bytes(p.y, p.m * p.n);
  const TrialMemory expected(device_, TENON_DTYPE_NONE, y_bytes),
      different(device_, TENON_DTYPE_NONE, sizeof(uint32_t));
  const OwnStream stream;
  const sdk::Call call{.stream = static_cast<Stream>(stream)};
  const auto fill = [&](void* to, unsigned char byte, uint64_t size) {
    TENON_CUDA(fill_bytes, reinterpret_cast<Address>(to), byte, size, stream);
  };
  const auto agrees = [&](const StreamTrial::Way& way) {
    constexpr int64_t kUnit = 2;  // bytes that are compared at a time
    constexpr unsigned char kNothing = 0xFF;
    fill(memory.y, kNothing, y_bytes);
    fill(different.at(), 0, sizeof(uint32_t));
    try {
      way(stream);
    } catch (const sdk::Failure& e) {  // one that the library refuses after all
      if (e.code() == TENON_DEVICE_LOST) throw;
      return false;
    }
    const auto units = static_cast<int64_t>(y_bytes) / kUnit;
    compare_.launch(call, grid_for(units), memory.y, expected.at(), units,
                    static_cast<uint32_t*>(different.at()));
    TENON_CUDA(stream_synchronize, stream);
    uint32_t found = 0;
    device_.read(&found, {different.at(), 0}, sizeof found, nullptr);
    return found == 0;
  };
  std::vector<bool> passed(ways.size(), true);
  for (const bool cancels : {false, true}) {
    if (cancels) {
      const args::Cancelling a = cancelling(p.m, p.k, p.lda, p.k, true, true),
                             b = p.trans_b ? cancelling(p.n, p.k, p.ldb, p.k, true, false)
                                           : cancelling(p.k, p.n, p.ldb, p.k, false, false);
      cancelling_.launch(call, grid_for(a.count), memory.a, a);
      cancelling_.launch(call, grid_for(b.count), memory.b, b);
      if (memory.bias) fill(memory.bias, 0, bytes(p.bias, p.n));
      if (memory.residual) fill(memory.residual, 0, y_bytes);
    }
    tiles_.run(call, {.a = memory.a,
                      .b = memory.b,
                      .bias = memory.bias,
                      .residual = memory.residual,
                      .y = expected.at()});
    for (size_t w = 0; w < ways.size(); ++w) passed[w] = passed[w] && agrees(ways[w]);
  }
  return passed;
}

}  // namespace tenon::cuda
