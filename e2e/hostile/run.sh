#!/usr/bin/env bash
# What hostile tenants try: against plain processes (hostile.py), and, as root, in containers
# (containers.sh). Rows 33, 34, 36, 37 and 38 with a device are in e2e/gpu, too.
# Needs SUBLET_BIN and SUBLET_CLIENTS (tools/test.sh sets both).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ulimit -n "$(ulimit -Hn)" 2>/dev/null
failed=0
python3 "$here/hostile.py" "$@" || failed=1
if [ "$(id -u)" -eq 0 ] && [ $# -eq 0 ]; then
  "$here/containers.sh" || failed=1
fi
exit $failed
