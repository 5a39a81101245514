// SPDX-License-Identifier: Apache-2.0
// The mixers of Mamba and Mamba-2. Their models have a mixer in each layer; hybrid models have it in
// some layers, and attention in others or beside it.
#pragma once

#include "llm/arch/step.hpp"

namespace tenon::llm {

// x [batch, time, dim] becomes what the mixer `name` adds to the residual stream, plus `residual`. Its
// states are cache.conv and cache.scan.
Value mamba_mixer(Step& step, Value x, const std::string& name, const std::string& cache,
                  Value residual);
Value mamba2_mixer(Step& step, Value x, const std::string& name, const std::string& cache,
                   Value residual);

// Fills c.mamba with the sizes of Mamba-2 by the names that hybrid models share: mamba_n_heads,
// mamba_d_head, mamba_n_groups, mamba_d_state, mamba_d_conv, mamba_expand and the biases. c.dim and
// c.layers are known. inner: 0 for mamba_expand * hidden_size.
void read_mamba2(ConfigReader& r, ModelConfig& c, int64_t inner = 0);
// Which layers have a mixer, by names in layer_types or layers_block_type: "mamba" or
// "linear_attention", and "attention" or "full_attention". False if neither key is there.
bool read_mixer_layers(ConfigReader& r, ModelConfig& c);
// time_step_limit: the least and the greatest step.
void read_step_limit(ConfigReader& r, MambaConfig& m);
// Refuses heads and groups that do not divide what they belong to.
void check_mamba2(const ConfigReader& r, const MambaConfig& m, std::string_view heads_key,
                  std::string_view groups_key);

}  // namespace tenon::llm
