#!/usr/bin/env bash
# The scheduler as its users see it: kubectl against `sublet serve` with simulated nodes. Queues, gangs,
# fractions, refusals, preemption and reclaim, explain, what-if, and a control plane that is killed in the
# middle. Needs SUBLET_BIN and SUBLET_CLIENTS (tools/test.sh sets both). Each step is one line of output
# and counts as one test; the closing line is "N passed, N failed, N skipped".
set -uo pipefail
bin=${SUBLET_BIN:?path of the sublet executable}
clients=${SUBLET_CLIENTS:?folder with kubectl-1.36}
work=$(mktemp -d)
export KUBECONFIG=$work/kubeconfig HOME=$work/home
mkdir -p "$HOME"
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"
server="" nodes=""
k() { "$clients/kubectl-1.36" "$@"; }

serve() {
  "$bin" serve --data-dir "$work/data" --listen "127.0.0.1:${port:-0}" --role host \
    --config "$work/config.yaml" --write-kubeconfig "$KUBECONFIG" >>"$work/serve.log" 2>&1 &
  server=$!
  for _ in $(seq 200); do
    k get --raw /readyz >/dev/null 2>&1 && return 0
    sleep 0.05
  done
  tail -n 20 "$work/serve.log"
  return 1
}
stop() {
  for process in $nodes $server; do
    kill "$process" 2>/dev/null && wait "$process" 2>/dev/null
  done
}
trap 'stop; rm -rf "$work"' EXIT

apply() { printf '%s\n' "$1" | k apply -f - ; }

# queue NAME PARENT QUOTA [LIMIT]
queue() {
  apply "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: $1}, spec: {parentQueue: '$2', resources: {
    gpu: {quota: $3, limit: ${4:--1}, overQuotaWeight: 1}, cpu: {quota: -1, limit: -1, overQuotaWeight: 1},
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}}}}"
}
# pod NAME QUEUE GPUS [ANNOTATION: VALUE] [PRIORITY CLASS] [more metadata]
pod() {
  local limits='' priority=''
  [ "$3" != 0 ] && limits="limits: {nvidia.com/gpu: $3},"
  [ -n "${5:-}" ] && priority="priorityClassName: $5,"
  apply "{apiVersion: v1, kind: Pod, metadata: {name: $1, labels: {kai.scheduler/queue: $2}, annotations: {${4:-}}}, spec: {
    schedulerName: kai-scheduler, $priority containers: [{name: main, image: x, resources: {$limits requests: {cpu: 100m}}}]}}"
}
phase() { k get pod "$1" -o 'jsonpath={.status.phase} {.spec.nodeName}'; }
reason() { k get pod "$1" -o 'jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}'; }

# Two profiles side by side, chosen by scheduler name.
cat >"$work/config.yaml" <<'CONFIG'
controlPlane:
  scheduler:
    profiles:
    - {schedulerName: kai-scheduler, profile: kai-0.13}
    - {schedulerName: kai-new, profile: kai-0.17, arguments: {placementStrategy.gpu: spread, kValue: 0.5, usageHalfLifePeriod: 1h}}
CONFIG
serve || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
port=$(k config view -o 'jsonpath={.clusters[0].cluster.server}' | sed 's/.*://')
"$bin" node --simulate 2 --gpus 4 --kubeconfig "$KUBECONFIG" --log-level warn >"$work/node.log" 2>&1 &
nodes=$!
within "two simulated nodes" "nvidia.com/gpu" k get nodes -o 'jsonpath={.items[*].status.allocatable}'
within "KAI's default queues stand" default-queue k get queues.scheduling.run.ai -o name
within "the default namespace has its account" default k get serviceaccount -o name

check "a parent queue" created queue org "" 8
check "queue a, quota 4" created queue a org 4
check "queue b, quota 4" created queue b org 4
check "queue small, limit 1" created queue small org 1 1
refuse "a queue with children stays" "child queues: a" k delete queue.scheduling.run.ai org
refuse "a queue without resources" "spec.resources: Required" \
  apply '{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: bad}, spec: {parentQueue: org}}'

for value in -0.5 NaN 1e308 '"0.5 "' 1.5 '""'; do
  refuse "gpu-fraction $value is refused by field" "metadata.annotations[gpu-fraction]" pod bad a 0 "gpu-fraction: $([[ $value == \"* ]] && echo "$value" || echo "\"$value\"")"
done
refuse "gpu-memory -1 is refused by field" "metadata.annotations[gpu-memory]" pod bad a 0 'gpu-memory: "-1"'
refuse "a fraction and a whole GPU" "cannot have both" pod bad a 1 'gpu-fraction: "0.5"'
refuse "MPS without a fraction" "MPS" pod bad a 0 'mps: "true"'

