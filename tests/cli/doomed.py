# SPDX-License-Identifier: Apache-2.0
"""doomed.py TENON PLUGIN: if a plugin crashes, aborts or hangs, the command names it and its active call, and loses no output.
The fixture crashes or hangs where TENON_DOOM says."""
import json, os, pathlib, signal, subprocess, sys, tempfile, time

TENON, PLUGIN = map(os.path.abspath, sys.argv[1:3])
BENCH = ["bench", "--op", "binary(f32[8], f32[8]) {kind=\"add\"}", "--device", "doomed", "--seconds", "0.01", "--no-ceilings"]
CEILINGS = ["bench", "--op", "binary(f32[8], f32[8]) {kind=\"add\"}", "--device", "cpu", "--seconds", "0.01"]
# Sanitizers leave these signals to the command.
SANITIZERS = {name: os.environ.get(name, "") + ":handle_segv=0:handle_abort=0" for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")}
GRAPH = 'graph "g" {\n  input x: f32[4]\n  y = unary(x) {kind="exp"}\n  output "y" = y\n}\n'
failures = 0


def start(words, doom, **more):
    environment = {**os.environ, **SANITIZERS, "TENON_DOOM": doom}
    return subprocess.Popen([TENON, *map(str, words), "--plugin", PLUGIN], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, errors="replace", **more)


def check(name, child, status, said, printed=()):
    global failures
    out, err = child.communicate(timeout=3600)
    good = child.returncode == status and said in err and all(p in out for p in printed)
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {name}" + ("" if good else f": status {child.returncode}, expected {status}; {out[-300:]!r} {err[-500:]!r}"), flush=True)
    return out


def line(name, call, how="(SIGSEGV) in"):
    return f"tenon: the process crashed {how} plugin '{name}', call '{call}'\n"


watched = start(["devices"], "shutdown:hang"), start(["devices"], "enumerate:hang")  # takes half a minute; the other checks run meanwhile

for call in ("enumerate", "device_open", "compile", "run", "shutdown"):
    for how, number, word in (("segv", signal.SIGSEGV, "SIGSEGV"), ("abort", signal.SIGABRT, "SIGABRT")):
        check(f"{how} in {call}", start(BENCH, f"{call}:{how}"), -number, line("doomed", call, f"({word}) in"))
check("segv while it is loaded", start(["devices"], "dlopen:segv"), -signal.SIGSEGV, line(os.path.realpath(PLUGIN), "dlopen"))
check("overflow of the stack", start(BENCH, "run:stack"), -signal.SIGSEGV, line("doomed", "run"))
check("segv in a thread of the plugin", start(BENCH, "run:thread"), -signal.SIGSEGV,
      line("doomed", "run", "(SIGSEGV) in a thread outside of plugin calls; active:"))
check("no crash", start(BENCH, ""), 0, "")

# Printed output is complete.
def json_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


with tempfile.TemporaryDirectory() as work:
    graph = pathlib.Path(work) / "g.tng"
    graph.write_text(GRAPH)
    said = line("doomed", "shutdown", "(SIGABRT) in")
    doom = "shutdown:abort"
    check("devices", start(["devices"], doom), -signal.SIGABRT, said, ["devices:\n", "plugins:\n", "loaded: doomed"])
    check("inspect", start(["inspect", graph], doom), -signal.SIGABRT, said, ["memory:\n"])
    check("inspect --text", start(["inspect", graph, "--text"], doom), -signal.SIGABRT, said, [GRAPH.splitlines()[1], "\n}\n"])
    check("bench", start(CEILINGS, doom), -signal.SIGABRT, said, ["ceilings: copy"])
    out = check("bench --json", start([*CEILINGS, "--json"], doom), -signal.SIGABRT, said)
    parsed = json_of(out)
    if not parsed or parsed[-1].get("name") != "ceilings":
        failures += 1
        print(f"BAD bench --json: not whole: {out[-200:]!r}")
    check("an error", start(["inspect", f"{work}/nothing"], doom), -signal.SIGABRT, "nothing")


def wait_until_inside(child, call):
    """Waits until the child sleeps in the fixture, the only caller of nanosleep."""
    while child.poll() is None:
        try:
            if "nanosleep" in pathlib.Path(f"/proc/{child.pid}/wchan").read_text() or pathlib.Path(f"/proc/{child.pid}/syscall").read_text().split()[0] in ("35", "115", "230"):
                return
        except OSError:
            time.sleep(1)  # /proc does not show it here; one second is long enough on most machines
            return
        time.sleep(0.01)


# Killed from outside.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGQUIT):
    for call in ("enumerate", "run", "shutdown"):
        child = start(BENCH, f"{call}:hang")
        wait_until_inside(child, call)
        child.send_signal(number)
        check(f"{number.name} while {call} hangs", child, -number, f"tenon: ended by {number.name} in plugin 'doomed', call '{call}'\n")
with tempfile.TemporaryDirectory() as work:
    # The first signal asks a training to stop; a second one, at least half a second later, kills it.
    child = start(["lm", "train", "--text", "/usr/share/common-licenses/Apache-2.0", "--out", f"{work}/m", "--device", "doomed", "--dim", 32, "--layers", 1,
                   "--heads", 2, "--kv-heads", 1, "--ffn", 48, "--context", 16, "--batch", 2], "run:hang")
    wait_until_inside(child, "run")
    child.send_signal(signal.SIGINT)
    time.sleep(1)
    child.send_signal(signal.SIGINT)
    check("the second SIGINT of a training", child, -signal.SIGINT, "ended by SIGINT in plugin 'doomed', call 'run'")

# A minute at most, however loaded the machine is: the watch looks every five seconds.
for child, call in zip(watched, ("shutdown", "enumerate")):
    said = ""
    while "30 s" not in said and child.poll() is None:
        said += child.stderr.readline()
    child.kill()
    out, _ = child.communicate()
    good = f"tenon: plugin 'doomed', call '{call}': has not returned for 30 s" in said and (call == "enumerate" or "plugins:\n" in out)
    failures += not good
    print(f"{'ok ' if good else 'BAD'} a watch on {call}" + ("" if good else f": {said!r} {out!r}"))
print(f"{failures} failures")
sys.exit(1 if failures else 0)
