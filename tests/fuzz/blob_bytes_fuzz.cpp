// SPDX-License-Identifier: Apache-2.0
// Any bytes of any size as a graph blob. Only the header's mark, version, size and strides are put
// right, so that an edit which makes the input longer still gets past them.
#include <cstring>
#include <vector>

#include "blob_reader.hpp"

using namespace tenon::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Words: aligned, and a read behind the end leaves the allocation.
  std::vector<uint64_t> words(size / 8);
  if (words.empty()) return 0;
  const uint64_t bytes = words.size() * 8;
  std::memcpy(words.data(), data, bytes);
  read_blob(words.data(), bytes);
  if (bytes < sizeof(tenon_blob_header)) return 0;
  tenon_blob_header header;
  std::memcpy(&header, words.data(), sizeof header);
  header.magic = TENON_BLOB_MAGIC;
  header.version = TENON_BLOB_VERSION;
  header.size = bytes;
  header.header_size = sizeof header;
  header.function_stride = sizeof(tenon_blob_function);
  header.value_stride = sizeof(tenon_blob_value);
  header.node_stride = sizeof(tenon_blob_node);
  header.attr_stride = sizeof(tenon_blob_attr);
  std::memcpy(words.data(), &header, sizeof header);
  read_blob(words.data(), bytes);
  return 0;
}
