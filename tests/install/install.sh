#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh BUILD_DIR: what is installed is enough, and can be uninstalled. Outside the tree: plugins from the templates
# (C++ by find_package, C by pkg-config) load in the installed command and run the model; the examples build and run.
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
unset TENON_PLUGIN_PATH LD_LIBRARY_PATH PKG_CONFIG_PATH

cmake --install "$build" --prefix "$work/first" > "$work/log"
mv "$work/first" "$work/prefix"   # an installed tree can be moved
prefix=$work/prefix
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name tenon.pc)")
export PKG_CONFIG_PATH
pkg() { pkg-config "$@"; }
libdir=$(pkg --variable=libdir tenon)

echo "== run-time search paths"
python3 "$here/search_paths.py" --installed "$prefix"
mkdir "$work/bad"
echo "int unused;" > "$work/empty.c"
for path in "$libdir:" "lib" ; do   # and the check itself finds what is wrong
  gcc -shared "$work/empty.c" -Wl,-rpath,"$path" -o "$work/bad/bad.so"
  ! python3 "$here/search_paths.py" "$work/bad" 2> "$work/found" || { echo "accepted: $path"; exit 1; }
  grep -qE "is empty|is relative" "$work/found"
done

echo "== pages"
links=$source/tests/tree/links.py
python3 "$links" --installed "$prefix"
for page in README.md sdk/README.md sdk/OPS.md sdk/template_stream/README.md sdk/conformance/README.md core/ir/README.md; do
  [ -f "$prefix/share/doc/tenon/$page" ] || { echo "$page is not installed"; exit 1; }
done
mv "$prefix/share/doc/tenon/sdk/OPS.md" "$work/"   # and the check itself finds what is wrong
! python3 "$links" --installed "$prefix" > "$work/found" || { echo "accepted: links to a page that is not there"; exit 1; }
for place in share/doc/tenon/sdk/README.md include/tenon/ops.def; do
  grep -q "^$place: .*sdk/OPS.md\|^$place: .*(OPS.md)" "$work/found" || { echo "no fault found in $place"; exit 1; }
done
mv "$work/OPS.md" "$prefix/share/doc/tenon/sdk/"

echo "== plugin from the C++ template, find_package"
cp -r "$prefix/share/tenon/template" "$work/template"
cmake -S "$work/template" -B "$work/template/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >> "$work/log"
cmake --build "$work/template/build" -j2 >> "$work/log"
mkdir "$work/plugins"
find "$work/template/build" -name "*template*.so" -exec cp {} "$work/plugins/" \;

echo "== plugin from the template for devices with streams, find_package"
cp -r "$prefix/share/tenon/template_stream" "$work/template_stream"
cmake -S "$work/template_stream" -B "$work/template_stream/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror" >> "$work/log"
cmake --build "$work/template_stream/build" -j2 >> "$work/log"
cp "$work/template_stream/build/tenon_plugin_template_stream.so" "$work/plugins/"

echo "== plugin from the C template, pkg-config"
# shellcheck disable=SC2046
gcc -std=c11 -Wall -Wextra -Werror -O1 -fPIC -fvisibility=hidden -shared $(pkg --cflags tenon-sdk) \
  -Wl,-z,defs -Wl,--version-script="$(pkg --variable=versionscript tenon-sdk)" \
  "$prefix/share/tenon/template_c/plugin.c" -o "$work/plugins/tenon_plugin_template_c.so"

echo "== the installed command"
tenon=$prefix/bin/tenon
"$tenon" devices --plugin-dir "$work/plugins" | tee "$work/devices"
for device in cpu:0 template:0 template_c:0 template_stream:0; do grep -q "^  $device " "$work/devices" || { echo "no device $device"; exit 1; }; done
chmod 777 "$work"   # others could exchange the prefix, libtenon and all: its own plugins load, a folder that is named does not
"$tenon" devices --plugin-dir "$work/plugins" > "$work/devices"
chmod 755 "$work"
grep -q "^  cpu:0 " "$work/devices"
grep -q "not loaded (permissions): directory $work can be written by others" "$work/devices"
for device in cpu template template_c template_stream; do
  "$tenon" lm train --text /usr/share/common-licenses/Apache-2.0 --out "$work/model-$device" --device "$device" \
    --plugin-dir "$work/plugins" --dim 32 --layers 1 --heads 2 --kv-heads 1 --ffn 48 --context 16 --batch 2 --steps 10 \
    --warmup 2 | tail -2 | head -1
done
python3 - "$work" <<'PY'
import json, sys
losses = {d: json.load(open(f"{sys.argv[1]}/model-{d}/training.json"))["losses"] for d in ("cpu", "template", "template_c", "template_stream")}
for d in ("template", "template_c", "template_stream"):
    worst = max(abs(a[1] - b[1]) / b[1] for a, b in zip(losses[d], losses["cpu"]))
    print(f"losses of {d} against cpu: {worst:.1e}")
    assert worst < 1e-4, d
assert losses["template_stream"] == losses["template"]
PY
"$tenon" lm generate --model "$work/model-cpu" --device template --plugin-dir "$work/plugins" --prompt "The" --tokens 20 > /dev/null

