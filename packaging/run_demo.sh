#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_demo.sh <build or install folder>: lists the devices, trains a small language model on the
# licence texts that every Debian has, for 300 steps or two minutes, and lets it write.
set -euo pipefail
root=$(cd "${1:?usage: run_demo.sh <build or install folder>}" && pwd)
tenon=$root/bin/tenon
out=$(mktemp -d "${TMPDIR:-/tmp}/tenon-demo.XXXXXX")
trap 'rm -rf "$out"' EXIT

echo "== devices"
"$tenon" devices

echo "== train"
# After two minutes: Ctrl-C, at which the trainer saves and exits with 130.
status=0
timeout --foreground --preserve-status -s INT -k 60 120 \
  "$tenon" lm train --text /usr/share/common-licenses/* --out "$out/model" \
  --dim 256 --layers 6 --heads 8 --kv-heads 4 --ffn 688 --context 256 \
  --batch 8 --lr 1e-3 --seed 1 --steps 300 || status=$?
if [ "$status" -ne 0 ] && [ "$status" -ne 130 ]; then
  echo "run_demo.sh: training failed with exit status $status" >&2
  exit "$status"
fi

echo "== generate"
"$tenon" lm generate --model "$out/model" --prompt "The licens" --tokens 300 --seed 1
echo
