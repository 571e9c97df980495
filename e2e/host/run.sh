#!/usr/bin/env bash
# The embedded host with real containers: each part runs beside a container engine of its own inside a
# network and mount namespace (private_engine.sh). Podman gets the whole suite, Docker the node agent's
# part. Needs root, SUBLET_BIN and SUBLET_CLIENTS (tools/test.sh sets both); the programs of
# node/*_integration_test.cc are run when they are built beside SUBLET_BIN.
# Usage: run.sh [ENGINE...]   default: podman docker
# The closing line is "N passed, N failed, N skipped".
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${SUBLET_BIN:?path of the sublet executable}
build=$(cd "$(dirname "$bin")/.." && pwd)
passed=0 failed=0 skipped=0

# part NAME ENGINE COMMAND...: runs it beside a fresh engine and adds up its closing lines.
part() {
  local name=$1 engine=$2 work log p f
  shift 2
  work=$(mktemp -d /tmp/sublet-host-XXXXXX)
  log=$work.log
  "$here/private_engine.sh" "$engine" "$work" "$@" >"$log" 2>&1
  local rc=$?
  p=$(sed -nE 's/.*\[  PASSED  \] ([0-9]+) tests?.*/\1/p; s/^([0-9]+) passed, [0-9]+ failed.*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
  f=$(sed -nE 's/.*\[  FAILED  \] ([0-9]+) tests?, listed below.*/\1/p; s/^[0-9]+ passed, ([0-9]+) failed.*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
  [ $rc -eq 0 ] || [ "$f" -gt 0 ] || f=1
  passed=$((passed + p)) failed=$((failed + f))
  echo "$engine: $name: $p ok, $f not"
  if [ "$f" -gt 0 ]; then
    grep -v '^ok ' "$log" | tail -n 120
  fi
  rm -rf "$work" "$log"
}

if [ "$(id -u)" != 0 ]; then
  echo "the host's tests make network namespaces and run containers: they need root"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
for engine in "${@:-podman docker}"; do
  for one in $engine; do
    program=$one
    [ "$one" = docker ] && program=dockerd
    if ! PATH=$PATH:/usr/sbin command -v "$program" >/dev/null; then
      echo "$one: not installed"
      skipped=$((skipped + 1))
      continue
    fi
    for test in node_engine_it node_pod_it; do
      [ -x "$build/node/$test" ] && part "$test" "$one" "$build/node/$test" --gtest_brief=1
    done
    if [ "$one" = docker ]; then
      part "node agent" "$one" "$here/suite.sh" agent
    else
      part "embedded host" "$one" "$here/suite.sh" agent workloads lifecycle
    fi
  done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
