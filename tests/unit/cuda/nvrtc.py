# SPDX-License-Identifier: Apache-2.0
"""nvrtc.py FOLDER: sees to it that kernel texts can be compiled: where this machine has no NVRTC, NVIDIA's wheel is
installed below FOLDER, and FOLDER/lib leads to its libraries. Exit status 77 where the Python index cannot be reached."""
import ctypes, glob, os, subprocess, sys

FOLDER = sys.argv[1]
SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
USUAL = (os.environ.get("TENON_CUDA_PATH", ""), "", "/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib",
         f"{FOLDER}/lib")
WHEEL = "nvidia-cuda-nvrtc==13.0.*"


def is_there():
    for folder in USUAL:
        for soname in SONAMES:
            try:
                ctypes.CDLL(os.path.join(folder, soname))
                return True
            except OSError:
                pass
    return False


if is_there():
    sys.exit(0)
command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade",
           "--target", FOLDER, WHEEL]
try:
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    failure = done.stderr.strip() if done.returncode else ""
except (OSError, subprocess.TimeoutExpired) as e:
    failure = str(e)
found = glob.glob(f"{FOLDER}/nvidia/*/lib/libnvrtc.so.*")
if found:
    if os.path.lexists(f"{FOLDER}/lib"):
        os.unlink(f"{FOLDER}/lib")
    os.symlink(os.path.relpath(os.path.dirname(found[0]), FOLDER), f"{FOLDER}/lib")
if is_there():
    sys.exit(0)
print(f"skipped: no NVRTC, and {WHEEL} cannot be installed: {failure[-500:]}")
sys.exit(77)
