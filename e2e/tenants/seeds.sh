#!/usr/bin/env bash
# The command lines of the articles that show virtual clusters with GPUs, with `sublet` in place of
# `vcluster`, flag for flag; and what a person does with the CLI. Rows are named by the checklist's
# numbers. Not here because no such pods are needed: installing the scheduler, its components, its
# webhooks and its reservation pods (0.13 to 0.15, 1.2, 1.3, 1.8, 1.11, 1.13, 1.15, 1.16): the scheduler
# is inside the tenant. Sourced setup: see setup.sh; run.sh starts this in namespaces of its own.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/setup.sh"

check "host up" "The host is up" host_up
burner=$(ls "$(gpu_folder)"/*/gpu-burner 2>/dev/null | head -1)
check "image made locally" "" \
  sh "$here/demo_image.sh" "$(engine_socket)" "$burner" localhost/gpu-test:1
host=(kubectl --context sublet-host)
is_json() { "$@" 2>/dev/null | jq -e . >/dev/null && echo "is JSON"; }

check "0.5 the node is Ready with its GPUs" "True 2" sh -c \
  'kubectl get gpunodes sublet-host -o json | jq -e ".status.devices | length == 2" >/dev/null &&
   kubectl get node sublet-host -o json | jq -r "(.status.conditions[] | select(.type == \"Ready\").status) + \" 2\""'
check "0.6 get nodes has its columns" "STATUS" kubectl get nodes
check "0.7 label a node" "labeled" kubectl label nodes --all nvidia.com/gpu.present=true
check "0.7 and find it by the label" "sublet-host" kubectl get nodes -l nvidia.com/gpu.present=true
# Its handler is a runtime that the engine has; NVIDIA's is not needed, slices are injected by CDI.
cat > runtime-class.yaml <<'Y'
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: runc
Y
check "0.9 RuntimeClass nvidia on the host" "created" "${host[@]}" apply -f runtime-class.yaml
cat > my-values.yaml <<'Y'
sync:
  toHost:
    pods:
      translateImage:
        "registry.example/gpu-test:1": "localhost/gpu-test:1"
  fromHost:
    runtimeClasses: {enabled: true}
Y
check "0.19 delete before create" "" \
  sh -c 'sublet delete my-vcluster --namespace sublet-my-vcluster --delete-namespace || true'
check "0.18 create --values --connect=false" "Tenant my-vcluster runs" \
  sublet create my-vcluster --values my-values.yaml --connect=false
check "0.20 wait for its pod" "condition met" \
  "${host[@]}" wait pod -l app=sublet -n sublet-my-vcluster --for=condition=ready --timeout=300s
check "0.1 one pod, label app=sublet" "my-vcluster-0" \
  "${host[@]}" get pod -l app=sublet -n sublet-my-vcluster
check "0.21 connect" "" sublet connect my-vcluster
check "0.21 the context" "sublet_my-vcluster_sublet-my-vcluster_sublet-host" \
  kubectl config current-context
check "0.22 init containers and containers" "syncer" sh -c \
  'kubectl --context sublet-host get pod -n sublet-my-vcluster my-vcluster-0 -o json |
   jq -e ".spec.initContainers[].name, .spec.containers[].name"'
check "0.23 state.db in the container" "/data/state.db" \
  "${host[@]}" exec -n sublet-my-vcluster my-vcluster-0 -c syncer -- ls -lh /data/state.db
"${host[@]}" exec -n sublet-my-vcluster my-vcluster-0 -c syncer -- cat /data/state.db > copy.db 2>/dev/null
check "0.24 it is SQLite" "SQLite 3" file copy.db
check "0.33 the tenant reports its version" "v1.36" kubectl version
check "1.1 auth can-i" "yes" kubectl auth can-i create clusterrole -A

pod cpu-pod kai-scheduler "sleep 1000" > cpu-pod.yaml
sed -i 's/resources: .*/resources: {requests: {cpu: 100m, memory: 250M}}/' cpu-pod.yaml
cat > queues.yaml <<'Y'
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: default}
spec:
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  parentQueue: default
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
Y
check "0.16 queues" "created" sh -c \
  'for i in $(seq 40); do kubectl apply -f queues.yaml && break; sleep 0.5; done'
