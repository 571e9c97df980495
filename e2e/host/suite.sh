#!/usr/bin/env bash
# suite.sh PART...: the tests of a node with real containers, started by private_engine.sh on the
# engine behind SUBLET_ENGINE_SOCKET, against the API server that SUBLET_SERVER names (server_*.sh;
# default sublet). No test asks which server or which engine it is. Parts:
#   agent       logs, exec, attach, cp, port-forward with an old and a new kubectl; Services, names,
#               policies; the kubelet's own API; restarts of agent and engine
#   containers  what a kubelet adds to containers: init containers, sidecars, env, volumes, tokens,
#               hooks, restarts, security, devices
#   workloads   Job, CronJob, StatefulSet with a volume, DaemonSet, rolling update under load, probes
#   lifecycle   host up and down: again, half-finished, after killed processes, without an engine
# Each line of output is one test; the closing line is "N passed, N failed".
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${SUBLET_BIN:?} clients=${SUBLET_CLIENTS:?}
k=$clients/kubectl-1.36 old=$clients/kubectl-1.29
work=$(mktemp -d /tmp/sublet-suite-XXXXXX)
export HOME=$work/home XDG_STATE_HOME=$work/state KUBECONFIG=$work/kubeconfig
mkdir -p "$HOME"
# shellcheck source=../lib.sh
. "$here/../lib.sh"
# shellcheck source=/dev/null
. "$here/server_${SUBLET_SERVER:-sublet}.sh"
finish() {
  server_down
  awk -v d="$work/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r | xargs -r umount -l 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' TERM INT
pod_field() { $k get pod "$1" -o "jsonpath=$2"; }
process() { "$bin" host status -o json | tr -d ' \n' | sed -n "s/.*\"name\":\"$1\",\"pid\":\([0-9]*\).*/\1/p"; }
inside() { $k exec "$1" -- sh -c "$2"; }

node_up() {
  server_up || return 1
  "$here/load_busybox.sh" sublet.test/busybox:1
  eventually $k get serviceaccount default
}

streams() {  # streams KUBECTL: everything kubectl does with a running container
  local v=${1##*-} c=$1
  check "kubectl $v: exec carries output" "out" "$c" exec web-0 -- sh -c 'echo out'
  refuse "kubectl $v: exec carries the exit code" "exit code 3" "$c" exec web-0 -- sh -c 'exit 3'
  check "kubectl $v: exec carries input" "piped" bash -c "echo piped | $c exec -i web-0 -- cat"
  check "kubectl $v: a megabyte through exec" "$(head -c 1048576 /dev/zero | md5sum | cut -c1-32)" \
    bash -c "head -c 1048576 /dev/zero | $c exec -i web-0 -- md5sum"
  check "kubectl $v: exec in a terminal" "/dev/pts/" script -qec "$c exec -it web-0 -- tty" /dev/null
  refuse "kubectl $v: exec of a missing program" "no/such" "$c" exec web-0 -- /no/such
  check "kubectl $v: logs" "started" "$c" logs web-0
  check "kubectl $v: logs --tail --timestamps" "T" "$c" logs web-0 --tail=1 --timestamps
  check "kubectl $v: logs -f ends with its container" "three" "$c" logs -f talker
  check "kubectl $v: cp to and from" "" bash -c \
    "head -c 300000 /dev/urandom > $work/a && $c cp $work/a web-0:/tmp/a && $c cp web-0:/tmp/a $work/b && cmp $work/a $work/b"
  check "kubectl $v: attach" "got ping" bash -c "(echo ping; sleep 1) | timeout 2 $c attach -i reader-${v//./}; true"
  local port=$((20000 + RANDOM % 10000)) pid
  rm -f "$work/forward"  # or the one before would be read
  "$c" port-forward pod/web-0 "$port:80" >"$work/forward" 2>&1 &
  pid=$!
  eventually grep -q Forwarding "$work/forward"
  check "kubectl $v: port-forward" "hello from web-0" bash -c \
    "for i in 1 2 3 4 5; do curl -s -m 5 http://127.0.0.1:$port/ || exit 1; done"
  kill $pid; wait $pid 2>/dev/null
}

agent() {
  check "a StatefulSet rolls out" "roll out complete" $k rollout status statefulset/web --timeout=60s
  check "pods are ready" "condition met" $k wait --for=condition=Ready pod/reader-136 pod/reader-129 pod/client --timeout=60s
  check "kubelet's status: QoS" Burstable pod_field web-0 '{.status.qosClass}'
  check "kubelet's Events" "Started container" $k get events
  streams $k
  streams $old
  check "port-forward to a deployment's service" "hello from" forward_once service/web
  local ip
  ip=$($k get service web -o 'jsonpath={.spec.clusterIP}')
  within "a pod reaches the Service by address" "hello from" inside client "timeout 5 wget -q -O - http://$ip/"
  check "and by name" "hello from" inside client "timeout 5 wget -q -O - http://web/"
  check "and by name from another namespace" "hello from" $k -n other exec client -- sh -c 'timeout 5 wget -q -O - http://web.default/'
  check "a pod of a headless Service has a name" "hello from web-1" inside client "timeout 5 wget -q -O - http://web-1.web-headless/"
  check "an ExternalName is an alias" "hello from" inside client "timeout 5 wget -q -O - http://alias/"
  check "a pod reaches itself through its Service" "hello from web-0" inside web-0 \
    'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do timeout 5 wget -q -O - http://web/ || exit 1; done'
  check "the machine reaches the Service" "hello from" curl -s -m 5 "http://$ip/"
  check "nodePort on the node's address" "hello from" curl -s -m 5 http://10.244.0.1:30080/
  check "nodePort on 127.0.0.1" "hello from" curl -s -m 5 http://127.0.0.1:30080/
  refuse "a Service without endpoints refuses" "Failed to connect" bash -c "curl -sS -m 5 http://$($k get service nobody -o 'jsonpath={.spec.clusterIP}')/"
  check "a pod reaches the API server" connected inside client \
    'timeout 5 nc -w 2 kubernetes.default 443 </dev/null && echo connected'
  check "no pod reaches the machine's loopback" refused-or-dropped inside client \
    'timeout 2 nc -w 1 127.0.0.1 6443 </dev/null && echo reached || echo refused-or-dropped'

  check "a policy is applied" created $k apply -f "$here/manifests/policy.yaml"
  within "it denies the others" denied inside client 'timeout 2 wget -q -O - http://web/ || echo denied'
  check "and admits the friend" "hello from" inside reader-136 'timeout 5 wget -q -O - http://web/'
  check "the policy is removed" deleted $k delete -f "$here/manifests/policy.yaml"
  within "and the Service is open again" "hello from" inside client 'timeout 2 wget -q -O - http://web/'

  check "stats/summary names pods" web-0 $k get --raw /api/v1/nodes/sublet-host/proxy/stats/summary
  check "metrics/resource" container_memory_working_set_bytes $k get --raw /api/v1/nodes/sublet-host/proxy/metrics/resource

  local id node_ip=10.244.0.1 token
  token=$($k create token stranger)
  check "the kubelet's API wants credentials" 401 curl -sk -m 5 -o /dev/null -w '%{http_code}' https://$node_ip:10250/pods
  check "and rights" 403 curl -sk -m 5 -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" https://$node_ip:10250/pods
  token=$($k create token monitor)
  check "who may sees the pods" '"web-0"' curl -sk -m 5 -H "Authorization: Bearer $token" https://$node_ip:10250/pods
  check "and the summary" '"usageCoreNanoSeconds"' curl -sk -m 5 -H "Authorization: Bearer $token" https://$node_ip:10250/stats/summary

  id=$(pod_field web-0 '{.status.containerStatuses[0].containerID}')
  agent_kill
  check "the Service outlives the agent" "hello from" curl -s -m 5 "http://$ip/"
  check "the agent starts again" "is up" agent_start
  check "the pod was not touched" "$id 0" pod_field web-0 '{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'
  within "exec works again" again $k exec web-0 -- echo again
  check "the engine is killed and started" "" $SUBLET_ENGINE_RESTART
  check "the Service outlives the engine" "hello from" curl -s -m 5 "http://$ip/"
  within "exec works with the new engine" again $k exec web-0 -- echo again
  check "the pod was not touched by that either" "$id 0" pod_field web-0 '{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'
}

# ask NAME: the A records of a name over TCP, asked in pod client, as octets.
ask_tcp() {
  local question="" part
  for part in ${1//./ }; do question+=$(printf '\\%03o%s' ${#part} "$part"); done
  inside client "printf '\\000\\$(printf %03o $((${#1} + 18)))\\022\\064\\001\\000\\000\\001\\000\\000\\000\\000\\000\\000$question\\000\\000\\001\\000\\001' |
    timeout 5 nc -w 2 \$(sed -n 's/^nameserver //p' /etc/resolv.conf | head -n 1) 53 | od -An -tu1 -v | tr -s ' \n' ' '"
}

# A gRPC server that knows grpc.health.v1 and is not ours: etcd, where it is installed.
grpc_probe() {
  local pid
  etcd --data-dir "$work/health" --listen-client-urls http://10.244.0.1:23790 --advertise-client-urls http://10.244.0.1:23790 \
    --listen-peer-urls http://127.0.0.1:23800 --initial-advertise-peer-urls http://127.0.0.1:23800 \
    --initial-cluster default=http://127.0.0.1:23800 >"$work/health.log" 2>&1 &
  pid=$!
  $k apply -f - >/dev/null <<Y
apiVersion: v1
kind: Pod
metadata: {name: graded}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: sublet.test/busybox:1
    command: [sleep, "100000"]
    readinessProbe: {grpc: {port: 23790}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 2}
Y
  check "a gRPC probe is answered" "condition met" $k wait --for=condition=Ready pod/graded --timeout=60s
  kill $pid; wait $pid 2>/dev/null
  check "and is not any more" "condition met" $k wait --for=condition=Ready=false pod/graded --timeout=60s
  $k delete pod graded --wait=false >/dev/null
}

# misfit NAME SPEC: a pod that is put onto the node past the scheduler.
misfit() {
  $k apply -f - >/dev/null <<Y
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec: {nodeName: sublet-host, restartPolicy: Never, containers: [{name: c, image: "sublet.test/busybox:1", $2}], ${3:-}}
Y
}
admission() {  # what a kubelet refuses at the door; pod ported holds 30081
  misfit greedy 'resources: {requests: {cpu: "1000"}}'
  misfit widebody 'resources: {requests: {memory: 64Ti}}'
  misfit gpuless 'resources: {limits: {example.com/none: 1}}'
  misfit second 'ports: [{containerPort: 80, hostPort: 30081}]'
  misfit stray 'command: [sleep, "1"]' 'nodeSelector: {disk: none}'
  within "admission: OutOfcpu" "Failed OutOfcpu Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000" \
    pod_field greedy '{.status.phase} {.status.reason} {.status.message}'
  within "admission: OutOfmemory" "OutOfmemory" pod_field widebody '{.status.reason}'
  within "admission: a resource the node lacks" "OutOfexample.com/none" pod_field gpuless '{.status.reason}'
  within "admission: a host port that is taken" "NodePorts Pod was rejected: Predicate NodePorts failed" pod_field second '{.status.reason} {.status.message}'
  within "admission: labels" "NodeAffinity" pod_field stray '{.status.reason}'
  check "admission: nothing of them ran" "none" bash -c "echo \"\$($k get pod greedy second stray -o 'jsonpath={.items[*].status.containerStatuses}')none\""
  within "admission: an Event" "OutOfcpu" $k get events --field-selector involvedObject.name=greedy
  $k delete pod greedy widebody gpuless second stray --wait=false >/dev/null
}

containers() {
  check "names by UDP" "$($k get service web -o 'jsonpath={.spec.clusterIP}')" inside client 'nslookup web.default.svc.cluster.local | tail -n +3'
  local octets
  octets=$($k get service web -o 'jsonpath={.spec.clusterIP}')
  check "names by TCP" "${octets//./ }" ask_tcp web.default.svc.cluster.local
  check "init containers, sidecar and containers in order" "first side second" bash -c \
    "$k wait --for=jsonpath={.status.phase}=Succeeded pod/stages --timeout=60s >/dev/null; $k logs stages -c main"
  check "the pod ended in spite of its sidecar" "PodCompleted" pod_field stages '{.status.conditions[?(@.type=="Ready")].reason}'

  check "pod facts is ready" "condition met" $k wait --for=condition=Ready pod/facts --timeout=60s
  local address
  address=$(pod_field facts '{.status.podIP}')
  check "env: references" "one 2 sesame facts $address sublet-host red 48 facts-red-\$(NODE)" \
    inside facts 'echo $SET_value $SET_other $WORD $POD $ADDRESS $NODE $COLOR $MIB "$BOTH"'
  check "env: Services" "$($k get service web -o 'jsonpath={.spec.clusterIP}') 80" inside facts 'echo $WEB_SERVICE_HOST $WEB_SERVICE_PORT'
  check "volumes: files and modes" "one sesame 400 color=\"red\" 2" \
    inside facts 'echo $(cat /settings/value) $(cat /hidden/word) $(stat -L -c %a /hidden/word) $(cat /about/labels) $(cat /token/also)'
  check "volumes: memory" "tmpfs" inside facts 'df /memory'
  check "limits reach the cgroup" "50331648" inside facts 'cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max'
  check "the token is for its audience" '["somebody"]' bash -c \
    "$k exec facts -- cat /token/token | cut -d. -f2 | tr '_-' '/+' | sed 's/\$/==/' | base64 -d 2>/dev/null | grep -o '\"aud\":\[[^]]*]'"
  check "the API server knows the pod's own token" "system:serviceaccount:default:default" bash -c \
    "$k --token=\$($k exec facts -- cat /var/run/secrets/kubernetes.io/serviceaccount/token) --kubeconfig=/dev/null -s \$($k config view --minify -o 'jsonpath={.clusters[0].cluster.server}') --insecure-skip-tls-verify auth whoami"
  $k patch configmap settings -p '{"data":{"value":"two"}}' >/dev/null
  $k patch secret hidden -p '{"stringData":{"word":"simsim"}}' >/dev/null
  $k label pod facts color=blue --overwrite >/dev/null
  within "live: a ConfigMap's change" two inside facts 'cat /settings/value'
  within "live: a Secret's change" simsim inside facts 'cat /hidden/word'
  within "live: a label's change" 'color="blue"' inside facts 'cat /about/labels'

  within "a crashing container waits longer and longer" CrashLoopBackOff pod_field crash '{.status.containerStatuses[0].state.waiting.reason}'
  within "its last end is told" "3 why" pod_field crash '{.status.containerStatuses[0].lastState.terminated.exitCode} {.status.containerStatuses[0].lastState.terminated.message}'
  within "its log before is there" attempt $k logs crash --previous
  check "an Event says so" "Back-off restarting failed container" $k get events --field-selector involvedObject.name=crash

  check "pod hooked is ready" "condition met" $k wait --for=condition=Ready pod/hooked --timeout=60s
  ($k logs -f hooked >"$work/hooked" 2>&1) &
  local follower=$!
  eventually grep -q "after start" "$work/hooked"
  $k delete pod hooked >/dev/null
  wait $follower
  check "hooks and signal in order" "after start before stop got TERM" bash -c "tr '\\n' ' ' <$work/hooked"

  $k wait --for=jsonpath='{.status.phase}'=Succeeded pod/careful --timeout=60s >/dev/null
  local said
  said=$($k logs careful)
  check "security: user and groups" "groups=2000" echo $said
  check "security: no capabilities" "CapEff: 0000000000000000 NoNewPrivs: 1" echo $said
  check "security: the group owns the volume" " 1000 2000 " echo $said
  check "security: read-only root" "read-only" echo $said

  check "pod ported is ready" "condition met" $k wait --for=condition=Ready pod/ported --timeout=60s
  admission
  check "hostNetwork: the node's address" "$(pod_field hosted '{.status.hostIP}')" pod_field hosted '{.status.podIP}'
  check "hostNetwork: the node's links" "sublet0" inside hosted 'ip -o link'
  within "hostPort" "by host port" curl -s -m 5 http://10.244.0.1:30081/
  within "a pod past its deadline" "DeadlineExceeded" pod_field late '{.status.reason}'
  within "an unknown RuntimeClass is an Event" "nowhere" bash -c "$k get events --field-selector involvedObject.name=classy,type=Warning -o 'jsonpath={.items[*].message}'"
  within "a device specification: env" "made for all" $k logs device
  check "a device specification: mount" "from the machine" $k logs device
  check "a device specification: device" "crw" $k logs device
  within "a pod out of memory says so" "OOMKilled 137" pod_field hungry '{.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode}'
  within "an image that cannot be had" ImagePullBackOff pod_field unpullable '{.status.containerStatuses[0].state.waiting.reason}'
  check "a debug container sees its target" "sleep" $k debug client-box --image=sublet.test/busybox:1 --target=c -q -i -- sh -c 'sleep 1; ps'
  within "its status is there" "terminated" pod_field client-box '{.status.ephemeralContainerStatuses[0].state}'
  command -v etcd >/dev/null && grpc_probe
  check "logs by bytes" "4" bash -c "$k logs web-0 --limit-bytes=4 | wc -c"
  check "logs by time" "0" bash -c "$k logs web-0 --since-time=2100-01-01T00:00:00Z | wc -c"
}

forward_once() {
  local port=$((20000 + RANDOM % 10000)) pid rc
  rm -f "$work/forward"
  $k port-forward "$1" "$port:80" >"$work/forward" 2>&1 &
  pid=$!
  eventually grep -q Forwarding "$work/forward"
  curl -s -m 5 "http://127.0.0.1:$port/"
  rc=$?
  kill $pid; wait $pid 2>/dev/null
  return $rc
}

rollouts() {  # kubectl's own commands, on what `workloads` rolled out
  check "rollout history" "3" $k rollout history deployment/app
  check "rollout history of a revision" "VERSION" $k rollout history deployment/app --revision=2
  check "rollout undo to a revision" "rolled back" $k rollout undo deployment/app --to-revision=2
  check "it is that one again" "2" $k get deployment app -o 'jsonpath={.spec.template.spec.containers[0].env[?(@.name=="VERSION")].value}'
  check "rollout pause" "paused" $k rollout pause deployment/app
  check "a change while paused" "env updated" $k set env deployment/app VERSION=3
  refuse "rollout restart wants it resumed" "can't restart paused deployment" $k rollout restart deployment/app
  within "nothing is rolled out" "DeploymentPaused" $k get deployment app -o 'jsonpath={.status.conditions[?(@.type=="Progressing")].reason}'
  check "nothing is made" "0" bash -c "$k get pods -l app=app -o 'jsonpath={.items[*].spec.containers[0].env[*].value}' | tr ' ' '\\n' | grep -cx 3; true"
  check "rollout resume" "resumed" $k rollout resume deployment/app
  check "rollout status" "successfully rolled out" $k rollout status deployment/app --timeout=120s
  check "rollout restart of a DaemonSet" "restarted" $k rollout restart daemonset/everywhere
  check "its status" "successfully rolled out" $k rollout status daemonset/everywhere --timeout=120s
  check "its history" "2" $k rollout history daemonset/everywhere
  check "its undo" "rolled back" $k rollout undo daemonset/everywhere
  check "rollout restart of a StatefulSet" "restarted" $k rollout restart statefulset/keeper
  check "its status too" "complete" $k rollout status statefulset/keeper --timeout=120s
  check "its history too" "2" $k rollout history statefulset/keeper
}

workloads() {
  check "a Job completes" "condition met" $k wait --for=condition=Complete job/sum --timeout=60s
  check "its log is there" 5050 $k logs job/sum
  check "a failing Job fails" "condition met" $k wait --for=condition=Failed job/broken --timeout=60s
  check "a DaemonSet covers the node" "successfully rolled out" $k rollout status daemonset/everywhere --timeout=60s
  check "a StatefulSet with a volume" "roll out complete" $k rollout status statefulset/keeper --timeout=60s
  check "writes to its volume" "" inside keeper-0 'echo kept > /data/file'
  check "its pod is deleted" deleted $k delete pod keeper-0
  within "the new one has the data" kept inside keeper-0 'cat /data/file'

  check "the deployment is up" "successfully rolled out" $k rollout status deployment/app --timeout=60s
  local ip
  ip=$($k get service app -o 'jsonpath={.spec.clusterIP}')
  eventually curl -s -m 2 "http://$ip/"
  : >"$work/load"
  (
    while [ ! -e "$work/stop" ]; do
      curl -s -m 5 -o /dev/null -w '%{http_code}\n' "http://$ip/" >>"$work/load" || echo failed >>"$work/load"
    done
  ) &
  local load=$! before
  check "a rolling update" "env updated" $k set env deployment/app VERSION=2
  check "is rolled out" "successfully rolled out" $k rollout status deployment/app --timeout=120s
  touch "$work/stop"
  wait $load
  check "under load, without a failed request" "0 failed of" bash -c \
    "echo \$(grep -cv '^200' $work/load) failed of \$(wc -l < $work/load); [ \$(wc -l < $work/load) -gt 20 ]"
  check "rollback" "rolled back" $k rollout undo deployment/app
  check "is rolled out too" "successfully rolled out" $k rollout status deployment/app --timeout=120s
  rollouts

  check "a probed pod is ready" "condition met" $k wait --for=condition=Ready pod/probed --timeout=60s
  within "it is an endpoint" "$(pod_field probed '{.status.podIP}')" $k get endpoints probed -o 'jsonpath={.subsets[0].addresses[0].ip}'
  check "its readiness goes" "" inside probed 'rm /tmp/ready'
  within "it is no endpoint any more" "" bash -c "[ -z \"\$($k get endpoints probed -o 'jsonpath={.subsets[0].addresses}')\" ]"
  check "its readiness comes back" "" inside probed 'touch /tmp/ready'
  within "it is an endpoint again" "$(pod_field probed '{.status.podIP}')" $k get endpoints probed -o 'jsonpath={.subsets[0].addresses[0].ip}'
  before=$(pod_field probed '{.status.containerStatuses[0].restartCount}')
  check "its liveness goes" "" inside probed 'rm /tmp/alive'
  within "it is restarted" $((before + 1)) pod_field probed '{.status.containerStatuses[0].restartCount}'
  within "a CronJob makes a Job" "ticks-" $k get jobs -l app=ticks -o name
  check "everything goes" deleted $k delete -f "$here/manifests" --wait=true --ignore-not-found --timeout=90s
  within "and no container is left" "[]" curl -s --unix-socket "$SUBLET_ENGINE_SOCKET" 'http://d/v1.41/containers/json?all=1'
}

leftovers() {  # what a host may leave on the machine, one per line; nothing is right
  ip -br link | grep -E '^(slt|sublet0)'
  nft list tables 2>/dev/null | grep sublet
  awk -v d="$work" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo
  curl -s --unix-socket "$SUBLET_ENGINE_SOCKET" 'http://d/v1.41/containers/json?all=1' | grep -o '"Id":"[0-9a-f]*"'
  ls -A "$XDG_STATE_HOME/sublet" 2>/dev/null
  $k config get-contexts -o name 2>/dev/null | grep sublet
  true
}

# The engine that `host up` starts itself where none is running: killed, and lost in a reboot.
own_engine() {
  local id pid
  check "up with an engine of its own" "is up" env -u SUBLET_ENGINE_SOCKET "$bin" host up --engine podman --nodes 2
  SUBLET_ENGINE_SOCKET=$XDG_STATE_HOME/sublet/host/engine/podman.sock "$here/load_busybox.sh" sublet.test/busybox:1
  eventually $k get serviceaccount default
  check "a pod there" "condition met" bash -c "$k run lasting --image=sublet.test/busybox:1 --overrides='{\"spec\":{\"nodeName\":\"sublet-host\"}}' -- sleep 100000 >/dev/null &&
    $k wait --for=condition=Ready pod/lasting --timeout=60s"
  id=$(pod_field lasting '{.status.containerStatuses[0].containerID}')
  kill -9 "$(process engine)"
  check "up after the engine was killed" "container engine serves again" env -u SUBLET_ENGINE_SOCKET "$bin" host up
  check "its pod was not touched" "$id" pod_field lasting '{.status.containerStatuses[0].containerID}'
  # As after a reboot: no process, link, rule or mount is left, and the kernel has another boot id.
  for pid in $(process serve) $(process node) $(process nodes) $(process engine) $(grep -l "$work/state" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3) \
    $(grep -ls libpod- /proc/[0-9]*/cgroup | cut -d/ -f3); do
    grep -qsF "$(readlink /proc/self/ns/net)" <(readlink /proc/"$pid"/ns/net /proc/"$(cut -d' ' -f4 /proc/"$pid"/stat 2>/dev/null)"/ns/net 2>/dev/null) &&
      kill -9 "$pid" 2>/dev/null
  done
  ip -br link | grep -oE '^(slt[0-9a-f]+|sublet0)' | xargs -r -n 1 ip link del 2>/dev/null
  nft delete table ip sublet
  awk -v d="$work" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r | xargs -r umount -l
  sed -i 's/"bootId": "[^"]*"/"bootId": "another"/' "$XDG_STATE_HOME/sublet/host/host.json"
  check "up after a reboot" "is up" env -u SUBLET_ENGINE_SOCKET "$bin" host up
  within "its pod runs again" "1 true" pod_field lasting '{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}'
  check "and answers" back $k exec lasting -- echo back
  within "its simulated nodes too" "sim-1 True" $k get nodes -o 'jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {end}'
  check "down with an engine of its own" "gone" "$bin" host down
  check "which leaves nothing either, its engine included" "nothing" bash -c "$(declare -f leftovers); work=$work k=$k; [ -z \"\$(leftovers)\" ] && echo nothing || leftovers"
}

status_parts() {  # status_parts UP: the parts of the host as `status -o json` names them, all alive
  "$bin" host status -o json | python3 -c '
import json, sys
status = json.load(sys.stdin)
assert str(status["up"]) == sys.argv[1] and status["api"].startswith("https://127.0.0.1:"), status
assert all(part["alive"] and part["pid"] > 1 for part in status["processes"]), status
assert isinstance(status["gpus"], int) and status["engineSocket"], status
print(*(part["name"] for part in status["processes"]))' "$1"
}

lifecycle() {
  check "a second up changes nothing" "up already" "$bin" host up
  check "status" "answers" "$bin" host status
  check "status as JSON names every part" "serve node" status_parts True
  check "logs" "node agent runs" "$bin" host logs node
  "$bin" host logs serve --follow >"$work/followed" 2>&1 &
  local follower=$!
  # A tenant is its StatefulSet on the host.
  $k apply -f - >/dev/null <<Y
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: guest, labels: {app: sublet}}
spec:
  replicas: 0
  serviceName: guest
  selector: {matchLabels: {app: sublet, release: guest}}
  template: {metadata: {labels: {app: sublet, release: guest}}, spec: {containers: [{name: c, image: "sublet.test/busybox:1"}]}}
Y
  refuse "down with a tenant there names it and wants --force" "the host has tenants: guest" "$bin" host down
  check "nothing was touched" "answers" "$bin" host status
  local said
  said=$(wc -l <"$work/followed")
  kill -9 "$(process serve)"
  refuse "status after the control plane was killed" "sublet host up" "$bin" host status
  refuse "its JSON is printed all the same, and the exit says it" '"up": false' "$bin" host status -o json
  check "up after the control plane was killed" "is up" "$bin" host up
  check "the followed log goes on with the new control plane" "" eventually bash -c "[ \$(wc -l <$work/followed) -gt $said ]"
  check "with simulated nodes" "is up" bash -c "'$bin' host down --force && '$bin' host up --nodes 3"
  check "and ends with the host" "" eventually bash -c "! kill -0 $follower"
  kill $follower 2>/dev/null; wait $follower
  within "they are Ready" "sim-2" $k get nodes
  check "down" "gone" "$bin" host down
  check "down leaves nothing" "nothing" bash -c "$(declare -f leftovers); work=$work k=$k; [ -z \"\$(leftovers)\" ] && echo nothing || leftovers"
  check "a second down has nothing to do" "nothing to do" "$bin" host down
  refuse "up on a socket that nobody serves" "no container engine" env SUBLET_ENGINE_SOCKET=/no/such.sock "$bin" host up
  own_engine
  # A half-finished up: killed in the middle, at a different step each time.
  local i
  for i in 0.05 0.2 0.4; do
    timeout -s KILL $i "$bin" host up >/dev/null 2>&1
    check "up after an up that was killed after $i s" "is up" "$bin" host up
    check "and down" "gone" "$bin" host down --force
  done
  check "which leaves nothing either" "nothing" bash -c "$(declare -f leftovers); work=$work k=$k; [ -z \"\$(leftovers)\" ] && echo nothing || leftovers"
}

make_device_specification() {
  mkdir -p "$cdi_dir"
  echo "from the machine" >"$work/thing"
  cat >"$cdi_dir/test.json" <<CDI
{"cdiVersion": "0.6.0", "kind": "sublet.test/thing",
 "containerEdits": {"env": ["EVERY=for all"]},
 "devices": [{"name": "one", "containerEdits": {"env": ["THING=made"],
   "mounts": [{"hostPath": "$work/thing", "containerPath": "/thing/file", "options": ["ro", "bind"]}],
   "deviceNodes": [{"path": "/dev/thing", "hostPath": "/dev/null"}]}}]}
CDI
}

if node_up; then
  pass "$server_name and a Ready node"
  make_device_specification
  # All at once: what takes its time does so while other tests run.
  if [ "$*" != lifecycle ]; then
    check "everything applied" created $k apply -f "$here/manifests/web.yaml" -f "$here/manifests/workloads.yaml" \
      -f "$here/manifests/containers.yaml"
  fi
  for part in "$@"; do
    $part
  done
else
  fail "$server_name and a Ready node"
fi
[ $failed -gt 0 ] && agent_log
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