check "a pod with one GPU" created pod one a 1
within "it runs" "Running sim-" phase one
check "it has KAI's pod group" pg-one- k get pod one -o 'jsonpath={.metadata.annotations.pod-group-name}'
within "its Scheduled event" "Successfully assigned" k get events --field-selector involvedObject.name=one,reason=Scheduled -o 'jsonpath={.items[*].message}'
check "two halves" created pod half1 a 0 'gpu-fraction: "0.5"'
check "of one device" created pod half2 a 0 'gpu-fraction: "0.5"'
within "the first half runs" Running phase half1
within "the second half runs" Running phase half2
if [ "$(k get pod half1 -o 'jsonpath={.metadata.labels.runai-gpu-group} {.spec.nodeName}')" = "$(k get pod half2 -o 'jsonpath={.metadata.labels.runai-gpu-group} {.spec.nodeName}')" ]; then
  pass "both on one device"; else fail "both on one device" "$(k get pods -o yaml)"; fi
refuse "the fraction of a placed pod stays" "cannot be changed" k annotate --overwrite pod half1 gpu-fraction=0.1

check "a pod for another profile" created apply '{apiVersion: v1, kind: Pod, metadata: {name: other, labels: {kai.scheduler/queue: a}}, spec: {schedulerName: kai-new, containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}}'
within "runs under its own scheduler name" Running phase other
k delete pod other --now >/dev/null 2>&1
within "what queues used is remembered" '"queues":{' k get configmap -n kube-system sublet-queue-usage -o 'jsonpath={.data.usage\.json}'
within "KAI's metrics are served" kai_queue_allocated_gpus k get --raw /metrics

# KAI's scheduler leaves a BindRequest for its binder; here nobody would read one.
check "no BindRequest is written for a bind" "No resources found" sh -c "'$clients/kubectl-1.36' get bindrequests.scheduling.run.ai -A 2>&1"
within "and the metrics of its actions" 'kai_podgroups_scheduled_by_action{action="allocate"}' k get --raw /metrics

# What a pod mounts must exist first.
apply '{apiVersion: v1, kind: Pod, metadata: {name: needs, labels: {kai.scheduler/queue: a}}, spec: {schedulerName: kai-scheduler,
  volumes: [{name: data, persistentVolumeClaim: {claimName: disk}}, {name: map, configMap: {name: settings}}],
  containers: [{name: main, image: x, volumeMounts: [{name: data, mountPath: /d}, {name: map, mountPath: /m}]}]}}' >/dev/null
within "a missing claim keeps a pod waiting, and its condition says so" 'persistentvolumeclaim "disk" not found' reason needs
check "a class that binds with the first pod" created apply '{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: later}, provisioner: example.com/none, volumeBindingMode: WaitForFirstConsumer}'
apply '{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: disk}, spec: {accessModes: [ReadWriteOnce], storageClassName: later, resources: {requests: {storage: 1Gi}}}}' >/dev/null
within "then a missing ConfigMap does" "Missing required configmaps: [settings]" reason needs
check "the ConfigMap comes" created k create configmap settings --from-literal=a=b
within "and the pod runs" Running phase needs
check "a claim of a class that binds at once" created apply '{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: at-once}, provisioner: example.com/none}'
apply '{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: unbound}, spec: {accessModes: [ReadWriteOnce], storageClassName: at-once, resources: {requests: {storage: 1Gi}}}}' >/dev/null
apply '{apiVersion: v1, kind: Pod, metadata: {name: waits}, spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: unbound}}], containers: [{name: main, image: x}]}}' >/dev/null
within "is waited for, under the default profile too" "pod has unbound immediate PersistentVolumeClaims" reason waits
apply '{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: classless}, spec: {accessModes: [ReadWriteOnce], storageClassName: nowhere, resources: {requests: {storage: 1Gi}}}}' >/dev/null
apply '{apiVersion: v1, kind: Pod, metadata: {name: stays}, spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: classless}}], containers: [{name: main, image: x}]}}' >/dev/null
within "so is one of a class that does not exist" "pod has unbound immediate PersistentVolumeClaims" reason stays
k delete pod needs waits stays --now >/dev/null 2>&1

# Affinity across namespaces that are chosen by label.
k create namespace red >/dev/null && k label namespace red team=red >/dev/null
apply '{apiVersion: v1, kind: Pod, metadata: {name: anchor, namespace: red, labels: {app: anchor}}, spec: {nodeSelector: {kubernetes.io/hostname: sim-1}, containers: [{name: main, image: x}]}}' >/dev/null
apply '{apiVersion: v1, kind: Pod, metadata: {name: near}, spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname,
  labelSelector: {matchLabels: {app: anchor}}, namespaceSelector: {matchLabels: {team: red}}}]}}, containers: [{name: main, image: x}]}}' >/dev/null
