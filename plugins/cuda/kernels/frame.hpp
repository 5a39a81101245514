// SPDX-License-Identifier: Apache-2.0
// A BodyText over shapes: how many elements a thread takes at once, how each operand is read, and
// the text of the kernel. One thread per vector of the result. Where the body ends in a reduction:
// of the last axes, a group of lanes per row or piece of one; of others, a block per piece of
// neighbouring columns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "body_text.hpp"
#include "loop.hpp"
#include "reduce.hpp"

namespace tenon::cuda {

// A reduction at the end of a body. Its terms are an output of the body, in what they are computed
// in.
struct Fold {
  size_t output = 0;
  Reduction how{};
  tenon_dtype result{};
  size_t first = 0, last = 0;  // axes [first, last) of the shape are reduced
};

struct FrameOptions {
  bool any_strides = false;  // else operands that would waste most of each access are refused
  bool batch = false;        // sets of other shapes should have the same text
  std::optional<Fold> fold{};
  int multiprocessors = 1;
};

// What a kernel takes: Arguments of elementwise.cuh as words, the pointers first: inputs, outputs.
using FrameArguments = std::vector<uint64_t>;

class Frame {
 public:
  Frame(const BodyText& body, const std::vector<sdk::Value>& in, std::span<const int64_t> shape,
        const FrameOptions& options);

  // The entry is `elementwise`. sets > 0: it takes that many sets (Sets of elementwise.cuh).
  std::string text(const BodyText& body, int64_t sets = 0) const;
  int64_t blocks() const;
  uint32_t threads() const { return is_rows() ? group_threads(lanes_) : 256; }
  FrameArguments arguments(size_t outputs) const;
  // Of a set of several, in its arguments.
  void set_first_block(FrameArguments& arguments, uint32_t block) const;
  // Which operands an output of `dtype` may be written over.
  static bool replaceable(const sdk::Type& x, std::span<const int64_t> shape, tenon_dtype dtype);

  const std::optional<Fold>& fold() const { return fold_; }
  const ReduceStage& stage() const { return stage_; }  // of the fold
  bool is_rows() const { return fold_ && stage_.inner == 1; }

 private:
  enum class Read : uint8_t {
    vector,   // elements lie together, aligned
    strided,  // one by one
    once,     // one element for the whole vector
  };
  struct Operand {
    Read read;
    bool fixed;  // the same all along what a thread reduces
  };
  void choose_width(const BodyText& body);
  void choose_stage(int multiprocessors);
  Operand operand_of(size_t k, const sdk::Value& v, bool any_strides) const;
  std::string index() const { return wide_ ? "i64" : "u32"; }
  std::string coordinates(std::string rest, size_t first, size_t last) const;
  std::string pointer(size_t k, const std::string& name, const std::string& base, size_t first,
                      size_t last) const;
  std::string load(size_t k, const std::string& from) const;
  std::string compute(size_t outputs) const;
  std::string store(size_t k, const std::string& at) const;
  std::string vectors_text(const BodyText& body) const;
  std::string fixed_text(size_t first) const;
  std::string step_text(const BodyText& body, size_t first, size_t last,
                        const std::string& at) const;
  std::string unrolled(const BodyText& body) const;
  std::string rows_text(const BodyText& body) const;
  std::string columns_text(const BodyText& body) const;

  Loop loop_;
  std::optional<Fold> fold_;
  ReduceStage stage_{};
  std::vector<Operand> operands_;
  int width_ = 1;
  int64_t lanes_ = 1;   // of a row; of columns: threads side by side
  int64_t groups_ = 0;  // what threads, groups of lanes or blocks take
  bool tail_ = false;   // the last vector may not be full
  bool wide_ = false;   // index math of 64 bits
};

}  // namespace tenon::cuda
