# SPDX-License-Identifier: Apache-2.0
"""cli.py TENON STUBS: machines whose CUDA is missing, old or broken, as the command meets them. STUBS holds the stub
libraries. For each machine `tenon devices` gives the reason, `--device cuda:0` is refused with it or works, and
`--device auto` runs."""
import glob, os, shutil, subprocess, sys, tempfile

TENON, STUBS = sys.argv[1], sys.argv[2]
SONAMES = {"cuda": "libcuda.so.1", "nvrtc": "libnvrtc.so.13", "cublasLt": "libcublasLt.so.13",
           "nvrtc12": "libnvrtc.so.12", "cublasLt12": "libcublasLt.so.12"}
BENCH = ("bench", "--no-ceilings", "--seconds", "0.01", "--op")
ADD = 'binary(f32[1000],f32[1000]) {kind="add"}'
MATMUL = "matmul(f32[5,6],f32[6,7])"
failures = 0


class Machine:
    """A folder of links: kinds of library to the stub that stands for each ("" = the whole one)."""

    def __init__(self, libraries, settings="", cache="", tenon=TENON, **env):
        self.tenon = tenon
        self.folder = tempfile.TemporaryDirectory(prefix="tenon-stub-")
        for kind, stub in libraries.items():
            os.symlink(f"{STUBS}/libtenon_stub_cuda{stub}.so", f"{self.folder.name}/{SONAMES[kind]}")
        self.env = dict(os.environ, TENON_CUDA_PATH=self.folder.name, TENON_CUDA_CACHE=cache, TENON_STUB_CUDA=settings,
                        LD_PRELOAD=f"{STUBS}/tenon_stub_hide.so", TENON_STUB_HIDE="libcuda.so:libnvrtc.so:libcublasLt.so", **env)
        # The sanitizer's own library wants to be first, and what is not given back at exit is not what is looked at.
        self.env["ASAN_OPTIONS"] = "verify_asan_link_order=0:detect_leaks=0:" + os.environ.get("ASAN_OPTIONS", "")

    def run(self, *args):
        done = subprocess.run([self.tenon, *args], capture_output=True, text=True, timeout=3600, env=self.env)
        return done.returncode, done.stdout + done.stderr


def check(good, what, said):
    global failures
    if not good:
        failures += 1
        print(f"BAD {what}; said:\n{said}")


def says(said, words, what):
    for word in words:
        check(word in said, f"{what}: says '{word}'", said)


def unusable(name, machine, *reason):
    """No device that can be used: the reason is shown, and given by name; auto takes the cpu."""
    code, said = machine.run("devices")
    check(code == 0, f"{name}: devices ends well", said)
    says(said, reason, f"{name}: devices")
    code, said = machine.run(*BENCH, ADD, "--device", "cuda:0")
    check(code == 1, f"{name}: cuda:0 is refused", said)
    says(said, ("cuda:0", *reason), f"{name}: cuda:0")
    code, said = machine.run(*BENCH, ADD, "--device", "auto")
    check(code == 0 and "median" in said, f"{name}: auto runs", said)
    print(f"ok  {name}")


def usable(name, machine, note, ops=(ADD, MATMUL), warns=()):
    code, said = machine.run("devices")
    check(code == 0 and "cuda:0  Stub GPU, 1.0 GiB" in said, f"{name}: the device is there", said)
    says(said, note, f"{name}: devices")
    for op in ops:
        code, said = machine.run(*BENCH, op, "--device", "cuda:0")
        check(code == 0 and "median" in said and "fallback" not in said, f"{name}: {op} runs", said)
        says(said, warns, f"{name}: {op}")
    print(f"ok  {name}")


ALL = {"cuda": "", "nvrtc": "", "cublasLt": ""}

# The driver
unusable("no driver", Machine({}), "no NVIDIA driver (", "libcuda.so.1: no such file",
         "libcuda.so.1: hidden.so: cannot open shared object file")
broken = Machine({})
with open(f"{broken.folder.name}/{SONAMES['cuda']}", "w") as file:
    file.write("no library\n" * 1000)
unusable("a file that is no library", broken, "no NVIDIA driver (", "libcuda.so.1: ", "invalid ELF header")
unusable("no device, says cuInit", Machine(ALL, "init=100"), "the NVIDIA driver sees no device")
unusable("no device, says its number", Machine(ALL, "devices=0"), "the NVIDIA driver sees no device")
unusable("cuInit fails", Machine(ALL, "init=803"),
         "init: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (system has unsupported driver)")
