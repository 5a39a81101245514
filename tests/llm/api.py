#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""api.py TENON PROGRAM...: writes the small model as a folder, as a GGUF file and without a tokenizer, and runs each program
with TENON_TINY set to where they are."""
import os, pathlib, shutil, subprocess, sys, tempfile

sys.path.append(str(pathlib.Path(__file__).parent.parent / "cli"))
import tiny_model

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    tiny_model.make(folder / "tiny")
    shutil.copytree(folder / "tiny", folder / "no_tokenizer")
    (folder / "no_tokenizer" / "tokenizer.json").unlink()
    subprocess.run([sys.argv[1], "llm", "convert", folder / "tiny", folder / "tiny.gguf"], check=True)
    for program in sys.argv[2:]:
        subprocess.run([program], check=True, env={**os.environ, "TENON_TINY": name})