echo "== the installed kit judges a plugin of others"
"$prefix/bin/tenon_conform" --plugin "$work/plugins/tenon_plugin_template.so" --plugin "$work/plugins/tenon_plugin_template_c.so" \
  --device template_c:0 --family elementwise --family matmul --partial
"$prefix/bin/tenon_conform" --plugin "$work/plugins/tenon_plugin_template.so" --plugin "$work/plugins/tenon_plugin_template_stream.so" \
  --device template_stream:0 --family shape --family index --elements 4096

echo "== the examples, find_package"
cp -r "$prefix/share/tenon/examples" "$work/examples"
cmake -S "$work/examples" -B "$work/examples/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror -pedantic" "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror" >> "$work/log"
cmake --build "$work/examples/build" -j2 >> "$work/log"
for program in line_c line_cpp training decoding own_op; do echo "$program"; "$work/examples/build/$program"; done
python3 - "$work/tiny" "$source/tests/cli" <<'PY'
import sys
sys.path.append(sys.argv[2])
import tiny_model
tiny_model.make(sys.argv[1])
PY
echo "chat, complete"
"$work/examples/build/chat" "$work/tiny" Hello "And you?" > "$work/said"
[ "$(wc -l < "$work/said")" -ge 2 ] || { echo "chat: expected two answers"; exit 1; }
"$work/examples/build/complete" "$work/tiny" Hello > "$work/said"
"$tenon" llm run "$work/tiny" --raw --prompt Hello --greedy --tokens 40 --device auto > "$work/expected" 2> "$work/log"
cmp "$work/said" "$work/expected"
for program in neighbours listen "splat --gaussians 500 --width 64 --height 48 --steps 30 --turntable 1"; do  # where libpng and libsndfile are installed
  read -r name options <<< "$program"
  # shellcheck disable=SC2086  # options are words
  [ ! -x "$work/examples/build/$name" ] || (cd "$work" && "$work/examples/build/$name" $options > "$work/$name.log")
done
mkdir "$work/mini"
cp "$work/examples/build/tenon_plugin_mini.so" "$work/mini/"
"$tenon" devices --plugin-dir "$work/mini" | grep "^  mini:0 "
for example in "softcap_cuda softcap" "edit_distance edit_distance"; do
  read -r plugin cases <<< "$example"
  "$prefix/bin/tenon_conform" --plugin "$work/examples/build/tenon_plugin_$plugin.so" \
    --plugin "$work/plugins/tenon_plugin_template.so" --cases "$work/examples/$cases.json"
done
"$tenon" ops --plugin-dir "$work/examples/build" text:edit_distance | grep "of plugin edit_distance"
"$tenon" bench --plugin-dir "$work/examples/build" --op 'text:edit_distance(i32[64,128], i32[64,128])' \
  --device cpu --no-ceilings --seconds 0.1

echo "== host apps, pkg-config"
# shellcheck disable=SC2046
gcc -std=c11 -Wall -Wextra -Werror -pedantic "$work/examples/line.c" $(pkg --cflags --libs tenon) -Wl,-rpath,"$libdir" -o "$work/line_c"
"$work/line_c"
# shellcheck disable=SC2046
g++ -std=c++20 -Wall -Wextra -Werror "$work/examples/line.cpp" $(pkg --cflags --libs tenon) -Wl,-rpath,"$libdir" -o "$work/line_cpp"
"$work/line_cpp"
# shellcheck disable=SC2046
gcc -std=c11 -Wall -Wextra -Werror -pedantic "$work/examples/complete.c" $(pkg --cflags --libs tenon-llm) -Wl,-rpath,"$libdir" -o "$work/complete"
"$work/complete" "$work/tiny" Hello | cmp - "$work/expected"
echo "== an incomplete build, installed and uninstalled"
# As after the demo, which builds no kit: a build folder of its own with the files of this one.
cmake -S "$source" -B "$work/incomplete" -G Ninja -DTENON_BUILD_TESTS=OFF -DCMAKE_INSTALL_LIBDIR="$(basename "$libdir")" >> "$work/log"
cp -r "$build/bin" "$build/lib" "$work/incomplete/"
rm "$work/incomplete/bin/tenon_conform"
mkdir "$work/second"
touch "$work/second/mine"
cmake --install "$work/incomplete" --prefix "$work/second" > "$work/log"
grep -q "Left out: tenon_conform" "$work/log"
"$work/second/bin/tenon" devices | grep "^  cpu:0 "
cmake -S "$work/examples" -B "$work/examples/second" -G Ninja -DCMAKE_PREFIX_PATH="$work/second" >> "$work/log"
cmake --build "$work/incomplete" --target uninstall > "$work/log"
left=$(find "$work/second" ! -type d)
[ "$left" = "$work/second/mine" ] || { echo "after uninstall: $left"; exit 1; }
left=$(find "$work/second" -name '*tenon*')
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
if cmake --build "$work/incomplete" --target uninstall > "$work/log" 2>&1; then echo "uninstalled twice"; exit 1; fi
grep -q "install_manifest.txt is missing" "$work/log"
echo "ok"
