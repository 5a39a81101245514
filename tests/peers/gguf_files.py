#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gguf_files.py TENON [MODEL_TYPE...]

tenon llm convert beside Python's packages gguf and transformers, with small models of random weights that transformers
makes: gguf reads the files, transformers loads them with the weights of the folder, and the way back gives the same
tensors. Every type of --type is decoded by gguf. Exits with 77 without these packages."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = "1"
try:
    import gguf
    import numpy
    import tokenizers
    import torch
    import transformers
    from gguf import quants
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

transformers.logging.set_verbosity_error()
TENON = sys.argv[1]
SMALL = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=320, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=0)
NOT_OF_MAMBA2 = ("max_position_embeddings", "num_attention_heads", "num_key_value_heads")
OTHER = dict(intermediate_size=None, num_key_value_heads=None)  # keys that a family does not have
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
LONG = dict(rope_type="longrope", rope_theta=10000.0, long_factor=[1.0 + i / 8 for i in range(32)], short_factor=[1.0] * 32,
            original_max_position_embeddings=128)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64, mscale=0.7, mscale_all_dim=0.7)
LATENT = dict(num_key_value_heads=4, q_lora_rank=64, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=24,
              n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=96, first_k_dense_replace=1, n_shared_experts=2)
LINEAR = dict(head_dim=64, linear_key_head_dim=32, linear_value_head_dim=32, linear_num_key_heads=2, linear_num_value_heads=6)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=96, shared_expert_intermediate_size=160)
MIXER = dict(mamba_n_heads=8, mamba_d_head=64, mamba_d_state=16, mamba_n_groups=2)
HYBRID = MIXER | dict(num_local_experts=0, layer_types=["mamba", "attention", "mamba", "mamba"])
MODELS = {
    "llama": [dict(), dict(tie_word_embeddings=True, rope_parameters=LLAMA3), dict(attention_bias=True, head_dim=32)],
    "mistral": [dict(sliding_window=64, head_dim=64)],
    "qwen2": [dict(rms_norm_eps=1e-5)],
    "qwen3": [dict(head_dim=128, tie_word_embeddings=True)],
    "gemma2": [dict(head_dim=64, query_pre_attn_scalar=100, sliding_window=64)],
    "gemma3_text": [dict(head_dim=64, query_pre_attn_scalar=64, sliding_window=64, num_hidden_layers=7)],
    "phi3": [dict(), dict(rope_parameters=LONG, original_max_position_embeddings=128)],
    "mixtral": [dict(num_local_experts=4)],
    "gemma": [dict(head_dim=64)],
    "granite": [dict(embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.1, logits_scaling=8.0)],
    "smollm3": [dict(num_hidden_layers=5), dict(tie_word_embeddings=False, no_rope_layer_interval=4)],
    "olmo2": [dict()],
    "ministral3": [dict(head_dim=32, rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1))],
    "cohere": [dict(logit_scale=0.25), dict(use_qk_norm=True)],
    "cohere2": [dict(sliding_window=64, num_hidden_layers=5)],
    "stablelm": [dict(), dict(use_parallel_residual=True, use_qkv_bias=True)],
    "phi": [dict()],
    "gpt_neox": [dict(), dict(use_parallel_residual=False)],
    "starcoder2": [dict(sliding_window=64), dict(use_bias=False)],
    "nemotron": [dict()],
    "arcee": [dict()],
    "glm": [dict(head_dim=64)],
    "glm4": [dict(head_dim=64)],
    "glm4_moe": [dict(head_dim=64, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=96, use_qk_norm=True)],
    "olmo3": [dict(sliding_window=64, rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=1e5),
                                                           sliding_attention=dict(rope_type="default", rope_theta=1e5)))],
    "olmoe": [dict(num_experts=4, num_experts_per_tok=2)],
    "seed_oss": [dict(head_dim=64)],
    "ernie4_5": [dict(head_dim=64)],
    "exaone4": [dict(sliding_window=64, num_hidden_layers=5), dict(sliding_window=None, layer_types=["full_attention"] * 4)],
    "hunyuan_v1_dense": [dict(head_dim=64)],
    "ernie4_5_moe": [dict(moe_num_experts=4, moe_k=2, moe_intermediate_size=96)],
    "hunyuan_v1_moe": [dict(head_dim=64, num_experts=4, moe_topk=2)],
    "dots1": [dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=96, n_shared_experts=1, first_k_dense_replace=1,
                   norm_topk_prob=True)],
    "falcon": [OTHER, OTHER | dict(new_decoder_architecture=True, num_kv_heads=2, tie_word_embeddings=False)],
    "mpt": [OTHER | dict(max_position_embeddings=None, max_seq_len=512)],
    "bloom": [OTHER | dict(max_position_embeddings=None)],
    "apertus": [dict()],
    "afmoe": [dict(head_dim=64, num_hidden_layers=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=96, mup_enabled=True,
                   sliding_window=64)],
    "qwen2_moe": [dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=96, shared_expert_intermediate_size=160)],
    "qwen3_next": [LINEAR | EXPERTS],
    "qwen3_5_text": [LINEAR, LINEAR | dict(linear_num_value_heads=2, tie_word_embeddings=True)],
    "qwen3_5_moe_text": [LINEAR | EXPERTS],
    "lfm2": [dict(full_attn_idxs=[1, 3])],
    "lfm2_moe": [dict(layer_types=["conv", "full_attention", "conv", "conv"], num_experts=4, num_experts_per_tok=2,
                      moe_intermediate_size=96)],
    "gpt2": [dict(n_embd=64, n_layer=3, n_head=4, n_positions=64, n_inner=80)],
    "mamba": [dict(state_size=8, layer_norm_epsilon=1e-6), dict(tie_word_embeddings=False, time_step_rank=24)],
    "mamba2": [dict(state_size=16, num_heads=8, head_dim=64, n_groups=2), dict(state_size=16, num_heads=16, head_dim=32, n_groups=1,
                                                                              tie_word_embeddings=True)],
    "granitemoehybrid": [HYBRID | dict(shared_intermediate_size=512, position_embedding_type="rope"),
                         HYBRID | dict(shared_intermediate_size=384, embedding_multiplier=12.0)],
    "falcon_h1": [MIXER | dict(mamba_d_ssm=384, mamba_d_head=48, mamba_rms_norm=True, mamba_norm_before_gate=False, head_dim=32),
                  MIXER | dict(mamba_d_ssm=512)],
    "nemotron_h": [dict(layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"], head_dim=64, n_groups=2,
                        mamba_num_heads=6, mamba_head_dim=32, ssm_state_size=16),
                   dict(layers_block_type=["linear_attention", "moe", "full_attention", "moe"], head_dim=64, n_groups=2,
                        mamba_num_heads=6, mamba_head_dim=32, ssm_state_size=16, n_routed_experts=4, num_experts_per_tok=2,
                        moe_intermediate_size=96, moe_shared_expert_intermediate_size=160)],
    "jamba": [dict(attn_layer_period=3, attn_layer_offset=1, num_experts=4, mamba_d_state=8)],
    "deepseek_v2": [LATENT, LATENT | dict(q_lora_rank=None, n_group=4, topk_group=2, topk_method="group_limited_greedy",
                                          routed_scaling_factor=1.5)],
    "deepseek_v3": [LATENT | dict(n_group=4, topk_group=2), LATENT | dict(n_group=1, topk_group=1, n_shared_experts=1,
                                                                            rope_parameters=YARN)],
    "qwen3_moe": [dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=768, head_dim=128, norm_topk_prob=True)],
}
# Types of --type with the format of most matrices and the greatest mean squared error over the mean square.
TYPES = {"F32": ("F32", 0), "F16": ("F16", 1e-6), "BF16": ("BF16", 1e-5), "Q8_0": ("Q8_0", 1e-4), "Q4_0": ("Q4_0", 0.012),
         "Q4_1": ("Q4_1", 0.012), "Q5_0": ("Q5_0", 0.003), "Q5_1": ("Q5_1", 0.003), "Q6_K": ("Q6_K", 4e-4),
         "Q4_K_M": ("Q4_K", 0.006), "MXFP4": ("MXFP4", 0.02)}


