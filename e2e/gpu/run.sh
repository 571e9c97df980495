#!/usr/bin/env bash
# GPU slices through the whole system on real containers: one simulated GPU of the embedded host, two
# tenants with a fraction of it each, shares, refusals, a race for the last slice, a process past the
# interceptor, gpud killed, tenants deleted. Needs SUBLET_BIN and SUBLET_CLIENTS (tools/test.sh sets
# both) and root. Runs in network and mount namespaces of its own.
# Each step is one line and counts as one test; the closing line is "N passed, N failed, N skipped".
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${SUBLET_BIN:?path of the sublet executable}" "${SUBLET_CLIENTS:?folder with kubectl-1.36}"
if [ "$(id -u)" -ne 0 ]; then
  echo "0 passed, 0 failed, 1 skipped"  # containers need root
  exit 0
fi
if [ -z "${SUBLET_E2E_INSIDE:-}" ]; then
  SUBLET_E2E_INSIDE=1 exec unshare -n -m --propagation private bash "$0" "$@"
fi
ip link set lo up
mount -t tmpfs tmpfs /run
work=$(mktemp -d /tmp/sublet-e2e-XXXXXX)
mkdir -p "$work/bin"
ln -s "$SUBLET_BIN" "$work/bin/sublet"
ln -s "$SUBLET_CLIENTS/kubectl-1.36" "$work/bin/kubectl"
export PATH=$work/bin:$PATH HOME=$work XDG_STATE_HOME=$work/state KUBECONFIG=$work/kubeconfig
cd "$work"
state=$XDG_STATE_HOME/sublet/host
finish() {
  timeout 60 sublet host down --force >/dev/null 2>&1
  cd /
  rm -rf "$work"
}
trap finish EXIT

# shellcheck source=../lib.sh
. "$here/../lib.sh"
# Programs of the steps below: kubectl at each tenant and at the host, and
#   soon COMMAND          repeats it until it succeeds, at most 40 s; prints what it said last
#   ready CONTEXT POD     waits until the pod is Ready
#   granted | unlent      names of slices that hold the device; its free bytes
program() { printf '#!/bin/bash\n%s\n' "$2" > "$work/bin/$1"; chmod +x "$work/bin/$1"; }
for team in a b c; do
  program $team "exec kubectl --context sublet_team-${team}_sublet-team-${team}_sublet-host \"\$@\""
done
program host 'exec kubectl --context sublet-host "$@"'
program soon 'for _ in $(seq 80); do out=$(bash -c "$1" 2>&1) && break; sleep 0.5; done; printf "%s\n" "$out"'
program ready 'exec "$1" wait --for=condition=Ready "pod/$2" --timeout=60s'
program granted "sublet gpu list -o json | jq -r '.items[0].slices[] | select(.phase == \"Granted\") | .tenant + \" \" + .pod'"
program unlent 'sublet gpu list -o json | jq .items[0].freeMemoryBytes'
program running 'for t in a b; do "$t" get pods --no-headers 2>/dev/null | awk -v t="$t" "/^r[123] .*Running/ {print t, \$1}"; done'
# pod NAME [ANNOTATIONS] [CONTAINER FIELDS] [SPEC FIELDS]: a manifest; fields in YAML's flow form.
pod() {
  cat <<Y
apiVersion: v1
kind: Pod
metadata: {name: $1, annotations: {${2:-}}}
spec:
  terminationGracePeriodSeconds: 0
  ${4:-}
  containers:
  - name: main
    image: localhost/gpu-test:1
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "${POD_COMMAND:-sleep 1000}"]
    ${3:-}
Y
}
# refused FIELD ANNOTATIONS CONTAINER SPEC: team-a's API says no and names the field; without it, yes.
refused() {
  check "refused: ${5:-$1}" "$1" bash -c "! a create --dry-run=server -f - <<'Y' 2>&1
$(pod x "$2" "$3" "$4")
Y"
}

check "host up with one simulated H200 of 8 GiB" "The host is up" \
  sublet host up --gpus 1 --gpu-model "NVIDIA H200" --gpu-memory 8Gi
