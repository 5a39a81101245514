// SPDX-License-Identifier: Apache-2.0
// Name, version, device, and the table of kernels: all that the host sees. The memory is in
// device.cpp.
#include <unistd.h>
#include <tenon/plugin.hpp>

#include "device.hpp"
#include "kernels.hpp"

namespace tenon::sample {

using sdk::kBlocks;
using sdk::kStrided;
using sdk::row;

// kStrided: reads strided operands as they are. kBlocks: takes blocks.
static constexpr sdk::Row kRows[] = {
    row<op::binary, make_binary>(kStrided),
    row<op::compare, make_compare>(kStrided),
    row<op::logical, make_logical>(kStrided),
    row<op::unary, make_unary>(kStrided),
    row<op::cast, make_cast>(kStrided | kBlocks),
    row<op::copy, sdk::strided_copy>(kStrided),
    row<op::where, make_where>(kStrided),
    row<op::matmul, make_matmul>(kStrided),
    row<op::reduce, make_reduce>(kStrided),
    row<op::lu, make_lu>(),
    row<op::triangular_solve, make_triangular_solve>(),
    row<op::cholesky, make_cholesky>(),
    row<op::sort, make_sort>(),
    row<op::cumsum, make_cumsum>(),
    row<op::random_bits, make_random_bits>(),
    row<op::gather, make_gather>(kBlocks),
    row<op::scatter, make_scatter>(kBlocks),
    row<op::scatter_add, make_scatter_add>(),
    row<op::scatter_reduce, make_scatter_reduce>(),
    row<op::dynamic_slice, make_dynamic_slice>(kStrided),
    row<op::dynamic_update_slice, make_dynamic_update_slice>(),
    row<op::narrow, sdk::view_narrow>(kStrided),
    row<op::concat, make_concat>(),
    row<op::transpose, sdk::view_transpose>(kStrided),
    row<op::expand, sdk::view_expand>(kStrided),
    row<op::reshape, sdk::view_reshape>(kStrided | kBlocks),
    row<op::view_as_real, sdk::view_as_real>(kStrided),
    row<op::view_as_complex, sdk::view_as_complex<sdk::strided_copy>>(kStrided),
    row<op::pad, make_pad>(kStrided),
    row<op::iota, make_iota>(),
    row<op::dequantize_blocks, make_dequantize_blocks>(),
};

static std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {{.kind = "template",
           .name = "scalar loops in double",
           .memory_size = pages * page,
           .import_alignment = 1}};  // scalar loops need only the alignment of an element
}

static constexpr sdk::PluginSpec kSpec{
    .name = "template",
    .version = "0.1.0",
    .vendor = "tenon",
    .rows = kRows,
    .devices = devices,
    .open = open_device,
};

}  // namespace tenon::sample

TENON_PLUGIN(tenon::sample::kSpec, "template", TENON_ISA_BASELINE)
