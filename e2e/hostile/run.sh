#!/usr/bin/env bash
# What hostile tenants try. The rows that need no container run against plain processes
# (hostile.py); those that do are in containers.sh, as root, in namespaces of their own.
# Needs SUBLET_BIN and SUBLET_CLIENTS (tools/test.sh sets both).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ulimit -n "$(ulimit -Hn)" 2>/dev/null
failed=0
python3 "$here/hostile.py" "$@" || failed=1
if [ -x "$here/containers.sh" ] && [ "$(id -u)" -eq 0 ] && [ $# -eq 0 ]; then
  "$here/containers.sh" || failed=1
fi
exit $failed
