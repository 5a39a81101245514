# SPDX-License-Identifier: Apache-2.0
"""Language models of Hugging Face folders against transformers: logits of random weights, read in one piece, token by token
and in pieces, for each architecture.

architectures.py LLM_PROBE [--device cpu] [--only NAME ...] [--tenon TENON]
With --tenon, folders that `tenon llm convert` knows are also read as GGUF files.
Exits with 77 (skip) where torch or transformers is absent."""
import argparse, json, os, pathlib, subprocess, sys, tempfile

try:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import numpy as np, torch, transformers as T
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

LIMIT, HALF_LIMIT = 1e-4, 1e-2  # with a cache of f16
CONVERTED = {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "phi3", "gpt2", "mamba",
             "deepseek_v2", "deepseek_v3", "gemma", "granite", "smollm3", "olmo2", "qwen2_moe", "ministral3", "cohere", "cohere2",
             "stablelm", "phi", "gpt_neox", "starcoder2", "nemotron", "arcee", "gpt_oss", "glm", "glm4", "glm4_moe", "olmo3",
             "olmoe", "granitemoe", "seed_oss", "ernie4_5", "exaone4", "hunyuan_v1_dense", "gemma3", "mistral3", "qwen2_5_vl",
             "qwen3_vl", "qwen3_vl_moe", "llava", "smolvlm", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5",
             "qwen3_5_moe", "lfm2", "lfm2_moe", "lfm2_vl", "mamba2", "granitemoehybrid", "falcon_h1", "nemotron_h", "jamba",
             "ernie4_5_moe", "hunyuan_v1_moe", "falcon", "mpt", "bloom", "llama4_text", "dots1", "apertus", "afmoe"}
# What GGUF has no key for.
NOT_CONVERTED = {"llama_dynamic", "qwen2_window", "llama_head_dim", "qwen3_moe", "phi3_partial_rotary", "gemma3",
                 "gpt2_scaled", "deepseek_v3_yarn", "smollm3_window", "qwen3_moe_top1", "stablelm_parallel", "phi_norms",
                 "gpt_oss_limits", "gpt_neox_sequential", "qwen3_next_some_dense", "lfm2_biases",
                 "mamba2_limits", "granitemoehybrid_attention", "falcon_h1_norm_first", "nemotron_h_groups",
                 "ernie4_5_moe_some", "falcon_heads", "falcon_alibi", "mpt_scaled", "llama4_chunks", "llama4_top2", "dots1_window",
                 "apertus_relu2", "afmoe_layers"}
VOCAB, LENGTH = 96, 40
SIZES = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, eos_token_id=1, bos_token_id=0, pad_token_id=0)
LATENT = SIZES | dict(num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8,
                      v_head_dim=12, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24,
                      first_k_dense_replace=1, n_shared_experts=2)
NEOX = {k: v for k, v in SIZES.items() if k != "num_key_value_heads"}
FALCON = dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=128,
              eos_token_id=1, bos_token_id=0)
LLAMA4 = SIZES | dict(num_hidden_layers=5, head_dim=16, intermediate_size=48, intermediate_size_mlp=96, num_local_experts=4,
                      num_experts_per_tok=1)
GROUPED = {k: v for k, v in LATENT.items() if k != "first_k_dense_replace"}
DENSE_LATENT = SIZES | {k: LATENT[k] for k in ("num_key_value_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
                                               "qk_rope_head_dim", "v_head_dim")}
GEMMA4 = dict(num_hidden_layers=6, head_dim=16, global_head_dim=32, sliding_window=8, layer_types=["sliding_attention",
              "full_attention"] * 3, num_kv_shared_layers=2, hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCAB)
GEMMA3N = dict(num_hidden_layers=5, head_dim=16, sliding_window=8, layer_types=["sliding_attention", "full_attention",
               "sliding_attention", "sliding_attention", "full_attention"], num_kv_shared_layers=2, hidden_size_per_layer_input=8,
               vocab_size_per_layer_input=VOCAB - 6, altup_num_inputs=3, laurel_rank=8)
NEO = dict(vocab_size=VOCAB, hidden_size=64, num_layers=3, num_heads=4, max_position_embeddings=128, eos_token_id=1,
           bos_token_id=0)
OPT = dict(vocab_size=VOCAB, hidden_size=64, ffn_dim=112, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=128,
           eos_token_id=1, bos_token_id=0, pad_token_id=0)
BIOGPT = {k: v for k, v in NEOX.items() if k != "pad_token_id"}
XGLM = dict(vocab_size=VOCAB, d_model=64, ffn_dim=112, num_layers=3, attention_heads=4, max_position_embeddings=128, eos_token_id=1,
            bos_token_id=0)
VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
QWEN_ROPE = dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3], mrope_interleaved=True)
QWEN_VISION = dict(depth=1, hidden_size=32, intermediate_size=48, num_heads=2, out_hidden_size=64, patch_size=14)
LINEAR = SIZES | dict(num_hidden_layers=5, head_dim=32, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2,
                      linear_num_value_heads=4)
EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=48)
MAMBA2 = dict(vocab_size=VOCAB, hidden_size=64, num_heads=8, head_dim=16, n_groups=2, state_size=16, num_hidden_layers=3, chunk_size=16,
              eos_token_id=1, bos_token_id=0, pad_token_id=0)
MIXER = dict(mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16, mamba_n_groups=2)
GRANITE = dict(embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=2.0)
FALCON_H1 = dict(mamba_n_heads=8, mamba_d_head=12, mamba_d_ssm=96, mamba_d_state=16, mamba_n_groups=2, mamba_norm_before_gate=False,
              lm_head_multiplier=0.5, embedding_multiplier=2.0, mlp_multipliers=[0.8, 0.7], key_multiplier=0.6,
              attention_out_multiplier=0.9, attention_in_multiplier=1.1, ssm_multipliers=[0.9, 1.2, 0.8, 1.1, 0.7],
              ssm_in_multiplier=1.25, ssm_out_multiplier=0.75, tie_word_embeddings=False)
NEMOTRON = dict(head_dim=16, mamba_num_heads=6, mamba_head_dim=16, ssm_state_size=16, n_groups=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)
SARVAM_YARN = dict(type="deepseek_yarn", factor=4.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=0.5)
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0],
                long_factor=[1.5, 1.7, 2.0, 3.0, 4.0, 6.0, 8.0, 9.0], original_max_position_embeddings=64)


