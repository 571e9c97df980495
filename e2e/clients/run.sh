#!/usr/bin/env bash
# The official client libraries against one `sublet serve`: client-go, Python's and JavaScript's, each
# the way programs use it. Needs SUBLET_BIN; tools/fetch-clients.sh has made the libraries.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${SUBLET_BIN:?path of the sublet executable}
clients=${SUBLET_CLIENTS:?folder of tools/fetch-clients.sh}
work=$(mktemp -d)
export KUBECONFIG=$work/kubeconfig HOME=$work/home
mkdir -p "$HOME"
passed=0 failed=0

"$bin" serve --data-dir "$work/data" --listen 127.0.0.1:0 --role host --write-kubeconfig "$KUBECONFIG" \
  >"$work/log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 200); do [ -s "$KUBECONFIG" ] && break; sleep 0.05; done

# suite COMMAND...: adds what its last line counts.
suite() {
  local out p f
  out=$(timeout 180 "$@" 2>&1)
  sed -E 's/^[0-9]+ passed, [0-9]+ failed$/  &/' <<<"$out"  # the sum is counted, not its parts
  read -r p f < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' <<<"$out" | tail -n 1)
  if [ -z "${p:-}" ]; then p=0 f=1; fi
  passed=$((passed + p)) failed=$((failed + f))
}
suite "$clients/client-go"
suite "$clients/python/bin/python" "$here/python/suite.py"
cp "$here/node/suite.mjs" "$clients/node/suite.mjs"  # Node finds libraries from where a file lies
suite node "$clients/node/suite.mjs"

[ "$failed" -eq 0 ] || tail -n 20 "$work/log"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
