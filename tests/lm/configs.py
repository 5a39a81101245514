# SPDX-License-Identifier: Apache-2.0
"""configs.py TENON PROBE [COUNT]: folders that Hugging Face transformers writes, of random and of chosen configurations. Each gives
the logits of transformers, or is refused with a message that names a key or a weight; none gives others. Also: what lm train writes
after --config is read by transformers as the same model. Exits with 77 (skip) where torch or transformers is absent."""
import json, pathlib, random, subprocess, sys, tempfile

try:
    import numpy as np, torch, transformers
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TENON, PROBE = sys.argv[1:3]
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 24
LENGTH = 40
BASE = dict(vocab_size=256, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
failures = 0
tally = {"agree": 0, "refused": 0}


def check(name, good, said=""):
    global failures
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {name}{': ' + str(said) if said != '' else ''}", flush=True)


def model_of(kind, seed, **config):
    torch.manual_seed(seed)
    config = getattr(transformers, kind + "Config")(**{**BASE, **config})
    model = getattr(transformers, kind + "ForCausalLM")(config).eval().float()
    with torch.no_grad():  # large enough that everything tells in the logits
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.dim() > 1 else 0.2) + (1.0 if "norm" in name and name.endswith("weight") else 0.0))
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float().numpy()


def compare(name, folder, model, refused=None):
    """refused: a word that the refusal must say; None: the logits must agree."""
    tokens = [random.Random(name).randrange(256) for _ in range(LENGTH)]
    text, out = folder / "text", folder / "logits"
    text.write_bytes(bytes(tokens))
    done = subprocess.run([PROBE, str(folder), str(text), str(out), "cpu"], capture_output=True, text=True)
    if refused is not None:
        tally["refused"] += 1
        check(f"{name}: refused", done.returncode == 1 and refused in done.stderr, done.stderr.strip()[-160:].replace(str(folder), ""))
        return
    tally["agree"] += 1
    if done.returncode:
        return check(name, False, done.stderr.strip())
    ours, theirs = np.fromfile(out, np.float32).reshape(LENGTH, 256), logits_of(model, tokens)
    apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
    check(name, apart < 2e-4, f"{apart:.1e}")