check "0.26 CPU pod" "created" kubectl apply -f cpu-pod.yaml
check "0.26 ready" "condition met" kubectl wait pod cpu-pod --for=condition=ready --timeout=60s
check "0.26 its scheduler" "kai-scheduler" kubectl get pod cpu-pod -o "jsonpath={.spec.schedulerName}"
check "0.26 its queue" "team" \
  kubectl get pod cpu-pod -o "jsonpath={.metadata.labels.kai\.scheduler/queue}"
check "0.9 the tenant has the host's RuntimeClass" "nvidia" kubectl get runtimeclass nvidia
sed 's/name: cpu-pod/name: classed/; s/^spec:/spec:\n  runtimeClassName: nvidia/' cpu-pod.yaml > classed.yaml
check "0.9 a pod of it runs" "condition met" \
  sh -c 'kubectl apply -f classed.yaml && kubectl wait pod classed --for=condition=ready --timeout=60s'
refuse "0.9 an unknown class is refused" "not found" \
  sh -c 'sed "s/name: classed/name: unknown/; s/runtimeClassName: nvidia/runtimeClassName: none/" classed.yaml | kubectl apply -f -'
check "0.9 its pod ends" "deleted" kubectl delete pod classed
cat > device-plugin.yaml <<'Y'
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvidia-device-plugin-daemonset, namespace: kube-system}
spec:
  selector: {matchLabels: {name: nvidia-device-plugin-ds}}
  updateStrategy: {type: RollingUpdate}
  template:
    metadata: {labels: {name: nvidia-device-plugin-ds}}
    spec:
      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
      priorityClassName: system-node-critical
      terminationGracePeriodSeconds: 0
      containers:
      - name: nvidia-device-plugin-ctr
        image: registry.example/gpu-test:1
        imagePullPolicy: IfNotPresent
        command: [sleep, "1000"]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
Y
check "0.8 a DaemonSet with the device plugin's label" "created" kubectl apply -f device-plugin.yaml
check "0.8 rolled out on every node" "successfully rolled out" \
  kubectl rollout status -n kube-system daemonset/nvidia-device-plugin-daemonset --timeout=60s
check "0.8 found by its label" "Running" kubectl get pods -n kube-system -l name=nvidia-device-plugin-ds
check "0.8 describe node shows Allocatable" "Allocatable:" kubectl describe node sublet-host
check "0.8 it goes" "deleted" kubectl delete -f device-plugin.yaml
refuse "0.10 wait that cannot be met" "timed out" \
  kubectl wait pod cpu-pod --for=condition=Nothing --timeout=1s
check "0.11 run --rm -i" "hello from a pod" kubectl run probe --rm -i --restart=Never \
  --image=registry.example/gpu-test:1 --image-pull-policy=IfNotPresent -- echo "hello from a pod"
check "1.12 the pod group's name" "ok" sh -c \
  'kubectl get pod cpu-pod -o json | jq -r "\"pg-\" + .metadata.name + \"-\" + .metadata.uid" > want
   test "$(kubectl get pod cpu-pod -o jsonpath="{.metadata.annotations.pod-group-name}")" = "$(cat want)" && echo ok'
for i in 1 2 3 4; do pod "quarter-$i" kai-scheduler "sleep 1000" '"gpu-fraction": "0.25"'; echo ---; done > quarters.yaml
pod whole kai-scheduler "sleep 1000" "" '"nvidia.com/gpu": 1' > whole.yaml
check "0.3 one whole GPU" "condition met" \
  sh -c 'kubectl apply -f whole.yaml && kubectl wait --for=condition=ready --timeout=60s pod/whole'
check "0.3 four quarters" "created" kubectl apply -f quarters.yaml
check "0.3 all ready, on the other one" "quarter-4 condition met" kubectl wait --for=condition=ready \
  --timeout=60s pod/quarter-1 pod/quarter-2 pod/quarter-3 pod/quarter-4
