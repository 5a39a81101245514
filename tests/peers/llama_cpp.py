# SPDX-License-Identifier: Apache-2.0
"""GGUF files of `tenon llm convert`, and of llama.cpp's own converter, against llama.cpp: logits behind each token of a prompt,
and greedy answers, of small models with random weights.

llama_cpp.py LLM_PROBE TENON LLAMA_SOURCE LLAMA_LIBRARIES [--only NAME ...]
LLAMA_SOURCE is a source tree of llama.cpp, for its headers and its converter; LLAMA_LIBRARIES the folder of its libllama.so and
of llama-quantize.
Exits with 77 (skip) where torch or transformers is absent."""
import argparse, json, pathlib, subprocess, sys, tempfile

import architectures as A  # skips, too
import llm_run
import numpy as np, torch, transformers as T

LIMIT, MORE = 1e-3, 40  # of the mean squared error over the mean square of logits; greedy tokens
# llama.cpp has no window in models of `llama` and `phi3`, and no scale of attention of its own in Gemma's.
# It chooses groups of experts by their two best, which DeepSeek-V2 does not, and reads no beta_fast.
# It rounds the limits of gpt-oss' ramp of yarn. It has a window in models of `exaone4` with 64 layers only, and none in those of
# `starcoder2`; norms of heads in models of `command-r` with 64 layers only; and no biases of these and of `ernie4_5`.
SKIPPED = {"mistral", "mixtral", "gemma2", "gemma3", "deepseek_v2_groups", "deepseek_v3_yarn_equal", "gemma3_image", "gpt_oss",
           "gpt_oss_mxfp4", "exaone4", "starcoder2", "starcoder2_no_window", "cohere_norms", "ernie4_5_biases",
           "olmoe"} | A.NOT_CONVERTED
