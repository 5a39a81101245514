// SPDX-License-Identifier: Apache-2.0
// Decodes whole weights by several threads; weights of 8-bit numbers with scales.
#include "llm/arch/encoded_weight.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "llm/dims_text.hpp"
#include "llm/threads.hpp"
#include "tenon/blocks.hpp"

namespace tenon::llm {
namespace {

// Packed words hold neighbouring rows, so rows are decoded many at a time.
constexpr int64_t kRows = 64;

// Calls work(first, count) for all rows, a few at a time.
void by_rows(int64_t rows, int64_t columns, const std::function<void(int64_t, int64_t)>& work) {
  const int64_t parts = (rows + kRows - 1) / kRows;
  const unsigned most = rows * columns < (1 << 20) ? 1 : std::thread::hardware_concurrency();
  in_threads(static_cast<size_t>(parts), std::min(most, 64u), [&](size_t part) {
    const int64_t first = static_cast<int64_t>(part) * kRows;
    work(first, std::min(kRows, rows - first));
  });
}

// Drops the pages of a mapped file that hold nothing but `bytes`. They come back when they are
// read.
void drop_pages(std::span<const std::byte> bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (begin + page - 1) / page * page,
                  end = (begin + bytes.size()) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

constexpr int64_t kF8Block = 128;

class Scaled final : public EncodedWeight {
 public:
  Scaled(const Safetensors::Entry& weight, const Safetensors::Entry& scale, const Quantization& q)
      : weight_(weight), scale_(scale) {
    const std::vector<int64_t>& dims = weight.type.dims;
    if (dims.size() != 2 || dims[0] < 1 || dims[1] < 1)
      throw Error(TENON_UNSUPPORTED, "weight " + described(weight) + ": expected two axes");
    rows = dims[0], columns = dims[1];
    check_scales(scale);
    const std::vector<int64_t>& s = scale.type.dims;
    const auto parts = [](int64_t size, int64_t block) { return (size + block - 1) / block; };
    if (q.may_be_rows && scale.type.elements() == 1 && s.size() <= 2)
      block_rows_ = rows, block_columns_ = columns;
    else if (q.may_be_rows && (s == std::vector{rows} || s == std::vector<int64_t>{rows, 1}))
      block_rows_ = 1, block_columns_ = columns;
    else if (q.block_rows > 0 &&
             s == std::vector{parts(rows, q.block_rows), parts(columns, q.block_columns)})
      block_rows_ = q.block_rows, block_columns_ = q.block_columns;
    else
      throw Error(TENON_SHAPE_MISMATCH,
                  "scale " + described(scale) + " of weight " + described(weight) + ": expected " +
                      (q.block_rows > 0 ? "[" + std::to_string(parts(rows, q.block_rows)) + ", " +
                                              std::to_string(parts(columns, q.block_columns)) + "]"
                                        : "one number, or one for each row"));
    for (unsigned i = 0; i < 256; ++i)
      values_[i] = q.integers ? static_cast<float>(static_cast<int8_t>(i)) : sdk::f8e4m3_value(i);
    const bool one_scale = block_columns_ == columns || block_columns_ % kF8Block == 0;
    if (!q.integers && one_scale && columns % kF8Block == 0) blocks = TENON_DTYPE_F8E4M3_128;
  }

  std::span<const std::byte> source() const override { return weight_.data; }
  void open() override { scales_ = as_floats(scale_); }
  void close() override { scales_ = {}; }

  void decode(int64_t first, int64_t count, float* to) const override {
    const int64_t across = (columns + block_columns_ - 1) / block_columns_;
    const auto* from = reinterpret_cast<const uint8_t*>(weight_.data.data()) + first * columns;
    for (int64_t r = first; r < first + count; ++r)
      for (int64_t b = 0; b < across; ++b) {
        const float scale = scales_[static_cast<size_t>(r / block_rows_ * across + b)];
        const int64_t size = std::min(block_columns_, columns - b * block_columns_);
        for (int64_t i = 0; i < size; ++i) *to++ = values_[*from++] * scale;
      }
  }

  void decode_blocks(int64_t first, int64_t count, std::byte* to) const override {
    const int64_t across = (columns + block_columns_ - 1) / block_columns_;
    const std::byte* from = weight_.data.data() + first * columns;
    for (int64_t r = first; r < first + count; ++r)
      for (int64_t c = 0; c < columns; c += kF8Block, from += kF8Block) {
        const float scale =
            scales_[static_cast<size_t>(r / block_rows_ * across + c / block_columns_)];
        std::memcpy(to, &scale, sizeof scale), to += sizeof scale;
        to = std::copy_n(from, kF8Block, to);
      }
  }

 private:
  const Safetensors::Entry weight_, scale_;
  int64_t block_rows_ = 1, block_columns_ = 1;
  std::array<float, 256> values_{};
  std::vector<float> scales_;
};

}  // namespace

std::string described(const Safetensors::Entry& tensor) {
  return "'" + tensor.name + "' " + std::string(sdk::dtype_name(tensor.type.dtype)) +
         dims_text(tensor.type.dims);
}

void check_scales(const Safetensors::Entry& tensor) {
  const tenon_dtype t = tensor.type.dtype;
  if (t != f32 && t != f16 && t != bf16)
    throw Error(TENON_UNSUPPORTED, "scale " + described(tensor) + ": expected f32, f16 or bf16");
}

std::vector<float> as_floats(const Safetensors::Entry& tensor) {
  check_scales(tensor);
  const tenon_dtype t = tensor.type.dtype;
  const size_t width = tenon_dtype_bits(t) / 8, count = tensor.data.size() / width;
  std::vector<float> out(count);
  if (t == f32) {
    std::memcpy(out.data(), tensor.data.data(), count * width);
    return out;
  }
  std::vector<uint16_t> aligned(count);
  std::memcpy(aligned.data(), tensor.data.data(), count * width);
  detail::check(tenon_convert(t, aligned.data(), f32, out.data(), count));
  return out;
}

Tensor EncodedWeight::tensor(tenon_dtype dtype, bool transposed) {
  open();
  Tensor out(
      TensorType(dtype, transposed ? std::vector{columns, rows} : std::vector{rows, columns}));
  auto* const to = static_cast<std::byte*>(out.data());
  if (in_blocks(dtype)) {
    const auto row = static_cast<int64_t>(out.size()) / rows;
    by_rows(rows, columns,
            [&](int64_t first, int64_t count) { decode_blocks(first, count, to + first * row); });
    close();
    drop_pages(source());
    return out;
  }
  const int64_t width = tenon_dtype_bits(dtype) / 8;
  by_rows(rows, columns, [&](int64_t first, int64_t count) {
    std::vector<float> numbers(static_cast<size_t>(count * columns));
    decode(first, count, numbers.data());
    if (!transposed) {
      detail::check(
          tenon_convert(f32, numbers.data(), dtype, to + first * columns * width, numbers.size()));
      return;
    }
    std::vector<float> column(static_cast<size_t>(count));
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < count; ++r)
        column[static_cast<size_t>(r)] = numbers[static_cast<size_t>(r * columns + c)];
      detail::check(
          tenon_convert(f32, column.data(), dtype, to + (c * rows + first) * width, column.size()));
    }
  });
  close();
  drop_pages(source());
  return out;
}

std::unique_ptr<EncodedWeight> scaled_weight(const Safetensors::Entry& weight,
                                             const Safetensors::Entry& scale,
                                             const Quantization& quantization) {
  return std::make_unique<Scaled>(weight, scale, quantization);
}

}  // namespace tenon::llm
