# SPDX-License-Identifier: Apache-2.0
"""kit.py TEST CONFORM PLUGIN_FOLDER SOURCE: tests tenon_conform itself. TEST is the name of a function below.

The fixture `uneven` crashes, hangs, ends its process or is wrong in kernels of chosen ops; `doomed` does so in chosen calls.
"""
import collections
import json
import os
import pathlib
import pty
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

TEST, CONFORM, FOLDER, SOURCE = sys.argv[1], *map(pathlib.Path, sys.argv[2:5])
TEMPLATE = FOLDER / "test_plugins/tenon_plugin_template.so"
UNEVEN = FOLDER / "uneven_plugins/tenon_plugin_uneven.so"
DOOMED = FOLDER / "doomed_plugins/tenon_plugin_doomed.so"
# Sanitizers leave these signals to the kit.
SANITIZERS = {name: os.environ.get(name, "") + ":handle_segv=0:handle_abort=0" for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")}
LIMIT = 5  # seconds; long enough for any case that does not hang, on a busy machine
WORK = pathlib.Path(tempfile.mkdtemp())
failures = 0


def check(name, got, wanted):
    global failures
    good = got == wanted
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {name}" + ("" if good else f": expected {wanted!r}, got {got!r}"), flush=True)


def words_of(words, device=None):
    plugin = {"uneven": UNEVEN, "doomed": DOOMED}.get(device)
    here = ["--plugin", TEMPLATE, *(["--plugin", plugin] if plugin else []), "--device", f"{device}:0"] if device else []
    return [str(w) for w in (CONFORM, *here, *words)]


def run(*words, device=None, env={}, **more):
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 900} | more
    return subprocess.run(words_of(words, device), text=True, errors="replace", env=os.environ | SANITIZERS | env, **more)


