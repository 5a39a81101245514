// SPDX-License-Identifier: Apache-2.0
// What shapes decide; frame_text.cpp writes it down.
#include "frame.hpp"

#include <algorithm>
#include <cstring>

namespace tenon::cuda {

Frame::Frame(const BodyText& body, const std::vector<sdk::Value>& in,
             std::span<const int64_t> shape, const FrameOptions& options)
    : fold_(options.fold) {
  std::vector<const sdk::Type*> types;
  for (const sdk::Value& v : in) types.push_back(&v.type());
  if (fold_)
    loop_ = make_loop(shape, types, {fold_->first, fold_->last});
  else
    loop_ = make_loop(shape, types);
  if (fold_ && fold_->last == shape.size()) loop_.splits[1] = loop_.rank();
  choose_width(body);
  wide_ = loop_.count >= kNarrowIndex;
  for (size_t k = 0; k < in.size(); ++k) {
    operands_.push_back(operand_of(k, in[k], options.any_strides));
    int64_t reach = 0;
    for (size_t i = 0; i < loop_.rank(); ++i)
      reach += std::abs(loop_.strides[k][i]) * std::max<int64_t>(loop_.dims[i] - 1, 0);
    wide_ |= reach >= kNarrowIndex;
  }
  if (fold_) {
    choose_stage(options.batch ? 0 : options.multiprocessors);
    return;
  }
  const int64_t inner_groups = (loop_.inner() + width_ - 1) / width_;
  groups_ = loop_.inner() == 0 ? 0 : loop_.count / loop_.inner() * inner_groups;
  tail_ = loop_.rank() == 1 && (options.batch || loop_.inner() % width_ != 0);
}

// 16 bytes of the widest type, up to 32 where others are narrower; whole vectors in every row. No
// thread writes more than 16 bytes of a result: a warp's stores would skip every other 16.
void Frame::choose_width(const BodyText& body) {
  int64_t most = 1, least = 8, written = 1;
  for (const auto* list : {&body.inputs(), &body.outputs()})
    for (const tenon_dtype t : *list) {
      most = std::max(most, element_bytes(t));
      least = std::min(least, element_bytes(t));
    }
  if (!fold_)
    for (const tenon_dtype t : body.outputs()) written = std::max(written, element_bytes(t));
  width_ = static_cast<int>(
      std::clamp<int64_t>(16 / least, 16 / most, (written == most ? 16 : 32) / most));
  if (loop_.rank() > 1 || fold_)
    while (loop_.inner() % width_ != 0) width_ /= 2;
}

// Few long ones are cut into pieces; no multiprocessors: they stay whole.
void Frame::choose_stage(int multiprocessors) {
  stage_ = {};
  for (size_t i = 0; i < loop_.rank(); ++i)
    (i < loop_.splits[0]   ? stage_.outer
     : i < loop_.splits[1] ? stage_.n
                           : stage_.inner) *= loop_.dims[i];
  const bool rows = loop_.splits[1] == loop_.rank();
  stage_.count = stage_.piece = stage_.n;
  if (multiprocessors > 0) cut(stage_, multiprocessors);
  if (rows && stage_.piece >= kNarrowIndex)
    throw sdk::Refusal::shape("rows are too long for one kernel");
  groups_ = stage_.outer * stage_.pieces;
  if (!rows) {
    const int64_t columns = stage_.inner / width_;
    lanes_ = reduce_across(columns);
    groups_ = launchable(groups_ * blocks_for(columns, lanes_));
    return;
  }
  const int64_t vectors = stage_.piece / width_;
  constexpr int64_t kManyGroups = 4096;  // fill a device with a warp each
  lanes_ = vectors <= 2                                                   ? 1
           : vectors <= 16                                                ? 8
           : vectors <= 128 || (vectors <= 512 && groups_ >= kManyGroups) ? 32
                                                                          : 256;
}

Frame::Operand Frame::operand_of(size_t k, const sdk::Value& v, bool any_strides) const {
  const auto& strides = loop_.strides[k];
  bool fixed = fold_.has_value();
  for (size_t i = loop_.splits[0]; i < loop_.splits[1]; ++i) fixed &= strides[i] == 0;
  if (strides.back() == 0) return {Read::once, fixed};
  constexpr int64_t kNear = 4;
  if (!any_strides && std::abs(strides.back()) > kNear && loop_.inner() > 1)
    throw sdk::Refusal::shape("an operand's elements lie too far apart");
  const int64_t size = element_bytes(v.type().dtype);
  const auto alignment = std::min<int64_t>(size * width_, 16);
  bool aligned = strides.back() == 1 && v.alignment() % static_cast<uint64_t>(alignment) == 0;
  for (size_t i = 0; i + 1 < strides.size(); ++i) aligned &= strides[i] * size % alignment == 0;
  return {aligned ? Read::vector : Read::strided, fixed};
}

int64_t Frame::blocks() const {
  if (fold_ && !is_rows()) return groups_;
  return blocks_for(groups_, fold_ ? groups_per_block(lanes_) : 256);
}

FrameArguments Frame::arguments(size_t outputs) const {
  const size_t rank = loop_.rank();
  FrameArguments words(operands_.size() + outputs);
  const auto add = [&](int64_t v) { words.push_back(static_cast<uint64_t>(v)); };
  add(loop_.count), add(groups_), add(stage_.n), add(stage_.piece), add(stage_.pieces);
  add(stage_.inner / width_);
  std::vector<Divisor> divisors(rank);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t d = i + 1 == rank ? loop_.dims[i] / width_ : loop_.dims[i];
    if (d > 0 && d < kNarrowIndex) divisors[i] = Divisor(static_cast<uint32_t>(d));
    add(d);
  }
  for (const auto& strides : loop_.strides)
    for (const int64_t s : strides) add(s);
  const size_t at = words.size(), bytes = rank * sizeof(Divisor);
  words.resize(at + (bytes + sizeof(uint32_t) + 7) / 8);
  std::memcpy(words.data() + at, divisors.data(), bytes);
  constexpr size_t kMostWords = 4096 / 8;  // of a kernel's arguments
  if (words.size() >= kMostWords) throw sdk::Refusal::shape("too many operands for one kernel");
  return words;
}

void Frame::set_first_block(FrameArguments& arguments, uint32_t block) const {
  const size_t rank = loop_.rank(), words = (rank * sizeof(Divisor) + sizeof block + 7) / 8;
  char* divisors = reinterpret_cast<char*>(arguments.data() + arguments.size() - words);
  std::memcpy(divisors + rank * sizeof(Divisor), &block, sizeof block);
}

bool Frame::replaceable(const sdk::Type& x, std::span<const int64_t> shape, tenon_dtype dtype) {
  return tenon_dtype_bits(x.dtype) == tenon_dtype_bits(dtype) && x.dense() &&
         std::ranges::equal(x.shape(), shape);
}

}  // namespace tenon::cuda
