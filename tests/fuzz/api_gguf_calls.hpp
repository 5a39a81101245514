// SPDX-License-Identifier: Apache-2.0
// The API fuzzer's calls for GGUF files, and for memory that a store borrows.
#pragma once

#include <algorithm>
#include <fstream>

#include "api_calls.hpp"

namespace tenon::fuzz {

inline tenon_str gguf_path(World& w) {
  if (w.in.one_in(8)) return w.path();
  return w.text(w.folder + (w.in.one_in(2) ? "/a.gguf" : "/b.gguf"));
}
inline uint32_t gguf_type(World& w) {
  static constexpr uint32_t kTypes[] = {0, 1, 2, 8, 12, 14, 24, 28, 30, 39, 19, 4, ~0u};
  return w.in.of(kTypes);
}
inline tenon_str gguf_name(World& w) {
  static constexpr std::string_view kNames[] = {"w", "q", "k", "s", "l", "n"};
  return w.in.one_in(6) ? w.name() : w.text(w.in.of(kNames));
}

inline void gguf_format_count(World&) { must(tenon_gguf_format_count() > 20, "formats"); }
inline void gguf_format_at(World& w) {
  Out<tenon_gguf_format> out(w.in);
  out.filled(w.good(tenon_gguf_format_at(w.in.below(40), out.arg())));
}
inline void gguf_find_format(World& w) {
  Out<tenon_gguf_format> out(w.in);
  const tenon_str name = w.in.one_in(3) ? w.text("q4_k") : w.in.one_in(2) ? w.text("") : w.name();
  out.filled(w.good(tenon_gguf_find_format(name, gguf_type(w), out.arg())));
}
// Memory that holds any result asked for here.
inline std::array<unsigned char, 1 << 16>& room() {
  static std::array<unsigned char, 1 << 16> bytes;
  return bytes;
}
inline void gguf_decode(World& w) {
  static constexpr uint64_t kSizes[] = {0, 34, 144, 18, 210, 420, 5};
  static constexpr uint64_t kRooms[] = {0, 128, 1024, 512, 2048, 64};
  const bool none = w.in.one_in(24);
  w.good(tenon_gguf_decode(gguf_type(w), none ? nullptr : w.bytes(), w.in.of(kSizes), w.dtype(),
                           w.in.one_in(24) ? nullptr : room().data(), w.in.of(kRooms)));
}
inline void gguf_encode(World& w) {
  static constexpr uint64_t kCounts[] = {0, 1, 32, 256, 512, 33};
  static constexpr uint64_t kRooms[] = {0, 4, 34, 18, 144, 210, 1024};
  static float numbers[512], importance[512];
  numbers[w.in.below(512)] = static_cast<float>(w.in.below(256)) - 128;
  importance[w.in.below(512)] = static_cast<float>(w.in.below(8)) - (w.in.one_in(8) ? 1 : 0);
  if (w.in.one_in(64)) numbers[3] = NAN;
  if (w.in.one_in(4)) numbers[3] = 1;
  w.good(tenon_gguf_encode(gguf_type(w), w.in.one_in(24) ? nullptr : numbers,
                           w.in.one_in(2) ? nullptr : importance, w.in.of(kCounts),
                           w.in.one_in(24) ? nullptr : room().data(), w.in.of(kRooms)));
}

inline void gguf_open(World& w) {
  Out<tenon_gguf*> out(w.in);
  if (out.filled(w.good(tenon_gguf_open(gguf_path(w), out.arg()))))
    w.keep(w.ggufs, out.value, tenon_gguf_destroy);
}
inline tenon_gguf* gguf_file(World& w) { return w.ggufs.any(w.in); }
inline void gguf_destroy(World& w) { tenon_gguf_destroy(w.ggufs.take(w.in)); }
inline void gguf_version(World& w) { must(tenon_gguf_version(gguf_file(w)) <= 3, "version"); }
inline void gguf_shard_count(World& w) {
  must(tenon_gguf_shard_count(gguf_file(w)) <= 1, "shards");
}
inline void gguf_key_count(World& w) { tenon_gguf_key_count(gguf_file(w)); }
inline void gguf_key_at(World& w) {
  Out<tenon_gguf_key> out(w.in);
  if (out.filled(w.good(tenon_gguf_key_at(gguf_file(w), w.in.below(6), out.arg()))) &&
      out.value.struct_size >= sizeof out.value)
    read_text(out.value.name);
}
inline void gguf_find_key(World& w) { tenon_gguf_find_key(gguf_file(w), gguf_name(w)); }
inline void gguf_numbers(World& w) {
  w.good(tenon_gguf_numbers(gguf_file(w), w.in.below(6), w.in.one_in(24) ? nullptr : w.bytes(),
                            w.in.one_in(4) ? 12 : w.size()));
}
inline void gguf_text(World& w) {
  Out<tenon_str> out(w.in);
  if (out.filled(w.good(tenon_gguf_text(gguf_file(w), w.in.below(6), w.in.below(3), out.arg()))))
    read_text(out.value);
}
inline void gguf_json(World& w) {
  Out<tenon_text*> out(w.in);
  if (w.good(tenon_gguf_json(gguf_file(w), w.in.below(6), UINT64_MAX, out.arg()), out))
    must_be_json(out.value);
}
inline void gguf_tensor_count(World& w) { tenon_gguf_tensor_count(gguf_file(w)); }
inline void gguf_tensor_at(World& w) {
  Out<tenon_gguf_tensor> out(w.in);
  if (!out.filled(w.good(tenon_gguf_tensor_at(gguf_file(w), w.in.below(3), out.arg())))) return;
  if (out.value.struct_size < sizeof out.value) return;
  read_text(out.value.name);
  read(out.value.data, out.value.size);
}
inline void gguf_find_tensor(World& w) { tenon_gguf_find_tensor(gguf_file(w), gguf_name(w)); }
inline void gguf_load(World& w) {
  w.good(tenon_gguf_load(gguf_file(w), w.in.below(3), w.stores.any(w.in), w.space(), w.name(),
                         w.dtype()));
}

inline void gguf_writer_create(World& w) {
  Out<tenon_gguf_writer*> out(w.in);
  if (out.filled(w.good(tenon_gguf_writer_create(gguf_path(w), out.arg()))))
    w.keep(w.gguf_writers, out.value, tenon_gguf_writer_destroy);
}
inline tenon_gguf_writer* gguf_writer(World& w) { return w.gguf_writers.any(w.in); }
inline void gguf_writer_destroy(World& w) { tenon_gguf_writer_destroy(w.gguf_writers.take(w.in)); }
inline void gguf_writer_number(World& w) {
  w.good(tenon_gguf_writer_number(gguf_writer(w), gguf_name(w), w.in.below(14),
                                  w.in.one_in(24) ? nullptr : w.bytes()));
}
inline void gguf_writer_numbers(World& w) {
  w.good(tenon_gguf_writer_numbers(gguf_writer(w), gguf_name(w), w.in.below(14),
                                   w.in.one_in(24) ? nullptr : w.bytes(), w.in.below(9)));
}
inline void gguf_writer_text(World& w) {
  w.good(tenon_gguf_writer_text(gguf_writer(w), gguf_name(w), w.name()));
}
inline void gguf_writer_texts(World& w) {
  const tenon_str texts[] = {w.name(), w.name()};
  w.good(tenon_gguf_writer_texts(gguf_writer(w), gguf_name(w), w.in.one_in(24) ? nullptr : texts,
                                 w.in.below(3)));
}
inline void gguf_writer_tensor(World& w) {
  static constexpr int64_t kDims[][5] = {{2, 32, 1, 1, 1}, {256, 2, 1, 1, 1}, {0, 32, 32, 32, 9}};
  const World::Dims odd = w.dims();
  const int64_t* dims = w.in.one_in(4) ? odd.data : w.in.of(kDims);
  w.good(tenon_gguf_writer_tensor(gguf_writer(w), gguf_name(w), gguf_type(w), dims,
                                  dims == odd.data ? std::min(odd.rank, 5u) : w.in.below(6)));
}
inline void gguf_writer_content(World& w) {
  w.good(tenon_gguf_writer_content(gguf_writer(w), w.in.one_in(24) ? nullptr : w.bytes(),
                                   w.in.one_in(2) ? 128 : w.size()));
}
inline void gguf_writer_commit(World& w) {
  if (w.in.one_in(8)) w.good(tenon_gguf_writer_commit(gguf_writer(w)));  // it syncs the disk
}

// The memory outlives all runs.
inline void store_borrow(World& w) {
  static const unsigned char memory[4096] = {};
  static const auto release = [](void*) {};
  const tenon_tensor* const t = w.tensor();
  tenon_tensor borrowed = t ? *t : tenon_tensor{};
  if (borrowed.data) borrowed.data = const_cast<unsigned char*>(memory);
  w.good(tenon_store_borrow(w.stores.any(w.in), w.space(), w.name(), t ? &borrowed : nullptr,
                            w.in.one_in(2) ? nullptr : +release, nullptr));
}

// A file of each kind of value, with a plain tensor and one in blocks.
inline void write_gguf(const std::string& path) {
  std::string bytes = "GGUF";
  const auto u32 = [&](uint32_t v) { bytes.append(reinterpret_cast<const char*>(&v), 4); };
  const auto u64 = [&](uint64_t v) { bytes.append(reinterpret_cast<const char*>(&v), 8); };
  const auto text = [&](std::string_view v) { u64(v.size()), bytes += v; };
  u32(3), u64(2), u64(4);
  text("k"), u32(4), u32(7);
  text("s"), u32(8), text("a text");
  text("l"), u32(9), u32(8), u64(2), text("x"), text("\xff");
  text("n"), u32(9), u32(5), u64(3), u32(1), u32(2), u32(3);
  text("w"), u32(1), u64(2), u32(0), u64(0);
  text("q"), u32(2), u64(32), u64(1), u32(8), u64(32);
  bytes.resize((bytes.size() + 31) / 32 * 32);
  bytes.append(66, '\1');
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace tenon::fuzz
