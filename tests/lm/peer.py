# SPDX-License-Identifier: Apache-2.0
"""Compares a model that tenon trains with PyTorch and Hugging Face transformers.

peer.py BIN_DIR PROBE transformers   a trained folder loads as LlamaForCausalLM: logits, held-out loss, tokenizer
peer.py BIN_DIR PROBE curve          a PyTorch loop from the same initial weights and data follows the same losses
Exits with 77 (skip) where torch or transformers is absent."""
import json, math, pathlib, subprocess, sys, tempfile

try:
    import numpy as np, torch
    from transformers import AutoTokenizer, LlamaForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TEXTS = [str(p) for p in sorted(pathlib.Path("/usr/share/common-licenses").iterdir())]
LM_S = "--dim 128 --layers 4 --heads 4 --kv-heads 2 --ffn 344 --context 128 --batch 16 --lr 1e-3 --warmup 20".split()
CONTEXT, BATCH, LR, WARMUP, STEPS, SEED = 128, 16, 1e-3, 20, 100, 3
MASK = (1 << 64) - 1


def mix(seed, counter):
    z = (seed + (counter + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def read_texts(files):
    train, held = bytearray(), bytearray()
    for f in files:
        data = pathlib.Path(f).read_bytes()
        cut = len(data) - len(data) // 10
        train += data[:cut]
        held += data[cut:]
    return np.frombuffer(bytes(train), np.uint8), np.frombuffer(bytes(held), np.uint8)


def batch(train, step):
    starts = [mix(SEED, step * BATCH + r) % (len(train) - CONTEXT) for r in range(BATCH)]
    return torch.tensor(np.stack([train[s:s + CONTEXT + 1] for s in starts]).astype(np.int64))


def loss_of(model, tokens):
    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def held_out_loss(model, held):
    windows = (len(held) - 1) // CONTEXT
    batches = min(windows // BATCH, 8)
    total = 0.0
    with torch.no_grad():
        for b in range(batches):
            rows = [held[w * CONTEXT:w * CONTEXT + CONTEXT + 1] for w in range(b * BATCH, (b + 1) * BATCH)]
            total += loss_of(model, torch.tensor(np.stack(rows).astype(np.int64))).item()
    return total / batches


def train(tenon, folder, *more):
    subprocess.run([tenon, "lm", "train", "--text", *TEXTS, "--out", folder, *LM_S, "--steps", str(STEPS), "--seed",
                    str(SEED), "--device", "cpu", *more], check=True, stdout=subprocess.DEVNULL)
    return json.loads(pathlib.Path(folder, "training.json").read_text())


def check(name, value, limit):
    good = value <= limit
    print(f"{'ok ' if good else 'BAD'} {name}: {value:.3e} (limit {limit:.0e})")
    return good


def compare_transformers(tenon, probe, work):
    folder = f"{work}/model"
    state = train(tenon, folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    _, held = read_texts(state["files"])
    text = bytes(held[:CONTEXT])
    pathlib.Path(work, "text").write_bytes(text)
    subprocess.run([probe, folder, f"{work}/text", f"{work}/logits", "cpu"], check=True)
    ours = np.fromfile(f"{work}/logits", np.float32).reshape(CONTEXT, 256)
    with torch.no_grad():
        theirs = model(torch.tensor([list(text)])).logits[0].numpy()
    good = check("logits, max abs difference over max abs value", np.abs(ours - theirs).max() / np.abs(theirs).max(), 1e-4)
    good &= check("held-out loss, absolute difference", abs(state["held_out"][-1][1] - held_out_loss(model, held)), 1e-3)
    sample = "Grüße, 世界!\n\ttab \x00 end"
    ids = tokenizer(sample).input_ids
    good &= check("tokenizer, bytes that differ", float(bytes(ids) != sample.encode() or tokenizer.decode(ids) != sample), 0)
    return good


def compare_curve(tenon, probe, work):
    del probe
    train(tenon, f"{work}/initial", "--stop-after", "0")
    state = train(tenon, f"{work}/model")
    model = LlamaForCausalLM.from_pretrained(f"{work}/initial", dtype=torch.float32)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    other = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}], lr=LR,
                                  betas=(0.9, 0.95), eps=1e-8)
    data, _ = read_texts(state["files"])
    worst = 0.0
    for step in range(STEPS):
        rate = LR * (step + 1) / WARMUP if step < WARMUP else LR * (
            0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(model, batch(data, step))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        worst = max(worst, abs(state["losses"][step][1] - loss.item()) / loss.item())
    print(f"losses: first {state['losses'][0][1]:.4f}, last {state['losses'][-1][1]:.4f} (PyTorch {loss.item():.4f})")
    return check(f"loss curve over {STEPS} steps, relative difference", worst, 1e-3)


if __name__ == "__main__":
    torch.set_num_threads(2)
    compare = {"transformers": compare_transformers, "curve": compare_curve}[sys.argv[3]]
    with tempfile.TemporaryDirectory() as work:
        sys.exit(0 if compare(sys.argv[1] + "/tenon", sys.argv[2], work) else 1)
