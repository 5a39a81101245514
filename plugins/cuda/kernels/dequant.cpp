// SPDX-License-Identifier: Apache-2.0
// dequantize_blocks dequant_rows: elements of blocks of quantized weights. dequant_matmul: products of few
// rows with such weights.
#include <algorithm>

#include "../kernels.hpp"
#include "index.hpp"
#include "lines.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

constexpr int64_t kThreads = 256;

// Elements of a unit, which a thread decodes: Unit in device/blocks.cuh.
int64_t unit_of(tenon_dtype format) {
  switch (format) {
    case TENON_DTYPE_Q2_K:
    case TENON_DTYPE_Q3_K:
    case TENON_DTYPE_Q4_K:
    case TENON_DTYPE_Q5_K:
    case TENON_DTYPE_Q6_K:
    case TENON_DTYPE_TQ2_0:
    case TENON_DTYPE_Q1_0:
    case TENON_DTYPE_Q2_0:
      return 16;
    default:
      return 8;
  }
}

// The defines of device/blocks.cuh. Refuses formats that no op decodes.
std::vector<std::string> block_defines(const sdk::Value& w) {
  const tenon_dtype format = w.type().dtype;
  if (!sdk::is_decodable(format) || !w.type().dense()) throw Refusal::dtype("w", format);
  return {define("FORMAT", format - TENON_DTYPE_BLOCKS),
          define("ALIGN", static_cast<int64_t>(std::clamp<uint64_t>(w.alignment(), 1, 16)))};
}

std::string result_define(tenon_dtype to) {
  if (!is_float(to)) throw Refusal::dtype("to", to);
  return "TYPE=" + type_name("to", to);
}

sdk::Kernel make_dequantize_blocks(const sdk::op::dequantize_blocks& n, const sdk::Node& node) {
  std::vector<std::string> defines = block_defines(n.w);
  defines.push_back(result_define(n.to));
  const int64_t units = n.w.type().elements() / unit_of(n.w.type().dtype);
  const Grid grid{.blocks = launchable(blocks_for(units, kThreads)), .threads = kThreads};
  const auto code = device_of(node).code(entries::dequantize_blocks, defines);
  return kernel_of({code}, [=, w = n.w.position()](const sdk::Call& c) {
    code.launch(c, grid, c.in(w), c.outputs[0], args::i64{units});
  });
}

sdk::Kernel make_dequant_rows(const sdk::op::dequant_rows& n, const sdk::Node& node) {
  std::vector<std::string> defines = block_defines(n.w);
  defines.push_back(result_define(n.to));
  const sdk::Type& w = n.w.type();
  const int64_t units = w.dims[1] / unit_of(w.dtype), rows = n.ids.type().elements();
  const int64_t parts = launchable(std::max<int64_t>(blocks_for(units, kThreads), 1));
  const args::BlockRows s{.rows = index_axis(w.dims[0], n.ids.type()),
                          .units = units,
                          .parts = static_cast<uint32_t>(parts)};
  if (rows >= kNarrowIndex) throw Refusal::shape("2^31 or more rows for one kernel");
  const Grid grid{.blocks = launchable(rows * parts), .threads = kThreads};
  const auto code = device_of(node).code(entries::dequant_rows, defines);
  sdk::Kernel kernel =
      kernel_of({code}, [=, w = n.w.position(), ids = n.ids.position()](const sdk::Call& c) {
        args::BlockRows own = s;
        own.w = c.in<args::u8>(w), own.y = c.outputs[0];
        own.rows = axis_at(s.rows, c, ids);
        code.launch(c, grid, own);
      });
  kernel.can_fail = true;
  return kernel;
}

// Products of up to 8 rows of x. More rows are decomposed, into elements and a product of floats.
sdk::Kernel make_dequant_matmul(const sdk::op::dequant_matmul& n, const sdk::Node& node) {
  constexpr int64_t kMostRows = 8, kWarps = 4, kBlockRows = 2;  // rows: of x; of w for a warp
  std::vector<std::string> defines = block_defines(n.w);
  const sdk::Type &x = n.x.type(), &w = n.w.type();
  if (!is_float(x.dtype) || x.dtype == TENON_DTYPE_F64) throw Refusal::dtype("x", x.dtype);
  const int64_t out = w.dims[0], depth = w.dims[1];
  if (depth >= kNarrowIndex) throw Refusal::shape("2^31 or more elements in a row of w");
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank; ++i) rows *= x.dims[i];
  if (rows > kMostRows) throw Refusal::shape("more than 8 rows of x are decomposed");
  // Warps that share a row of w, so that small w use the whole device. This decides the order of a
  // sum, so it depends on w alone.
  constexpr int64_t kWanted = 4096;
  const int64_t units = depth / unit_of(w.dtype);
  int64_t split = 1;
  while (split < kWarps && out / kBlockRows * split < kWanted && units >= 2 * split * 32)
    split *= 2;
  defines.insert(defines.end(),
                 {"TYPE=" + type_name("x", x.dtype), define("ROWS", std::max<int64_t>(rows, 1)),
                  define("VEC", on_vectors(n.x) ? 4 : 1), define("SPLIT", split),
                  "BIAS=" + type_name("bias", n.bias ? n.bias.type().dtype : TENON_DTYPE_F32)});
  const int64_t blocks = rows == 0 ? 0 : blocks_for(out, kWarps / split * kBlockRows);
  const Grid grid{.blocks = launchable(blocks), .threads = 32 * kWarps};
  const auto code = device_of(node).code(entries::dequant_matmul, defines);
  return kernel_of({code}, [=, x = n.x.position(), w = n.w.position(),
                            bias = n.bias.position()](const sdk::Call& c) {
    code.launch(c, grid,
                args::BlockProduct{.w = c.in<args::u8>(w),
                                   .x = c.in(x),
                                   .bias = c.in(bias),
                                   .y = c.outputs[0],
                                   .n = out,
                                   .k = depth});
  });
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::dequantize_blocks, make_dequantize_blocks>(),
    sdk::row<sdk::op::dequant_rows, make_dequant_rows>(),
    sdk::row<sdk::op::dequant_matmul, make_dequant_matmul>(),
};

}  // namespace

std::span<const sdk::Row> dequant_rows() { return kRows; }

}  // namespace tenon::cuda
