// SPDX-License-Identifier: Apache-2.0
// Tensors of all experts: which axis has the outputs, and names that stand for the same matrices.
#include "llm/arch/joint_experts.hpp"

#include <doctest/doctest.h>

#include "llm/arch/quantization.hpp"
#include "quantized_rig.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

using Entry = Safetensors::Entry;
const std::string kLayer = "model.layers.0.mlp.experts.";

Entry entry(const std::string& name, tenon_dtype dtype, std::vector<int64_t> dims) {
  Entry out;
  out.name = name, out.type = {dtype, std::move(dims)};
  return out;
}

Entry joint(const std::string& which, std::vector<int64_t> dims) {
  return entry(kLayer + which, f32, std::move(dims));
}

// Rows and columns of gate, up and down, for a hidden_size of 8.
std::vector<std::vector<int64_t>> dims_of(const std::vector<Entry>& tensors) {
  std::set<std::string, std::less<>> used;
  std::vector<std::vector<int64_t>> out;
  for (const JointPart& part : joint_parts(JointLayout::half_columns, 8, tensors, used))
    out.push_back({part.rows, part.columns});
  return out;
}

std::string refusal(const std::vector<Entry>& tensors, tenon_code code,
                    JointLayout layout = JointLayout::half_columns) {
  std::set<std::string, std::less<>> used;
  try {
    joint_parts(layout, 8, tensors, used);
  } catch (const Error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_SUITE("llm/joint experts") {
  TEST_CASE("layout: the tensor that is not square decides for both of a layer") {
    const std::vector<std::vector<int64_t>> half{{4, 8}, {4, 8}, {8, 4}};
    CHECK(dims_of({joint("gate_up_proj", {2, 8, 8}), joint("down_proj", {2, 8, 4})}) == half);
    CHECK(dims_of({joint("gate_up_proj", {2, 8, 8}), joint("down_proj", {2, 4, 8})}) == half);
    const std::vector<std::vector<int64_t>> whole{{8, 8}, {8, 8}, {8, 8}};
    CHECK(dims_of({joint("gate_up_proj", {2, 16, 8}), joint("down_proj", {2, 8, 8})}) == whole);
    CHECK(dims_of({joint("gate_up_proj", {2, 8, 16}), joint("down_proj", {2, 8, 8})}) == whole);
    // The layout, not only the dims: strides differ.
    std::vector<float> numbers(64);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    Entry square = joint("gate_up_proj", {1, 8, 8});
    square.data = std::as_bytes(std::span(numbers));
    for (const bool rows : {true, false}) {
      std::set<std::string, std::less<>> used;
      const std::vector<Entry> both{
          square,
          joint("down_proj", rows ? std::vector<int64_t>{1, 8, 4} : std::vector<int64_t>{1, 4, 8})};
      std::vector<float> first(8);
      const std::vector<JointPart> parts = joint_parts(JointLayout::half_columns, 8, both, used);
      parts.at(0).matrices(0, 1)->decode(0, 1, first.data());
      CHECK(first[1] == (rows ? 1 : 8));
    }
  }

  TEST_CASE("layout: tensors that disagree or leave it open are refused") {
    CHECK(refusal({joint("gate_up_proj", {2, 16, 8}), joint("down_proj", {2, 4, 8})},
                  TENON_SHAPE_MISMATCH) == "tensor '" + kLayer +
                                               "gate_up_proj' f32[2, 16, 8] beside '" + kLayer +
                                               "down_proj' f32[2, 4, 8]: expected hidden_size 8 "
                                               "once as the middle axis and once as the "
                                               "last one");
    CHECK(contains(refusal({joint("gate_up_proj", {2, 8, 8}), joint("down_proj", {2, 8, 8})},
                           TENON_SHAPE_MISMATCH),
                   "f32[2, 8, 8]: expected an axis other than hidden_size 8"));
    CHECK(contains(refusal({joint("gate_up_proj", {2, 8, 8})}, TENON_SHAPE_MISMATCH),
                   "beside no '" + kLayer + "down_proj': expected an axis other than"));
  }

  TEST_CASE("layout: Qwen3.5 has outputs as rows, whatever hidden_size is") {
    CHECK(joint_layout("qwen3_5_moe_text") == JointLayout::half_rows_by_name);
    std::vector<float> numbers(64);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    std::vector<Entry> both{joint("gate_up_proj", {1, 8, 8}), joint("down_proj", {1, 8, 4})};
    both[0].data = std::as_bytes(std::span(numbers));
    std::set<std::string, std::less<>> used;
    const std::vector<JointPart> parts = joint_parts(JointLayout::half_rows_by_name, 4, both, used);
    REQUIRE(parts.size() == 3);
    std::vector<float> first(8);
    for (const JointPart& part : parts) {
      if (part.which == "down_proj") continue;
      CHECK(part.rows == 4);
      CHECK(part.columns == 8);
      part.matrices(0, 1)->decode(1, 1, first.data());
      CHECK(first[1] == (part.which == "gate_proj" ? 9 : 41));
    }
    CHECK(contains(refusal({joint("gate_up_proj", {2, 7, 8})}, TENON_SHAPE_MISMATCH,
                           JointLayout::half_rows_by_name),
                   "an even number of outputs"));
  }

  TEST_CASE("names: two tensors for the same matrices are refused with both names") {
    const std::string blocks =
        refusal({joint("gate_up_proj", {2, 8, 8}),
                 entry(kLayer + "gate_up_proj_blocks", TENON_DTYPE_U8, {2, 8, 1, 16}),
                 entry(kLayer + "gate_up_proj_scales", TENON_DTYPE_U8, {2, 8, 1})},
                TENON_CORRUPT, JointLayout::turns);
    CHECK(contains(blocks, "'" + kLayer + "gate_up_proj_blocks' and '" + kLayer + "gate_up_proj'"));
    for (const char* other : {"down_proj.weight", "1.down_proj.weight"})
      CHECK(contains(refusal({joint("down_proj", {2, 4, 8}), entry(kLayer + other, f32, {8, 4})},
                             TENON_CORRUPT),
                     "'" + kLayer + other + "' and '" + kLayer + "down_proj'"));
    CHECK(
        dims_of({joint("down_proj", {2, 4, 8}), entry(kLayer + "2.down_proj.weight", f32, {8, 4})})
            .size() == 1);
  }

  TEST_CASE("quantized folders: tensors of all experts are refused, those of one expert are not") {
    for (const char* name : {"model.layers.0.mlp.experts.gate_up_proj", "a.experts.down_proj",
                             "a.block_sparse_moe.input_linear.weight"}) {
      Folder f;
      f.add("a.experts.0.down_proj.weight", TENON_DTYPE_F8E4M3, {2, 4},
            std::vector<uint8_t>(8, 0x38));
      f.add_floats("a.experts.0.down_proj.weight_scale", f32, {1}, {2});
      const Quantization q = read({{"quant_method", "fp8"}, {"weight_block_size", nullptr}});
      CHECK(f.refusal(q) == "accepted");
      f.add(name, TENON_DTYPE_F8E4M3, {2, 2, 4}, std::vector<uint8_t>(16, 0x38));
      CHECK(f.refusal(q) == f.path.string() +
                                ": quant_method 'fp8': expected a tensor for each matrix of each "
                                "expert, got those of all experts in '" +
                                name + "' f8e4m3[2, 2, 4]");
    }
  }
}
