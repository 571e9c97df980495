#!/usr/bin/env bash
# The rows of hostile tenants that need a real container, on the embedded host with a simulated GPU.
# Started by run.sh, as root; runs in network and mount namespaces of its own.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${SUBLET_E2E_INSIDE:-}" ]; then
  SUBLET_E2E_INSIDE=1 exec unshare -n -m --propagation private bash "$0" "$@"
fi
. "$here/../tenants/setup.sh"

check "host up" "The host is up" sublet host up --gpus 1 --gpu-memory 16Gi
burner=$(ls "$XDG_STATE_HOME"/sublet/host/gpu/*/gpu-burner 2>/dev/null | head -1)
check "image made locally" "" \
  sh "$here/../tenants/demo_image.sh" "$XDG_STATE_HOME/sublet/host/engine/podman.sock" "$burner" localhost/gpu-test:1
cat > values.yaml <<'Y'
sync: {toHost: {pods: {translateImage: {"registry.example/gpu-test:1": "localhost/gpu-test:1"}}}}
Y
check "tenant b" "Tenant b is yours" sublet create b -f values.yaml
pod victim default-scheduler "echo secret of b; sleep 1000" > victim.yaml
check "its pod" "condition met" sh -c \
  'kubectl apply -f victim.yaml && kubectl wait --for=condition=Ready pod/victim --timeout=60s'
sublet disconnect >/dev/null 2>&1
check "tenant a" "Tenant a is yours" sublet create a -f values.yaml
pod me default-scheduler "echo mine; sleep 1000" > me.yaml
sed -i 's/limits: {}/limits: {memory: 64Mi}/' me.yaml
check "its pod" "condition met" sh -c \
  'kubectl apply -f me.yaml && kubectl wait --for=condition=Ready pod/me --timeout=60s'
gateway=$(kubectl --context sublet-host get node sublet-host \
  -o "jsonpath={.status.addresses[?(@.type=='InternalIP')].address}")
api=$(kubectl --context sublet-host get endpoints kubernetes -n default \
  -o "jsonpath={.subsets[0].addresses[0].ip}:{.subsets[0].ports[0].port}")
inside() { kubectl exec me -- sh -c "$1"; }
# fetch URL [HEADER]: the code it is answered with. Asked from beside the pod: busybox speaks no TLS.
fetch() { curl -sk --max-time 5 -o /dev/null -w '%{http_code}' ${2:+-H "$2"} "$1"; }
export gateway api
export -f inside fetch
check "7 a pod has a token for its own API" "eyJ" \
  bash -c 'inside "cat /var/run/secrets/kubernetes.io/serviceaccount/token"'
token=$(inside "cat /var/run/secrets/kubernetes.io/serviceaccount/token")
check "7 which is worth nothing at the host's" "401" \
  bash -c "fetch https://$api/api/v1/pods 'Authorization: Bearer $token'"
check "7 as a stranger it sees nothing there" "40" bash -c "fetch https://$api/api/v1/nodes"
check "7 at its own it is somebody" "system:serviceaccount:default:default" sh -c \
  "kubectl --token '$token' get pods 2>&1 || true; kubectl auth whoami --token '$token' 2>&1 || true"
for path in pods "run/sublet-b/victim-x-default-x-b/main?cmd=id" "containerLogs/sublet-b/victim-x-default-x-b/main" stats/summary; do
  check "9 the node agent refuses /${path%%\?*}" "401" bash -c "fetch 'https://$gateway:10250/$path'"
  check "9 with the pod's token too" "40" \
    bash -c "fetch 'https://$gateway:10250/$path' 'Authorization: Bearer $token'"
done
check "9 no socket of the host is in the container" "none" \
  kubectl exec me -- sh -c "find / -xdev -type s 2>/dev/null | grep . || echo none"
check "9 nor the engine's" "none" \
  kubectl exec me -- sh -c "ls /run/podman /var/run/docker.sock 2>/dev/null | grep . || echo none"
check "10 an own log" "mine" kubectl logs me
check "10 own exec" "uid=" kubectl exec me -- id
for name in victim-x-default-x-b "../victim" "..%2f..%2fsublet-b%2fpods%2fvictim-x-default-x-b" "%2e%2e"; do
  refuse "10 logs of $name" "" kubectl get --raw "/api/v1/namespaces/default/pods/$name/log"
done
refuse "10 exec by a host name" "not found" kubectl exec victim-x-default-x-b -- id
cat > link.yaml <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: link}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: v, emptyDir: {}}]
  initContainers:
  - name: trap
    image: registry.example/gpu-test:1
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "ln -s / /v/root; mkdir -p /v/plain; echo fine > /v/plain/file"]
    volumeMounts: [{name: v, mountPath: /v}]
  containers:
  - name: main
    image: registry.example/gpu-test:1
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "sleep 1000"]
    volumeMounts: [{name: v, mountPath: /mnt, subPath: SUBPATH}]
Y
sed 's/SUBPATH/plain/; s/name: link/name: plain/' link.yaml > plain.yaml
sed 's/SUBPATH/root/' link.yaml > trap.yaml
check "15 a subPath" "fine" sh -c 'kubectl apply -f plain.yaml >/dev/null &&
  kubectl wait --for=condition=Ready pod/plain --timeout=60s >/dev/null && kubectl exec plain -- cat /mnt/file'
check "15 a symlink in a volume does not lead out of it" "contained" sh -c 'kubectl apply -f trap.yaml >/dev/null
  kubectl wait --for=condition=Ready pod/link --timeout=15s >/dev/null 2>&1
  kubectl exec link -- cat /mnt/etc/hostname > seen 2>/dev/null
  if [ -s seen ] && cmp -s seen /etc/hostname; then echo escaped; else echo contained; fi'
pod half kai-scheduler "sleep 1000" '"gpu-fraction": "0.5"' > half.yaml
sed -i '/labels:/d' half.yaml
check "33 a slice" "condition met" sh -c \
  'kubectl apply -f half.yaml && kubectl wait --for=condition=Ready pod/half --timeout=60s'
check "33 shows itself only" "50.0 %" kubectl exec half -- nvidia-smi
refuse "34 LD_PRELOAD beside a slice" "could lead past the slice" sh -c \
  'sed "s/name: half/name: half-preload/; s/    command:/    env: [{name: LD_PRELOAD, value: \/x.so}]\n    command:/" half.yaml | kubectl apply -f -'
check "37 a killed GPU process leaves the neighbours alone" "ready" sh -c '
  kubectl exec half -- sh -c "gpu-burner hold 1073741824 </dev/null >/dev/null 2>&1 & sleep 0.5; kill -9 \$!; wait" >/dev/null 2>&1
  kubectl exec half -- sh -c "gpu-burner hold 1073741824 </dev/null"'
check "delete a" "is gone" sublet delete a
check "delete b" "is gone" sublet delete b
check "host down" "The host is gone" sublet host down
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
