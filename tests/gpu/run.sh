#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The cuda plugin on a machine with a GPU.
#   run.sh prepare BUILD_DIR [BUNDLE]   collects binaries and the libraries they need into BUNDLE (default .gpu)
#   run.sh test [BUNDLE] [FAMILY...]    on the GPU machine: conformance (all families, or those named), short table last
#   run.sh two [BUNDLE]                 on a machine with two GPUs: a store between them, copies checked number by number
#   run.sh bench [BUNDLE]               on the GPU machine: ops, median times
#   run.sh peer [BUNDLE] [OPTION...]    on the GPU machine: ops and models beside PyTorch (compare_gpu.py and its options)
#   run.sh lm [BUNDLE] [DEVICE]         on the GPU machine: a small model trained twice on DEVICE (default cuda:0) and once
#                                       on cpu, then the greedy text of both; what agrees and what does not; training
#                                       resumed with an empty cache; what a traced step moves to and from DEVICE
#   run.sh random [BUNDLE] [SECONDS [DEVICE]]  on the GPU machine: the random graphs of exec.random_graph for so many
#                                       seconds (60) on DEVICE (default cuda:0), judged by what the cpu makes of them; SEED
#                                       is the first one's. A graph that fails is shrunk and printed
#   run.sh large [BUNDLE] [CASE...]     on a GPU with 80 GiB or more: ops on tensors of more than 2^31 elements, whose results
#                                       are checked number by number; one op after the other, and fused (FUSE="0 1")
#   run.sh sanitize [BUNDLE] [TOOL [CASES [FAMILY...]]]  on the GPU machine: conformance under compute-sanitizer's memcheck
#                                       or racecheck (default both), CASES of each family (default 32), LIMIT seconds each (300)
#   run.sh modes [BUNDLE] [DEVICE]      on the GPU machine: a small model trained in every exec and compile mode, and once
#                                       traced; whether all have equal bits, and what a step takes in each
# Logs go to $OUT where that is set, else below the bundle.
set -euo pipefail
root=$(dirname "$0")/../..; [ -d "$root/plugins" ] && cd "$root"

families="elementwise region activation matmul grouped_matmul reduce softmax order scan random norm channel_norm rope
attention index index_elements shape pool optimizer"