def start(*words, device, env={}):
    return subprocess.Popen(words_of(words, device), text=True, env=os.environ | SANITIZERS | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell may have ignored it


def listed(*words):
    done = run("--list", *words)
    if done.returncode:
        raise SystemExit(f"--list {words}: {done.stderr}")
    return [tuple(line.split()[:2]) for line in done.stdout.splitlines()]


Case = collections.namedtuple("Case", "id requirement family level proof dtype ops")


def cases(*words):
    lines = run("--list", "--verbose", *words).stdout.splitlines()
    return [Case(*a.split()[:2], *b.split()[:4], tuple(b.split()[4:])) for a, b in zip(lines[::2], lines[1::2])]


def report(*words, **more):
    """The run, and what its JSON says."""
    file = WORK / "report.json"
    file.unlink(missing_ok=True)
    done = run("--json", file, *words, **more)
    return done, json.loads(file.read_text()) if file.exists() else None


def results(read):
    return {c["id"]: c["result"] for c in read["cases"]}


def globs(*ids):
    return [word for i in ids for word in ("--case", i)]


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children_of(pid):
    out = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if stat.read_text().rpartition(")")[2].split()[1] == str(pid):
                out.append(int(stat.parent.name))
        except OSError:
            pass
    return out


def where(pid):
    """The call of the kernel in which a process waits, where the machine tells."""
    try:
        return pathlib.Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return ""


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def shards():
    for words, counts in (([], (1, 5)), (["--quick"], (3,)), (["--family", "matmul", "--case", "*-strided"], (2, 7)), (["--fusion", "--family", "norm"], (2,))):
        whole = listed(*words)
        for n in counts:
            parts = [listed(*words, "--shard", f"{i}/{n}") for i in range(1, n + 1)]
            check(f"{words}: the {n} shards have each case once", sorted(c for p in parts for c in p), sorted(whole))
            sizes = sorted(map(len, parts))
            if words != ["--quick"]:  # one of its cases takes as long as hundreds of the others
                check(f"{words}: {n} shards of similar size, {sizes}", sizes[-1] - sizes[0] <= max(0.1 * len(whole) / n, 8), True)
            check(f"{words}: a shard keeps the order of the list", [[c for c in whole if c in p] for p in map(set, parts)], parts)
    check("a shard is the same each time", listed("--shard", "2/3"), listed("--shard", "2/3"))
    both = [run("--case", "iota-f32", "--shard", f"{i}/2", device="template") for i in (1, 2)]
    check("an empty shard passes", [d.returncode for d in both], [0, 0])
    check("one of two shards has a single case", sorted(re.search(r": (\d) passed", d.stderr)[1] for d in both), ["0", "1"])
    for bad in ("0/3", "4/3", "3", "a/b", "1/0", "/", "-1/3"):
        check(f"--shard {bad}", run("--list", "--shard", bad).returncode, 2)


def quick():
    everything, some = cases(), cases("--quick")
    share = len(some) / len(everything)
    check(f"the share that the help states: {share:.1%}", ("about 6 % of the kit's" in run("--help").stdout, abs(share - 0.06) < 0.01), (True, True))
    check("quick cases are cases of the kit", set(some) <= set(everything), True)
    features = {
        "family": lambda c: {c.family},
        "proof of a family": lambda c: {(c.family, c.proof)},
        "dtype of a family": lambda c: {(c.family, c.dtype)},
        "op and kind of a family": lambda c: {(c.family, op) for op in c.ops},
        "op with a dtype": lambda c: {(op.split("/")[0], c.dtype) for op in c.ops if c.dtype != "-"},
    }
    for name, feature in features.items():
        of = lambda chosen: {f for c in chosen if c.proof != "error" or name == "proof of a family" for f in feature(c)}
        missing = of(everything) - of(some)
        check(f"each {name}, {len(of(everything))}", missing, set())
    in_f32 = lambda chosen: {op for c in chosen if c.dtype == "f32" and c.proof == "value" for op in c.ops}
    check("each op and kind in f32, where it has that", in_f32(everything) - in_f32(some), set())
    check("an empty case stands for no op", [c.id for c in some if "binary/add" in c.ops and c.dtype == "f32" and c.proof == "value" and "empty" not in c.id] != [], True)
    ops = set(re.findall(r"^TENON_OP\((\w+?)_?, \d+, \w+, (?:primitive|core|control)\)", (SOURCE / "sdk/include/tenon/ops.def").read_text(), re.M))
    check(f"each op of ops.def, {len(ops)}", (len(ops) > 60, ops - {op.split("/")[0] for c in some for op in c.ops}), (True, set()))
    check("the same each time", cases("--quick"), some)
    check("a family's part does not depend on the others", cases("--quick", "--family", "norm"), [c for c in some if c.family == "norm"])


def ids():
    every = [listed(*words) for words in ([], ["--fusion"])]
    names = [name for one in every for case in one for name in case]
    check(f"all {len(names)} ids are unique", len(set(names)), len(names))
    check("a requirement id has a form", [r for one in every for _, r in one if not re.fullmatch(r"op\.[\w-]+\.[\w.+-]+\.[\w-]+(\.[\w.]+)?", r)], [])
    kept = [tuple(line.split()) for line in (SOURCE / "tests/conformance/requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    check("ids of the kept list", [k for k in kept if k not in set(every[0]) | set(every[1])], [])
    check("the kept list is one", len(kept) > 10, True)
    own = WORK / "own.json"
    case = {"id": "mine", "op": "softmax", "inputs": [{"name": "x", "dims": [2, 3]}], "dtypes": ["f32"]}
    own.write_text(json.dumps({"cases": [case]}))
    before = {r for _, r in listed("--cases", own)}
    own.write_text(json.dumps({"cases": [case | {"id": "another"}, case | {"dtypes": ["f64", "f16", "f32"]}]}))
    after = {r for _, r in listed("--cases", own)}
    check("ids before a case and dtypes were added", {r for r in before if "zeros" not in r},
          {"op.softmax.mine.value.f32", "op.softmax.mine.strided.f32", "op.softmax.mine.decomposed.f32"})
    check("they are still there", {r for r in before if "zeros" not in r} <= after, True)
    check("--requirement selects", listed("--requirement", "op.matmul.*.strided.f16"),
          [c for c in every[0] if re.fullmatch(r"op\.matmul\..*\.strided\.f16", c[1])])
    check("--requirement and --case both", listed("--requirement", "op.*.value.f32", "--case", "iota-f*"), [("iota-f32", "op.shape.iota-f32.value.f32")])
    check("--families counts what is listed", {line.split()[0]: int(line.split()[1]) for line in run("--families", "--quick").stdout.splitlines()[1:-1]},
          dict(collections.Counter(c.family for c in cases("--quick"))))


UNEVEN_CASES = globs("cumsum-last-f*", "cumsum-last-bf16*", "sort-last-f16", "sort-last-f32", "random-bits-0", "iota-f16", "iota-f32")
UNEVEN_RESULTS = {
    "cumsum-last-f16": "crash", "cumsum-last-f16-strided": "crash", "sort-last-f16": "hang", "random-bits-0": "crash", "iota-f16": "fail",
    **{name: "pass" for name in ("cumsum-last-f32", "cumsum-last-f32-strided", "cumsum-last-f32-zeros", "cumsum-last-f64", "cumsum-last-f64-strided",
                                 "cumsum-last-bf16", "cumsum-last-bf16-strided", "sort-last-f32", "iota-f32")}}


def isolation():
    for mode in ("case", "group"):
        done, read = report("--isolate", mode, "--timeout", LIMIT, *UNEVEN_CASES, device="uneven")
        check(f"{mode}: results", results(read), UNEVEN_RESULTS)
        check(f"{mode}: exit status", done.returncode, 1)
        of = {c["id"]: c for c in read["cases"]}
        check(f"{mode}: reason of a crash", of["cumsum-last-f16"]["reason"], "killed by SIGSEGV in plugin 'uneven', call 'run'")
        check(f"{mode}: reason of an early end", of["random-bits-0"]["reason"], "ended with exit status 3")
        check(f"{mode}: reason of a hang", of["sort-last-f16"]["reason"], f"killed after {LIMIT} s in plugin 'uneven', call 'run'")
        check(f"{mode}: output of a crash", "crashed (SIGSEGV)" in of["cumsum-last-f16"]["output"], True)
        check(f"{mode}: output of a failure is its own", (of["iota-f16"]["output"][:6], of["iota-f32"]["output"]), ("wrong:", ""))
        left = int(re.search(r"left behind: (\d+)", of["sort-last-f16"]["output"])[1])
        check(f"{mode}: no process is left", wait_for(lambda: not is_running(left), 10), True)
        check(f"{mode}: last line", done.stderr.splitlines()[-1], "uneven:0: 9 passed, 1 failed, 0 skipped, 3 crashed, 1 hung")
        check(f"{mode}: a failure says its requirement and how to repeat it",
              ("requirement: op.scan.cumsum-last.value.f16\n" in done.stdout, "--device uneven:0 --case cumsum-last-f16\n" in done.stdout), (True, True))
    done, read = report("--isolate", "case", *globs("iota-bf16"), device="uneven")
    check("an end after the case", (results(read), read["cases"][0]["reason"]),
          ({"iota-bf16": "crash"}, "after the case, at the end of its process: ended with exit status 5"))
    done, read = report("--isolate", "case", *globs("iota-f64"), device="uneven")
    check("messages of a plugin", (results(read), "sent a message that tenon_conform does not send: {" in read["cases"][0]["reason"]), ({"iota-f64": "crash"}, True))
    same = [results(report("--family", "softmax", "--family", "control", "--quick", *more, device="template")[1]) for more in ([], ["--isolate", "group"])]
    check("the same results with and without", (same[0] == same[1], len(same[0]) > 50), (True, True))
    own = WORK / "own.json"
    own.write_text(json.dumps({"cases": [{"id": "mine", "op": "cumsum", "attributes": {"axis": 0}, "inputs": [{"name": "x", "dims": [3], "fill": {"values": [1, 2, 3]}}],
                                          "outputs": [{"name": "y", "expect": [1, 3, 6]}], "dtypes": ["f32", "f16"]}]}))
    done, read = report("--cases", own, "--isolate", "group", "--case", "mine-f??", device="uneven")
    check("cases of a file", (done.returncode, results(read)), (1, {"mine-f32": "pass", "mine-f16": "crash"}))
    for doom, said in (("device_open:segv", "killed by SIGSEGV in plugin 'doomed', call 'device_open'"),
                       ("device_open:hang", f"killed after {LIMIT} s in plugin 'doomed', call 'device_open'")):
        done, read = report("--isolate", "case", "--timeout", LIMIT, *globs("iota-f32"), device="doomed", env={"TENON_DOOM": doom})
        check(f"{doom}: one error, no result", (done.returncode, said in done.stderr, read), (1, True, None))
    for device in ("nothing:0", ""):
        done = run("--isolate", "group", *globs("iota-f32"), "--plugin", TEMPLATE, "--device", device)
        check(f"no device '{device}'", (done.returncode, done.stderr.startswith(f"tenon_conform: no device {device}; there are: ")), (1, True))
    for words in (["--isolate", "none"], ["--timeout", "3"], ["--isolate", "case", "--timeout", "0"]):
        check(f"{words}", run("--list", *words).returncode, 2)


def expectations():
    file = WORK / "known"
    lines = ["# known failures", "", "cumsum-last-f16* its kernel crashes", "op.order.sort-last.*.f16\thangs", "random-bits-0", "iota-f16 wrong"]
    isolated = ["--isolate", "group", "--timeout", LIMIT, "--expect", file, *UNEVEN_CASES]
    file.write_text("\n".join(lines) + "\n")
    done, read = report(*isolated, device="uneven")
    check("each failure is known: exit status, totals", (done.returncode, read["totals"]["expected_failure"], read["totals"]["pass"], read["totals"]["fail"]), (0, 5, 9, 0))
    check("known failures keep their results", (results(read), {c["id"] for c in read["cases"] if c["expected"]}),
          (UNEVEN_RESULTS, {i for i, r in UNEVEN_RESULTS.items() if r != "pass"}))
    check("they are not printed", done.stdout, "")
    file.write_text("\n".join([*lines, "cumsum-last-f32 was wrong once"]) + "\n")
    done, read = report(*isolated, device="uneven")
    check("an unexpected pass fails the run", (done.returncode, results(read)["cumsum-last-f32"], read["totals"]["unexpected_pass"], read["totals"]["pass"]),
          (1, "unexpected-pass", 1, 8))
    check("it is printed", done.stdout.startswith("UNEXPECTED cumsum-last-f32: "), True)
    file.write_text("cumsum-last-f16*\n")
    done, read = report(*isolated, device="uneven")
    check("a failure that is not listed fails the run", (done.returncode, read["totals"]["expected_failure"], read["totals"]["crash"]), (1, 2, 1))
    file.write_text("# one\ncumsum-lost-f16\n")
    done = run(*isolated, device="uneven")
    check("an entry without a case", (done.returncode, f"{file}:2: 'cumsum-lost-f16' matches no case id" in done.stderr), (2, True))
    check("no such file", run("--expect", WORK / "nothing", *UNEVEN_CASES, device="uneven").returncode, 2)


def counts_of_table(text, head):
    """{row: {column: count}} of a table of the summary."""
    block = next(b for b in text.split("\n\n") if b.startswith(head)).splitlines()
    columns = block[0].split()[1:]
    return {line.split()[0]: dict(zip(columns, map(int, line.split()[1:]))) for line in block[1:] if re.match(r"\w+ +\d", line)}


def reports():
    junit, known = WORK / "report.xml", WORK / "known"
    known.write_text("random-bits-0 ends\niota-f32\n")
    done, read = report("--junit", junit, "--isolate", "group", "--timeout", LIMIT, "--expect", known, *UNEVEN_CASES,
                        *globs("softmax-last*"), device="uneven")
    words = {"pass": "pass", "fail": "fail", "crash": "crash", "hang": "hang", "skip": "skip", "unexpected-pass": "unexpected_pass"}

    def count(some):
        return collections.Counter("expected_failure" if c["expected"] and c["result"] in ("fail", "crash", "hang") else words[c["result"]] for c in some)

    def whole(totals):
        return {k: v for k, v in totals.items() if v and k != "cases"}

    check("totals of JSON", whole(read["totals"]), dict(count(read["cases"])))
    check("each kind of result is there", set(count(read["cases"])), set(words.values()) | {"expected_failure"})
    for key, rows in (("family", read["families"]), ("level", read["levels"])):
        check(f"totals per {key} of JSON", {n: whole(t) for n, t in rows.items() if t["cases"]},
              {n: dict(count(c for c in read["cases"] if c[key] == n)) for n in {c[key] for c in read["cases"]}})
        names = {"known": "expected_failure", "unexpected": "unexpected_pass"}
        check(f"totals per {key} of the text", {n: {names.get(k, k): v for k, v in t.items()} for n, t in counts_of_table(done.stderr, key).items()}, rows)
    skips = collections.Counter(c["reason"] for c in read["cases"] if c["result"] == "skip")
    check("skips of JSON by reason", {s["reason"]: s["cases"] for s in read["skips"]}, dict(skips))
    check("skips of the text by reason", {m[2]: int(m[1]) for m in re.finditer(r"^ +(\d+)  (.*)$", done.stderr, re.M)}, dict(skips))
    check("some were skipped", sum(skips.values()) > 0, True)
    check("selected = ran", (read["cases_selected"], read["not_run"], read["interrupted"], read["format"]), (len(read["cases"]), 0, False, 1))

    root = xml.etree.ElementTree.parse(junit).getroot()
    check("cases of JUnit", sorted(c.get("name") for c in root.iter("testcase")), sorted(c["id"] for c in read["cases"]))
    t = read["totals"]
    wanted = {"tests": t["cases"], "failures": t["fail"] + t["unexpected_pass"], "errors": t["crash"] + t["hang"], "skipped": t["skip"] + t["expected_failure"]}
    check("totals of JUnit", {k: int(root.get(k)) for k in wanted}, wanted)
    check("sums of its suites", {k: sum(int(s.get(k)) for s in root.iter("testsuite")) for k in wanted}, wanted)
    tags = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    check("elements of its cases", {k: sum(c.find(tag) is not None for c in root.iter("testcase")) for k, tag in tags.items()}, {k: wanted[k] for k in tags})
    wrong = next(c for c in root.iter("testcase") if c.get("name") == "iota-f16")
    check("output with bytes that XML cannot have", wrong.find("system-out").text.splitlines()[0], 'wrong: <iota> & "co" \ufffd[1m\ufffd\ufffd]]> \u00e9')
    check("a requirement", wrong.find("properties/property[@name='requirement']").get("value"), "op.shape.iota-f16.value.f16")
    done = run("--json", "-", *globs("iota-f32"), device="template")
    check("JSON on standard output", results(json.loads(done.stdout)), {"iota-f32": "pass"})


def files():
    old = WORK / "old"
    for option in ("--json", "--junit"):
        old.write_text("older\n")
        few = lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)))
        done = run(option, old, *globs("iota-*"), device="template", preexec_fn=few)
        check(f"{option}: a write fails", (done.returncode, f"tenon_conform: {option}: cannot write {old}: File too large\n" in done.stderr), (1, True))
        check(f"{option}: the older file stays", old.read_text(), "older\n")
        check(f"{option}: no other file", sorted(p.name for p in WORK.iterdir()), ["old"])
        done = run(option, WORK / "nowhere/report", *globs("iota-*"), "--verbose", device="template")
        check(f"{option}: no such folder, seen before anything runs", (done.returncode, done.stdout), (1, ""))
        check(f"{option}: a folder", run(option, WORK, *globs("iota-*"), device="template").returncode, 1)
        link = WORK / "link"
        link.symlink_to(old)
        check(f"{option}: over a link", (run(option, link, *globs("iota-f32"), device="template").returncode, link.is_symlink(), "iota-f32" in old.read_text()), (0, True, True))
        link.unlink()
        other = lambda: (WORK / f"old.{os.getpid()}-0.tmp").write_text("mine")
        done = run(option, old, *globs("iota-f64"), device="template", preexec_fn=other)
        left = next(WORK.glob("old.*-0.tmp"))
        check(f"{option}: a temporary file of another process stays", (done.returncode, left.read_text(), "iota-f64" in old.read_text()), (0, "mine", True))
        left.unlink()
        check(f"{option}: in place of a device", run(option, "/dev/null", *globs("iota-f32"), device="template").returncode, 0)


