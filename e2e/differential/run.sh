#!/usr/bin/env bash
# The same requests to upstream's kube-apiserver 1.36.1 and to `sublet serve --api-only`: codes,
# messages, warnings and bodies are equal, but for the entries of allowed.json. Under --full only:
# upstream is 119 MB of Go. Needs SUBLET_BIN; SUBLET_UPSTREAM names a folder with kube-apiserver, or
# e2e/upstream/build.sh makes one in build/upstream. Arguments go to run.py (--only TEXT, --width N).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${SUBLET_FULL:-}" ]; then
  echo "not run: compares with a real kube-apiserver, which takes minutes to build; use tools/test.sh --full"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
bin=${SUBLET_BIN:?path of the sublet executable}
upstream=${SUBLET_UPSTREAM:-$here/../../build/upstream}
[ -x "$upstream/kube-apiserver" ] || "$here/../upstream/build.sh" "$upstream" server || exit 1
work=$(mktemp -d)
pids=()
stop() {
  # Upstream without its etcd would wait for it: nothing of it is needed again.
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null; done
  rm -rf "$work"
}
trap stop EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# answers URL: 200 within a minute.
answers() {
  for _ in $(seq 300); do
    curl -fsk --max-time 2 --cert "$work/client-certificate.pem" --key "$work/client-key.pem" \
      -o /dev/null "$1" 2>/dev/null && return
    sleep 0.2
  done
  echo "no answer from $1"
  tail -n 20 "$work"/*.log
  echo "0 passed, 1 failed"
  exit 1
}

etcd=$(free_port) peer=$(free_port) port=$(free_port) ours=$(free_port)
etcd --data-dir "$work/etcd" --listen-client-urls "http://127.0.0.1:$etcd" \
  --advertise-client-urls "http://127.0.0.1:$etcd" --listen-peer-urls "http://127.0.0.1:$peer" \
  --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "default=http://127.0.0.1:$peer" \
  >"$work/etcd.log" 2>&1 &
pids+=($!)
"$bin" serve --data-dir "$work/ours" --listen "127.0.0.1:$ours" --api-only \
  --write-kubeconfig "$work/kubeconfig" >"$work/ours.log" 2>&1 &
pids+=($!)
for _ in $(seq 100); do [ -s "$work/kubeconfig" ] && break; sleep 0.05; done
field() { sed -nE "s/^ *$1: //p" "$work/kubeconfig" | tr -d '"'; }
for name in certificate-authority client-certificate client-key; do
  field "$name-data" | base64 -d >"$work/$name.pem"
done
openssl ecparam -name prime256v1 -genkey -noout -out "$work/sa.key" 2>/dev/null
openssl ec -in "$work/sa.key" -pubout -out "$work/sa.pub" 2>/dev/null
# Both let the same client certificate in, so that the caller is the same one.
"$upstream/kube-apiserver" --etcd-servers "http://127.0.0.1:$etcd" --secure-port "$port" \
  --bind-address 127.0.0.1 --external-hostname 127.0.0.1 --cert-dir "$work/certs" --endpoint-reconciler-type none \
  --service-account-key-file "$work/sa.pub" --service-account-signing-key-file "$work/sa.key" \
  --service-account-issuer https://kubernetes.default.svc.cluster.local --authorization-mode Node,RBAC \
  --enable-admission-plugins NodeRestriction --client-ca-file "$work/certificate-authority.pem" \
  --service-cluster-ip-range 10.96.0.0/12 --allow-privileged >"$work/upstream.log" 2>&1 &
pids+=($!)
answers "https://127.0.0.1:$port/readyz"
# Upstream's own first objects come after /readyz.
answers "https://127.0.0.1:$port/api/v1/namespaces/default/services/kubernetes"

python3 "$here/run.py" --requests "$here/requests" --allowed "$here/allowed.json" \
  --ours "$(field server)" --upstream "https://127.0.0.1:$port" \
  --login "$work/client-certificate.pem,$work/client-key.pem,$work/certificate-authority.pem" "$@"