prepare() {
  local build=$1 bundle=${2:-.gpu}
  rm -rf "$bundle"
  mkdir -p "$bundle/bin" "$bundle/lib/tenon/plugins" "$bundle/system"
  cp "$build"/bin/{tenon,tenon_conform,tenon_gpt,tenon_overhead,tenon_two_devices,tenon_large} \
    "$build/tests/test_exec_random_graph" tests/bench/{compare,torch}_gpu.py "$bundle/bin/"
  cp -P "$build"/lib/libtenon.so* "$bundle/lib/"
  cp "$build"/lib/tenon/plugins/*.so "$bundle/lib/tenon/plugins/"
  cp "$(find "$build" -name tenon_plugin_template.so | head -1)" "$bundle/lib/"
  # What a machine of another distribution may lack or have older.
  ldd "$bundle"/bin/te* "$bundle"/lib/*.so* "$bundle"/lib/tenon/plugins/*.so 2>/dev/null |
    awk '/=> \// {print $3}' | sort -u |
    { grep -E 'libtbb|libhwy|libboost|libdnnl|libsleef|libgomp' || true; } |
    xargs -r -I{} cp -L {} "$bundle/system/"
  strip --strip-debug "$bundle"/bin/te* "$bundle"/lib/*.so "$bundle"/lib/tenon/plugins/*.so
  du -sh "$bundle"
}

enter() {
  bundle=$(realpath "${1:-.gpu}")
  export LD_LIBRARY_PATH=$bundle/lib:$bundle/system${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  logs=${OUT:-$bundle/logs}
  mkdir -p "$logs"
}

# One family to its log; the row of the table beside it.
run_family() {
  local family=$1 start=$SECONDS code=0
  timeout 300 "$bundle/bin/tenon_conform" --plugin "$bundle/lib/tenon_plugin_template.so" --device cuda:0 \
    --family "$family" >"$logs/$family.log" 2>&1 || code=$?
  printf '%-20s %-7s %s %8s\n' "$family" "$([ $code = 0 ] && echo ok || echo "BAD $code")" \
    "$(tail -1 "$logs/$family.log" | cut -c1-80)" $((SECONDS - start)) >"$logs/$family.row"
}

# Several families at a time: most of it is compiling kernels.
run_tests() {
  enter "${1:-.gpu}"
  [ $# -gt 0 ] && shift
  [ $# -gt 0 ] && families="$*"
  "$bundle/bin/tenon" devices
  export bundle logs
  export -f run_family
  echo "$families" | tr ' ' '\n' | grep . | xargs -P "${JOBS:-8}" -I{} bash -c 'run_family {}'
  grep -hE "^(FAIL|not ok)|failed:" $(for f in $families; do echo "$logs/$f.log"; done) | head -60 || true
  echo "family               result  passed failed  seconds"
  for family in $families; do cat "$logs/$family.row"; done
  ! grep -q BAD $(for f in $families; do echo "$logs/$f.row"; done)
}

# Rows of a table from files that processes beside each other leave; fails where one is BAD.
show_rows() {
  cat "$@"
  ! grep -q BAD "$@"
}

# The k-th process: of floats, halves or integers, from a seed of its own.
run_graphs() {
  local k=$1 code=0 kinds=("on and off" "of halves" "integers") kind
  kind=${kinds[$((k % 3))]}
  TENON_RANDOM_DEVICE=$device TENON_TEST_PLUGIN=$bundle/lib/tenon_plugin_template.so TENON_RANDOM_SECONDS=$seconds \
    TENON_RANDOM_GRAPHS=1000000 TENON_RANDOM_SEED=$((${SEED:-1} + k * 1000000)) \
    "$bundle/bin/test_exec_random_graph" --test-case="fusion: $kind*" >"$logs/random_$k.log" 2>&1 || code=$?
  [ $code = 0 ] && ! grep -q MESSAGE "$logs/random_$k.log" && code=none
  printf '%-12s %-7s %s\n' "$kind" "$([ $code = 0 ] && echo ok || echo "BAD $code")" \
    "$(grep -oE '[0-9]+ graphs on .*|seed [0-9]+: .*' "$logs/random_$k.log" | head -1)" >"$logs/random_$k.row"
}

run_random() {
  enter "${1:-.gpu}"
  seconds=${2:-60} device=${3:-cuda:0}
  local jobs=${JOBS:-9} k files=()
  export bundle logs seconds device
  export -f run_graphs
  for ((k = 0; k < jobs; ++k)); do files+=("$logs/random_$k.row"); done
  seq 0 $((jobs - 1)) | xargs -P "$jobs" -I{} bash -c 'run_graphs {}'
  grep -hE -A60 '^.* FATAL ERROR' "${files[@]/%row/log}" | head -120 || true
  echo "graphs of    result"
  show_rows "${files[@]}"
}

# One case of tenon_large in a process of its own, which gives its memory back.
run_large_case() {
  local fuse=${1%/*} name=${1#*/} code=0
  local log=$logs/large_${fuse}_$name.row
  timeout --foreground 120 "$bundle/bin/tenon_large" cuda:0 2147483648 "$fuse" "$name" >"$log" 2>&1 || code=$?
  [ $code -le 1 ] || echo "$name BAD $code" >>"$log"
  sed -i "s/^/fuse=$fuse /" "$log"
}

