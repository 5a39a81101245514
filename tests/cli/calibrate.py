# SPDX-License-Identifier: Apache-2.0
"""calibrate.py TENON: what is measured is plausible, kept, read again by devices, inspect and bench; a damaged file is told
and ignored; a place that cannot be written is an error; an interrupt keeps nothing."""
import json, os, pathlib, signal, subprocess, sys, tempfile, time

TENON = sys.argv[1]
GRAPH = 'graph "g" {\n  input x: f32[64,64]\n  y = softmax(x)\n  output "y" = y\n}\n'


def check(good, what, said=None):
    if not good:
        print(f"BAD {what}", said.stdout + said.stderr if said else "")
        sys.exit(1)
    print(f"ok  {what}")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    home = folder / "cache"

    def run(*args, cache=home):
        return subprocess.run([TENON, *args], capture_output=True, text=True, timeout=3600,
                              env={**os.environ, "XDG_CACHE_HOME": str(cache)})

    def rates():
        return next(d for d in json.loads(run("devices", "--json").stdout)["devices"] if d["id"] == "cpu:0")["rates"]

    graph = folder / "g.tng"
    graph.write_text(GRAPH)
    check(not rates()["measured"], "at first nothing is measured")
    before = run("devices")
    check("defaults, not measured; 'tenon calibrate' does it" in before.stdout, "devices says so", before)
    said = run("inspect", str(graph), "--device", "cpu")
    check("rates of cpu:0: not measured" in said.stdout, "inspect says so", said)

    slow = subprocess.Popen([TENON, "calibrate", "--device", "cpu", "--seconds", "2"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_CACHE_HOME": str(home)})
    time.sleep(1)
    slow.send_signal(signal.SIGINT)
    out, err = slow.communicate(timeout=3600)
    check(slow.returncode == 130 and "nothing was kept" in err, "an interrupt ends it", said)
    check(not list(home.rglob("*.json")), "and keeps nothing")

    done = run("calibrate", "--device", "cpu", "--seconds", "0.01", "--json")
    check(done.returncode == 0, "calibrate ends well", done)
    [known] = json.loads(done.stdout)
    found = known["rates"]
    products = found["product_flops_per_second"]
    limits = {"copy_bytes_per_second": (1e8, 1e14), "run_seconds": (1e-8, 1e-1), "step_seconds": (0, 1e-2),
              "fork_seconds": (0, 1e-1), "to_device_bytes_per_second": (1e8, 1e13),
              "from_device_bytes_per_second": (1e8, 1e13), "transfer_seconds": (1e-10, 1e-2)}
    for key, (least, most) in limits.items():
        check(least <= found[key] <= most, f"{key} is plausible: {found[key]:.3g}")
    check({"f32", "f64", "bf16"} <= set(products), f"products of {sorted(products)}")
    check(all(1e7 < r < 1e16 for r in products.values()), "their rates are plausible")
    files = list(home.rglob("*"))
    path = pathlib.Path(known["file"])
    check([f for f in files if f.is_file()] == [path], "one file, and no temporary")

    check(rates() == known, "devices reads the same numbers again")
    after = run("devices")
    check("rates: measured, " + str(path) in after.stdout, "and says where they are", after)
    said = run("inspect", str(graph), "--device", "cpu")
    check("rates of" not in said.stdout, "inspect has nothing to remark", said)
    op = ("bench", "--op", 'unary(f32[1000]) {kind="gelu"}', "--seconds", "0.01", "--device", "cpu", "--json")
    ceilings = json.loads(run(*op).stdout)[-1]
    check(ceilings["calibrated"] and abs(ceilings["matmul_gflops_per_second"] * 1e9 / products["f32"] - 1) < 1e-6,
          "bench takes its ceilings from there")
    text = run("calibrate", "--device", "cpu:0", "--seconds", "0.01")
    check(text.returncode == 0 and "GFLOP/s" in text.stdout and str(path) in text.stdout, "as text, again", text)

    path.write_text(path.read_text()[:-30])
    check(not rates()["measured"] and "damaged" in rates()["remark"], "a damaged file is ignored")
    said = run("inspect", str(graph), "--device", "cpu")
    check(said.returncode == 0 and "is damaged" in said.stdout and str(path) in said.stdout, "and told by name", said)
    check(not json.loads(run(*op).stdout)[-1]["calibrated"], "bench measures by itself then")

    blocked = folder / "blocked"
    blocked.write_text("a file")
    # Before anything is measured, which would take many minutes.
    failed = run("calibrate", "--device", "cpu", "--seconds", "60", cache=blocked)
    check(failed.returncode == 1 and str(blocked) in failed.stderr, "a place that cannot be written is named", failed)
    unknown = run("calibrate", "--device", "nosuch:7")
    check(unknown.returncode == 1 and "nosuch:7" in unknown.stderr, "an unknown device is named", unknown)