unusable("the driver is too old", Machine(ALL, "driver=11080"),
         "the NVIDIA driver serves CUDA 11.8, needed is 12.0 or later")
unusable("the driver lacks a call", Machine({**ALL, "cuda": "_old"}), "no NVIDIA driver (",
         "libcuda.so.1: it lacks cuMemPoolTrimTo")
unusable("the version is not told", Machine(ALL, "fail=cuDriverGetVersion:1:999"),
         "driver_version: CUDA_ERROR_UNKNOWN (unknown error)")
unusable("an error without a name", Machine(ALL, "init=4711"), "init: error 4711")
unusable("devices are not counted", Machine(ALL, "fail=cuDeviceGetCount:1:999:lasting"),
         "device_count: CUDA_ERROR_UNKNOWN (unknown error)")
unusable("a device is not described", Machine(ALL, "fail=cuDeviceTotalMem_v2:1:999:lasting"),
         "device_memory: CUDA_ERROR_UNKNOWN (unknown error)")
unusable("the device is too old", Machine(ALL, "major=7,minor=0"), "compute capability 7.0, needed is 7.5 or later")
unusable("the device is prohibited", Machine(ALL, "mode=2"), "its compute mode prohibits contexts")

# Libraries of two majors: none above the driver's is taken, and both are told.
BOTH = {**ALL, "nvrtc12": "_12", "cublasLt12": "_12"}
usable("driver 12, libraries of 12 and 13", Machine(BOTH, "driver=12020"),
       ("driver for CUDA 12.2, NVRTC 12.4 (passed over: ", "libnvrtc.so.13: it is for CUDA 13.0, the driver serves 12.2",
        "cuBLASLt 12.4 (passed over: ", "libcublasLt.so.13: it is for CUDA 13.0, the driver serves 12.2"))
usable("driver 13, libraries of 12 and 13", Machine(BOTH), ("NVRTC 13.0, cuBLASLt 13.0",))
usable("driver 13, libraries of 12", Machine({"cuda": "", "nvrtc12": "_12", "cublasLt12": "_12"}),
       ("driver for CUDA 13.0, NVRTC 12.4, cuBLASLt 12.4",))
usable("NVRTC's code does not load, the next one's does", Machine(BOTH, "fail=cuModuleLoadData:1:200"),
       ("NVRTC 12.4 (passed over: ", "libnvrtc.so.13: module_load: CUDA_ERROR_INVALID_IMAGE"), (ADD,))
usable("cuBLASLt makes no handle, the next one does", Machine(BOTH, "fail=cublasLtCreate:1:1"),
       ("cuBLASLt 12.4 (passed over: ", "libcublasLt.so.13: it makes no handle"), (MATMUL,))

def install_wheels(packages):
    """NVIDIA's wheels of two majors in a folder of packages."""
    for wheel, soname, stub in (("cuda_nvrtc", "libnvrtc.so.12", "_12"), ("cublas", "libcublasLt.so.12", "_12"),
                                ("cu13", "libnvrtc.so.13", ""), ("cu13", "libcublasLt.so.13", "")):
        folder = os.path.join(packages, "nvidia", wheel, "lib")
        os.makedirs(folder, exist_ok=True)
        os.symlink(f"{STUBS}/libtenon_stub_cuda{stub}.so", f"{folder}/{soname}")


# Wheels that pip installed: for the user, in the environment that is active; the newest major that the driver serves.
FROM_WHEELS = ("NVRTC 12.4 (passed over: ", "nvidia/cu13/lib/libnvrtc.so.13: it is for CUDA 13.0", "cuBLASLt 12.4 (passed over: ")
for prefix, variable in ((".local", "HOME"), ("", "VIRTUAL_ENV"), ("", "CONDA_PREFIX")):
    with tempfile.TemporaryDirectory(prefix="tenon-stub-") as home:
        machine = Machine({"cuda": ""}, "driver=12040")
        machine.env.update({"HOME": "/nowhere", "TENON_STUB_SHOW": home, variable: home})
        install_wheels(os.path.join(home, prefix, "lib/python3.11/site-packages"))
        usable(f"wheels in {variable}", machine, FROM_WHEELS)
