// SPDX-License-Identifier: Apache-2.0
// Reads, writes and rounds numbers of every dtype.
#include "number.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace tenon::conform {
namespace {

struct Format {
  int digits;    // of the significand, with the hidden one
  int exponent;  // of the smallest normal number
};

Format format_of(tenon_dtype dtype) {
  switch (dtype) {
    case f16:
      return {11, -14};
    case bf16:
      return {8, -126};
    case f32:
      return {24, -126};
    case f8e4m3:
      return {4, -6};
    case f8e5m2:
      return {3, -14};
    default:
      return {53, -1022};
  }
}

uint16_t pack16(tenon_dtype dtype, double rounded) {
  const Format f = format_of(dtype);
  const int bits = f.digits - 1;
  const auto sign = static_cast<uint16_t>(std::signbit(rounded) ? 0x8000 : 0);
  const auto inf = static_cast<uint16_t>(0x7fff & ~((1 << bits) - 1));
  if (std::isnan(rounded)) return static_cast<uint16_t>(sign | inf | 1 << (bits - 1));
  const double a = std::fabs(rounded);
  if (std::isinf(a)) return sign | inf;
  if (a == 0) return sign;
  const int e = std::max(std::ilogb(a), f.exponent);
  const auto significand = static_cast<int>(std::ldexp(a, bits - e));
  const int biased = significand >> bits ? e - f.exponent + 1 : 0;
  return static_cast<uint16_t>(sign | biased << bits | (significand & ((1 << bits) - 1)));
}

double unpack16(tenon_dtype dtype, uint16_t raw) {
  const Format f = format_of(dtype);
  const int bits = f.digits - 1;
  const int biased = (raw & 0x7fff) >> bits, fraction = raw & ((1 << bits) - 1);
  const double sign = raw & 0x8000 ? -1 : 1;
  if (biased == 0x7fff >> bits)
    return fraction ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  if (biased == 0) return sign * std::ldexp(fraction, f.exponent - bits);
  return sign * std::ldexp(fraction | 1 << bits, f.exponent + biased - 1 - bits);
}

// e4m3 has no infinity: its largest number stands for it, and its topmost code alone is NaN.
uint8_t pack8(tenon_dtype dtype, double rounded) {
  const Format f = format_of(dtype);
  const int bits = f.digits - 1;
  const auto sign = static_cast<uint8_t>(std::signbit(rounded) ? 0x80 : 0);
  if (std::isnan(rounded)) return sign | 0x7f;
  if (std::isinf(rounded) && dtype == f8e5m2) return sign | 0x7c;
  const double a = std::min(std::fabs(rounded), largest(dtype));
  if (a == 0) return sign;
  const int e = std::max(std::ilogb(a), f.exponent);
  const auto significand = static_cast<int>(std::ldexp(a, bits - e));
  const int biased = significand >> bits ? e - f.exponent + 1 : 0;
  return static_cast<uint8_t>(sign | biased << bits | (significand & ((1 << bits) - 1)));
}

double unpack8(tenon_dtype dtype, uint8_t raw) {
  const Format f = format_of(dtype);
  const int bits = f.digits - 1, code = raw & 0x7f;
  const int biased = code >> bits, fraction = code & ((1 << bits) - 1);
  const double sign = raw & 0x80 ? -1 : 1;
  if (dtype == f8e4m3 ? code == 0x7f : code > 0x7c) return std::numeric_limits<double>::quiet_NaN();
  if (dtype == f8e5m2 && code == 0x7c) return sign * std::numeric_limits<double>::infinity();
  if (biased == 0) return sign * std::ldexp(fraction, f.exponent - bits);
  return sign * std::ldexp(fraction | 1 << bits, f.exponent + biased - 1 - bits);
}

template <class T>
T load(const std::vector<std::byte>& bytes, size_t i) {
  T out;
  std::memcpy(&out, bytes.data() + i * sizeof(T), sizeof(T));
  return out;
}
template <class T, class From>
void save(std::vector<std::byte>& bytes, size_t i, From x) {
  const T value = static_cast<T>(x);
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

size_t width(tenon_dtype dtype) { return static_cast<size_t>(tenon_dense_bytes(dtype, 1)); }

}  // namespace

double largest(tenon_dtype dtype) {
  switch (dtype) {
    case f16:
      return 65504;
    case bf16:
      return std::ldexp(255, 120);
    case f8e4m3:
      return 448;
    case f8e5m2:
      return 57344;
    case f32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

double ulp(tenon_dtype dtype, double x) {
  const Format f = format_of(dtype);
  const double a = std::min(std::fabs(x), largest(dtype));
  const int e = a == 0 ? f.exponent : std::max(std::ilogb(a), f.exponent);
  return std::ldexp(1, e - f.digits + 1);
}

double unit_roundoff(tenon_dtype dtype) { return std::ldexp(1, -format_of(dtype).digits); }

double round_to(tenon_dtype dtype, double x) {
  if (dtype == f64 || !std::isfinite(x)) return x;
  const double u = ulp(dtype, x);
  const double r = std::nearbyint(x / u) * u;
  return std::fabs(r) > largest(dtype) ? std::copysign(std::numeric_limits<double>::infinity(), x)
                                       : r;
}

HostTensor::HostTensor(TensorType t) : type(std::move(t)), bytes(type.bytes()) {}

int64_t HostTensor::integer(size_t i) const {
  if (is_nibble(type.dtype)) {
    const int64_t code = load<uint8_t>(bytes, i / 2) >> (i % 2 * 4) & 15;
    return type.dtype == i4 && code > 7 ? code - 16 : code;
  }
  switch (type.dtype) {
    case i8:
      return load<int8_t>(bytes, i);
    case i16:
      return load<int16_t>(bytes, i);
    case i32:
      return load<int32_t>(bytes, i);
    case i64:
      return load<int64_t>(bytes, i);
    case u8:
    case boolean:
      return load<uint8_t>(bytes, i);
    case u16:
      return load<uint16_t>(bytes, i);
    case u32:
      return load<uint32_t>(bytes, i);
    default:
      return static_cast<int64_t>(load<uint64_t>(bytes, i));
  }
}

double HostTensor::real(size_t i) const {
  switch (type.dtype) {
    case f32:
      return static_cast<double>(load<float>(bytes, i));
    case f64:
      return load<double>(bytes, i);
    case f16:
    case bf16:
      return unpack16(type.dtype, load<uint16_t>(bytes, i));
    case f8e4m3:
    case f8e5m2:
      return unpack8(type.dtype, load<uint8_t>(bytes, i));
    case u64:
      return static_cast<double>(load<uint64_t>(bytes, i));
    default:
      return static_cast<double>(integer(i));
  }
}

void HostTensor::set_real(size_t i, double x) {
  switch (type.dtype) {
    case f32:
      return save<float>(bytes, i, round_to(f32, x));
    case f64:
      return save<double>(bytes, i, x);
    case f16:
    case bf16:
      return save<uint16_t>(bytes, i, pack16(type.dtype, round_to(type.dtype, x)));
    case f8e4m3:
    case f8e5m2:
      return save<uint8_t>(bytes, i, pack8(type.dtype, round_to(type.dtype, x)));
    default:
      return set_integer(i, static_cast<int64_t>(x));
  }
}

void HostTensor::set_integer(size_t i, int64_t x) {
  if (is_nibble(type.dtype)) {
    const int shift = i % 2 * 4;
    const auto kept = load<uint8_t>(bytes, i / 2) & (0xf0 >> shift);
    return save<uint8_t>(bytes, i / 2, kept | (x & 15) << shift);
  }
  switch (width(type.dtype)) {
    case 1:
      return save<uint8_t>(bytes, i, x);
    case 2:
      return save<uint16_t>(bytes, i, x);
    case 4:
      return save<uint32_t>(bytes, i, x);
    default:
      return save<int64_t>(bytes, i, x);
  }
}

std::string HostTensor::text(size_t i) const {
  if (type.dtype == u64) return std::to_string(static_cast<uint64_t>(integer(i)));
  if (!is_float(type.dtype) && !is_f8(type.dtype)) return std::to_string(integer(i));
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.17g", real(i));
  return buffer;
}

namespace {
// Where a block has numbers of f16: its scale, and its minimum.
std::vector<size_t> half_fields(tenon_dtype dtype) {
  switch (dtype) {
    case TENON_DTYPE_Q4_1:
    case TENON_DTYPE_Q5_1:
    case TENON_DTYPE_Q8_1:
    case TENON_DTYPE_Q4_K:
    case TENON_DTYPE_Q5_K:
      return {0, 2};
    case TENON_DTYPE_Q2_K:
      return {80, 82};
    case TENON_DTYPE_Q3_K:
      return {108};
    case TENON_DTYPE_Q6_K:
      return {208};
    case TENON_DTYPE_TQ1_0:
      return {52};
    case TENON_DTYPE_TQ2_0:
      return {64};
    case TENON_DTYPE_Q8_K:
    case TENON_DTYPE_MXFP4:
    case TENON_DTYPE_NVFP4:
    case TENON_DTYPE_F8E4M3_128:
      return {};
    default:
      return {0};
  }
}
}  // namespace

void set_block_scales(HostTensor& blocks, const std::function<double()>& next) {
  const tenon_dtype t = blocks.type.dtype;
  const size_t size = tenon_dtype_block(t).bytes;
  for (size_t at = 0; at + size <= blocks.bytes.size(); at += size) {
    std::byte* const block = blocks.bytes.data() + at;
    for (const size_t field : half_fields(t)) {
      const uint16_t bits = pack16(f16, round_to(f16, next()));
      std::memcpy(block + field, &bits, 2);
    }
    if (t == TENON_DTYPE_Q8_K) {
      const auto scale = static_cast<float>(next());
      std::memcpy(block, &scale, 4);
    } else if (t == TENON_DTYPE_F8E4M3_128) {
      const auto scale = static_cast<float>(next());
      std::memcpy(block, &scale, 4);
      for (size_t k = 4; k < size; ++k)  // the code below NaN is the largest number
        if ((block[k] & std::byte{0x7f}) == std::byte{0x7f}) block[k] ^= std::byte{1};
    } else if (t == TENON_DTYPE_MXFP4) {
      block[0] = static_cast<std::byte>(121 + static_cast<int>(next() * 100) % 3);  // from 2^-6
    } else if (t == TENON_DTYPE_NVFP4) {
      for (size_t k = 0; k < 4; ++k) block[k] = static_cast<std::byte>(8 + next() * 200);
    }
  }
}

void set_f8_specials(HostTensor& blocks) {
  constexpr float kScales[] = {1, -0.5f, 0, 0x1p-20f, 3e-3f};
  constexpr size_t kBytes = 132, kNanEvery = 17;
  for (size_t b = 0; b < blocks.bytes.size() / kBytes; ++b) {
    std::byte* const block = blocks.bytes.data() + b * kBytes;
    std::memcpy(block, &kScales[b % std::size(kScales)], sizeof(float));
    for (size_t i = 4; i < kBytes; ++i) {
      auto code = static_cast<uint8_t>(2 * i + b % 2);
      if ((code & 0x7f) == 0x7f && b % kNanEvery != 3) code ^= 0x40;
      block[i] = static_cast<std::byte>(code);
    }
  }
}

HostTensor picked(const HostTensor& x, const std::vector<int64_t>& dims,
                  const std::vector<int64_t>& from) {
  HostTensor out({x.type.dtype, dims});
  if (is_nibble(x.type.dtype)) {
    for (size_t k = 0; k < from.size(); ++k)
      out.set_integer(k, x.integer(static_cast<size_t>(from[k])));
    return out;
  }
  const size_t w = width(x.type.dtype);
  for (size_t k = 0; k < from.size(); ++k)
    std::memcpy(out.bytes.data() + k * w, x.bytes.data() + static_cast<size_t>(from[k]) * w, w);
  return out;
}

std::string place(const std::vector<int64_t>& dims, size_t flat) {
  std::string out;
  for (size_t k = dims.size(); k-- > 0;) {
    const auto d = static_cast<size_t>(dims[k]);
    out = std::to_string(flat % d) + (out.empty() ? "" : ",") + out;
    flat /= d;
  }
  return "[" + out + "]";
}

}  // namespace tenon::conform
