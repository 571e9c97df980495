#!/usr/bin/env bash
# Tenants, end to end, in three parts: rows (rows.py: the syncer's acceptance rows on plain processes and
# simulated nodes, no root), containers (containers.sh: the main job on real containers) and seeds
# (seeds.sh: the articles' command lines). Containers run in network and mount namespaces of their own, so
# that nothing of the machine is touched. Needs SUBLET_BIN and SUBLET_CLIENTS (tools/test.sh sets both).
#   run.sh                   all parts on sublet's own host
#   SUBLET_FULL=1 run.sh     besides: the same parts on upstream's etcd, kube-apiserver and controllers with
#                            `sublet node` as the node, where they are (SUBLET_UPSTREAM, or built by
#                            e2e/upstream) and etcd is installed
#   run.sh --server sublet|upstream --parts "rows containers seeds"    some of it
# Each step is one line and counts as one test; each part closes with "N passed, N failed, N skipped".
set -uo pipefail
# shellcheck source=../parts.sh
. "$(dirname "$0")/../parts.sh"
upstream() { upstream_here || { echo "0 passed, 0 failed, 1 skipped"; return 1; }; }
part() {  # part SERVER NAME: one part of the suite against one host
  echo "---- $2, host: $1"
  export SUBLET_SERVER=$1
  if [ "$2" = rows ]; then
    python3 "$here/rows.py"
    return
  fi
  local script=$here/$2.sh work status
  if [ "$(id -u)" -ne 0 ]; then
    echo "0 passed, 0 failed, 1 skipped"  # containers need root
  elif [ "$1" = sublet ]; then
    unshare -n -m --propagation private bash "$script"
  else
    work=$(mktemp -d /tmp/sublet-engine-XXXXXX)
    "$here/../host/private_engine.sh" podman "$work" bash "$script"
    status=$?
    rm -rf "$work"
    return $status
  fi
}
failed=0
for one in ${server:-sublet ${SUBLET_FULL:+upstream}}; do
  [ "$one" = sublet ] || upstream || continue
  for name in ${parts:-rows containers seeds}; do
    part "$one" "$name" || failed=1
  done
done
[ "$failed" -eq 0 ]
