# SPDX-License-Identifier: Apache-2.0
"""Adapters in the layout of PEFT, without its package: a change of zeros changes no logit, known factors change the
logits as the merged weights do, and what tenon does not know is refused by name.

lora.py TENON LLM_PROBE"""
import array, json, pathlib, random, shutil, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import tiny_model
from tiny_model import make_gpt2, random_numbers, read_tensors, write_tensors

TENON, PROBE = sys.argv[1:3]
HIDDEN, FFN, RANK, ALPHA = 32, 48, 4, 6
SHAPES = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.v_proj": (HIDDEN // 2, HIDDEN),
          "mlp.down_proj": (HIDDEN, FFN)}  # [out, in]
MODULES = {f"model.layers.{i}.{name}": shape for i in range(2) for name, shape in SHAPES.items()}
failures = []


def check(what, good, more=""):
    if not good:
        failures.append(what)
        print(f"FAIL {what} {more}", flush=True)


def write_adapter(folder, factors, **keys):
    """factors: module -> (A, B), lists of rows."""
    folder.mkdir()
    tensors = {}
    for module, (a, b) in factors.items():
        for name, rows in (("lora_A", a), ("lora_B", b)):
            tensors[f"base_model.model.{module}.{name}.weight"] = ([len(rows), len(rows[0])], sum(rows, []))
    write_tensors(folder / "adapter_model.safetensors", tensors)
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA,
              "target_modules": sorted({m.rsplit(".", 1)[1] for m in factors}), "bias": "none", "peft_version": "0.18.0"}
    (folder / "adapter_config.json").write_text(json.dumps(config | keys))
    return folder


def matrix(source, rows, columns, deviation):
    return [[source.gauss(0, deviation) for _ in range(columns)] for _ in range(rows)]


def logits(at, model, *options, products="f32"):
    out = at / "logits"
    (at / "ids").write_text(" ".join(map(str, range(97, 123))))
    done = subprocess.run([PROBE, model, at / "ids", out, "cpu", "prefill", "--cache", "f32", "--products", products, *options],
                          capture_output=True, text=True)
    check(f"logits with {options}", done.returncode == 0, done.stderr)
    return array.array("f", out.read_bytes())


