#!/usr/bin/env bash
# 2,000 pods on 500 simulated nodes: created -> all Running, and deleted -> all gone, on Sublet and on
# Kubernetes 1.36 in the same run, with the same nodes (`sublet node --simulate`) and the same client.
#   e2e/bench/simulated.sh [--rounds N] [--pods N] [--nodes N] [--only sublet|upstream]
# SUBLET_BIN       a release build of sublet (default build/release/cli/sublet)
# SUBLET_LOAD      the client (default build/release/node/simulate/pods_load)
# SUBLET_UPSTREAM  folder with kube-apiserver (e2e/upstream/build.sh; default build/upstream); etcd from PATH
# Prints a line of JSON per side and round, and the ratio of the best rounds last.
#   e2e/bench/simulated.sh --idle N   N simulated nodes with nothing to do, for three lease periods (75 s):
#                                     lease writes per node and 25 s, memory and processor time of both processes
# SUBLET_CLIENTS   folder with kubectl-1.36, for --idle (default .cache/clients)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=${SUBLET_BIN:-$root/build/release/cli/sublet}
load=${SUBLET_LOAD:-$root/build/release/node/simulate/pods_load}
upstream=${SUBLET_UPSTREAM:-$root/build/upstream}
rounds=3 pods=2000 nodes=500 only= idle=
k=${SUBLET_CLIENTS:-$root/.cache/clients}/kubectl-1.36
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=$2; shift ;;
    --pods) pods=$2; shift ;;
    --nodes) nodes=$2; shift ;;
    --only) only=$2; shift ;;
    --idle) idle=$2; shift ;;
    *) sed -n '2,12p' "$0" | cut -c3-; exit 2 ;;
  esac
  shift
done

work=$(mktemp -d)
started=()
stop() {
  for pid in $(printf '%s\n' "${started[@]}" | tac); do
    kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
  done
  started=()
}
trap 'stop; rm -rf "$work"' EXIT
run() { "$@" & started+=($!); }
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
until_ok() {  # COMMAND...: tried for two minutes
  for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
  echo "simulated.sh: never succeeded: $*" >&2
  return 1
}

start_sublet() {
  run "$bin" serve --data-dir "$work/sublet" --listen 127.0.0.1:0 --role host \
    --write-kubeconfig "$work/kubeconfig" >"$work/serve.log" 2>&1
  until_ok test -s "$work/kubeconfig"
}

start_upstream() {
  local client peer api
  client=$(port) peer=$(port) api=$(port)
  mkdir -p "$work/pki"
  openssl genrsa -out "$work/pki/sa.key" 2048 2>/dev/null
  openssl rsa -in "$work/pki/sa.key" -pubout -out "$work/pki/sa.pub" 2>/dev/null
  echo 'bench-token,admin,1,system:masters' >"$work/pki/tokens"
  run etcd --data-dir "$work/etcd" --listen-client-urls "http://127.0.0.1:$client" \
    --advertise-client-urls "http://127.0.0.1:$client" --listen-peer-urls "http://127.0.0.1:$peer" \
    --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "default=http://127.0.0.1:$peer" \
    >"$work/etcd.log" 2>&1
  run "$upstream/kube-apiserver" --etcd-servers "http://127.0.0.1:$client" --secure-port "$api" \
    --bind-address=127.0.0.1 --cert-dir "$work/pki" --service-account-key-file "$work/pki/sa.pub" \
    --service-account-signing-key-file "$work/pki/sa.key" --authorization-mode=RBAC \
    --service-account-issuer=https://kubernetes.default.svc --token-auth-file "$work/pki/tokens" \
    --service-cluster-ip-range=10.96.0.0/16 --allow-privileged >"$work/apiserver.log" 2>&1
  cat >"$work/kubeconfig" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: up, cluster: {server: "https://127.0.0.1:$api", insecure-skip-tls-verify: true}}]
