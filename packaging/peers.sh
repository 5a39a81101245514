#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peers.sh [CTEST_OPTION...]: runs the tests that compare tenon with PyTorch and Hugging Face transformers (lm.peer.*, peers.*).
# Installs them and SciPy from PyPI into build/peers, a few GiB, and builds what the tests need in build/test. Only CPUs are used.
# Exits with 77, and says why, if Python or PyPI lacks something.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(numpy==2.4.6 scipy==1.17.1 torch==2.15.0 transformers==5.24.0 gguf==0.19.0 accelerate==1.15.0
  compressed-tensors==0.20.1 jsonschema==4.26.0 sentencepiece==0.2.3 protobuf==7.36.2 openai==3.57.0)
peers=$PWD/build/peers

skip() {
  echo "skipped: $*"
  exit 77
}

packaging/setup.sh
python=$peers/bin/python3
if ! { [ -x "$python" ] && "$python" -c 'import pip' 2>/dev/null; }; then
  rm -rf "$peers"
  python3 -m venv "$peers" >&2 || skip "python3 cannot make a virtual environment (Debian package python3-venv)"
fi
if ! "$python" - "${packages[@]}" <<'EOF'; then
import importlib.metadata, sys

def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""

sys.exit(any(version(p.split("==")[0]).split("+")[0] != p.split("==")[1] for p in sys.argv[1:]))
EOF
  echo "peers.sh: installing ${packages[*]} into build/peers" >&2
  "$python" -m pip install --quiet --disable-pip-version-check "${packages[@]}" >&2 ||
    skip "PyPI does not offer ${packages[*]} here (see the messages of pip above)"
fi
"$python" -c 'import numpy, torch, transformers'  # without them the tests would skip

# Later configurations of build/test find the system's Python again.
restore() { cmake --preset test -UTENON_PYTHON >/dev/null; }
trap restore EXIT
cmake --preset test -DTENON_PYTHON="$python" >/dev/null
cmake --build --preset test --target tenon tenon_plugin_cpu lm_probe chat_probe llm_probe tokenizer_probe grammar_probe
for example in neighbours listen; do  # without their libraries they are no targets
  if [ "$(cmake --build --preset test --target help | grep -c "^$example:")" -gt 0 ]; then
    cmake --build --preset test --target "$example"
  fi
done
ctest --test-dir build/test --output-on-failure --no-tests=error -R '^(lm\.peer|peers)\.' "$@"
