#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""others.py TENON [LLAMA_BIN_DIR]: a model of `lm train` as other commands read it. `llm run` of the folder and of the GGUF
file that `llm convert` makes of it continue a prompt as `lm generate` does; with a build of llama.cpp, so does llama.cpp."""
import pathlib, subprocess, sys, tempfile

TENON = sys.argv[1]
TEXT, PROMPT, COUNT = "/usr/share/common-licenses/Apache-2.0", "Each Contributor", 80


def run(*words):
    done = subprocess.run([*map(str, words)], capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout.decode()


def check(name, good, value=""):
    print(f"{'ok ' if good else 'BAD'} {name}: {value}")
    assert good, name


def main():
    with tempfile.TemporaryDirectory() as place:
        for name, options in (("plain", []), ("tied", ["--tied"]), ("bf16", ["--dtype", "bf16"])):
            folder, file, back = (pathlib.Path(place, name + end) for end in ("", ".gguf", "_back"))
            run(TENON, "lm", "train", "--text", TEXT, "--out", folder, "--dim", 64, "--layers", 2, "--heads", 4, "--kv-heads", 2,
                "--ffn", 96, "--context", 128, "--batch", 4, "--steps", 500, "--lr", "6e-3", "--device", "cpu", *options)
            mine = run(TENON, "lm", "generate", "--model", folder, "--prompt", PROMPT, "--tokens", COUNT, "--temperature", 0,
                       "--device", "cpu").rstrip("\n")
            assert mine.startswith(PROMPT), mine
            mine = mine[len(PROMPT):]
            check(f"{name}: a text", len(set(mine)) > 5, mine)
            read = [TENON, "llm", "run", "--raw", "--prompt", PROMPT, "--tokens", COUNT, "--greedy", "--device", "cpu"]
            other = run(*read, folder).rstrip("\n")
            if name == "bf16":  # lm generate rounds, llm run computes in f32
                mine = other
            check(f"{name}: folder", other == mine, mine)
            run(TENON, "llm", "convert", folder, file)
            check(f"{name}: file", run(*read, file).rstrip("\n") == mine)
            run(TENON, "llm", "convert", file, back)
            check(f"{name}: back", (folder / "model.safetensors").stat().st_size // 1024 ==
                  (back / "model.safetensors").stat().st_size // 1024 and run(*read, back).rstrip("\n") == mine)
            if len(sys.argv) > 2:
                llama = run(f"{sys.argv[2]}/llama-completion", "-m", file, "-p", PROMPT, "-n", COUNT, "--temp", 0, "-no-cnv",
                            "--no-display-prompt", "-ngl", 0)
                check(f"{name}: llama.cpp", llama.rstrip("\n") == mine, llama)


main()
