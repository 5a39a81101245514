# SPDX-License-Identifier: Apache-2.0
"""`tenon llm run`: how its options choose tokens. tests/peers compares the answers with transformers.

llm_run.py TENON"""
import pathlib, subprocess, sys, tempfile

import tiny_model

TENON = sys.argv[1]
PROMPT = [97, 98, 99]
failures = []


def check(what, good, more=""):
    if not good:
        failures.append(what)
        print(f"FAIL {what} {more}", flush=True)


def run(folder, *options):
    return subprocess.run([TENON, "llm", "run", folder, "--device", "cpu", "--ids", ",".join(map(str, PROMPT)),
                           "--tokens", "24", "--ignore-end", *options], capture_output=True, text=True)


def ids(folder, *options):
    done = run(folder, *options)
    check(" ".join(options) + " ends well", done.returncode == 0, done.stderr)
    return [int(word) for word in done.stdout.split(",")] if done.returncode == 0 else []


def refused(folder):
    """What is refused after the options are read: the message says what was expected."""
    def message(model, *options):
        done = subprocess.run([TENON, "llm", "run", model, "--device", "cpu", *options], capture_output=True, text=True)
        check(" ".join(options)[:60] + " is refused", done.returncode == 1, (done.returncode, done.stdout))
        return done.stderr

    long = ("--prompt", "x" * 600, "--raw")
    said = message(folder, *long)
    check("a prompt beyond the model's context", "at most 512 tokens, the context, got 600; the model's own" in said, said)
    said = message(folder, *long, "--context", "256")
    check("a prompt beyond --context", "at most 256 tokens, the context, got 600; hint: a larger context" in said, said)
    with tempfile.TemporaryDirectory() as empty:
        said = message(empty, "--prompt", "x")
        check("a folder without config.json", "with config.json, or a GGUF file" in said and "--ids" not in said, said)
        pathlib.Path(empty, "config.json").write_text("{}")
        said = message(empty, "--prompt", "x")
        check("a folder without a tokenizer", "tokenizer.json: no such file; hint: --ids" in said, said)


def main():
    with tempfile.TemporaryDirectory() as folder:
        tiny_model.make(folder)
        hot = ("--temperature", "2")
        greedy = ids(folder, "--greedy")
        drawn = ids(folder, *hot, "--seed", "1")
        check("as many tokens as asked for", len(greedy) == 24, greedy)
        check("sampling is not greedy", drawn != greedy, drawn)
        check("a seed repeats its tokens", ids(folder, *hot, "--seed", "1") == drawn)
        check("another seed draws others", ids(folder, *hot, "--seed", "2") != drawn)
        check("--temperature 0", ids(folder, "--temperature", "0") == greedy)
        for only_best in (("--top-k", "1"), ("--top-p", "1e-6"), ("--min-p", "1")):
            check(" ".join(only_best), ids(folder, *hot, *only_best) == greedy)
        check("without a penalty tokens come again", len(set(PROMPT + greedy)) < 27, greedy)
        fresh = ids(folder, "--greedy", "--repeat-penalty", "1000")
        check("no token of prompt and answer comes again", len(set(PROMPT + fresh)) == 27, fresh)
        for options, word in [
                (("--greedy", "--temperature", "1"), "--temperature: has no effect"),
                (("--greedy", "--top-k", "3"), "--top-k: has no effect"),
                (("--temperature", "0", "--seed", "3"), "--seed: has no effect"),
                (("--top-p", "0"), "--top-p: expected"), (("--min-p", "2"), "--min-p: expected"),
                (("--repeat-penalty", "0"), "--repeat-penalty: expected"), (("--context", "1"), "--context: expected")]:
            done = run(folder, *options)
            check(" ".join(options), done.returncode == 2 and word in done.stderr, done.stderr)
        refused(folder)
    if failures:
        sys.exit(f"{len(failures)} failed")
    print("ok")


main()