burner=$(ls "$state"/gpu/*/gpu-burner 2>/dev/null | head -1)
check "example image made locally" "" \
  sh "$here/../tenants/demo_image.sh" "$state/engine/podman.sock" "$burner" localhost/gpu-test:1
check "gpu list shows the device" "NVIDIA H200   8064Mi" soon "sublet gpu list | grep H200"
check "the node carries nvidia.com/gpu" "1" \
  soon "host get node sublet-host -o jsonpath='{.status.allocatable.nvidia\.com/gpu}' | grep 1"
check "and feature discovery's labels" "NVIDIA-H200" \
  host get node sublet-host -o "jsonpath={.metadata.labels.nvidia\.com/gpu\.product}"

# The host's own pods get slices without a tenant.
pod own '"gpu-fraction": "0.5"' > own.yaml
cat >> own.yaml <<'Y'
  - {name: side, image: "localhost/gpu-test:1", imagePullPolicy: IfNotPresent, command: [sleep, "1000"]}
Y
check "a pod of the host's own" "condition met" bash -c "host apply -f own.yaml >/dev/null && ready host own"
check "sees its half" "4032MiB" host exec own -c main -- nvidia-smi
check "its sidecar sees no device" "void none" \
  host exec own -c side -- sh -c 'ls /run/sublet >/dev/null 2>&1 && echo some || echo "$NVIDIA_VISIBLE_DEVICES" none'
host delete pod own --wait=false >/dev/null

check "create team-a (privileged pods allowed)" "is yours" \
  sublet create team-a --set policies.podSecurityStandard=privileged
check "create team-b" "is yours" sublet create team-b
check "the host's own slice is given back" "none" soon 'test -z "$(granted)" && echo none'

pod whole "" 'resources: {limits: {"nvidia.com/gpu": 1}}' > whole.yaml
check "a whole GPU" "condition met" bash -c "a apply -f whole.yaml >/dev/null && ready a whole"
check "sees all of it" "8064MiB" a exec whole -- nvidia-smi
a delete pod whole --wait=false >/dev/null

# One quarter and three quarters, both busy.
POD_COMMAND="exec gpu-burner burn 536870912 2000000" pod quarter '"gpu-fraction": "0.25"' > quarter.yaml
POD_COMMAND="exec gpu-burner burn 536870912 2000000" pod rest '"gpu-fraction": "0.75"' > rest.yaml
begun=$(date +%s)
check "a quarter in team-a" "condition met" \
  bash -c "a apply -f quarter.yaml >/dev/null && ready a quarter"
check "three quarters in team-b" "condition met" \
  bash -c "b apply -f rest.yaml >/dev/null && ready b rest"
check "nvidia-smi shows the quarter" "2016MiB" a exec quarter -- nvidia-smi
check "nvidia-smi shows the three quarters" "6048MiB" b exec rest -- nvidia-smi
check "no other device is seen" "1" bash -c "a exec quarter -- nvidia-smi -L | wc -l"
check "beyond the quarter: out of memory" "refused" \
  a exec quarter -- sh -c 'gpu-burner hold 2000000000 </dev/null >/dev/null 2>&1 && echo given || echo refused'
check "within the quarter: given" "ready" a exec quarter -- sh -c 'gpu-burner hold 209715200 </dev/null'
# The simulated device lives on timers of milliseconds: where a virtual machine wakes late, seconds go
# by in which neither process is there for its turn. One second in order is what counts.
check "both get their share of the time" "in order" bash -c '
  got() { jq "[.gpus[0].slices[] | select(.tenant == \"$1\") | .shareGotMilli] | first" top.json; }
  for _ in $(seq 40); do
    sublet gpu top -o json > top.json || exit 1
    small=$(got team-a) large=$(got team-b)
    echo "team-a got $small of 250, team-b $large of 750 thousandths"
    [ "$large" -gt $((small * 3 / 2)) ] && [ $((small + large)) -gt 500 ] && echo "in order" && exit 0
  done'
check "gpu top, for people" "team-b" sublet gpu top

# Rows 33, 34 and 36 of what a hostile tenant tries: the field is named, and the plain pod passes.
half='"gpu-fraction": "0.5"'
check "a plain sharing pod passes" "created" bash -c "a create --dry-run=server -f - <<'Y'
$(pod x "$half")
Y"
refused "spec.containers[0].env[0].name" "$half" 'env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]' ""
refused "spec.containers[0].env[0].name" "" 'env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]' ""
refused "spec.containers[0].env[0].name" "$half" 'env: [{name: LD_PRELOAD, value: /x.so}]' ""
refused "spec.containers[0].volumeMounts[0].mountPath" "$half" \
  'volumeMounts: [{name: v, mountPath: /usr/lib/x86_64-linux-gnu/libcuda.so.1}]' 'volumes: [{name: v, emptyDir: {}}]'
refused "spec.volumes[0].hostPath.path" "$half" "" 'volumes: [{name: v, hostPath: {path: /dev/nvidia0}}]'
refused "spec.containers[0].securityContext.privileged" "$half" 'securityContext: {privileged: true}' ""
refused "metadata.annotations[cdi.k8s.io/x]" "$half, \"cdi.k8s.io/x\": \"sublet.dev/gpu=y\"" "" ""
refused "metadata.annotations[gpu-fraction]" '"gpu-fraction": "NaN"' "" ""
refused "metadata.annotations[gpu-fraction]" '"gpu-fraction": "0.5 "' "" ""
refused "metadata.annotations[gpu-memory]" '"gpu-fraction": "0.1", "gpu-memory": "8000"' "" ""
cat > sly.yaml <<'Y'
apiVersion: apps/v1
kind: Deployment
metadata: {name: sly}
spec:
  selector: {matchLabels: {app: sly}}
  template:
    metadata: {labels: {app: sly}, annotations: {gpu-fraction: "0.1"}}
    spec:
      containers: [{name: c, image: "localhost/gpu-test:1", env: [{name: LD_AUDIT, value: /x.so}]}]
Y
check "a Deployment learns it by an Event" "spec.containers[0].env[0].name" \
  bash -c "a apply -f sly.yaml >/dev/null; soon 'a get events | grep FailedCreate | grep env'"
a delete deployment sly >/dev/null
pod pushed '"gpu-fraction": "0.1"' "" "nodeName: sublet-host" > pushed.yaml
check "a pod that names its node itself has no slice and is told" "GpuSliceMissing" \
  bash -c "a apply -f pushed.yaml >/dev/null; soon 'a get events | grep GpuSliceMissing'"
check "nothing of it is on the host" "0" bash -c "host get pods -A | grep -c pushed; true"
a delete pod pushed --wait=false >/dev/null

# Row 35: slices are the host's; what a tenant makes in its own cluster grants nothing.
account=$(host get rolebindings -n sublet-team-a -o json | jq -r '[.items[].subjects[]? | select(.kind == "ServiceAccount") | .name] | first')
for what in "update gpuslices/status" "create gpunodes" "update gpunodes/status" "create nodeusages"; do
  check "the tenant's credential may not $what" "no" bash -c "host auth can-i ${what% *} \
    ${what#* }.gpu.sublet.dev -n sublet-team-a --as=system:serviceaccount:sublet-team-a:$account; true"
done

# Rows 37 and 38.
check "a process past the interceptor gets memory, and is ended" "ready ended" a exec quarter -- sh -c \
  'sleep 20 | LD_LIBRARY_PATH=/run/sublet/real gpu-burner hold 1500000000 > /tmp/said 2>&1 & p=$!; sleep 5; kill -0 $p 2>/dev/null && echo lives || echo $(cat /tmp/said) ended'
check "and the tenant is told" "UnmanagedGpuProcess" soon "a get events | grep UnmanagedGpuProcess"
check "the control page and the driver are read-only" "refused" \
  a exec quarter -- sh -c 'echo x > /run/sublet/real/libcuda.so.1 2>/dev/null || rm /run/sublet/gpu/gpud.sock 2>/dev/null || umount /run/sublet/gpu 2>/dev/null || echo refused'
check "the neighbour never noticed" "Running" b get pod rest

# gpud dies and comes back: nobody loses what is granted.
pid=$(pgrep -f "sublet gpud .*--node-name=sublet-host .*$state" | head -1)
kill -9 "$pid"
check "gpud killed: launches go on" "of the device" bash -c "sleep 3; a logs quarter --tail=1"
check "host up starts it again" "" sublet host up --gpus 1 --gpu-model "NVIDIA H200" --gpu-memory 8Gi
check "it finds both slices and their processes" "1 1" \
  soon "sublet gpu top -o json | jq -r '[.gpus[0].slices[].processes] | join(\" \")' | grep -x '1 1'"
check "no byte was lent twice" "0" unlent

# Two tenants race for the device: never both. What is denied is tried again and comes when there is room.
a delete pod quarter --wait=false >/dev/null
b delete pod rest --wait=false >/dev/null
check "both slices are given back" "8455716864" soon "unlent | grep -x 8455716864"
for i in 1 2 3; do
  pod "r$i" '"gpu-fraction": "0.7"' > "r$i.yaml"
  a apply -f "r$i.yaml" >/dev/null &
  b apply -f "r$i.yaml" >/dev/null &
done
wait
for round in 1 2 3 4 5 6; do
  check "race, round $round: one of them runs" "one" soon '[ $(running | wc -l) -eq 1 ] && echo one'
  check "and no other has a slice" "1" bash -c "granted | wc -l; granted"
  winner=$(running)
  ${winner% *} delete pod "${winner#* }" --wait=false >/dev/null
done
check "the last one gone, nothing is held" "none" soon 'test -z "$(granted)" && echo none'

# enforce: off is KAI's behaviour: the fraction is counted, and the pod sees the whole device.
check "create team-c without enforcement" "is yours" sublet create team-c --set controlPlane.gpu.enforce=off
pod loose '"gpu-fraction": "0.25"' 'env: [{name: LD_LIBRARY_PATH, value: /tmp}]' > loose.yaml
check "its pod runs with what would be refused elsewhere" "condition met" \
  bash -c "c apply -f loose.yaml >/dev/null && ready c loose"
check "and nothing holds it" "ready" c exec loose -- sh -c 'gpu-burner hold 5000000000 </dev/null'
check "the ledger counts a quarter" "6341787648" \
  soon "unlent | grep -x 6341787648"

# A slice outlives the minute after which one without a pod is freed; a deleted tenant leaves nothing.
POD_COMMAND="exec gpu-burner burn 268435456 2000000" pod stays '"gpu-memory": "1000"' > stays.yaml
check "an exact gpu-memory pod" "condition met" \
  bash -c "b apply -f stays.yaml >/dev/null && ready b stays"
check "delete team-c" "is gone" sublet delete team-c
check "its quarter is back" "7407140864" soon "unlent | grep -x 7407140864"
left=$((65 - ($(date +%s) - begun)))
sleep "$((left > 0 ? left : 0))"
sleep "${SUBLET_FULL:+65}" 2>/dev/null
check "the running pod still holds its slice" "1048576000" \
  bash -c "sublet gpu list -o json | jq '.items[0].slices[0].memoryBytes'"
check "delete team-b with its pod busy" "is gone" sublet delete team-b
check "delete team-a" "is gone" sublet delete team-a
check "the whole device is free" "8455716864" soon "unlent | grep -x 8455716864"
check "no CDI spec is left" "0" bash -c "ls $state/cdi | grep -c sublet-; true"
check "host down" "The host is gone" sublet host down
# The experiments for a real GPU (device.sh) at least run.
build=$(cd "$(dirname "$SUBLET_BIN")" && pwd)
if [ -x "$build/gpu/gpu_lab" ]; then
  check "the device experiments on the simulator" "5 passed, 0 failed" \
    "$here/device.sh" "$build" --simulated --quick --only E0,E2,E3,E6,E9
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
