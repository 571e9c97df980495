#!/usr/bin/env bash
# The benchmark of the API server: ours, upstream's when it is there, and the ceiling (the same
# client and TLS against a server that answers fixed bytes), in one run on one machine.
#   e2e/bench/api.sh               every row; one table at the end (about 10 minutes)
#   e2e/bench/api.sh --quick       small counts, ours and the ceiling only, under a minute: that it works
#   e2e/bench/api.sh --only ROW    one of start idle get list post patch apply syncs watch paced objects
#                                  watchers crds; may be repeated
#   e2e/bench/api.sh --no-upstream
#   e2e/bench/api.sh --out FILE    keeps the rows, one JSON object a line
# SUBLET_RELEASE_BIN and SUBLET_API_LOAD name the executables (default: build/release). SUBLET_UPSTREAM names a folder with
# kube-apiserver; etcd comes from PATH. SUBLET_SHARED/crds holds the definitions of the crds row.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${SUBLET_RELEASE_BIN:-$root/build/release/cli/sublet}
load=${SUBLET_API_LOAD:-$root/build/release/e2e/api_load}
crds=${SUBLET_SHARED:-$root/../shared}/crds
upstream=${SUBLET_UPSTREAM:-}
quick= only=" " out=
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=1 upstream= ;;
    --no-upstream) upstream= ;;
    --only) only+="${2:?--only needs a row} "; shift ;;
    --out) out=${2:?--out needs a file}; shift ;;
    -h|--help) sed -n '2,12p' "$0" | cut -c3-; exit 0 ;;
    *) echo "api.sh: unknown argument $1; see e2e/bench/api.sh --help" >&2; exit 2 ;;
  esac
  shift
done
for program in "$bin" "$load"; do
  [ -x "$program" ] || { echo "api.sh: $program is not there; cmake --build --preset release --target sublet api_load" >&2; exit 2; }
done
if [ -n "$upstream" ] && ! { [ -x "$upstream/kube-apiserver" ] && command -v etcd >/dev/null; }; then
  echo "api.sh: SUBLET_UPSTREAM needs kube-apiserver, and etcd in PATH; going on without" >&2
  upstream=
fi

