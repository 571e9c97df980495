#!/usr/bin/env bash
# Installs everything a fresh Debian 12 machine needs to build and test Sublet. Idempotent: a second
# run finds everything and returns in well under a second.
#   bootstrap.sh [--full|--demo]    --full: also what tools/test.sh --full needs; --demo: what the demo needs
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  build-essential cmake ninja-build mold ccache git pkg-config
  libboost1.81-dev libssl-dev nlohmann-json3-dev libsqlite3-dev libspdlog-dev libfmt-dev
  libyaml-cpp-dev libcli11-dev libre2-dev zlib1g-dev libgtest-dev libgmock-dev libbenchmark-dev libjemalloc-dev
  sqlite3 jq curl unzip file procps python3 python3-venv
  busybox-static podman runc conmon netavark aardvark-dns nftables iptables iproute2 docker.io
)
full=(clang-14 clang-tidy-14 clang-format-14 libclang-rt-14-dev etcd-server)
if [ "${1:-}" = "--full" ] || [ -n "${SUBLET_FULL:-}" ]; then
  packages+=("${full[@]}")
fi

missing=()
for package in "${packages[@]}"; do
  if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
    missing+=("$package")
  fi
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ]; then
    echo "bootstrap: run as root, or install these packages first: ${missing[*]}" >&2
    exit 1
  fi
  echo "bootstrap: installing ${#missing[@]} packages: ${missing[*]}"
  log=$(mktemp)
  # Package scripts must not start daemons: the tests start the engines they need by themselves.
  policy=
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d
    policy=made
  fi
  trap '[ -z "$policy" ] || rm -f /usr/sbin/policy-rc.d' EXIT
  if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
         --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "bootstrap: apt-get failed; the whole log is in $log" >&2
    exit 1
  fi
  rm -f "$log"
fi

tools/fetch-clients.sh $([ "${1:-}" != --demo ] || echo --kubectl)
echo "bootstrap: ready"
