#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_wheel.sh BUILD_DIR [PYTHON]: packs a complete build as a wheel for PYTHON [python3] and runs the tests of the
# package with it, in a virtual environment that has nothing else of tenon. Exits with 77 where Python or its index lacks
# what that takes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "${1:?usage: test_wheel.sh BUILD_DIR [PYTHON]}" && pwd)
python=${2:-python3}
skip() { echo "skipped: $*"; exit 77; }

work=$(mktemp -d "${TMPDIR:-/tmp}/tenon-test-wheel.XXXXXX")
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH PYTHONPATH TENON_PLUGIN_PATH
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "$python is older than 3.10"
"$python" -c 'import pathlib, sys, sysconfig; sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists())' ||
  skip "no Python.h for $python; on Debian python3-dev has it"
"$python" -m venv "$work/venv" > "$work/log" 2>&1 || skip "$python makes no virtual environments; on Debian python3-venv has what it lacks"
pip() { "$work/venv/bin/pip" -q --disable-pip-version-check "$@"; }
pip --retries 0 --timeout 10 download --no-deps -d "$work" 'nanobind>=3.1' > "$work/log" 2>&1 || skip "the Python index cannot be reached: $(tail -1 "$work/log")"

echo "== build"
"$here/wheel.sh" --build "$build" --out "$work/wheels" "$python"
pip install "$work"/wheels/*.whl ml_dtypes mypy
for package in matplotlib nbclient ipykernel sphinx; do  # tests that need them are skipped without
  pip install "$package" > "$work/log" 2>&1 || echo "no $package: $(tail -1 "$work/log")"
done

echo "== files"
package=$("$work/venv/bin/python" -c 'import pathlib, tenon; print(pathlib.Path(tenon.__file__).parent)')
mkdir "$work/files"
cp -r "$package" "$package/../tenon.libs" "$work/files/"
python3 "$here/../tests/install/search_paths.py" --installed "$work/files"
for file in py.typed _tenon.pyi LICENSE copyright; do
  [ -f "$package/$file" ] || { echo "test_wheel.sh: the wheel has no $file" >&2; exit 1; }
done

echo "== tests"
cp -r "$here/../sdk/python/tests" "$work/python_tests"
cd "$work/python_tests"
TENON_EXAMPLES=$here/../sdk/examples "$work/venv/bin/python" -m unittest
if [ -d "$build/lib/tenon/stub_cuda" ]; then
  echo "== tests with the stub of a GPU"
  mkdir "$work/stub"
  for name in libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13; do
    ln -s "$build/lib/tenon/stub_cuda/libtenon_stub_cuda.so" "$work/stub/$name"
  done
  TENON_CUDA_PATH=$work/stub TENON_CUDA_CACHE='' "$work/venv/bin/python" -m unittest -v test_device 2> "$work/log" || { cat "$work/log"; exit 1; }
  grep -E "^(Ran|OK)" "$work/log"
fi
