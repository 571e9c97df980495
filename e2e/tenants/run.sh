#!/usr/bin/env bash
# The main job on real containers: embedded host with two simulated GPUs, a tenant with the KAI-like
# scheduler, CPU, whole-GPU, fraction and gpu-memory pods, enforcement, explain, a second tenant, and
# delete. Needs SUBLET_BIN and SUBLET_CLIENTS (tools/test.sh sets both) and root. Runs in network and
# mount namespaces of its own, so that nothing of the machine is touched.
# Each step is one line and counts as one test; the closing line is "N passed, N failed, N skipped".
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${SUBLET_BIN:?path of the sublet executable}" "${SUBLET_CLIENTS:?folder with kubectl-1.36}"
if [ -z "${SUBLET_E2E_INSIDE:-}${SUBLET_DEMO:-}" ]; then
  python3 "$here/rows.py" || rows_failed=1  # plain processes, needs no root
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "0 passed, 0 failed, 1 skipped"  # containers need root
  exit "${rows_failed:-0}"
fi
if [ -z "${SUBLET_E2E_INSIDE:-}" ]; then
  failed=${rows_failed:-0}
  export SUBLET_E2E_INSIDE=1
  unshare -n -m --propagation private bash "$0" "$@" || failed=1
  if [ -z "${SUBLET_DEMO:-}" ]; then
    unshare -n -m --propagation private bash "$here/seeds.sh" || failed=1
  fi
  exit $failed
fi
. "$here/setup.sh"

check "host up with two simulated GPUs" "The host is up" \
  sublet host up --gpus 2 --gpu-memory 16Gi
burner=$(ls "$XDG_STATE_HOME"/sublet/host/gpu/*/gpu-burner 2>/dev/null | head -1)
check "example image made locally" "" \
  sh "$here/demo_image.sh" "$XDG_STATE_HOME/sublet/host/engine/podman.sock" "$burner" localhost/gpu-test:1
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
check "create team-a" "Tenant team-a is yours" sublet create team-a -f values.yaml
check "kubectl talks to the tenant" "default" kubectl get namespaces
check "the tenant's context is current" "sublet_team-a_sublet-team-a_sublet-host" \
  kubectl config current-context
check "the tenant sees the node" "sublet-host" kubectl get nodes
check "list" "Running" sublet list
check "KAI's queues are there" "default-queue" \
  sh -c 'for i in $(seq 40); do kubectl get queues 2>&1 | grep default-queue && break; sleep 0.5; done'

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
check "exec through the tenant" "busybox" kubectl exec cpu-pod -- ls /bin
check "a PodGroup as KAI names it" "pg-cpu-pod-" kubectl get podgroups

pod half-a kai-scheduler "sleep 1000" '"gpu-fraction": "0.5"' > half-a.yaml
pod half-b kai-scheduler "sleep 1000" '"gpu-fraction": "0.5"' > half-b.yaml
pod mib kai-scheduler "sleep 1000" '"gpu-memory": "2000"' > mib.yaml
check "two half-GPU pods" "created" kubectl apply -f half-a.yaml -f half-b.yaml
check "both halves Ready" "half-b condition met" \
  kubectl wait --for=condition=Ready pod/half-a pod/half-b --timeout=40s
check "slices are granted" "team-a" sublet gpu list -o json
check "nvidia-smi shows the slice only" "MiB" kubectl exec half-a -- nvidia-smi
check "a request beyond the slice is out of memory" "refused" \
  kubectl exec half-a -- sh -c 'gpu-burner hold 12884901888 </dev/null >/dev/null 2>&1 && echo given || echo refused'
check "a request within the slice is given" "ready" \
  kubectl exec half-b -- sh -c 'gpu-burner hold 1073741824 </dev/null'
check "the interceptor is in the container" "libcuda.so.1" \
  kubectl exec half-a -- ls /usr/lib/x86_64-linux-gnu
check "gpu-memory in exact MiB" "condition met" \
  sh -c 'kubectl apply -f mib.yaml && kubectl wait --for=condition=Ready pod/mib --timeout=40s'
pod too-big kai-scheduler "sleep 1000" "" '"nvidia.com/gpu": 2' > big.yaml
check "a pod that does not fit" "created" kubectl apply -f big.yaml
check "explain says why it waits" "Why:" \
  sh -c 'for i in $(seq 20); do sublet scheduler explain pod/too-big | grep Why: && break; sleep 0.5; done'
check "queues with their shares" "team" sublet scheduler queues

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
check "what the host sees" "half-a-x-default-x-team-a" kubectl --context sublet-host get pods -A \
  -o custom-columns=NAMESPACE:.metadata.namespace,POD:.metadata.name,SCHEDULER:.spec.schedulerName

check "disconnect" "Disconnected" sublet disconnect
check "delete team-b" "Tenant team-b is gone" sublet delete team-b
check "delete team-a" "Tenant team-a is gone" sublet delete team-a
check "no pod is left on the host" "No resources found" kubectl --context sublet-host get pods -A
check "no namespace is left" "0" sh -c 'kubectl --context sublet-host get ns -o name | grep -c sublet- || true'
check "delete again is an error unless asked" "nothing to do" \
  sublet delete team-a --ignore-not-found
check "host down" "The host is gone" sublet host down
check "no file is left" "" test ! -e "$XDG_STATE_HOME/sublet/host"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
