#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# resume.sh TENON: a training that stops and goes on gives the weights of one that does not stop, bit by bit; Ctrl-C saves.
set -euo pipefail
tenon=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
text=/usr/share/common-licenses/Apache-2.0
sizes="--dim 64 --layers 2 --heads 4 --kv-heads 2 --ffn 96 --context 32 --batch 4 --steps 200 --seed 5 --eval-every 50"
# shellcheck disable=SC2086
"$tenon" lm train --text $text --out "$work/straight" $sizes > /dev/null
# shellcheck disable=SC2086
"$tenon" lm train --text $text --out "$work/parts" $sizes --stop-after 100 > /dev/null
cmp -s "$work/straight/model.safetensors" "$work/parts/model.safetensors" && { echo "the half-way model equals the whole one"; exit 1; }
"$tenon" lm train --resume "$work/parts" --lr 0.5 > /dev/null 2> "$work/remarks"
cmp "$work/straight/model.safetensors" "$work/parts/model.safetensors"
cmp "$work/straight/optimizer.safetensors" "$work/parts/optimizer.safetensors"
grep -q -- "--lr 0.5 differs from the stored 0.001" "$work/remarks" || { echo "the differing option is not named"; cat "$work/remarks"; exit 1; }
echo "ok: 100 + 100 steps equal 200, bit by bit"

# Ctrl-C: saves what is done and exits with 130; then it can go on.
# shellcheck disable=SC2086
"$tenon" lm train --text $text --out "$work/stopped" ${sizes/--steps 200/--steps 100000} > "$work/log" &
pid=$!
for _ in $(seq 100); do grep -q "step 0" "$work/log" && break; sleep 0.1; done
sleep 0.5
kill -INT $pid
status=0
wait $pid || status=$?
[ "$status" -eq 130 ] || { echo "Ctrl-C: exit status $status, expected 130"; exit 1; }
done_steps=$(python3 -c "import json,sys; print(json.load(open(sys.argv[1]))['done_steps'])" "$work/stopped/training.json")
"$tenon" lm train --resume "$work/stopped" --stop-after $((done_steps + 2)) > "$work/log"
grep -q "saved .* at step $((done_steps + 2))" "$work/log"
echo "ok: interrupted at step $done_steps, went on"