work=$(mktemp -d)
rows=${out:-$work/rows}
: >"$rows"
sublet_pid= fixed_pid= upstream_pids=
cleanup() {
  stop_sublet
  stop_upstream
  [ -n "$fixed_pid" ] && kill "$fixed_pid" 2>/dev/null && wait "$fixed_pid" 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
die() { echo "api.sh: $*" >&2; exit 1; }
wanted() { [ "$only" = " " ] || [[ $only == *" $1 "* ]]; }

# ---- the three servers, each on an empty directory ----
start_sublet() {
  stop_sublet
  rm -rf "$work/data" "$work/kubeconfig"
  "$bin" serve --data-dir "$work/data" --listen 127.0.0.1:0 --write-kubeconfig "$work/kubeconfig" >"$work/sublet.log" 2>&1 &
  sublet_pid=$!
  for _ in $(seq 200); do
    [ -s "$work/kubeconfig" ] && "$load" fetch --server sublet --kubeconfig "$work/kubeconfig" --path /api/v1/namespaces/default >/dev/null 2>&1 && return
    sleep 0.05
  done
  cat "$work/sublet.log"
  die "sublet serve did not start"
}
stop_sublet() { [ -n "$sublet_pid" ] && kill "$sublet_pid" 2>/dev/null && wait "$sublet_pid" 2>/dev/null; sublet_pid=; }

# A program that starts etcd and kube-apiserver and ends both when it is told to.
write_upstream() {
  cat >"$work/upstream.sh" <<SCRIPT
#!/usr/bin/env bash
dir=\$1 port=\$2
mkdir -p "\$dir"
openssl ecparam -genkey -name prime256v1 -noout -out "\$dir/sa.key"
echo 'bench-token,admin,admin,"system:masters"' >"\$dir/tokens.csv"
etcd --data-dir "\$dir/etcd" --listen-client-urls http://127.0.0.1:\$((port + 1)) --advertise-client-urls http://127.0.0.1:\$((port + 1)) --listen-peer-urls http://127.0.0.1:\$((port + 2)) --initial-advertise-peer-urls http://127.0.0.1:\$((port + 2)) --initial-cluster default=http://127.0.0.1:\$((port + 2)) --log-level error &
etcd=\$!
"$upstream/kube-apiserver" --etcd-servers=http://127.0.0.1:\$((port + 1)) --secure-port=\$port --bind-address=127.0.0.1 --cert-dir="\$dir/pki" --service-account-key-file="\$dir/sa.key" --service-account-signing-key-file="\$dir/sa.key" --service-account-issuer=https://kubernetes.default.svc --authorization-mode=RBAC --token-auth-file="\$dir/tokens.csv" --service-cluster-ip-range=10.96.0.0/12 --allow-privileged &
api=\$!
echo "\$etcd,\$api" >"\$dir/pids"
trap 'kill \$api; wait \$api; kill \$etcd; wait \$etcd; exit 0' TERM
wait \$api
SCRIPT
  chmod +x "$work/upstream.sh"
}
start_upstream() {
  stop_upstream
  rm -rf "$work/upstream"
  local port=$((20000 + RANDOM % 10000))
  "$work/upstream.sh" "$work/upstream" "$port" >"$work/upstream.log" 2>&1 &
  upstream_script=$!
  cat >"$work/upstream-kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
current-context: upstream
clusters: [{name: upstream, cluster: {server: "https://127.0.0.1:$port", insecure-skip-tls-verify: true}}]
users: [{name: upstream, user: {token: bench-token}}]
contexts: [{name: upstream, context: {cluster: upstream, user: upstream}}]
CONFIG
  etcd_metrics=$((port + 1))
  for _ in $(seq 300); do
    "$load" fetch --server upstream --kubeconfig "$work/upstream-kubeconfig" --path /api/v1/namespaces/default >/dev/null 2>&1 && break
    sleep 0.1
  done
  upstream_pids=$(cat "$work/upstream/pids") || die "upstream did not start: $(tail -3 "$work/upstream.log")"
}
stop_upstream() {
  [ -n "$upstream_pids" ] && kill "$upstream_script" 2>/dev/null && wait "$upstream_script" 2>/dev/null
  upstream_pids=
}
start_ceiling() {
  [ -n "$fixed_pid" ] && return
  "$load" prepare --server sublet --kubeconfig "$work/kubeconfig" || die "prepare failed"
  "$load" fetch --server sublet --kubeconfig "$work/kubeconfig" --path /api/v1/namespaces/default/configmaps/listed-1 >"$work/object" || die "no object"
  "$load" fetch --server sublet --kubeconfig "$work/kubeconfig" --path "/api/v1/namespaces/default/configmaps?labelSelector=bench%3Dlisted&limit=500" >"$work/list" || die "no list"
  "$load" serve-fixed --object "$work/object" --list "$work/list" >"$work/fixed-port" &
  fixed_pid=$!
  for _ in $(seq 100); do [ -s "$work/fixed-port" ] && return; sleep 0.05; done
  die "the ceiling's server did not start"
}

# measure ROW ARGUMENTS...: against ours, and in the same minute against the others.
failed=0 passed=0
run() {  # run SERVER ROW ARGUMENTS...
  local server=$1 row=$2 where=()
  shift 2
  case $server in
    sublet) where=(--kubeconfig "$work/kubeconfig" --pid "$sublet_pid") ;;
    upstream) where=(--kubeconfig "$work/upstream-kubeconfig" --pid "$upstream_pids") ;;
    ceiling) where=(--port "$(cat "$work/fixed-port")" --pid "$fixed_pid") ;;
  esac
  if "$load" "$row" --server "$server" "${where[@]}" "$@" >"$work/row"; then
    cat "$work/row" >>"$rows"
    passed=$((passed + 1))
    echo "ok    $server: $row $*" >&2
  else
    failed=$((failed + 1))
    echo "FAIL  $server: $row $*" >&2
  fi
}
measure() {
  run sublet "$@"
  [ -n "$upstream" ] && run upstream "$@"
  run ceiling "$@"
}
servers() { run sublet "$@"; if [ -n "$upstream" ]; then run upstream "$@"; fi; }

