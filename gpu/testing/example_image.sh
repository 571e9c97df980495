#!/usr/bin/env bash
# example_image.sh BUILD_DIR OUT: lays out the root of the example GPU image in OUT: the burner, busybox
# (static) and the C library the burner needs, copied with its loader, so that the image needs no base.
# A GPU container needs a C library in the image in any case: the driver's libraries, real or simulated,
# are ordinary shared objects and are loaded by the image's own loader. Build with
#   docker build -t localhost/sublet-gpu-burner OUT
set -euo pipefail
build=${1:?build folder}
out=${2:?target folder}
mkdir -p "$out/root/bin" "$out/root/usr/bin" "$out/root/tmp" "$out/root/etc"
cp "$build/gpu/gpu_probe" "$out/root/bin/gpu-burner"
if command -v busybox >/dev/null; then
  cp "$(command -v busybox)" "$out/root/bin/busybox"
  for name in sh ls cat sleep; do ln -sf busybox "$out/root/bin/$name"; done
fi
# The closure of the burner and of what is mounted beside it: libc, libdl, the loader.
{ ldd "$build/gpu/gpu_probe"; ldd "$build/gpu/lib/libsublet-cuda.so"; } |
  grep -o '/[^ ]*' | sort -u | while read -r library; do
    mkdir -p "$out/root$(dirname "$library")"
    cp -L "$library" "$out/root$library"
  done
cat > "$out/Dockerfile" <<'FILE'
FROM scratch
COPY root/ /
CMD ["/bin/gpu-burner", "burn", "1073741824", "2000000"]
FILE
echo "$out"
