#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_deb.sh BUILD_DIR: packs a complete build (tenon_conform included) and tries the Debian packages in a bare root, a
# folder that holds the packages they depend on and nothing else. Installs all, runs the command, builds the SDK examples
# against libtenon-dev, removes all. Leaves this machine as it was. Exits with 77 where a bare root cannot be entered.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "${1:?usage: test_deb.sh BUILD_DIR}" && pwd)

for tool in cpack dpkg-shlibdeps file; do
  command -v $tool > /dev/null || { echo "skipped: no $tool; setup.sh --deb installs it"; exit 77; }
done
# A mount namespace of our own, so that nothing stays mounted; without root, as root of a user namespace.
if [ -z "${TENON_TEST_DEB_INSIDE:-}" ]; then
  as=(unshare --mount --pid --fork)
  [ "$(id -u)" -eq 0 ] || as+=(--map-root-user)
  if ! "${as[@]}" --mount-proc true 2> /dev/null; then
    echo "skipped: this machine does not let us make namespaces"
    exit 77
  fi
  TENON_TEST_DEB_INSIDE=1 exec "${as[@]}" "$0" "$build"
fi

fail() { echo "test_deb.sh: $*" >&2; exit 1; }
quiet() { "$@" > "$work/log" 2>&1 || { tail -40 "$work/log"; fail "failed: $*"; }; }

work=$(mktemp -d "${TMPDIR:-/tmp}/tenon-deb.XXXXXX")
trap 'umount "$work/root/proc" 2> /dev/null || true; rm -rf --one-file-system "$work"' EXIT
chmod 755 "$work"
umask 022
unset LD_LIBRARY_PATH PKG_CONFIG_PATH TENON_PLUGIN_PATH
root=$work/root
mkdir "$root"
# Root of a user namespace cannot give files away.
force=()
[ "$(awk 'NR == 1 {print $3}' /proc/self/uid_map)" -gt 1 ] || force=(--force-not-root)