WIDE = A.SIZES | dict(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2)
TYPES = ["F16", "BF16", "Q8_0", "Q6_K", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "Q4_K_M", "MXFP4"]
# Those that llama-quantize makes of a file in F32.
QUANTIZED = ["Q2_K", "Q3_K_M", "Q5_K_M", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0"]


def cases():
    """Name -> (configuration, type of the file)."""
    out = {name: (config, "F32") for name, (config, options) in A.cases().items()
           if config.model_type in A.CONVERTED and name not in SKIPPED and not options}
    full, sliding = "full_attention", "sliding_attention"
    out |= {
        "phi3_longrope_long": (A.cases()["phi3_longrope_short"][0], "F32"),  # the context is longer than the original one
        "llama_head_dim": (T.LlamaConfig(**A.SIZES, head_dim=24), "F32"),
        "mixtral_no_window": (T.MixtralConfig(**A.SIZES, num_local_experts=4, sliding_window=None), "F32"),
        "qwen3_moe_all_sparse": (T.Qwen3MoeConfig(**A.SIZES, head_dim=16, num_experts=6, num_experts_per_tok=2,
                                                  moe_intermediate_size=32, norm_topk_prob=True), "F32"),
        "gemma2_scale_of_head": (T.Gemma2Config(**A.SIZES, head_dim=16, sliding_window=8, query_pre_attn_scalar=16,
                                                attn_logit_softcapping=2.0, final_logit_softcapping=3.0), "F32"),
        "gemma3_every_third": (T.Gemma3TextConfig(**A.SIZES, head_dim=16, sliding_window=8, query_pre_attn_scalar=16,
                                                  layer_types=[sliding, sliding, full]), "F32"),
    }
    out |= {
        "gpt_oss_plain_rope": (T.GptOssConfig(**A.SIZES, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=9,
                                              rope_parameters=dict(rope_type="default", rope_theta=1e4)), "F32"),
        "gpt_oss_MXFP4": (T.GptOssConfig(**WIDE, head_dim=64, num_local_experts=4, num_experts_per_tok=2, rope_parameters=dict(
            rope_type="default", rope_theta=1e4)), "MXFP4"),
        "starcoder2_all_keys": (T.Starcoder2Config(**A.SIZES, sliding_window=None), "F32"),
        "olmoe_all_heads": (T.OlmoeConfig(**A.SIZES | dict(num_key_value_heads=4), num_experts=6, num_experts_per_tok=2), "F32"),
    }
    latent = WIDE | A.LATENT | dict(hidden_size=256, intermediate_size=512, kv_lora_rank=256, moe_intermediate_size=256)
    out |= {
        # llama.cpp tells models without q_lora_rank by their number of layers.
        "deepseek_v2_lite": (T.DeepseekV2Config(**A.LATENT | dict(q_lora_rank=None, num_hidden_layers=27)), "F32"),
        "deepseek_v2_yarn": (T.DeepseekV2Config(**A.LATENT, rope_parameters=A.YARN | dict(mscale=0.707, mscale_all_dim=0.707)),
                             "F32"),
        "deepseek_v3_yarn": (T.DeepseekV3Config(**A.LATENT, n_group=4, topk_group=2, rope_parameters=A.YARN |
                                                dict(mscale=1.0, mscale_all_dim=1.0)), "F32"),
        "gpt2_inner": (T.GPT2Config(vocab_size=A.VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=128, n_inner=96,
                                    eos_token_id=1, bos_token_id=0), "F32"),
        "mamba_untied": (T.MambaConfig(vocab_size=A.VOCAB, hidden_size=64, state_size=16, num_hidden_layers=3, eos_token_id=1,
                                       bos_token_id=0, time_step_rank=12, tie_word_embeddings=False), "F32"),
    }
    for kind in ("F16", "Q8_0", "Q4_K_M"):
        out[f"gpt2_{kind}"] = (T.GPT2Config(vocab_size=A.VOCAB, n_embd=256, n_layer=3, n_head=4, n_positions=128, eos_token_id=1,
                                            bos_token_id=0), kind)
        out[f"mamba_{kind}"] = (T.MambaConfig(vocab_size=A.VOCAB, hidden_size=256, num_hidden_layers=3, eos_token_id=1,
                                              bos_token_id=0), kind)
        out[f"deepseek_v3_{kind}"] = (T.DeepseekV3Config(**latent, n_group=4, topk_group=2), kind)
    for kind in TYPES + QUANTIZED:
        out[f"llama_{kind}"] = (T.LlamaConfig(**WIDE), kind)
    for kind in ("Q8_0", "Q4_K_M", "MXFP4", "Q2_K", "Q5_K_M", "IQ4_XS"):
        out[f"mixtral_{kind}"] = (T.MixtralConfig(**WIDE, num_local_experts=8, sliding_window=None), kind)
    out["qwen3_Q4_K_M"] = (T.Qwen3Config(**WIDE, head_dim=128, tie_word_embeddings=True), "Q4_K_M")
    return out


def their_cases():
    """Name -> configuration, for llama.cpp's converter."""
    full, sliding = "full_attention", "sliding_attention"
    gemma = dict(head_dim=16, sliding_window=8, query_pre_attn_scalar=16)
    llama3 = A.LLAMA3 | dict(original_max_position_embeddings=8192, factor=32.0)
    known = {name: config for name, (config, options) in A.cases().items() if not options}
    same = ("llama", "llama_biases_tied", "llama_linear", "llama_yarn", "mistral_no_window", "qwen2", "qwen3", "qwen3_yarn",
            "phi3", "deepseek_v2", "mamba", "granite", "smollm3", "olmo2", "nemotron", "arcee", "granitemoe", "glm4_moe", "olmo3",
            "seed_oss", "ernie4_5", "exaone4_no_window")
    return {name: known[name] for name in same} | {
        # Their converter reads a key that the class of transformers leaves out.
        "deepseek_v3": T.DeepseekV3Config(**A.LATENT, n_group=4, topk_group=2, scoring_func="sigmoid"),
        "gpt2": T.GPT2Config(vocab_size=A.VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=128, n_ctx=128, eos_token_id=1,
                             bos_token_id=0),
        "llama3_8192": T.LlamaConfig(**A.SIZES | dict(max_position_embeddings=131072), rope_parameters=llama3),
        "phi3_longrope": A.cases()["phi3_longrope_short"][0],
        "mixtral": T.MixtralConfig(**A.SIZES, num_local_experts=4, sliding_window=None),
        "qwen3_moe": cases()["qwen3_moe_all_sparse"][0],
        "gemma2": T.Gemma2Config(**A.SIZES, **gemma, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
        "gemma3": T.Gemma3TextConfig(**A.SIZES | dict(num_hidden_layers=7), **gemma,
                                     layer_types=[sliding] * 5 + [full, sliding]),
        # Of so many layers, llama.cpp scales queries by hidden_size / num_attention_heads.
        "gemma2_46_layers": T.Gemma2Config(**A.SIZES | dict(num_hidden_layers=46, num_attention_heads=2), head_dim=16,
                                           sliding_window=8, query_pre_attn_scalar=32),
        "gemma3_62_layers": T.Gemma3TextConfig(**A.SIZES | dict(num_hidden_layers=62, num_attention_heads=2), head_dim=16,
                                               sliding_window=8, query_pre_attn_scalar=32),
    }


def built(source, libraries, folder):
    """The probe of llama.cpp."""
    out = f"{folder}/llama_probe"
    subprocess.run(["cc", "-O1", "-o", out, pathlib.Path(__file__).with_name("llama_probe.c"), f"-I{source}/include",
                    f"-I{source}/ggml/include", f"-L{libraries}", "-lllama", f"-Wl,-rpath,{libraries}",
                    f"-Wl,-rpath-link,{libraries}"], check=True)
    return out


def tenon(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr}")
    return done.stdout.strip()


def error(mine, other):
    """The mean squared error over the mean square, of each row."""
    return np.square(mine - other).mean(1) / np.square(other).mean(1)


def compare(name, config, kind, args, probe, folder):
    in_floats = kind in ("F32", "F16", "BF16")
    # Blocks are multiplied by activations that both programs round to 8 bits. A model that lets errors grow would measure that.
    A.make(config, folder, 1.5 if in_floats else 0.8)
    file, ids_file = f"{folder}/model.gguf", pathlib.Path(folder, "ids")
    if kind in QUANTIZED:
        tenon(args.tenon, "llm", "convert", folder, f"{folder}/floats.gguf", "--type", "F32")
        tenon(f"{args.libraries}/llama-quantize", f"{folder}/floats.gguf", file, kind, 2)
    else:
        tenon(args.tenon, "llm", "convert", folder, file, "--type", kind)
    ids = torch.randint(2, A.VOCAB, (A.LENGTH,), generator=torch.Generator().manual_seed(2)).tolist()
    ids_file.write_text(" ".join(map(str, ids)))

    def logits(*words):
        out = tenon(*words)
        return np.fromfile(f"{folder}/logits", np.float32).reshape(-1, A.VOCAB), out

    theirs, their_answer = logits(probe, "logits", file, ids_file, f"{folder}/logits", MORE, "f32" if kind == "F32" else "f16")
    ours, exact = (logits(args.probe, file, ids_file, f"{folder}/logits", "cpu", "prefill", "--products", products)[0]
                   for products in ("int8", "f32"))
    # A rounded activation may choose another expert, which changes whole rows.
    off = float(np.median(error(ours, theirs)) if config.model_type in ("mixtral", "deepseek_v3", "gpt_oss") else error(ours, theirs).mean())
    answer = tenon(args.tenon, "llm", "run", file, "--device", "cpu", "--ids", ",".join(map(str, ids)), "--greedy", "--tokens",
                   MORE, "--ignore-end")
    pairs = zip(answer.split(","), their_answer.split(","), strict=True)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), MORE)
    good, more = ours.shape == theirs.shape and off <= LIMIT, ""
    if not in_floats:
        rounding = [float(np.median(error(side, exact))) for side in (ours, theirs)]
        good &= rounding[0] <= 1.25 * rounding[1]
        more = f"; rounding costs {rounding[0]:.1e}, llama.cpp's {rounding[1]:.1e}"
    elif kind != "BF16":  # llama.cpp rounds activations to bf16, too
        good &= same == MORE
    print(f"{'ok ' if good else 'BAD'} {name}: error {off:.1e}, {same} of {MORE} greedy tokens are the same{more}", flush=True)
    return good


