# SPDX-License-Identifier: Apache-2.0
"""cache.py TENON STUBS: `tenon cache` shows and removes what the cuda plugin keeps, over the stub of the CUDA libraries."""
import json, os, subprocess, sys, tempfile

TENON, STUBS = sys.argv[1], sys.argv[2]
failures = 0


def check(good, what, said=""):
    global failures
    if not good:
        failures += 1
        print(f"BAD {what}; said:\n{said}")


with tempfile.TemporaryDirectory(prefix="tenon-stub-") as home:
    env = dict(os.environ, HOME=home, TENON_CUDA_PATH=f"{STUBS}/all", TENON_STUB_CUDA="algorithms=3")
    for name in ("TENON_CUDA_CACHE", "XDG_CACHE_HOME"):
        env.pop(name, None)

    def run(*args, status=0, **more):
        done = subprocess.run([TENON, *args], capture_output=True, text=True, timeout=3600, env=env | more)
        check(done.returncode == status, f"tenon {' '.join(args)} ends with {status}", done.stdout + done.stderr)
        return done.stdout + done.stderr

    def shown(*args):
        return json.loads(run("cache", "--json", *args))

    folder = f"{home}/.cache/tenon/cuda"
    empty = {"files": 0, "bytes": 0}
    check(shown() == {"folder": folder, "machine_code": empty, "choices": empty}, "an empty cache")
    check(not os.path.exists(folder), "asking makes no folder")
    for op in ('binary(f32[1000],f32[1000]) {kind="add"}', "matmul(f32[64,64],f32[64,64])"):
        run("bench", "--no-ceilings", "--seconds", "0.01", "--device", "cuda:0", "--op", op)
    names = os.listdir(folder)
    check(os.stat(folder).st_mode & 0o777 == 0o700, "the folder is the user's alone", oct(os.stat(folder).st_mode))
    sizes = {n: os.path.getsize(f"{folder}/{n}") for n in names}
    for kind, suffix in {"machine_code": ".cubin", "choices": ".choice"}.items():
        files = [n for n in names if n.endswith(suffix)]
        want = {"files": len(files), "bytes": sum(sizes[n] for n in files)}
        check(files and shown()[kind] == want, f"{kind} as they are", f"{shown()}, expected {want}")
    said = run("cache")
    for word in (folder, "machine code", "tuned choices", "1 file "):
        check(word in said, f"says '{word}'", said)

    # What is not the cache's stays, and so does what a link leads to.
    other = f"{home}/other.cubin"
    for path in (f"{folder}/notes.txt", other):
        with open(path, "w") as file:
            file.write("mine")
    os.symlink(other, f"{folder}/link.cubin")
    check(shown("--prune", "1000")["machine_code"]["files"] > 0, "pruning to more than there is removes nothing")
    after = shown("--prune", "0")
    check(after["machine_code"] == empty and after["choices"]["files"] == 1, "machine code alone is removed", str(after))
    check(shown("--choices")["choices"] == empty, "choices are removed when they are named")
    check(sorted(os.listdir(folder)) == ["link.cubin", "notes.txt"] and os.path.exists(other), "what is another's stays",
          str(os.listdir(folder)))

    check("no cache" in run("cache", TENON_CUDA_CACHE=""), "a cache that is turned off")
    for args in (("--prune", "-1"), ("--prune", "x"), ("--prune",), ("--device", "cpu"), ("word",)):
        run("cache", *args, status=2)

sys.exit(1 if failures else 0)
