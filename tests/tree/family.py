#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds a scratch op family to a copy of the tree.

family.py SOURCE_DIR WORK_DIR CMAKE GENERATOR NM

Shows that the files which CONTRIBUTING.md lists are enough, that records, rows, cases and tests of the family are then
wired, and that each forgotten file or definition is seen. Compiles the scratch files and the tables that join families,
nothing else.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

FILES = {
    "core/ops/scratch.cpp": """// SPDX-License-Identifier: Apache-2.0
// Records of the scratch family: scratch_twice.
#include "ops/table.hpp"

namespace tenon::core {
namespace {
void twice_shape(Infer& i, const op::scratch_twice& n) { i.out(0, i.type(n.x)); }
bool twice_lower(Lower& l, const op::scratch_twice& n) {
  l.out(0, l.b.plus(n.x, n.x));
  return true;
}
constexpr Record<op::scratch_twice> kTwice{
    .shape = twice_shape, .lower = twice_lower, .flops = no_products, .bytes = each_once};
}  // namespace
const OpRecord scratch_twice_def = record<op::scratch_twice, kTwice>();
}  // namespace tenon::core
""",
    "sdk/conformance/cases/scratch.cpp": """// SPDX-License-Identifier: Apache-2.0
// scratch_twice.
#include "cases/families.hpp"

namespace tenon::conform {
void scratch_cases(Suite& s) {
  s.floor({});
  s.add({.id = "scratch-twice", .sentence = "twice x", .build = [](CaseBuilder& b) {
           b.output("y", b.add(op::scratch_twice{.x = b.input("x", {3, 5})}));
         }});
}
}  // namespace tenon::conform
""",
    "tests/unit/ops/scratch_test.cpp": """// SPDX-License-Identifier: Apache-2.0
#include "rig.hpp"

using namespace tenon::core;

TEST_CASE("scratch_twice: keeps the type") {
  Rig r;
  CHECK(r.infer(op::scratch_twice{.x = r(kF32, {2})}) == "f32[2]");
}
""",
}
NATIVE = {
    "plugins/cpu/kernels/scratch.cpp": """// SPDX-License-Identifier: Apache-2.0
// scratch_twice.
#include "../kernels.hpp"

namespace tenon::cpu {
namespace {
sdk::Kernel make_scratch_twice(const sdk::op::scratch_twice& n, const sdk::Node&) {
  if (n.x.type().dtype != TENON_DTYPE_F32) throw sdk::Refusal::dtype("x", n.x.type().dtype);
  const int64_t count = n.x.type().elements();
  return {.run = [count](const sdk::Call& c) {
    for (int64_t i = 0; i < count; ++i) c.out<float>(0)[i] = 2 * c.in<float>(0)[i];
  }};
}
constexpr sdk::Row kRows[] = {sdk::row<sdk::op::scratch_twice, make_scratch_twice>()};
}  // namespace
std::span<const sdk::Row> scratch_rows() { return kRows; }
}  // namespace tenon::cpu
""",
    "plugins/cuda/kernels/scratch.cpp": """// SPDX-License-Identifier: Apache-2.0
// scratch_twice.
#include "../device.hpp"
#include "../kernels.hpp"
#include "args.hpp"
#include "entries.hpp"

namespace tenon::cuda {
namespace {
sdk::Kernel make_scratch_twice(const sdk::op::scratch_twice& n, const sdk::Node& node) {
  const sdk::Type& x = n.x.type();
  if (!is_float(x.dtype)) throw sdk::Refusal::dtype("x", x.dtype);
  const auto code = device_of(node).code(entries::scratch_twice, {"TYPE=" + type_name("x", x.dtype)});
  const args::ScratchShape shape{x.elements()};
  const Grid grid{.blocks = blocks_for(shape.count, 256), .threads = 256};
  return kernel_of({code}, [=](const sdk::Call& c) { code.launch(c, grid, c.inputs[0], c.outputs[0], shape); });
}
constexpr sdk::Row kRows[] = {sdk::row<sdk::op::scratch_twice, make_scratch_twice>()};
}  // namespace
std::span<const sdk::Row> scratch_rows() { return kRows; }
}  // namespace tenon::cuda
""",
    "plugins/cuda/device/scratch.args.cuh": """// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels in scratch.cu.
#pragma once
#include "arguments.cuh"

TENON_ARGUMENTS
struct ScratchShape {
  i64 count;
};
TENON_ARGUMENTS_END
""",
    "plugins/cuda/device/scratch.cu": """// SPDX-License-Identifier: Apache-2.0
// scratch_twice, a thread per element.
//variant: TYPE=f32
//variant: TYPE=bf16
//entry: scratch_twice = twice(In, Out, ScratchShape)
#include "common.cuh"
#include "scratch.args.cuh"

typedef TYPE T;

extern "C" __global__ void __launch_bounds__(256) twice(const void* x, void* y, ScratchShape shape) {
  begin_early();
  const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
  if (i >= shape.count) return;
  const acc_t<T> v = widen(static_cast<const T*>(x)[i]);
  static_cast<T*>(y)[i] = narrow<T>(v + v);
}
""",
}
ENTRY = """
// ---- scratch: scratch_twice
TENON_OP(scratch_twice, 1, scratch, core)
  TENON_IN(x)
  TENON_OUT(y)
TENON_END(scratch_twice)
"""

