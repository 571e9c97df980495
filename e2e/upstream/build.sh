#!/usr/bin/env bash
# Builds Kubernetes 1.36.1 from its Go module, without fetched source, into the folder OUT:
#   kube-apiserver, kube-controller-manager, kube-scheduler   (one program under three names)
#   e2e.test, ginkgo                                          (Kubernetes' own test suite)
# Use: e2e/upstream/build.sh OUT [server] [suite]     Without words both are built.
# What OUT has already is kept. Needs Go (1.26) and its module proxy; cold about 6 minutes on 2 cores.
set -euo pipefail
out=$(mkdir -p "${1:?folder}" && cd "$1" && pwd)
shift
parts=${*:-server suite}
cd "$(dirname "$0")"
version=k8s.io/component-base/version
flags=(-ldflags "-s -w -X $version.gitVersion=v1.36.1 -X $version.gitMajor=1 -X $version.gitMinor=36")
for part in $parts; do
  case $part in
    server)
      [ -x "$out/kube-apiserver" ] || go build "${flags[@]}" -o "$out/kube-apiserver" .
      ln -sf kube-apiserver "$out/kube-controller-manager"
      ln -sf kube-apiserver "$out/kube-scheduler" ;;
    suite)
      [ -x "$out/ginkgo" ] || go build "${flags[@]}" -o "$out/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
      [ -x "$out/e2e.test" ] || go test -c -vet=off "${flags[@]}" -o "$out/e2e.test" ./suite ;;
    *) echo "unknown part '$part'" >&2; exit 2 ;;
  esac
done