def cases():
    """Name -> (config, options of the probe)."""
    full, sliding, linear, conv = "full_attention", "sliding_attention", "linear_attention", "conv"
    no_size = {k: v for k, v in SIZES.items() if k != "intermediate_size"}
    no_ffn = {k: v for k, v in LINEAR.items() if k != "intermediate_size"}
    return {
        "llama": (T.LlamaConfig(**SIZES), []),
        "llama_biases_tied": (T.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=True), []),
        "llama_head_dim": (T.LlamaConfig(**SIZES, head_dim=24, hidden_act="gelu"), []),
        "llama_linear": (T.LlamaConfig(**SIZES, rope_parameters=dict(rope_type="linear", rope_theta=5e5, factor=4.0)), []),
        "llama_dynamic": (T.LlamaConfig(**SIZES, rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, factor=4.0)), []),
        "llama3": (T.LlamaConfig(**SIZES, rope_parameters=LLAMA3), []),
        "llama_yarn": (T.LlamaConfig(**SIZES, rope_parameters=YARN), []),
        "mistral": (T.MistralConfig(**SIZES, sliding_window=9), []),
        "mistral_no_window": (T.MistralConfig(**SIZES, sliding_window=None, head_dim=32), []),
        "ministral": (T.MinistralConfig(**SIZES, head_dim=16, sliding_window=9, layer_types=[sliding, full, sliding]), []),
        "ministral_windows": (T.MinistralConfig(**SIZES, head_dim=24, sliding_window=7, tie_word_embeddings=True, hidden_act="gelu",
                                                rope_parameters=YARN), []),
        "qwen2": (T.Qwen2Config(**SIZES), []),
        "qwen2_window": (T.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=7, max_window_layers=1), []),
        "qwen3": (T.Qwen3Config(**SIZES, head_dim=16), []),
        "qwen3_yarn": (T.Qwen3Config(**SIZES, head_dim=16, rope_parameters=YARN), []),
        "qwen3_moe": (T.Qwen3MoeConfig(**SIZES, head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                                       norm_topk_prob=True, mlp_only_layers=[1]), []),
        "gemma2": (T.Gemma2Config(**SIZES, head_dim=16, sliding_window=8, query_pre_attn_scalar=24,
                                  attn_logit_softcapping=2.0, final_logit_softcapping=3.0), []),
        "gemma3": (T.Gemma3TextConfig(**SIZES, head_dim=16, sliding_window=8, query_pre_attn_scalar=24,
                                      layer_types=[sliding, full, sliding]), []),
        "phi3": (T.Phi3Config(**SIZES), []),
        # 64 positions or fewer take the short factors, a larger cache takes the long ones.
        "phi3_longrope_short": (T.Phi3Config(**SIZES, original_max_position_embeddings=64, rope_parameters=LONGROPE),
                                ["--context", "64"]),
        "phi3_partial_rotary": (T.Phi3Config(**SIZES, rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                                                           partial_rotary_factor=0.5)), []),
        "gpt2": (T.GPT2Config(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=128, eos_token_id=1,
                              bos_token_id=0), []),
        "gpt2_scaled": (T.GPT2Config(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=128, n_inner=80,
                                     eos_token_id=1, bos_token_id=0, scale_attn_by_inverse_layer_idx=True), []),
        "mixtral": (T.MixtralConfig(**SIZES, num_local_experts=4, sliding_window=11), []),
        "mixtral_top1": (T.MixtralConfig(**SIZES, num_local_experts=3, num_experts_per_tok=1, sliding_window=None), []),
        "qwen3_moe_top1": (T.Qwen3MoeConfig(**SIZES, head_dim=16, num_experts=4, num_experts_per_tok=1, moe_intermediate_size=32,
                                            norm_topk_prob=True), []),
        "deepseek_v2": (T.DeepseekV2Config(**LATENT, routed_scaling_factor=1.5), []),
        "deepseek_v2_groups": (T.DeepseekV2Config(**LATENT | dict(q_lora_rank=None), n_group=4, topk_group=2,
                                                  topk_method="group_limited_greedy", rope_parameters=YARN |
                                                  dict(mscale=0.7, mscale_all_dim=0.7)), []),
        "deepseek_v3": (T.DeepseekV3Config(**LATENT, n_group=4, topk_group=2), []),
        "deepseek_v3_yarn": (T.DeepseekV3Config(**LATENT, n_group=2, topk_group=1, rope_parameters=YARN |
                                                dict(mscale=1.0, mscale_all_dim=0.5)), []),
        "deepseek_v3_yarn_equal": (T.DeepseekV3Config(**LATENT, n_group=2, topk_group=1, rope_parameters=YARN |
                                                      dict(mscale=1.0, mscale_all_dim=1.0, beta_fast=16.0)), []),
        "gemma": (T.GemmaConfig(**SIZES, head_dim=16), []),
        "granite": (T.GraniteConfig(**SIZES, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2,
                                    logits_scaling=2.0), []),
        "smollm3": (T.SmolLM3Config(**SIZES | dict(num_hidden_layers=5)), []),
        "smollm3_window": (T.SmolLM3Config(**SIZES, no_rope_layers=[1, 0, 1], use_sliding_window=True, sliding_window=9,
                                           tie_word_embeddings=False), []),
        "olmo2": (T.Olmo2Config(**SIZES), []),
        "qwen2_moe": (T.Qwen2MoeConfig(**SIZES, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                                       shared_expert_intermediate_size=48), []),
        "ministral3": (T.Ministral3Config(**SIZES, head_dim=16, rope_parameters=YARN | dict(
            original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)), []),
        "cohere": (T.CohereConfig(**SIZES, logit_scale=0.5), []),
        "cohere_norms": (T.CohereConfig(**SIZES, use_qk_norm=True, attention_bias=True, tie_word_embeddings=False), []),
        "cohere2": (T.Cohere2Config(**SIZES | dict(num_hidden_layers=5), sliding_window=9, logit_scale=0.5), []),
        "stablelm": (T.StableLmConfig(**SIZES, use_qkv_bias=True), []),
        "stablelm_parallel": (T.StableLmConfig(**SIZES, use_parallel_residual=True, qk_layernorm=True), []),
        "phi": (T.PhiConfig(**SIZES), []),
        "phi_norms": (T.PhiConfig(**SIZES, qk_layernorm=True, rope_parameters=dict(
            rope_type="default", rope_theta=1e4, partial_rotary_factor=0.25)), []),
        "gpt_neox": (T.GPTNeoXConfig(**NEOX), []),
        "gpt_neox_sequential": (T.GPTNeoXConfig(**NEOX, use_parallel_residual=False, hidden_act="gelu_new"), []),
        "starcoder2": (T.Starcoder2Config(**SIZES, sliding_window=9), []),
        "starcoder2_no_window": (T.Starcoder2Config(**SIZES, use_bias=False, tie_word_embeddings=False), []),
        "nemotron": (T.NemotronConfig(**SIZES), []),
        "arcee": (T.ArceeConfig(**SIZES), []),
        "gpt_oss": (T.GptOssConfig(**SIZES, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=9,
                                   rope_parameters=YARN | dict(truncate=False)), []),
        "gpt_oss_limits": (T.GptOssConfig(**SIZES, head_dim=16, num_local_experts=4, num_experts_per_tok=1, attention_bias=False,
                                          swiglu_alpha=1.3, rope_parameters=dict(rope_type="default", rope_theta=1e4)), []),
        "gpt_oss_mxfp4": (T.GptOssConfig(**SIZES | dict(intermediate_size=96), head_dim=16, num_local_experts=4,
                                         num_experts_per_tok=2, rope_parameters=YARN | dict(truncate=False)), []),
        "granitemoe": (T.GraniteMoeConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, embedding_multiplier=3.0,
                                          residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=2.0), []),
        "glm": (T.GlmConfig(**SIZES, head_dim=16), []),
        "glm4": (T.Glm4Config(**SIZES, head_dim=16), []),
        "glm4_no_bias": (T.Glm4Config(**SIZES, head_dim=24, attention_bias=False), []),
        "glm4_moe": (T.Glm4MoeConfig(**SIZES, head_dim=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                                     use_qk_norm=True, attention_bias=True, routed_scaling_factor=1.5), []),
        "olmo3": (T.Olmo3Config(**SIZES, sliding_window=9, layer_types=[sliding, full, sliding], rope_parameters=dict(
            full_attention=YARN, sliding_attention=dict(rope_type="default", rope_theta=1e4))), []),
        "olmoe": (T.OlmoeConfig(**SIZES, num_experts=6, num_experts_per_tok=2), []),
        "exaone4": (T.Exaone4Config(**SIZES | dict(num_hidden_layers=5), sliding_window=9), []),
        "exaone4_no_window": (T.Exaone4Config(**SIZES, sliding_window=None, layer_types=[full] * 3), []),
        "seed_oss": (T.SeedOssConfig(**SIZES, head_dim=16), []),
        "ernie4_5": (T.Ernie4_5Config(**SIZES, head_dim=16), []),
        "ernie4_5_biases": (T.Ernie4_5Config(**SIZES, head_dim=16, use_bias=True, tie_word_embeddings=False), []),
        "hunyuan": (T.HunYuanDenseV1Config(**SIZES, head_dim=16), []),
        "hunyuan_alpha": (T.HunYuanDenseV1Config(**SIZES, head_dim=16, rope_parameters=dict(
            rope_type="dynamic", rope_theta=1e4, alpha=50.0, factor=1.0)), []),
        "ernie4_5_moe": (T.Ernie4_5_MoeConfig(**SIZES, moe_num_experts=6, moe_k=2, moe_intermediate_size=24), []),
        "ernie4_5_moe_some": (T.Ernie4_5_MoeConfig(**SIZES | dict(num_hidden_layers=5), moe_num_experts=4, moe_k=1,
                                                   moe_intermediate_size=24, moe_num_shared_experts=0, moe_layer_start_index=1,
                                                   moe_layer_end_index=2, moe_layer_interval=1, use_bias=True,
                                                   tie_word_embeddings=False), []),
        "hunyuan_moe": (T.HunYuanMoEV1Config(**SIZES, head_dim=16, num_experts=4, moe_topk=2), []),
        "hunyuan_moe_lists": (T.HunYuanMoEV1Config(**SIZES, head_dim=16, num_experts=4, moe_topk=[2] * 3, rope_parameters=dict(
            rope_type="dynamic", rope_theta=1e4, alpha=50.0, factor=1.0)), []),
        "falcon": (T.FalconConfig(**FALCON), []),
        "falcon_groups": (T.FalconConfig(**FALCON, new_decoder_architecture=True, num_kv_heads=2, tie_word_embeddings=False), []),
        "falcon_groups_norm": (T.FalconConfig(**FALCON, new_decoder_architecture=True, num_kv_heads=2,
                                              num_ln_in_parallel_attn=1, ffn_hidden_size=96), []),
        "falcon_heads": (T.FalconConfig(**FALCON, multi_query=False, bias=True, parallel_attn=False), []),
        "falcon_alibi": (T.FalconConfig(**FALCON, multi_query=False, alibi=True, parallel_attn=False, bias=True), []),
        "mpt": (T.MptConfig(vocab_size=VOCAB, d_model=64, n_heads=4, n_layers=3, max_seq_len=128), []),
        # transformers takes an alibi_bias_max of 8, whatever the file says.
        "mpt_clipped": (T.MptConfig(vocab_size=VOCAB, d_model=96, n_heads=6, n_layers=3, max_seq_len=128, attn_config=dict(
            clip_qkv=1.5)), []),
        "mpt_scaled": (T.MptConfig(vocab_size=VOCAB, d_model=64, n_heads=4, n_layers=3, max_seq_len=128, tie_word_embeddings=False,
                                   attn_config=dict(softmax_scale=0.4)), []),
        "bloom": (T.BloomConfig(vocab_size=VOCAB, hidden_size=64, n_layer=3, n_head=4), []),
        "bloom_heads": (T.BloomConfig(vocab_size=VOCAB, hidden_size=96, n_layer=3, n_head=6), []),
        "gptj": (T.GPTJConfig(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=128, rotary_dim=8, eos_token_id=1,
                              bos_token_id=0), []),
        "gptj_tied": (T.GPTJConfig(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=128, rotary_dim=16, n_inner=80,
                                   tie_word_embeddings=True, eos_token_id=1, bos_token_id=0), []),
        "codegen": (T.CodeGenConfig(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=8, n_positions=128, rotary_dim=4, eos_token_id=1,
                                    bos_token_id=0), []),
        "codegen_tied": (T.CodeGenConfig(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=128, rotary_dim=16, n_inner=80,
                                         tie_word_embeddings=True, eos_token_id=1, bos_token_id=0), []),
        "gpt_neo": (T.GPTNeoConfig(**NEO, attention_types=[[["global", "local"], 1], [["local"], 1]], window_size=9), []),
        "gpt_neo_global": (T.GPTNeoConfig(**NEO, attention_types=[[["global"], 3]], intermediate_size=80,
                                          tie_word_embeddings=False), []),
        "gpt_bigcode": (T.GPTBigCodeConfig(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=128, eos_token_id=1,
                                           bos_token_id=0), []),
        "gpt_bigcode_heads": (T.GPTBigCodeConfig(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=128, n_inner=80,
                                                 multi_query=False, scale_attn_weights=False, tie_word_embeddings=False,
                                                 activation_function="relu", eos_token_id=1, bos_token_id=0), []),
        "opt": (T.OPTConfig(**OPT), []),
        "opt_norms_behind": (T.OPTConfig(**OPT | dict(word_embed_proj_dim=48), do_layer_norm_before=False), []),
        "opt_bare": (T.OPTConfig(**OPT, enable_bias=False, layer_norm_elementwise_affine=False, _remove_final_layer_norm=True,
                                 activation_function="gelu", tie_word_embeddings=False), []),
        "biogpt": (T.BioGptConfig(**BIOGPT), []),
        "biogpt_unscaled": (T.BioGptConfig(**BIOGPT | dict(num_attention_heads=2), scale_embedding=False, hidden_act="relu",
                                           tie_word_embeddings=False), []),
        "xglm": (T.XGLMConfig(**XGLM), []),
        # The table of positions has a row of zeros, and a column of them.
        "xglm_odd": (T.XGLMConfig(**XGLM | dict(d_model=63, attention_heads=3, pad_token_id=9), scale_embedding=False,
                                  activation_function="relu", tie_word_embeddings=False), []),
        "persimmon": (T.PersimmonConfig(**NEOX), []),
        "persimmon_no_norms": (T.PersimmonConfig(**NEOX, qk_layernorm=False, hidden_act="gelu", tie_word_embeddings=True,
                                                 rope_parameters=YARN | dict(partial_rotary_factor=0.25)), []),
        "afmoe": (T.AfmoeConfig(**SIZES | dict(num_hidden_layers=5), head_dim=16, num_experts=6, num_experts_per_tok=2,
                                moe_intermediate_size=32, num_dense_layers=2, sliding_window=9, mup_enabled=True, route_scale=1.5), []),
        "afmoe_layers": (T.AfmoeConfig(**SIZES, head_dim=24, num_experts=4, num_experts_per_tok=1, moe_intermediate_size=32,
                                       num_shared_experts=1, num_dense_layers=0, sliding_window=7, layer_types=[full, sliding, full],
                                       attention_bias=True, tie_word_embeddings=True, hidden_act="gelu", rope_parameters=YARN), []),
        "cwm": (T.CwmConfig(**SIZES | dict(num_hidden_layers=5), head_dim=16, sliding_window=9), []),
        "cwm_layers": (T.CwmConfig(**SIZES, head_dim=24, sliding_window=7, layer_types=[sliding, sliding, full], mlp_bias=True,
                                   tie_word_embeddings=True, hidden_act="gelu", rope_parameters=YARN), []),
        "hy_v3": (T.HYV3Config(**SIZES, head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32), []),
        "hy_v3_biases": (T.HYV3Config(**SIZES, head_dim=24, num_experts=4, num_experts_per_tok=1, moe_intermediate_size=32,
                                      num_shared_experts=2, mlp_layer_types=["sparse", "dense", "sparse"], attention_bias=True,
                                      mlp_bias=True, tie_word_embeddings=True, router_scaling_factor=1.5, rope_parameters=YARN), []),
        "hy_v3_joint": (T.HYV3Config(**SIZES, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24), []),
        "cohere2_moe": (T.Cohere2MoeConfig(**SIZES | dict(num_hidden_layers=6), head_dim=16, sliding_window=9, logit_scale=0.5,
                                           num_experts=6, rms_norm_eps=1e-6, expert_selection_fn="sigmoid", norm_topk_prob=False,
                                           first_k_dense_replace=1, prefix_dense_intermediate_size=96), []),
        "cohere2_moe_shared": (T.Cohere2MoeConfig(**SIZES | dict(num_hidden_layers=4), head_dim=24, sliding_window=7, logit_scale=0.5,
                                                  num_experts=4, num_experts_per_tok=3, num_shared_experts=2, attention_bias=True,
                                                  mlp_layer_types=["sparse", "dense", "dense", "sparse"], tie_word_embeddings=False,
                                                  layer_types=[sliding, full, sliding, full], prefix_dense_sliding_window_pattern=2), []),
        "mimo_v2_flash": (T.MiMoV2FlashConfig(**SIZES, head_dim=24, v_head_dim=16, n_routed_experts=6, num_experts_per_tok=2,
                                              moe_intermediate_size=32, sliding_window=9), []),
        "mimo_v2_flash_groups": (T.MiMoV2FlashConfig(
            **SIZES | dict(num_attention_heads=8, num_key_value_heads=1), head_dim=24, v_head_dim=32, n_routed_experts=8, n_group=4,
            topk_group=2, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=False, routed_scaling_factor=1.5,
            attention_bias=True, attention_value_scale=None, sliding_window=7, layer_types=[sliding, full, sliding],
            mlp_layer_types=["sparse", "dense", "sparse"], tie_word_embeddings=True, rope_parameters=dict(
                full_attention=YARN | dict(partial_rotary_factor=0.5), sliding_attention=dict(rope_type="default", rope_theta=5e4))), []),
        "laguna": (T.LagunaConfig(**SIZES | dict(num_hidden_layers=4), head_dim=16, num_experts=6, num_experts_per_tok=2,
                                  moe_intermediate_size=32, shared_expert_intermediate_size=48, sliding_window=9,
                                  num_attention_heads_per_layer=[4, 6, 2, 4], layer_types=[full, sliding, sliding, full]), []),
        "laguna_elements": (T.LagunaConfig(
            **SIZES, head_dim=24, num_experts=4, num_experts_per_tok=1, moe_intermediate_size=24, shared_expert_intermediate_size=32,
            gating="per-element", sliding_window=7, layer_types=[sliding, full, sliding], attention_bias=True, moe_routed_scaling_factor=2.5,
            mlp_layer_types=["sparse", "dense", "sparse"], moe_router_logit_softcapping=0.7, tie_word_embeddings=True,
            rope_parameters=dict(full_attention=YARN | dict(partial_rotary_factor=0.5, attention_factor=1.3),
                                 sliding_attention=dict(rope_type="default", rope_theta=5e4))), []),
        "exaone": (T.ExaoneConfig(**SIZES, rope_parameters=LLAMA3), []),
        "exaone_biases": (T.ExaoneConfig(**SIZES, head_dim=24, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                         hidden_act="gelu"), []),
        "iquestcoder": (T.IQuestCoderConfig(**SIZES, head_dim=16), []),
        "iquestcoder_biases": (T.IQuestCoderConfig(**SIZES, head_dim=24, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                                   rope_parameters=YARN), []),
        "mellum": (T.MellumConfig(**SIZES, head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, sliding_window=9,
                                  layer_types=[sliding, full, sliding]), []),
        "mellum_layers": (T.MellumConfig(**SIZES, head_dim=24, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                                         sliding_window=7, layer_types=[full, sliding, sliding], norm_topk_prob=False,
                                         mlp_layer_types=["sparse", "dense", "sparse"], attention_bias=True, tie_word_embeddings=True,
                                         rope_parameters=dict(full_attention=YARN, sliding_attention=dict(
                                             rope_type="default", rope_theta=5e4))), []),
        "granite_swa": (T.GraniteSWAConfig(**SIZES | dict(num_hidden_layers=5), sliding_window=9, **GRANITE), []),
        # A rope of each kind with and without a window, and layers without rope.
        "granite_swa_thetas": (T.GraniteSWAConfig(
            **SIZES | dict(num_hidden_layers=6, hidden_size=72, num_attention_heads=3, num_key_value_heads=1), sliding_window=7,
            layer_types=[full, sliding, sliding, full, sliding, full], layer_rope_theta=[1e4, 500.0, 1e4, 0, 0, 2e5], attention_bias=True,
            mlp_bias=True, tie_word_embeddings=False, rms_norm_eps=1e-3, hidden_act="gelu", **GRANITE), []),
        "granite_swa_yarn": (T.GraniteSWAConfig(**SIZES, head_dim=24, sliding_window=40, layer_types=[sliding, full, sliding],
                                                layer_rope_theta=[5e4, 300, 1e4], attention_multiplier=0.3, rope_parameters=YARN), []),
        "granite_swa_llama3": (T.GraniteSWAConfig(**SIZES, sliding_window=1, layer_rope_theta=[0.0, 0, 4e3], attention_multiplier=0.2,
                                                  rope_parameters=LLAMA3), []),
        "granitemoe_swa": (T.GraniteMoeSWAConfig(**SIZES | dict(num_hidden_layers=5), **GRANITE, sliding_window=9, num_local_experts=4,
                                                 num_experts_per_tok=2), []),
        "granitemoe_swa_shared": (T.GraniteMoeSWAConfig(
            **SIZES, **GRANITE, sliding_window=7, num_local_experts=3, num_experts_per_tok=1, shared_intermediate_size=48, head_dim=24,
            layer_types=[sliding, full, sliding], layer_rope_theta=[1e4, 0, 300.0], attention_bias=True, tie_word_embeddings=True,
            hidden_act="gelu", rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.0)), []),
        "sarvam_moe": (T.SarvamMoEConfig(**SIZES, head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32), []),
        "sarvam_moe_biases": (T.SarvamMoEConfig(
            **SIZES, head_dim=24, num_experts=8, num_shared_experts=2, num_experts_per_tok=3, n_group=4, topk_group=2,
            moe_intermediate_size=24, use_qkv_bias=True, use_qk_norm=False, norm_topk_prob=False, first_k_dense_replace=2,
            routed_scaling_factor=1.5, tie_word_embeddings=True, rope_parameters=YARN | dict(partial_rotary_factor=0.5)), []),
        "sarvam_moe_old_names": (T.SarvamMoEConfig(**SIZES, head_dim=16, num_experts=4, num_shared_experts=2, num_experts_per_tok=2,
                                                   moe_intermediate_size=32, use_qkv_bias=True), []),
        "sarvam_moe_new_names": (T.SarvamMoEConfig(**SIZES, head_dim=16, n_routed_experts=4, num_experts_per_tok=1,
                                                   moe_intermediate_size=32, attention_bias=True), []),
        "sarvam_mla": (T.SarvamMLAConfig(**LATENT | dict(q_lora_rank=None)), []),
        "sarvam_mla_groups": (T.SarvamMLAConfig(**LATENT, n_group=4, topk_group=2, attention_bias=True, rope_interleave=False,
                                                norm_topk_prob=False, tie_word_embeddings=True), []),
        "sarvam_mla_old_names": (T.SarvamMLAConfig(**SIZES | dict(num_key_value_heads=4), kv_lora_rank=32, qk_nope_head_dim=16,
                                                   qk_rope_head_dim=8, v_head_dim=12, num_experts=8, num_experts_per_tok=3,
                                                   moe_intermediate_size=24, rope_scaling=SARVAM_YARN), []),
        "gemma4": (T.Gemma4TextConfig(**SIZES | GEMMA4, use_double_wide_mlp=True, final_logit_softcapping=3.0), []),
        "gemma4_moe": (T.Gemma4TextConfig(**SIZES | GEMMA4 | dict(hidden_size_per_layer_input=0, num_kv_shared_layers=0),
                                          attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True, num_experts=6,
                                          top_k_experts=2, moe_intermediate_size=32), []),
        "gemma3n": (T.Gemma3nTextConfig(**SIZES | GEMMA3N, activation_sparsity_pattern=[0.95, 0.5, 0.0, 0.0, 0.8]), []),
        "gemma3n_active": (T.Gemma3nTextConfig(**SIZES | GEMMA3N | dict(num_kv_shared_layers=0), altup_active_idx=1,
                                               altup_correct_scale=False, final_logit_softcapping=5.0), []),
        "vaultgemma": (T.VaultGemmaConfig(**SIZES, head_dim=16, sliding_window=8, query_pre_attn_scalar=24,
                                          attn_logit_softcapping=2.0, final_logit_softcapping=3.0), []),
        "minimax_m2": (T.MiniMaxM2Config(**SIZES, head_dim=16, num_local_experts=6, num_experts_per_tok=2, rope_parameters=dict(
            rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)), []),
        "phimoe": (T.PhimoeConfig(**SIZES, num_local_experts=4, attention_bias=True, lm_head_bias=True, router_jitter_noise=0.3,
                                  sliding_window=9), []),
        "phimoe_longrope_short": (T.PhimoeConfig(**SIZES, num_local_experts=4, router_jitter_noise=0.5, rope_parameters=LONGROPE | dict(
            short_mscale=1.2, long_mscale=1.3)), ["--context", "64"]),
        "glm4_moe_lite": (T.Glm4MoeLiteConfig(**GROUPED, n_group=4, topk_group=2, mlp_layer_types=["sparse", "dense", "sparse"]), []),
        "glm4_moe_lite_halves": (T.Glm4MoeLiteConfig(**GROUPED | dict(q_lora_rank=None), rope_interleave=False), []),
        "mistral4": (T.Mistral4Config(**LATENT, n_group=4, topk_group=2, rope_parameters=YARN | dict(
            original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)), []),
        "youtu": (T.YoutuConfig(**DENSE_LATENT), []),
        "minicpm3": (T.MiniCPM3Config(**DENSE_LATENT, scale_emb=3, scale_depth=1.1, dim_model_base=32), []),
        "minicpm3_plain": (T.MiniCPM3Config(**DENSE_LATENT | dict(v_head_dim=None, q_lora_rank=None), scale_depth=None,
                                            dim_model_base=None, tie_word_embeddings=False, attention_bias=True), []),
        "granitemoeshared": (T.GraniteMoeSharedConfig(**SIZES, **GRANITE, num_local_experts=4, num_experts_per_tok=2,
                                                      shared_intermediate_size=48), []),
        "granitemoeshared_none": (T.GraniteMoeSharedConfig(**SIZES, **GRANITE, num_local_experts=4, num_experts_per_tok=2), []),
        "hyperclovax": (T.HyperCLOVAXConfig(**SIZES, **GRANITE), []),
        "hyperclovax_no_norms": (T.HyperCLOVAXConfig(**SIZES, use_post_norm=False, logits_scaling=0.5), []),
        "falcon_mamba": (T.FalconMambaConfig(vocab_size=VOCAB, hidden_size=64, state_size=8, num_hidden_layers=3, mixer_rms_eps=1e-3,
                                             eos_token_id=1, bos_token_id=0), []),
        "olmo": (T.OlmoConfig(**SIZES, clip_qkv=1.0), []),
        "olmo_biases": (T.OlmoConfig(**SIZES, attention_bias=True, tie_word_embeddings=True), []),
        "flex_olmo": (T.FlexOlmoConfig(**SIZES, num_experts=6, num_experts_per_tok=2), []),
        "internlm3": (T.InternLM3Config(**SIZES, head_dim=16), []),
        "internlm3_biases": (T.InternLM3Config(**SIZES, head_dim=24, attention_bias=True, mlp_bias=True), []),
        "helium": (T.HeliumConfig(**SIZES, head_dim=16), []),
        "nanochat": (T.NanoChatConfig(**SIZES), []),
        "nanochat_biases": (T.NanoChatConfig(**SIZES, attention_bias=True, final_logit_softcapping=None, hidden_act="gelu"), []),
        "jais2": (T.Jais2Config(**SIZES, head_dim=16), []),
        "solar_open": (T.SolarOpenConfig(**no_size, head_dim=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                                         attention_bias=True, routed_scaling_factor=1.5), []),
        "exaone_moe": (T.ExaoneMoeConfig(**SIZES, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, n_group=4,
                                         topk_group=2, num_shared_experts=2, sliding_window=9, layer_types=[sliding, full, sliding],
                                         mlp_layer_types=["sparse", "dense", "sparse"]), []),
        "llama4": (T.Llama4TextConfig(**LLAMA4, interleave_moe_layer_step=2, rope_parameters=LLAMA3), []),
        "llama4_chunks": (T.Llama4TextConfig(**LLAMA4, attention_chunk_size=9, floor_scale=8, attn_scale=0.3,
                                             rope_parameters=LLAMA3 | dict(high_freq_factor=1.0)), []),
        "llama4_top2": (T.Llama4TextConfig(**LLAMA4 | dict(num_experts_per_tok=2), use_qk_norm=False, moe_layers=[1, 4],
                                           no_rope_layers=[1, 0, 1, 1, 0], attn_temperature_tuning=False,
                                           attention_chunk_size=7), []),
        "dots1": (T.Dots1Config(**SIZES, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=2,
                                first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5), []),
        "dots1_window": (T.Dots1Config(**SIZES, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32,
                                       n_shared_experts=1, n_group=4, topk_group=2, sliding_window=9, max_window_layers=1), []),
        "apertus": (T.ApertusConfig(**SIZES, rope_parameters=LLAMA3), []),
        "apertus_relu2": (T.ApertusConfig(**SIZES, hidden_act="relu2", attention_bias=True), []),
        # The text of models that read images, too.
        "gemma3_image": (T.Gemma3Config(text_config=SIZES | dict(head_dim=16, sliding_window=8, layer_types=[sliding, full, sliding]),
                                        vision_config=VISION, mm_tokens_per_image=4), []),
        "gemma4_image": (T.Gemma4Config(text_config=SIZES | GEMMA4, audio_config=None, vision_config=VISION | dict(
            num_key_value_heads=2, head_dim=16, position_embedding_size=16)), []),
        "mistral3_image": (T.Mistral3Config(text_config=SIZES | dict(head_dim=16, model_type="mistral", sliding_window=None),
                                            vision_config=VISION | dict(model_type="pixtral"), tie_word_embeddings=False), []),
        "qwen2_5_vl": (T.Qwen2_5_VLConfig(text_config=SIZES | dict(rope_parameters=dict(
            rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])), vision_config=QWEN_VISION), []),
        "qwen3_vl": (T.Qwen3VLConfig(text_config=SIZES | dict(head_dim=16, rope_parameters=QWEN_ROPE), vision_config=QWEN_VISION |
                                     dict(deepstack_visual_indexes=[0], num_position_embeddings=16)), []),
        "qwen3_vl_moe": (T.Qwen3VLMoeConfig(text_config=SIZES | dict(head_dim=16, num_local_experts=4, num_experts_per_tok=2,
                                                                     moe_intermediate_size=24),
                                            vision_config=QWEN_VISION | dict(deepstack_visual_indexes=[0],
                                                                             num_position_embeddings=16)), []),
        "llava": (T.LlavaConfig(text_config=SIZES | dict(model_type="llama"), vision_config=VISION | dict(
            model_type="clip_vision_model"), tie_word_embeddings=False), []),
        "llama4_image": (T.Llama4Config(text_config=LLAMA4 | dict(attention_chunk_size=9), vision_config=dict(
            hidden_size=32, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14,
            vision_output_dim=64, projector_input_dim=64, projector_output_dim=64)), []),
        "smolvlm": (T.SmolVLMConfig(text_config=SIZES | dict(model_type="llama"), vision_config=VISION), []),
        "qwen3_next": (T.Qwen3NextConfig(**LINEAR, **EXPERTS), []),
        # As many value heads as key heads, of other dims, and layers in another order.
        "qwen3_next_some_dense": (T.Qwen3NextConfig(**LINEAR | dict(linear_num_value_heads=2, linear_value_head_dim=24),
                                                    **EXPERTS | dict(num_experts_per_tok=6), mlp_only_layers=[1], layer_types=[full, linear, linear, full, linear],
                                                    attention_bias=True, rope_parameters=dict(
                                                        rope_type="default", rope_theta=1e5, partial_rotary_factor=0.5)), []),
        "qwen3_5": (T.Qwen3_5TextConfig(**LINEAR), []),
        "qwen3_5_tied": (T.Qwen3_5TextConfig(**LINEAR | dict(linear_num_value_heads=6, linear_conv_kernel_dim=3), tie_word_embeddings=True,
                                             layer_types=[linear, full, full, linear, linear]), []),
        "qwen3_5_moe": (T.Qwen3_5MoeTextConfig(**no_ffn, **EXPERTS), []),
        "qwen3_5_moe_joint": (T.Qwen3_5MoeConfig(text_config=no_ffn | EXPERTS, vision_config=QWEN_VISION |
                                                 dict(num_position_embeddings=16)), []),
        "qwen3_5_image": (T.Qwen3_5Config(text_config=LINEAR | dict(rope_parameters=QWEN_ROPE | dict(partial_rotary_factor=0.25)),
                                          vision_config=QWEN_VISION | dict(num_position_embeddings=16)), []),
        "qwen3_5_moe_image": (T.Qwen3_5MoeConfig(text_config=no_ffn | EXPERTS, vision_config=QWEN_VISION |
                                                 dict(num_position_embeddings=16)), []),
        "lfm2": (T.Lfm2Config(**SIZES | dict(num_hidden_layers=5), full_attn_idxs=[1, 4], block_multiple_of=16), []),
        "lfm2_biases": (T.Lfm2Config(**SIZES, layer_types=[conv, full, conv], conv_bias=True, conv_L_cache=4,
                                     block_auto_adjust_ff_dim=False, tie_word_embeddings=False), []),
        "lfm2_vl": (T.Lfm2VlConfig(text_config=SIZES | dict(model_type="lfm2", full_attn_idxs=[1], block_multiple_of=16), vision_config=dict(
            hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2), projector_hidden_size=48), []),
        "lfm2_moe": (T.Lfm2MoeConfig(**SIZES | dict(num_hidden_layers=5), layer_types=[conv, full, conv, conv, full], num_experts=6,
                                     num_experts_per_tok=2, moe_intermediate_size=32, num_dense_layers=2,
                                     routed_scaling_factor=1.5), []),
        "mamba2": (T.Mamba2Config(**MAMBA2), []),
        "mamba2_limits": (T.Mamba2Config(**MAMBA2 | dict(n_groups=1), time_step_limit=[0.3, 0.9], use_bias=True, use_conv_bias=False,
                                         tie_word_embeddings=True), []),
        "granitemoehybrid": (T.GraniteMoeHybridConfig(**SIZES, **MIXER, **GRANITE, layer_types=["mamba", "attention", "mamba"],
                                                      num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=80), []),
        "granitemoehybrid_dense": (T.GraniteMoeHybridConfig(
            **SIZES, **MIXER | dict(mamba_n_groups=1), **GRANITE, layer_types=["mamba", "mamba", "attention"], num_local_experts=0,
            shared_intermediate_size=112, position_embedding_type="rope", tie_word_embeddings=True), []),
        "granitemoehybrid_attention": (T.GraniteMoeHybridConfig(
            **SIZES, **MIXER, **GRANITE, layer_types=["attention"] * 3, num_local_experts=0, shared_intermediate_size=80,
            position_embedding_type="rope", attention_bias=True), []),
        "falcon_h1": (T.FalconH1Config(**SIZES, **FALCON_H1, head_dim=24, mamba_rms_norm=True), []),
        "falcon_h1_no_norm": (T.FalconH1Config(**SIZES, **FALCON_H1, mamba_rms_norm=False, mamba_conv_bias=False), []),
        "falcon_h1_norm_first": (T.FalconH1Config(**SIZES, **FALCON_H1 | dict(mamba_norm_before_gate=True), mamba_rms_norm=True,
                                                  mamba_proj_bias=True, projectors_bias=True, attention_bias=True), []),
        "nemotron_h": (T.NemotronHConfig(**SIZES, **NEMOTRON, layers_block_type=[linear, "mlp", full, linear, "mlp"]), []),
        "nemotron_h_moe": (T.NemotronHConfig(
            **SIZES, **NEMOTRON, layers_block_type=[linear, "moe", full, "moe"], n_routed_experts=6, num_experts_per_tok=2,
            moe_intermediate_size=48, moe_shared_expert_intermediate_size=80, routed_scaling_factor=1.5), []),
        "nemotron_h_groups": (T.NemotronHConfig(
            **SIZES, **NEMOTRON, layers_block_type=["mlp", "moe", linear, full], n_routed_experts=8, num_experts_per_tok=2, n_group=4,
            topk_group=2, moe_intermediate_size=48, moe_shared_expert_intermediate_size=80, mlp_bias=True), []),
        "bamba": (T.BambaConfig(**SIZES, **MIXER, attn_layer_indices=[1]), []),
        "jamba": (T.JambaConfig(**SIZES | dict(num_hidden_layers=4), attn_layer_period=3, attn_layer_offset=1, num_experts=4,
                                mamba_d_state=8), []),
        "jamba_dense": (T.JambaConfig(**SIZES, attn_layer_period=3, attn_layer_offset=2, num_experts=1, mamba_d_state=8,
                                      mamba_dt_rank=5, tie_word_embeddings=True), []),
        "mamba": (T.MambaConfig(vocab_size=VOCAB, hidden_size=64, state_size=8, num_hidden_layers=3, eos_token_id=1,
                                bos_token_id=0), []),
    }


