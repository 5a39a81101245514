// SPDX-License-Identifier: Apache-2.0
// Quantized weights of folders: numbers worked out by hand, which of them stay in blocks, keys and
// tensors that are refused.
#include "quantized_rig.hpp"

using namespace tenon;
using namespace tenon::llm;

TEST_SUITE("llm/quantized") {
  TEST_CASE("fp8: a scale per block, the last ones smaller") {
    Folder f;
    // 1, -2, 448 (the largest), 2^-9 (the smallest), 0.40625, -0, and zeros.
    std::vector<uint8_t> bytes(15);
    const std::vector<uint8_t> first{0x38, 0xC0, 0x7E, 0x01, 0x2D, 0x80};
    std::copy(first.begin(), first.end(), bytes.begin());
    bytes[14] = 0x38;
    f.add("a.weight", TENON_DTYPE_F8E4M3, {3, 5}, bytes);
    f.add_floats("a.weight_scale_inv", f32, {2, 3}, {1, 2, 3, 4, 5, 6});
    f.add_floats("b.weight", f32, {1}, {7});
    const Quantization q = read({{"quant_method", "fp8"},
                                 {"fmt", "e4m3"},
                                 {"activation_scheme", "dynamic"},
                                 {"weight_block_size", {2, 2}}});
    const TensorSource s = f.source(q);
    CHECK(s.types.size() == 2);
    CHECK(s.types.at("a.weight") == TensorType(f32, {3, 5}));
    const std::vector<float> w = f.decoded(s, "a.weight");
    CHECK(w ==
          std::vector<float>{1, -2, 896, 0.00390625f, 1.21875f, -0.f, 0, 0, 0, 0, 0, 0, 0, 0, 6});
    CHECK(f.decoded(s, "b.weight") == std::vector<float>{7});
    // Rounded once, to the dtype of activations.
    CHECK(f.source(q, {.dtype = bf16}).types.at("a.weight").dtype == bf16);
    CHECK(f.decoded(f.source(q, {.dtype = f16}), "a.weight") == w);

    f.add_floats("a.weight_scale_inv", f32, {3, 2}, {1, 2, 3, 4, 5, 6});
    CHECK(contains(f.refusal(q),
                   "'a.weight_scale_inv' f32[3, 2] of weight 'a.weight' f8e4m3[3, 5]: "
                   "expected [2, 3]"));
    f.add<int32_t>("a.weight_scale_inv", i32, {2, 3}, {1, 2, 3, 4, 5, 6});
    CHECK(contains(f.refusal(q), "'a.weight_scale_inv' i32[2, 3]: expected f32, f16 or bf16"));
    f.store.remove(TENON_SPACE_WEIGHT, "a.weight_scale_inv");
    CHECK(contains(f.refusal(q), "its scale 'a.weight_scale' or 'a.weight_scale_inv' is missing"));
    f.add_floats("a.weight_scale_inv", f32, {1}, {1});
    f.add<uint8_t>("a.weight", TENON_DTYPE_F8E4M3, {4}, {1, 2, 3, 4});
    CHECK(contains(f.refusal(q), "expected two axes"));
  }

  TEST_CASE("fp8: weights stay in blocks where each 128 numbers of a row share a scale") {
    Folder f;
    std::vector<uint8_t> codes(130 * 384);
    for (size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<uint8_t>(i * 37 % 254 / 2 + i % 2 * 128);
    f.add("a.weight", TENON_DTYPE_F8E4M3, {130, 384}, codes);
    const auto blocks_of = [&](const std::string& text) { return read(Json::parse(text)); };
    // The numbers of a source that keeps the blocks, and of one that decodes.
    const auto check = [&](const Quantization& q, tenon_dtype dtype) {
      TensorSource s = f.source(q);
      CHECK(s.types.at("a.weight") == TensorType(dtype, {130, 384}));
      const std::vector<float> kept = f.decoded(s, "a.weight");
      if (dtype != f32) s.types.at("a.weight") = s.plain("a.weight");
      CHECK(s.types.at("a.weight") == TensorType(f32, {130, 384}));
      CHECK(f.decoded(s, "a.weight") == kept);
      CHECK(std::ranges::count(kept, 0.0f) < 4000);
    };
    const auto scales = [](size_t count) {
      std::vector<float> out;
      for (size_t i = 0; i < count; ++i) out.push_back(0.1f * static_cast<float>(i + 1));
      return out;
    };
    const Quantization usual = blocks_of(R"({"quant_method": "fp8"})");
    f.add_floats("a.weight_scale_inv", f32, {2, 3}, scales(6));
    check(usual, TENON_DTYPE_F8E4M3_128);
    f.add_floats("a.weight_scale_inv", bf16, {2, 3}, scales(6));
    check(usual, TENON_DTYPE_F8E4M3_128);
    const auto sized = [&](const char* size) {
      return blocks_of(R"({"quant_method": "fp8", "weight_block_size": )" + std::string(size) +
                       "}");
    };
    f.add_floats("a.weight_scale_inv", f32, {44, 2}, scales(88));
    check(sized("[3, 256]"), TENON_DTYPE_F8E4M3_128);
    f.add_floats("a.weight_scale_inv", f32, {2, 6}, scales(12));
    check(sized("[128, 64]"), f32);
    f.add_floats("a.weight_scale_inv", f32, {2, 2}, scales(4));
    check(sized("[128, 192]"), f32);
    f.add_floats("a.weight_scale_inv", f32, {130, 1}, scales(130));
    check(blocks_of(R"({"quant_method": "fbgemm_fp8"})"), TENON_DTYPE_F8E4M3_128);
    f.add_floats("a.weight_scale_inv", f32, {}, {0.3f});
    check(sized("null"), TENON_DTYPE_F8E4M3_128);
    // Experts, too. Not rows that are no whole blocks.
    f.add("a.weight", TENON_DTYPE_F8E4M3, {390, 128}, codes);
    f.add("b.experts.0.weight", TENON_DTYPE_F8E4M3, {130, 384}, codes);
    f.add_floats("b.experts.0.weight_scale_inv", f32, {}, {0.3f});
    const TensorSource s = f.source(sized("null"), {.dtype = bf16});
    CHECK(s.types.at("a.weight").dtype == TENON_DTYPE_F8E4M3_128);
    CHECK(s.types.at("b.experts.0.weight").dtype == TENON_DTYPE_F8E4M3_128);
    f.add("a.weight", TENON_DTYPE_F8E4M3, {780, 64}, codes);
    CHECK(f.source(sized("null")).types.at("a.weight") == TensorType(f32, {780, 64}));
  }

  TEST_CASE("8-bit numbers: one scale, one per row; scales of activations are not used") {
    const Json args{{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}, {"symmetric", true}};
    const Quantization fp8 = read({{"quant_method", "fp8"}, {"weight_block_size", nullptr}}),
                       fbgemm =
                           read({{"quant_method", "fbgemm_fp8"}, {"activation_scale_ub", 9.0}}),
                       ints = read({{"quant_method", "compressed-tensors"},
                                    {"format", "int-quantized"},
                                    {"config_groups", {{"group_0", {{"weights", args}}}}}});
    Folder f;
    f.add<uint8_t>("a.weight", TENON_DTYPE_F8E4M3, {2, 2}, {0x38, 0x38, 0xB8, 0x7F});
    f.add_floats("a.weight_scale", bf16, {}, {0.5});
    f.add_floats("a.input_scale", f32, {}, {3});
    TensorSource s = f.source(fp8);
    CHECK(s.types.size() == 1);
    std::vector<float> w = f.decoded(s, "a.weight");
    CHECK(std::vector<float>(w.begin(), w.begin() + 3) == std::vector<float>{0.5, 0.5, -0.5});
    CHECK(std::isnan(w[3]));
    f.add<uint8_t>("a.weight", TENON_DTYPE_F8E4M3, {2, 2}, {0x38, 0x38, 0xB8, 0xB0});
    f.add_floats("a.weight_scale", f32, {2, 1}, {3, 4});
    CHECK(f.decoded(f.source(fbgemm), "a.weight") == std::vector<float>{3, 3, -4, -2});
    f.add<int8_t>("a.weight", TENON_DTYPE_I8, {2, 2}, {-128, 127, 1, 0});
    CHECK(f.decoded(f.source(ints), "a.weight") == std::vector<float>{-384, 381, 4, 0});
    // Neither of these has it as its form.
    CHECK(f.source(fp8).types.at("a.weight").dtype == TENON_DTYPE_I8);
  }

  TEST_CASE("gptq: symmetric weights stay in q4_0, others in q5_0, with the same numbers") {
    Folder f;
    add_gptq(f, std::vector<uint32_t>(8, 7));  // stored minus 1
    TensorSource s = f.source(read(kGptq));
    CHECK(s.types.at("a.weight") == TensorType(TENON_DTYPE_Q4_0, {kOut, kIn}));
    CHECK(f.decoded(s, "a.weight") == expected(std::vector<int>(8, 8)));
    // Graphs may ask for plain numbers.
    s.types.at("a.weight") = s.plain("a.weight");
    CHECK(s.types.at("a.weight") == TensorType(f32, {kOut, kIn}));
    CHECK(f.decoded(s, "a.weight") == expected(std::vector<int>(8, 8)));

    add_gptq(f, {0, 1, 5, 7, 9, 12, 14, 3});
    s = f.source(read(kGptq));
    CHECK(s.types.at("a.weight").dtype == TENON_DTYPE_Q5_0);
    CHECK(f.decoded(s, "a.weight") == expected({1, 2, 6, 8, 10, 13, 15, 4}));
    Json v2 = kGptq;
    v2["checkpoint_format"] = "gptq_v2";
    CHECK(f.decoded(f.source(read(v2)), "a.weight") == expected({0, 1, 5, 7, 9, 12, 14, 3}));
    // A zero point 0 is stored as -1, whose borrow the next one has.
    add_gptq(f, {15, 1, 5, 7, 9, 12, 14, 3});
    CHECK(f.decoded(f.source(read(kGptq)), "a.weight") == expected({0, 3, 6, 8, 10, 13, 15, 4}));

    // A scale that is no f16 cannot be that of a block.
    f.add_floats("a.scales", f32, {2, kOut}, std::vector<float>(2 * kOut, 0.1f));
    CHECK(f.source(read(kGptq)).types.at("a.weight") == TensorType(f32, {kOut, kIn}));
    add_gptq(f, std::vector<uint32_t>(8, 7));
    CHECK(f.source(read(kGptq), {.dtype = f16, .inputs_are_rows = true}).types.at("a.weight") ==
          TensorType(f16, {kIn, kOut}));
    const std::vector<float> w = expected(std::vector<int>(8, 8)),
                             turned = f.decoded(f.source(read(kGptq), {.inputs_are_rows = true}),
                                                "a.weight");
    for (size_t i = 0; i < w.size(); ++i) CHECK(turned[i % kIn * kOut + i / kIn] == w[i]);
  }

  TEST_CASE("gptq: 8 bits, one group, groups of 16") {
    Folder f;
    std::vector<uint32_t> words(8 * 4);  // [32 / 4, 4]
    for (uint32_t i = 0; i < 128; ++i) words[i / 16 * 4 + i % 4] |= 2 * i << 8 * (i / 4 % 4);
    f.add("a.qweight", i32, {8, 4}, words);
    f.add("a.qzeros", i32, {1, 1}, std::vector<uint32_t>{0x7F7F7F7F});
    f.add_floats("a.scales", f16, {1, 4}, {1, 2, 3, 4});
    Json eight{{"quant_method", "gptq"}, {"bits", 8}, {"group_size", -1}};
    const auto value = [](int64_t row, int64_t column, int zero) {
      return static_cast<float>((2 * (column * 4 + row) - zero) * (row + 1));
    };
    for (const bool symmetric : {true, false}) {
      if (!symmetric) f.add("a.qzeros", i32, {1, 1}, std::vector<uint32_t>{0x007F007F});
      const TensorSource s = f.source(read(eight));
      CHECK(s.types.at("a.weight").dtype == (symmetric ? TENON_DTYPE_Q8_0 : f32));
      const std::vector<float> w = f.decoded(s, "a.weight");
      for (int64_t r = 0; r < 4; ++r)
        for (int64_t c = 0; c < 32; ++c)
          CHECK(w[static_cast<size_t>(r * 32 + c)] ==
                value(r, c, symmetric || r % 2 == 0 ? 128 : 1));
    }
    eight["group_size"] = 16;
    f.add("a.qzeros", i32, {2, 1}, std::vector<uint32_t>{0x7F7F7F7F, 0x7F7F7F7F});
    f.add_floats("a.scales", f16, {2, 4}, {1, 2, 3, 4, 0, 0, 0, 1});
    const TensorSource s = f.source(read(eight));
    CHECK(s.types.at("a.weight").dtype == f32);
    const std::vector<float> w = f.decoded(s, "a.weight");
    CHECK(w[15] == value(0, 15, 128));
    CHECK(w[16] == 0);
    CHECK(w[3 * 32 + 16] == 2 * (16 * 4 + 3) - 128);
  }

  TEST_CASE("awq: the order of its words") {
    Folder f;
    std::vector<uint32_t> words(kIn);
    const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    const std::vector<int> zeros{0, 3, 15, 8, 7, 1, 2, 9};
    uint32_t zero = 0;
    for (int64_t c = 0; c < kIn; ++c)
      for (int i = 0; i < 8; ++i) words[static_cast<size_t>(c)] |= level(order[i], c) << 4 * i;
    for (int i = 0; i < 8; ++i)
      zero |= static_cast<uint32_t>(zeros[static_cast<size_t>(order[i])]) << 4 * i;
    add_gptq(f, std::vector<uint32_t>(8, 7));  // for its scales
    f.add("a.qweight", i32, {kIn, 1}, words);
    f.add("a.qzeros", i32, {2, 1}, std::vector<uint32_t>{zero, zero});
    const Json awq{{"quant_method", "awq"},
                   {"bits", 4},
                   {"group_size", 32},
                   {"version", "gemm"},
                   {"zero_point", true}};
    const TensorSource s = f.source(read(awq));
    CHECK(s.types.at("a.weight") == TensorType(TENON_DTYPE_Q5_0, {kOut, kIn}));
    CHECK(f.decoded(s, "a.weight") == expected(zeros));
  }

  TEST_CASE("packed weights: what does not fit is refused") {
    Folder f;
    add_gptq(f, std::vector<uint32_t>(8, 7));
    std::vector<int32_t> order(kIn);
    for (int32_t i = 0; i < kIn; ++i) order[static_cast<size_t>(i)] = i / 32;
    f.add("a.g_idx", i32, {kIn}, order);
    f.add_floats("a.bias", f16, {kOut}, std::vector<float>(kOut, 0));
    Json changed = kGptq;
    changed["desc_act"] = true;
    const TensorSource s = f.source(read(changed));
    CHECK(s.types.size() == 2);
    CHECK(s.unneeded == std::set<std::string, std::less<>>{"a.bias"});
    std::swap(order[0], order[40]);
    f.add("a.g_idx", i32, {kIn}, order);
    CHECK(
        contains(f.refusal(read(kGptq)), "'a.g_idx': the order of inputs was changed ('desc_act'"));
    f.add("a.g_idx", i32, {2}, std::vector<int32_t>{0, 0});
    CHECK(contains(f.refusal(read(kGptq)), "'a.g_idx' i32[2]: expected i32[64]"));
    f.store.remove(TENON_SPACE_WEIGHT, "a.g_idx");

    Json other = kGptq;
    other["group_size"] = 64;
    CHECK(contains(f.refusal(read(other)), "'a.qzeros' i32[2, 1]: expected [1, 1] by 'bits' and"));
    other["bits"] = 8;
    CHECK(contains(f.refusal(read(other)), "'a.qzeros' i32[2, 1]: expected [1, 2]"));
    f.add_floats("a.scales", f16, {kOut, 2}, std::vector<float>(2 * kOut, 1));
    CHECK(contains(f.refusal(read(kGptq)), "'a.scales' f16[8, 2]: expected [2, 8]"));
    f.add("a.scales", i32, {2, kOut}, std::vector<int32_t>(2 * kOut, 1));
    CHECK(contains(f.refusal(read(kGptq)), "'a.scales' i32[2, 8]: expected f32, f16 or bf16"));
    f.store.remove(TENON_SPACE_WEIGHT, "a.scales");
    CHECK(contains(f.refusal(read(kGptq)), "'a.scales' is missing"));
    add_gptq(f, std::vector<uint32_t>(8, 7));
    f.add_floats("a.qzeros", f32, {2, 1}, {1, 1});
    CHECK(contains(f.refusal(read(kGptq)), "'a.qzeros' f32[2, 1]: expected i32"));
    f.add("a.qweight", i32, {kIn / 8 * kOut}, std::vector<int32_t>(kIn / 8 * kOut));
    CHECK(contains(f.refusal(read(kGptq)), "'a.qweight' i32[64]: expected i32 with two axes"));
    f.add("a.qweight", i32, {0, kOut}, std::vector<int32_t>());
    CHECK(contains(f.refusal(read(kGptq)), "expected i32 with two axes"));
    f.add("a.qweight", i32, {8, 7}, std::vector<int32_t>(56));
    CHECK(contains(f.refusal(read(kGptq)), "expected a multiple of 8 outputs"));
    add_gptq(f, std::vector<uint32_t>(8, 7));
    f.add_floats("a.weight", f32, {1}, {1});
    CHECK(contains(f.refusal(read(kGptq)), "'a.weight' is beside 'a.qweight'"));
  }

  TEST_CASE("keys: other methods and layouts are refused by name") {
    for (const char* method : {"bitsandbytes", "hqq", "aqlm", "exl2", "marlin", "auto-round"})
      CHECK(contains(refused({{"quant_method", method}}), "'quant_method' is not supported"));
    for (const char* type : {"llama", "qwen3_moe", "granitemoe"}) {
      const Json config{{"model_type", type}, {"quantization_config", {{"quant_method", "mxfp4"}}}};
      ConfigReader r(config, "config.json");
      CHECK_THROWS_WITH_AS(
          read_quantization(r),
          ("config.json: quantization_config: 'quant_method' is not supported; expected 'fp8', "
           "'fbgemm_fp8', 'compressed-tensors', 'gptq' or 'awq' for model_type '" +
           std::string(type) + "', or 'mxfp4' for 'gpt_oss', got \"mxfp4\"")
              .c_str(),
          Error);
    }
    const Json oss{{"model_type", "gpt_oss"}, {"quantization_config", {{"quant_method", "mxfp4"}}}};
    ConfigReader r(oss, "config.json");
    CHECK(read_quantization(r).layout == Quantization::Layout::mxfp4);
    const auto with = [](const char* method, const char* key, const Json& value) {
      return refused({{"quant_method", method}, {key, value}});
    };
    CHECK(contains(with("fp8", "fmt", "e5m2"), "quantization_config: 'fmt' is not supported"));
    CHECK(
        contains(with("fp8", "weight_block_size", {128}), "'weight_block_size' is not supported"));
    CHECK(contains(with("fp8", "weight_block_size", {0, 128}), "'weight_block_size'"));
    CHECK(contains(with("fp8", "expert_dtype", "fp4"), "'expert_dtype'"));
    CHECK(contains(with("fp8", "rotation", "hadamard"), "'rotation' is a key that is not known"));
    CHECK(contains(refused({{"quant_method", "mxfp4"}, {"rotation", "x"}}, "gpt_oss"),
                   "'rotation' is a key that is not known"));
    CHECK(contains(with("gptq", "bits", 3), "'bits' is not supported; expected 4 or 8"));
    CHECK(contains(with("gptq", "group_size", 0), "'group_size'"));
    CHECK(contains(with("gptq", "checkpoint_format", "marlin"), "'checkpoint_format'"));
    CHECK(contains(with("gptq", "is_marlin_format", true), "'is_marlin_format'"));
    CHECK(contains(with("gptq", "dynamic", {{"a", 1}}), "'dynamic' is a key that is not known"));
    CHECK(contains(with("awq", "version", "gemv"), "'version'"));
    CHECK(contains(with("awq", "backend", "llm-awq"), "'backend'"));
    CHECK(contains(with("awq", "zero_point", false), "'zero_point'"));
    CHECK(contains(with("awq", "w_bit", 8), "'w_bit'"));
    CHECK(contains(with("compressed-tensors", "format", "marlin-24"),
                   "'format' is not supported; expected 'float-quantized', "));
    CHECK(contains(with("compressed-tensors", "format", "pack-quantized"),
                   "'config_groups' is not supported; expected an object with at least one group"));
    CHECK(contains(refused({{"quant_method", "compressed-tensors"},
                            {"format", "float-quantized"},
                            {"config_groups", {{"group_0", {{"weights", {{"num_bits", 8}}}}}}},
                            {"kv_cache_scheme", {{"num_bits", 8}}}}),
                   "'kv_cache_scheme'"));
    CHECK(contains(refused({{"quant_method", "compressed-tensors"},
                            {"format", "float-quantized"},
                            {"config_groups",
                             {{"group_0", {{"weights", {{"num_bits", 4}, {"type", "float"}}}}}}}}),
                   "weights: 'num_bits' is not supported; expected 8"));
    const auto typed = [](const char* format, const char* type) {
      return refused({{"quant_method", "compressed-tensors"},
                      {"format", format},
                      {"config_groups", {{"group_0", {{"weights", {{"type", type}}}}}}}});
    };
    CHECK(typed("int-quantized", "int") == "accepted");
    CHECK(typed("naive-quantized", "int") == "accepted");
    CHECK(
        contains(typed("float-quantized", "int"), "'format' is not supported; expected the type"));
    CHECK(contains(with("gptq", "data_type", "nv_fp"), "'data_type'"));
  }
}
