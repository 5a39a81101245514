// SPDX-License-Identifier: Apache-2.0
// Weights of GPTQ, AWQ and compressed-tensors: integers of 4 or 8 bits in words of 32, with a scale
// and a zero point for each output of each group of inputs. A weight is (integer - zero) * scale.
//
//   qweight  gptq [inputs * bits / 32, outputs], awq [inputs, outputs * bits / 32]
//   qzeros   [groups, outputs * bits / 32]
//   scales   [groups, outputs]
//   g_idx    [inputs], gptq only: the group of each input
//
//   weight_packed  [outputs, inputs * bits / 32]; the zero point is 2^(bits - 1)
//   weight_scale   [outputs, groups]
//   weight_shape   [2]: outputs and inputs
//   weight_g_idx   [inputs]
//
// Blocks of q4_0 hold (0 to 15) - 8, of q5_0 (0 to 31) - 16, of q8_0 -128 to 127, times an f16.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "llm/arch/encoded_weight.hpp"

namespace tenon::llm {
namespace {

constexpr int64_t kBlock = 32;

using Words = std::vector<uint32_t>;

Words words_of(const Safetensors::Entry& t) {
  Words out(t.data.size() / sizeof(uint32_t));
  if (!out.empty()) std::memcpy(out.data(), t.data.data(), out.size() * sizeof(uint32_t));
  return out;
}

uint16_t f16_bits(float value) {
  uint16_t out = 0;
  detail::check(tenon_convert(f32, &value, f16, &out, 1));
  return out;
}

bool fits_f16(const std::vector<float>& numbers) {
  std::vector<uint16_t> halves(numbers.size());
  std::vector<float> back(numbers.size());
  detail::check(tenon_convert(f32, numbers.data(), f16, halves.data(), halves.size()));
  detail::check(tenon_convert(f16, halves.data(), f32, back.data(), back.size()));
  for (size_t i = 0; i < back.size(); ++i)
    if (!std::isfinite(back[i]) || back[i] != numbers[i]) return false;
  return true;
}

class Packed final : public EncodedWeight {
 public:
  Packed(const std::string& module, const FindTensor& find, const Quantization& q)
      : q_(q), per_word_(32 / q.bits), mask_((1u << q.bits) - 1) {
    const std::string integers = module + std::string(packed_end(q.layout));
    const auto need = [&](const char* end) {
      const auto* t = find(module + end);
      if (!t)
        throw Error(TENON_NOT_FOUND,
                    "weight '" + module + end + "' is missing beside '" + integers + "'");
      return *t;
    };
    weight_ = *find(integers);
    if (is_rowwise()) {
      scales_from_ = need(".weight_scale");
      if (const auto* zeros = find(module + ".weight_zero_point"))
        throw Error(TENON_UNSUPPORTED, "weight " + described(*zeros) +
                                           ": expected symmetric weights, without zero points");
      set_rowwise_dims(find(module + ".weight_shape"));
      if (const auto* g = find(module + ".weight_g_idx")) check_order(*g);
      choose_blocks();
      return;
    }
    zeros_from_ = need(".qzeros"), scales_from_ = need(".scales");
    const bool awq = q.layout == Quantization::Layout::awq;
    check_words();
    const int64_t a = weight_.type.dims[0], b = weight_.type.dims[1];
    columns = awq ? a : a * per_word_;
    rows = awq ? b * per_word_ : b;
    check(weight_, rows % per_word_ == 0,
          "a multiple of " + std::to_string(per_word_) + " outputs");
    group_ = q.group < 0 ? columns : q.group;
    groups_ = (columns + group_ - 1) / group_;
    expect(zeros_from_, {groups_, rows / per_word_});
    check(zeros_from_, zeros_from_.type.dtype == i32, "i32");
    expect(scales_from_, {groups_, rows});
    if (const auto* g = find(module + ".g_idx"); g && !awq) check_order(*g);
    choose_blocks();
  }

