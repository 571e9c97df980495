#!/usr/bin/env bash
# The benchmark of the embedded host: pods created until all run, and deleted until all are gone, with
# the engine's own time for the same containers beside it; then what the host costs while pods idle.
#   e2e/bench/host.sh             100 pods, 50 idle ones for 60 s, on podman
#   e2e/bench/host.sh --quick     20 pods, 10 idle ones for 10 s: that it works
#   e2e/bench/host.sh --engine docker
# Needs root. SUBLET_RELEASE_BIN names the executable (default: build/release/cli/sublet), SUBLET_CLIENTS
# the folder with kubectl-1.36 (default .cache/clients). Everything runs beside an engine of its own in
# a network and mount namespace (e2e/host/private_engine.sh).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
engine=podman count=100 idle=50 seconds=60
while [ $# -gt 0 ]; do
  case $1 in
    --quick) count=20 idle=10 seconds=10 ;;
    --engine) engine=${2:?--engine needs podman or docker}; shift ;;
    --inside) shift; count=$1 idle=$2 seconds=$3; inside=1; shift 2 ;;
    -h|--help) sed -n '2,10p' "$0" | cut -c3-; exit 0 ;;
    *) echo "host.sh: unknown argument $1; see e2e/bench/host.sh --help" >&2; exit 2 ;;
  esac
  shift
done
export SUBLET_RELEASE_BIN=${SUBLET_RELEASE_BIN:-$root/build/release/cli/sublet}
export SUBLET_CLIENTS=${SUBLET_CLIENTS:-$root/.cache/clients}
bin=$SUBLET_RELEASE_BIN k=$SUBLET_CLIENTS/kubectl-1.36
for program in "$bin" "$k"; do
  [ -x "$program" ] || { echo "host.sh: $program is not there" >&2; exit 2; }
done
if [ -z "${inside:-}" ]; then
  work=$(mktemp -d /tmp/sublet-host-bench-XXXXXX)
  "$root/e2e/host/private_engine.sh" "$engine" "$work" "$0" --inside "$count" "$idle" "$seconds"
  status=$?
  rm -rf "$work"
  exit $status
fi

work=$(mktemp -d)
export HOME=$work XDG_STATE_HOME=$work/state KUBECONFIG=$work/kubeconfig
trap '"$bin" host down --force >/dev/null 2>&1; rm -rf "$work"' EXIT
image=sublet.test/busybox:1
now() { date +%s%N; }
row() { printf '%-58s %8s ms  %6s/s\n' "$1" $(($2 / 1000000)) "$(awk "BEGIN {printf \"%.1f\", $count * 1e9 / $2}")"; }
pods() {  # pods COUNT: their manifests
  local i
  for i in $(seq "$1"); do
    cat <<Y
---
apiVersion: v1
kind: Pod
metadata: {name: bench-$i, labels: {app: bench}}
spec:
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  containers: [{name: c, image: "$image", command: [sh, -c, "trap 'exit 0' TERM; while true; do sleep 1000 & wait; done"]}]
Y
  done
}
# seen WORD COMMAND...: runs the command and waits until a watch has shown each of $count pods with WORD. One
# watch for all: kubectl's own waiting asks for one object after the other, five a second, which for a
# hundred pods takes longer than they do.
seen() {
  local word=$1 watch until=$((SECONDS + 300))
  shift
  "$k" get pod -l app=bench --watch --output-watch-events --no-headers \
    -o custom-columns=TYPE:.type,NAME:.object.metadata.name,PHASE:.object.status.phase >"$work/watch" 2>/dev/null &
  watch=$!
  "$@" >/dev/null
  while [ "$(awk -v word="$word" '$1 == word || $3 == word {seen[$2]} END {print length(seen)}' "$work/watch")" -lt "$count" ]; do
    [ $SECONDS -lt $until ] || { kill $watch; echo "host.sh: not all $word" >&2; exit 1; }
    sleep 0.1
  done
  kill $watch
}
# The engine's own work for one such pod: a sandbox without a network and a member that shares it.
cat >"$work/engine" <<'S'
call() { curl -sS --fail-with-body -o /dev/null --unix-socket "$SUBLET_ENGINE_SOCKET" "$@"; }
json() { curl -sS -X POST --unix-socket "$SUBLET_ENGINE_SOCKET" -H 'Content-Type: application/json' -o /dev/null -d "$2" "http://d/v1.41/containers/create?name=$1"; }
case $1 in
  up)
    limits='"Ulimits":[{"Name":"nofile","Soft":1024,"Hard":1024},{"Name":"nproc","Soft":1024,"Hard":1024}]'
    json "p$2" "{\"Image\":\"sublet.test/busybox:1\",\"Cmd\":[\"sleep\",\"100000\"],\"HostConfig\":{\"NetworkMode\":\"none\",\"IpcMode\":\"shareable\",$limits}}"
    call -X POST "http://d/v1.41/containers/p$2/start"
    json "c$2" "{\"Image\":\"sublet.test/busybox:1\",\"Cmd\":[\"sleep\",\"100000\"],\"HostConfig\":{\"NetworkMode\":\"container:p$2\",\"IpcMode\":\"container:p$2\",$limits}}"
    call -X POST "http://d/v1.41/containers/c$2/start" ;;
  down)
    call -X DELETE "http://d/v1.41/containers/c$2?force=true&v=true"
    call -X DELETE "http://d/v1.41/containers/p$2?force=true&v=true" ;;
esac
S

"$root/e2e/host/load_busybox.sh" $image
echo "engine: $SUBLET_ENGINE_KIND, $count pods, $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
begin=$(now)
seq "$count" | xargs -P 4 -n 1 sh "$work/engine" up
row "the engine alone, sandbox and container, 4 at a time" $(($(now) - begin))
begin=$(now)
seq "$count" | xargs -P 4 -n 1 sh "$work/engine" down
row "the engine alone, removed" $(($(now) - begin))

"$bin" host up 2>/dev/null || { echo "host.sh: no host" >&2; exit 1; }
until $k get serviceaccount default >/dev/null 2>&1; do sleep 0.1; done
pods "$count" >"$work/pods.yaml"
begin=$(now)
seen Running "$k" create -f "$work/pods.yaml"
row "sublet, pods created -> all Running" $(($(now) - begin))
begin=$(now)
seen DELETED "$k" delete pod -l app=bench --wait=false
row "sublet, pods deleted -> all gone" $(($(now) - begin))

pods "$idle" | $k create -f - >/dev/null
$k wait --for=jsonpath='{.status.phase}'=Running pod -l app=bench --timeout=300s >/dev/null || exit 1
sleep 5
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }
"$bin" host status -o json >"$work/status"
for name in serve node engine; do
  pid=$(tr -d ' \n' <"$work/status" | sed -n "s/.*\"name\":\"$name\",\"pid\":\([0-9]*\).*/\1/p")
  # The engine's own work for them counts, too (private_engine.sh writes its pid there).
  [ $name != engine ] || pid=$(cat "$(dirname "$SUBLET_ENGINE_SOCKET")/engine.pid")
  eval "pid_$name=$pid before_$name=$(ticks "$pid")"
done
sleep "$seconds"
for name in serve node engine; do
  pid=pid_$name before=before_$name
  used=$(($(ticks "${!pid}") - ${!before}))
  printf '%-58s %8s %% of a core, %s KiB PSS\n' "idle with $idle pods: $name" \
    "$(awk "BEGIN {printf \"%.2f\", $used * 100 / $(getconf CLK_TCK) / $seconds}")" \
    "$(awk '/^Pss:/ {print $2}' "/proc/${!pid}/smaps_rollup")"
done
