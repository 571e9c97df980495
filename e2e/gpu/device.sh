#!/usr/bin/env bash
# device.sh [BUILD_DIR] [ARGUMENTS OF device.py]: the experiments of device.py, on this machine's GPU.
#   device.sh --pack BUILD_DIR OUT   lays out what a machine with a GPU and no compiler needs; run there:
#                                    python3 OUT/device.py --build OUT
# Without a GPU: "skipped: no GPU". BUILD_DIR default: build/release.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" = --pack ]; then
  build=${2:?build folder}
  out=${3:?target folder}
  mkdir -p "$out/gpu/lib" "$out/closure"
  cp "$build"/gpu/{gpu_lab,gpu_probe,device_probe} "$out/gpu/"
  strip "$out/gpu/gpu_lab"
  cp "$build"/gpu/lib/*.so "$out/gpu/lib/"
  cp "$here/device.py" "$out/"
  ldd "$build/gpu/gpu_lab" "$build/gpu/gpu_probe" | grep -o '/[^ ]*\.so[^ ]*' | sort -u | while read -r library; do
    cp -Ln "$library" "$out/closure/"
  done
  du -sh "$out" | cut -f1
  exit 0
fi
build=build/release
if [ $# -gt 0 ] && [ -d "$1" ]; then
  build=$1
  shift
fi
exec python3 "$here/device.py" --build "$build" "$@"