# Beside the wheel that holds the plugin, in an environment that is not active
with tempfile.TemporaryDirectory(prefix="tenon-stub-") as home:
    packages = os.path.join(home, "lib/python3.11/site-packages")
    tree, build = os.path.join(packages, "tenon/_tree"), os.path.dirname(os.path.dirname(TENON))
    for name in ("bin/tenon", "lib/libtenon.so*", "lib/tenon/plugins/tenon_plugin_c*.so"):
        for path in glob.glob(os.path.join(build, name)):
            target = os.path.join(tree, os.path.relpath(path, build))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(path, target, follow_symlinks=False)
    machine = Machine({"cuda": ""}, "driver=12040", tenon=os.path.join(tree, "bin/tenon"))
    machine.env.update({"HOME": "/nowhere", "TENON_STUB_SHOW": home})
    install_wheels(packages)
    usable("wheels beside the package", machine, FROM_WHEELS)
# An architecture that NVRTC does not know
usable("a device newer than NVRTC", Machine(ALL, "major=12,minor=9"), ("NVRTC 13.0",))
usable("a device much newer than NVRTC", Machine(ALL, "major=13,nvrtc_newest=100"), ("NVRTC 13.0",))
usable("no memory pools", Machine(ALL, "pools=0"), ("driver for CUDA 13.0",))

# Only without a call that can be done without, and with a second device.
usable("no graphs", Machine({"cuda": "_plain", "nvrtc": "_plain", "cublasLt": "_plain"}),
       ("driver for CUDA 13.0, NVRTC 13.0, cuBLASLt 13.0",))
usable("two devices", Machine(ALL, "devices=2"), ("cuda:1  Stub GPU", "cuda 0.1.0, 2 devices"))
usable("batch invariance", Machine(ALL, TENON_CUDA_BATCH_INVARIANT="1"), ("cuBLASLt 13.0; devices are batch invariant",))
usable("a setting of batch invariance that is none", Machine(ALL, TENON_CUDA_BATCH_INVARIANT="yes"),
       ("TENON_CUDA_BATCH_INVARIANT: expected 0 or 1, got 'yes'",))
usable("batch invariance of another device", Machine(ALL, "major=8", TENON_CUDA_BATCH_INVARIANT="1"),
       ("TENON_CUDA_BATCH_INVARIANT is set, but no device is batch invariant, which needs sm_90",))
usable("recording fails", Machine(ALL, "fail=cuStreamEndCapture:1:901:lasting"), ("driver for CUDA 13.0",), (MATMUL,))

# NVRTC and cuBLASLt. The three are one file, but for these: two files count their calls apart.
SPLIT = {"cuda": "_plain", "nvrtc": "_plain", "cublasLt": "_plain"}
NO_NVRTC = {k: v for k, v in SPLIT.items() if k != "nvrtc"}
says(Machine(NO_NVRTC, TENON_CUDA_BATCH_INVARIANT="1").run("devices")[1],
     ("devices are batch invariant, if the cache has the code that compares products",), "batch invariance without NVRTC")
NO_BLAS = {k: v for k, v in SPLIT.items() if k != "cublasLt"}


def without_code(name, machine, *reason):
    """No compiler: nothing is native, what can fall back is on the cpu and says why."""
    code, said = machine.run("devices")
    check(code == 0 and "cuda:0  Stub GPU" in said, f"{name}: the device is there", said)
    says(said, reason, f"{name}: devices")
    code, said = machine.run("inspect", GRAPH.name, "--device", "cuda:0")
    check(code == 0, f"{name}: inspect ends well", said)
    says(said, ("fallback", *reason), f"{name}: inspect")
    code, said = machine.run(*BENCH, ADD, "--device", "cuda:0")
    check(code == 0, f"{name}: bench falls back", said)
    says(said, ("note: fallback: 1 of 1 nodes run on cpu:0 instead; first: binary", *reason), f"{name}: bench")
    code, said = machine.run(*BENCH, ADD, "--device", "cuda:0", "--no-fallback")
    check(code == 1 and "median" not in said, f"{name}: bench without fallback is refused", said)
    code, said = machine.run("inspect", GRAPH.name, "--device", "cuda:0", "--no-fallback")
    check(code == 1, f"{name}: fallback denied is refused", said)
    says(said, reason, f"{name}: fallback denied")
    print(f"ok  {name}")


