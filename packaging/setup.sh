#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh [--fuzz | --deb]: installs what building and testing need, on Debian 12 and Ubuntu 24.04; with an option also
# what fuzzing or packing needs. What only some tests need, and wheel.sh (python3-dev, python3-venv), is installed where
# that is possible.
# Says nothing when all is there; elsewhere prints the list and exits with 1.
set -euo pipefail

required=(
  g++ cmake ninja-build ccache pkg-config git
  libtbb-dev libhwy-dev zlib1g-dev libpng-dev libpcre2-dev libutf8proc-dev
  libboost-dev libboost-filesystem-dev libboost-system-dev
  doctest-dev nlohmann-json3-dev python3
)
optional=(python3-numpy python3-pip python3-dev python3-venv dpkg-dev file clang-format-14 zsh fish libsndfile1-dev)  # tests that need them skip without them
case "${1:-}" in
  "") ;;
  --fuzz) required+=(clang-16 libclang-rt-16-dev) ;;
  --deb) required+=(dpkg-dev file) ;;
  *) echo "usage: setup.sh [--fuzz | --deb]" >&2; exit 2 ;;
esac

os=$(. /etc/os-release 2>/dev/null && echo "${ID:-}-${VERSION_ID:-}") || os=unknown
case "$os" in
  debian-12 | ubuntu-24.04) ;;
  *)
    echo "setup.sh knows Debian 12 and Ubuntu 24.04, this is $os. Please install what these Debian packages hold:"
    printf '  %s\n' "${required[@]}" "${optional[@]}"
    exit 1
    ;;
esac >&2

missing() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || echo "$package"
  done
}

mapfile -t need < <(missing "${required[@]}")
mapfile -t want < <(missing "${optional[@]}")
[ $((${#need[@]} + ${#want[@]})) -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    [ ${#need[@]} -eq 0 ] && exit 0
    echo "setup.sh: not root and no sudo; please install: ${need[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
  # Never ask for a password for something optional.
  if [ ${#need[@]} -eq 0 ] && ! sudo -n true 2>/dev/null; then
    echo "setup.sh: without ${want[*]}; tests that need it will skip" >&2
    exit 0
  fi
fi
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::http::Timeout=20 "$@"
}

apt update >/dev/null || echo "setup.sh: apt-get update failed, trying with the lists at hand" >&2
if [ ${#need[@]} -gt 0 ]; then
  echo "setup.sh: installing ${need[*]}" >&2
  apt install --no-install-recommends -y "${need[@]}" >/dev/null
fi
if [ ${#want[@]} -gt 0 ]; then
  echo "setup.sh: installing ${want[*]} (optional)" >&2
  apt install --no-install-recommends -y "${want[@]}" >/dev/null ||
    echo "setup.sh: could not install ${want[*]}; tests that need it will skip" >&2
fi