def make(config, folder, spread=1.5):
    """A model whose weights are random everywhere, also where training begins with zeros and ones. spread: of sums of products
    of numbers that have 1; the more, the more a small error grows from layer to layer."""
    torch.manual_seed(1)
    kind = T.AutoModelForImageTextToText if hasattr(config, "vision_config") else T.AutoModelForCausalLM
    # With "eager", Falcon adds its biases twice.
    attention = "sdpa" if getattr(config, "alibi", False) else "eager"
    # transformers has no name for this class.
    from_config = T.Mistral4ForCausalLM._from_config if config.model_type == "mistral4" else kind.from_config
    model = from_config(config, dtype=torch.float32, attn_implementation=attention).eval()
    with torch.no_grad():
        for name, w in list(model.named_parameters()) + list(model.named_buffers()):
            if "inv_freq" in name or "mup_vector" in name or name.endswith(("embed_positions", "embed_positions.weights")) or w.dim() == 0 or not w.is_floating_point() or "A_log" in name:
                continue
            if w.dim() == 1:
                w += 0.2 * torch.randn_like(w)
            else:
                w.copy_(torch.randn_like(w) * (0.5 if "embed" in name or "wte" in name else spread * w.shape[-1] ** -0.5))
        if config.model_type in ("deepseek_v3", "glm4_moe", "glm4_moe_lite", "solar_open", "sarvam_moe", "sarvam_mla"):
            for layer in model.model.layers[1:]:
                if hasattr(layer.mlp, "gate"): layer.mlp.gate.e_score_correction_bias.uniform_(0, 0.2)
    model.save_pretrained(folder)
    return model


