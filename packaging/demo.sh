#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare machine to a trained model: install what is needed, build, run the demo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
packaging/setup.sh
exec cmake --workflow --preset demo
