# Sourced by the suites that can run against upstream's servers.
# upstream_here: their folder in SUBLET_UPSTREAM, built when it is not there; false, saying so, when
# they cannot be had (no etcd, no Go).
upstream_here() {
  local upstream
  upstream=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  export SUBLET_UPSTREAM=${SUBLET_UPSTREAM:-$upstream/../../build/upstream}
  command -v etcd >/dev/null && { [ -x "$SUBLET_UPSTREAM/kube-apiserver" ] ||
    "$upstream/build.sh" "$SUBLET_UPSTREAM" server >/dev/null; } && return 0
  echo "upstream's servers: not here (SUBLET_UPSTREAM; etcd)"
  return 1
}
