# SPDX-License-Identifier: Apache-2.0
"""Mixtures whose experts are all alike: their weights have the sum 1 or the scale of the model, so the logits are those of a
dense model with the same matrices, or with a scaled one.

experts.py LLM_PROBE"""
import array, json, pathlib, random, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import tiny_model

PROBE = sys.argv[1]
IDS = [(i * i * 7 + i * 31) % 256 for i in range(48)]
HIDDEN, LAYERS, EXPERTS = 32, 2, 4
failures = []


def check(what, good, *seen):
    print(f"{'ok ' if good else 'BAD'} {what}", *seen if not good else [], flush=True)
    if not good:
        failures.append(what)


def logits(folder, mode):
    (folder / "ids").write_text(" ".join(map(str, IDS)))
    subprocess.run([PROBE, folder, folder / "ids", folder / "logits", "cpu", mode, "--compute", "f32", "--cache", "f32"], check=True)
    return array.array("f", (folder / "logits").read_bytes())


def difference(a, b):
    """The largest one, over the largest logit."""
    return max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, b))


def model(folder, changes, change_tensors):
    """The tiny model with other keys in its configuration and other tensors."""
    folder = tiny_model.make(folder, hidden=HIDDEN, layers=LAYERS)
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    tensors = tiny_model.read_tensors(folder / "model.safetensors")
    change_tensors(tensors)
    tiny_model.write_tensors(folder / "model.safetensors", tensors)
    return folder


def with_experts(tensors, router, expert, names, bias=None):
    """Replaces the matrices of each layer by equal ones of all experts, and adds a router that prefers some of them."""
    source = random.Random(5)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for old, new in zip(("gate_proj", "up_proj", "down_proj"), names):
            shape, numbers = tensors.pop(f"{layer}mlp.{old}.weight")
            for e in range(EXPERTS):
                tensors[layer + expert.format(e) + f".{new}.weight"] = (shape, numbers)
        tensors[layer + router + ".weight"] = ([EXPERTS, HIDDEN], [source.gauss(0, 0.3) for _ in range(EXPERTS * HIDDEN)])
        if bias:
            tensors[layer + router + "." + bias] = ([EXPERTS], [0.0] * EXPERTS)


def near(place, what, dense, mixtures):
    """mixtures: name -> (folder, whether its logits are those of the dense model)."""
    for mode in "prefill", "decode":
        wanted = logits(dense, mode)
        for name, (folder, same) in mixtures.items():
            seen = difference(logits(folder, mode), wanted)
            check(f"{what}, {name}, {mode}: {'as' if same else 'unlike'} a dense model", seen < 1e-5 if same else seen > 1e-2, seen)


def mixtral(place):
    def experts(count):
        return model(place / f"mixtral{count}",
                     {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": EXPERTS,
                      "num_experts_per_tok": count, "sliding_window": None},
                     lambda t: with_experts(t, "block_sparse_moe.gate", "block_sparse_moe.experts.{}", ("w1", "w3", "w2")))

    dense = model(place / "mistral", {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None},
                  lambda t: None)
    near(place, "mixtral", dense, {f"{n} per token": (experts(n), True) for n in (1, 2, EXPERTS)})


def qwen(place):
    def norms(tensors):
        for i in range(LAYERS):
            for part in "q", "k":
                tensors[f"model.layers.{i}.self_attn.{part}_norm.weight"] = ([HIDDEN // 4], [1.0] * (HIDDEN // 4))

    def experts(count, normalize):
        def change(tensors):
            norms(tensors)
            with_experts(tensors, "mlp.gate", "mlp.experts.{}", ("gate_proj", "up_proj", "down_proj"))

        return model(place / f"qwen3_moe{count}{normalize}",
                     {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "head_dim": HIDDEN // 4,
                      "num_experts": EXPERTS, "num_experts_per_tok": count, "moe_intermediate_size": 48,
                      "norm_topk_prob": normalize, "decoder_sparse_step": 1, "mlp_only_layers": []}, change)

    dense = model(place / "qwen3", {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": HIDDEN // 4}, norms)
    near(place, "qwen3_moe", dense, {
        "1 per token, divided by its sum": (experts(1, True), True), "2 per token, divided by their sum": (experts(2, True), True),
        "1 per token as it is": (experts(1, False), False), "all as they are": (experts(EXPERTS, False), True)})


def deepseek(place):
    rank, nope, rope, value, scale = 16, 8, 4, 8, 2.5

    def latent(tensors):
        source = random.Random(6)
        shapes = {"q_proj": [4 * (nope + rope), HIDDEN], "kv_a_proj_with_mqa": [rank + rope, HIDDEN],
                  "kv_b_proj": [4 * (nope + value), rank], "o_proj": [HIDDEN, 4 * value]}
        for i in range(LAYERS):
            at = f"model.layers.{i}.self_attn."
            for part in "qkvo":
                del tensors[f"{at}{part}_proj.weight"]
            for name, shape in shapes.items():
                tensors[f"{at}{name}.weight"] = (shape, [source.gauss(0, 0.3) for _ in range(shape[0] * shape[1])])
            tensors[at + "kv_a_layernorm.weight"] = ([rank], [1.0] * rank)

    def config(dense_layers, count):
        return {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "num_key_value_heads": 4,
                "n_routed_experts": EXPERTS, "n_shared_experts": None, "num_experts_per_tok": count, "moe_intermediate_size": 48,
                "n_group": 1, "topk_group": 1, "qk_nope_head_dim": nope, "qk_rope_head_dim": rope, "v_head_dim": value,
                "kv_lora_rank": rank, "q_lora_rank": None, "routed_scaling_factor": scale, "norm_topk_prob": True,
                "first_k_dense_replace": dense_layers}

    def scaled(tensors):
        latent(tensors)
        for i in range(LAYERS):
            name = f"model.layers.{i}.mlp.down_proj.weight"
            tensors[name] = (tensors[name][0], [scale * x for x in tensors[name][1]])

    def experts(count):
        def change(tensors):
            latent(tensors)
            with_experts(tensors, "mlp.gate", "mlp.experts.{}", ("gate_proj", "up_proj", "down_proj"), "e_score_correction_bias")

        return model(place / f"deepseek{count}", config(0, count), change)

    near(place, "deepseek_v3", model(place / "deepseek", config(LAYERS, 1), scaled),
         {f"{n} per token, scaled": (experts(n), True) for n in (1, 2)})


def main():
    with tempfile.TemporaryDirectory() as place:
        for family in mixtral, qwen, deepseek:
            family(pathlib.Path(place))
    if failures:
        sys.exit(f"{len(failures)} failed")


main()