def interrupts():
    file = WORK / "report.json"
    hanging = ["--isolate", "case", "--timeout", 300, "--jobs", 1, "--verbose", "--json", file, *globs("sort-last-f32", "sort-last-f16", "sort-last-f64")]
    for number in (signal.SIGINT, signal.SIGTERM):
        child = start(*hanging, device="uneven")
        first = child.stdout.readline()
        check("a case ran", first, "pass sort-last-f32: sort: the last axis\n")
        # The case that hangs has left a process; its parent is the kit's child.
        found = wait_for(lambda: [p for c in children_of(child.pid) for p in (c, *children_of(c))][1:])
        check("the next one hangs", len(found), 1)
        inside = [p for c in children_of(child.pid) for p in (c, *children_of(c))]
        child.send_signal(number)
        out, err = child.communicate(timeout=60)
        check(f"{number.name}: exit status", child.returncode, 128 + number)
        check(f"{number.name}: totals so far", ("interrupted: 2 cases did not run\n" in err, err.splitlines()[-1]), (True, "uneven:0: 1 passed, 0 failed, 0 skipped"))
        read = json.loads(file.read_text())
        check(f"{number.name}: JSON", (read["interrupted"], read["not_run"], results(read)), (True, 2, {"sort-last-f32": "pass"}))
        check(f"{number.name}: no process is left", wait_for(lambda: not any(map(is_running, inside)), 10), True)
    # Some proofs turn out to have nothing to prove, and count nowhere; values always count.
    child = start("--verbose", "--json", file, "--requirement", "op.attention.*.value.*", device="template")
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    read = json.loads(file.read_text())
    check("without children", (child.returncode, read["interrupted"], read["not_run"] > 0, read["totals"]["cases"] > 0), (130, True, True, True))
    check("what ran and what did not are all", read["totals"]["cases"] + read["not_run"], read["cases_selected"])
    child = start("--isolate", "case", "--timeout", 300, *globs("iota-f32"), device="doomed", env={"TENON_DOOM": "run:hang"})
    wait_for(lambda: any("nanosleep" in where(c) for c in children_of(child.pid)), 20)
    inside = children_of(child.pid)
    child.kill()
    child.communicate(timeout=60)
    check("children end with the kit", (len(inside), wait_for(lambda: not any(map(is_running, inside)), 10)), (1, True))


