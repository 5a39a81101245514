// SPDX-License-Identifier: Apache-2.0
// compressed-tensors: packed weights and their groups.
#include "quantized_rig.hpp"

using namespace tenon;
using namespace tenon::llm;

TEST_SUITE("llm/compressed") {
  TEST_CASE("pack-quantized: 4 and 8 bits, groups and rows, a last word that is not full") {
    Folder f;
    const Json four{{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}};
    // (column + 3 * row) % 16 - 8, times (1 + row) / 8 and twice that.
    std::vector<uint32_t> words(kOut * kIn / 8);
    std::vector<float> scales;
    for (int64_t r = 0; r < kOut; ++r) {
      for (int64_t c = 0; c < kIn; ++c)
        words[static_cast<size_t>(r * kIn / 8 + c / 8)] |= level(r, c) << 4 * (c % 8);
      for (const float part : {8.f, 4.f}) scales.push_back(static_cast<float>(1 + r) / part);
    }
    f.add("a.weight_packed", i32, {kOut, kIn / 8}, words);
    f.add_floats("a.weight_scale", bf16, {kOut, 2}, scales);
    f.add("a.weight_shape", TENON_DTYPE_I64, {2}, std::vector<int64_t>{kOut, kIn});
    TensorSource s = f.source(read(packed_groups(four)));
    CHECK(s.types.size() == 1);
    CHECK(s.types.at("a.weight") == TensorType(TENON_DTYPE_Q4_0, {kOut, kIn}));
    CHECK(f.decoded(s, "a.weight") == expected(std::vector<int>(8, 8)));
    f.add("a.weight_g_idx", i32, {kIn}, std::vector<int32_t>(kIn, 1));
    CHECK(contains(f.refusal(read(packed_groups(four))), "the order of inputs was changed"));
    f.store.remove(TENON_SPACE_WEIGHT, "a.weight_g_idx");
    f.add("a.weight_zero_point", i32, {1, 2}, std::vector<int32_t>{0, 0});
    CHECK(contains(f.refusal(read(packed_groups(four))),
                   "'a.weight_zero_point' i32[1, 2]: expected symmetric weights"));
    f.store.remove(TENON_SPACE_WEIGHT, "a.weight_zero_point");
    f.add("a.weight_shape", TENON_DTYPE_I64, {2}, std::vector<int64_t>{kOut, 2 * kIn});
    CHECK(contains(f.refusal(read(packed_groups(four))), "'a.weight_shape' says [8, 128]"));
    f.add_floats("a.weight_shape", f32, {2}, {1, 2});
    CHECK(contains(f.refusal(read(packed_groups(four))), "'a.weight_shape' f32[2]: expected i64"));
    f.store.remove(TENON_SPACE_WEIGHT, "a.weight_scale");
    CHECK(contains(f.refusal(read(packed_groups(four))),
                   "'a.weight_scale' is missing beside 'a.weight_packed'"));

    // 5 columns of 8 bits: -128, 127, 0, 1, -1 and the same plus 1.
    const Json eight{{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
    f.add("a.weight_packed", i32, {2, 2},
          std::vector<uint32_t>{0x8180FF00, 0x7F, 0x82810001, 0x80});
    f.add_floats("a.weight_scale", f32, {2, 1}, {2, 0.5});
    f.add("a.weight_shape", TENON_DTYPE_I64, {2}, std::vector<int64_t>{2, 5});
    const std::vector<float> w{-256, 254, 0, 2, -2, -63.5, -64, 0.5, 1, 0};
    s = f.source(read(packed_groups(eight)));
    CHECK(s.types.at("a.weight") == TensorType(f32, {2, 5}));
    CHECK(f.decoded(s, "a.weight") == w);
    f.add_floats("a.weight_scale", f32, {2}, {2, 0.5});
    CHECK(f.decoded(f.source(read(packed_groups(eight))), "a.weight") == w);
    f.add_floats("a.weight_scale", f32, {1}, {2});
    CHECK(contains(f.refusal(read(packed_groups(eight))),
                   "'a.weight_scale' f32[1]: expected [2, 1]"));
  }

  TEST_CASE("compressed-tensors: groups have any names, and all must agree") {
    const Json ints{{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
    const auto of = [](const Json& groups) {
      return Json{{"quant_method", "compressed-tensors"},
                  {"format", "int-quantized"},
                  {"config_groups", groups}};
    };
    CHECK(read(of({{"W8A8", {{"weights", ints}}}})).integers);
    CHECK(refused(of({{"group_1", {{"weights", ints}}}})) == "accepted");
    Json asymmetric = ints;
    asymmetric["symmetric"] = false;
    CHECK(contains(refused(of({{"group_1", {{"weights", asymmetric}}}})),
                   "config_groups: group_1: weights: 'symmetric' is not supported; expected true"));
    CHECK(contains(refused(packed_groups(asymmetric)), "weights: 'symmetric' is not supported"));
    CHECK(contains(refused(of(Json::object())), "expected an object with at least one group"));
    Json four = ints;
    four["num_bits"] = 4;
    CHECK(contains(
        refused({{"quant_method", "compressed-tensors"},
                 {"format", "pack-quantized"},
                 {"config_groups", {{"a", {{"weights", ints}}}, {"b", {{"weights", four}}}}}}),
        "'b' is not supported; expected type, num_bits, strategy and dims as in 'a'"));
    const auto with = [&](const char* key, const Json& value) {
      Json changed = ints;
      changed[key] = value;
      return refused(packed_groups(changed));
    };
    CHECK(contains(with("num_bits", 3), "'num_bits' is not supported; expected 4 or 8"));
    CHECK(contains(with("type", "float"), "'type' is not supported; expected 'int'"));
    CHECK(contains(with("strategy", "tensor"), "'strategy'"));
    CHECK(contains(with("strategy", "group"), "'group_size' is not supported; expected 1 to"));
    CHECK(contains(with("group_size", 32), "'group_size' is not supported; expected null or -1"));
    CHECK(contains(with("actorder", "group"), "'actorder'"));
    CHECK(contains(with("actorder", true), "'actorder'"));
    CHECK(with("actorder", "weight") == "accepted");
  }
}