run_large() {
  enter "${1:-.gpu}"
  [ $# -gt 0 ] && shift
  local names=${*:-$("$bundle/bin/tenon_large" --list)} jobs=() files=() name fuse
  for fuse in ${FUSE:-0 1}; do for name in $names; do
    jobs+=("$fuse/$name"); files+=("$logs/large_${fuse}_$name.row")
  done; done
  export bundle logs
  export -f run_large_case
  printf '%s\n' "${jobs[@]}" | xargs -P "${JOBS:-3}" -I{} bash -c 'run_large_case {}'
  show_rows "${files[@]}"
}

# So many cases of a family, spread over those that run on the device.
spread() {
  "$bundle/bin/tenon_conform" --plugin "$bundle/lib/tenon_plugin_template.so" --family "$1" --list |
    awk -v most="$2" '$1 !~ /-(refused$|grad-)/ { ids[n++] = $1 }
      END { if (most > n) most = n; for (k = 0; k < most; ++k) print ids[int((k + 0.5) * n / most)] }'
}

# One family under one tool.
run_checked() {
  local tool=${1%/*} family=${1#*/} start=$SECONDS code=0 log list=()
  log=$logs/${tool}_$family.log
  for id in $(spread "$family" "$cases"); do list+=(--case "$id"); done
  timeout "${LIMIT:-300}" stdbuf -oL "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 "$bundle/bin/tenon_conform" \
    --plugin "$bundle/lib/tenon_plugin_template.so" --device cuda:0 --family "$family" --jobs 1 "${list[@]}" \
    >"$log" 2>&1 || code=$?
  grep -q ' SUMMARY: ' "$log" || code="$code, no summary"
  printf '%-10s %-16s %-7s %s; %s %6s\n' "$tool" "$family" "$([ "$code" = 0 ] && echo ok || echo "BAD $code")" \
    "$(grep -oE 'cuda:0: [0-9]+ passed.*' "$log" | tail -1)" "$(grep -oE '[A-Z]+ SUMMARY: .*' "$log" | tail -1)" \
    $((SECONDS - start)) >"${log%log}row"
}

run_sanitize() {
  enter "${1:-.gpu}"
  local tools=${2:-memcheck racecheck} jobs=() files=() tool family
  cases=${3:-32}
  [ $# -gt 3 ] && families=${*:4}
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer | head -1)
  for family in $families; do for tool in $tools; do
    jobs+=("$tool/$family"); files+=("$logs/${tool}_$family.row")
  done; done
  export bundle logs cases sanitizer
  export -f run_checked spread
  printf '%s\n' "${jobs[@]}" | xargs -P "${JOBS:-8}" -I{} bash -c 'run_checked {}'
  echo "tool       family           result  cases; findings seconds"
  show_rows "${files[@]}"
}

run_two() {
  enter "${1:-.gpu}"
  "$bundle/bin/tenon" devices | sed -n '/^plugins/q;p'
  "$bundle/bin/tenon_two_devices" cuda:0 cuda:1 256
  "$bundle/bin/tenon_two_devices" cuda:1 cuda:0 256
  "$bundle/bin/tenon_two_devices" cuda:1 cpu:0 64
}

run_bench() {
  enter "${1:-.gpu}"
  local cases=(
    'binary(f32[67108864], f32[67108864]) {kind="add"}'
    'unary(f32[67108864]) {kind="gelu"}'
    'cast(f32[67108864]) {to=bf16}'
    'transpose(f32[8192,8192]) {perm=[1, 0]}'
    'reduce(f32[16384,4096]) {kind="sum", axes=[1]}'
    'softmax(f32[4096,50257])'
    'layer_norm(bf16[16384,4096], bf16[4096], bf16[4096])'
    '(dx, dw) = rms_norm_backward(bf16[16384,4096], bf16[16384,4096], bf16[4096], f32[16384,1])'
    'group_norm(f32[32,512,64,64], f32[512], f32[512]) {groups=32}'
    'maxpool2d_backward(f32[64,64,112,112], f32[64,64,224,224]) {kernel=[3, 3], stride=[2, 2], pads=[1, 1, 1, 1]}'
    'cumsum(f32[16384,4096])'
    '(v, i) = topk(f32[8,131072]) {k=50}'
    '(v, i) = sort(f32[4096,1024])'
    'matmul(bf16[8192,8192], bf16[8192,8192])'
    'attention(bf16[4,32,4096,128], bf16[4,32,4096,128], bf16[4,32,4096,128]) {causal=true}'
    'attention(bf16[32,32,1,128], bf16[32,8,8192,128], bf16[32,8,8192,128])'
  )
  for op in "${cases[@]}"; do
    "$bundle/bin/tenon" bench --op "$op" --device cuda:0 --seconds 0.1 --no-ceilings 2>&1 | tee -a "$logs/bench.log" |
      tail -1
  done
}

run_peer() {
  enter "${1:-.gpu}"
  [ $# -gt 0 ] && shift
  export TORCHINDUCTOR_COMPILE_THREADS=1  # of each of several processes
  PYTHONUNBUFFERED=1 python3 "$bundle/bin/compare_gpu.py" "$bundle/bin" --json "$logs/peer.json" "$@" | tee "$logs/peer.log"
}

run_lm() {
  enter "${1:-.gpu}"
  local device=${2:-cuda:0} work; work=$(mktemp -d)
  trap 'rm -rf "$work"' RETURN
  local sizes=(--dim 128 --layers 4 --heads 4 --kv-heads 2 --ffn 344 --context 128 --batch 16 --eval-every 10)
  train() { "$bundle/bin/tenon" lm train --text README.md CONTRIBUTING.md LICENSE core/*/README.md --out "$work/$1" \
    "${sizes[@]}" --device "$2" "${@:3}" >"$logs/lm_$1.log" 2>&1; }
  generate() { "$bundle/bin/tenon" lm generate --model "$work/first" --prompt "The " --tokens 100 --temperature 0 \
    --device "$1"; }
  train first "$device" --steps 100; train second "$device" --steps 100; train cpu cpu --steps 100
  for file in model optimizer; do
    cmp "$work/first/$file.safetensors" "$work/second/$file.safetensors"
    echo "two runs: $file has equal bits"
  done
  python3 - "$logs/lm_first.log" "$logs/lm_cpu.log" <<'PYTHON'
import re, sys
curves = [[float(x) for line in open(f) if line.startswith("step") for x in re.findall(r"(?:loss|held-out) ([\d.]+)", line)]
          for f in sys.argv[1:]]
assert len(curves[0]) == len(curves[1]) > 10
apart = max(abs(a - b) / b for a, b in zip(*curves))
print(f"losses apart: {apart:.1e} relative, {len(curves[0])} numbers")
assert apart < 1e-3
PYTHON
  cmp <(generate "$device") <(generate cpu)
  echo "greedy text: equal"
  train resumed "$device" --steps 100 --stop-after 50
  TENON_CUDA_CACHE=$work/cache "$bundle/bin/tenon" lm train --resume "$work/resumed" --device "$device" \
    >"$logs/lm_resumed_2.log" 2>&1
  for file in model optimizer; do
    cmp "$work/first/$file.safetensors" "$work/resumed/$file.safetensors"
    echo "stopped half-way, resumed with what was tuned forgotten by all but the folder: $file has equal bits"
  done
  train traced "$device" --steps 20 --trace "$work/trace.json"
  python3 - "$work/trace.json" 16 128 <<'PYTHON'
import collections, json, sys
batch, context = map(int, sys.argv[2:])
runs = collections.defaultdict(list)
for e in json.load(open(sys.argv[1]))["traceEvents"]:
    if e["ph"] == "X":
        runs[e["args"]["run"]].append(e)
steps = [r for r in runs.values() if any(e["name"] == "run lm.train" for e in r)]
assert len(steps) == 20, len(steps)
for k, step in enumerate(steps):
    moved = {c: {e["name"].split()[-1]: e["args"]["bytes"] for e in step if e["cat"] == c}
             for c in ("write", "read", "copy", "fill")}
    assert moved["write"] == {"tokens": 4 * batch * (context + 1), "lr": 4}, (k, moved["write"])
    assert moved["read"] == {"loss": 4}, (k, moved["read"])
    assert not moved["copy"] and (k == 0 or not moved["fill"]), (k, moved)
    devices = {e["args"]["device"] for e in step if e["cat"] in ("step", "region")}
    assert len(devices) == 1, (k, devices)
print(f"what a step moves: {batch} rows of tokens and the rate go to the device, the loss comes back, nothing else")
PYTHON
  tail -2 "$logs/lm_second.log" | head -1
}

run_modes() {
  enter "${1:-.gpu}"
  local device=${2:-cuda:0} work mode name; work=$(mktemp -d)
  trap 'rm -rf "$work"' RETURN
  local sizes=(--dim 128 --layers 4 --heads 4 --kv-heads 2 --ffn 344 --context 128 --batch 8 --steps 20 --warmup 5)
  for mode in "--exec stream" "--exec stream --compile aot" "--exec graph" "--exec eager" "--exec multi-stream:2" \
    "--exec multi-stream:4" "--exec multi-stream:4 --trace $work/trace.json"; do
    name=${mode//[^a-z0-9]/}
    # shellcheck disable=SC2086  # words of a mode are options
    "$bundle/bin/tenon" lm train --text README.md CONTRIBUTING.md LICENSE core/*/README.md --out "$work/$name" \
      "${sizes[@]}" --device "$device" $mode >"$logs/modes_$name.log" 2>&1
    cmp "$work/execstream/model.safetensors" "$work/$name/model.safetensors"
    cmp "$work/execstream/optimizer.safetensors" "$work/$name/optimizer.safetensors"
    echo "equal bits: $mode"
  done
  for mode in stream graph multi-stream:2 multi-stream:4; do
    echo "$mode"
    "$bundle/bin/tenon" bench --only lm_s --device "$device" --seconds 0.5 --no-ceilings --exec "$mode"
  done
}

case "${1:-}" in
  prepare) shift; prepare "$@" ;;
  test) shift; run_tests "$@" ;;
  two) shift; run_two "$@" ;;
  bench) shift; run_bench "$@" ;;
  peer) shift; run_peer "$@" ;;
  lm) shift; run_lm "$@" ;;
  random) shift; run_random "$@" ;;
  large) shift; run_large "$@" ;;
  sanitize) shift; run_sanitize "$@" ;;
  modes) shift; run_modes "$@" ;;
  *) sed -n '3,20p' "$0"; exit 2 ;;
esac
