# Sourced by suites that run containers, inside `unshare -n -m` and as root: a /run, a HOME and a
# kubeconfig of their own, `check`, `refuse` and `pod`, and an end that leaves nothing behind.
# Needs SUBLET_BIN and SUBLET_CLIENTS.
ip link set lo up
mount -t tmpfs tmpfs /run
work=$(mktemp -d /tmp/sublet-e2e-XXXXXX)
mkdir -p "$work/bin"
ln -s "$SUBLET_BIN" "$work/bin/sublet"
ln -s "$SUBLET_CLIENTS/kubectl-1.36" "$work/bin/kubectl"
export PATH=$work/bin:$PATH HOME=$work XDG_STATE_HOME=$work/state KUBECONFIG=$work/kubeconfig
cd "$work"
finish() {
  timeout 60 sublet host down --force >/dev/null 2>&1
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

passed=0 failed=0
begin=0
show() { printf '%-4s  %5d ms  %s\n' "$1" "$((($(date +%s%N) - begin) / 1000000))" "$2"; }
# check NAME WANTED COMMAND...: the command succeeds and its output contains WANTED.
check() {
  local name=$1 wanted=$2 out
  shift 2
  begin=$(date +%s%N)
  if out=$(timeout 90 "$@" 2>&1) && [[ $out == *"$wanted"* ]]; then
    passed=$((passed + 1))
    show ok "$name"
    [ -n "${SUBLET_DEMO:-}" ] && printf '%s\n' "$out" | sed 's/^/        /'
  else
    failed=$((failed + 1))
    show FAIL "$name"
    printf '%s\n' "$out" | tail -n 25 | sed 's/^/        /'
  fi
  return 0
}
# refuse NAME WANTED COMMAND...: the command fails and says WANTED.
refuse() {
  local name=$1 wanted=$2 out
  shift 2
  begin=$(date +%s%N)
  if ! out=$(timeout 90 "$@" 2>&1) && [[ $out == *"$wanted"* ]]; then
    passed=$((passed + 1))
    show ok "$name"
  else
    failed=$((failed + 1))
    show FAIL "$name"
    printf '%s\n' "$out" | tail -n 25 | sed 's/^/        /'
  fi
  return 0
}
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

