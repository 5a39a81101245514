// SPDX-License-Identifier: Apache-2.0
// Checks kernel texts of other plugins, and launches them.
#include "guest_text.hpp"

#include <algorithm>
#include <cstring>

#include "device.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

constexpr uint32_t kMostScalars = 64;
constexpr uint64_t kMostBlocks = (uint64_t{1} << 31) - 1;
constexpr uint32_t kMostBlocksAcross = 65535, kMostThreads = 1024;

[[noreturn]] void refuse(const std::string& why) {
  throw Refusal(TENON_REASON_OTHER, "kernel text of another plugin: " + why);
}

tenon_cuda_kernel checked(const void* given) {
  uint64_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < TENON_CUDA_KERNEL_SIZE_V1)
    refuse("expected a description of " + std::to_string(TENON_CUDA_KERNEL_SIZE_V1) +
           " bytes at least, got " + std::to_string(size));
  tenon_cuda_kernel k{};
  std::memcpy(&k, given, std::min<uint64_t>(size, sizeof k));
  const auto at_most = [](const char* what, uint64_t value, uint64_t least, uint64_t most) {
    if (value < least || value > most)
      refuse(std::string(what) + ": expected " + std::to_string(least) + " to " +
             std::to_string(most) + ", got " + std::to_string(value));
  };
  at_most("scalar_count", k.scalar_count, 0, kMostScalars);
  at_most("threads", k.threads, 1, kMostThreads);
  at_most("blocks", k.blocks, 0, kMostBlocks);
  at_most("blocks_y", k.blocks_y, 1, kMostBlocksAcross);
  at_most("blocks_z", k.blocks_z, 1, kMostBlocksAcross);
  if (k.text.size == 0 || k.entry.size == 0) refuse("it has no text or no entry");
  if (k.scalar_count && !k.scalars) refuse("it has no scalars");
  return k;
}

std::string string_of(tenon_str s) { return std::string(s.data, s.size); }

}  // namespace

sdk::Kernel adopt_text(const void* given, const sdk::Node& node) {
  const tenon_cuda_kernel k = checked(given);
  CudaDevice& device = device_of(node);
  if (k.shared > device.properties().shared_per_block)
    refuse("it needs " + std::to_string(k.shared) + " bytes of shared memory, a block has " +
           std::to_string(device.properties().shared_per_block));
  const std::string name = k.name.size ? string_of(k.name) : string_of(k.entry);
  const Code code = device.generated(name, string_of(k.text), string_of(k.entry), k.shared);
  const Grid grid{.blocks = static_cast<int64_t>(k.blocks),
                  .threads = k.threads,
                  .shared = k.shared,
                  .blocks_y = k.blocks_y,
                  .blocks_z = k.blocks_z};
  const size_t inputs = node.input_count(), outputs = node.output_count();
  const bool has_scratch = k.scratch != 0;
  const std::vector<uint64_t> scalars(k.scalars, k.scalars + k.scalar_count);
  sdk::Kernel kernel = kernel_of({code}, [=](const sdk::Call& c) {
    std::vector<uint64_t> words;
    words.reserve(inputs + outputs + 1 + scalars.size());
    const auto add = [&](const void* p) { words.push_back(reinterpret_cast<uint64_t>(p)); };
    for (size_t i = 0; i < inputs; ++i) add(c.inputs[i]);
    for (size_t i = 0; i < outputs; ++i) add(c.outputs[i]);
    if (has_scratch) add(c.scratch);
    words.insert(words.end(), scalars.begin(), scalars.end());
    code.launch_each(c, grid, words);
  });
  // The driver reads as many parameters as the entry has.
  const size_t count = inputs + outputs + has_scratch + scalars.size();
  kernel.prepare = [=, entry = string_of(k.entry)] {
    code.prepare();
    if (!code.takes_words(count))
      throw sdk::Failure(TENON_INVALID_ARGUMENT,
                         "kernel text of another plugin: entry " + entry + ": expected " +
                             std::to_string(count) +
                             " parameters of 8 bytes: operands, outputs, scratch memory, scalars");
  };
  kernel.scratch = k.scratch;
  return kernel;
}

}  // namespace tenon::cuda
