#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare machine to Debian packages: install what is needed, build, pack. They lie in build/deb.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packaging/setup.sh --deb
cmake --workflow --preset deb
echo "to install: sudo apt install ./build/deb/*.deb"