# How many fdatasync and fsync calls one create costs, by the servers' own meters.
syncs_of() {
  case $1 in
    sublet) "$load" fetch --server sublet --kubeconfig "$work/kubeconfig" --path /metrics | awk '/^sublet_storage_syncs_total/ {print int($2)}' ;;
    upstream) (exec 3<>"/dev/tcp/127.0.0.1/$etcd_metrics" && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 && cat <&3) | awk '/^etcd_disk_wal_fsync_duration_seconds_count|^etcd_disk_backend_commit_duration_seconds_count/ {n += $2} END {print int(n)}' ;;
  esac
}
sync_row() {  # sync_row SERVER CONNECTIONS SECONDS
  local before after
  before=$(syncs_of "$1")
  "$load" post --server "$1" $( [ "$1" = sublet ] && echo --kubeconfig "$work/kubeconfig" || echo --kubeconfig "$work/upstream-kubeconfig") --connections "$2" --seconds "$3" >"$work/row" || { failed=$((failed + 1)); return; }
  after=$(syncs_of "$1")
  passed=$((passed + 1))
  # The rate covers the measured part, the syncs the warm-up as well.
  awk -v syncs=$((after - before)) -v server="$1" -v n="$2" -v seconds="$3" '
    match($0, /"value":[0-9.]+/) { rate = substr($0, RSTART + 8, RLENGTH - 8)
      warm = seconds / 4 < 0.5 ? seconds / 4 : 0.5
      printf "{\"server\":\"%s\",\"row\":\"syncs per POST, %d connections\",\"unit\":\"calls\",\"more\":false,\"value\":%.4f,\"notes\":{}}\n", server, n, syncs / (rate * (seconds + warm)) }' "$work/row" >>"$rows"
}

seconds=4 events=100 secrets=5000 objects=100000 idle_watchers=1000 idle_seconds=15 starts=7
connections="1 16 64" watchers="1 100 1000"
if [ -n "$quick" ]; then
  seconds=0.4 events=5 secrets=100 objects=1000 idle_watchers=50 idle_seconds=1 starts=2
  connections="1 16" watchers="1 100"
fi

[ -n "$upstream" ] && write_upstream
if wanted start; then
  "$load" start --server sublet --runs $starts -- "$bin" serve --data-dir "{dir}/data" --listen "127.0.0.1:{port}" >>"$rows" && passed=$((passed + 1)) || failed=$((failed + 1))
  if [ -n "$upstream" ]; then
    "$load" start --server upstream --runs 3 -- "$work/upstream.sh" "{dir}" "{port}" >>"$rows" && passed=$((passed + 1)) || failed=$((failed + 1))
  fi
fi
start_sublet
[ -n "$upstream" ] && start_upstream
if wanted idle; then
  sleep 3
  servers idle --seconds $idle_seconds
fi
start_ceiling
[ -n "$upstream" ] && "$load" prepare --server upstream --kubeconfig "$work/upstream-kubeconfig"
for row in get list post patch apply; do
  wanted $row || continue
  if [ $row = list ]; then
    measure list --connections 4 --seconds $seconds
    measure list-gzip --connections 4 --seconds $seconds
  else
    for n in $connections; do measure $row --connections "$n" --seconds $seconds; done
  fi
done
if wanted post && [ -z "$quick" ]; then "$load" disk "$work" >>"$rows"; fi
if wanted syncs; then
  for n in $connections; do
    sync_row sublet "$n" $seconds
    [ -n "$upstream" ] && sync_row upstream "$n" $seconds
  done
fi
if wanted watch; then
  for n in $watchers; do measure watch --watchers "$n" --events $events; done
fi
if wanted paced; then measure paced --count $secrets; fi
if wanted watchers; then servers idle-watchers --count $idle_watchers; fi
if wanted objects; then
  start_sublet
  [ -n "$upstream" ] && start_upstream
  servers objects --count $objects
fi
if wanted crds && [ -d "$crds" ]; then
  start_sublet
  [ -n "$upstream" ] && start_upstream
  servers crds --dir "$crds"
fi

echo
"$load" table "$rows"
echo
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
