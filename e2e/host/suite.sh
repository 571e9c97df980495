#!/usr/bin/env bash
# suite.sh PART...: the tests of the embedded host, started by private_engine.sh. Parts:
#   agent      logs, exec, attach, cp, port-forward with an old and a new kubectl; restarts of agent
#              and engine; Services, names, policies
#   workloads  Job, CronJob, StatefulSet with a volume, DaemonSet, rolling update under load, probes
#   lifecycle  host up and down: again, half-finished, after killed processes, without an engine
# Each line of output is one test; the closing line is "N passed, N failed".
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${SUBLET_BIN:?} clients=${SUBLET_CLIENTS:?}
k=$clients/kubectl-1.36 old=$clients/kubectl-1.29
work=$(mktemp -d)
export HOME=$work/home XDG_STATE_HOME=$work/state KUBECONFIG=$work/kubeconfig
mkdir -p "$HOME"
passed=0 failed=0
trap '"$bin" host down --force >/dev/null 2>&1; rm -rf "$work"' EXIT

pass() { passed=$((passed + 1)); printf 'ok    %s\n' "$1"; }
fail() { failed=$((failed + 1)); printf 'FAIL  %s\n%s\n' "$1" "${2:-}"; }
# check NAME WANTED COMMAND...: the command succeeds and its output contains WANTED.
check() {
  local name=$1 wanted=$2 out
  shift 2
  if out=$("$@" 2>&1) && [[ $out == *"$wanted"* ]]; then pass "$name"; else fail "$name" "$out"; fi
}
# refuse NAME WANTED COMMAND...: the command fails and says WANTED.
refuse() {
  local name=$1 wanted=$2 out
  shift 2
  if ! out=$("$@" 2>&1) && [[ $out == *"$wanted"* ]]; then pass "$name"; else fail "$name" "$out"; fi
}
# within NAME WANTED COMMAND...: as check, tried for 60 seconds.
within() {
  local name=$1 wanted=$2 out=""
  shift 2
  for _ in $(seq 300); do
    if out=$("$@" 2>&1) && [[ $out == *"$wanted"* ]]; then pass "$name"; return 0; fi
    sleep 0.2
  done
  fail "$name" "$out"
  return 1
}
# eventually COMMAND...: true within 60 seconds.
eventually() {
  for _ in $(seq 300); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.2
  done
  return 1
}
pod_field() { $k get pod "$1" -o "jsonpath=$2"; }
process() { "$bin" host status -o json | tr -d ' \n' | sed -n "s/.*\"name\":\"$1\",\"pid\":\([0-9]*\).*/\1/p"; }
inside() { $k exec "$1" -- sh -c "$2"; }

host_up() {
  "$bin" host up >"$work/up.log" 2>&1 || { cat "$work/up.log"; "$bin" host logs node 2>&1 | tail -n 20; return 1; }
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
  refuse "kubectl $v: exec of a missing program" "not found" "$c" exec web-0 -- /no/such
  check "kubectl $v: logs" "started" "$c" logs web-0
  check "kubectl $v: logs --tail --timestamps" "T" "$c" logs web-0 --tail=1 --timestamps
  check "kubectl $v: logs -f ends with its container" "three" "$c" logs -f talker
  check "kubectl $v: cp to and from" "" bash -c \
    "head -c 300000 /dev/urandom > $work/a && $c cp $work/a web-0:/tmp/a && $c cp web-0:/tmp/a $work/b && cmp $work/a $work/b"
  check "kubectl $v: attach" "got ping" bash -c "(echo ping; sleep 1) | timeout 4 $c attach -i reader-${v//./}; true"
  local port=$((20000 + RANDOM % 10000)) pid
  "$c" port-forward pod/web-0 "$port:80" >"$work/forward" 2>&1 &
  pid=$!
  eventually grep -q Forwarding "$work/forward"
  check "kubectl $v: port-forward" "hello from web-0" bash -c \
    "for i in 1 2 3 4 5; do curl -s -m 5 http://127.0.0.1:$port/ || exit 1; done"
  kill $pid; wait $pid 2>/dev/null
}

agent() {
  check "web app applied" created $k apply -f "$here/manifests/web.yaml"
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

  local id agent_pid
  id=$(pod_field web-0 '{.status.containerStatuses[0].containerID}')
  agent_pid=$(process node)
  kill -9 "$agent_pid"
  check "the Service outlives the agent" "hello from" curl -s -m 5 "http://$ip/"
  check "up again after the agent was killed" "is up" "$bin" host up
  check "the pod was not touched" "$id 0" pod_field web-0 '{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'
  within "exec works again" again $k exec web-0 -- echo again
  check "the engine is killed and started" "" $SUBLET_ENGINE_RESTART
  check "the Service outlives the engine" "hello from" curl -s -m 5 "http://$ip/"
  within "exec works with the new engine" again $k exec web-0 -- echo again
  check "the pod was not touched by that either" "$id 0" pod_field web-0 '{.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'
  check "pods go" deleted $k delete -f "$here/manifests/web.yaml" --wait=true
}

