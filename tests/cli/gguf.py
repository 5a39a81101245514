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

    # A folder with a model is kept, and with --force replaced as a whole.
    kept = {file.name: file.read_bytes() for file in (folder / "half").iterdir()}
    for source in ("q.gguf", "hf"):
        expect(run("llm", "convert", folder / source, folder / "half", fails=True), "half: expected a new or empty folder",
               "config.json", "--force")
        assert {file.name: file.read_bytes() for file in (folder / "half").iterdir()} == kept
    for source in ("m.gguf", "hf"):
        for other in ("chat_template.jinja", "tokenizer.json"):
            (folder / "half" / other).write_text("of another model")
        run("llm", "convert", folder / source, folder / "half", "--force")
        assert {t[0] for t in read_folder(folder / "half").values()} == {"F32"}
        assert not [f for f in (folder / "half").iterdir() if f.name in ("chat_template.jinja", "tokenizer.json")]


IDS = {"bos_token_id": 1, "eos_token_id": 2, "vocab_size": 32}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 48,
        **IDS}
GPT2_SHAPES = {"wte.weight": [32, 32], "wpe.weight": [48, 32], "ln_f.weight": [32], "ln_f.bias": [32],
               **{f"h.0.{name}.{end}": dims if end == "weight" else dims[-1:]
                  for name, dims in {"ln_1": [32], "attn.c_attn": [32, 96], "attn.c_proj": [32, 32], "ln_2": [32],
                                     "mlp.c_fc": [32, 128], "mlp.c_proj": [128, 32]}.items() for end in ("weight", "bias")}}
MAMBA = {"model_type": "mamba", "architectures": ["MambaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 1, "state_size": 4,
         "intermediate_size": 64, "time_step_rank": 2, "layer_norm_epsilon": 1e-5, **IDS}
MAMBA_SHAPES = {"backbone.embeddings.weight": [32, 32], "backbone.norm_f.weight": [32], "backbone.layers.0.norm.weight": [32],
                **{f"backbone.layers.0.mixer.{name}": dims
                   for name, dims in {"in_proj.weight": [128, 32], "conv1d.weight": [64, 1, 4], "conv1d.bias": [64],
                                      "x_proj.weight": [10, 64], "dt_proj.weight": [64, 2], "dt_proj.bias": [64],
                                      "A_log": [64, 4], "D": [64], "out_proj.weight": [32, 64]}.items()}}
LATENT = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 32, "intermediate_size": 48,
          "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": None, "kv_lora_rank": 16,
          "qk_nope_head_dim": 12, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
          "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_shared_experts": 1, "n_group": 2, "topk_group": 1,
          "max_position_embeddings": 64, "num_nextn_predict_layers": 1, **IDS}
LATENT_SHAPES = {"model.embed_tokens.weight": [32, 32], "model.norm.weight": [32], "lm_head.weight": [32, 32],
                 "model.layers.2.eh_proj.weight": [32, 64]}  # the last one predicts a further token
for layer in range(2):
    at = f"model.layers.{layer}."
    LATENT_SHAPES |= {at + "input_layernorm.weight": [32], at + "post_attention_layernorm.weight": [32]}
    LATENT_SHAPES |= {f"{at}self_attn.{name}.weight": dims
                      for name, dims in {"q_proj": [32, 32], "kv_a_proj_with_mqa": [20, 32], "kv_a_layernorm": [16],
                                         "kv_b_proj": [40, 16], "o_proj": [32, 16]}.items()}
    feeds = {"mlp.": 48} if layer == 0 else {"mlp.shared_experts.": 16, **{f"mlp.experts.{e}.": 16 for e in range(4)}}
    for name, width in feeds.items():
        LATENT_SHAPES |= {f"{at}{name}gate_proj.weight": [width, 32], f"{at}{name}up_proj.weight": [width, 32],
                          f"{at}{name}down_proj.weight": [32, width]}
LATENT_SHAPES |= {"model.layers.1.mlp.gate.weight": [4, 32], "model.layers.1.mlp.gate.e_score_correction_bias": [4]}


def families(folder):
    """Other families: the same tensors come back, and the file answers as the folder does."""
    for config, shapes, tensors in ((GPT2, GPT2_SHAPES, {"blk.0.attn_qkv.weight": "[96,32]", "position_embd.weight": "[48,32]"}),
                                    (MAMBA, MAMBA_SHAPES, {"blk.0.ssm_conv1d.weight": "[64,4]", "blk.0.ssm_a": "[64,4]"}),
                                    (LATENT, LATENT_SHAPES, {"blk.0.attn_k_b.weight": "[2,16,12]",
                                                             "blk.0.attn_v_b.weight": "[2,8,16]",
                                                             "blk.1.ffn_up_exps.weight": "[4,16,32]"})):
        at = folder / config["model_type"]
        at.mkdir()
        write_folder(at / "hf", config, shapes)
        run("llm", "convert", at / "hf", at / "m.gguf")
        rows = {line.split()[0]: line.split()[1:] for line in run("inspect", at / "m.gguf").splitlines() if line.startswith("  ")}
        for name, dims in tensors.items():
            assert rows[name][:2] == ["F32", dims], (name, rows[name])
        run("llm", "convert", at / "m.gguf", at / "back")
        first, last = read_folder(at / "hf"), read_folder(at / "back")
        first = {("transformer." if config is GPT2 else "") + name: t for name, t in first.items() if "layers.2" not in name}
        assert first.keys() == last.keys(), first.keys() ^ last.keys()
        for name, (dtype, dims, data) in first.items():
            assert last[name][:2] == (dtype, dims), (name, last[name][:2])
            count = len(data) // 4
            pairs = zip(struct.unpack(f"<{count}f", data), struct.unpack(f"<{count}f", last[name][2]))
            near = 1e-6 if name.endswith("A_log") else 0  # a logarithm of an exponent
            assert all(abs(a - b) <= near for a, b in pairs), name
        answers = {run("llm", "run", at / which, "--ids", "3,7,11,30", "--greedy", "--tokens", 24, "--ignore-end", "--device",
                       "cpu") for which in ("hf", "m.gguf", "back")}
        assert len(answers) == 1 and answers.pop().count(",") == 23, answers