def tenon(*words):
    run = subprocess.run([TENON, "llm", "convert", *map(str, words)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


def make(folder, kind, fields, dtype=torch.float32, **how):
    torch.manual_seed(1)
    small = {k: v for k, v in SMALL.items() if kind != "mamba2" or k not in NOT_OF_MAMBA2}
    config = transformers.AutoConfig.for_model(kind, **{**small, **fields})
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
    with torch.no_grad():  # norms and biases start as constants
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(folder, **how)
    return model


def old_latent(path, other):
    """The file as DeepSeek's were before attn_kv_b was split."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(other, "deepseek2")
    for name, f in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture" and not name.endswith("_mla"):
            kind = f.types[0]
            value = f.contents()
            if name.endswith(("attention.key_length", "attention.value_length")):
                value = reader.get_field(name + "_mla").contents()
            writer.add_key_value(name, value, kind, f.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    tensors = {t.name: t.data for t in reader.tensors}
    for name, data in tensors.items():
        if "attn_k_b" in name:
            both = numpy.concatenate([data.swapaxes(1, 2), tensors[name.replace("attn_k_b", "attn_v_b")]], 1)
            writer.add_tensor(name.replace("attn_k_b", "attn_kv_b"), both.reshape(-1, both.shape[2]).copy())
        elif "attn_v_b" not in name:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors_of(folder):
    return {k: v for file in sorted(folder.glob("*.safetensors")) for k, v in load_file(file).items()}


def check_model(folder, kind, fields):
    """F32 there and back, and what transformers makes of the file."""
    model = make(folder / "hf", kind, fields, max_shard_size="2MB")
    assert len(list((folder / "hf").glob("*.safetensors"))) > 1, "expected several shards"
    tenon(folder / "hf", folder / "m.gguf")
    tenon(folder / "m.gguf", folder / "back")
    first, last = tensors_of(folder / "hf"), tensors_of(folder / "back")
    first = {k: v for k, v in first.items() if k != "lm_head.weight" or "lm_head.weight" in last}
    assert first.keys() == last.keys(), (first.keys() ^ last.keys())
    for name, t in first.items():
        # 1 was added and taken away; a logarithm of an exponent.
        near = 1e-6 if kind.startswith(("gemma", "nemotron", "qwen3_next", "qwen3_5")) and "norm" in name or name.endswith("A_log") else 0
        assert t.shape == last[name].shape and (t - last[name]).abs().max() <= near, name
    if kind.startswith("deepseek"):
        old_latent(folder / "m.gguf", folder / "old.gguf")
        tenon(folder / "old.gguf", folder / "old")
        again = tensors_of(folder / "old")
        assert again.keys() == last.keys() and all(torch.equal(t, again[k]) for k, t in last.items())
        answers = [subprocess.run([TENON, "llm", "run", folder / name, "--ids", "3,4,5,6", "--greedy", "--tokens", "20",
                                   "--ignore-end", "--device", "cpu"], capture_output=True, text=True, check=True).stdout
                   for name in ("hf", "m.gguf", "old.gguf")]
        assert answers[0] == answers[1] == answers[2] and answers[0].count(",") == 19, answers
    # The folder that came back is the same model.
    x = torch.arange(3, 43)[None]
    with torch.no_grad():
        logits = model.eval()(x).logits
        again = transformers.AutoModelForCausalLM.from_pretrained(folder / "back").eval()
        off = (again(x).logits - logits).abs().max() / logits.abs().max()
        assert off < 1e-5, f"the folder that came back: logits are off by {off}"
        if kind == "mixtral":
            return "transformers takes the file for a Llama without experts"
        try:
            loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file="m.gguf").eval()
        except (ValueError, NotImplementedError, KeyError, RuntimeError) as e:
            loaded = e  # transformers does not take each architecture
        if isinstance(loaded, Exception):
            return f"transformers does not load it ({loaded})"
        state = loaded.state_dict()
        for name, p in model.state_dict().items():
            if name not in state and name.endswith("proj.bias"):
                continue  # its reader sets no attention_bias
            assert (state[name].float() - p).abs().max() <= 1e-6, f"{name}: transformers loads other numbers"
    return "transformers loads the same weights"


def check_types(folder):
    """Every type, read and decoded by gguf, beside the numbers of the folder."""
    make(folder / "hf", "llama", dict(num_hidden_layers=9), dtype=torch.bfloat16)
    plain = None
    for name, (most, limit) in TYPES.items():
        path = folder / f"{name}.gguf"
        tenon(folder / "hf", path, "--type", name)
        reader = gguf.GGUFReader(path)
        numbers = {t.name: quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
        kinds = {t.name: t.tensor_type.name for t in reader.tensors}
        plain = plain or numbers
        for tensor, values in numbers.items():
            if values.ndim == 1:
                assert kinds[tensor] == "F32" and (values == plain[tensor]).all(), tensor
                continue
            error = numpy.square(values - plain[tensor]).mean() / numpy.square(plain[tensor]).mean()
            assert error <= limit, f"{name}: {tensor}: error {error}; expected at most {limit}"
        assert max(kinds.values(), key=list(kinds.values()).count) in (most, "F32"), name
        if name == "Q4_K_M":
            assert kinds["output.weight"] == "Q6_K" and kinds["token_embd.weight"] == "Q4_K"
            more = [i for i in range(9) if kinds[f"blk.{i}.ffn_down.weight"] == "Q6_K"]
            assert more == [0, 3, 6, 7, 8], more
            assert more == [i for i in range(9) if kinds[f"blk.{i}.attn_v.weight"] == "Q6_K"]
        field = reader.get_field("general.file_type").contents()
        assert field == {"MXFP4": 38, "Q4_K_M": 15, "BF16": 32}.get(name, field), (name, field)
    tenon(folder / "BF16.gguf", folder / "back")
    first, last = tensors_of(folder / "hf"), tensors_of(folder / "back")
    assert first.keys() == last.keys()
    for name, t in first.items():
        assert last[name].dtype == torch.bfloat16 and torch.equal(t, last[name]), name
    return f"{len(TYPES)} types"


def train(folder, expression):
    """expression: empty for digits one by one and the pieces of GPT-2."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    pre = tokenizers.pre_tokenizers
    first = pre.Split(tokenizers.Regex(expression), "isolated") if expression else pre.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre.Sequence([first, pre.ByteLevel(add_prefix_space=False, use_regex=not expression)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=310, special_tokens=["<s>", "</s>"],
                                             initial_alphabet=pre.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog " * 3, "there they're then 1234 12"], trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    fast.save_pretrained(folder)
    return fast


def without_json(path, other):
    """The file with tokenizer.huggingface.json under another name, as files of other writers lack it."""
    data = path.read_bytes()
    assert data.count(b"tokenizer.huggingface.json") == 1
    other.write_bytes(data.replace(b"tokenizer.huggingface.json", b"tokenizer.huggingface.none"))


def check_same(one, other, special=False):
    for text in ("the quick brown", "they're 12345", "été\n\n  the", "<s>dog</s>", "  over  ", "狐 fox", ""):
        want, got = one.encode(text, add_special_tokens=special), other.encode(text, add_special_tokens=special)
        assert got == want, (text, want, got)
        assert other.decode(got) == one.decode(want), text


def train_pieces(folder):
    """A tokenizer like that of Llama 2: visible spaces, bytes for what is unknown."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    normal = tokenizers.normalizers
    tokenizer.normalizer = normal.Sequence([normal.Prepend("▁"), normal.Replace(" ", "▁")])
    decode = tokenizers.decoders
    tokenizer.decoder = decode.Sequence([decode.Replace("▁", " "), decode.ByteFallback(), decode.Fuse(),
                                         decode.Strip(" ", 1, 0)])
    names = ["<unk>", "<s>", "</s>"]
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=320, special_tokens=names + [f"<0x{i:02X}>" for i in range(256)])
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog " * 3], trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [a for a in state["added_tokens"] if a["content"] in names]
    state["post_processor"] = json.loads(tokenizers.processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]).__getstate__())
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                                                unk_token="<unk>")
    fast.save_pretrained(folder)
    return fast


def check_pieces(folder):
    make(folder / "hf", "llama", {})
    fast = train_pieces(folder / "hf")
    tenon(folder / "hf", folder / "m.gguf")
    reader = gguf.GGUFReader(folder / "m.gguf")
    value = {k: reader.get_field(f"tokenizer.ggml.{k}").contents()
             for k in ("model", "token_type", "scores", "add_space_prefix", "add_bos_token", "unknown_token_id")}
    assert value["model"] == "llama" and value["add_space_prefix"] and value["add_bos_token"], value
    assert value["token_type"][:5] == [2, 3, 3, 6, 6] and value["unknown_token_id"] == 0, value["token_type"][:5]
    assert min(value["scores"]) < max(value["scores"]) == 0
    without_json(folder / "m.gguf", folder / "other.gguf")
    tenon(folder / "m.gguf", folder / "back")
    tenon(folder / "other.gguf", folder / "built")
    for name in ("back", "built"):
        check_same(fast, transformers.PreTrainedTokenizerFast.from_pretrained(folder / name), special=True)
    return "pieces"


def check_words(folder):
    """Tokenizers of BERT."""
    for lowercase in (True, False):
        at = folder / str(lowercase)
        make(at / "hf", "llama", {})
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = tokenizers.decoders.WordPiece()
        names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=320, special_tokens=names)
        tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog The Dog été " * 3, "they're there 1234"], trainer)
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]",
                                                    cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
        fast.save_pretrained(at / "hf")
        tenon(at / "hf", at / "m.gguf")
        reader = gguf.GGUFReader(at / "m.gguf")
        tokens = reader.get_field("tokenizer.ggml.tokens").contents()
        marked = [t if t in names else t[2:] if t.startswith("##") else "▁" + t for t in fast.convert_ids_to_tokens(range(len(fast)))]
        assert tokens[:len(fast)] == marked
        assert reader.get_field("tokenizer.ggml.mask_token_id").contents() == 4
        without_json(at / "m.gguf", at / "other.gguf")
        tenon(at / "m.gguf", at / "back")
        tenon(at / "other.gguf", at / "built")
        for name in ("back", "built"):
            loaded = transformers.PreTrainedTokenizerFast.from_pretrained(at / name)
            check_same(fast, loaded, special=True)
            assert loaded.encode("the dog", "over") == fast.encode("the dog", "over")
            assert loaded.cls_token == "[CLS]" and loaded.mask_token == "[MASK]"
    return "words"


def check_tokenizer(folder):
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
    rest = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    short = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    cased = rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{short}[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{short}"
    for kind, name, expression in (("llama", "llama-bpe", words + r"\p{N}{1,3}" + rest), ("qwen2", "qwen2", words + r"\p{N}" + rest),
                                   ("qwen3", "gpt-4o", cased + r"\p{N}{1,3}" + rest.replace(r"[\r\n]*", r"[\r\n/]*", 1)),
                                   ("starcoder2", "starcoder", "")):
        at = folder / name
        make(at / "hf", kind, {})
        fast = train(at / "hf", expression)
        tenon(at / "hf", at / "m.gguf")
        reader = gguf.GGUFReader(at / "m.gguf")
        assert reader.get_field("tokenizer.ggml.pre").contents() == name
        assert reader.get_field("tokenizer.chat_template").contents() == fast.chat_template
        tokens = reader.get_field("tokenizer.ggml.tokens").contents()
        types = reader.get_field("tokenizer.ggml.token_type").contents()
        assert len(tokens) == SMALL["vocab_size"] and tokens[0] == "<s>" and types[:3] == [3, 3, 1]
        assert tokens[fast.vocab_size:] == [f"[PAD{i}]" for i in range(fast.vocab_size, len(tokens))]
        assert reader.get_field("tokenizer.ggml.bos_token_id").contents() == 0
        tenon(at / "m.gguf", at / "back")
        back = transformers.PreTrainedTokenizerFast.from_pretrained(at / "back")
        if name in ("llama-bpe", "qwen2"):  # transformers takes another pre-tokenizer by the kind of the model
            check_same(fast, transformers.AutoTokenizer.from_pretrained(at, gguf_file="m.gguf"))
        check_same(fast, back)
        without_json(at / "m.gguf", at / "other.gguf")
        tenon(at / "other.gguf", at / "built")
        built = transformers.PreTrainedTokenizerFast.from_pretrained(at / "built")
        check_same(fast, built)
        assert built.bos_token == "<s>" and built.eos_token == "</s>"
        assert back.chat_template == fast.chat_template
    return "byte-level BPE"


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wanted = sys.argv[2:]
        for kind, variants in MODELS.items():
            for i, fields in enumerate(variants):
                if not wanted or kind in wanted:
                    print(f"{kind} {fields}: {check_model(folder / f'{kind}-{i}', kind, fields)}", flush=True)
        if not wanted or "types" in wanted:
            print(f"types: {check_types(folder / 'types')}", flush=True)
        if not wanted or "tokenizer" in wanted:
            print(f"tokenizer: {check_tokenizer(folder / 'tokenizer')}", flush=True)
            print(f"tokenizer: {check_pieces(folder / 'pieces')}", flush=True)
            print(f"tokenizer: {check_words(folder / 'words')}", flush=True)


main()
