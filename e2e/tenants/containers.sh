#!/usr/bin/env bash
# The main job on real containers: a host with two simulated GPUs, a tenant with the KAI-like scheduler,
# CPU, whole-GPU, fraction and gpu-memory pods, enforcement, explain, a second tenant, and delete. Started
# by run.sh in network and mount namespaces of its own, as root; with SUBLET_DEMO it shows what commands say.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/setup.sh"

section "A host: one machine, its container engine, two simulated GPUs"
check "host up with two simulated GPUs" "The host is up" host_up
burner=$(ls "$(gpu_folder)"/*/gpu-burner 2>/dev/null | head -1)
check "example image made locally" "" \
  sh "$here/demo_image.sh" "$(engine_socket)" "$burner" localhost/gpu-test:1
check "host's node is Ready" " Ready" kubectl get nodes
check "GPUs are published" "sublet-host" sublet gpu list

cat > values.yaml <<'Y'
sync:
  toHost:
    pods:
      translateImage:
        "registry.example/gpu-test:1": "localhost/gpu-test:1"
controlPlane:
  scheduler:
    profiles:
    - {schedulerName: kai-scheduler, profile: kai-0.13}
Y
printf 'sync: {toHost: {pod: {}}}\n' > typo.yaml
check "a typo in the values names file and line" "typo.yaml:1: unknown key sync.toHost.pod" \
  sh -c 'sublet create team-a -f typo.yaml; test $? -eq 2'
section "Tenant A: a Kubernetes of its own, with its own KAI-like scheduler"
check "create team-a" "Tenant team-a is yours" sublet create team-a -f values.yaml
check "kubectl talks to the tenant" "default" kubectl get namespaces
check "its context is the current one" "sublet_team-a_sublet-team-a_sublet-host" \
  kubectl config current-context
check "the tenant sees the node" "sublet-host" kubectl get nodes
check "list" "Running" sublet list
within "KAI's queues are there" "default-queue" kubectl get queues

cat > queue.yaml <<'Y'
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  parentQueue: default-parent-queue
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
Y
check "a queue of the team's own" "created" kubectl apply -f queue.yaml
pod cpu-pod kai-scheduler "echo hello; sleep 1000" > cpu.yaml
check "CPU pod applied" "created" kubectl apply -f cpu.yaml
check "CPU pod Ready" "condition met" kubectl wait --for=condition=Ready pod/cpu-pod --timeout=30s
check "logs through the tenant" "hello" kubectl logs cpu-pod
check "the same log by the node's kubelet, as the tenant may see it" "hello" \
  kubectl get --raw /api/v1/nodes/sublet-host/proxy/containerLogs/default/cpu-pod/main
check "and as it goes on" "hello" sh -c \
  'timeout 3 kubectl get --raw "/api/v1/nodes/sublet-host/proxy/containerLogs/default/cpu-pod/main?follow=true"; true'
check "exec through the tenant" "busybox" kubectl exec cpu-pod -- ls -l /bin/busybox
check "a PodGroup as KAI names it" "pg-cpu-pod-" kubectl get podgroups

section "GPU fractions, granted by the node and enforced inside the container"
burn="gpu-burner burn 268435456 2000000"  # holds 256 MiB, launches kernels, says so every second
pod half-a kai-scheduler "$burn" '"gpu-fraction": "0.5"' > half-a.yaml
pod half-b kai-scheduler "$burn" '"gpu-fraction": "0.5"' > half-b.yaml
pod mib kai-scheduler "sleep 1000" '"gpu-memory": "2000"' > mib.yaml
in_demo cat half-a.yaml
check "two half-GPU pods" "created" kubectl apply -f half-a.yaml -f half-b.yaml
check "both halves Ready" "half-b condition met" \
  kubectl wait --for=condition=Ready pod/half-a pod/half-b --timeout=40s
check "slices are granted" "half-b" sublet gpu top --once --socket "$(gpud_socket)"
check "nvidia-smi shows the slice only" "MiB" kubectl exec half-a -- nvidia-smi
processes_of() {  # processes_of POD: of its container, as this machine sees them
  local id
  id=$(kubectl get pod "$1" -o "jsonpath={.status.containerStatuses[0].containerID}")
  [ -n "$id" ] && grep -l "${id##*/}" /proc/[0-9]*/cgroup 2>/dev/null | cut -d/ -f3
}
is_real() {  # is_real POD...: each has a process on this machine, so none is on a simulated node
  local name
  for name in "$@"; do
    [ -n "$(processes_of "$name")" ] || { echo "$name: no process of it here"; return 1; }
  done
  echo "each has a process here"
}
is_mapped() {  # is_mapped POD: a process of it has libsublet-cuda.so mapped (told by the file's inode)
  local pid inode mapped
  inode=$(stat -c %i "$(gpu_folder)"/*/libsublet-cuda.so) || return 1
  for pid in $(processes_of "$1"); do
    mapped=$(awk -v inode="$inode" '$5 == inode {print $1, $6; exit}' "/proc/$pid/maps" 2>/dev/null)
    [ -n "$mapped" ] && { echo "pid $pid ($(cat "/proc/$pid/comm")) mapped $mapped"; return 0; }
  done
  echo "$1: no process has it mapped"
  return 1
}
launches() { kubectl logs "$1" | wc -l; }
goes_on() {  # goes_on POD: it says more than it did
  local before
  before=$(launches "$1")
  for _ in $(seq 50); do
    [ "$(launches "$1")" -gt "$before" ] && { echo "$1 goes on: $(kubectl logs "$1" --tail=1)"; return 0; }
    sleep 0.2
  done
  return 1
}
check "the pods are real containers" "each has a process here" is_real cpu-pod half-a half-b
check "the interceptor is mapped in one's process" "mapped" is_mapped half-a
check "and in the other's" "mapped" is_mapped half-b
check "a request beyond the slice is out of memory" "refused" \
  kubectl exec half-a -- sh -c 'gpu-burner hold 12884901888 </dev/null >/dev/null 2>&1 && echo given || echo refused'
check "while its neighbour goes on" "half-b goes on" goes_on half-b
check "a request within the slice is given" "ready" \
  kubectl exec half-b -- sh -c 'gpu-burner hold 1073741824 </dev/null'
check "gpu-memory in exact MiB" "condition met" \
  sh -c 'kubectl apply -f mib.yaml && kubectl wait --for=condition=Ready pod/mib --timeout=40s'
section "A pod that does not fit, and why"
pod whole kai-scheduler "sleep 1000" "" '"nvidia.com/gpu": 1' > whole.yaml
check "a whole-GPU pod that does not fit" "created" kubectl apply -f whole.yaml
within "explain says why it waits" "Why:" sublet scheduler explain pod/whole
check "queues with their shares" "team" sublet scheduler queues
check "room is made" "deleted" kubectl delete pod mib
check "and the whole-GPU pod runs" "condition met" \
  kubectl wait --for=condition=Ready pod/whole --timeout=40s

section "Tenant B: plain Kubernetes, a web app"
check "a second tenant" "Tenant team-b is yours" sublet create team-b \
  --set 'sync.toHost.pods.translateImage={"registry.example/gpu-test:1": "localhost/gpu-test:1"}' \
  --set controlPlane.scheduler.kai.enabled=false
check "KAI's kinds are not there" "doesn't have a resource type" \
  sh -c 'kubectl get queues; true'
cat > web.yaml <<'Y'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web-app}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: web
        image: registry.example/gpu-test:1
        imagePullPolicy: IfNotPresent
        command: [httpd, -f, -p, "8080", -h, /www]
        ports: [{containerPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: web-app}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
Y
check "a Deployment with a Service" "created" kubectl apply -f web.yaml
check "rolled out" "successfully rolled out" kubectl rollout status deployment/web-app --timeout=40s
kubectl port-forward deployment/web-app 18081:8080 >/dev/null 2>&1 &
forward=$!
check "port-forward to it" "hello from a tenant" \
  curl -s --retry 20 --retry-delay 1 --retry-connrefused --max-time 30 http://127.0.0.1:18081/
kill "$forward" 2>/dev/null
check "its pods are made anew" "successfully rolled out" sh -c \
  'kubectl delete pods -l app=web --wait=false >/dev/null && sleep 0.2 && kubectl rollout status deployment/web-app --timeout=40s'
kubectl port-forward deployment/web-app 18082:8080 >/dev/null 2>&1 &
forward=$!
check "port-forward to the new ones" "hello from a tenant" \
  curl -s --retry 20 --retry-delay 1 --retry-connrefused --max-time 30 http://127.0.0.1:18082/
kill "$forward" 2>/dev/null
check "what the host sees" "half-a-x-default-x-team-a" kubectl --context sublet-host get pods -A \
  -o custom-columns=NAMESPACE:.metadata.namespace,POD:.metadata.name,SCHEDULER:.spec.schedulerName

section "The rollback: delete, and proof that nothing is left"
check "disconnect" "Disconnected" sublet disconnect
check "delete team-b" "Tenant team-b is gone" sublet delete team-b
check "delete team-a" "Tenant team-a is gone" sublet delete team-a
check "no pod is left on the host" "No resources found" kubectl --context sublet-host get pods -A
check "no namespace is left" "0" sh -c 'kubectl --context sublet-host get ns -o name | grep -c sublet- || true'
check "delete again is an error unless asked" "nothing to do" \
  sublet delete team-a --ignore-not-found
check "host down" "The host is gone" host_down
check "no file is left" "" host_gone
left_behind() {  # processes with this HOME, network devices and firewall rules of these namespaces
  local file pid found= links rules
  for file in $(grep -lzx "HOME=$work" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${file#/proc/} pid=${pid%/environ}
    case $(cat "/proc/$pid/comm" 2>/dev/null) in
      sublet | podman | conmon | runc | crun | pause | netavark | aardvark-dns | gpu-burner)
        found="$found $(cat "/proc/$pid/comm" 2>/dev/null) ($pid)" ;;
    esac
  done
  links=$(ip -o link | grep -vc ' lo: ')
  rules=$(nft list ruleset 2>/dev/null | grep -c .)
  [ -z "$found" ] && [ "$links" -eq 0 ] && [ "$rules" -eq 0 ] &&
    { echo "no process, no network device, no firewall rule"; return 0; }
  echo "left:$found; $links network devices; $rules lines of firewall rules"
  return 1
}
check "nothing else is left" "no process" left_behind
[ -z "${SUBLET_DEMO:-}" ] ||
  printf '\n%sThe whole demo took %d s.%s\n' "$bold" "$((($(date +%s%N) - started) / 1000000000))" "$plain"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
