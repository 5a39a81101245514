// SPDX-License-Identifier: Apache-2.0
// A plugin for devices with streams whose `copy` row is the SDK's copy in host memory. It must not
// compile. With WITHOUT it has no such row, and compiles.
#include <tenon/stream_plugin.hpp>

namespace tenon::test {

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::transpose, sdk::view_transpose>(sdk::kStrided),
#ifndef WITHOUT
    sdk::row<sdk::op::copy, sdk::strided_copy>(sdk::kStrided),
#endif
};
constexpr sdk::PluginSpec kSpec{
    .name = "wrong", .version = "1.0", .vendor = "tests", .rows = kRows, .streams = true};

}  // namespace tenon::test

TENON_STREAM_PLUGIN(tenon::test::kSpec, "wrong", TENON_ISA_BASELINE)
