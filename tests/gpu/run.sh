#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The cuda plugin on a machine with a GPU.
#   run.sh prepare BUILD_DIR [BUNDLE]   collects binaries and the libraries they need into BUNDLE (default .gpu)
#   run.sh test [BUNDLE] [FAMILY...]    on the GPU machine: conformance (all families, or those named), short table last
#   run.sh bench [BUNDLE]               on the GPU machine: ops beside the device's copy rate, table last
# Logs go to $OUT where that is set, else below the bundle.
set -euo pipefail
root=$(dirname "$0")/../..; [ -d "$root/plugins" ] && cd "$root"

families="elementwise region activation matmul grouped_matmul reduce softmax order scan random norm channel_norm rope
attention index index_elements shape pool optimizer"

prepare() {
  local build=$1 bundle=${2:-.gpu}
  rm -rf "$bundle"
  mkdir -p "$bundle/bin" "$bundle/lib/tenon/plugins" "$bundle/system"
  cp "$build"/bin/tenon "$build"/bin/tenon_conform "$bundle/bin/"
  cp -P "$build"/lib/libtenon.so* "$bundle/lib/"
  cp "$build"/lib/tenon/plugins/*.so "$bundle/lib/tenon/plugins/"
  cp "$(find "$build" -name tenon_plugin_template.so | head -1)" "$bundle/lib/"
  # What a machine of another distribution may lack or have older.
  ldd "$bundle"/bin/* "$bundle"/lib/*.so* "$bundle"/lib/tenon/plugins/*.so 2>/dev/null |
    awk '/=> \// {print $3}' | sort -u |
    { grep -E 'libtbb|libhwy|libboost|libdnnl|libsleef|libgomp' || true; } |
    xargs -r -I{} cp -L {} "$bundle/system/"
  strip --strip-debug "$bundle"/bin/* "$bundle"/lib/*.so "$bundle"/lib/tenon/plugins/*.so
  du -sh "$bundle"
}

enter() {
  bundle=$(realpath "${1:-.gpu}")
  export LD_LIBRARY_PATH=$bundle/lib:$bundle/system${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  logs=${OUT:-$bundle/logs}
  mkdir -p "$logs"
}

run_tests() {
  enter "${1:-.gpu}"
  [ $# -gt 0 ] && shift
  [ $# -gt 0 ] && families="$*"
  "$bundle/bin/tenon" devices
  local table="family               result  passed failed  seconds"
  for family in $families; do
    local start=$SECONDS code=0
    timeout 300 "$bundle/bin/tenon_conform" --plugin "$bundle/lib/tenon_plugin_template.so" --device cuda:0 \
      --family "$family" >"$logs/$family.log" 2>&1 || code=$?
    table+=$(printf '\n%-20s %-7s %s %8s' "$family" "$([ $code = 0 ] && echo ok || echo "BAD $code")" \
      "$(tail -1 "$logs/$family.log" | cut -c1-80)" $((SECONDS - start)))
  done
  echo "$table"
}

run_bench() {
  enter "${1:-.gpu}"
  local cases=(
    'unary(f32[16777216]) {kind="gelu"}'
    'binary(f32[16777216], f32[16777216]) {kind="add"}'
    'binary(bf16[33554432], bf16[33554432]) {kind="mul"}'
    'cast(f32[33554432]) {to=bf16}'
  )
  for op in "${cases[@]}"; do
    "$bundle/bin/tenon" bench --op "$op" --device cuda:0 --seconds 0.3 2>&1 | tee -a "$logs/bench.log" | tail -4
  done
}

case "${1:-}" in
  prepare) shift; prepare "$@" ;;
  test) shift; run_tests "$@" ;;
  bench) shift; run_bench "$@" ;;
  *) sed -n '3,8p' "$0"; exit 2 ;;
esac
