#!/bin/sh
# private_engine.sh ENGINE DIR COMMAND...: runs COMMAND beside a container engine of its own (podman or
# docker) inside a new network and mount namespace, so that nothing of the machine's engines,
# bridges and firewall is touched. COMMAND finds the engine's socket in SUBLET_ENGINE_SOCKET and its
# kind in SUBLET_ENGINE_KIND; SUBLET_ENGINE_RESTART holds a command line that kills the engine with
# SIGKILL and starts it again. Exit status: COMMAND's; 97 when the engine did not come up.
set -u
engine=$1
dir=$2
shift 2
case "${SUBLET_PRIVATE_ENGINE_INSIDE:-}" in
  "")
    SUBLET_PRIVATE_ENGINE_INSIDE=1 exec unshare -n -m "$0" "$engine" "$dir" "$@" ;;
esac
unset SUBLET_PRIVATE_ENGINE_INSIDE

ip link set lo up
mount -t tmpfs tmpfs /run
mkdir -p "$dir/graph" "$dir/run" "$dir/networks"
socket=$dir/engine.sock
cat > "$dir/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
base_hosts_file = "none"
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
exit_command_delay = 2
static_dir = "$dir/graph/libpod"
tmp_dir = "$dir/libpod-run"
volume_path = "$dir/graph/volumes"
[network]
network_backend = "netavark"
network_config_dir = "$dir/networks"
CONF
cat > "$dir/storage.conf" <<CONF
[storage]
driver = "overlay"
graphroot = "$dir/graph"
runroot = "$dir/run"
CONF
cat > "$dir/engine-start" <<START
#!/bin/sh
# Starts the engine in the background and waits for its socket; the pid is in engine.pid.
cd "$dir" || exit 1
case "$engine" in
  podman)
    CONTAINERS_CONF=$dir/containers.conf CONTAINERS_STORAGE_CONF=$dir/storage.conf \
      podman system service --time=0 "unix://$socket" >> "$dir/engine.log" 2>&1 & ;;
  docker)
    rm -f "$dir/docker.pid"
    PATH=/usr/sbin:/usr/bin:/sbin:/bin:\$PATH dockerd -H "unix://$socket" --data-root "$dir/graph" \
      --exec-root "$dir/exec" --pidfile "$dir/docker.pid" --iptables=false --ip6tables=false \
      --bip 10.244.200.1/24 --live-restore >> "$dir/engine.log" 2>&1 & ;;
esac
echo \$! > "$dir/engine.pid"
i=0
while ! curl -s -m 2 -o /dev/null --unix-socket "$socket" http://d/_ping; do
  i=\$((i + 1))
  [ \$i -lt 300 ] || exit 97
  sleep 0.1
done
START
cat > "$dir/engine-restart" <<RESTART
#!/bin/sh
# Kills the engine's service with SIGKILL, as a crash would, and starts it again.
pid=\$(cat "$dir/engine.pid")
kill -9 "\$pid"
while kill -0 "\$pid" 2>/dev/null; do sleep 0.05; done
[ -n "\${1:-}" ] && sleep "\$1"
exec sh "$dir/engine-start"
RESTART
sh "$dir/engine-start" || { cat "$dir/engine.log" >&2; exit 97; }

SUBLET_ENGINE_SOCKET=$socket SUBLET_ENGINE_KIND=$engine \
  SUBLET_ENGINE_RESTART="sh $dir/engine-restart" "$@"
status=$?

# Containers first (members before their sandbox), then the engine, then its mounts.
for id in $(curl -s --unix-socket "$socket" 'http://d/v1.41/containers/json?all=1' \
    | tr ',' '\n' | sed -n 's/.*"Id":"\([0-9a-f]*\)".*/\1/p'); do
  case "$engine" in
    podman) curl -s -o /dev/null -X DELETE --unix-socket "$socket" \
      "http://d/v4.3.1/libpod/containers/$id?force=true&depend=true&timeout=0" ;;
    docker) curl -s -o /dev/null -X DELETE --unix-socket "$socket" \
      "http://d/v1.41/containers/$id?force=true&v=true" ;;
  esac
done
pid=$(cat "$dir/engine.pid")
kill "$pid" 2>/dev/null
i=0
while kill -0 "$pid" 2>/dev/null && [ $i -lt 100 ]; do i=$((i + 1)); sleep 0.1; done
kill -9 "$pid" 2>/dev/null
# Mount points of the engine below $dir would keep the folder from being removed.
awk -v d="$dir/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r | while read -r m; do
  umount -l "$m" 2>/dev/null
done
exit $status
