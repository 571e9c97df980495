#!/bin/sh
# demo_image.sh SOCKET BURNER NAME...: makes an image with busybox, the GPU burner and the libc it needs,
# and loads it into the engine behind SOCKET under these names. Needs no registry.
set -e
socket=$1
burner=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root/bin" "$root/usr/bin" "$root/tmp" "$root/etc" "$root/www"
chmod 1777 "$root/tmp"
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in $("$root/bin/busybox" --list); do
  [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
printf 'root:x:0:0:root:/:/bin/sh\n' > "$root/etc/passwd"
printf 'root:x:0:\n' > "$root/etc/group"
echo 'hello from a tenant' > "$root/www/index.html"
if [ -n "$burner" ]; then
  cp "$burner" "$root/usr/bin/gpu-burner"
  chmod 755 "$root/usr/bin/gpu-burner"
  for library in /lib64/ld-linux-x86-64.so.2 /usr/lib/x86_64-linux-gnu/libc.so.6 \
      /usr/lib/x86_64-linux-gnu/libdl.so.2 /usr/lib/x86_64-linux-gnu/libm.so.6 \
      /usr/lib/x86_64-linux-gnu/libpthread.so.0 /usr/lib/x86_64-linux-gnu/librt.so.1; do
    if [ -e "$library" ]; then
      mkdir -p "$root$(dirname "$library")"
      cp -L "$library" "$root$library"
    fi
  done
  ln -s usr/lib "$root/lib"
fi
mkdir -p "$work/image/l0"
tar -C "$root" --sort=name --mtime=@0 --owner=0 --group=0 -cf "$work/image/l0/layer.tar" .
layer=$(sha256sum "$work/image/l0/layer.tar" | cut -d' ' -f1)
printf '{"architecture":"amd64","os":"linux","config":{"Env":["PATH=/bin:/usr/bin"],"Cmd":["sh"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
  "$layer" > "$work/config"
config=$(sha256sum "$work/config" | cut -d' ' -f1)
mv "$work/config" "$work/image/$config.json"
tags=
for name in "$@"; do
  tags="$tags${tags:+,}\"$name\""
done
printf '[{"Config":"%s.json","RepoTags":[%s],"Layers":["l0/layer.tar"]}]' "$config" "$tags" \
  > "$work/image/manifest.json"
tar -C "$work/image" -cf "$work/image.tar" "$config.json" l0/layer.tar manifest.json
curl -sS --fail --unix-socket "$socket" -H 'Content-Type: application/x-tar' -H 'Expect:' \
  --data-binary "@$work/image.tar" http://d/v1.41/images/load > /dev/null
