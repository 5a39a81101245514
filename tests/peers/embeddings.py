# SPDX-License-Identifier: Apache-2.0
"""Embeddings of language models against transformers: `tenon llm embed` next to last_hidden_state of the same folder, pooled and
normalized here, for each architecture of architectures.py and texts of several lengths.

embeddings.py TENON [--only NAME ...]
Exits with 77 (skip) where torch or transformers is absent."""
import argparse, json, pathlib, subprocess, sys, tempfile

from architectures import T, VOCAB, cases, make, np, torch

LIMIT = 1e-4
LENGTHS = [1, 5, 40, 61]  # one token; padded; two steps and more


def wanted(states, kind, normalize):
    v = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[kind]
    return v / np.linalg.norm(v) if normalize else v


def compare(name, config, options, tenon, folder, headless):
    model = make(config, folder).base_model
    if headless:  # as models for embeddings are published: another class and other names, and no head
        folder = folder / "base"
        model.save_pretrained(folder)
    worst = 0.0
    for length in LENGTHS:
        ids = torch.randint(2, VOCAB, (length,), generator=torch.Generator().manual_seed(length)).tolist()
        with torch.no_grad():
            states = model(torch.tensor([ids]), use_cache=False).last_hidden_state[0].double().numpy()
        for kind in ("mean", "cls", "last") if length == 61 else ("mean",):
            for normalize in (True, False):
                done = subprocess.run([tenon, "llm", "embed", folder, "--ids", ",".join(map(str, ids)), "--pooling", kind, "--device", "cpu",
                                       *options, *([] if normalize else ["--no-normalize"])], capture_output=True, text=True, check=True)
                ours, theirs = np.array(json.loads(done.stdout)["embedding"]), wanted(states, kind, normalize)
                worst = max(worst, np.abs(ours - theirs).max() / np.abs(theirs).max())
    good = worst <= LIMIT
    print(f"{'ok ' if good else 'BAD'} {name}{', without a head' if headless else ''}: error {worst:.1e}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tenon")
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    torch.set_num_threads(2)
    T.logging.set_verbosity_error()
    T.logging.disable_progress_bar()
    good = True
    for name, (config, options) in cases().items():
        if args.only and name not in args.only:
            continue
        for headless in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    good &= compare(name, config, options, args.tenon, pathlib.Path(folder), headless)
                except subprocess.CalledProcessError as failed:
                    print(f"BAD {name}: {failed.stderr}", flush=True)
                    good = False
    sys.exit(0 if good else 1)


main()