  void open() override {
    scales_ = as_floats(scales_from_);
    if (is_rowwise()) {
      std::vector<float> by_group(scales_.size());
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t g = 0; g < groups_; ++g)
          by_group[static_cast<size_t>(g * rows + r)] =
              scales_[static_cast<size_t>(r * groups_ + g)];
      scales_ = std::move(by_group);
      zeros_.assign(scales_.size(), static_cast<uint8_t>(1u << (q_.bits - 1)));
      return;
    }
    Words words = words_of(zeros_from_);
    // The words are numbers that were made by a subtraction, so that a borrow goes to the next one.
    if (q_.zero_minus_one)
      for (uint32_t& w : words) w += q_.bits == 4 ? 0x11111111u : 0x01010101u;
    zeros_.resize(scales_.size());
    for (size_t i = 0; i < words.size(); ++i)
      for (int64_t k = 0; k < per_word_; ++k)
        zeros_[i * static_cast<size_t>(per_word_) + static_cast<size_t>(k)] =
            static_cast<uint8_t>(words[i] >> shift_of_output(k) & mask_);
  }
  void close() override { scales_ = {}, zeros_ = {}; }
  std::span<const std::byte> source() const override { return weight_.data; }

  void decode(int64_t first, int64_t count, float* to) const override {
    const std::vector<uint8_t> levels = integers(first, count);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        const size_t at = static_cast<size_t>(c / group_ * rows + first + r);
        *to++ = static_cast<float>(levels[static_cast<size_t>(r * stride() + c)] - zeros_[at]) *
                scales_[at];
      }
  }