def compare_theirs(name, config, args, probe, folder):
    """A file of llama.cpp's converter."""
    A.make(config, folder, 1.0)
    file, ids_file = f"{folder}/model.gguf", pathlib.Path(folder, "ids")
    vocabulary = {"model": {"vocab": {str(i): i for i in range(A.VOCAB)}}, "added_tokens": []}
    pathlib.Path(folder, "tokenizer.json").write_text(json.dumps(vocabulary))  # Gemma's class counts its tokens
    tenon(sys.executable, pathlib.Path(__file__).with_name("llama_convert.py"), args.source, folder, file, "f32")
    ids = torch.randint(2, A.VOCAB, (A.LENGTH,), generator=torch.Generator().manual_seed(2)).tolist()
    ids_file.write_text(" ".join(map(str, ids)))
    tenon(probe, "logits", file, ids_file, f"{folder}/theirs", 1, "f32")
    tenon(args.probe, file, ids_file, f"{folder}/ours", "cpu", "prefill")
    ours, theirs = (np.fromfile(f"{folder}/{side}", np.float32).reshape(-1, A.VOCAB) for side in ("ours", "theirs"))
    off = float(error(ours, theirs).mean())
    good = off <= LIMIT / 10
    print(f"{'ok ' if good else 'BAD'} {name} of llama.cpp's converter: error {off:.1e}", flush=True)
    return good