def to_mxfp4(model, folder):
    """Writes random matrices of experts as blocks of 32 numbers with a scale, and puts their numbers into the model."""
    values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])
    values = torch.cat([values, -values])
    random = torch.Generator().manual_seed(3)
    path = pathlib.Path(folder, "model.safetensors")
    tensors = load_file(path)
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8, generator=random)
        scales = torch.randint(121, 125, blocks.shape[:-1], dtype=torch.uint8, generator=random)
        numbers = torch.stack([values[(blocks & 15).long()], values[(blocks >> 4).long()]], -1).flatten(-2)
        numbers = numbers * torch.exp2(scales.float() - 127)[..., None]
        with torch.no_grad():
            model.get_parameter(name).copy_(numbers.reshape(experts, outputs, inputs).transpose(1, 2))
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    save_file(tensors, path)
    path = pathlib.Path(folder, "config.json")
    config = json.loads(path.read_text())
    config["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"])
    path.write_text(json.dumps(config))


def to_joint(folder):
    """Writes all experts of a layer as two tensors, rows of gate in front of those of up, as published files have them."""
    path = pathlib.Path(folder, "model.safetensors")
    tensors = load_file(path)
    for name in [n for n in tensors if n.endswith(".experts.0.down_proj.weight")]:
        experts = name.removesuffix(".0.down_proj.weight")
        count = len([n for n in tensors if n.startswith(experts + ".") and n.endswith("down_proj.weight")])
        one = [{part: tensors.pop(f"{experts}.{e}.{part}_proj.weight") for part in ("gate", "up", "down")} for e in range(count)]
        tensors[f"{experts}.gate_up_proj"] = torch.stack([torch.cat([e["gate"], e["up"]]) for e in one])
        tensors[f"{experts}.down_proj"] = torch.stack([e["down"] for e in one])
    save_file(tensors, path)


