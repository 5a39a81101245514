#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gguf.py TENON: tenon llm convert of a small folder to GGUF and back, what tenon inspect prints of the file, and what the
command says about folders and files that it does not convert."""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

TENON = sys.argv[1]
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 32,
          "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2}
SHAPES = {"model.embed_tokens.weight": [32, 64], "model.norm.weight": [64], "lm_head.weight": [32, 64],
          "model.layers.0.input_layernorm.weight": [64], "model.layers.0.post_attention_layernorm.weight": [64],
          "model.layers.0.self_attn.q_proj.weight": [64, 64], "model.layers.0.self_attn.k_proj.weight": [32, 64],
          "model.layers.0.self_attn.v_proj.weight": [32, 64], "model.layers.0.self_attn.o_proj.weight": [64, 64],
          "model.layers.0.mlp.gate_proj.weight": [96, 64], "model.layers.0.mlp.up_proj.weight": [96, 64],
          "model.layers.0.mlp.down_proj.weight": [64, 96]}


def run(*words, fails=False):
    done = subprocess.run([TENON, *map(str, words)], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if fails else done.stdout


def expect(text, *parts):
    for part in parts:
        assert part in text, f"expected '{part}' in:\n{text}"


def write_folder(folder, config, shapes, dtype="F32"):
    folder.mkdir()
    rng, header, data = random.Random(1), {}, b""
    for name, dims in shapes.items():
        count = 1
        for d in dims:
            count *= d
        content = struct.pack(f"<{count}f", *(rng.uniform(-1, 1) for _ in range(count))) if dtype == "F32" else bytes(count)
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(config))


def read_folder(folder):
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (e["dtype"], e["shape"], data[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]])
            for name, e in header.items()}


def there_and_back(folder):
    write_folder(folder / "hf", CONFIG, SHAPES)
    expect(run("llm", "convert", folder / "hf", folder / "m.gguf"), "wrote", "12 tensors")
    text = run("inspect", folder / "m.gguf")
    expect(text, "GGUF version 3", 'general.architecture = "llama"', "llama.block_count = 1",
           "llama.attention.layer_norm_rms_epsilon = 1e-05", "llama.attention.head_count_kv = 2", "12 tensors")
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith("  ")}
    assert rows["blk.0.ffn_down.weight"][:2] == ["F32", "[64,96]"], rows["blk.0.ffn_down.weight"]
    run("llm", "convert", folder / "m.gguf", folder / "back")
    first, last = read_folder(folder / "hf"), read_folder(folder / "back")
    assert first == last, [k for k in first if first[k] != last.get(k)]
    config = json.loads((folder / "back/config.json").read_text())
    different = {k for k in CONFIG if config.get(k) != CONFIG[k]} - {"bos_token_id", "eos_token_id"}
    assert not different, different

    # Rows of 64 and 96 take blocks of 32, where the mix asks for 256.
    run("llm", "convert", folder / "hf", folder / "q.gguf", "--type", "Q4_K_M", "--threads", 3)
    text = run("inspect", folder / "q.gguf")
    expect(text, "general.file_type = 15")
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith("  ")}
    got = {name: rows[name][0] for name in rows if name.endswith(".weight")}
    assert got["blk.0.attn_q.weight"] == "Q5_0" and got["output.weight"] == "Q8_0" and got["output_norm.weight"] == "F32", got
    first_threads = (folder / "q.gguf").read_bytes()
    run("llm", "convert", folder / "hf", folder / "q.gguf", "--type", "Q4_K_M", "--threads", 1)
    assert (folder / "q.gguf").read_bytes() == first_threads, "the number of threads changes the file"
    run("llm", "convert", folder / "q.gguf", folder / "half")
    assert {t[0] for t in read_folder(folder / "half").values()} == {"F16"}


def refusals(folder):
    def folder_with(name, config=None, shapes=None, dtype="F32"):
        write_folder(folder / name, {**CONFIG, **(config or {})}, SHAPES if shapes is None else shapes, dtype)
        return folder / name

    def refused(path, *parts, words=()):
        expect(run("llm", "convert", path, folder / "out.gguf", *words, fails=True), *parts)
        left = [p for p in os.listdir(folder) if p.startswith("out")]
        assert not left, left

    refused(folder_with("type", {"model_type": "bert"}), "config.json: model_type 'bert' cannot be converted; expected llama,")
    refused(folder_with("missing", shapes={k: v for k, v in SHAPES.items() if "up_proj" not in k}),
            "tensor 'model.layers.0.mlp.up_proj.weight' is missing")
    refused(folder_with("extra", shapes={**SHAPES, "model.layers.0.extra.weight": [1]}),
            "tensor 'model.layers.0.extra.weight' has no name in GGUF for model_type 'llama'")
    refused(folder_with("dtype", dtype="I8"), "is i8[32,64]; expected f32, f16 or bf16")
    refused(folder_with("heads", {"num_attention_heads": 5}), "q_proj.weight': 64 rows; expected a multiple of 2 * 5 heads")
    refused(folder_with("layers", {"num_hidden_layers": 1 << 20}), "'num_hidden_layers' is 1048576; expected at most 4096")
    refused(folder_with("text", {"hidden_size": "64"}), "'hidden_size' has the wrong type, 'string'")
    refused(folder_with("none", {"hidden_size": None}), "'hidden_size' is missing")
    refused(folder_with("rope", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
            "'rope_type': 'dynamic' has no form in GGUF")
    refused(folder_with("act", {"hidden_act": "relu"}), "'hidden_act': 'relu' has no form in GGUF")
    refused(folder_with("quantized", {"quantization_config": {"bits": 4}}), "'quantization_config': expected a folder that is")
    refused(folder / "nowhere", "nowhere")
    deep = folder_with("deep")
    (deep / "config.json").write_text('{"model_type": "llama", "rope_scaling": {"a": ' + "[" * 200000 + "]" * 200000 + "}}")
    refused(deep, "config.json: expected at most 200 nested lists and objects")
    refused(folder / "hf", "--type Q9: expected F32", words=("--type", "Q9"))
    (folder / "bad.gguf").write_bytes(b"GGUF" + bytes(20))
    expect(run("llm", "convert", folder / "bad.gguf", folder / "out", fails=True), "bad.gguf: GGUF version 0; expected 1 to 3")
    expect(run("inspect", folder / "bad.gguf", fails=True), "bad.gguf: GGUF version 0; expected 1 to 3")
    expect(run("inspect", folder / "m.gguf", "--bind", "N=1", fails=True), "--bind: applies to a graph")
    expect(run("llm", "convert", folder / "m.gguf", folder / "out", "--type", "Q8_0", fails=True), "expected F32, F16 or BF16")
    expect(run("llm", fails=True), "llm convert")
    expect(run("llm", "convrt", fails=True), "did you mean 'tenon llm convert'?")
    expect(run("help", "llm"), "llm convert")


with tempfile.TemporaryDirectory() as name:
    there_and_back(pathlib.Path(name))
    refusals(pathlib.Path(name))
print("passed")
