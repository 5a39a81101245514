# SPDX-License-Identifier: Apache-2.0
"""cold.py TENON LANES: bench --cold flushes the caches of every device that the graph runs on, and of no other one."""
import json, os, pathlib, subprocess, sys, tempfile

TENON, LANES = sys.argv[1:]
# asin is none of the plugin's: the cpu takes it.
GRAPH = 'graph "g" {{\n  input x: f32[64,64]\n  y = unary(x) {{kind="exp"}}\n  z = unary(y) {{kind="{}"}}\n  output "z" = z\n}}\n'


def check(good, what, said=""):
    if not good:
        sys.exit(f"BAD {what}: {said}")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    graph, trace = folder / "g.tng", folder / "trace.json"

    def run(*words):
        done = subprocess.run([TENON, *map(str, words), "--plugin", LANES], capture_output=True, text=True, timeout=3600,
                              env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")})
        check(done.returncode == 0, words, done.stdout + done.stderr)
        return done.stdout

    def steps(device, kind):
        """Of a cold run, whose graph is timed 20 times or more: each step's device, whether it flushes, and its op."""
        graph.write_text(GRAPH.format(kind))
        timed = json.loads(run("bench", graph, "--cold", "--device", device, "--seconds", "0.01", "--no-ceilings", "--json",
                               "--trace", trace))[0]
        check(timed["runs"] >= 20, "cold runs", timed)
        events = json.loads(trace.read_text())["traceEvents"]
        return [(e["args"]["device"], e["args"]["node"] == "bench.flush", e["args"]["op"]) for e in events if e["ph"] == "X" and e["cat"] == "step"]

    def devices(seen, flush):
        return {device for device, flushes, _ in seen if flushes == flush}

    both = steps("lanes:0", "asin")
    check(devices(both, False) == {"lanes:0", "cpu:0"}, "the graph runs on two devices", both[:9])
    check(devices(both, True) == {"lanes:0", "cpu:0"}, "and both are flushed", both[:9])
    print("ok: two devices")

    # What auto chooses for the graph counts, not what it would for a flush, which changes states: that is the accelerator.
    for device in ("lanes:0", "cpu:0"):
        run("calibrate", "--device", device, "--seconds", "0.01")
    files = {d["id"]: pathlib.Path(d["rates"]["file"]) for d in json.loads(run("devices", "--json"))["devices"]}
    for cheap, dear in (("cpu:0", "lanes:0"), ("lanes:0", "cpu:0")):
        for device, seconds in ((cheap, 1e-9), (dear, 1.0)):
            known = json.loads(files[device].read_text())
            known["rates"]["run_seconds"] = seconds
            files[device].write_text(json.dumps(known))
        seen = steps("auto", "exp")
        check(devices(seen, False) == {cheap}, f"auto takes {cheap}", seen[:9])
        check(devices(seen, True) == {cheap}, f"what runs on {cheap} alone is flushed there alone", seen[:9])
        print(f"ok: auto, {cheap}")
