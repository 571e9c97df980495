#!/usr/bin/env bash
# The main job, end to end, to watch: an embedded host with two simulated GPUs, a tenant with its own
# KAI-like scheduler, fractions that are enforced on the device, a second tenant, and delete.
# Needs nothing beforehand: runs tools/bootstrap.sh and builds first. Everything happens in network and
# mount namespaces and a folder of its own; nothing of the machine is touched.
#   tools/demo.sh           NO_COLOR=1 for plain text
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" -ne 0 ]; then
  echo "demo: run it as root: containers, networks and firewall rules need it (in namespaces of their own)" >&2
  exit 1
fi
begin=$(date +%s)
tools/bootstrap.sh --demo
cmake --preset release >/dev/null
if [ ! -x build/release/cli/sublet ]; then
  echo "demo: building build/release/cli/sublet; a first build takes some minutes per core"
fi
if [ -t 1 ]; then
  ninja -C build/release sublet  # one line that shows how far it is
else
  ninja -C build/release sublet | tail -n 1
fi
echo "demo: ready after $(($(date +%s) - begin)) s"
SUBLET_DEMO=1 SUBLET_BIN=$PWD/build/release/cli/sublet SUBLET_CLIENTS=$PWD/.cache/clients \
  exec e2e/tenants/run.sh --server sublet --parts containers
