// SPDX-License-Identifier: Apache-2.0
// The world of the API fuzzer: the live objects, the arguments that a random caller may pass, and
// what every call promises. api_fuzz.cpp makes the calls.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api_graphs.hpp"
#include "check.hpp"
#include "tenon/tenon.h"
#include "tenon/tenon_gguf.h"

namespace tenon::fuzz {

// Choices: the bytes of the input first, then numbers that follow from them.
class Source {
 public:
  Source(const uint8_t* data, size_t size) : data_(data), left_(size) {
    for (size_t i = 0; i < size; ++i) state_ = (state_ ^ data[i]) * 0x100000001B3ull;
  }
  uint32_t below(uint32_t limit) { return next() % limit; }
  bool one_in(uint32_t n) { return below(n) == 0; }
  template <class T, size_t kCount>
  const T& of(const T (&list)[kCount]) {
    return list[below(kCount)];
  }

 private:
  uint32_t next() {
    if (left_ > 0) return --left_, *data_++;
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<uint32_t>(state_ >> 16);
  }
  const uint8_t* data_;
  size_t left_;
  uint64_t state_ = 0xCBF29CE484222325ull;
};

// Where a call writes a result. It may be NULL; a call that fails leaves it alone.
enum class Need { required, optional };
template <class T>
class Out {
 public:
  explicit Out(Source& in, Need need = Need::required) : need_(need), null_(in.one_in(24)) {
    std::memset(static_cast<void*>(&value), kUntouched, sizeof value);
    if constexpr (kSized) value.struct_size = in.one_in(16) ? in.below(20) * 8 : sizeof value;
  }
  T* arg() { return null_ ? nullptr : &value; }
  // True when the call gave a result here.
  bool filled(bool succeeded) const {
    if (succeeded) {
      must(!null_ || need_ == Need::optional, "a call succeeded although its result had no place");
      return !null_;
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
    for (size_t i = kSized ? sizeof(uint64_t) : 0; i < sizeof value; ++i)
      must(bytes[i] == kUntouched, "a call that failed wrote a result");
    return false;
  }
  T value;

 private:
  static constexpr unsigned char kUntouched = 0x5A;
  static constexpr bool kSized = requires(T t) { t.struct_size; };
  Need need_;
  bool null_;
};

// Live objects of one kind. None is used after its own destruction; parents go before their
// children.
template <class T>
struct Pool {
  static constexpr size_t kMost = 6;
  std::vector<T*> live;
  T* any(Source& in) const {
    if (live.empty() || in.one_in(32)) return nullptr;
    return in.one_in(2) ? live.back() : live[in.below(static_cast<uint32_t>(live.size()))];
  }
  T* take(Source& in) {
    T* const taken = any(in);
    std::erase(live, taken);
    return taken;
  }
};

class World {
 public:
  World(const uint8_t* data, size_t size, tenon_runtime* shared, std::string folder)
      : in(data, size), shared(shared), folder(std::move(folder)) {}

  Source in;
  tenon_runtime* const shared;  // outlives the world: loading plugins takes time
  const std::string folder;     // for files
  Pool<tenon_runtime> runtimes;
  Pool<tenon_graph> graphs;
  Pool<tenon_store> stores;
  Pool<tenon_tensors> tensor_files;
  Pool<tenon_safetensors> safetensors;
  Pool<tenon_gguf> ggufs;
  Pool<tenon_gguf_writer> gguf_writers;
  Pool<tenon_executable> executables;
  Pool<tenon_context> contexts;
  Pool<tenon_text> texts;
  Pool<tenon_status> statuses;

  template <class T, class Destroy>
  void keep(Pool<T>& pool, T* object, Destroy destroy) {
    must(object != nullptr, "a call succeeded and gave NULL");
    pool.live.push_back(object);
    if (pool.live.size() > Pool<T>::kMost) {
      destroy(pool.live.front());
      pool.live.erase(pool.live.begin());
    }
  }
  tenon_runtime* runtime() {
    if (tenon_runtime* own = in.one_in(3) ? runtimes.any(in) : nullptr) return own;
    return in.one_in(32) ? nullptr : shared;
  }

  // True for success. A failure says why; internal means a bug of ours.
  bool good(tenon_status* status) {
    if (!status) return true;
    const tenon_code code = tenon_status_code(status);
    const tenon_str text = tenon_status_text(status);
    const std::string words(text.data, text.size);
    must(code != TENON_OK && code <= TENON_CANCELLED, words.c_str());
    must(!words.empty(), "a status has no text");
    keep(statuses, status, tenon_status_release);
    return false;
  }
  bool good(tenon_status* status, Out<tenon_text*>& out) {
    const bool succeeded = good(status);
    if (out.filled(succeeded)) keep(texts, out.value, tenon_text_destroy);
    return succeeded;
  }

  // ---- Arguments

