# Sourced first by the suites that run in parts, against sublet's servers and upstream's: reads their
# arguments into engine, server and parts (--help prints the suite's head) and knows upstream_here.
here=$(cd "$(dirname "$0")" && pwd)
: "${SUBLET_BIN:?path of the sublet executable}" "${SUBLET_CLIENTS:?folder with kubectl-1.36}"
engine='' server='' parts=''
while [ $# -gt 0 ]; do
  case $1 in
    --engine|--server|--parts)
      [ $# -gt 1 ] || { echo "run.sh: $1 needs a value; see run.sh --help" >&2; exit 2; }
      printf -v "${1#--}" %s "$2"
      shift ;;
    -h|--help) sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) echo "run.sh: unknown argument $1; see run.sh --help" >&2; exit 2 ;;
  esac
  shift
done
# shellcheck source=upstream/here.sh
. "$(dirname "${BASH_SOURCE[0]}")/upstream/here.sh"
