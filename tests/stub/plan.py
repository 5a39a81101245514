# SPDX-License-Identifier: Apache-2.0
"""plan.py CONFORM [--fusion] [--kernels FILE] [--family NAME]...: each case of the kit is compiled and run on the stub.

Fails when a case fails, and when the cases that ran are not all cases that tenon_conform lists. FILE gets the kernels that
were launched, one "TEXT ENTRY" a line.

plan.py --launched DEVICE_FOLDER FOLDER: the files of kernels in FOLDER have all kernels of the texts in DEVICE_FOLDER.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def run(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("conform")
    parser.add_argument("--fusion", action="store_true")
    parser.add_argument("--kernels", type=pathlib.Path)
    parser.add_argument("--family", action="append", default=[])
    a = parser.parse_args(arguments)
    command = [a.conform, "--device", "cuda:0", "--run-only", *["--fusion"] * a.fusion,
               *(word for family in a.family for word in ("--family", family))]
    listed = subprocess.run([*command, "--list"], check=True, capture_output=True, text=True).stdout
    kit = {line.split()[0] for line in listed.splitlines()}
    with tempfile.TemporaryDirectory() as work:
        results, launches = pathlib.Path(work, "results.json"), pathlib.Path(work, "launches")
        environment = os.environ | ({"TENON_STUB_LAUNCHES": str(launches)} if a.kernels else {})
        done = subprocess.run([*command, "--json", results], env=environment)
        if done.returncode:
            return f"tenon_conform: exit status {done.returncode}"
        ran = {case["id"] for case in json.loads(results.read_text())["cases"]}
        if a.kernels:
            with launches.open() as lines:
                launched = sorted({tuple(line.split("\t")[1:3]) for line in lines})
            a.kernels.parent.mkdir(parents=True, exist_ok=True)
            a.kernels.write_text("".join(f"{text} {entry}\n" for text, entry in launched))
    print(f"{len(ran)} of {len(kit)} cases ran")
    if ran != kit:
        return f"expected all {len(kit)} cases of the kit, got {len(ran)}; for example {sorted(kit ^ ran)[:3]}"
    return None if ran else "nothing ran"


def never_launched(device, folder):
    kernels = {(file.name, entry) for file in device.glob("*.cu")
               for entry in re.findall(r"__global__[^{;]*?\b(\w+)\([^()]*\)\s*\{", file.read_text())}
    launched = {tuple(line.split()) for file in folder.iterdir() for line in file.read_text().splitlines()}
    print(f"{len(kernels)} kernels")
    missing = sorted(kernels - launched)
    if missing or not kernels:
        return "no case launches " + ", ".join(f"{entry} of {text}" for text, entry in missing)
    return None


if sys.argv[1] == "--launched":
    sys.exit(never_launched(*map(pathlib.Path, sys.argv[2:4])))
sys.exit(run(sys.argv[1:]))
