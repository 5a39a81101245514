# SPDX-License-Identifier: Apache-2.0
"""kernel_cases.py BUILD: ids of a few conformance cases that launch every kernel of plugins/cuda together.

What a case launches is measured: tenon_conform runs all of at most ELEMENTS elements over the stub of the CUDA libraries,
which writes down each launch (its results are mostly wrong there, which does not matter here). The cases that are printed
have together, of each kernel of each text,
  - each value that a define before the text takes, a dtype standing for its size, and
  - each set of what the text's #ifs look at,
with several blocks wherever any case has it so; and a case of the largest in which the kernel is launched at all. Defines
count in texts with shared memory alone. What no case launches is named on stderr.
"""
import collections
import concurrent.futures
import heapq
import os
import pathlib
import re
import subprocess
import sys

ELEMENTS = 2097152
# A GPU of sm_90 of the large sort: how work is cut into blocks depends on it.
MACHINE = "major=9,minor=0,processors=132,shared=232448,l2=52428800"
FORMS = re.compile(r"-(refused|strided|decomposed)$|-grad-")  # of a row; its first form has none
SIZES = {dtype: size for size, dtypes in {1: "b8 i8 u8 f8e4m3 f8e5m2", 2: "i16 u16 f16 bf16", 4: "i32 u32 f32",
                                          8: "i64 u64 f64"}.items() for dtype in dtypes.split()}
Launch = collections.namedtuple("Launch", "text entry blocks threads bytes defines")
Case = collections.namedtuple("Case", "family id launches")


class Texts:
    """The files of device/: what each includes, which defines steer it, its kernels."""

    def __init__(self, folder):
        self.content = {f.name: f.read_text() for f in folder.glob("*.cu*")}
        self.steering, self.shares, self.kernels = {}, {}, set()
        for name in self.content:
            whole = "".join(self.content[n] for n in self.included(name))
            conditions = " ".join(re.findall(r"^#\s*(?:if|elif)(.*)$", whole, re.M))
            self.steering[name] = set(re.findall(r"\b[A-Z]\w*", conditions))
            self.shares[name] = "__shared__" in whole
            if name.endswith(".cu"):
                self.kernels |= {(name, entry) for entry in re.findall(r"__global__[^{;]*?\b(\w+)\([^()]*\)\s*\{", whole)}

    def included(self, name, seen=None):
        seen = seen if seen is not None else {}
        if name in self.content and name not in seen:
            seen[name] = None
            for other in re.findall(r'#include "(.*?)"', self.content[name]):
                self.included(other, seen)
        return seen


def cases_of(build, family):
    """What each case of the family launches."""
    conform = build / "bin/tenon_conform"
    listed = subprocess.run([conform, "--family", family, "--list"], check=True, capture_output=True, text=True).stdout
    ids = [line.split()[0] for line in listed.splitlines() if not FORMS.search(line.split()[0])]
    stub = {"TENON_CUDA_PATH": str(build / "lib/tenon/stub_cuda/all"), "TENON_STUB_CUDA": MACHINE,
            "TENON_STUB_LAUNCHES": "/dev/stdout", "TENON_CUDA_CACHE": ""}
    command = ["stdbuf", "-oL", conform, "--plugin", next(build.rglob("tenon_plugin_template.so")), "--device", "cuda:0",
               "--elements", str(ELEMENTS), "--jobs", "1", "--verbose", *(word for i in ids for word in ("--case", i))]
    run = subprocess.run(command, env=os.environ | stub, capture_output=True, text=True, errors="replace")
    if run.returncode not in (0, 1) or "launch\t" not in run.stdout:
        sys.exit(f"kernel_cases.py: {family} over the stub: exit status {run.returncode}\n{run.stderr[-2000:]}")
    cases, launches = [], []
    for line in run.stdout.splitlines():
        word, _, rest = line.partition("\t")
        if word == "launch":
            text, entry, blocks, threads, size, *defines = rest.split("\t")
            launches.append(Launch(text, entry, int(blocks), int(threads), int(size), tuple(defines)))
        elif line[:5] in ("pass ", "FAIL ", "skip "):
            cases.append(Case(family, line[5:].split(":")[0], launches))
            launches = []
    return cases


def flags_of(texts, launch):
    """What the #ifs of its text look at, a dtype standing for its size, a number for whether it is 0."""
    steering = texts.steering.get(launch.text, ())
    return frozenset((name, value != "0") for name, value in defines_of(launch) if name in steering)


def defines_of(launch):
    for define in launch.defines:
        name, _, value = define.partition(" ")
        # Of a function it counts that there is one.
        yield (name.split("(")[0], "given") if "(" in name else (name, str(SIZES.get(value, value)))


def forms_of(texts, launch):
    """What is to be covered that a launch covers."""
    kernel = (launch.text, launch.entry)
    yield kernel
    if texts.shares.get(launch.text, True):
        yield from ((*kernel, *define) for define in defines_of(launch))
        yield (*kernel, flags_of(texts, launch))


def needs_of(texts, cases):
    """For each case what it covers."""
    several, largest = set(), collections.Counter()
    size = lambda l: (l.text, l.entry, "largest", flags_of(texts, l) if texts.shares.get(l.text, True) else None)
    for case in cases:
        for l in case.launches:
            largest[size(l)] = max(largest[size(l)], l.bytes)
            if l.blocks > 1:
                several.update(forms_of(texts, l))
    return [{case.family} | {f for l in case.launches for f in forms_of(texts, l) if l.blocks > 1 or f not in several} |
            {size(l) for l in case.launches if l.bytes * 2 > largest[size(l)]} for case in cases]


def cost_of(case):
    """About seconds under a checker: a case, its launches, their threads, what is compared."""
    return (1 + sum(0.05 + l.threads * 1e-5 for l in case.launches) +
            max((l.bytes for l in case.launches), default=0) * 2e-7)


def choose(covers, costs):
    """Greedily: indices of sets that have all elements of all, cheap ones, those that bring most first."""
    missing = set().union(*covers)
    queue = [(-len(c) / costs[k], k) for k, c in enumerate(covers) if c]
    heapq.heapify(queue)
    chosen = []
    while missing:
        _, k = heapq.heappop(queue)
        worth = -len(covers[k] & missing) / costs[k]
        if worth == 0:
            continue
        if queue and worth > queue[0][0]:  # others have taken of it since
            heapq.heappush(queue, (worth, k))
            continue
        chosen.append(k)
        missing -= covers[k]
    counts = collections.Counter(element for k in chosen for element in covers[k])
    for k in reversed(list(chosen)):
        if all(counts[element] > 1 for element in covers[k]):
            chosen.remove(k)
            counts.subtract(covers[k])
    return chosen


def main():
    build, here = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(__file__).resolve().parent
    texts = Texts(here / "../../plugins/cuda/device")
    listed = subprocess.run([build / "bin/tenon_conform", "--list-families"], check=True, capture_output=True, text=True)
    families = listed.stdout.split()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        cases = [case for some in pool.map(lambda f: cases_of(build, f), families) for case in some]
    covers = needs_of(texts, cases)
    chosen = choose(covers, [cost_of(case) for case in cases])
    launched = {l[:2] for case in cases for l in case.launches}
    print(f"{len(chosen)} of {len(cases)} cases launch {len(launched)} kernels; {len(set().union(*covers))} forms and sizes",
          file=sys.stderr)
    for text, entry in sorted(texts.kernels - launched):
        print(f"no case launches {entry} of {text}", file=sys.stderr)
    for k in chosen:
        print(cases[k].id)


main()