SECTION = """
## scratch

### scratch_twice

`y` = 2·`x`, with the type of `x`, a float.

**Gradient.** By decomposition.
"""

MOST = 6, 10  # files of a composite family, and of one with kernels on cpu and cuda, shared lists and CHANGELOG.md included


def fail(*what):
    sys.exit("family.py: " + " ".join(str(w) for w in what))


def listed_files(source):
    """The two lists of CONTRIBUTING.md: files of a composite family, and those that native kernels add."""
    text = (source / "CONTRIBUTING.md").read_text()
    section = text[text.index("## How to add an op family"):]
    section = section[:section.index("\n## ", 5)]
    lists = [set(re.findall(r"^\d+\. `([^`]+)`", part, re.M)) for part in section.split("Native kernels", 1)]
    if len(lists) != 2 or not all(lists):
        fail("CONTRIBUTING.md: expected two numbered lists of files with 'Native kernels' between them, got", lists)
    return lists


class Tree:
    def __init__(self, source, work, cmake, generator, nm):
        self.source, self.root, self.build = source, work / "tree", work / "build"
        self.cmake, self.generator, self.nm = cmake, generator, nm
        shutil.rmtree(work, ignore_errors=True)
        self.root.mkdir(parents=True)
        for name in ("CMakeLists.txt", "LICENSE", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
            shutil.copy(source / name, self.root / name)
        for name in ("core", "plugins", "sdk", "tests", "packaging"):
            shutil.copytree(source / name, self.root / name)

    def touched(self):
        """Which files differ from the source, with the family's name taken out."""
        out = set()
        for path in self.root.rglob("*"):
            name = path.relative_to(self.root)
            if path.is_file():
                before = self.source / name
                if not before.is_file() or before.read_bytes() != path.read_bytes():
                    out.add(str(name).replace("scratch", "<family>"))
        return out

    def write(self, files):
        for name, text in files.items():
            (self.root / name).write_text(text)

    def explain(self):
        """Without a section the page of ops is refused; with one, its form is written."""
        page = self.root / "sdk/OPS.md"
        kept = page.read_text()
        for text, status in ((kept.replace(SECTION, ""), 1), (kept, 0)):
            page.write_text(text)
            made = subprocess.run([sys.executable, self.root / "tests/tree/ops_page.py", self.root, "--write"],
                                  stdout=subprocess.PIPE, text=True)
            if made.returncode != status or (status and "scratch_twice: no section" not in made.stdout):
                fail(f"ops_page.py: expected status {status}, got {made.returncode}:\n{made.stdout}")

    def configure(self):
        """Its output and exit status."""
        made = subprocess.run(
            [self.cmake, "-S", self.root, "-B", self.build, "-G", self.generator, "-DCMAKE_BUILD_TYPE=None",
             "-DCMAKE_CXX_FLAGS=-O0", "-DTENON_WERROR=ON", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return made.returncode, made.stdout

    def must_configure(self):
        code, output = self.configure()
        if code != 0:
            fail("the tree with the scratch family does not configure:\n" + output)
        commands = json.loads((self.build / "compile_commands.json").read_text())
        self.commands = {str(pathlib.Path(c["file"]).relative_to(self.root)): c for c in commands
                         if pathlib.Path(c["file"]).is_relative_to(self.root)}

    def compile(self, name, must=None):
        """Returns the symbols that the object defines and those that it needs, demangled; or, with `must`, sees the
        compiler refuse the file with these words."""
        if name not in self.commands:
            fail(name, "is not in the build")
        c = self.commands[name]
        arguments = shlex.split(c["command"])
        made = subprocess.run(arguments, cwd=c["directory"], stderr=subprocess.PIPE, text=True)
        if must:
            if made.returncode == 0 or must not in made.stderr:
                fail(f"{name}: expected the compiler to say '{must}', got status {made.returncode}:\n{made.stderr}")
            return None
        if made.returncode != 0:
            fail(name, "does not compile:\n" + made.stderr)
        obj = os.path.join(c["directory"], arguments[arguments.index("-o") + 1])
        symbols = subprocess.run([self.nm, "-C", obj], check=True, stdout=subprocess.PIPE, text=True).stdout
        defined, needed = set(), set()
        for line in symbols.splitlines():
            m = re.match(r"[0-9a-f ]{16} (\w) (.*)", line)
            if m:
                (needed if m[1] == "U" else defined).add(m[2])
        return defined, needed

    def check_joined(self, symbol, table, file):
        """The table needs the symbol and only the family's file has it: without it nothing links."""
        if symbol not in self.compile(table)[1]:
            fail(f"{table} does not ask for {symbol}")
        if symbol not in self.compile(file)[0]:
            fail(f"{file} does not define {symbol}")

    def check_forgotten(self, name, text=None):
        """Without this file, or with this text in it, the tree does not configure, and the message names the file."""
        path = self.root / name
        kept = path.read_text() if path.exists() else None
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
        code, output = self.configure()
        if kept is None:
            path.unlink()
        else:
            path.write_text(kept)
        if code == 0 or pathlib.Path(name).name not in output:
            fail(f"{name}: forgotten or in no list, and the build says nothing of it:\n{output[-2000:]}")


def main():
    source, work = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    composite, native = listed_files(source)
    tree = Tree(source, work, *sys.argv[3:6])

    tree.write(FILES)
    for name, more in (("sdk/include/tenon/ops.def", ENTRY), ("sdk/OPS.md", SECTION), ("CHANGELOG.md", "\n- Scratch.\n")):
        with open(tree.root / name, "a") as file:
            file.write(more)
    tree.explain()
    if tree.touched() != composite:
        fail("a composite family touches", sorted(tree.touched()), "but CONTRIBUTING.md lists", sorted(composite))
    for name in FILES:
        tree.check_forgotten(name)
    tree.write(NATIVE)
    if tree.touched() != composite | native:
        fail("native kernels touch", sorted(tree.touched() - composite), "but CONTRIBUTING.md lists", sorted(native))
    for files, most, kind in ((composite, MOST[0], "a composite family"), (composite | native, MOST[1], "one with native kernels")):
        if len(files) > most:
            fail(f"{kind}: {len(files)} files; expected at most {most}; got", sorted(files))
    tree.check_forgotten("plugins/cpu/kernels/stray.cpp", "")

    tree.must_configure()
    subprocess.run([tree.cmake, "--build", tree.build, "--target", "tenon_cuda_texts"], check=True,
                   stdout=subprocess.DEVNULL)
    tree.check_joined("tenon::core::scratch_twice_def", "core/ops/table.cpp", "core/ops/scratch.cpp")
    tree.check_joined("tenon::conform::scratch_cases(tenon::conform::Suite&)", "sdk/conformance/cases/families.cpp",
                      "sdk/conformance/cases/scratch.cpp")
    for plugin in ("cpu", "cuda"):
        tree.check_joined(f"tenon::{plugin}::scratch_rows()", f"plugins/{plugin}/plugin.cpp",
                          f"plugins/{plugin}/kernels/scratch.cpp")
    record = FILES["core/ops/scratch.cpp"]
    for slot in (".flops = no_products, ", ", .bytes = each_once"):
        tree.write({"core/ops/scratch.cpp": record.replace(slot, "")})
        tree.compile("core/ops/scratch.cpp", must="a record says what its op costs")
    # The kernel is launched with the arguments of its entry, and with no others.
    launch = NATIVE["plugins/cuda/kernels/scratch.cpp"]
    tree.write({"plugins/cuda/kernels/scratch.cpp": launch.replace("c.outputs[0], shape)", "c.outputs[0], shape.count)")})
    tree.compile("plugins/cuda/kernels/scratch.cpp", must="no matching function for call")
    texts = (tree.build / "plugins/cuda/texts.cpp").read_text()
    for text in ("scratch.cu", "scratch.args.cuh"):
        if f'"{text}"' not in texts:
            fail(f"device/{text} is not embedded")
    tests = json.loads(subprocess.run(["ctest", "--show-only=json-v1"], cwd=tree.build, check=True,
                                      stdout=subprocess.PIPE, text=True).stdout)["tests"]
    for name in ("unit.ops", "conform.cpu", "conform.template", "conform.cpu.fusion"):
        if not any(t["name"] == f"{name}.scratch" for t in tests):
            fail(f"there is no test {name}.scratch")
    shutil.rmtree(work)
    print(f"a composite family touches {len(composite)} files, with native kernels {len(composite | native)}")


main()
