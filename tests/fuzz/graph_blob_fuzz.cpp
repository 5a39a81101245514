// SPDX-License-Identifier: Apache-2.0
// What our writer makes of a graph with damaged words: the reader refuses it, or everything that
// its accessors reach is readable. An input is a list of edits.
#include <cstring>

#include "blob_reader.hpp"
#include "ir/blob.hpp"
#include "ir/text.hpp"

using namespace tenon::core;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Blob sound = write_blob(parse(R"(graph "base" {
    input x: f32[2,3]
    weight w: f32[3] trainable
    const c: f32[3] = {1.0, 2.0, 3.0}
    y = rms_norm(x, w) {eps=1e-06} @"layers.0"
    r = reduce(y) {kind="sum", axes=[0]}
    s = binary(r, c) {kind="add"}
    t = elementwise_region(x, s) {body=graph {
      input a: f32[2,3] input b: f32[3] const k: f32[] = {1.5}
      m = binary(a, b) {kind="mul"} n = binary(m, k) {kind="max"} output "n" = n
    }}
    output "s" = s
    output "t" = t
  })",
                                             "base"))
                                .blob;
  std::vector<uint64_t> words(sound.size() / 8);
  std::memcpy(words.data(), sound.data(), sound.size());
  // Each edit: a place, then one byte or a whole word.
  while (size >= 4) {
    const size_t word = (data[0] | data[1] << 8) % words.size();
    const size_t bytes = data[2] & 8 && size >= 11 ? 8 : 1;
    const size_t at = bytes == 8 ? 0 : data[2] & 7;
    std::memcpy(reinterpret_cast<unsigned char*>(&words[word]) + at, data + 3, bytes);
    data += 3 + bytes;
    size -= 3 + bytes;
  }
  tenon::fuzz::read_blob(words.data(), sound.size());
  return 0;
}