pod quarter-5 kai-scheduler "sleep 1000" '"gpu-fraction": "0.25"' > fifth.yaml
check "0.3 a fifth quarter" "created" kubectl apply -f fifth.yaml
check "0.3 waits" "Pending" sh -c 'sleep 1; kubectl get pod quarter-5'
check "1.14 PodGroups by their long name" "pg-cpu-pod-" kubectl get podgroups.scheduling.run.ai
check "1.14 of KAI's version" "scheduling.run.ai/v2alpha2" sh -c \
  'kubectl get podgroups.scheduling.run.ai -o json | jq -r ".items[0].apiVersion"'
check "2.1 scheduler queues -o json" "is JSON" is_json sublet scheduler queues -o json
check "2.1 scheduler explain -o json" "is JSON" is_json sublet scheduler explain pod/quarter-5 -o json
check "2.1 scheduler whatif -o json" "is JSON" is_json sublet scheduler whatif -f fifth.yaml -o json
check "0.27 nvidia-smi shows the slice" "MiB" kubectl exec quarter-1 -- nvidia-smi
check "0.28 the host's listing" "quarter-1-x-default-x-my-vcluster" "${host[@]}" get pods -A \
  -o custom-columns=NAME:.metadata.name,SCHEDULER:.spec.schedulerName,NS:.metadata.namespace --sort-by=.metadata.name
uptime_of() { "${host[@]}" get pod -n sublet-my-vcluster cpu-pod-x-default-x-my-vcluster \
  -o "jsonpath={.metadata.uid}{.status.containerStatuses[0].restartCount}"; }
before=$(uptime_of)
printf 'experimental: {syncSettings: {setOwner: false}}\n' >> my-values.yaml
check "1.5 create --upgrade --values" "Tenant my-vcluster" \
  sublet create my-vcluster --upgrade --values my-values.yaml
check "1.5 the workload went on" "same" sh -c "test '$before' = '$(uptime_of)' && echo same"
check "1.5 the API is there" "cpu-pod" kubectl get pod cpu-pod
pod unowned default-scheduler "sleep 1000" > unowned.yaml
check "1.4 setOwner false" "condition met" sh -c \
  'for i in $(seq 20); do kubectl apply -f unowned.yaml && break; sleep 0.5; done
   kubectl wait pod unowned --for=condition=ready --timeout=60s'
check "1.4 no owner references" "null" sh -c \
  'kubectl --context sublet-host get pod -n sublet-my-vcluster unowned-x-default-x-my-vcluster -o json |
   jq .metadata.ownerReferences'

cat > crd.yaml <<'Y'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: certs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: certs, singular: cert, kind: Cert}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
Y
check "0.2 a CRD in one tenant" "created" kubectl apply -f crd.yaml
check "0.29 a second tenant" "Tenant research-cluster is yours" \
  sublet create research-cluster --set controlPlane.scheduler.kai.enabled=false
check "0.29 without KAI's kinds" "doesn't have a resource type" sh -c 'kubectl get queues; true'
check "0.2 another version in the other" "created" \
  sh -c 'sed "s/v1alpha1/v1/" crd.yaml | kubectl apply -f -'
refuse "0.2 and none on the host" "NotFound" "${host[@]}" get crd certs.example.com

check "27 create again connects" "Tenant research-cluster" sublet create research-cluster
refuse "27 create again without connect" "--upgrade" sublet create research-cluster --connect=false
refuse "27 create in an occupied namespace" "already holds tenant research-cluster" \
  sublet create other -n sublet-research-cluster
check "27 connect -- true" "" sublet connect research-cluster -- true
check "27 connect -- false returns 1" "1" sh -c 'sublet connect research-cluster -- false; echo $?'
check "27 connect -- kubectl" "default" sublet connect research-cluster -- kubectl get namespaces
check "27 connect --print is a kubeconfig and nothing else" "default" sh -c \
  'sublet connect research-cluster --print > printed 2>/dev/null
   head -1 printed | grep -q "^apiVersion" && kubectl --kubeconfig printed get namespaces'
check "0.32 disconnect" "sublet-host" sublet disconnect
check "0.32 the context is the host's" "sublet-host" kubectl config current-context
refuse "27 disconnect outside" "" sublet disconnect
check "27 pause" "" sublet pause research-cluster
check "27 list says so" "Paused" sublet list
check "27 connect to a paused tenant resumes it" "" \
  sublet connect research-cluster
