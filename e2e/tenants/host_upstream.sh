# Sourced by setup.sh: the host is upstream's etcd, kube-apiserver, kube-controller-manager and
# kube-scheduler with `sublet node` and `sublet gpud` on its one node, and with what `sublet host install`
# puts on a real cluster (the servers are those of e2e/host). See host_sublet.sh for what it defines.
here_host=$here/../host
bin=$SUBLET_BIN k=$SUBLET_CLIENTS/kubectl-1.36
eventually() {
  local until=$((SECONDS + 60))
  while [ $SECONDS -lt $until ]; do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.2
  done
  return 1
}
. "$here_host/server_upstream.sh"
volumes() {  # for the tenants' state.db: the default class of these servers has no provisioner
  local i
  for i in $(seq 12); do
    mkdir -p -m 777 "$work/volumes/$i"
    printf -- '---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: tenant-%s}\nspec:\n  storageClassName: local-path\n  capacity: {storage: 10Gi}\n  accessModes: [ReadWriteOnce]\n  hostPath: {path: %s}\n' \
      "$i" "$work/volumes/$i"
  done | kubectl apply -f - >/dev/null
}
host_up() {
  (
    here=$here_host
    server_up
  ) || return 1
  kubectl config rename-context admin sublet-host >/dev/null
  volumes && sublet host install >/dev/null 2>&1 || return 1
  daemon usage "$bin" node-usage --kubeconfig "$KUBECONFIG" --context sublet-host
  daemon gpud "$bin" gpud --kubeconfig "$KUBECONFIG" --node-name sublet-host --run-dir "$work/gpud" \
    --install-dir "$work/gpu" --cdi-dir "$cdi_dir" --simulate 2 --model NVIDIA-H100-80GB-HBM3 --memory 16Gi
  # A real cluster pulls the tenants' image from a registry and `create` names it; here it is loaded, and
  # a `sublet` before the real one adds the flag.
  sublet image save "$work/image.tar" >/dev/null 2>&1 &&
    curl -sS --fail --unix-socket "$SUBLET_ENGINE_SOCKET" -H 'Content-Type: application/x-tar' -H 'Expect:' \
      --data-binary "@$work/image.tar" http://d/v1.41/images/load >/dev/null || return 1
  local image
  image=$(tar -xOf "$work/image.tar" manifest.json | jq -r '.[0].RepoTags[0]')
  rm -f "$work/image.tar" "$work/bin/sublet"
  printf '#!/bin/sh\nif [ "$1" = create ]; then\n  shift\n  exec "%s" create --image "%s" "$@"\nfi\nexec "%s" "$@"\n' \
    "$bin" "$image" "$bin" >"$work/bin/sublet"
  chmod 755 "$work/bin/sublet"
  eventually kubectl get gpunodes sublet-host && echo "The host is up"
}
engine_socket() { echo "$SUBLET_ENGINE_SOCKET"; }
gpud_socket() { echo "$work/gpud/admin.sock"; }
gpu_folder() { echo "$work/gpu"; }
host_down() {
  local name
  for name in gpud usage; do
    [ -e "$up/$name.pid" ] && kill "$(cat "$up/$name.pid")" 2>/dev/null
  done
  server_down
  rm -rf "$up" "$work/gpud" "$work/gpu"
  echo "The host is gone"
}
host_force_down() { [ -e "$up" ] && host_down >/dev/null 2>&1; }
host_gone() { test ! -e "$up"; }
