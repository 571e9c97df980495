#!/usr/bin/env bash
# The scheduler through the API: `sublet serve` and simulated nodes, pods of one GPU for scheduler
# kai-scheduler; created -> bound -> Running as a client sees it. Then single pods on the idle cluster.
# Then the engine alone (`sublet scheduler bench`), every shape.
#   e2e/bench/scheduler.sh [--pods N] [--nodes N] [--rounds N] [--scheduler NAME] [--quick]
# SUBLET_BIN   a release build of sublet (default build/release/cli/sublet)
# SUBLET_LOAD  the client (default build/release/node/simulate/pods_load)
# Prints a line of JSON per round and one line per shape. Measured on an upstream Kubernetes 1.36 with
# KAI, limits lifted, on a machine of this kind: 104 s for 4,000 pods and 1.0-2.1 s for one.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=${SUBLET_BIN:-$root/build/release/cli/sublet}
load=${SUBLET_LOAD:-$root/build/release/node/simulate/pods_load}
rounds=3 pods=4000 nodes=500 scheduler=kai-scheduler
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=$2; shift ;;
    --pods) pods=$2; shift ;;
    --nodes) nodes=$2; shift ;;
    --scheduler) scheduler=$2; shift ;;
    --quick) rounds=1 pods=80 nodes=10 ;;
    *) sed -n '2,9p' "$0" | cut -c3-; exit 2 ;;
  esac
  shift
done
work=$(mktemp -d)
started=()
trap 'for pid in "${started[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT

"$bin" serve --data-dir "$work/data" --listen 127.0.0.1:0 --role host --write-kubeconfig "$work/kubeconfig" 2>"$work/serve.log" &
started=($!)
until [ -s "$work/kubeconfig" ]; do sleep 0.1; done
"$bin" node --simulate "$nodes" --gpus 8 --kubeconfig "$work/kubeconfig" --log-level warn 2>"$work/node.log" &
started=($! "${started[@]}")
sleep $((nodes / 50 + 2))  # nodes register; pods that come before would only wait
for round in $(seq "$rounds"); do
  echo "fill round $round: $("$load" "$work/kubeconfig" "$pods" 8 "$scheduler" 1)"
done
for round in $(seq $((rounds * 5))); do
  sleep 0.5
  echo "one pod, idle cluster, try $round: $("$load" "$work/kubeconfig" 1 1 "$scheduler" 1)"
done
[ "$pods" -lt 4000 ] && exit 0
echo "the engine alone:"
"$bin" scheduler bench --shape fill --nodes 500 --jobs 4000 --repeat 3
"$bin" scheduler bench --shape gang --nodes 500 --jobs 512 --repeat 3
"$bin" scheduler bench --shape reclaim-one --nodes 500 --jobs 4000 --repeat 3
"$bin" scheduler bench --shape unschedulable --nodes 500 --jobs 4000 --repeat 3
"$bin" scheduler bench --shape many-queues --nodes 500 --jobs 4000 --repeat 3
"$bin" scheduler bench --shape cycle --nodes 5000 --jobs 100000
