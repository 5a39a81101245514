// SPDX-License-Identifier: Apache-2.0
// A sound blob with damaged words: the reader refuses it, or everything that its accessors reach is
// readable.
#include <cstring>

#include "ir/blob.hpp"
#include "ir/text.hpp"

using namespace tenon::core;

namespace {

uint64_t seen;  // keeps the reads from being optimized away

void read(const void* bytes, uint64_t size) {
  for (uint64_t i = 0; i < size; ++i) seen += static_cast<const unsigned char*>(bytes)[i];
}
void read(tenon_str s) { read(s.data, s.size); }

void read_value(const tenon_blob& b, const tenon_blob_value* v) {
  if (!v) return;
  read(tenon_blob_str(&b, v->name));
  seen += static_cast<uint64_t>(tenon_blob_elements(&b, v));
  if (v->data) read(tenon_blob_at(&b, v->data), v->data_size);
}

void read_node(const tenon_blob& b, uint32_t function, uint32_t node) {
  tenon_node_view n = tenon_node_at(&b, function, node);
  read(tenon_blob_str(&b, n.node->domain));
  read(tenon_blob_str(&b, n.node->op));
  read(tenon_blob_str(&b, n.node->provenance));
  for (uint32_t k = 0; k <= n.node->operand_count; ++k) read_value(b, tenon_node_operand(&n, k));
  for (uint32_t k = 0; k <= n.node->output_count; ++k) read_value(b, tenon_node_output(&n, k));
  seen += static_cast<uint64_t>(tenon_node_i64(&n, "axis", 0));
  read(tenon_node_str(&n, "kind", "none"));
  uint32_t count = 0;
  const int64_t* ints = tenon_node_ints(&n, "axes", &count);
  for (uint32_t i = 0; i < count; ++i) seen += static_cast<uint64_t>(ints[i]);
  tenon_str name;
  tenon_node_unknown(&n, &name);
  read(name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Blob sound = write_blob(parse(R"(graph "base" {
    input x: f32[2,3]
    weight w: f32[3] trainable
    const c: f32[3] = {1.0, 2.0, 3.0}
    y = rms_norm(x, w) {eps=1e-06} @"layers.0"
    r = reduce(y) {kind="sum", axes=[0]}
    s = binary(r, c) {kind="add"}
    output "s" = s
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
  tenon_blob b;
  if (tenon_blob_open(words.data(), sound.size(), &b) != nullptr) return 0;
  for (uint32_t f = 0; f < b.function_count; ++f) {
    for (uint32_t v = 0; v < b.functions[f].value_count; ++v)
      read_value(b, tenon_blob_values(&b, b.functions + f) + v);
    for (uint32_t n = 0; n < b.functions[f].node_count; ++n) read_node(b, f, n);
  }
  return 0;
}