def words(folder):
    """A tokenizer of BERT."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "he", "##llo", ",", "é", "[x]", "##"]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": pieces[i], "special": True} for i in range(4)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": False},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {t: i for i, t in enumerate(pieces)}}}
    count = len(pieces)
    write_folder(folder / "words", {**CONFIG, "vocab_size": count},
                 {name: [count, *dims[1:]] if dims[0] == 32 and "layers" not in name else dims for name, dims in SHAPES.items()})
    (folder / "words/tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "words/tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]", "unk_token": "[UNK]"}))
    run("llm", "convert", folder / "words", folder / "words.gguf")
    text = run("inspect", folder / "words.gguf")
    expect(text, 'tokenizer.ggml.model = "bert"', "tokenizer.ggml.cls_token_id = 2", "tokenizer.ggml.seperator_token_id = 3",
           "tokenizer.ggml.unknown_token_id = 1", "tokenizer.ggml.padding_token_id = 0",
           "tokenizer.ggml.normalizer.lowercase = false", "tokenizer.ggml.add_sep_token = true")
    data = (folder / "words.gguf").read_bytes()
    (folder / "other.gguf").write_bytes(data.replace(b"tokenizer.huggingface.json", b"tokenizer.huggingface.none"))
    run("llm", "convert", folder / "other.gguf", folder / "built")
    built = json.loads((folder / "built/tokenizer.json").read_text())
    for key in ("pre_tokenizer", "decoder"):
        assert built[key] == tokenizer[key], built[key]
    assert built["model"] == tokenizer["model"], built["model"]
    assert built["normalizer"] == {**tokenizer["normalizer"], "strip_accents": False}, built["normalizer"]
    special = lambda token: {"SpecialToken": {"id": token, "type_id": 0}}
    assert built["post_processor"]["single"] == [special("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, special("[SEP]")]
    assert built["post_processor"]["special_tokens"]["[SEP]"]["ids"] == [3]
    settings = json.loads((folder / "built/tokenizer_config.json").read_text())
    assert (settings["cls_token"], settings["sep_token"], settings["pad_token"]) == ("[CLS]", "[SEP]", "[PAD]"), settings
    # The answers to a text show its ids.
    prompt = ("--raw", "--prompt", "hello, Hello é hehello", "--greedy", "--tokens", 8, "--device", "cpu", "--ignore-end")
    answers = {run("llm", "run", folder / which, *prompt) for which in ("words", "words.gguf", "other.gguf", "built")}
    assert len(answers) == 1, answers
    for change, message in (({"normalizer": None}, "'normalizer': expected a BertNormalizer"),
                            ({"pre_tokenizer": {"type": "Whitespace"}}, "'pre_tokenizer': expected a BertPreTokenizer"),
                            ({"model": {**tokenizer["model"], "continuing_subword_prefix": "@@"}}, "expected '##'"),
                            ({"model": {"type": "WordLevel", "vocab": {}}}, "expected BPE or WordPiece")):
        (folder / "words/tokenizer.json").write_text(json.dumps({**tokenizer, **change}))
        expect(run("llm", "convert", folder / "words", folder / "no.gguf", fails=True), "tokenizer.json", message)


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
    refused(folder_with("dtype", dtype="I8"), "is i8[32, 64]; expected f32, f16 or bf16")
    refused(folder_with("heads", {"num_attention_heads": 5}), "q_proj.weight': 64 rows; expected a multiple of 2 * 5 heads")
    refused(folder_with("layers", {"num_hidden_layers": 1 << 20}), "'num_hidden_layers' is 1048576; expected at most 4096")
    refused(folder_with("text", {"hidden_size": "64"}), "'hidden_size' has the wrong type, 'string'")
    refused(folder_with("none", {"hidden_size": None}), "'hidden_size' is missing")
    refused(folder_with("rope", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
            "'rope_type': 'dynamic' has no form in GGUF")
    refused(folder_with("act", {"hidden_act": "relu"}), "'hidden_act': 'relu' has no form in GGUF")
    refused(folder_with("quantized", {"quantization_config": {"bits": 4}}), "quantization_config: 'quant_method' is missing")
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
    families(pathlib.Path(name))
    words(pathlib.Path(name))
    refusals(pathlib.Path(name))
print("passed")
