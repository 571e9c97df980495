#!/usr/bin/env bash
# The main job, end to end, to watch: an embedded host with two simulated GPUs, a tenant with its own
# KAI-like scheduler, fractions that are enforced on the device, a second tenant, and delete.
# Needs nothing beforehand: runs tools/bootstrap.sh and builds first. Everything happens in network and
# mount namespaces and a folder of its own; nothing of the machine is touched.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/bootstrap.sh
echo "demo: building build/release/cli/sublet"
cmake --preset release >/dev/null
ninja -C build/release sublet | tail -n 1
SUBLET_DEMO=1 SUBLET_BIN=$PWD/build/release/cli/sublet SUBLET_CLIENTS=$PWD/.cache/clients \
  exec e2e/tenants/run.sh
