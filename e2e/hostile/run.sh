#!/usr/bin/env bash
# What hostile tenants try, against plain processes (hostile.py). Rows 33, 34, 36, 37 and 38 with a device
# are in e2e/gpu.
# Needs SUBLET_BIN and SUBLET_CLIENTS (tools/test.sh sets both).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ulimit -n "$(ulimit -Hn)" 2>/dev/null
exec python3 "$here/hostile.py" "$@"
