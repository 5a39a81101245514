#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The cuda plugin on a machine with a GPU.
#   run.sh prepare BUILD_DIR [BUNDLE]   collects binaries and the libraries they need into BUNDLE (default .gpu), the cases
#                                       that racecheck is to see, and those of ONNX, if PYTHON (python3) has the packages
#                                       onnx and onnxruntime
#   run.sh test [BUNDLE] [FAMILY...]    on the GPU machine: conformance (all families, or those named), short table last
#   run.sh two [BUNDLE [FIRST SECOND]]  on a machine with two GPUs (default cuda:0 cuda:1): a store between them, copies
#                                       checked number by number; a model that does not fit the limit of one trains on both,
#                                       with the losses of one; its text; random graphs over both; independent parts at once
#   run.sh capture [BUNDLE] [DEVICE]    on the GPU machine: an app captures CUDA graphs in global mode, as PyTorch does, while
#                                       tenon runs in another thread and in the same one; results and captures are checked
#   run.sh kinds [BUNDLE] [DEVICE]      on the GPU machine: every kind of memory, written and read from both sides
#   run.sh copies [BUNDLE] [DEVICE]     on the GPU machine: memory, streams and events of an app: its own in C++ and those of
#                                       PyTorch, beside CUDA graphs that other threads capture; the kit in memory of the app
#   run.sh guest [BUNDLE] [DEVICE]      on the GPU machine: the example sdk/examples/softcap_cuda.cpp, an op of a plugin with a
#                                       text in CUDA C++: its cases, what is native, and its time beside that of tanh
#   run.sh control [BUNDLE] [DEVICE]    on the GPU machine: the tests of if, while, scan, vmap, jvp, buckets, keys in blocks
#                                       and rows of products with blocks (exec.control, exec.derivatives, exec.buckets, exec.recurrent,
#                                       exec.random_loop, exec.block_keys, exec.block_rows) on DEVICE, draws of a language model
#                                       from candidates (llm.draws), and the time of a trip with one small step
#   run.sh bits [BUNDLE [DEVICE [TYPE...]]]  on the GPU machine: the logits of small models have the same bits however a prompt
#                                       is cut and beside other sequences;
#                                       weights of TYPE (default F16 BF16 Q8_0 Q4_K_M), in activations of f16 and bf16; JOBS (4)
#                                       processes at a time; short table last
#   run.sh bench [BUNDLE]               on the GPU machine: ops, median times
#   run.sh peer [BUNDLE] [OPTION...]    on the GPU machine: ops and models beside PyTorch (compare_gpu.py and its options)
#   run.sh peers [BUNDLE] [DEVICE]      on the GPU machine: outside judges. CASES (500) random convolutions and pools beside
#                                       PyTorch in f32, a fifth of that in bf16 and f16; ONNX's node tests and light models,
#                                       with what became of their nodes; short table last. FIRST (1) is the seed of the first
#   run.sh lm [BUNDLE] [DEVICE]         on the GPU machine: a small model trained twice on DEVICE (default cuda:0) and once
#                                       on cpu, then the greedy text of both; what agrees and what does not; training
#                                       resumed with an empty cache; what a traced step moves to and from DEVICE
#   run.sh random [BUNDLE] [SECONDS [DEVICE]]  on the GPU machine: the random graphs of exec.random_graph for so many
#                                       seconds (60) on DEVICE (default cuda:0), judged by what the cpu makes of them; SEED
#                                       is the first one's. A graph that fails is shrunk and printed
#   run.sh large [BUNDLE] [CASE...]     on GPUs with 140 GiB: ops on tensors of more than 2^31 elements, whose results are
#                                       checked number by number; one op after the other, and fused (FUSE="0 1"); JOBS a GPU (3)
#   run.sh sanitize [BUNDLE] [TOOL [FAMILY...]]  on GPUs: conformance under compute-sanitizer. TOOL: memcheck, of all cases
#                                       of at most 2^21 elements; racecheck, of those that kernel_cases.py chose, which
#                                       launch every kernel in every form that its defines give it (RACES=all: of the first
#                                       form of each case); plain, without a tool, which leaves the kernels in the cache;
#                                       default all, plain first. JOBS processes a GPU (4) of THREADS (4, of racecheck 1);
#                                       SLICE cases a process (150, of racecheck 8); ROWS (at a dtype) of each family,
#                                       spread over it (all); LIMIT seconds in all (3000), what was not begun then is BAD
#   run.sh starts [BUNDLE] [DEVICE]     on the GPU machine: processes from start to end with a cold and a warm cache; what a
#                                       run costs the host in graph mode
#   run.sh modes [BUNDLE] [DEVICE]      on the GPU machine: a small model trained in every exec and compile mode, traced, and
#                                       without early launch (f32 and bf16): checks that all have equal bits, times a step
# Logs go to $OUT where that is set, else below the bundle.
set -euo pipefail
root=$(dirname "$0")/../..; [ -d "$root/plugins" ] && cd "$root"

