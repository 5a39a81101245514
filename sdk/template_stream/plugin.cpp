// SPDX-License-Identifier: Apache-2.0
// Name, version, devices, and the table of kernels: all that the host sees. Memory, streams and
// events are in device.cpp.
#include <tenon/stream_plugin.hpp>

#include "device.hpp"
#include "kernels.hpp"
#include "template/kernels.hpp"

namespace tenon::sample_stream {

using sdk::kBlocks;
using sdk::kStrided;
using sdk::row;

// kStrided: reads strided operands as they are. A plugin for devices with streams needs a `copy`
// row with it, because the SDK cannot copy strided memory of a device. kBlocks: takes blocks.
static constexpr sdk::Row kRows[] = {
    row<op::copy, make_copy>(kStrided),

    // Nothing runs for these: they are views.
    row<op::narrow, sdk::view_narrow>(kStrided),
    row<op::transpose, sdk::view_transpose>(kStrided),
    row<op::expand, sdk::view_expand>(kStrided),
    row<op::reshape, sdk::view_reshape>(kStrided | kBlocks),
    row<op::view_as_real, sdk::view_as_real>(kStrided),
    row<op::view_as_complex, sdk::view_as_complex<make_copy>>(kStrided),

    // The loops of the host template. Replace them by makers of your own. The last argument names
    // the operand whose data may be bad.
    row<op::binary, launched<op::binary, sample::make_binary>>(kStrided),
    row<op::compare, launched<op::compare, sample::make_compare>>(kStrided),
    row<op::logical, launched<op::logical, sample::make_logical>>(kStrided),
    row<op::unary, launched<op::unary, sample::make_unary>>(kStrided),
    row<op::cast, launched<op::cast, sample::make_cast>>(kStrided | kBlocks),
    row<op::where, launched<op::where, sample::make_where>>(kStrided),
    row<op::matmul, launched<op::matmul, sample::make_matmul>>(kStrided),
    row<op::reduce, launched<op::reduce, sample::make_reduce>>(kStrided),
    row<op::lu, launched<op::lu, sample::make_lu, &op::lu::a>>(),
    row<op::triangular_solve, launched<op::triangular_solve, sample::make_triangular_solve>>(),
    row<op::cholesky, launched<op::cholesky, sample::make_cholesky, &op::cholesky::a>>(),
    row<op::sort, launched<op::sort, sample::make_sort>>(),
    row<op::cumsum, launched<op::cumsum, sample::make_cumsum>>(),
    row<op::random_bits, launched<op::random_bits, sample::make_random_bits>>(),
    row<op::gather, launched<op::gather, sample::make_gather, &op::gather::indices>>(kBlocks),
    row<op::scatter, launched<op::scatter, sample::make_scatter, &op::scatter::indices>>(kBlocks),
    row<op::scatter_add,
        launched<op::scatter_add, sample::make_scatter_add, &op::scatter_add::indices>>(),
    row<op::scatter_reduce,
        launched<op::scatter_reduce, sample::make_scatter_reduce, &op::scatter_reduce::indices>>(),
    row<op::dynamic_slice,
        launched<op::dynamic_slice, sample::make_dynamic_slice, &op::dynamic_slice::start>>(
        kStrided),
    row<op::dynamic_update_slice,
        launched<op::dynamic_update_slice, sample::make_dynamic_update_slice,
                 &op::dynamic_update_slice::start>>(),
    row<op::concat, launched<op::concat, sample::make_concat>>(),
    row<op::pad, launched<op::pad, sample::make_pad>>(kStrided),
    row<op::iota, launched<op::iota, sample::make_iota>>(),
    row<op::dequantize_blocks, launched<op::dequantize_blocks, sample::make_dequantize_blocks>>(),
};

// TENON_DEVICE_LANES: the steps of a program may overlap in several streams. The class orders
// devices where the app names none: these are the processor in disguise, so they come last.
static std::vector<sdk::DeviceSpec> devices(const sdk::Runtime&) {
  std::vector<sdk::DeviceSpec> list;
  for (const simulator::Properties& found : simulator::kDevices)
    list.push_back({.kind = "template_stream",
                    .name = found.name,
                    .memory_size = uint64_t{4} << 30,
                    .alignment = 128,
                    .flags = TENON_DEVICE_LANES,
                    .device_class = TENON_DEVICE_CLASS_CPU});
  return list;
}

static constexpr sdk::PluginSpec kSpec{
    .name = "template_stream",
    .version = "0.1.0",
    .vendor = "tenon",
    .rows = kRows,
    .devices = devices,
    .open = open_device,
    .streams = true,
    .withdraws = true,
};

}  // namespace tenon::sample_stream

TENON_STREAM_PLUGIN(tenon::sample_stream::kSpec, "template_stream", TENON_ISA_BASELINE)
