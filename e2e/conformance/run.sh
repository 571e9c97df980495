#!/usr/bin/env bash
# Kubernetes' own conformance specs against `sublet serve --role=host` with simulated nodes.
#   e2e/conformance/run.sh [LIST...]     lists of ../shared/cases/conformance: simulated, api, cel
#                                        (default: simulated api; a path to a file of names works too)
# SUBLET_BIN      the sublet executable               SUBLET_CLIENTS  folder with kubectl-1.36
# SUBLET_UPSTREAM folder with e2e.test and ginkgo     (e2e/upstream/build.sh makes them; default build/upstream)
# SUBLET_PROCS    specs at once (default 8)           SUBLET_FOCUS    only the names that contain this
# Names in known.txt may fail (docs/CONFORMANCE.md says why); any other failure fails the suite.
# Building the suite takes minutes, so without SUBLET_FULL and without the programs all is skipped.
# Each spec is one line; what it said is in build/test-logs/conformance-LIST/. Last line: N passed, N failed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${SUBLET_BIN:?path of the sublet executable}
clients=${SUBLET_CLIENTS:?folder with kubectl-1.36}
upstream=${SUBLET_UPSTREAM:-$root/build/upstream}
shared=${SUBLET_SHARED:-$root/../shared}
passed=0 failed=0 skipped=0

finish() {
  echo "$passed passed, $failed failed, $skipped skipped"
  exit $((failed > 0))
}
if [ ! -x "$upstream/e2e.test" ] || [ ! -x "$upstream/ginkgo" ]; then
  if [ -z "${SUBLET_FULL:-}" ]; then
    echo "skip  conformance: $upstream has no e2e.test (SUBLET_FULL=1 builds it)"
    skipped=1
    finish
  fi
  "$root/e2e/upstream/build.sh" "$upstream" suite || { failed=1; finish; }
fi

work=$(mktemp -d)
server= nodes=
stop() {
  for pid in $nodes $server; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
  rm -rf "$work"
}
trap stop EXIT
export KUBECONFIG=$work/kubeconfig

start() {  # a fresh cluster of five nodes
  "$bin" serve --data-dir "$work/data" --listen 127.0.0.1:0 --role host \
    --write-kubeconfig "$KUBECONFIG" >"$1/serve.log" 2>&1 &
  server=$!
  for _ in $(seq 300); do
    "$clients/kubectl-1.36" get --raw /readyz >/dev/null 2>&1 && break
    sleep 0.1
  done
  "$bin" node --simulate 5 --stop-ms 1500 --kubeconfig "$KUBECONFIG" >"$1/nodes.log" 2>&1 &
  nodes=$!
  "$clients/kubectl-1.36" wait --for=condition=Ready node --all --timeout=60s >/dev/null 2>&1
  for _ in $(seq 100); do
    [ "$("$clients/kubectl-1.36" get nodes -o name 2>/dev/null | wc -l)" = 5 ] && return
    sleep 0.1
  done
}

run_list() {
  local list=$1 file=$shared/cases/conformance/$1.txt log focus
  [ -f "$list" ] && file=$list
  if [ ! -f "$file" ]; then
    echo "skip  $list: no $file"
    skipped=$((skipped + 1))
    return
  fi
  log=$root/build/test-logs/conformance-$(basename "$list" .txt)
  rm -rf "$log" && mkdir -p "$log"
  grep -F -- "${SUBLET_FOCUS:-}" "$file" >"$work/names"
  focus=$(sed -e 's/[][().*+?^$|{}\\]/\\&/g' "$work/names" | paste -sd'|')
  start "$log"
  "$upstream/ginkgo" -p --procs="${SUBLET_PROCS:-8}" --keep-going --no-color --timeout=45m \
    --focus="$focus" --json-report=report.json --output-dir="$log" "$upstream/e2e.test" -- \
    --provider=skeleton --kubeconfig="$KUBECONFIG" --kubectl-path="$clients/kubectl-1.36" \
    --allowed-not-ready-nodes=-1 --dump-logs-on-failure=false --node-schedulable-timeout=1m \
    --system-pods-startup-timeout=1m >"$log/ginkgo.log" 2>&1
  # One line per spec that ran: state, seconds, name; a failed one with the first line of why.
  jq -r '.[].SpecReports[]? | select(.LeafNodeType == "It" and .State != "skipped" and .State != "pending")
         | [.State, (.RunTime / 1e9 | floor | tostring) + "s",
            ((.ContainerHierarchyTexts + [.LeafNodeText]) | join(" ")),
            ((.Failure.Message // "") | split("\n")[0])] | @tsv' "$log/report.json" >"$log/specs.tsv"
  local state time name why
  while IFS=$'\t' read -r state time name why; do
    if [ "$state" = passed ]; then
      passed=$((passed + 1)); echo "ok    $name ($time)"
    elif grep -qxF -- "$name" <(sed 's/^#.*//' "$here/known.txt"); then
      skipped=$((skipped + 1)); echo "known $name ($time): $why"
    else
      failed=$((failed + 1)); echo "FAIL  $name ($time): $why"
    fi
  done <"$log/specs.tsv"
  # Names that the program does not have were not built; any other that did not run failed.
  jq -r '.[].SpecReports[]? | select(.LeafNodeType == "It")
         | (.ContainerHierarchyTexts + [.LeafNodeText]) | join(" ")' "$log/report.json" | sort >"$work/built"
  local wanted ran absent
  absent=$(sort "$work/names" | comm -23 - "$work/built" | wc -l)
  if [ "$absent" -gt 0 ]; then
    skipped=$((skipped + absent)); echo "skip  $list: $absent specs are not built (e2e/upstream/suite)"
  fi
  wanted=$(($(wc -l <"$work/names") - absent)) ran=$(wc -l <"$log/specs.tsv")
  if [ "$ran" -lt "$wanted" ]; then
    failed=$((failed + wanted - ran)); echo "FAIL  $list: $ran of $wanted specs ran, see $log/ginkgo.log"
  fi
  kill "$nodes" "$server" 2>/dev/null; wait "$nodes" "$server" 2>/dev/null
  rm -rf "$work/data"
}

[ $# -gt 0 ] || set -- simulated api
for list; do run_list "$list"; done
finish
