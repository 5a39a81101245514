# SPDX-License-Identifier: Apache-2.0
"""Folders with weights in fp8, also those of compressed-tensors, against transformers, which decodes them: logits on the cpu.

quantized.py LLM_PROBE [NAME ...]
Exits with 77 (skip) where torch, transformers, accelerate or safetensors is absent. Cases of compressed-tensors need its
package."""
import json, pathlib, subprocess, sys, tempfile

import architectures as A  # skips, too

try:
    import accelerate  # transformers asks for it
    import numpy as np, torch, transformers as T
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
try:
    import compressed_tensors
except ImportError:
    compressed_tensors = None

WIDE = A.SIZES | dict(hidden_size=256, intermediate_size=384)


def blocks(w, rows, columns):
    """e4m3 and a scale for each block."""
    high, wide = w.shape[0] // rows, w.shape[1] // columns
    parts = w.reshape(high, rows, wide, columns)
    scale = parts.abs().amax((1, 3)) / 448
    return (parts / scale[:, None, :, None]).reshape(w.shape).to(torch.float8_e4m3fn), scale


def one(w):
    scale = w.abs().max() / 448
    return (w / scale).to(torch.float8_e4m3fn), scale


def by_row(w):
    scale = w.abs().amax(1, keepdim=True) / 448
    return (w / scale).to(torch.float8_e4m3fn), scale


def compressed(strategy, **more):
    weights = dict(num_bits=8, type="float", strategy=strategy, symmetric=True, dynamic=False, **more)
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
            "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                                                 "input_activations": None}}}


def cases():
    """Name -> (quantization_config, encoder, end of the scale's name, configuration)."""
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head"]}
    deepseek = T.DeepseekV3Config(**A.LATENT | dict(q_lora_rank=128, kv_lora_rank=120, hidden_size=128, v_head_dim=16,
                                                    moe_intermediate_size=128, intermediate_size=256), n_group=4, topk_group=2)
    # Rows of whole blocks of 128 numbers: weights stay e4m3, those of experts too.
    wide = T.DeepseekV3Config(**A.LATENT | dict(q_lora_rank=128, kv_lora_rank=128, hidden_size=128, v_head_dim=32,
                                                moe_intermediate_size=128, intermediate_size=256), n_group=4, topk_group=2)
    llama = T.LlamaConfig(**WIDE)
    return {
        "fp8_blocks": (fp8 | {"weight_block_size": [128, 128]}, lambda w: blocks(w, 128, 128), "_scale_inv", llama),
        "fp8_small_blocks": (fp8 | {"weight_block_size": [32, 64]}, lambda w: blocks(w, 32, 64), "_scale_inv", llama),
        "fp8_one": (fp8 | {"weight_block_size": None}, one, "_scale_inv", llama),
        "fp8_deepseek": (fp8 | {"weight_block_size": [8, 8]}, lambda w: blocks(w, 8, 8), "_scale_inv", deepseek),
        "fp8_deepseek_wide": (fp8 | {"weight_block_size": [8, 128]}, lambda w: blocks(w, 8, 128), "_scale_inv", wide),
        "compressed_rows": (compressed("channel"), by_row, "_scale", llama),
        "compressed_blocks": (compressed("block", block_structure=[32, 64]), lambda w: blocks(w, 32, 64), "_scale", llama),
    }


def compare(name, quantization, encode, end, config, binary, folder):
    if quantization["quant_method"] == "compressed-tensors" and not compressed_tensors:
        print(f"--  {name}: no package compressed-tensors")
        return True
    A.make(config, folder, 1.0)
    path = pathlib.Path(folder)
    tensors = {}
    for tensor, w in load_file(path / "model.safetensors").items():
        tensors[tensor] = w
        if w.dim() == 2 and "_proj" in tensor:
            tensors[tensor], tensors[tensor + end] = (t.contiguous() for t in encode(w))
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    settings = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(settings | {"quantization_config": quantization}))
    model = T.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(2, A.VOCAB, (A.LENGTH,), generator=torch.Generator().manual_seed(2)).tolist()
    with torch.no_grad():
        theirs = model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()
    ours = A.probe(binary, folder, ids, "cpu", "prefill")
    error = np.abs(ours - theirs).max() / np.abs(theirs).max()
    good = error <= A.LIMIT and np.abs(theirs).max() > 0.1
    print(f"{'ok ' if good else 'BAD'} {name}: error {error:.1e} of {np.abs(theirs).max():.2f}", flush=True)
    return good


def main():
    torch.set_num_threads(2)
    T.logging.set_verbosity_error()
    T.logging.disable_progress_bar()
    good = True
    for name, case in cases().items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                good &= compare(name, *case, sys.argv[1], folder)
            except (subprocess.CalledProcessError, RuntimeError) as failed:
                print(f"BAD {name}: {failed}", flush=True)
                good = False
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
