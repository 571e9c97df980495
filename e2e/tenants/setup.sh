# Sourced by suites that run containers, inside `unshare -n -m` and as root: a /run, a HOME and a
# kubeconfig of their own, the host that SUBLET_SERVER names (host_*.sh), `check`, `refuse` and `pod`, and
# an end that leaves nothing behind. Needs `here` (this folder), SUBLET_BIN and SUBLET_CLIENTS.
ip link set lo up
[ -n "${SUBLET_ENGINE_SOCKET:-}" ] || mount -t tmpfs tmpfs /run  # private_engine.sh did it already
work=$(mktemp -d /tmp/sublet-e2e-XXXXXX)
mkdir -p "$work/bin"
ln -s "$SUBLET_BIN" "$work/bin/sublet"
ln -s "$SUBLET_CLIENTS/kubectl-1.36" "$work/bin/kubectl"
export PATH=$work/bin:$PATH HOME=$work XDG_STATE_HOME=$work/state KUBECONFIG=$work/kubeconfig
cd "$work"
# shellcheck source=/dev/null
. "$here/host_${SUBLET_SERVER:-sublet}.sh"
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

passed=0 failed=0
begin=0
started=$(date +%s%N)
bold= green= red= plain=
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  bold=$(printf '\033[1m') green=$(printf '\033[32m') red=$(printf '\033[31m') plain=$(printf '\033[0m')
fi
show() {
  local colour=$green
  [ "$1" = ok ] || colour=$red
  printf '%s%-4s%s  %5d ms  %s\n' "$colour" "$1" "$plain" "$((($(date +%s%N) - begin) / 1000000))" "$2"
}
# In a demo: a heading, and the command before what it says.
section() { [ -z "${SUBLET_DEMO:-}" ] || printf '\n%s== %s%s\n' "$bold" "$1" "$plain"; }
typed() {
  [ -n "${SUBLET_DEMO:-}" ] || return 0
  local text=$*
  [ "$1" = sh ] && [ "$2" = -c ] && text=$3
  declare -F "$1" >/dev/null && return 0  # a check of our own, not something to type
  printf '\n  %s$ %s%s\n' "$bold" "$(printf '%s' "$text" | tr -s ' \n' '  ' | cut -c1-170)" "$plain"
}
# limited COMMAND...: a program gets 90 seconds; our own functions have their own limits.
limited() { if declare -F "$1" >/dev/null; then "$@"; else timeout 90 "$@"; fi; }
# check NAME WANTED COMMAND...: the command succeeds and its output contains WANTED.
check() {
  local name=$1 wanted=$2 out
  shift 2
  typed "$@"
  begin=$(date +%s%N)
  if out=$(limited "$@" 2>&1) && [[ $out == *"$wanted"* ]]; then
    passed=$((passed + 1))
    [ -z "${SUBLET_DEMO:-}" ] || [ -z "$out" ] || printf '%s\n' "$out" | sed 's/^/    /'
    show ok "$name"
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
  if ! out=$(limited "$@" 2>&1) && [[ $out == *"$wanted"* ]]; then
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

