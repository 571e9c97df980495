# Sourced by setup.sh: the host is `sublet host up` with its own engine. Each host_*.sh defines host_up,
# host_down, host_force_down, host_gone (true when nothing is left), engine_socket, gpud_socket and gpu_folder; the
# suites ask nothing else of a host, and no test asks which one it is.
state=$XDG_STATE_HOME/sublet/host
host_up() { sublet host up --gpus 2 --gpu-memory 16Gi; }
engine_socket() { echo "$state/engine/podman.sock"; }
gpud_socket() { echo "$state/gpud/admin.sock"; }
gpu_folder() { echo "$state/gpu"; }
host_down() { sublet host down; }
host_force_down() { timeout 60 sublet host down --force >/dev/null 2>&1; }
host_gone() { test ! -e "$state"; }
