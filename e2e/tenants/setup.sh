# Sourced by suites that run containers, inside `unshare -n -m` and as root: a /run, a HOME and a
# kubeconfig of their own, the host that SUBLET_SERVER names (host_*.sh), `check`, `refuse` and `pod`, and
# an end that leaves nothing behind. Needs SUBLET_BIN and SUBLET_CLIENTS.
setup_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ip link set lo up
[ -n "${SUBLET_ENGINE_SOCKET:-}" ] || mount -t tmpfs tmpfs /run  # private_engine.sh did it already
work=$(mktemp -d /tmp/sublet-e2e-XXXXXX)
mkdir -p "$work/bin"
ln -s "$SUBLET_BIN" "$work/bin/sublet"
ln -s "$SUBLET_CLIENTS/kubectl-1.36" "$work/bin/kubectl"
export PATH=$work/bin:$PATH HOME=$work XDG_STATE_HOME=$work/state KUBECONFIG=$work/kubeconfig
cd "$work"
# shellcheck source=/dev/null
. "$setup_folder/host_${SUBLET_SERVER:-sublet}.sh"
finish() {
  host_force_down
  # Local endpoints outlive their command; ours are those with this HOME.
  for environment in $(grep -lzx "HOME=$work" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${environment#/proc/}
    pid=${pid%/environ}
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = sublet ] && kill "$pid" 2>/dev/null
  done
  cd /
  rm -rf "$work"
}
trap finish EXIT

# shellcheck source=../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
pod() {  # pod NAME SCHEDULER COMMAND [ANNOTATION] [LIMITS]
  cat <<Y
apiVersion: v1
kind: Pod
metadata:
  name: $1
  labels: {kai.scheduler/queue: team}
  annotations: {${4:-}}
spec:
  schedulerName: $2
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: registry.example/gpu-test:1
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "$3"]
    resources: {limits: {${5:-}}}
Y
}