prepare() {
  local build=$1 bundle=${2:-.gpu}
  rm -rf "$bundle"
  mkdir -p "$bundle/bin" "$bundle/lib/tenon/plugins" "$bundle/system"
  cp "$build"/bin/{tenon,tenon_conform,tenon_gpt,tenon_overhead,tenon_two_devices,tenon_large,tenon_foreign_capture,tenon_memory_kinds,tenon_zero_copy} \
    "$build"/tests/test_exec_{random_graph,block_keys,block_rows,control,derivatives,buckets,recurrent,random_loop} tests/bench/{compare,torch}_gpu.py tests/bench/conv_layers.py \
    tests/gpu/torch_zero_copy.py tests/peers/{binding,windows}.py tests/onnx/{node_tests.py,models.py,expected.txt} \
    "$build"/bin/{onnx_node_case,llm_draws,llm_bits} "$bundle/bin/"
  mkdir -p "$bundle"/tests/{cli,llm}
  cp tests/cli/tiny_model.py "$bundle/tests/cli/"
  cp tests/llm/{draws,bits}.py "$bundle/tests/llm/"
  cp -P "$build"/lib/libtenon.so* "$bundle/lib/"
  cp "$build"/lib/tenon/plugins/*.so "$bundle/lib/tenon/plugins/"
  cp "$(find "$build" -name tenon_plugin_template.so | head -1)" "$build/lib/tenon/examples/tenon_plugin_softcap_cuda.so" \
    "$bundle/lib/"
  cp sdk/examples/softcap.json tests/bench/trips_*.tng "$bundle/"
  # What a machine of another distribution may lack or have older.
  ldd "$bundle"/bin/{te*,onnx_node_case,llm_draws,llm_bits} "$bundle"/lib/*.so* "$bundle"/lib/tenon/plugins/*.so 2>/dev/null |
    awk '/=> \// {print $3}' | sort -u |
    { grep -E 'libtbb|libhwy|libz|libpng|libboost|libdnnl|libsleef|libgomp|libpcre2|libutf8proc' || true; } |
    xargs -r -I{} cp -L {} "$bundle/system/"
  strip --strip-all "$bundle"/bin/{te*,onnx_node_case,llm_draws,llm_bits}
  strip --strip-debug "$bundle"/lib/*.so "$bundle"/lib/tenon/plugins/*.so
  python3 tests/gpu/kernel_cases.py "$build" >"$bundle/kernel_cases"
  local cases python=${PYTHON:-python3}; cases=$(mktemp -d)
  if "$python" -c "import onnx, onnxruntime" 2>/dev/null; then
    "$python" tests/onnx/node_tests.py "$build" --export "$cases/node"
    "$python" tests/onnx/models.py "$build" --export "$cases/light"
    tar -cJf "$bundle/onnx.tar.xz" -C "$cases" node light
  else
    echo "without the cases of ONNX: $python has no packages onnx and onnxruntime"
  fi
  rm -rf "$cases"
  du -sh "$bundle"
}

enter() {
  bundle=$(realpath "${1:-.gpu}")
  export LD_LIBRARY_PATH=$bundle/lib:$bundle/system${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  logs=${OUT:-$bundle/logs}
  mkdir -p "$logs"
  families=$("$bundle/bin/tenon_conform" --list-families)
}

# One family to its log; the row of the table beside it, and on the screen, should a time limit end the others.
run_family() {
  local family=$1 start=$SECONDS code=0 threads=2
  [ "$family" = attention ] && threads=6 # it would end last by far
  timeout 500 "$bundle/bin/tenon_conform" --plugin "$bundle/lib/tenon_plugin_template.so" --device cuda:0 \
    --family "$family" --jobs $threads >"$logs/$family.log" 2>&1 || code=$?
  printf '%-20s %-7s %s %8s\n' "$family" "$([ $code = 0 ] && echo ok || echo "BAD $code")" \
    "$(tail -1 "$logs/$family.log" | cut -c1-80)" $((SECONDS - start)) | tee "$logs/$family.row"
}

# Several families at a time: most of it is compiling kernels.
run_tests() {
  enter "${1:-.gpu}"
  [ $# -gt 0 ] && shift
  [ $# -gt 0 ] && families="$*"
  "$bundle/bin/tenon" devices
  export bundle logs
  export -f run_family
  # The longest first.
  printf '%s\n' $families | awk '{ print /^(attention|conv|elementwise|matmul)$/ ? 0 : 1, $0 }' | sort -s -n -k1,1 | cut -d' ' -f2 |
    xargs -P "${JOBS:-8}" -I{} bash -c 'run_family {}'
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

# Calls FUNCTION with each line that comes in, in a process of its own whose cuda:0 is one of the GPUs (those that
# CUDA_VISIBLE_DEVICES names, else all); so many per GPU at a time.
over_gpus() {
  local all=${CUDA_VISIBLE_DEVICES:-$(nvidia-smi -L | sed -n 's/^GPU \([0-9]*\):.*/\1/p' | paste -sd,)}
  export bundle logs
  export -f "$1"
  gpus=$all xargs -P $(($2 * $(tr ',' '\n' <<<"$all" | wc -l))) --process-slot-var=slot -I{} bash -c '
    IFS=, read -ra all <<<"$gpus"; export CUDA_VISIBLE_DEVICES=${all[slot % ${#all[@]}]}; "$@"' over_gpus "$1" {}
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
  printf '%s\n' "${jobs[@]}" | over_gpus run_large_case "${JOBS:-3}"
  show_rows "${files[@]}"
}

# The cases of a family that a tool is to see, in files of about a SLICE each, where the forms of a row at a dtype are together.
# racecheck gets those that kernel_cases.py chose, or, where RACES is all, the first form of each: the others add what makes
# operands with strides and the primitives, and those are rows of other families. What is to fill the cache for racecheck
# alone is that. racecheck sees neither a race with an atomic nor one with what wgmma reads: there a missing barrier shows in
# the results alone.
slice_family() {
  local tool=${1%/*} family=${1#*/} apart='-(refused$|grad-)' chosen=(.) each=150
  [ "$tool" = racecheck ] && each=8
  if [ "$tool" = racecheck ] || [[ $tools != *memcheck* && $tools = *racecheck* ]]; then
    apart='-(refused|strided|decomposed)$|-grad-'
    [ "${RACES:-}" = all ] || chosen=(-xFf "$bundle/kernel_cases")
  fi
  "$bundle/bin/tenon_conform" --family "$family" --elements 2097152 --list | awk '{print $1}' | { grep "${chosen[@]}" || true; } |
    awk -v apart="$apart" -v most="${ROWS:-1000000}" -v slice="${SLICE:-$each}" -v file="$slices/$tool,$family," '
      $1 !~ apart {
        row = $1
        sub(/-(strided|decomposed)$/, "", row)
        if (row != last) ++rows
        last = row
        forms[rows] = forms[rows] $1 "\n"
        ++n
      }
      END {
        if (rows == 0) exit
        if (most > rows) most = rows
        parts = int((n * most / rows + slice - 1) / slice)
        for (k = 0; k < most; ++k) printf "%s", forms[1 + int((k + 0.5) * rows / most)] >(file sprintf("%03d", k % parts))
      }'
}

# The row of a slice is of numbers: cases that passed, failed, findings, seconds; then what is BAD.
run_slice() {
  local name=${1##*/} start=$SECONDS left=$((deadline - EPOCHSECONDS)) code=0 log=$logs/${1##*/}.log cases checked=()
  local threads=${THREADS:-4}
  [ "${name%%,*}" = racecheck ] && threads=1 # it loses track where several launch
  [ "${name%%,*}" = plain ] || checked=("$sanitizer" --tool "${name%%,*}" --error-exitcode 9 --print-limit 20)
  mapfile -t cases < <(sed 's/^/--case\n/' "$1")
  : >"$log"
  if [ "$left" -le 0 ]; then
    code="not begun in time"
  else
    timeout -k 5 "$left" stdbuf -oL "${checked[@]}" "$bundle/bin/tenon_conform" --plugin "$bundle/lib/tenon_plugin_template.so" \
      --device cuda:0 --jobs "$threads" --verbose "${cases[@]}" >"$log" 2>&1 || code=$?
    [ "${name%%,*}" = plain ] || grep -q ' SUMMARY: ' "$log" || code="$code, no summary"
  fi
  awk -v seconds=$((SECONDS - start)) -v code="$code" '/^pass /{++passed} /^FAIL /{++failed}
    match($0, / SUMMARY: [0-9]+/) { found += substr($0, RSTART + 10, RLENGTH - 10) }
    END {
      if (code == "0" && found > 0) code = "findings"
      if (code == "0" && passed == 0) code = "nothing ran"
      print passed + 0, failed + 0, found + 0, seconds (code == "0" ? "" : " BAD " code)
    }' "$log" >"$1.row"
}

run_sanitize() {
  enter "${1:-.gpu}"
  local tools=${2:-plain racecheck memcheck} tool family begin=$SECONDS
  [ $# -gt 2 ] && families=${*:3}
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer | head -1)
  slices=$(mktemp -d) deadline=$((EPOCHSECONDS + ${LIMIT:-3000}))
  trap 'rm -rf "$slices"' EXIT
  export bundle sanitizer slices deadline tools
  export -f slice_family
  for family in $families; do for tool in $tools; do echo "$tool/$family"; done; done |
    xargs -P "$(nproc)" -I{} bash -c 'slice_family {}'
  # Slices of all families by turns: where the time ends, what is left is spread.
  for tool in $tools; do find "$slices" -name "$tool,*" | sort -t, -k3; done | over_gpus run_slice "${JOBS:-4}"
  echo "tool      family            cases failed findings processes seconds"
  for tool in $tools; do for family in $families; do
    compgen -G "$slices/$tool,$family,*.row" >/dev/null || echo "0 0 0 0 BAD no cases" >"$slices/$tool,$family,none.row"
    cat "$slices/$tool,$family,"*.row | awk -v tool="$tool" -v family="$family" '
      { passed += $1; failed += $2; found += $3; seconds += $4; bad += /BAD/ }
      END { printf "%-9s %-16s %6d %6d %8d %9d %7d%s\n", tool, family, passed, failed, found, NR, seconds, bad ? " BAD" : "" }'
  done; done
  echo "$((SECONDS - begin)) seconds in all"
  ! (cd "$slices" && grep -H BAD -- *.row)
}

# Seconds from the start of a process to the first line of what it makes of a graph, then to its end. The driver's part of
# it: what a process waits that makes a context and nothing else. Then what tenon_overhead says.
run_starts() {
  enter "${1:-.gpu}"
  local device=${2:-cuda:0} cache name what k from first; cache=$(mktemp -d)
  trap "rm -rf '$cache'" EXIT
  echo "process                cache  first line  end"
  for name in add lm_s_train_step; do
    what=(--only lm_s_train --exec graph)
    [ $name = add ] && what=(--op 'binary(f32[1024], f32[1024]) {kind="add"}')
    for k in cold warm warm warm warm warm; do
      from=$EPOCHREALTIME
      first=$(TENON_CUDA_CACHE=$cache/$name stdbuf -oL "$bundle/bin/tenon" bench "${what[@]}" --device "$device" \
        --seconds 0.01 --no-ceilings 2>&1 | { read -r line; echo "$EPOCHREALTIME"; { echo "$line"; cat; } >>"$logs/starts_$name.log"; })
      awk -v name=$name -v cache=$k -v a="$from" -v b="$first" -v c="$EPOCHREALTIME" \
        'BEGIN { printf "%-22s %-6s %10.2f %4.2f\n", name, cache, b - a, c - a }'
    done
  done
  python3 - <<'PYTHON'
import ctypes, time
begin = time.time()
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuInit(0) == 0
ready = time.time()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0) == 0
print(f"the driver alone: {ready - begin:.2f} s to begin, {time.time() - ready:.2f} s for a context")
PYTHON
  "$bundle/bin/tenon_overhead" "$bundle/lib/tenon/plugins/tenon_plugin_${device%%:*}.so" 5000 graph
}

run_two() {
  enter "${1:-.gpu}"
  local first=${2:-cuda:0} second=${3:-cuda:1} mib=${MIB:-256} code=0 work; work=$(mktemp -d)
  local both=$first,$second limit=${MEMORY:-2GiB} steps=${STEPS:-20} exec
  trap 'rm -rf "$work"' RETURN
  "$bundle/bin/tenon" devices | sed -n '/^plugins/q;p'
  "$bundle/bin/tenon_two_devices" "$first" "$second" "$mib"
  "$bundle/bin/tenon_two_devices" "$second" "$first" "$mib"
  "$bundle/bin/tenon_two_devices" "$second" cpu:0 "$mib"

  read -ra sizes <<<"${SIZES:---dim 1024 --layers 12 --heads 16 --kv-heads 8 --ffn 2752 --context 512 --batch 4}"
  train() { "$bundle/bin/tenon" lm train --text README.md CONTRIBUTING.md LICENSE core/*/README.md --out "$work/$1" \
    "${sizes[@]}" --steps "$steps" --eval-every 5 --device "$2" "${@:3}" >"$logs/two_$1.log" 2>&1; }
  if train refused "$first" --memory "$limit"; then echo "BAD: $first alone keeps a limit of $limit"; code=1; fi
  grep "its limit is" "$logs/two_refused.log" || code=1
  train one "$first"
  for exec in graph stream eager multi-stream; do train "$exec" "$both" --memory "$limit" --exec "$exec"; done
  grep -hE "^(device|memory)" "$logs/two_graph.log"
  "$bundle/bin/tenon" inspect "$work/graph" --part train --batch 4 --device "$both" --memory "$limit" \
    >"$logs/two_inspect.log"
  sed -n '/^regions/,$p' "$logs/two_inspect.log"
  python3 - "$logs"/two_{one,graph,stream,eager,multi-stream}.log <<'PYTHON' || code=1
import re, sys
curves, rates = [], []
for f in sys.argv[1:]:
    text = open(f).read()
    curves.append([float(x) for x in re.findall(r"(?:loss|held-out) ([\d.]+)", text)])
    rates.append(max(map(float, re.findall(r"(\d+) tokens/s", text))))
assert len(curves[0]) > 8 and all(len(c) == len(curves[0]) for c in curves)
for name, curve, rate in zip(sys.argv[1:], curves, rates):
    apart = max(abs(a - b) / b for a, b in zip(curve, curves[0]))
    print(f"{name.rsplit('_')[-1]:18} losses {apart:.1e} apart, {rate:.0f} tokens/s, {rate / rates[0]:.2f} of one device")
    assert apart < 1e-4
PYTHON
  generate() { "$bundle/bin/tenon" lm generate --model "$work/one" --prompt "The " --tokens 40 --temperature 0 --device "$1"; }
  if cmp <(generate "$both") <(generate "$first"); then echo "greedy text: equal"; else code=1; fi

  TENON_RANDOM_DEVICE=$both TENON_RANDOM_PINS="*[13579]=$second,*=$first" TENON_RANDOM_GRAPHS=1000000 \
    TENON_RANDOM_JOINS=0 TENON_RANDOM_SECONDS=${SECONDS_OF_GRAPHS:-20} TENON_TEST_PLUGIN=$bundle/lib/tenon_plugin_template.so \
    "$bundle/bin/test_exec_random_graph" | tail -3 || code=1
  # Two chains of products, each of its own weight; a sum at the end.
  python3 - "${TOWER:-4096}" >"$work/towers.tng" <<'PYTHON'
import sys
n = sys.argv[1]
print(f'graph "towers" {{\n input x: f32[{n},{n}]\n weight a: f32[{n},{n}]\n weight b: f32[{n},{n}]')
for w in "ab":
    last = "x"
    for k in range(8):
        print(f" {w}{k} = matmul({last}, {w})")
        last = f"{w}{k}"
print(' y = binary(a7, b7) {kind="add"}\n s = reduce(y) {kind="sum", axes=[0,1], keepdims=false}\n output "s" = s\n}')
PYTHON
  for devices in "$first" "$both"; do
    "$bundle/bin/tenon" bench "$work/towers.tng" --device "$devices" --no-ceilings --seconds 2 --fill x=0:1e-3 --json \
      >"$logs/two_towers_$devices.json"
  done
  python3 - "$logs/two_towers_"{"$first","$both"}.json <<'PYTHON' || code=1
import json, sys
one, two = (json.load(open(f)) for f in sys.argv[1:])
one, two = (x[0] if isinstance(x, list) else x.get("cases", [x])[0] for x in (one, two))
share = two["median_us"] / one["median_us"]
print(f"independent chains: {one['median_us']:.0f} us on one device, {two['median_us']:.0f} us on both, {share:.2f}")
assert share < 0.75, "they do not run at once"
PYTHON
  return $code
}

run_capture() {
  enter "${1:-.gpu}"
  "$bundle/bin/tenon_foreign_capture" "${2:-cuda:0}" 2>&1 | tee "$logs/capture.log"
}

run_kinds() {
  enter "${1:-.gpu}"
  TENON_PLUGIN_PATH=$(realpath "$bundle/lib/tenon/plugins") "$bundle/bin/tenon_memory_kinds" "${2:-cuda:0}" 2>&1 | tee "$logs/kinds.log"
}

run_copies() {
  enter "${1:-.gpu}"
  local device=${2:-cuda:0} code=0
  "$bundle/bin/tenon_zero_copy" "$device" 2>&1 | tee "$logs/copies.log" || code=1
  python3 "$bundle/bin/torch_zero_copy.py" "$bundle/lib/libtenon.so" "$device" 2>&1 | tee -a "$logs/copies.log" || code=1
  python3 "$bundle/bin/torch_zero_copy.py" "$bundle/lib/libtenon.so" cpu:0 2>&1 | tee -a "$logs/copies.log" || code=1
  "$bundle/bin/tenon_conform" --plugin "$bundle/lib/tenon_plugin_template.so" --device "$device" --bind --partial \
    --elements 65536 --jobs 12 2>&1 | tee -a "$logs/copies.log" | tail -20 || code=1
  return $code
}

run_guest() {
  enter "${1:-.gpu}"
  local device=${2:-cuda:0} guest=$bundle/lib/tenon_plugin_softcap_cuda.so op='my:softcap(f32[67108864]) {cap=2.5}' exec
  "$bundle/bin/tenon_conform" --plugin "$guest" --plugin "$bundle/lib/tenon_plugin_template.so" --device "$device" \
    --cases "$bundle/softcap.json" --verbose 2>&1 | tee "$logs/guest.log"
  printf 'graph {\n input x: f32[67108864]\n y = my:softcap(x) {cap=2.5} @ "cap"\n output "y" = y\n}\n' >"$logs/guest_graph.txt"
  "$bundle/bin/tenon" inspect --plugin "$guest" --device "$device" "$logs/guest_graph.txt" | grep cap
  for exec in stream graph; do
    echo "exec $exec: as a text of the plugin; tanh of tenon reads and writes as much"
    "$bundle/bin/tenon" bench --plugin "$guest" --device "$device" --no-ceilings --seconds 1 --exec $exec --op "$op"
    "$bundle/bin/tenon" bench --device "$device" --no-ceilings --seconds 1 --exec $exec --op 'unary(f32[67108864]) {kind="tanh"}'
  done
  grep -q " 0 failed" "$logs/guest.log"
}

run_control() {
  enter "${1:-.gpu}"
  local device=${2:-cuda:0} test code=0
  for test in block_keys block_rows control derivatives buckets recurrent random_loop; do
    TENON_CONTROL_DEVICE=$device TENON_TEST_PLUGIN=$bundle/lib/tenon_plugin_template.so \
      "$bundle/bin/test_exec_$test" || code=$?
  done
  python3 "$bundle/tests/llm/draws.py" "$bundle/bin/llm_draws" "$device" || code=$?
  "$bundle/bin/tenon" bench "$bundle/trips_scan.tng" --device "$device" --no-ceilings --seconds 1
  "$bundle/bin/tenon" bench "$bundle/trips_while.tng" --fill most=1000:1001 --device "$device" --no-ceilings --seconds 1
  return $code
}

run_bits() {
  enter "${1:-.gpu}"
  python3 "$bundle/tests/llm/bits.py" "$bundle/bin/tenon" "$bundle/bin/llm_bits" "${2:-cuda:0}" "${@:3}" 2>&1 | tee "$logs/bits.log"
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

# One judge to its log; the row of the table beside it.
run_judge() {
  local name=$1 start=$SECONDS code=0 word=ok; shift
  local log=$logs/peers_${name// /_}
  timeout 1200 "$@" >"$log.log" 2>&1 || code=$?
  [ $code = 0 ] || word="BAD $code"
  [ $code = 77 ] && word=skipped
  printf '%-15s %-8s %-88s %8s\n' "$name" "$word" "$(tail -1 "$log.log" | cut -c1-88)" $((SECONDS - start)) >"$log.row"
}

run_peers() {
  enter "${1:-.gpu}"
  local device=${2:-cuda:0} cases=${CASES:-500} first=${FIRST:-1} work dtype part; work=$(mktemp -d)
  trap 'rm -rf "$work"' RETURN
  rm -f "$logs"/peers_*
  for dtype in f32 bf16 f16; do
    [ $dtype = f32 ] || cases=$((${CASES:-500} / 5))
    run_judge "windows $dtype" python3 "$bundle/bin/windows.py" "$bundle/lib/libtenon.so" --device "$device" \
      --dtype $dtype --count $cases --seed "$first"
  done
  if [ -f "$bundle/onnx.tar.xz" ]; then
    tar -xJf "$bundle/onnx.tar.xz" -C "$work"
    run_judge "ONNX node tests" python3 "$bundle/bin/node_tests.py" "$bundle" --cases "$work/node" --device "$device" --jobs 8 --failed
    run_judge "ONNX models" python3 "$bundle/bin/models.py" "$bundle" --cases "$work/light" --device "$device"
  else
    for part in "ONNX node tests" "ONNX models"; do
      run_judge "$part" bash -c 'echo "the bundle was prepared without the package onnx"; exit 77'
    done
  fi
  grep -hE "^(FAIL|fail|refused|expected to pass)|^  .*: error" "$logs"/peers_*.log | cut -c1-300 | head -60 || true
  for part in windows_f32 ONNX_node_tests ONNX_models; do
    grep -vE "^(FAIL|fail|refused|expected to pass)|^  " "$logs/peers_$part.log" || true
  done
  echo "judge           result   last line                                                                                 seconds"
  show_rows "$logs"/peers_{windows_{f32,bf16,f16},ONNX_{node_tests,models}}.row
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
  local device=${2:-cuda:0} work mode name dtype early; work=$(mktemp -d)
  trap 'rm -rf "$work"' RETURN
  local sizes=(--dim 128 --layers 4 --heads 4 --kv-heads 2 --ffn 344 --context 128 --batch 8 --steps 20 --warmup 5)
  train() { "$bundle/bin/tenon" lm train --text README.md CONTRIBUTING.md LICENSE core/*/README.md --out "$work/$1" \
    "${sizes[@]}" --device "$device" "${@:2}" >"$logs/modes_$1.log" 2>&1; }
  same_bits() {
    cmp "$work/$1/model.safetensors" "$work/$2/model.safetensors"
    cmp "$work/$1/optimizer.safetensors" "$work/$2/optimizer.safetensors"
    echo "equal bits: $3"
  }
  for mode in "--exec stream" "--exec stream --compile aot" "--exec graph" "--exec eager" "--exec multi-stream:2" \
    "--exec multi-stream:4" "--exec multi-stream:4 --trace $work/trace.json"; do
    name=${mode//[^a-z0-9]/}
    # shellcheck disable=SC2086  # words of a mode are options
    train "$name" $mode
    same_bits execstream "$name" "$mode"
  done
  for dtype in f32 bf16; do for mode in stream graph; do
    for early in 0 1; do TENON_CUDA_EARLY_LAUNCH=$early train "$dtype$mode$early" --dtype $dtype --exec $mode; done
    same_bits "$dtype${mode}0" "$dtype${mode}1" "$dtype, --exec $mode, without and with early launch"
  done; done
  for early in 1 0; do for mode in stream graph multi-stream:2 multi-stream:4; do
    echo "$mode$([ $early = 1 ] || echo ", no early launch")"
    TENON_CUDA_EARLY_LAUNCH=$early \
      "$bundle/bin/tenon" bench --only lm_s --device "$device" --seconds 0.5 --no-ceilings --exec "$mode"
  done; done
}

case "${1:-}" in
  prepare) shift; prepare "$@" ;;
  test) shift; run_tests "$@" ;;
  two) shift; run_two "$@" ;;
  capture) shift; run_capture "$@" ;;
  kinds) shift; run_kinds "$@" ;;
  copies) shift; run_copies "$@" ;;
  guest) shift; run_guest "$@" ;;
  control) shift; run_control "$@" ;;
  bits) shift; run_bits "$@" ;;
  bench) shift; run_bench "$@" ;;
  peer) shift; run_peer "$@" ;;
  peers) shift; run_peers "$@" ;;
  lm) shift; run_lm "$@" ;;
  random) shift; run_random "$@" ;;
  large) shift; run_large "$@" ;;
  sanitize) shift; run_sanitize "$@" ;;
  starts) shift; run_starts "$@" ;;
  modes) shift; run_modes "$@" ;;
  *) sed -n '3,/^[^#]/{/^#/p}' "$0"; exit 2 ;;
esac