within "a namespaceSelector finds the pod of another namespace" "Running sim-1" phase near
k delete namespace red >/dev/null 2>&1; k delete pod near --now >/dev/null 2>&1

# Dynamic resource allocation: classes, slices, claims of a template and a claim that pods share.
claims() { k get resourceclaims -o "jsonpath={range .items[*]}{.metadata.name} {.status.allocation.devices.results[*].device} {.status.reservedFor[*].name}{'\n'}{end}"; }
check "a device class" created apply '{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu.example.com}, spec: {selectors: [{cel: {expression: "device.driver == \"gpu.example.com\""}}]}}'
check "a node of its own for the devices" created apply '{apiVersion: v1, kind: Node, metadata: {name: dra-0, labels: {kubernetes.io/hostname: dra-0}}}'
k patch node dra-0 --subresource=status --type=merge -p '{"status": {"capacity": {"cpu": "8", "memory": "8Gi", "pods": "50"}, "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "50"}, "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastHeartbeatTime": "2099-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}' >/dev/null
k taint node dra-0 node.kubernetes.io/not-ready- >/dev/null 2>&1
check "its slice of three" created apply '{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: dra-0-gpus}, spec: {driver: gpu.example.com, nodeName: dra-0,
  pool: {name: dra-0, generation: 1, resourceSliceCount: 1}, devices: [{name: gpu-0, attributes: {size: {int: 80}}}, {name: gpu-1, attributes: {size: {int: 80}}}, {name: gpu-2, attributes: {size: {int: 40}}}]}}'
check "a template that wants a large one" created apply '{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: large}, spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com,
  selectors: [{cel: {expression: "device.attributes[\"gpu.example.com\"].size >= 80"}}]}}]}}}}'
check "a queue for one claimed GPU and no more" created queue claimed org 2 2
# claimer NAME CLAIM
claimer() {
  apply "{apiVersion: v1, kind: Pod, metadata: {name: $1, labels: {kai.scheduler/queue: claimed}}, spec: {schedulerName: ${3:-kai-scheduler}, restartPolicy: Never, resourceClaims: [{name: gpu, $2}],
    containers: [{name: main, image: x, resources: {claims: [{name: gpu}]}}]}}"
}
claimer own 'resourceClaimTemplateName: large' >/dev/null
within "a pod is bound to where its claim's device is" dra-0 phase own
within "its claim is made, allocated and reserved for it" "gpu-0 own" claims
check "with the finalizer that keeps the devices" delete-protection k get resourceclaims -o 'jsonpath={.items[*].metadata.finalizers}'
check "the device counts in its queue" '"allocated": 1}' sh -c "'$bin' scheduler queues -o json | python3 -c 'import json,sys; print([json.dumps({\"allocated\": q[\"resources\"][\"gpu\"][\"allocated\"]}) for q in json.load(sys.stdin) if q[\"name\"] == \"claimed\"])'"
check "a claim for several pods" created apply '{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: together, labels: {kai.scheduler/queue: claimed}}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}'
claimer left 'resourceClaimName: together' >/dev/null
claimer right 'resourceClaimName: together' >/dev/null
within "is charged once: one pod of the two runs within the limit" dra-0 phase left
within "and so does the other" dra-0 phase right
within "on the same device" "together gpu-1 left right" sh -c "'$clients/kubectl-1.36' get resourceclaim together -o 'jsonpath={.metadata.name} {.status.allocation.devices.results[*].device} {.status.reservedFor[*].name}' | sed 's/right left/left right/'"
claimer third 'resourceClaimTemplateName: large' default-scheduler >/dev/null
within "no large one is left, and the pod says so" "cannot allocate all claims" reason third
k delete pod own --grace-period=0 --force >/dev/null 2>&1
within "one that ended gives its device to the next" dra-0 phase third
apply '{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: odd}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, selectors: [{cel: {expression: "device.driver.matches(\"g.*\")"}}]}}]}}}' >/dev/null
claimer strange 'resourceClaimName: odd' default-scheduler >/dev/null
within "what the scheduler cannot evaluate is said" "cannot be evaluated by this scheduler" reason strange
k delete pod left right third strange --grace-period=0 --force >/dev/null 2>&1
within "a claim that nobody uses has no devices" "together  " sh -c "'$clients/kubectl-1.36' get resourceclaim together -o 'jsonpath={.metadata.name} {.status.allocation.devices.results[*].device} {.status.reservedFor[*].name}'"
k delete resourceclaim together odd >/dev/null 2>&1
k delete node dra-0 >/dev/null 2>&1

