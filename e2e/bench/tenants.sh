#!/usr/bin/env bash
# What tenants cost, with their aims beside: create -> first kubectl success on the embedded host (real
# containers, root), then e2e/bench/tenants.py on plain processes. SUBLET_BIN should be a release build.
#   e2e/bench/tenants.sh [arguments of tenants.py]
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${SUBLET_BIN:=$root/build/release/cli/sublet}" "${SUBLET_CLIENTS:=$root/.cache/clients}"
export SUBLET_BIN SUBLET_CLIENTS
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
  for i in 1 2 3 4; do
    begin=$(now)
    "$SUBLET_BIN" create "t$i" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    created=$(now)
    "$SUBLET_CLIENTS/kubectl-1.36" get namespace default >/dev/null || exit 1
    done_at=$(now)
    note="container start included"
    [ "$i" = 1 ] && note="the first: the image is made"
    echo "create -> first kubectl success: $(ms "$begin" "$done_at") (create $(ms "$begin" "$created"); $note)   aim < 1 s"
    [ -n "${SUBLET_VERBOSE:-}" ] && sed 's/^/    /' "$work/log"
    "$SUBLET_BIN" disconnect >/dev/null 2>&1
  done
  for i in 1 2 3 4; do
    begin=$(now)
    "$SUBLET_BIN" delete "t$i" >/dev/null 2>&1 || exit 1
    echo "delete of an empty tenant, real container: $(ms "$begin" "$(now)")"
  done
INSIDE
else
  echo "create -> first kubectl success: skipped, containers need root"
fi
python3 "$here/tenants.py" "$@" || failed=1
exit $failed
