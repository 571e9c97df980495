#!/usr/bin/env bash
# The API as real clients see it: kubectl 1.29 and 1.36, helm 3 and 4, against one `sublet serve`.
# Needs SUBLET_BIN and SUBLET_CLIENTS (tools/test.sh sets both). Each step is one line of output and
# counts as one test; the closing line is "N passed, N failed, N skipped".
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${SUBLET_BIN:?path of the sublet executable}
clients=${SUBLET_CLIENTS:?folder with kubectl-1.29, kubectl-1.36, helm-3 and helm-4}
work=$(mktemp -d)
export KUBECONFIG=$work/kubeconfig HOME=$work/home
mkdir -p "$HOME"
# shellcheck source=../lib.sh
. "$here/../lib.sh"

start() {
  "$bin" serve --data-dir "$work/data" --listen 127.0.0.1:0 --role host \
    --write-kubeconfig "$KUBECONFIG" >"$work/log" 2>&1 &
  server=$!
  for _ in $(seq 200); do
    "$clients/kubectl-1.36" get --raw /readyz >/dev/null 2>&1 && return 0
    kill -0 "$server" 2>/dev/null || break
    sleep 0.05
  done
  cat "$work/log"
  return 1
}
stop() { kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; }
trap 'stop; rm -rf "$work"' EXIT