def texts(args, probe, folder):
    """A prompt as text, by the tokenizer in the file."""
    llm_run.make(folder)
    file, prompt = f"{folder}/model.gguf", pathlib.Path(folder, "prompt")
    tenon(args.tenon, "llm", "convert", folder, file, "--type", "F32")
    good = True
    for text in ("You may copy, distribute and modify the software", "Größe: 世界! don't 12345", "  two  spaces\n\nlines"):
        prompt.write_text(text)
        theirs = subprocess.run([probe, "text", file, prompt, str(MORE)], check=True, capture_output=True).stdout
        ours = subprocess.run([args.tenon, "llm", "run", file, "--device", "cpu", "--raw", "--prompt", text, "--greedy",
                               "--tokens", str(MORE), "--ignore-end"], check=True, capture_output=True).stdout
        same = theirs.decode("utf-8", "replace") == ours.decode("utf-8", "replace").removesuffix("\n")
        good &= same
        print(f"{'ok ' if same else 'BAD'} text {text!r}" + ("" if same else f": {ours!r}, expected {theirs!r}"), flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("tenon")
    parser.add_argument("source")
    parser.add_argument("libraries")
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    torch.set_num_threads(2)
    T.logging.set_verbosity_error()
    T.logging.disable_progress_bar()
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        probe = built(args.source, args.libraries, temporary)
        every = [(name, compare, (name, config, kind)) for name, (config, kind) in cases().items()]
        every += [(f"their_{name}", compare_theirs, (name, config)) for name, config in their_cases().items()]
        for name, run, what in every:
            if args.only and name not in args.only:
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    good &= run(*what, args, probe, folder)
                except RuntimeError as failed:
                    print(f"BAD {name}: {failed}", flush=True)
                    good = False
        if not args.only or "text" in args.only:
            with tempfile.TemporaryDirectory() as folder:
                good &= texts(args, probe, folder)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