check "27 it serves" "default" kubectl get namespaces
check "27 paused while kubectl talks to it" "" sublet pause research-cluster
refuse "27 kubectl is told at once what to do" "sublet resume research-cluster" kubectl get namespaces
check "27 resume" "" sublet resume research-cluster
check "27 and kubectl goes on" "default" kubectl get namespaces
sublet disconnect >/dev/null 2>&1
check "27 version -o json" "is JSON" is_json sublet version -o json
check "27 doctor -o json" "is JSON" is_json sublet doctor -o json
check "27 gpu list -o json" "is JSON" is_json sublet gpu list -o json
check "27 gpu top -o json" "is JSON" is_json sublet gpu top --once --socket "$(gpud_socket)" -o json
check "27 list -o json" "research-cluster" sh -c 'sublet list -o json | jq -r ".[].name // .items[].name"'
check "27 describe -o json" "research-cluster" sh -c 'sublet describe research-cluster -o json | jq -r .name'
check "27 logs" "sublet serves" sublet logs research-cluster
check "27 doctor" "" sh -c 'sublet doctor; test $? -le 1'
refuse "27 an unknown command names the nearest" "did you mean create?" sublet crate
check "27 help begins with examples" "sublet create team-a" sublet --help
check "27 completion bash" "complete -F" sublet completion bash
check "27 completion zsh" "compdef" sublet completion zsh
check "27 completion fish" "complete -c sublet" sublet completion fish
refuse "27 an unknown tenant is exit 3 or said" "nobody" sublet connect nobody
check "2.4 delete" "is gone" sublet delete research-cluster
check "27 delete twice" "nothing to do" sublet delete research-cluster --ignore-not-found
refuse "27 and without the flag it is an error" "research-cluster" sublet delete research-cluster
# Trust: full (my-vcluster), limited by a quota, and none (nodes of its own, its network closed).
cat > limited.yaml <<'Y'
policies:
  resourceQuota: {enabled: true, quota: {requests.cpu: 100m}}
  networkPolicy: {enabled: true}
sync: {toHost: {pods: {translateImage: {"registry.example/gpu-test:1": "localhost/gpu-test:1"}}}}
Y
printf 'sync: {fromHost: {nodes: {selector: {labels: {dedicated: zero}}}}}\n' > zero.yaml
check "0.25 a tenant with a quota" "Tenant limited is yours" sublet create limited -f limited.yaml
pod greedy default-scheduler "sleep 1000" "" 'cpu: "1"' > greedy.yaml
check "0.25 what exceeds it is told on the pod" "exceeded quota" sh -c \
  'kubectl apply -f greedy.yaml >/dev/null
   for i in $(seq 60); do kubectl get events | grep "exceeded quota" && break; sleep 0.5; done'
check "0.25 its network is closed by policy" "sublet-" "${host[@]}" get networkpolicies -n sublet-limited
check "0.25 a tenant with nodes of its own" "Tenant zero is yours" sublet create zero -f zero.yaml
check "0.25 sees no foreign node" "No resources found" kubectl get nodes
check "0.25 and reaches none" "Pending" sh -c 'kubectl apply -f greedy.yaml >/dev/null; sleep 1; kubectl get pod greedy'
check "0.25 its node comes with the label" "sublet-host" sh -c \
  'kubectl --context sublet-host label node sublet-host dedicated=zero >/dev/null
   for i in $(seq 40); do kubectl get nodes | grep sublet-host && break; sleep 0.5; done'
check "0.25 both go" "zero is gone" sh -c 'sublet delete limited && sublet delete zero 2>&1'
for i in 1 2 3; do
  check "0.33 cycle $i" "is gone" sh -c \
    'sublet create cycle >/dev/null 2>&1 && kubectl get ns default >/dev/null && sublet delete cycle'
done
check "0.19 delete --delete-namespace" "is gone" \
  sublet delete my-vcluster --namespace sublet-my-vcluster --delete-namespace
check "27 nothing is left on the host" "No resources found" "${host[@]}" get pods -A
check "27 nor in the kubeconfig" "0" sh -c 'kubectl config get-contexts -o name | grep -c sublet_ || true'
check "host down" "The host is gone" host_down
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