with tempfile.NamedTemporaryFile("w", suffix=".txt") as GRAPH, tempfile.TemporaryDirectory() as cache:
    GRAPH.write('graph { input x: f32[1000] y = binary(x, x) {kind="add"} output "y" = y }\n')
    GRAPH.flush()
    without_code("no NVRTC", Machine(NO_NVRTC), "no NVRTC (", "libnvrtc.so.13: no such file", "libnvrtc.so.12")
    without_code("NVRTC lacks a call", Machine({**SPLIT, "nvrtc": "_old"}), "no NVRTC (", "it lacks nvrtcGetCUBIN")
    without_code("NVRTC does not tell its version", Machine(SPLIT, "fail=nvrtcVersion:1:11"),
                 "libnvrtc.so.13: it does not tell its version")
    without_code("NVRTC made for a newer driver", Machine(SPLIT, "driver=12040"), "no NVRTC (",
                 "libnvrtc.so.13: it is for CUDA 13.0, the driver serves 12.4")
    without_code("a device older than NVRTC", Machine(ALL, "major=7,minor=5,nvrtc_oldest=80,shared=65536"),
                 "it knows no architecture up to sm_75")
    without_code("no NVRTC's code loads", Machine(BOTH, "fail=cuModuleLoadData:1:200:lasting"),
                 "libnvrtc.so.13: module_load: CUDA_ERROR_INVALID_IMAGE",
                 "libnvrtc.so.12: module_load: CUDA_ERROR_INVALID_IMAGE")
    code, said = Machine(BOTH, "fail=cuModuleLoadData:1:200:lasting").run("devices")
    says(said, ("no NVRTC that this driver can use (", "a trial of two ops failed: "), "no NVRTC's code loads: devices")
    usable("code is kept", Machine(SPLIT, cache=cache), ("NVRTC 13.0",))
    kept = len(os.listdir(cache))
    code = [name for name in os.listdir(cache) if name.endswith(".cubin")]
    check(len(code) == 3, "a file for each of two texts, and one that lists the compilers", str(code))
    usable("another NVRTC makes its own", Machine(SPLIT, "nvrtc=12040", cache=cache), ("NVRTC 12.4",))
    check(len(os.listdir(cache)) > kept, "each NVRTC has its own code", str(os.listdir(cache)))
    usable("no NVRTC, but code that was kept", Machine(NO_NVRTC, cache=cache), ("no NVRTC (",))
with tempfile.TemporaryDirectory() as cache:
    machine = Machine(ALL, cache=cache)
    command = [TENON, *BENCH, ADD, "--device", "cuda:0"]
    at_once = [subprocess.Popen(command, env=machine.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for _ in range(4)]
    for process in at_once:
        said = process.communicate(timeout=3600)[0]
        check(process.returncode == 0 and "median" in said, "one of several with one cache runs", said)
    names = os.listdir(cache)
    check(names and all(n.count(".") == 1 for n in names), "what is left is sound files", str(names))
    print("ok  several processes, one cache")
usable("no cuBLASLt", Machine(NO_BLAS), ("no cuBLASLt (", "libcublasLt.so.13: no such file", "libcublasLt.so.12"))
usable("cuBLASLt lacks a call", Machine({**SPLIT, "cublasLt": "_old"}), ("no cuBLASLt (", "it lacks cublasLtMatmul"))

# What fails later: by name, and with status 1.
for fault, words in {
    "cuDevicePrimaryCtxRetain:1:999": ("device_open", "context_retain: CUDA_ERROR_UNKNOWN"),
    "cuMemHostAlloc:1:2:lasting": ("device_open", "host_allocate: CUDA_ERROR_OUT_OF_MEMORY"),
    "cuMemAllocFromPoolAsync:1:2:lasting": ("no memory for a buffer of",),
    "nvrtcCompileProgram:2:6:lasting": ("kernel text binary", "does not compile:\nstub.cu(1): error"),
    "cuModuleLoadData:2:200:lasting": ("module_load: CUDA_ERROR_INVALID_IMAGE",),
    "kernel:3:719:lost": ("CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)",),
}.items():
    code, said = Machine(ALL, f"fail={fault}").run(*BENCH, ADD, "--device", "cuda:0")
    check(code == 1, f"{fault} is told", said)
    says(said, words, fault)
print("ok  failures of calls")
sys.exit(1 if failures else 0)