def differ(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def refused(model, adapter, *words):
    done = subprocess.run([TENON, "llm", "run", model, "--device", "cpu", "--ids", "97", "--tokens", "1", "--lora", adapter],
                          capture_output=True, text=True)
    check(f"refused: {words}", done.returncode not in (0, -6, -11) and all(w in done.stderr for w in words), done.stderr)


def changed(folder, source, **change):
    """A copy of an adapter with other keys."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "adapter_config.json").read_text()) | change
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def merged(folder, model, factors, scale):
    """A copy of the model whose weights have the changes."""
    shutil.copytree(model, folder)
    tensors = read_tensors(folder / "model.safetensors")
    for module, (a, b) in factors.items():
        (out, width), numbers = tensors[module + ".weight"]
        for o in range(out):
            for i in range(width):
                numbers[o * width + i] += scale * sum(b[o][r] * a[r][i] for r in range(RANK))
    write_tensors(folder / "model.safetensors", tensors)
    return folder


def gpt2(at):
    """Its folders have [in, out]. fan_in_fan_out says so, but the model decides, as with PEFT: a file that contradicts it, and a
    model of the other kind with it, is read as if it did not."""
    source, model = random.Random(5), at / "gpt2"
    weights = make_gpt2(model)
    shutil.copy(at / "model" / "tokenizer.json", model)
    factors = {}
    for name in ("attn.c_attn", "mlp.c_proj"):
        i, o = weights[f"transformer.h.0.{name}.weight"][0]
        factors[f"transformer.h.0.{name}"] = (matrix(source, RANK, i, 0.3), matrix(source, o, RANK, 0.3))
    for module, (a, b) in factors.items():
        (i, o), numbers = weights[module + ".weight"]
        for k in range(i):
            for n in range(o):
                numbers[k * o + n] += ALPHA / RANK * sum(b[n][r] * a[r][k] for r in range(RANK))
    whole = at / "gpt2_whole"
    shutil.copytree(model, whole)
    write_tensors(whole / "model.safetensors", weights)
    expected = logits(at, whole)
    check("gpt2: a change is seen", differ(expected, logits(at, model)) > 0.1)
    for fan in (True, False):
        adapter = write_adapter(at / f"gpt2_{fan}", factors, fan_in_fan_out=fan)
        check(f"gpt2: fan_in_fan_out {fan}", differ(logits(at, model, "--lora", adapter), expected) < 1e-4)
        for target in (at / f"gpt2_{fan}.gguf", at / f"gpt2_{fan}_merged"):
            done = subprocess.run([TENON, "llm", "convert", model, target, "--lora", adapter], capture_output=True, text=True)
            check(f"gpt2: convert to {target.name}", done.returncode == 0, done.stderr)
            check(f"gpt2: merged in {target.name}", differ(logits(at, target), expected) < 1e-4)
    # What tenon learns says what PEFT would say.
    (at / "data.txt").write_text("learn this text. " * 40)
    done = subprocess.run([TENON, "llm", "tune", model, "--data", at / "data.txt", "--output", at / "gpt2_tuned", "--steps", "1",
                           "--device", "cpu"], capture_output=True, text=True)
    check("gpt2: tune", done.returncode == 0, done.stderr)
    tuned = at / "gpt2_tuned" / "adapter_config.json"
    check("gpt2: fan_in_fan_out of a new adapter", tuned.exists() and json.loads(tuned.read_text())["fan_in_fan_out"] is True)


def neox(at):
    """One product for q, k and v, whose rows GGUF has in another order: adapters have those of the folder."""
    source, width, ffn, vocabulary = random.Random(6), 32, 48, 262
    config = {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": width, "intermediate_size": ffn,
              "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 64, "vocab_size": vocabulary,
              "rotary_pct": 0.5, "eos_token_id": 0, "bos_token_id": 0, "tie_word_embeddings": False}
    products = {"attention.query_key_value": (3 * width, width), "attention.dense": (width, width),
                "mlp.dense_h_to_4h": (ffn, width), "mlp.dense_4h_to_h": (width, ffn)}
    shapes = {"gpt_neox.embed_in.weight": [vocabulary, width], "embed_out.weight": [vocabulary, width]}
    for name in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "final_layer_norm"):
        shapes |= {f"gpt_neox.{name}.{end}": [width] for end in ("weight", "bias")}
    for name, (o, i) in products.items():
        shapes |= {f"gpt_neox.layers.0.{name}.weight": [o, i], f"gpt_neox.layers.0.{name}.bias": [o]}
    model = at / "neox"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config))
    shutil.copy(at / "model" / "tokenizer.json", model)
    write_tensors(model / "model.safetensors",
                  {name: (dims, random_numbers(source, dims, 0.4)) for name, dims in shapes.items()})
    gguf = at / "neox.gguf"
    done = subprocess.run([TENON, "llm", "convert", model, gguf, "--type", "F32"], capture_output=True, text=True)
    check("neox: converted", done.returncode == 0, done.stderr)
    factors = {f"gpt_neox.layers.0.{name}": (matrix(source, RANK, i, 0.3), matrix(source, o, RANK, 0.3))
               for name, (o, i) in products.items()}
    adapter = write_adapter(at / "neox_adapter", factors)
    expected = logits(at, model, "--lora", adapter)
    check("neox: a change is seen", differ(expected, logits(at, model)) > 0.1)
    check("neox: as the merged weights", differ(expected, logits(at, merged(at / "neox_full", model, factors, ALPHA / RANK))) < 1e-4)
    check("neox: an adapter with GGUF", differ(logits(at, gguf, "--lora", adapter), expected) < 1e-4)
    back = at / "neox_back"
    done = subprocess.run([TENON, "llm", "convert", gguf, back, "--lora", adapter], capture_output=True, text=True)
    check("neox: converted back", done.returncode == 0, done.stderr)
    check("neox: merged on the way back", differ(logits(at, back), expected) < 1e-4)
    # The same training from both has the same names, and nearly the same numbers.
    (at / "data.txt").write_text("learn this text. " * 40)
    tuned = []
    for name in ("neox", "neox.gguf"):
        out = at / f"tuned_{name}"
        done = subprocess.run([TENON, "llm", "tune", at / name, "--data", at / "data.txt", "--output", out, "--steps", "4",
                               "--rank", str(RANK), "--learning-rate", "1e-2", "--device", "cpu"], capture_output=True, text=True)
        check(f"neox: tune {name}", done.returncode == 0, done.stderr)
        tuned.append(read_tensors(out / "adapter_model.safetensors"))
    check("neox: all products learn", sorted({n.split(".lora_")[0].removeprefix("base_model.model.") for n in tuned[0]}) == sorted(factors))
    check("neox: the same products of GGUF", tuned[0].keys() == tuned[1].keys(), tuned[1].keys())
    off = [differ(tuned[0][n][1], tuned[1][n][1]) for n in tuned[0].keys() & tuned[1].keys()]
    check("neox: the same numbers of GGUF", max(off) < 1e-3, max(off))


def falcon_h1(at):
    """Files of GGUF have the factors of the model in their weights, which adapters do not: an adapter of a folder fits no file, nor
    one of a file the folder, and both are refused. A folder that was a file has no factors."""
    source, width, ffn, vocabulary, mixer = random.Random(7), 32, 48, 262, 32
    config = {"model_type": "falcon_h1", "architectures": ["FalconH1ForCausalLM"], "hidden_size": width, "intermediate_size": ffn,
              "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
              "vocab_size": vocabulary, "eos_token_id": 0, "tie_word_embeddings": False, "mamba_d_ssm": mixer, "mamba_n_heads": 4,
              "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_norm_before_gate": False,
              "mamba_rms_norm": False, "key_multiplier": 0.5, "attention_out_multiplier": 0.75, "mlp_multipliers": [0.8, 0.5],
              "ssm_multipliers": [0.9, 1.2, 0.8, 1.1, 0.7], "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.75}
    products = {"mamba.in_proj": (2 * mixer + 2 * 8 + 4, width), "mamba.out_proj": (width, mixer), "self_attn.q_proj": (width, width),
                "self_attn.k_proj": (width // 2, width), "self_attn.v_proj": (width // 2, width), "self_attn.o_proj": (width, width),
                "feed_forward.gate_proj": (ffn, width), "feed_forward.up_proj": (ffn, width), "feed_forward.down_proj": (width, ffn)}
    parts = {"input_layernorm.weight": [width], "pre_ff_layernorm.weight": [width], "mamba.A_log": [4], "mamba.D": [4],
             "mamba.dt_bias": [4], "mamba.conv1d.weight": [mixer + 2 * 8, 1, 4], "mamba.conv1d.bias": [mixer + 2 * 8]}
    shapes = {"model.embed_tokens.weight": [vocabulary, width], "lm_head.weight": [vocabulary, width],
              "model.final_layernorm.weight": [width]}
    shapes |= {f"model.layers.0.{name}": dims for name, dims in parts.items()}
    shapes |= {f"model.layers.0.{name}.weight": list(dims) for name, dims in products.items()}
    model, gguf = at / "falcon", at / "falcon.gguf"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config))
    shutil.copy(at / "model" / "tokenizer.json", model)
    write_tensors(model / "model.safetensors",
                  {name: (dims, random_numbers(source, dims, 0.4)) for name, dims in shapes.items()})

    def tenon(what, *words, fails=None):
        done = subprocess.run([TENON, "llm", *words], capture_output=True, text=True)
        good = done.returncode == 0 if fails is None else done.returncode == 1 and fails in done.stderr
        check(f"falcon_h1: {what}", good, done.stderr)

    tenon("converted", "convert", model, gguf, "--type", "F32")
    factors = {f"model.layers.0.{name}": (matrix(source, RANK, i, 0.3), matrix(source, o, RANK, 0.3))
               for name, (o, i) in products.items()}
    adapter = write_adapter(at / "falcon_adapter", factors, base_model_name_or_path="tiiuae/Falcon-H1")
    expected = logits(at, model, "--lora", adapter)
    check("falcon_h1: a change is seen", differ(expected, logits(at, model)) > 0.1)
    check("falcon_h1: as the merged weights",
          differ(expected, logits(at, merged(at / "falcon_full", model, factors, ALPHA / RANK))) < 1e-4)
    refused(gguf, adapter, "base_model_name_or_path", "expected a GGUF file")
    tenon("merged on the way", "convert", model, at / "falcon_merged.gguf", "--type", "F32", "--lora", adapter)
    check("falcon_h1: merged in a file", differ(logits(at, at / "falcon_merged.gguf"), expected) < 1e-4)
    tenon("not merged into a file", "convert", gguf, at / "falcon_wrong", "--lora", adapter, fails="expected a GGUF file")

    (at / "data.txt").write_text("learn this text. " * 40)
    of_file = at / "falcon_tuned"
    tenon("tune a file", "tune", gguf, "--data", at / "data.txt", "--output", of_file, "--steps", "4", "--rank", str(RANK),
          "--learning-rate", "1e-2", "--device", "cpu")
    expected = logits(at, gguf, "--lora", of_file)
    check("falcon_h1: the file has learned", differ(expected, logits(at, gguf)) > 0.1)
    shutil.copy(gguf, at / "falcon_file")
    tenon("a name that tells nothing", "tune", at / "falcon_file", "--data", at / "data.txt", "--output", at / "falcon_none",
          "--device", "cpu", fails="ends with .gguf")
    refused(model, of_file, "base_model_name_or_path", "expected no GGUF file")
    tenon("not merged into the folder", "convert", model, at / "falcon_wrong.gguf", "--lora", of_file, fails="expected no GGUF file")
    tenon("not merged into a plain folder", "convert", model, at / "falcon_plain", "--lora", of_file, fails="expected no GGUF file")
    tenon("merged on the way back", "convert", gguf, at / "falcon_back", "--lora", of_file)
    check("falcon_h1: merged in a folder", differ(logits(at, at / "falcon_back"), expected) < 1e-4)
    tenon("back", "convert", gguf, at / "falcon_unchanged")
    check("falcon_h1: a folder without factors", differ(logits(at, at / "falcon_unchanged", "--lora", of_file), expected) < 1e-4)


def names_of_image_models(at, model, known, expected):
    """Models that read images have the language model as a part. Adapters of them have its name in those of modules, patterns
    match the whole names, and what changes the other parts has no meaning here."""
    seen = {"model.vision_tower.blocks.0.attn.q_proj": known["model.layers.0.self_attn.q_proj"],
            "model.visual.blocks.0.mlp.down_proj": known["model.layers.0.mlp.down_proj"]}
    for prefix in ("model.language_model.", "language_model.model.", "model.language_model.model.", "model.text_model.",
                   "language_model."):  # the last one: of a base model
        factors = {prefix + m.removeprefix("model."): f for m, f in known.items()}
        name = prefix.replace(".", "_")
        adapter = write_adapter(at / name, factors | seen)
        check(f"names with {prefix}", logits(at, model, "--lora", adapter) == expected)
        scales = {f"{prefix}layers.*": ALPHA / 2, "visual.*": 0}
        half = changed(at / f"{name}half", adapter, alpha_pattern=scales)
        check(f"patterns with {prefix}", differ(logits(at, model, "--lora-half", adapter), logits(at, model, "--lora", half)) < 1e-4)
        done = subprocess.run([TENON, "llm", "convert", model, at / f"{name}.gguf", "--lora", adapter], capture_output=True, text=True)
        check(f"convert with {prefix}", done.returncode == 0, done.stderr)
        check(f"merged with {prefix}", differ(logits(at, at / f"{name}.gguf"), expected) < 1e-4)
    refused(model, write_adapter(at / "images_only", seen), "changes only what reads images")
    twice = write_adapter(at / "twice", known | {"model.language_model.layers.0.mlp.down_proj": known["model.layers.0.mlp.down_proj"]})
    refused(model, twice, "layers.0.mlp.down_proj", "twice")
    refused(model, write_adapter(at / "no_such_layer", {"model.language_model.layers.7.mlp.down_proj": known["model.layers.0.mlp.down_proj"]}),
            "model.language_model.layers.7.mlp.down_proj", "no product of this name")


def main():
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        model = tiny_model.make(at / "model")
        source = random.Random(3)
        known = {m: (matrix(source, RANK, i, 0.3), matrix(source, o, RANK, 0.3)) for m, (o, i) in MODULES.items()}
        zeros = {m: (a, [[0.0] * RANK for _ in b]) for m, (a, b) in known.items()}
        none, adapter = write_adapter(at / "zeros", zeros), write_adapter(at / "known", known)
        plain = logits(at, model)
        check("zeros change no logit", logits(at, model, "--lora", none) == plain)
        with_adapter = logits(at, model, "--lora", adapter)
        check("a change is seen", differ(with_adapter, plain) > 0.1)
        full = merged(at / "full", model, known, ALPHA / RANK)
        check("as the merged weights", differ(with_adapter, logits(at, full)) < 1e-4,
              differ(with_adapter, logits(at, full)))
        half = merged(at / "half", model, known, ALPHA / RANK / 2)
        check("half of it", differ(logits(at, model, "--lora-half", adapter), logits(at, half)) < 1e-4)
        check("twice a half", differ(logits(at, model, "--lora-half", adapter, "--lora-half", adapter), with_adapter) < 1e-4)
        root = changed(at / "rslora", adapter, use_rslora=True, lora_alpha=ALPHA / RANK ** 0.5)
        check("rslora", differ(logits(at, model, "--lora", root), with_adapter) < 1e-4)
        fan = changed(at / "fan", adapter, fan_in_fan_out=True)
        check("fan_in_fan_out of a Llama", logits(at, model, "--lora", fan) == with_adapter)
        names_of_image_models(at, model, known, with_adapter)
        gpt2(at)
        neox(at)
        falcon_h1(at)
        pattern = changed(at / "pattern", adapter, alpha_pattern={"layers.0.*": 0, "layers\\.1\\..*": 0})
        check("patterns of alpha", differ(logits(at, model, "--lora", pattern), plain) < 1e-6)

        # GGUF has the rows of q and k in another order than adapters. Weights in blocks equal a folder of what they decode to.
        for kind in ("F32", "Q8_0", "Q4_K_M"):
            gguf, decoded = at / f"{kind}.gguf", at / f"{kind}_decoded"
            for command in ([model, gguf, "--type", kind], [gguf, decoded, "--type", "F32"]):
                done = subprocess.run([TENON, "llm", "convert", *command], capture_output=True, text=True)
                check("converted", done.returncode == 0, done.stderr)
            check(f"{kind}: zeros", logits(at, gguf, "--lora", none) == logits(at, gguf))
            got = logits(at, gguf, "--lora", adapter)
            check(f"{kind}: known factors", differ(got, logits(at, decoded, "--lora", adapter)) < 1e-4)
            check(f"{kind}: a change is seen", differ(got, plain) > 0.1)

        def converted(*words):
            done = subprocess.run([TENON, "llm", "convert", *words], capture_output=True, text=True)
            check(f"converted {words}", done.returncode == 0, done.stderr)
            return words[1]

        whole = converted(model, at / "merged.gguf", "--lora", adapter)
        check("convert --lora to a file", differ(logits(at, whole), with_adapter) < 1e-4)
        half_gguf = converted(model, at / "half.gguf", "--lora", f"{adapter}:0.5")
        back = converted(half_gguf, at / "merged_back", "--lora", f"{adapter}:0.25", "--lora", f"{adapter}:0.25")
        check("convert --lora to a folder", differ(logits(at, back), with_adapter) < 1e-4)
        done = subprocess.run([TENON, "llm", "convert", model, at / "bad.gguf", "--lora", write_adapter(
            at / "no_layer", {"model.layers.7.self_attn.q_proj": known["model.layers.0.self_attn.q_proj"]})],
            capture_output=True, text=True)
        check("convert refuses what the model has not", done.returncode == 1 and "model.layers.7" in done.stderr and
              not (at / "bad.gguf").exists(), done.stderr)

        for key, value in (("use_dora", True), ("lora_bias", True), ("modules_to_save", ["lm_head"]),
                           ("init_lora_weights", "pissa"), ("bias", "all"), ("peft_type", "IA3"),
                           ("layer_replication", [[0, 2]]), ("a_key_of_tomorrow", 3)):
            refused(model, changed(at / f"refused_{key}", adapter, **{key: value}), key)
        refused(model, changed(at / "rank", adapter, r=RANK + 1), "lora_A.weight", "expected [5, 32]", "got [4, 32]")
        refused(model, changed(at / "targets", adapter, target_modules=["q_proj", "v_proj"]), "down_proj", "target_modules")
        refused(model, changed(at / "more", adapter, target_modules=["q_proj", "v_proj", "down_proj", "x_proj"]), "'x_proj'")
        refused(model, write_adapter(at / "other", {"model.layers.7.self_attn.q_proj": known["model.layers.0.self_attn.q_proj"]}),
                "model.layers.7.self_attn.q_proj", "no product")
        refused(model, at / "nowhere", "adapter_config.json", "no such file")
        refused(model, f"{adapter}:half", "--lora", "a number")
    if failures:
        sys.exit(f"{len(failures)} failed")
    print("ok")


main()