users: [{name: up, user: {token: bench-token}}]
contexts: [{name: up, context: {cluster: up, user: up}}]
current-context: up
EOF
  until_ok curl -kfs "https://127.0.0.1:$api/readyz"
  run "$upstream/kube-controller-manager" --kubeconfig "$work/kubeconfig" --leader-elect=false \
    --service-account-private-key-file "$work/pki/sa.key" --use-service-account-credentials=false \
    --kube-api-qps 5000 --kube-api-burst 5000 >"$work/manager.log" 2>&1
  run "$upstream/kube-scheduler" --kubeconfig "$work/kubeconfig" --leader-elect=false \
    --kube-api-qps 5000 --kube-api-burst 5000 >"$work/scheduler.log" 2>&1
}

measure() {  # SIDE ROUND
  rm -rf "$work"/* && "start_$1"
  run "$bin" node --simulate "$nodes" --kubeconfig "$work/kubeconfig" 2>"$work/nodes.log"
  sleep "${SUBLET_SETTLE:-15}"  # nodes registered, caches warm, nothing left to do
  local out
  # A subshell of the pipe below has no trap: it stops what it started itself.
  out=$("$load" "$work/kubeconfig" "$pods" 16) || { stop; return 1; }
  stop
  echo "{\"side\":\"$1\",\"round\":$2,${out#\{}"
}

lease_writes() {  # so far, of the server
  "$k" --kubeconfig "$work/kubeconfig" get --raw /metrics |
    awk '/^apiserver_request_total/ && /resource="leases"/ && !/verb="(GET|LIST|WATCH)"/ {n += $NF} END {print n + 0}'
}
usage() { awk '{print $14 + $15}' "/proc/$1/stat"; }  # USER_HZ
if [ -n "$idle" ]; then
  start_sublet
  serve=${started[-1]}
  begin=$(date +%s%N)
  run "$bin" node --simulate "$idle" --kubeconfig "$work/kubeconfig" 2>"$work/nodes.log"
  simulator=${started[-1]}
  for _ in $(seq 600); do
    [ "$("$k" --kubeconfig "$work/kubeconfig" get leases -n kube-node-lease -o name 2>/dev/null | wc -l)" -ge "$idle" ] && break
    sleep 0.5
  done
  ready=$((($(date +%s%N) - begin) / 1000000))
  sleep "${SUBLET_SETTLE:-30}"  # the first leases were all written at the start
  leases=$(lease_writes) cpu_serve=$(usage "$serve") cpu_nodes=$(usage "$simulator")
  sleep 75
  writes=$(($(lease_writes) - leases))
  for process in serve simulator; do
    before=$cpu_serve && [ $process = simulator ] && before=$cpu_nodes
    printf '{"process":"%s","nodes":%d,"registered_ms":%d,"lease_writes_per_node_and_25_s":%s,"cpu_percent":%s,"pss_kib":%s}\n' \
      "$process" "$idle" "$ready" "$(awk "BEGIN {printf \"%.3f\", $writes / 3 / $idle}")" \
      "$(awk "BEGIN {printf \"%.2f\", ($(usage "${!process}") - $before) * 100 / $(getconf CLK_TCK) / 75}")" \
      "$(awk '/^Pss:/ {print $2}' "/proc/${!process}/smaps_rollup")"
  done
  exit 0
fi

results=$(mktemp)
sides="sublet upstream"
[ -z "$only" ] || sides=$only
for round in $(seq "$rounds"); do
  for side in $sides; do measure "$side" "$round" | tee -a "$results"; done
done
jq -rs 'group_by(.side) | map({key: .[0].side, value: (map(.running_s) | min)}) | from_entries
        | if .sublet and .upstream then "running: sublet \(.sublet) s, upstream \(.upstream) s, ratio \(.upstream / .sublet * 100 | round / 100)" else "running: \(tojson)" end' "$results"
rm -f "$results"
