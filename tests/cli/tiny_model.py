# SPDX-License-Identifier: Apache-2.0
"""A folder with a small language model of random weights, as Hugging Face lays it out, without its packages."""
import json, math, pathlib, random, struct

SPECIAL = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"]
TEMPLATE = ("{{ bos_token }}{% if tools %}<|system|>{{ tools | tojson }}{% endif %}"
            "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant', 'tool'] %}"
            "{{ raise_exception('unknown role ' + m.role) }}{% endif %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def byte_letters():
    """GPT-2's letter for each byte."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(256, 512))
    return [chr(b if b in plain else next(rest)) for b in range(256)]


def write_tensors(file, tensors):
    """A safetensors file of f32. tensors: name -> (shape, numbers)."""
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        content = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(file):
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in t["data_offsets"])
            out[name] = (t["shape"], list(struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])))
    return out


def make(folder, seed=1, hidden=32, layers=2, heads=4, kv_heads=2, ffn=48, context=512, deviation=0.3, logits=0,
         distinct=None, config=None, of_layers=None):
    """distinct: the numbers of a weight repeat after so many of them, so that a large model is made quickly.
    config: keys that differ from Llama's, for its relatives; of_layers: shapes of their further tensors of each layer."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {letter: i for i, letter in enumerate(byte_letters())}
    first = len(vocab)
    added = [{"id": first + i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, t in enumerate(SPECIAL)]
    size = max(first + len(SPECIAL), logits)  # a model may have more logits than tokens
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": size, "hidden_size": hidden,
        "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "max_position_embeddings": context, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32", "bos_token_id": first,
        "eos_token_id": first + 1, **(config or {})}
    (folder / "config.json").write_text(json.dumps(config))
    head = hidden // heads
    shapes = {"model.embed_tokens.weight": [size, hidden], "model.norm.weight": [hidden]}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [size, hidden]
    for i in range(layers):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm.weight": [hidden], at + "post_attention_layernorm.weight": [hidden],
                   at + "self_attn.q_proj.weight": [hidden, hidden], at + "self_attn.o_proj.weight": [hidden, hidden],
                   at + "self_attn.k_proj.weight": [kv_heads * head, hidden],
                   at + "self_attn.v_proj.weight": [kv_heads * head, hidden],
                   at + "mlp.gate_proj.weight": [ffn, hidden], at + "mlp.up_proj.weight": [ffn, hidden],
                   at + "mlp.down_proj.weight": [hidden, ffn], **{at + name: dims for name, dims in (of_layers or {}).items()}}
    source, tensors = random.Random(seed), {}
    for name, shape in shapes.items():
        ones = "norm" in name  # factors
        tensors[name] = (shape, [1.0] * shape[0] if ones else random_numbers(source, shape, deviation, distinct))
    write_tensors(folder / "model.safetensors", tensors)
    return folder


def random_numbers(source, shape, deviation, distinct=None):
    """distinct: they repeat after so many."""
    count = math.prod(shape)
    some = [source.gauss(0, deviation) for _ in range(min(count, distinct or count))]
    return (some * -(-count // len(some)))[:count]


def make_gpt2(folder, seed=5, width=16, layers=1, heads=2, context=64, deviation=0.4, distinct=None):
    """A folder of GPT-2, without a tokenizer; returns its tensors."""
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_layer": layers, "n_head": heads,
              "n_positions": context, "vocab_size": 262, "eos_token_id": 0, "tie_word_embeddings": True}
    shapes = {"wte.weight": [262, width], "wpe.weight": [context, width], "ln_f.weight": [width], "ln_f.bias": [width]}
    for i in range(layers):
        for name, dims in {"ln_1": [width], "attn.c_attn": [width, 3 * width], "attn.c_proj": [width, width], "ln_2": [width],
                           "mlp.c_fc": [width, 4 * width], "mlp.c_proj": [4 * width, width]}.items():
            shapes |= {f"h.{i}.{name}.weight": dims, f"h.{i}.{name}.bias": dims[-1:]}
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    source = random.Random(seed)
    tensors = {f"transformer.{name}": (dims, random_numbers(source, dims, deviation, distinct)) for name, dims in shapes.items()}
    write_tensors(folder / "model.safetensors", tensors)
    return tensors