  void decode_blocks(int64_t first, int64_t count, std::byte* to) const override {
    const std::vector<uint8_t> levels = integers(first, count);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t c = 0; c < columns; c += kBlock) {
        const size_t at = static_cast<size_t>(c / group_ * rows + first + r);
        const uint16_t scale = f16_bits(scales_[at]);
        std::memcpy(to, &scale, sizeof scale), to += sizeof scale;
        to = block(levels.data() + r * stride() + c, zeros_[at], to);
      }
  }

 private:
  bool is_rowwise() const { return q_.layout == Quantization::Layout::packed; }

  void check_words() const {
    const std::vector<int64_t>& dims = weight_.type.dims;
    check(weight_, weight_.type.dtype == i32 && dims.size() == 2 && dims[0] > 0 && dims[1] > 0,
          "i32 with two axes");
  }

  // shape: may be null.
  void set_rowwise_dims(const Safetensors::Entry* shape) {
    check_words();
    const int64_t words = weight_.type.dims[1];
    rows = weight_.type.dims[0], columns = words * per_word_;
    if (shape) {
      const bool is_long = shape->type.dtype == TENON_DTYPE_I64;
      check(*shape,
            (is_long || shape->type.dtype == i32) && shape->type.dims == std::vector<int64_t>{2},
            "i64[2]");
      int64_t dims[2] = {};
      for (size_t i = 0; i < 2; ++i)
        std::memcpy(&dims[i], shape->data.data() + i * (is_long ? 8 : 4), is_long ? 8 : 4);
      const bool fits = dims[0] == rows && dims[1] > 0 && dims[1] <= columns &&
                        (dims[1] + per_word_ - 1) / per_word_ == words;
      if (!fits)
        throw Error(TENON_SHAPE_MISMATCH,
                    "weight " + described(weight_) + ": '" + shape->name + "' says [" +
                        std::to_string(dims[0]) + ", " + std::to_string(dims[1]) +
                        "], which 'num_bits' of quantization_config packs otherwise");
      columns = dims[1];
    }
    group_ = q_.group < 0 ? columns : q_.group;
    groups_ = (columns + group_ - 1) / group_;
    if (groups_ != 1 || scales_from_.type.dims != std::vector{rows})
      expect(scales_from_, {rows, groups_});
  }

  static void check(const Safetensors::Entry& t, bool good, const std::string& expected) {
    if (!good)
      throw Error(TENON_SHAPE_MISMATCH, "weight " + described(t) + ": expected " + expected);
  }
  static void expect(const Safetensors::Entry& t, const std::vector<int64_t>& dims) {
    check(t, t.type.dims == dims,
          "[" + std::to_string(dims[0]) + ", " + std::to_string(dims[1]) +
              "] by 'bits' and 'group_size' of quantization_config");
  }

  void check_order(const Safetensors::Entry& g) const {
    check(g, g.type.dtype == i32 && g.type.dims == std::vector{columns},
          "i32[" + std::to_string(columns) + "]");
    const Words order = words_of(g);
    for (int64_t c = 0; c < columns; ++c)
      if (order[static_cast<size_t>(c)] != static_cast<uint32_t>(c / group_))
        throw Error(TENON_UNSUPPORTED,
                    "weight '" + g.name +
                        "': the order of inputs was changed ('desc_act' or 'actorder' of "
                        "quantization_config); "
                        "expected groups of neighbouring inputs");
  }

  void choose_blocks() {
    if (columns % kBlock != 0 || group_ % kBlock != 0) return;
    open();
    const auto all = [&](unsigned zero) {
      return std::ranges::all_of(zeros_, [zero](uint8_t z) { return z == zero; });
    };
    if (fits_f16(scales_)) {
      if (q_.bits == 8)
        blocks = all(128) ? tenon_dtype{TENON_DTYPE_Q8_0} : tenon_dtype{TENON_DTYPE_NONE};
      else  // integers less zero points are from -15 to 15
        blocks = all(8) ? TENON_DTYPE_Q4_0 : TENON_DTYPE_Q5_0;
    }
    close();
  }

  // Bits below an output's integer in its word.
  int64_t shift_of_output(int64_t k) const {
    if (q_.layout != Quantization::Layout::awq) return k * q_.bits;
    return 4 * (k % 2 == 0 ? k / 2 : 4 + k / 2);  // awq: 0 2 4 6 1 3 5 7
  }

  // The integers of some rows, [count, stride()].
  std::vector<uint8_t> integers(int64_t first, int64_t count) const {
    std::vector<uint8_t> out(static_cast<size_t>(count * stride()));
    const int64_t across = weight_.type.dims[1];
    const auto word = [&](int64_t i, int64_t j) {
      uint32_t w = 0;
      std::memcpy(&w, weight_.data.data() + (i * across + j) * 4, 4);
      return w;
    };
    if (q_.layout == Quantization::Layout::awq) {
      // Rows come in whole words: their number and `first` are multiples of 8.
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t r = 0; r < count; r += per_word_) {
          const uint32_t w = word(c, (first + r) / per_word_);
          for (int64_t k = 0; k < per_word_; ++k)
            out[static_cast<size_t>((r + k) * stride() + c)] =
                static_cast<uint8_t>(w >> shift_of_output(k) & mask_);
        }
      return out;
    }
    const auto words = (columns + per_word_ - 1) / per_word_;
    for (int64_t i = 0; i < words; ++i)
      for (int64_t r = 0; r < count; ++r) {
        const uint32_t w = is_rowwise() ? word(first + r, i) : word(i, first + r);
        for (int64_t k = 0; k < per_word_; ++k)
          out[static_cast<size_t>(r * stride() + i * per_word_ + k)] =
              static_cast<uint8_t>(w >> k * q_.bits & mask_);
      }
    return out;
  }
  // Room for the last word, which may have more numbers than a row. Not a power of two: columns of
  // many rows would share few lines of a cache.
  int64_t stride() const { return columns + 64; }

  // The integers of a block, less their zero point. Returns its end.
  std::byte* block(const uint8_t* levels, int zero, std::byte* to) const {
    if (blocks == TENON_DTYPE_Q8_0) {
      for (int64_t i = 0; i < kBlock; ++i) *to++ = static_cast<std::byte>(levels[i] - zero);
      return to;
    }
    const int middle = blocks == TENON_DTYPE_Q4_0 ? 8 : 16;
    const auto level = [&](int64_t i) { return static_cast<unsigned>(levels[i] - zero + middle); };
    if (blocks == TENON_DTYPE_Q5_0) {
      uint32_t high = 0;
      for (int64_t i = 0; i < kBlock; ++i) high |= (level(i) >> 4) << i;
      std::memcpy(to, &high, sizeof high), to += sizeof high;
    }
    for (int64_t i = 0; i < kBlock / 2; ++i)
      *to++ = static_cast<std::byte>((level(i) & 15) | (level(i + kBlock / 2) & 15) << 4);
    return to;
  }

  const Quantization q_;
  const int64_t per_word_;
  const uint32_t mask_;
  Safetensors::Entry weight_, zeros_from_, scales_from_;
  int64_t group_ = 1, groups_ = 1;
  std::vector<float> scales_;   // [groups, rows]
  std::vector<uint8_t> zeros_;  // the same
};

}  // namespace

std::string_view packed_end(Quantization::Layout layout) {
  return layout == Quantization::Layout::packed ? ".weight_packed" : ".qweight";
}

std::unique_ptr<EncodedWeight> packed_weight(const std::string& module, const FindTensor& find,
                                             const Quantization& quantization) {
  return std::make_unique<Packed>(module, find, quantization);
}

}  // namespace tenon::llm
