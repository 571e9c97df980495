#!/usr/bin/env bash
# A node with real containers: each run has a container engine of its own inside a network and mount
# namespace (private_engine.sh) and an API server. Needs root, SUBLET_BIN and SUBLET_CLIENTS
# (tools/test.sh sets both); the programs of node/*_integration_test.cc are run when they are built
# beside SUBLET_BIN.
#   run.sh                   podman: everything; docker: the node agent's part
#   SUBLET_FULL=1 run.sh     besides: the same tests with upstream's API server, where its programs are
#                            (SUBLET_UPSTREAM, or built by e2e/upstream) and etcd is installed
#   run.sh --engine podman|docker --server sublet|upstream --parts "agent containers"   one run
# The closing line is "N passed, N failed, N skipped".
set -uo pipefail
# shellcheck source=../parts.sh
. "$(dirname "$0")/../parts.sh"
build=$(cd "$(dirname "$SUBLET_BIN")/.." && pwd)
[ -d "$(dirname "$SUBLET_BIN")/node" ] && build=$(cd "$(dirname "$SUBLET_BIN")" && pwd)
passed=0 failed=0 skipped=0

# part NAME ENGINE COMMAND...: runs it beside a fresh engine and adds up its closing lines.
part() {
  local name=$1 engine=$2 work log p f begin
  shift 2
  work=$(mktemp -d /tmp/sublet-host-XXXXXX)
  log=$work.log
  begin=$(date +%s)
  "$here/private_engine.sh" "$engine" "$work" "$@" >"$log" 2>&1
  local rc=$?
  p=$(sed -nE 's/.*\[  PASSED  \] ([0-9]+) tests?.*/\1/p; s/^([0-9]+) passed, [0-9]+ failed.*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
  f=$(sed -nE 's/.*\[  FAILED  \] ([0-9]+) tests?, listed below.*/\1/p; s/^[0-9]+ passed, ([0-9]+) failed.*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
  [ $rc -eq 0 ] || [ "$f" -gt 0 ] || f=1
  passed=$((passed + p)) failed=$((failed + f))
  echo "$engine: $name: $p ok, $f not, $(($(date +%s) - begin)) s"
  if [ "$f" -gt 0 ]; then
    grep -v '^ok ' "$log" | tail -n 120 | sed -E 's/^[0-9]+ passed/  &/'  # counted above
  fi
  [ -n "${SUBLET_E2E_LOG:-}" ] && cat "$log" >>"$SUBLET_E2E_LOG"
  rm -rf "$work" "$log"
}
missing() {  # missing ENGINE: says so when it is not installed
  local program=$1
  [ "$1" = docker ] && program=dockerd
  PATH=$PATH:/usr/sbin command -v "$program" >/dev/null && return 1
  echo "$1: not installed"
  skipped=$((skipped + 1))
}
upstream() { upstream_here || { skipped=$((skipped + 1)); return 1; }; }
suite() {  # suite ENGINE SERVER PART...
  local engine=$1 server=$2
  shift 2
  SUBLET_SERVER=$server part "$server: $*" "$engine" "$here/suite.sh" "$@"
}

if [ "$(id -u)" != 0 ]; then
  echo "the host's tests make network namespaces and run containers: they need root"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
all="agent containers workloads"
if [ -n "$engine$server$parts" ]; then
  engine=${engine:-podman} server=${server:-sublet}
  # shellcheck disable=SC2086
  if ! missing "$engine" && { [ "$server" = sublet ] || upstream; }; then
    suite "$engine" "$server" ${parts:-$all}
  fi
else
  for engine in podman docker; do
    missing "$engine" && continue
    for test in node_engine_it node_pod_it; do
      [ -x "$build/node/$test" ] && part "$test" "$engine" "$build/node/$test" --gtest_brief=1
    done
    # shellcheck disable=SC2086
    if [ "$engine" = podman ] || [ -n "${SUBLET_FULL:-}" ]; then
      suite "$engine" sublet $all lifecycle
    else
      suite "$engine" sublet agent containers
    fi
    # shellcheck disable=SC2086
    [ -n "${SUBLET_FULL:-}" ] && upstream && suite "$engine" upstream $all
  done
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
