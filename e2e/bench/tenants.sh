#!/usr/bin/env bash
# What tenants cost, with their aims beside: create -> first kubectl success on the embedded host, phase
# by phase (create_phases.py; real containers, root), then e2e/bench/tenants.py on plain processes.
# SUBLET_BIN should be a release build.
#   e2e/bench/tenants.sh [arguments of tenants.py]
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${SUBLET_BIN:=$root/build/release/cli/sublet}" "${SUBLET_CLIENTS:=$root/.cache/clients}"
export SUBLET_BIN SUBLET_CLIENTS here
failed=0
if [ "$(id -u)" -eq 0 ]; then
  unshare -n -m --propagation private bash -s <<'INSIDE' || failed=1
  ip link set lo up
  mount -t tmpfs tmpfs /run
  work=$(mktemp -d /tmp/sublet-bench-XXXXXX)
  export HOME=$work XDG_STATE_HOME=$work/state KUBECONFIG=$work/kubeconfig
  cd "$work"
  finish() { timeout 60 "$SUBLET_BIN" host down --force >/dev/null 2>&1; cd /; rm -rf "$work"; }
  trap finish EXIT
  now() { date +%s%N; }
  ms() { echo "$((($2 - $1) / 1000000)) ms"; }
  begin=$(now)
  "$SUBLET_BIN" host up >/dev/null 2>&1 || { echo "host up failed"; exit 1; }
  echo "host up: $(ms "$begin" "$(now)")"
  python3 "$here/create_phases.py" --count 4 --keep || exit 1
  for i in 0 1 2 3; do
    begin=$(now)
    "$SUBLET_BIN" delete "p$i" >/dev/null 2>&1 || exit 1
    echo "delete of an empty tenant, real container: $(ms "$begin" "$(now)")"
  done
INSIDE
else
  echo "create -> first kubectl success: skipped, containers need root"
fi
python3 "$here/tenants.py" "$@" || failed=1
exit $failed