def levels():
    done, read = report("--quick", device="template")
    check("the template", (read["level"], f"level: full (of {read['cases_selected']} of {read['cases_of_kit']} cases)\n" in done.stderr),
          ({"judged": True, "reached": "full", "missing": ""}, True))
    check("a case is of the level of its ops", {c["level"] for c in read["cases"] if "softmax" in c["ops"] and c["proof"] == "value"}, {"core"})
    check("primitives", {c["level"] for c in read["cases"] if c["ops"] == ["matmul"] and c["proof"] == "value"}, {"primitive"})
    check("control flow and gradients", {c["level"] for c in read["cases"] if c["family"] == "control" or c["proof"] == "gradient"}, {"full"})
    done, read = report("--quick", "--family", "softmax", device="template")
    check("a part cannot tell", (read["level"]["judged"], read["level"]["reached"]), (False, None))
    done, read = report("--quick", "--isolate", "group", "--elements", 64, "--timeout", LIMIT, "--jobs", 8, device="uneven")
    bad = sum(c["result"] in ("fail", "crash", "hang") for c in read["cases"] if c["level"] == "primitive")
    check("no level with a failure of a primitive", (read["level"], bad > 0), ({"judged": True, "reached": None, "missing": f"{bad} cases of this level failed"}, True))


def partial():
    case = globs("avgpool2d-integers-refused")  # the shape rule refuses it on every device
    for more in ([], ["--partial"]):
        check(f"a refusal that the case expects {more}", results(report(*case, *more, device="template")[1]), {"avgpool2d-integers-refused": "pass"})


def terminal():
    def shown(*words):
        master, slave = pty.openpty()
        child = subprocess.Popen(words_of(words, "template"), stdout=subprocess.DEVNULL, stderr=slave)
        os.close(slave)
        out = b""
        try:
            while piece := os.read(master, 4096):
                out += piece
        except OSError:  # the other end is closed
            pass
        child.wait()
        return out.decode(errors="replace")
    check("progress on a terminal", bool(re.search(r"\r\x1b\[K\d+/\d+ cases, 0 bad", shown("--family", "matmul", "--elements", "4096"))), True)
    check("none elsewhere", "\x1b" in run("--family", "softmax", "--quick", device="template").stderr, False)


globals()[TEST]()
subprocess.run(["rm", "-rf", WORK])
print(f"{failures} failures")
sys.exit(1 if failures else 0)