  tenon_str text(std::string_view s) {
    kept_.emplace_back(s);
    if (kept_.size() > 64) kept_.pop_front();
    return {kept_.back().data(), kept_.back().size()};
  }
  tenon_str name() {
    static const std::string kLong(5000, 'n');
    static const std::string_view kNames[] = {
        "x", "t", "lr", "w", "s", "m", "y", "loss", "w.m", "N", "", "\xff\xfe", {"a\0b", 3}, kLong};
    if (in.one_in(48)) return {nullptr, 1 + in.below(5)};  // bytes at no address
    return text(in.of(kNames));
  }
  tenon_str output() {
    static constexpr std::string_view kNames[] = {"y", "loss"};
    return in.one_in(8) ? name() : text(in.of(kNames));
  }
  tenon_str path() {
    static constexpr std::string_view kFiles[] = {"/a.safetensors", "/b.safetensors", "/none/a", "",
                                                  "/trace.json",    "/t.npy",         "/t.npz"};
    if (in.one_in(8)) return text(in.one_in(2) ? "/dev/null" : "");
    return text(folder + std::string(in.of(kFiles)));
  }
  tenon_str device() {
    static constexpr std::string_view kDevices[] = {
        "template:0", "lanes:0", "cpu:0", "template:0", "lanes:1", "cpu:0", "auto", "", "none:3"};
    return in.one_in(24) ? name() : text(in.of(kDevices));
  }
  uint32_t number() {
    static constexpr uint32_t kNumbers[] = {0, 1, 2, 3, 4, 7, 1u << 20, 0x7FFFFFFF, ~0u};
    return in.of(kNumbers);
  }
  // Few elements, or so many that no machine holds them.
  int64_t dim() {
    static constexpr int64_t kDims[] = {
        2, 3, 1, 4, 2, 3, 0, -1, -2, int64_t{1} << 40, INT64_MAX, INT64_MIN};
    return in.of(kDims);
  }
  struct Dims {
    std::array<int64_t, TENON_MAX_RANK> dims;
    uint32_t rank;
    const int64_t* data;
  };
  Dims dims() {
    Dims d{{}, in.below(4), nullptr};
    for (int64_t& each : d.dims) each = dim();
    if (in.one_in(24)) d.rank = TENON_MAX_RANK + 1 + number() / 2;  // not read that far
    d.data = in.one_in(24) ? nullptr : d.dims.data();
    return d;
  }
  tenon_dtype dtype() {
    static constexpr tenon_dtype kDTypes[] = {TENON_DTYPE_F32,
                                              TENON_DTYPE_F32,
                                              TENON_DTYPE_I64,
                                              TENON_DTYPE_BF16,
                                              TENON_DTYPE_BOOL,
                                              TENON_DTYPE_I4,
                                              TENON_DTYPE_C64,
                                              TENON_DTYPE_NONE,
                                              19,
                                              0xFFFF};
    return in.of(kDTypes);
  }
  uint32_t space() { return in.one_in(8) ? number() : 1 + in.below(4); }
  tenon_value value() { return in.one_in(24) ? number() : in.below(16); }
  // A version of a struct that the caller may have been compiled with, or nonsense.
  template <class T>
  uint64_t size_of() {
    if (!in.one_in(12)) return sizeof(T);
    return in.one_in(4) ? UINT64_MAX : in.below(sizeof(T) + 16);
  }
  // Bytes that every call may read or write as many of as size() says.
  unsigned char* bytes() { return bytes_.data(); }
  uint64_t size() {
    static constexpr uint64_t kSizes[] = {0, 4, 8, 24, 48, 4096};
    return in.of(kSizes);
  }

  // A tensor of that type, rarely one that is wrong in one way. Valid until the next one.
  const tenon_tensor* tensor(const tenon_tensor_type& type) {
    std::copy_n(type.dims, TENON_MAX_RANK, tensor_dims_.begin());
    for (uint32_t i = 0; i < type.rank; ++i)
      if (tensor_dims_[i] < 0) tensor_dims_[i] = 1 + in.below(4);
    tensor_ = {.struct_size = sizeof tensor_,
               .dims = tensor_dims_.data(),
               .strides = nullptr,
               .data = bytes_.data(),
               .size = bytes_.size(),
               .rank = type.rank,
               .dtype = type.dtype,
               .reserved0 = 0,
               .device = {},
               .flags = 0,
               .reserved1 = 0};
    if (in.one_in(6)) spoil_tensor();
    return in.one_in(48) ? nullptr : &tensor_;
  }
  const tenon_tensor* tensor() {
    const Dims d = dims();
    tenon_tensor_type type{};
    type.dtype = dtype();
    type.rank = static_cast<uint16_t>(d.rank % (TENON_MAX_RANK + 1));
    std::copy(d.dims.begin(), d.dims.end(), type.dims);
    return tensor(type);
  }

 private:
  void spoil_tensor() {
    switch (in.below(10)) {
      case 0:
        tensor_.struct_size = size_of<tenon_tensor>();
        break;
      case 1:
        tensor_.dims = nullptr;
        break;
      case 2:
        tensor_.data = nullptr;
        break;
      case 3:
        tensor_.rank = number();
        break;
      case 4:
        tensor_.dtype = dtype();
        break;
      case 5:
        for (int64_t& s : tensor_strides_) s = in.one_in(2) ? dim() : in.below(8);
        tensor_.strides = tensor_strides_.data();
        break;
      case 6:
        tensor_dims_[0] = dim();
        break;
      case 7:
        tensor_.device = device();
        break;
      case 8:
        tensor_.flags = number();
        break;
      default:
        tensor_.size = in.below(8);
    }
  }

  std::deque<std::string> kept_;  // strings of the last calls
  std::array<unsigned char, 4096> bytes_{};
  tenon_tensor tensor_{};
  std::array<int64_t, TENON_MAX_RANK> tensor_dims_{}, tensor_strides_{};
};

}  // namespace tenon::fuzz
