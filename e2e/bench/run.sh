#!/usr/bin/env bash
# That the benchmark works: every row with small counts against ours and the ceiling. No figure is
# judged here; e2e/bench/api.sh prints the real ones from a release build.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export SUBLET_RELEASE_BIN=${SUBLET_BIN:?path of the sublet executable}
export SUBLET_API_LOAD=${SUBLET_API_LOAD:-$here/../../build/dev/e2e/api_load}
exec "$here/api.sh" --quick