def changed(folder, **keys):
    """The config.json with other keys; None takes one away."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    for key, value in keys.items():
        config[key] = value
        if value is None:
            del config[key]
    file.write_text(json.dumps(config))


def random_config(r):
    config = dict(num_attention_heads=r.choice([2, 4]), num_hidden_layers=r.choice([1, 2]), rms_norm_eps=r.choice([1e-6, 1e-5, 1e-3]),
                  tie_word_embeddings=r.random() < 0.5, attention_bias=r.random() < 0.5, mlp_bias=r.random() < 0.5,
                  hidden_act=r.choice(["silu", "silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "swish", "sigmoid", "tanh", "mish"]),
                  intermediate_size=r.choice([40, 56]), max_position_embeddings=r.choice([40, 64]))
    config["num_key_value_heads"] = r.choice([h for h in (1, 2, 4) if config["num_attention_heads"] % h == 0])
    if r.random() < 0.4:
        config["head_dim"] = r.choice([4, 6, 24])
    theta = r.choice([100.0, 10000.0, 500000.0])
    config["rope_parameters"] = r.choice([dict(rope_type="default", rope_theta=theta), dict(rope_type="linear", rope_theta=theta, factor=r.choice([1.5, 4.0])),
                                          {**LLAMA3, "rope_theta": theta, "factor": r.choice([2.0, 8.0])}])
    return config


def llamas(work):
    r = random.Random(7)
    chosen = {"plain": {}, "theta": dict(rope_parameters=dict(rope_type="default", rope_theta=777.0)),
              "linear": dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=3.0)), "llama3": dict(rope_parameters=LLAMA3),
              "attention bias": dict(attention_bias=True), "mlp bias": dict(mlp_bias=True), "gelu": dict(hidden_act="gelu"),
              "head dim": dict(head_dim=24), "tied": dict(tie_word_embeddings=True)}
    for i in range(COUNT):
        chosen[f"random {i}"] = random_config(r)
    for i, (name, config) in enumerate(chosen.items()):
        folder = work / f"llama{i}"
        model = model_of("Llama", i, **config)
        model.save_pretrained(folder)
        compare(name, folder, model)
    for name, rope, word in (("dynamic", dict(rope_type="dynamic", rope_theta=1e4, factor=2.0), "dynamic"),
                             ("yarn", dict(rope_type="yarn", rope_theta=1e4, factor=2.0, original_max_position_embeddings=32), "yarn"),
                             ("longrope", dict(rope_type="longrope", rope_theta=1e4, factor=2.0, original_max_position_embeddings=32,
                                               short_factor=[1.0] * 4, long_factor=[2.0] * 4), "longrope")):
        folder = work / name
        model_of("Llama", 1, rope_parameters=rope).save_pretrained(folder)
        compare(name, folder, None, refused=word)
    for act in ("quick_gelu", "relu6", "leaky_relu", "laplace"):
        folder = work / act
        model_of("Llama", 1, hidden_act=act).save_pretrained(folder)
        compare(act, folder, None, refused="hidden_act")


def edited(work):
    """Keys as older versions wrote them, and keys that do not belong."""
    def case(name, refused=None, config={}, weights=None, **keys):
        folder = work / name.replace(" ", "_")
        model = model_of("Llama", 3, **config)
        model.save_pretrained(folder)
        changed(folder, **keys)
        if weights:
            file = folder / "model.safetensors"
            tensors = load_file(file)
            weights(tensors)
            save_file(tensors, file, metadata={"format": "pt"})
        if refused is None:  # what transformers itself makes of the folder
            model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        compare(name, folder, model, refused)

    case("the old rope_theta", rope_parameters=None, rope_theta=333.0)
    case("the old linear", rope_parameters=None, rope_theta=333.0, rope_scaling={"type": "linear", "factor": 2.5})
    case("the old llama3", rope_parameters=None, rope_theta=333.0, rope_scaling={k: v for k, v in LLAMA3.items() if k != "rope_theta"})
    case("no rope keys at all", rope_parameters=None)
    case("no rms_norm_eps", rms_norm_eps=None)
    case("no num_key_value_heads", config=dict(num_key_value_heads=4), num_key_value_heads=None)
    case("no head_dim", head_dim=None)
    case("no hidden_act", hidden_act=None)
    case("no dtype", dtype=None)
    case("two thetas that differ", "rope_theta", rope_theta=333.0)
    case("a partial rotation", "partial_rotary_factor", rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5})
    case("a partial rotation on top", "partial_rotary_factor", partial_rotary_factor=0.5)
    case("a sliding window", "sliding_window", sliding_window=8)
    case("soft caps", "final_logit_softcapping", final_logit_softcapping=30.0)
    case("a multiplier", "logits_scaling", logits_scaling=8.0)
    case("quantized", "quantization_config", quantization_config={"quant_method": "gptq", "bits": 4})
    case("other layers", "layer_types", layer_types=["sliding_attention", "full_attention"])
    case("a scaling with foreign keys", "mrope_section", rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 2, 3]})
    case("rope per layer", "full_attention", rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e4}})
    case("another architecture", "architectures", architectures=["LlamaForSequenceClassification"])
    case("another vocabulary", "vocab_size", config=dict(vocab_size=300))
    case("half precision", "dtype", dtype="float16")
    case("bias without its key", "_proj.bias", config=dict(attention_bias=True), attention_bias=None)
    case("a key without its bias", "gate_proj.bias", mlp_bias=True)
    case("tied with a head of its own", "lm_head.weight", tie_word_embeddings=True)
    case("untied without a head", "lm_head.weight", config=dict(tie_word_embeddings=True), tie_word_embeddings=False)
    case("a surplus weight", "q_norm", weights=lambda t: t.update({"model.layers.0.self_attn.q_norm.weight": torch.ones(8)}))
    case("a surplus layer", "layers.1", num_hidden_layers=1)


def others(work):
    for kind, config in {"Mistral": dict(sliding_window=8), "Qwen2": {}, "Qwen3": dict(head_dim=8), "Gemma": dict(head_dim=8), "Gemma2": dict(head_dim=8),
                         "Granite": dict(logits_scaling=4.0), "Olmo2": {}, "Phi3": dict(pad_token_id=0), "StableLm": {}, "Cohere": {}, "Starcoder2": {}}.items():
        if not hasattr(transformers, kind + "ForCausalLM"):
            continue
        folder = work / kind
        try:
            model_of(kind, 5, **config).save_pretrained(folder)
        except Exception as e:
            print(f"--  {kind}: not made by this version: {e}")
            continue
        compare(kind, folder, None, refused="model_type")
        changed(folder, model_type="llama", architectures=["LlamaForCausalLM"])
        text = folder / "text"
        text.write_bytes(b"a" * LENGTH)
        done = subprocess.run([PROBE, str(folder), str(text), str(folder / "logits"), "cpu"], capture_output=True, text=True)
        print(f"--  {kind} said to be llama: {'taken' if done.returncode == 0 else done.stderr.strip()[-120:]}")


def written_back(work):
    """--config, a step of training, and transformers reads the same model."""
    for i, config in enumerate(({}, dict(attention_bias=True, mlp_bias=True, hidden_act="gelu", head_dim=24, rms_norm_eps=1e-3),
                                dict(rope_parameters=LLAMA3, tie_word_embeddings=True),
                                dict(rope_parameters=dict(rope_type="linear", rope_theta=50.0, factor=2.0), initializer_range=0.1))):
        source, out = work / f"source{i}", work / f"out{i}"
        transformers.LlamaConfig(**{**BASE, **config}).save_pretrained(source)
        changed(source, architectures=["LlamaForCausalLM"])
        done = subprocess.run([TENON, "lm", "train", "--text", "/usr/share/common-licenses/Apache-2.0", "--out", str(out), "--config",
                               str(source / "config.json"), "--steps", "3", "--batch", "2", "--device", "cpu"], capture_output=True, text=True)
        if done.returncode:
            check(f"trained with config {i}", False, done.stderr)
            continue
        model = transformers.LlamaForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
        asked, got = transformers.LlamaConfig.from_pretrained(source).to_dict(), model.config.to_dict()
        keys = "hidden_size head_dim hidden_act attention_bias mlp_bias rms_norm_eps tie_word_embeddings rope_parameters initializer_range".split()
        apart = {k: (asked[k], got[k]) for k in keys if asked[k] != got[k]}
        check(f"written back {i}: the same keys", not apart, apart or "")
        compare(f"written back {i}", out, model)
        if config.get("initializer_range"):
            spread = load_file(out / "model.safetensors")["model.embed_tokens.weight"].std().item()
            check("initializer_range is honoured", abs(spread - 0.1) < 0.01, spread)
    source = work / "dropout"
    transformers.LlamaConfig(**{**BASE, "attention_dropout": 0.1}).save_pretrained(source)
    done = subprocess.run([TENON, "lm", "train", "--text", "/usr/share/common-licenses/Apache-2.0", "--out", str(work / "x"), "--config",
                           str(source / "config.json")], capture_output=True, text=True)
    check("dropout is refused by lm train", done.returncode == 1 and "attention_dropout" in done.stderr, done.stderr.strip())


transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(2)
with tempfile.TemporaryDirectory() as temporary:
    for part in (llamas, edited, others, written_back):
        work = pathlib.Path(temporary) / part.__name__
        work.mkdir()
        part(work)
print(f"{tally['agree']} compared, {tally['refused']} refused by name, {failures} failures")
sys.exit(1 if failures else 0)
