#!/usr/bin/env bash
# Real projects' definitions: established, and an object of each goes in and out whole. The definitions
# are in ../shared/crds (or SUBLET_SHARED); without them there is nothing to do. Needs SUBLET_BIN.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${SUBLET_BIN:?path of the sublet executable}
crds=${SUBLET_SHARED:-$here/../../../shared}/crds
if [ ! -d "$crds" ]; then
  echo "not run: there is no $crds"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
work=$(mktemp -d)
"$bin" serve --data-dir "$work/data" --listen 127.0.0.1:0 --write-kubeconfig "$work/kubeconfig" \
  --api-only >"$work/log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 200); do [ -s "$work/kubeconfig" ] && break; sleep 0.05; done
out=$(python3 "$here/suite.py" "$crds" "$work/kubeconfig")
code=$?
sed '$d' <<<"$out"
echo "PSS with all of them: $(awk '/^Pss:/ {print int($2 / 1024)}' "/proc/$server/smaps_rollup") MiB"
tail -n 1 <<<"$out"
exit $code
