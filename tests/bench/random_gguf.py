# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file with the shape of a language model and random weights. Needs numpy only.

random_gguf.py SHAPE TYPE FILE [--layers N] [--seed N]
SHAPE: qwen3-0.6b, llama-3.2-1b, llama-3-8b, moe-8x2, qwen3-30b-a3b, mixtral-8x7b or tiny.
TYPE: Q4_K_M, Q8_0, Q6_K, Q4_0, MXFP4, F16, BF16 or F32.
Blocks are random bytes with scales that keep activations finite: no numbers are quantized, so a model of 8 billion weights
takes seconds. Speed does not depend on what the weights are; answers make no sense. The tokenizer has a token for each byte,
so that the number of tokens of a text is known."""
import argparse, struct
import numpy as np

ALIGNMENT, PIECE = 32, 1 << 26
SHAPES = {
    "qwen3-0.6b": dict(arch="qwen3", layers=28, hidden=1024, ffn=3072, heads=16, kv_heads=8, head=128, vocab=151936,
                       tied=True, theta=1e6, eps=1e-6, context=40960),
    "llama-3.2-1b": dict(arch="llama", layers=16, hidden=2048, ffn=8192, heads=32, kv_heads=8, head=64, vocab=128256,
                         tied=True, theta=5e5, eps=1e-5, context=131072),
    "llama-3-8b": dict(arch="llama", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, head=128, vocab=128256,
                       tied=False, theta=5e5, eps=1e-5, context=8192),
    "moe-8x2": dict(arch="llama", layers=16, hidden=1024, ffn=2048, heads=16, kv_heads=8, head=64, vocab=32000,
                    tied=False, theta=1e6, eps=1e-5, context=32768, experts=8, active=2),
    "qwen3-30b-a3b": dict(arch="qwen3moe", layers=48, hidden=2048, ffn=768, heads=32, kv_heads=4, head=128, vocab=151936,
                          tied=False, theta=1e6, eps=1e-6, context=40960, experts=128, active=8),
    "mixtral-8x7b": dict(arch="llama", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, head=128, vocab=32000,
                         tied=False, theta=1e6, eps=1e-5, context=32768, experts=8, active=2),
    "tiny": dict(arch="llama", layers=2, hidden=256, ffn=512, heads=4, kv_heads=2, head=64, vocab=512, tied=False,
                 theta=1e4, eps=1e-5, context=512),
}
# Name -> number in files, elements and bytes of a block.
FORMATS = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144),
           "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2), "MXFP4": (39, 32, 17)}
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "Q4_K_M": 15, "Q6_K": 18, "BF16": 32, "MXFP4": 38}


def format_of(mix, shape, name, layer):
    """The format that llama.cpp's mix gives to a matrix."""
    experts, layers = shape.get("experts", 0), shape["layers"]
    output = name == "output" or (name == "token_embd" and shape["tied"])
    if mix == "MXFP4":
        return "MXFP4" if name.endswith("_exps") or not (experts or output or name == "token_embd") else "Q8_0"
    if mix == "Q4_0":
        return "Q6_K" if output else mix
    if mix != "Q4_K_M":
        return mix
    more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    if experts == 8 and name in ("attn_k", "attn_v", "attn_output"):
        return "Q5_K" if name == "attn_output" else "Q8_0"
    return "Q6_K" if output or (more and name.startswith(("attn_v", "ffn_down"))) else "Q4_K"


def tensors(shape, mix):
    """Name, format and dims (rows last) of each tensor."""
    s, hidden, head, experts = shape, shape["hidden"], shape["head"], shape.get("experts", 0)

    def matrix(name, columns, *rows, layer=None):
        at = f"blk.{layer}." if layer is not None else ""
        return f"{at}{name}.weight", format_of(mix, s, name, layer or 0), (columns, *rows)

    yield matrix("token_embd", hidden, s["vocab"])
    yield "output_norm.weight", "F32", (hidden,)
    if not s["tied"]:
        yield matrix("output", hidden, s["vocab"])
    for i in range(s["layers"]):
        for norm in ("attn_norm", "ffn_norm"):
            yield f"blk.{i}.{norm}.weight", "F32", (hidden,)
        if s["arch"] in ("qwen3", "qwen3moe"):
            for norm in ("attn_q_norm", "attn_k_norm"):
                yield f"blk.{i}.{norm}.weight", "F32", (head,)
        yield matrix("attn_q", hidden, s["heads"] * head, layer=i)
        yield matrix("attn_k", hidden, s["kv_heads"] * head, layer=i)
        yield matrix("attn_v", hidden, s["kv_heads"] * head, layer=i)
        yield matrix("attn_output", s["heads"] * head, hidden, layer=i)
        if experts:
            yield f"blk.{i}.ffn_gate_inp.weight", "F32", (hidden, experts)
        many, end = ((experts,), "_exps") if experts else ((), "")
        yield matrix("ffn_gate" + end, hidden, s["ffn"], *many, layer=i)
        yield matrix("ffn_up" + end, hidden, s["ffn"], *many, layer=i)
        yield matrix("ffn_down" + end, s["ffn"], hidden, *many, layer=i)


def f16(number):
    return np.frombuffer(np.float16(number).tobytes(), np.uint8)


