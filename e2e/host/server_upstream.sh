# server_upstream.sh: sourced by suite.sh. Upstream's etcd, kube-apiserver, kube-controller-manager and
# kube-scheduler (folder SUBLET_UPSTREAM) with `sublet node` as their one node, which has a node's
# certificate and the rights in manifests/host/node-network.yaml, nothing else.
server_name="upstream's API server"
cdi_dir=$work/cdi
up=$work/upstream
api=https://127.0.0.1:6443

leaf() {  # leaf NAME SUBJECT [EXTENSION]: a key and a certificate of the authority
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$up/$1.key" \
    -out "$up/$1.csr" 2>/dev/null
  openssl x509 -req -in "$up/$1.csr" -CA "$up/ca.crt" -CAkey "$up/ca.key" -CAcreateserial -days 2 \
    -extfile <(printf '%s\n' "${3:-extendedKeyUsage=clientAuth}") -out "$up/$1.crt" 2>/dev/null
}
kubeconfig() {  # kubeconfig FILE NAME...: a context per certificate, the first is current
  local file=$1 name
  shift
  {
    printf 'apiVersion: v1\nkind: Config\ncurrent-context: %s\nclusters:\n' "$1"
    printf -- '- {name: up, cluster: {server: "%s", certificate-authority: "%s"}}\ncontexts:\n' "$api" "$up/ca.crt"
    for name in "$@"; do printf -- '- {name: %s, context: {cluster: up, user: %s}}\n' "$name" "$name"; done
    printf 'users:\n'
    for name in "$@"; do
      printf -- '- {name: %s, user: {client-certificate: "%s", client-key: "%s"}}\n' "$name" "$up/$name.crt" "$up/$name.key"
    done
  } >"$file"
}
daemon() {  # daemon NAME COMMAND...
  local name=$1
  shift
  "$@" >>"$up/$name.log" 2>&1 &
  echo $! >"$up/$name.pid"
  disown
}

server_up() {
  mkdir -p "$up" "$cdi_dir"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=up-ca \
    -keyout "$up/ca.key" -out "$up/ca.crt" 2>/dev/null
  openssl genrsa -out "$up/sa.key" 2048 2>/dev/null
  openssl rsa -in "$up/sa.key" -pubout -out "$up/sa.pub" 2>/dev/null
  leaf serving /CN=kube-apiserver \
    'subjectAltName=IP:127.0.0.1,IP:10.96.0.1,IP:10.244.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local'
  leaf admin /O=system:masters/CN=admin
  leaf kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
  leaf controllers /CN=system:kube-controller-manager
  leaf scheduler /CN=system:kube-scheduler
  leaf node /O=system:nodes/CN=system:node:sublet-host
  leaf network /CN=sublet:node-network
  kubeconfig "$KUBECONFIG" admin
  kubeconfig "$up/controllers.conf" controllers
  kubeconfig "$up/scheduler.conf" scheduler
  kubeconfig "$up/node.conf" node network

  daemon etcd etcd --data-dir "$up/etcd" --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync
  daemon apiserver "$SUBLET_UPSTREAM/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
    --bind-address=0.0.0.0 --advertise-address=10.244.0.1 --secure-port=6443 --cert-dir="$up/apiserver" \
    --tls-cert-file="$up/serving.crt" --tls-private-key-file="$up/serving.key" --client-ca-file="$up/ca.crt" \
    --kubelet-client-certificate="$up/kubelet-client.crt" --kubelet-client-key="$up/kubelet-client.key" \
    --service-account-key-file="$up/sa.pub" --service-account-signing-key-file="$up/sa.key" \
    --service-account-issuer=https://kubernetes.default.svc --authorization-mode=Node,RBAC \
    --enable-admission-plugins=NodeRestriction --service-cluster-ip-range=10.96.0.0/12 --allow-privileged \
    --kubelet-preferred-address-types=InternalIP,Hostname
  eventually $k get --raw /readyz || { tail -n 30 "$up/apiserver.log" "$up/etcd.log"; return 1; }
  daemon controllers "$SUBLET_UPSTREAM/kube-controller-manager" --kubeconfig="$up/controllers.conf" \
    --service-account-private-key-file="$up/sa.key" --root-ca-file="$up/ca.crt" \
    --use-service-account-credentials=true --leader-elect=false
  daemon scheduler "$SUBLET_UPSTREAM/kube-scheduler" --kubeconfig="$up/scheduler.conf" --leader-elect=false
  $k apply -f "$here/../../manifests/host/node-network.yaml" -f "$here/upstream/volumes.yaml" >/dev/null || return 1
  agent_start >/dev/null
}
node_arguments=(node --kubeconfig "$up/node.conf" --context node --network-context network
  --engine "$SUBLET_ENGINE_SOCKET" --node-name sublet-host --state-dir "$work/node" --pod-net 10.244.0.0/16
  --service-net 10.96.0.0/12 --cdi-dir "$cdi_dir" --client-ca "$up/ca.crt")
agent_kill() { kill -9 "$(cat "$up/node.pid")"; }
agent_start() {
  daemon node "$bin" "${node_arguments[@]}"
  eventually bash -c "$k get node sublet-host -o 'jsonpath={.status.conditions[?(@.type==\"Ready\")].status}' | grep -q True" &&
    echo "is up"
}
agent_log() {
  local log
  for log in apiserver controllers node; do
    echo "---- $log"
    tail -n 25 "$up/$log.log" 2>/dev/null
  done
}
server_down() {
  local name pid
  for name in node scheduler controllers apiserver etcd; do
    pid=$(cat "$up/$name.pid" 2>/dev/null) || continue
    kill "$pid" 2>/dev/null
    for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$pid" 2>/dev/null
  done
  "$bin" "${node_arguments[@]}" --cleanup >/dev/null 2>&1
}
