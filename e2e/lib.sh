# Sourced by every suite: counted checks, one line each with the time since the one before. The suite
# prints "$passed passed, $failed failed, N skipped" at its end.
# CHECK_S: how long a program that is no function of the suite may take (default 180 s).
# WITHIN_S: how long `within` and `eventually` try (default 60 s).
# SUBLET_DEMO: shows each command before its check and what it said after it, in colour on a terminal.
passed=0 failed=0
started=$(date +%s%N)
began=$started
bold='' green='' red='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  bold=$(printf '\033[1m') green=$(printf '\033[32m') red=$(printf '\033[31m') plain=$(printf '\033[0m')
fi
line() {
  local now colour=$green
  now=$(date +%s%N)
  [ "$1" = ok ] || colour=$red
  printf '%s%-4s%s  %6d ms  %s\n' "$colour" "$1" "$plain" $(((now - began) / 1000000)) "$2"
  began=$now
}
pass() {  # pass NAME [OUTPUT]
  passed=$((passed + 1))
  if [ -n "${SUBLET_DEMO:-}" ] && [ -n "${2:-}" ]; then printf '%s\n' "$2" | sed 's/^/    /'; fi
  line ok "$1"
}
fail() {  # fail NAME [OUTPUT]
  failed=$((failed + 1))
  line FAIL "$1"
  printf '%s\n' "${2:-}" | tail -n 40 | sed 's/^/        /'
}
# In a demo: a heading, and the command before what it says.
section() { [ -z "${SUBLET_DEMO:-}" ] || printf '\n%s== %s%s\n' "$bold" "$1" "$plain"; }
typed() {
  [ -n "${SUBLET_DEMO:-}" ] || return 0
  local text=$*
  if [ "$1" = sh ]; then
    [ "$2" = -c ] || return 0
    text=$3
  fi
  declare -F "$1" >/dev/null && return 0  # a check of our own, not something to type
  printf '\n  %s$ %s%s\n' "$bold" "$(printf '%s' "$text" | tr -s ' \n' '  ' | cut -c1-170)" "$plain"
}
# in_demo COMMAND...: something to look at, in a demo only.
in_demo() { [ -z "${SUBLET_DEMO:-}" ] || { printf '\n'; "$@" | sed 's/^/    /'; }; }
# bounded COMMAND...: a program gets CHECK_S seconds; functions look after themselves.
bounded() { if [ "$(type -t "$1")" = file ]; then timeout --foreground "${CHECK_S:-180}" "$@"; else "$@"; fi; }
# check NAME WANTED COMMAND...: the command succeeds and its output contains WANTED.
check() {
  local name=$1 wanted=$2 out
  shift 2
  typed "$@"
  if out=$(bounded "$@" 2>&1) && [[ $out == *"$wanted"* ]]; then pass "$name" "$out"; else fail "$name" "$out"; fi
  return 0
}
# refuse NAME WANTED COMMAND...: the command fails and says WANTED.
refuse() {
  local name=$1 wanted=$2 out
  shift 2
  if ! out=$(bounded "$@" 2>&1) && [[ $out == *"$wanted"* ]]; then pass "$name" "$out"; else fail "$name" "$out"; fi
  return 0
}
# within NAME WANTED COMMAND...: as check, tried again and again for WITHIN_S seconds.
within() {
  local name=$1 wanted=$2 out="" until=$((SECONDS + ${WITHIN_S:-60}))
  shift 2
  typed "$@"
  while [ $SECONDS -lt $until ]; do
    if out=$(bounded "$@" 2>&1) && [[ $out == *"$wanted"* ]]; then pass "$name" "$out"; return 0; fi
    sleep 0.2
  done
  fail "$name" "$out"
  return 1
}
# eventually COMMAND...: true within WITHIN_S seconds.
eventually() {
  local until=$((SECONDS + ${WITHIN_S:-60}))
  while [ $SECONDS -lt $until ]; do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.2
  done
  return 1
}
