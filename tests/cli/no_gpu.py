# SPDX-License-Identifier: Apache-2.0
"""no_gpu.py TENON: a machine without an NVIDIA driver. The cuda plugin loads and says why it has no device, asking for
cuda:0 is refused with that reason, and auto runs on the cpu. Skipped (77) where there is a device."""
import json, subprocess, sys

TENON = sys.argv[1]


def run(*args):
    return subprocess.run([TENON, *args], capture_output=True, text=True, timeout=3600)


def check(good, what, said):
    if not good:
        print(f"BAD {what}; said:\n{said.stdout}{said.stderr}")
        sys.exit(1)
    print(f"ok  {what}")


listed = run("devices", "--json")
check(listed.returncode == 0, "devices ends well", listed)
report = json.loads(listed.stdout)
if any(d["kind"] == "cuda" for d in report["devices"]):
    print("skipped: there is an NVIDIA device")
    sys.exit(77)
plugin = [p for p in report["plugins"] if p["name"] == "cuda"]
check(len(plugin) == 1 and plugin[0]["loaded"] and plugin[0]["devices"] == 0, "the plugin loads, with no device", listed)
check("NVIDIA driver" in plugin[0]["text"], "its reason names the driver", listed)
plain = run("devices")
check("NVIDIA driver" in plain.stdout, "the reason is shown", plain)
bench = ("bench", "--op", 'unary(f32[1000]) {kind="gelu"}', "--no-ceilings", "--seconds", "0.01")
refused = run(*bench, "--device", "cuda:0")
check(refused.returncode != 0 and "cuda:0" in refused.stderr, "cuda:0 is refused by name", refused)
check("NVIDIA driver" in refused.stderr, "with the reason", refused)
auto = run(*bench, "--device", "auto")
check(auto.returncode == 0, "auto runs on the cpu", auto)