def old_rope(folder):
    """Writes the rope as files before transformers 5 have it."""
    path = pathlib.Path(folder, "config.json")
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {("type" if k == "rope_type" else k): v for k, v in rope.items()}
    path.write_text(json.dumps(config))


def old_sarvam(folder):
    """Writes the configuration as files of the model's authors have it."""
    path = pathlib.Path(folder, "config.json")
    config = json.loads(path.read_text())
    kind = "MLA" if config["model_type"] == "sarvam_mla" else "MoE"
    config |= dict(architectures=[f"Sarvam{kind}ForCausalLM"], num_experts=config.pop("n_routed_experts"),
                   num_shared_experts=config.pop("n_shared_experts"), moe_router_enable_expert_bias=True, output_dropout=0.0,
                   num_mtp_layers=config.pop("num_nextn_predict_layers"), use_qk_norm=True)
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    if kind == "MLA":
        width = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
        config |= dict(rope_scaling=SARVAM_YARN, q_head_dim=width, head_dim=config["kv_lora_rank"] + config["qk_rope_head_dim"])
        for key in ("qk_head_dim", "q_lora_rank", "n_group", "topk_group", "num_key_value_heads"):
            config.pop(key)
    else:
        config |= dict(use_qkv_bias=config.pop("attention_bias"), max_window_layers=config["num_hidden_layers"], use_bias=False)
    path.write_text(json.dumps(config))


