# SPDX-License-Identifier: Apache-2.0
"""The test of the gate (gate.py). Each bad change of gate_changes.py must be refused by name, in as many lines as it
has causes. Each good one must be accepted. The commands of the gate run on copies of the headers."""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import gate
import gate_record
from gate_changes import BAD, GIVEN, GOOD


def copy(include, target):
    """A copy of the contract: the C headers and ops.def, and nothing else."""
    (target / "tenon").mkdir(parents=True)
    for path in [*(include / "tenon").glob("*.h"), include / "tenon/ops.def"]:
        shutil.copyfile(path, target / "tenon" / path.name)


def change(folder, place, pattern, replacement):
    """Makes one of the prepared changes."""
    name, _, part = place.partition(":")
    path = folder / "tenon" / name
    if pattern is None:
        if path.exists():
            path.unlink()
        else:
            path.write_text("#define TENON_FRESH 1\n")
        return
    text = path.read_text()
    begin, end = 0, len(text)
    if part:
        outline = rf"TENON_OP\({part},(?:.*\n)*?TENON_END\({part}\)\n" if name == "ops.def" else \
            rf"(?<=typedef struct {part} \{{)(?:.*\n)*?(?=\}} {part};)|(?<=typedef struct {part} \{{).*(?=\}} {part};)"
        found = re.search(outline, text)
        if not found:
            raise gate_record.Failure(f"{place}: not found; adapt the change")
        begin, end = found.span()
    changed, count = re.subn(pattern, replacement, text[begin:end], count=0 if place == "version.h" else 1)
    if not count or changed == text[begin:end]:
        raise gate_record.Failure(f"{place}: the pattern {pattern!r} is not found; adapt the change")
    path.write_text(text[:begin] + changed + text[end:])


def try_change(base, past, folder, edit):
    """The lines of the refusal; a string if the change could not be made."""
    try:
        shutil.copytree(base, folder)
        change(folder, *edit)
        return gate.compare(past, gate_record.record(folder))
    except gate_record.Failure as failure:
        return str(failure)


def as_expected(found, expected):
    return isinstance(found, list) and len(found) == len(expected) and all(map(str.__contains__, found, expected))


def results_of_changes(pool, base, work):
    """(what, is it as expected?, lines) of each prepared change."""
    past = gate_record.record(base)
    changes = [*BAD, *((*c, []) for c in GOOD)]
    tries = [pool.submit(try_change, base, past, work / f"change{i}", c[1:4]) for i, c in enumerate(changes)]
    same = gate.compare(past, past)
    yield "the headers against themselves", not same, same
    for (what, *_, expected), attempt in zip(changes, tries):
        found = attempt.result()
        good = as_expected(found, expected)
        lines = [found] if isinstance(found, str) else found or ["accepted"]
        yield what, good, lines if good else [*lines, "expected:", *(expected or ["accepted"])]


def results_of_commands(include, work):
    """Likewise of record, check, keep and past, as a build runs them, with their exit status."""
    results, now, past = [], work / "now", work / "past"
    copy(include, now)
    past.mkdir()
    number = gate.version_of(gate_record.record(now)).split(".")
    version, later = ".".join(number), f"{number[0]}.{int(number[1]) + 1}"

    def expect(what, status, said, *words):
        done = subprocess.run([sys.executable, gate.__file__, *map(str, words)], capture_output=True, text=True)
        good = done.returncode == status and all(part in done.stdout + done.stderr for part in said)
        results.append((what, good, [] if good else [f"expected status {status} and {said}, got {done.returncode}",
                                                     *done.stdout.splitlines()[-20:], *done.stderr.splitlines()[-20:]]))
        return done.stdout

    expect("past: no version is kept", 77, ["no version is kept"], "past", past, now)
    (work / "now.json").write_text(expect("record", 0, ["tenon_backend"], "record", now))
    expect("check: the same headers", 0, ["nothing but additions"], "check", work / "now.json", now)
    expect("keep", 0, [f"{version}/include/tenon"], "keep", now, past)
    expect("keep: a version is kept once", 1, [f"version {version} is kept already"], "keep", now, past)
    expect("past: the same headers", 0, [f"against version {version}: nothing but additions"], "past", past, now)
    # The next version gets a slot and is kept; then the slot goes again. Only the later version has it.
    change(now, "version.h", rf"(#define TENON_ABI_MINOR) {number[1]}", rf"\1 {int(number[1]) + 1}")
    change(now, "backend.h:tenon_host", r"\Z", "  void (*fresh)(void);\n")
    expect("past: a slot more", 0, [f"against version {version}: nothing but additions"], "past", past, now)
    expect("keep: the next version", 0, [f"{later}/include/tenon"], "keep", now, past)
    change(now, "backend.h:tenon_host", r"  void \(\*fresh\)\(void\);\n", "")
    expect("past: what a kept version had is gone", 1,
           [f"against version {version}: nothing but additions",
            f"against version {later}: backend.h: tenon_host.fresh: the field was removed"], "past", past, now)
    change(now, "types.h:tenon_str", r"uint64_t size;", "uint32_t size;")
    said = "types.h: tenon_str.size: the field has another type; expected uint64_t, got uint32_t"
    expect("past: a break is refused by every version", 1,
           [f"against version {v}: {said}" for v in (version, later)], "past", past, now)
    expect("check: a break", 1, [said], "check", work / "now.json", now)
    (past / later).rename(past / "99.0")
    expect("past: a folder of another name", 1, [f"expected 99.0, got {later}"], "past", past, include)
    shutil.rmtree(past / "99.0/include")
    expect("past: a folder without headers", 1, ["99.0/include/tenon: no headers"], "past", past, include)
    expect("no command", 2, ["gate.py record"])
    return results


def selftest(include, work=None):
    include = pathlib.Path(include).resolve()
    bad = []
    if work is not None:
        pathlib.Path(work).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work) as name, concurrent.futures.ProcessPoolExecutor() as pool:
        folder = pathlib.Path(name)
        commands = pool.submit(results_of_commands, include, folder / "commands")
        copy(include, folder / "base")
        (folder / "base/tenon/given.h").write_text(GIVEN)
        for what, good, lines in [*results_of_changes(pool, folder / "base", folder), *commands.result()]:
            print("\n       ".join([f"{'ok ' if good else 'BAD'}  {what}", *lines]))
            if not good:
                bad.append(what)
    print(f"{len(BAD)} bad changes, {len(GOOD)} good ones, {len(bad)} of all tests failed: {', '.join(bad) or 'none'}")
    return 1 if bad else 0
