# SPDX-License-Identifier: Apache-2.0
"""Decoding with a language model of a Hugging Face folder, next to transformers.

compare_llm.py BIN_DIR [--dtype float32|bfloat16] [--prompt N] [--tokens N] [--rounds N] [--device D] [--threads N]
The model has the shape of a Llama with 126 million parameters and random weights. Both programs are measured in turns, so that
other load meets both. Prints milliseconds per token, and the median of the ratios of time (below 1: tenon is faster)."""
import argparse, json, os, pathlib, re, statistics, subprocess, sys, tempfile, time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch, transformers as T


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def theirs(model, ids, count):
    """Seconds for the prompt, and for each further token."""
    with torch.no_grad():
        start = time.perf_counter()
        out = model(ids, use_cache=True)
        first = time.perf_counter()
        token, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
        for _ in range(count - 1):
            out = model(token, past_key_values=cache, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        return first - start, (time.perf_counter() - first) / (count - 1)


def ours(args, probe, folder):
    out = subprocess.run([probe, folder, f"{folder}/ids", str(args.tokens), args.device],
                         check=True, capture_output=True, text=True).stdout
    prompt, token = map(float, out.split())
    return prompt, token


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    T.logging.set_verbosity_error()
    config = T.LlamaConfig(vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
                           num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=2048)
    torch.manual_seed(0)
    model = T.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, args.dtype)).eval().to(
        "cuda" if args.device.startswith("cuda") else "cpu")
    ids = torch.randint(3, 32000, (1, args.prompt))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        pathlib.Path(folder, "ids").write_text(" ".join(map(str, ids[0].tolist())))
        rows = []
        for _ in range(args.rounds):
            mine = ours(args, pathlib.Path(args.bin_dir, "llm_speed"), folder)
            rows.append((mine, theirs(model, ids.to(model.device), args.tokens)))
        for i, what in enumerate(("prompt", "token")):
            pairs = [(a[i] * 1e3, b[i] * 1e3) for a, b in rows]
            ratio = statistics.median(a / b for a, b in pairs)
            print(f"{what}: tenon {statistics.median(a for a, _ in pairs):.2f} ms, transformers "
                  f"{statistics.median(b for _, b in pairs):.2f} ms, ratio {ratio:.2f}")


main()