def new_sarvam(folder):
    """Writes the tensors by the names that transformers has for modules."""
    path = pathlib.Path(folder, "model.safetensors")
    config = json.loads(pathlib.Path(folder, "config.json").read_text())
    keys = config["num_key_value_heads"] * config["head_dim"]
    tensors = {}
    for name, t in load_file(path).items():
        for old, new in ((".word_embeddings.", ".embed_tokens."), (".attention.", ".self_attn."), (".dense.", ".o_proj."),
                         (".query_layernorm.", ".q_norm."), (".key_layernorm.", ".k_norm."),
                         (".expert_bias", ".e_score_correction_bias")):
            name = name.replace(old, new)
        if ".query_key_value." in name:
            for part, rows in zip("qkv", t.split([len(t) - 2 * keys, keys, keys])):
                tensors[name.replace("query_key_value", f"{part}_proj")] = rows.contiguous()
        else:
            tensors[name] = t
    save_file(tensors, path)


def probe(binary, folder, ids, device, *mode, model=None):
    """Logits of a model, which is the folder if there is no other one."""
    out = pathlib.Path(folder, "logits")
    pathlib.Path(folder, "ids").write_text(" ".join(map(str, ids)))
    subprocess.run([binary, model or folder, f"{folder}/ids", out, device, *mode], check=True)
    return np.fromfile(out, np.float32).reshape(-1, VOCAB)


