# server_sublet.sh: sourced by suite.sh. The API server and its node are `sublet host up`.
# Each server_*.sh defines server_up, agent_kill, agent_start, agent_log and server_down, and sets
# KUBECONFIG, cdi_dir and server_name; the tests ask for nothing else.
server_name="sublet host up"
cdi_dir=$XDG_STATE_HOME/sublet/host/cdi

server_up() {
  "$bin" host up >"$work/up.log" 2>&1 || { cat "$work/up.log"; return 1; }
}
agent_kill() { kill -9 "$(process node)"; }
agent_start() { "$bin" host up; }
agent_log() {
  local log
  for log in serve node; do
    echo "---- $log"
    tail -n 25 "$XDG_STATE_HOME/sublet/host/logs/$log.log" 2>/dev/null
  done
}
server_down() { "$bin" host down --force >/dev/null 2>&1; }
