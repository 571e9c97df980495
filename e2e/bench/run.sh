#!/usr/bin/env bash
# That the benchmark works: every row with small counts against ours and the ceiling. No figure is
# judged here; e2e/bench/api.sh prints the real ones from a release build.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export SUBLET_RELEASE_BIN=${SUBLET_BIN:?path of the sublet executable}
if [ -z "${SUBLET_API_LOAD:-}" ]; then
  # The newest of the builds that are there.
  SUBLET_API_LOAD=$(ls -t "$here"/../../build/{release,dev}/e2e/api_load 2>/dev/null | head -n 1)
  export SUBLET_API_LOAD
fi
exec "$here/api.sh" --quick