def gguf_error(name, config, options, binary, device, folder, tenon, ids, theirs):
    if not tenon or config.model_type not in CONVERTED or name in NOT_CONVERTED:
        return None
    file = f"{folder}/model.gguf"
    subprocess.run([tenon, "llm", "convert", folder, file, "--type", "F32"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    out = pathlib.Path(folder, "logits")
    subprocess.run([binary, file, f"{folder}/ids", out, device, "prefill", *options], check=True)
    return np.abs(np.fromfile(out, np.float32).reshape(-1, VOCAB) - theirs).max() / np.abs(theirs).max()


def compare(name, config, options, binary, device, folder, tenon):
    model = make(config, folder)
    if name in ("llama3", "llama_yarn"):
        old_rope(folder)
    if name.endswith("mxfp4"):
        to_mxfp4(model, folder)
    if name.endswith("joint"):
        to_joint(folder)
    if name.startswith("sarvam") and name.endswith("_names"):
        (old_sarvam if "_old_" in name else new_sarvam)(folder)
        model = T.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    ids = torch.randint(2, VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(2)).tolist()
    with torch.no_grad():
        # The whole Llama 4 fails without images.
        text = model.language_model if config.model_type == "llama4" else model
        theirs = text(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    scale = np.abs(theirs).max()
    prefill = probe(binary, folder, ids, device, "prefill", *options)
    decode = probe(binary, folder, ids, device, "decode", *options)
    pieces = probe(binary, folder, ids, device, "pieces", "7", *options)
    company = probe(binary, folder, ids, device, "company", *options)
    half = np.abs(probe(binary, folder, ids, device, "prefill", "--cache", "f16", *options) - theirs).max() / scale
    errors = [np.abs(ours - at).max() / scale for ours, at in
              [(prefill, theirs), (decode, theirs), (pieces, theirs[6::7]), (company, theirs)]]
    gguf = gguf_error(name, config, options, binary, device, folder, tenon, ids, theirs)
    if gguf is not None:
        errors.append(gguf)
    same = [np.array_equal(decode, company), np.array_equal(prefill, decode), np.array_equal(pieces, decode[6::7])]
    recurrent = config.model_type in ("mamba", "mamba2", "falcon_mamba")  # have no such cache
    good = max(errors) <= LIMIT and scale > 0.1 and (half <= LIMIT if recurrent else LIMIT / 10 < half <= HALF_LIMIT)
    print(f"{'ok ' if good else 'BAD'} {name}: error of prefill {errors[0]:.1e}, decode {errors[1]:.1e}, pieces "
          f"{errors[2]:.1e}, among others {errors[3]:.1e} of {scale:.2f}; bits equal to decode: among others {same[0]}, "
          f"prefill {same[1]}, pieces {same[2]}"
          f"; with a cache of f16 {half:.1e}" + (f"; of GGUF {gguf:.1e}" if gguf is not None else ""), flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--tenon")
    args = parser.parse_args()
    torch.set_num_threads(2)
    T.logging.set_verbosity_error()
    T.logging.disable_progress_bar()
    good = True
    for name, (config, options) in cases().items():
        if args.only and name not in args.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                good &= compare(name, config, options, args.probe, args.device, folder, args.tenon)
            except subprocess.CalledProcessError as failed:
                print(f"BAD {name}: {failed}", flush=True)
                good = False
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
