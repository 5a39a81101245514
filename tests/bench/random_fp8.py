# SPDX-License-Identifier: Apache-2.0
"""Writes a Hugging Face folder with the shape of a language model and random fp8 weights. Needs numpy only.

random_fp8.py SHAPE FOLDER [--plain F16|BF16] [--layers N] [--shard GIB] [--seed N]
SHAPE: one of random_gguf.py, but not qwen3-30b-a3b.
Products of layers are e4m3 with a scale for each block of 128 x 128 (`quant_method` fp8);
embedding, output, router and norms are bf16. --plain writes all matrices in that dtype instead, for comparisons. Speed does
not depend on what the weights are; answers make no sense. The tokenizer has a token for each byte."""
import argparse, json, pathlib, struct
import numpy as np

import random_gguf

BLOCK = 128
SIZES = {"F8_E4M3": 1, "BF16": 2, "F16": 2, "F32": 4}
QUANTIZATION = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK],
                "modules_to_not_convert": ["lm_head"]}


def model_type(shape):
    return "mixtral" if "experts" in shape else shape["arch"]


def tensors(shape, plain=None):
    """Name, dtype and dims of each tensor. plain: the dtype of all matrices."""
    s, hidden, head = shape, shape["hidden"], shape["head"]
    other = plain or "BF16"

    def quantized(name, rows, columns):
        yield name + ".weight", plain or "F8_E4M3", [rows, columns]
        if not plain:
            yield name + ".weight_scale_inv", "F32", [-(-rows // BLOCK), -(-columns // BLOCK)]

    yield "model.embed_tokens.weight", other, [s["vocab"], hidden]
    yield "model.norm.weight", other, [hidden]
    if not s["tied"]:
        yield "lm_head.weight", other, [s["vocab"], hidden]
    for i in range(s["layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", other, [hidden]
        yield at + "post_attention_layernorm.weight", other, [hidden]
        if s["arch"] == "qwen3":
            yield at + "self_attn.q_norm.weight", other, [head]
            yield at + "self_attn.k_norm.weight", other, [head]
        for name, heads in (("q", s["heads"]), ("k", s["kv_heads"]), ("v", s["kv_heads"])):
            yield from quantized(f"{at}self_attn.{name}_proj", heads * head, hidden)
        yield from quantized(at + "self_attn.o_proj", hidden, s["heads"] * head)
        if "experts" in s:
            yield at + "block_sparse_moe.gate.weight", other, [s["experts"], hidden]
            modules = [[f"{at}block_sparse_moe.experts.{e}.w{k}" for k in (1, 3, 2)] for e in range(s["experts"])]
        else:
            modules = [[f"{at}mlp.{name}_proj" for name in ("gate", "up", "down")]]
        for gate, up, down in modules:
            yield from quantized(gate, s["ffn"], hidden)
            yield from quantized(up, s["ffn"], hidden)
            yield from quantized(down, hidden, s["ffn"])


def content(source, name, dtype, dims, columns):
    """Arrays that make up a tensor, one after the other. columns: of the weight that a scale belongs to."""
    count, deviation = int(np.prod(dims)), columns**-0.5
    if dtype == "F32":  # numbers below have a deviation of about 0.6
        yield (source.uniform(0.5, 1.5, count) * deviation / 0.6).astype(np.float32)
    elif len(dims) == 1:
        yield np.full(count, 0x3F80 if dtype == "BF16" else 0x3C00, np.uint16)  # ones: a norm
    else:
        for at in range(0, count, random_gguf.PIECE):
            here = min(random_gguf.PIECE, count - at)
            if dtype == "F8_E4M3":  # at most 1.875
                yield np.frombuffer(source.bytes(here), np.uint8) & 0xBF
            else:
                yield random_gguf.numbers(source, dtype, here, deviation)


def write_shard(file, source, part):
    header, at = {}, 0
    for name, dtype, dims, _ in part:
        size = int(np.prod(dims)) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.flush()
        for name, dtype, dims, columns in part:
            for piece in content(source, name, dtype, dims, columns):
                piece.tofile(out)


def write_tensors(folder, source, plan, most):
    """Shards of about `most` bytes, and their index."""
    shards, size, columns = [[]], 0, 1
    for name, dtype, dims in plan:
        columns = dims[-1] if dtype != "F32" else columns  # a scale follows its weight
        here = int(np.prod(dims)) * SIZES[dtype]
        if shards[-1] and size + here > most:
            shards.append([])
            size = 0
        shards[-1].append((name, dtype, dims, columns))
        size += here
    places = {}
    for i, part in enumerate(shards):
        file = "model.safetensors" if len(shards) == 1 else f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(folder / file, source, part)
        places |= {name: file for name, *_ in part}
    if len(shards) > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def config(shape, plain):
    kind = model_type(shape)
    out = {"architectures": [f"{kind.capitalize()}ForCausalLM"], "model_type": kind, "vocab_size": shape["vocab"],
           "hidden_size": shape["hidden"], "intermediate_size": shape["ffn"], "num_hidden_layers": shape["layers"],
           "num_attention_heads": shape["heads"], "num_key_value_heads": shape["kv_heads"], "head_dim": shape["head"],
           "max_position_embeddings": shape["context"], "rms_norm_eps": shape["eps"], "rope_theta": shape["theta"],
           "hidden_act": "silu", "tie_word_embeddings": shape["tied"], "bos_token_id": 257, "eos_token_id": 257,
           "torch_dtype": "float16" if plain == "F16" else "bfloat16"}
    if kind == "mixtral":
        out |= {"num_local_experts": shape["experts"], "num_experts_per_tok": shape["active"], "sliding_window": None}
    return out if plain else out | {"quantization_config": QUANTIZATION}


def tokenizer(size):
    tokens, merges = random_gguf.vocabulary(size)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": 257, "content": tokens[257], "special": True, "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}}


def write(path, name, plain=None, layers=None, shard=4.0, seed=1):
    """layers: instead of those of the shape."""
    shape = random_gguf.SHAPES[name] | ({"layers": layers} if layers else {})
    folder = pathlib.Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    (folder / "config.json").write_text(json.dumps(config(shape, plain)))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(shape["vocab"])))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    write_tensors(folder, np.random.default_rng(seed), tensors(shape, plain), shard * 2**30)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=[n for n, s in random_gguf.SHAPES.items() if s["arch"] != "qwen3moe"])
    parser.add_argument("folder")
    parser.add_argument("--plain", choices=("F16", "BF16"), help="the dtype of all matrices, instead of fp8")
    parser.add_argument("--layers", type=int, help="instead of those of the shape")
    parser.add_argument("--shard", type=float, default=4, help="GiB of a file, about")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    write(args.folder, args.shape, args.plain, args.layers, args.shard, args.seed)


if __name__ == "__main__":
    main()