def blocks(source, form, count, deviation):
    """So many blocks as rows of bytes. deviation: of the numbers, roughly."""
    size = FORMATS[form][2]
    out = np.frombuffer(source.bytes(count * size), np.uint8).reshape(count, size).copy()
    if form in ("Q4_K", "Q5_K"):
        # d * scale * q - dmin * minimum; with this dmin the mean is 0.
        most = 15 if form == "Q4_K" else 31
        out[:, 0:2], out[:, 2:4] = f16(deviation / (16 * most)), f16(deviation / 32)
    elif form == "Q6_K":
        out[:, 192:208] = (out[:, 192:208] & 31) - 16  # signed; the others are quants
        out[:, 208:210] = f16(deviation / 170)
    elif form == "Q8_0":
        out[:, 0:2] = f16(deviation / 74)
    elif form == "Q4_0":
        out[:, 0:2] = f16(deviation / 4.6)
    elif form == "MXFP4":
        out[:, 0] = 126 + round(np.log2(deviation))  # an exponent
    return out


def numbers(source, form, count, deviation):
    """Normal numbers. They repeat after a prime number of elements: rows still differ."""
    drawn = (source.standard_normal(min(count, 1048583), np.float32) * np.float32(deviation)).astype(np.float32)
    if form == "F16":
        drawn = drawn.astype(np.float16)
    elif form == "BF16":
        drawn = (drawn.view(np.uint32) >> 16).astype(np.uint16)
    return np.resize(drawn, count)


def write_content(file, source, form, dims):
    count, (_, elements, _) = int(np.prod(dims)), FORMATS[form]
    if len(dims) == 1:  # a norm
        np.ones(count, np.float32).tofile(file)
        return
    deviation = dims[0] ** -0.5
    for at in range(0, count, PIECE):
        here = min(PIECE, count - at)
        piece = blocks(source, form, here // elements, deviation) if elements > 1 else numbers(source, form, here, deviation)
        piece.tofile(file)


def text(t):
    data = t.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, value):
    """A key with its value: an int is u32, a float f32, a list of text or of i32."""
    if isinstance(value, bool):
        return text(name) + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return text(name) + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return text(name) + struct.pack("<If", 6, value)
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    if isinstance(value[0], str):
        return text(name) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return text(name) + struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def vocabulary(size):
    """GPT-2's letters of the 256 bytes, one merge, the end token, and names that no text has."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(256, 512))
    letters = [chr(b if b in plain else next(rest)) for b in range(256)]
    named = [*letters, letters[0] + letters[1], "<|end|>"]
    return named + [f"<|{i}|>" for i in range(len(named), size)], [f"{letters[0]} {letters[1]}"]


def keys(name, s, mix):
    arch = s["arch"]
    tokens, merges = vocabulary(s["vocab"])
    out = {"general.architecture": arch, "general.name": f"random {name}", "general.file_type": FILE_TYPES[mix],
           f"{arch}.context_length": s["context"], f"{arch}.embedding_length": s["hidden"],
           f"{arch}.block_count": s["layers"], f"{arch}.feed_forward_length": s["ffn"], f"{arch}.vocab_size": s["vocab"],
           f"{arch}.attention.head_count": s["heads"], f"{arch}.attention.head_count_kv": s["kv_heads"],
           f"{arch}.attention.key_length": s["head"], f"{arch}.attention.value_length": s["head"],
           f"{arch}.attention.layer_norm_rms_epsilon": s["eps"], f"{arch}.rope.freq_base": s["theta"],
           f"{arch}.rope.dimension_count": s["head"],
           "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
           "tokenizer.ggml.token_type": [1] * 257 + [3] + [1] * (s["vocab"] - 258), "tokenizer.ggml.merges": merges,
           "tokenizer.ggml.eos_token_id": 257, "tokenizer.ggml.bos_token_id": 257, "tokenizer.ggml.add_bos_token": False}
    if "experts" in s:
        out |= {f"{arch}.expert_count": s["experts"], f"{arch}.expert_used_count": s["active"],
                f"{arch}.expert_feed_forward_length": s["ffn"]}
    return out


def write(path, name, mix, layers=None, seed=1):
    """layers: instead of those of the shape."""
    shape = SHAPES[name] | ({"layers": layers} if layers else {})
    plan, offset, infos = list(tensors(shape, mix)), 0, []
    for tensor, form, dims in plan:
        number, elements, size = FORMATS[form]
        infos.append(text(tensor) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, offset))
        offset += -(-int(np.prod(dims)) // elements * size // ALIGNMENT) * ALIGNMENT
    pairs = [key(k, v) for k, v in keys(name, shape, mix).items()]
    source = np.random.default_rng(seed)
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(plan), len(pairs)) + b"".join(pairs + infos))
        for _, form, dims in plan:
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            file.flush()
            write_content(file, source, form, dims)
        file.write(b"\0" * (-file.tell() % ALIGNMENT))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("type", choices=FILE_TYPES)
    parser.add_argument("file")
    parser.add_argument("--layers", type=int, help="instead of those of the shape")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    write(args.file, args.shape, args.type, args.layers, args.seed)


if __name__ == "__main__":
    main()