echo "== pack"
quiet cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/debs"
debs=("$work"/debs/*.deb)
names=$(for deb in "${debs[@]}"; do dpkg-deb -f "$deb" Package; done)
expected=$(printf '%s\n' libtenon libtenon-dev libtenon-llm tenon tenon-plugin-cpu tenon-plugin-cuda)
[ "$(sort <<< "$names")" = "$expected" ] || fail "packages: expected" $expected, got $names
for deb in "${debs[@]}"; do
  package=$(dpkg-deb -f "$deb" Package)
  echo "$package: $(du -h "$deb" | cut -f 1), needs $(dpkg-deb -f "$deb" Depends)"
  dpkg-deb --contents "$deb" > "$work/contents"
  grep -q "\./usr/share/doc/$package/copyright$" "$work/contents" || fail "$package: no copyright"
  # When it is installed or removed, nothing but ldconfig is run.
  mkdir "$work/control"
  dpkg-deb --control "$deb" "$work/control"
  if cat "$work/control"/{pre,post}{inst,rm} 2> /dev/null | grep -vE '^(#!/bin/sh|set -e|if \[ "\$1" = "(configure|remove)" \]; then|\s*ldconfig|fi)?$'; then
    fail "$package: runs code of its own when it is installed or removed"
  fi
  rm -r "$work/control"
  # Of NVIDIA there is nothing: no file, no dependency.
  if grep -E "lib(cuda|nvrtc|cublas|nvidia)" "$work/contents" ||
    dpkg-deb -f "$deb" Depends Recommends Suggests | grep -iE "nvidia|libcuda|nvrtc|cublas"; then
    fail "$package: something of NVIDIA"
  fi
done
dpkg-deb --contents "$work"/debs/tenon_*.deb > "$work/contents"
for document in README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md; do
  grep -q "\./usr/share/doc/tenon/$document" "$work/contents" || fail "tenon: no $document"
done
echo "== pages: the links of libtenon-dev stay inside it; those of tenon may lead to libtenon-dev"
for package in libtenon-dev tenon; do
  dpkg-deb --extract "$work/debs/${package}"_*.deb "$work/pages"
  python3 "$here/../tests/tree/links.py" --installed "$work/pages/usr" || fail "$package: links to pages that are not there"
done
for page in README.md OPS.md conformance/README.md; do
  [ -f "$work/pages/usr/share/doc/tenon/sdk/$page" ] || fail "libtenon-dev: no sdk/$page"
done

if command -v lintian > /dev/null; then
  echo "== lintian"
  # Not for the archive: no first-upload bug, no manual pages, no package name with the soname. CPack calls ldconfig.
  lintian --allow-root --fail-on error "${debs[@]}" --suppress-tags \
    initial-upload-closes-no-bugs,no-manual-page,package-name-doesnt-match-sonames,maintscript-calls-ldconfig
fi

# Prints the packages that ours need, and those that these need, as this machine has them.
closure() {
  local -A seen=()
  local queue=() depends alternatives package found
  depends="dash, libc-bin, $(for deb in "${debs[@]}"; do dpkg-deb -f "$deb" Depends; echo ,; done)"  # dash and libc-bin: for ldconfig
  while :; do
    while IFS= read -r alternatives; do
      found=
      for package in $(sed -E 's/\([^)]*\)//g; s/:[a-z0-9]+//g; s/\|/ /g' <<< "$alternatives"); do
        if grep -qx "$package" <<< "$names" || [ -n "${seen[$package]:-}" ]; then found=1; break; fi
        if dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2> /dev/null | grep -q '^ii'; then
          seen[$package]=1; queue+=("$package"); found=1; break
        fi
      done
      [ -n "$found" ] || [ -z "${alternatives// /}" ] || { echo "not installed here: $alternatives" >&2; return 1; }
    done < <(tr ',' '\n' <<< "$depends")
    [ ${#queue[@]} -gt 0 ] || break
    depends=$(dpkg-query -W -f '${Depends},${Pre-Depends}\n' "${queue[0]}" | head -1)
    queue=("${queue[@]:1}")
  done
  printf '%s\n' "${!seen[@]}" | sort
}

echo "== bare root"
closure > "$work/closure"
tr '\n' ' ' < "$work/closure"; echo
mkdir -p "$root"/usr/{bin,sbin,lib,lib64,lib32,libx32} "$root"/{proc,tmp,etc} "$root"/var/lib/dpkg/{info,updates,triggers}
for link in bin sbin lib lib64; do ln -s usr/$link "$root/$link"; done
while IFS= read -r package; do
  dpkg-query -L "$package" | while IFS= read -r file; do [ ! -e "$file" ] || echo "$file"; done
done < "$work/closure" | sort -u > "$work/files"
tar -C / --no-recursion --exclude='/var/*' -cf - -T "$work/files" 2> /dev/null | tar -C "$root" --keep-directory-symlink --no-same-owner -xf - ||
  fail "a bare root cannot be made of this machine's files"
xargs dpkg-query -s < "$work/closure" > "$root/var/lib/dpkg/status"
while IFS= read -r package; do
  cp /var/lib/dpkg/info/"$package"{,:*}.list "$root/var/lib/dpkg/info/" 2> /dev/null || true
done < "$work/closure"
quiet dpkg --root="$root" "${force[@]}" --install "${debs[@]}"
du -sh "$root" | sed 's/\t.*/ in all/'
mount -t proc proc "$root/proc"
chroot=$(command -v chroot)
enter() { env -i PATH=/usr/bin HOME=/tmp "$chroot" "$root" "$@"; }

echo "== the command"
enter /usr/bin/tenon devices | tee "$work/devices"
grep -q "^  cpu:0 " "$work/devices" || fail "no device cpu:0"
grep -q "loaded: cuda .*no NVIDIA driver" "$work/devices" || fail "the cuda plugin does not tell of the missing driver"
cp "$here/../LICENSE" "$root/tmp/text"
enter /usr/bin/tenon lm train --text /tmp/text --out /tmp/model --dim 32 --layers 1 --heads 2 --kv-heads 1 --ffn 48 \
  --context 16 --batch 2 --steps 10 --warmup 2 | tail -1
enter /usr/bin/tenon lm generate --model /tmp/model --prompt The --tokens 5 > "$work/text"

echo "== the kit and the examples, which are built outside against the files inside"
enter /usr/bin/tenon_conform --list --case 'rope-*' > "$work/cases"
grep -q rope "$work/cases" || fail "tenon_conform lists no case of rope"
[ -f "$root/usr/share/tenon/template/plugin.cpp" ] && [ -f "$root/usr/share/tenon/template_stream/plugin.cpp" ] && [ -f "$root/usr/share/tenon/template_c/plugin.c" ] || fail "no templates"
cp -r "$root/usr/share/tenon/examples" "$work/examples"
quiet cmake -S "$work/examples" -B "$work/examples/build" -G Ninja -DCMAKE_PREFIX_PATH="$root/usr" -DCMAKE_SKIP_RPATH=ON
grep -q "^tenon_DIR:PATH=$root/usr/" "$work/examples/build/CMakeCache.txt" || fail "the examples found another tenon"
quiet cmake --build "$work/examples/build" -j2
for program in line_c line_cpp training decoding own_op; do
  echo "$program"
  cp "$work/examples/build/$program" "$root/tmp/"
  enter "/tmp/$program"
done
echo "chat"
cp "$work/examples/build/chat" "$root/tmp/"
python3 - "$root/tmp/tiny" "$here/../tests/cli" <<'PY'
import sys
sys.path.append(sys.argv[2])
import tiny_model
tiny_model.make(sys.argv[1])
PY
enter /tmp/chat /tmp/tiny Hello > "$work/said"
[ "$(wc -c < "$work/said")" -gt 1 ] || fail "chat said nothing"  # one byte is the newline
mkdir "$root/tmp/plugins"
cp "$work/examples/build/tenon_plugin_mini.so" "$root/tmp/plugins/"
enter /usr/bin/tenon devices --plugin-dir /tmp/plugins > "$work/devices"
grep "^  mini:0 " "$work/devices" || fail "no device mini:0"

echo "== a C program, built with pkg-config"
PKG_CONFIG_PATH=$(dirname "$(find "$root/usr/lib" -name tenon.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046
gcc -std=c11 "$work/examples/line.c" $(pkg-config --cflags --libs tenon) -o "$root/tmp/line_c"
enter /tmp/line_c

echo "== remove"
umount "$root/proc"
rm -r "$root/tmp"
quiet dpkg --root="$root" "${force[@]}" --purge $names
left=$(find "$root" -xdev -name '*tenon*' ! -path "$root/var/lib/dpkg/*")
[ -z "$left" ] || fail "left behind: $left"
echo ok
