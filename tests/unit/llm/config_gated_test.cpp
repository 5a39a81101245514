// SPDX-License-Identifier: Apache-2.0
// config.json of families where layers differ by windows, heads, ropes or experts (AFMoE, MiMo-V2, Laguna,
// CWM, Hy3, Command A with experts, Mellum 2), and of some that are Llama by other names.
#include <doctest/doctest.h>

#include "config_rig.hpp"
#include "llm/arch/config.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

// Six layers of a model of this type.
Json of(const char* type, const Json& more) {
  const Json sizes{{"model_type", type},       {"architectures", nullptr},
                   {"hidden_size", 64},        {"num_hidden_layers", 6},
                   {"num_attention_heads", 8}, {"num_key_value_heads", 2},
                   {"intermediate_size", 112}, {"head_dim", 16}};
  return with(with(llama(), sizes), more);
}

std::string refused(const Json& j) { return refusal(j, TENON_UNSUPPORTED); }

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

using Flags = std::vector<bool>;

}  // namespace

TEST_SUITE("llm/config gated") {
  TEST_CASE("afmoe: windows and rope in the same layers, dense layers in front") {
    ModelConfig c = parse(of("afmoe", {{"num_experts", 8}}));
    CHECK(c.local == Flags{true, true, true, false, true, true});
    CHECK(c.no_rope == Flags{false, false, false, true, false, false});
    CHECK(c.sparse == Flags{false, true, true, true, true, true});
    CHECK(c.window == 1024);
    CHECK(c.moe.per_token == 6);
    CHECK(c.moe.shared_ffn == 2 * 1408);
    CHECK(c.moe.normalize);
    CHECK(c.embed_scale == 1);
    c = parse(of("afmoe", {{"global_attn_every_n_layers", 3},
                           {"mup_enabled", true},
                           {"num_dense_layers", 0},
                           {"route_scale", 2.5},
                           {"score_func", "sigmoid"},
                           {"load_balance_coeff", 0.001}}));
    CHECK(c.no_rope == Flags{false, false, true, false, false, true});
    CHECK(c.embed_scale == 8);
    CHECK(c.sparse[0]);
    CHECK(c.moe.scaling == 2.5);
    CHECK(has(refused(of("afmoe", {{"route_norm", false}})), "'route_norm'"));
    CHECK(has(refused(of("afmoe", {{"score_func", "softmax"}})), "'score_func'"));
    CHECK(has(refused(of("afmoe", {{"num_limited_groups", 2}})), "'num_limited_groups'"));
    CHECK(has(refused(of("afmoe", {{"sliding_window", nullptr}})), "'sliding_window'"));
  }
}
