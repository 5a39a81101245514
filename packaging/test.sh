#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare machine to tested: install what is needed, configure, build, test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packaging/setup.sh
exec cmake --workflow --preset test