kubectl_suite() {
  local v=$1 k=$clients/kubectl-$1 ns=k${1//./}
  check "kubectl $v: create namespace" created "$k" create namespace "$ns"
  within "kubectl $v: the namespace gets its account" default "$k" -n "$ns" get serviceaccount
  check "kubectl $v: create configmap" created "$k" -n "$ns" create configmap a --from-literal=x=1
  check "kubectl $v: get as YAML" 'x: "1"' "$k" -n "$ns" get configmap a -o yaml
  check "kubectl $v: a table" DATA "$k" -n "$ns" get configmaps
  check "kubectl $v: label" labeled "$k" -n "$ns" label configmap a tier=front
  check "kubectl $v: select by label" configmap/a "$k" -n "$ns" get cm -l tier=front -o name
  check "kubectl $v: annotate" annotated "$k" -n "$ns" annotate configmap a note=b
  check "kubectl $v: merge patch" patched "$k" -n "$ns" patch configmap a --type merge -p '{"data":{"y":"2"}}'
  check "kubectl $v: JSON patch" patched "$k" -n "$ns" patch configmap a --type json -p '[{"op":"remove","path":"/data/x"}]'
  refuse "kubectl $v: a missing object" 'configmaps "nope" not found' "$k" -n "$ns" get configmap nope
  refuse "kubectl $v: an existing object" 'configmaps "a" already exists' "$k" -n "$ns" create configmap a
  check "kubectl $v: apply" 'deployment.apps/web created' "$k" -n "$ns" apply -f "$here/web.yaml"
  check "kubectl $v: apply again" 'deployment.apps/web unchanged' "$k" -n "$ns" apply -f "$here/web.yaml"
  within "kubectl $v: pods are made" web- "$k" -n "$ns" get pods
  check "kubectl $v: scale" scaled "$k" -n "$ns" scale deployment web --replicas=3
  check "kubectl $v: the scale is there" 3 "$k" -n "$ns" get deployment web -o 'jsonpath={.spec.replicas}'
  check "kubectl $v: set image" updated "$k" -n "$ns" set image deployment/web c=nginx:1.26
  within "kubectl $v: rollout history" 2 "$k" -n "$ns" rollout history deployment/web
  check "kubectl $v: expose" exposed "$k" -n "$ns" expose deployment web --port=81 --name=web2
  check "kubectl $v: get all" service/web2 "$k" -n "$ns" get all
  check "kubectl $v: describe" 'Pod Template' "$k" -n "$ns" describe deployment web
  check "kubectl $v: explain" 'maxSurge' "$k" explain deployment.spec.strategy.rollingUpdate
  check "kubectl $v: api-resources" horizontalpodautoscalers "$k" api-resources
  refuse "kubectl $v: diff shows what apply would do" '+  who: first' "$k" -n "$ns" diff -f "$here/config.yaml"
  check "kubectl $v: server-side apply" serverside-applied "$k" -n "$ns" apply --server-side -f "$here/config.yaml"
  refuse "kubectl $v: server-side apply conflict" 'conflict with "kubectl"' \
    "$k" -n "$ns" apply --server-side --field-manager other -f "$here/config-other.yaml"
  check "kubectl $v: forced" serverside-applied \
    "$k" -n "$ns" apply --server-side --field-manager other --force-conflicts -f "$here/config-other.yaml"
  refuse "kubectl $v: strict validation" 'unknown field "spec.nonsense"' \
    "$k" -n "$ns" create --validate=strict -f "$here/unknown-field.yaml"
  check "kubectl $v: dry run" 'created (server dry run)' \
    "$k" -n "$ns" create configmap dry --dry-run=server
  check "kubectl $v: auth can-i" yes "$k" auth can-i delete pods
  check "kubectl $v: create token" '.' "$k" -n "$ns" create token default
  check "kubectl $v: create job" created "$k" -n "$ns" create job one --image=busybox -- true
  check "kubectl $v: create role" created "$k" -n "$ns" create role r --verb=get --resource=pods
  check "kubectl $v: wait for deletion" deleted "$k" -n "$ns" delete configmap a --wait
  check "kubectl $v: delete all of a kind" deleted "$k" -n "$ns" delete deployments --all
  check "kubectl $v: delete the namespace" deleted "$k" delete namespace "$ns" --timeout=30s
}

crd_suite() {
  local v=$1 k=$clients/kubectl-$1
  check "kubectl $v: define a kind" created "$k" create -f "$here/crontab-crd.yaml"
  check "kubectl $v: wait for Established" 'condition met' "$k" wait --for=condition=Established crd/crontabs.stable.example.com --timeout=10s
  check "kubectl $v: an object of it" created "$k" create -f "$here/crontab.yaml"
  check "kubectl $v: its columns" '* * * * *' "$k" get crontabs
  check "kubectl $v: its short name" every-minute "$k" get ct -o name
  check "kubectl $v: its default" busybox "$k" get ct every-minute -o 'jsonpath={.spec.image}'
  refuse "kubectl $v: its validation" 'should be less than or equal to 10' \
    "$k" patch ct every-minute --type merge -p '{"spec":{"replicas":11}}'
  check "kubectl $v: its scale" scaled "$k" scale ct/every-minute --replicas=4
  check "kubectl $v: explain it" cronSpec "$k" explain crontab.spec
  check "kubectl $v: delete the kind" deleted "$k" delete crd crontabs.stable.example.com --timeout=20s
  refuse "kubectl $v: it is gone" "could not find the requested resource" "$k" get --raw /apis/stable.example.com/v1/crontabs
}

helm_suite() {
  local v=$1 h=$clients/helm-$1 r=rel$1
  check "helm $v: install" 'STATUS: deployed' "$h" install "$r" "$here/chart"
  check "helm $v: status" 'REVISION: 1' "$h" status "$r"
  check "helm $v: upgrade" 'REVISION: 2' "$h" upgrade "$r" "$here/chart" --set replicas=2
  check "helm $v: history" superseded "$h" history "$r"
  check "helm $v: rollback" 'Rollback was a success' "$h" rollback "$r" 1
  check "helm $v: list" "$r" "$h" list
  check "helm $v: uninstall" uninstalled "$h" uninstall "$r"
}

start || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
for v in 1.36 1.29; do
  kubectl_suite "$v"
  crd_suite "$v"
done
for v in 4 3; do helm_suite "$v"; done

# What was acknowledged is there after a restart; a second process on the folder is refused.
check "before the restart" created "$clients/kubectl-1.36" create configmap kept --from-literal=a=b
refuse "a second process on the same folder" "" "$bin" serve --data-dir "$work/data" --listen 127.0.0.1:0
stop
start || { echo "$passed passed, $((failed + 1)) failed, 0 skipped"; exit 1; }
check "after the restart" 'a: b' "$clients/kubectl-1.36" get configmap kept -o yaml

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
