// SPDX-License-Identifier: Apache-2.0
// dequantize_blocks dequant_rows: elements of blocks of quantized weights.
#include "dequant.hpp"

#include <algorithm>

#include "index.hpp"
#include "lines.hpp"

namespace tenon::cuda {

using sdk::Refusal;

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
    case TENON_DTYPE_F8E4M3_128:
      return 16;
    default:
      return 8;
  }
}

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

namespace {

constexpr int64_t kThreads = 256;

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

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::dequantize_blocks, make_dequantize_blocks>(),
    sdk::row<sdk::op::dequant_rows, make_dequant_rows>(),
    sdk::row<sdk::op::dequant_matmul, make_dequant_matmul>(),
    sdk::row<sdk::op::grouped_dequant_matmul, make_grouped_dequant_matmul>(),
};

}  // namespace

std::span<const sdk::Row> dequant_rows() { return kRows; }

}  // namespace tenon::cuda
