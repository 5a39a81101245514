// SPDX-License-Identifier: Apache-2.0
// The family quantized, host side: what follows the sums of qmatmul and qconv.
#pragma once

#include <string>
#include <vector>

#include "../device.hpp"
#include "args.hpp"
#include "entries.hpp"

namespace tenon::cuda {

inline bool is_byte(tenon_dtype t) { return t == TENON_DTYPE_I8 || t == TENON_DTYPE_U8; }

// Positions of operands, -1 where absent, and dtypes. x is the left matrix of a product, w the right
// one.
struct QuantizedEnding {
  int bias = -1, multiplier = -1, x_zero = -1, w_zero = -1, y_zero = -1;
  tenon_dtype x = TENON_DTYPE_NONE, w = TENON_DTYPE_NONE, y = TENON_DTYPE_NONE;
  bool several_multipliers = false, several_zeros = false;  // one for each channel
  bool relu = false;
  uint32_t terms = 0;  // of a sum

  // Refuses dtypes, and sums that may leave 32 bits before they are multiplied.
  template <class Op>
  QuantizedEnding(const Op& n, const sdk::Value& of_x, const sdk::Value& x_zero_of,
                  const sdk::Value& of_w, const sdk::Value& w_zero_of, const sdk::Node& node,
                  int64_t terms_of)
      : bias(n.bias.position()),
        multiplier(n.multiplier.position()),
        x_zero(x_zero_of.position()),
        w_zero(w_zero_of.position()),
        y_zero(n.y_zero.position()),
        x(of_x.type().dtype),
        w(of_w.type().dtype),
        y(node.out(0).type().dtype),
        several_multipliers(has_several(n.multiplier)),
        several_zeros(has_several(w_zero_of)),
        relu(n.act == "relu"),
        terms(static_cast<uint32_t>(terms_of)) {
    check(terms_of);
  }
  // FILTER and RESULT; the dtype of x is TYPE.
  std::vector<std::string> defines() const;
  // w_sums: of each channel; null where the sums are those of operands less their zero points.
  args::QuantizedEnds of(const sdk::Call& call, const void* w_sums) const;

 private:
  static bool has_several(const sdk::Value& v) { return v && v.type().elements() > 1; }
  void check(int64_t terms_of) const;
};

// Σ of each row of w, of pieces of 16 bytes.
struct ByteRowSums {
  CodeFor<entries::byte_row_sums> code{};
  uint32_t rows = 0, pieces = 0;

  ByteRowSums() = default;
  ByteRowSums(CudaDevice& device, tenon_dtype w, int64_t rows, int64_t pieces);
  uint64_t bytes() const { return uint64_t{rows} * 4; }
  void run(const sdk::Call& call, const void* w, void* sums) const;
};

// ---- maker of quantized_matmul.cpp
sdk::Kernel make_qmatmul(const sdk::op::qmatmul& n, const sdk::Node& node);

}  // namespace tenon::cuda