# A gang: a PodGroup with minMember 3 waits until all three are there.
apply '{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {name: gang, namespace: default}, spec: {minMember: 3, queue: b, priorityClassName: train}}' >/dev/null
pod g1 b 1 'pod-group-name: gang' >/dev/null
pod g2 b 1 'pod-group-name: gang' >/dev/null
sleep 1
check "two of three wait" Pending phase g1
pod g3 b 1 'pod-group-name: gang' >/dev/null
for name in g1 g2 g3; do within "then $name runs" Running phase $name; done

# Limits, and why.
pod big small 2 >/dev/null
within "over the limit: the condition says it" "allowable limit of GPUs" reason big
within "the pod group's condition names the rule" OverLimit k get podgroups.scheduling.run.ai -o 'jsonpath={.items[*].status.schedulingConditions[*].reasons[*].reason}'
check "explain names the limit" "allowable limit" "$bin" scheduler explain pod/big
check "explain proposes a change that was tried" "verified" "$bin" scheduler explain pod/big
check "explain as JSON" '"queues"' "$bin" scheduler explain pod/big -o json
check "the queue table" "small" "$bin" scheduler queues
check "the queues as JSON" '"fairShare"' "$bin" scheduler queues -o json
check "what if another pod came" "would run on" "$bin" scheduler whatif -f - <<< '{apiVersion: v1, kind: Pod, metadata: {name: next, namespace: default, labels: {kai.scheduler/queue: a}}, spec: {schedulerName: kai-scheduler, containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}}'
check "nothing came of it" "" k get pods
refuse "the pod of the question does not exist" NotFound k get pod next

# Reclaim: a takes what is free beyond its quota, b gets its quota back.
for i in 1 2 3; do pod "over$i" a 1 >/dev/null; done
for i in 1 2 3; do within "over$i takes a free GPU" Running phase "over$i"; done
check "b asks within its quota" created pod mine b 1
within "b gets it" Running phase mine
check "somebody of a left" Evict k get events -o 'jsonpath={.items[*].reason}'

# Preemption inside a queue: build (100) goes before train (50).
k delete pod big --now >/dev/null 2>&1
pod low small 1 >/dev/null
k delete pod one half1 half2 --now >/dev/null 2>&1
within "a train pod runs" Running phase low
pod high small 1 '' build >/dev/null
within "a build pod takes its place" Running phase high

# Restart in the middle: kill the control plane while pods are being placed.
k delete pods --all --now >/dev/null 2>&1
apply '{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 60, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web, priorityClassName: train}}, spec: {schedulerName: kai-scheduler, containers: [{name: main, image: x, resources: {requests: {cpu: 10m}}}]}}}}' >/dev/null
bound() { k get pods -l app=web -o 'jsonpath={range .items[?(@.spec.nodeName)]}{.metadata.uid}={.spec.nodeName}{"\n"}{end}' | sort; }
for _ in $(seq 50); do [ "$(bound | grep -c =)" -gt 0 ] && break; sleep 0.02; done
kill -9 "$server"; wait "$server" 2>/dev/null
serve || fail "serve comes back" "$(tail "$work/serve.log")"
before=$(bound)
within "all 60 run after a restart" 60 sh -c "'$clients/kubectl-1.36' get pods -l app=web --field-selector status.phase=Running -o name | wc -l"
after=$(bound)
if [ -z "$(comm -23 <(echo "$before") <(echo "$after") | grep =)" ]; then pass "no pod lost its node or moved"; else fail "no pod lost its node or moved" "$(diff <(echo "$before") <(echo "$after"))"; fi
if [ "$(k get events --field-selector reason=FailedBinding -o name | wc -l)" = 0 ]; then pass "no bind was refused"; else fail "no bind was refused" "$(k get events --field-selector reason=FailedBinding)"; fi

refuse "an unknown argument stops the start" "unknown scheduler argument" sh -c "
  printf 'controlPlane: {scheduler: {profiles: [{schedulerName: kai-scheduler, profile: kai-0.13, arguments: {kvalue: 1}}]}}\n' >'$work/bad.yaml'
  timeout 20 '$bin' serve --data-dir '$work/other' --listen 127.0.0.1:0 --config '$work/bad.yaml'"
refuse "an unknown profile stops the start" "kai-0.17" sh -c "
  printf 'controlPlane: {scheduler: {profiles: [{schedulerName: kai-scheduler, profile: kai-9}]}}\n' >'$work/bad.yaml'
  timeout 20 '$bin' serve --data-dir '$work/other' --listen 127.0.0.1:0 --config '$work/bad.yaml'"

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