forward_once() {
  local port=$((20000 + RANDOM % 10000)) pid rc
  $k port-forward "$1" "$port:80" >"$work/forward" 2>&1 &
  pid=$!
  eventually grep -q Forwarding "$work/forward"
  curl -s -m 5 "http://127.0.0.1:$port/"
  rc=$?
  kill $pid; wait $pid 2>/dev/null
  return $rc
}

workloads() {
  check "workloads applied" created $k apply -f "$here/manifests/workloads.yaml"
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
  local load=$!
  check "a rolling update" "env updated" $k set env deployment/app VERSION=2
  check "is rolled out" "successfully rolled out" $k rollout status deployment/app --timeout=120s
  touch "$work/stop"
  wait $load
  check "under load, without a failed request" "0 failed of" bash -c \
    "echo \$(grep -cv '^200' $work/load) failed of \$(wc -l < $work/load); [ \$(wc -l < $work/load) -gt 20 ]"
  check "rollback" "rolled back" $k rollout undo deployment/app
  check "is rolled out too" "successfully rolled out" $k rollout status deployment/app --timeout=120s

  check "a probed pod is ready" "condition met" $k wait --for=condition=Ready pod/probed --timeout=60s
  within "it is an endpoint" "$(pod_field probed '{.status.podIP}')" $k get endpoints probed -o 'jsonpath={.subsets[0].addresses[0].ip}'
  check "its readiness goes" "" inside probed 'rm /tmp/ready'
  within "it is no endpoint any more" "" bash -c "[ -z \"\$($k get endpoints probed -o 'jsonpath={.subsets[0].addresses}')\" ]"
  check "its readiness comes back" "" inside probed 'touch /tmp/ready'
  within "it is an endpoint again" "$(pod_field probed '{.status.podIP}')" $k get endpoints probed -o 'jsonpath={.subsets[0].addresses[0].ip}'
  check "its liveness goes" "" inside probed 'rm /tmp/alive'
  within "it is restarted" 1 pod_field probed '{.status.containerStatuses[0].restartCount}'
  within "a pod that cannot be pulled says so" ImagePullBackOff pod_field unpullable '{.status.containerStatuses[0].state.waiting.reason}'
  within "a pod out of memory says so" OOMKilled pod_field hungry '{.status.containerStatuses[0].state.terminated.reason}'
  check "a debug container" "sleep" $k debug client-box --image=sublet.test/busybox:1 --target=c -q -i -- ps
  within "a ConfigMap's change arrives in the volume" two config_change
  within "a CronJob makes a Job" "ticks-" $k get jobs -l app=ticks -o name
  check "workloads go" deleted $k delete -f "$here/manifests/workloads.yaml" --wait=true
}

config_change() {
  $k create configmap settings --from-literal=value=two --dry-run=client -o yaml | $k apply -f - >/dev/null 2>&1
  inside client-box 'cat /settings/value'
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

lifecycle() {
  check "a second up changes nothing" "up already" "$bin" host up
  check "status" "answers" "$bin" host status
  check "logs" "node agent runs" "$bin" host logs node
  kill -9 "$(process serve)"
  refuse "status after the control plane was killed" "sublet host up" "$bin" host status
  check "up after the control plane was killed" "is up" "$bin" host up
  check "with simulated nodes" "is up" bash -c "'$bin' host down --force && '$bin' host up --nodes 3"
  within "they are Ready" "sim-2" $k get nodes
  check "down" "gone" "$bin" host down
  check "down leaves nothing" "nothing" bash -c "$(declare -f leftovers); work=$work k=$k; [ -z \"\$(leftovers)\" ] && echo nothing || leftovers"
  check "a second down has nothing to do" "nothing to do" "$bin" host down
  refuse "up on a socket that nobody serves" "no container engine" env SUBLET_ENGINE_SOCKET=/no/such.sock "$bin" host up
  # A half-finished up: killed in the middle, at a different step each time.
  local i
  for i in 0.05 0.2 0.4; do
    timeout -s KILL $i "$bin" host up >/dev/null 2>&1
    check "up after an up that was killed after $i s" "is up" "$bin" host up
    check "and down" "gone" "$bin" host down --force
  done
  check "which leaves nothing either" "nothing" bash -c "$(declare -f leftovers); work=$work k=$k; [ -z \"\$(leftovers)\" ] && echo nothing || leftovers"
}

if host_up; then
  pass "host up"
  for part in "$@"; do
    $part
  done
else
  fail "host up"
fi
if [ $failed -gt 0 ]; then
  for log in serve node; do
    echo "---- $log"
    tail -n 25 "$XDG_STATE_HOME/sublet/host/logs/$log.log" 2>/dev/null
  done
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
