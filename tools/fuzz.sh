#!/usr/bin/env bash
# Builds every libFuzzer target (preset fuzz) and runs each for SUBLET_FUZZ_SECONDS (default 5, with
# SUBLET_FULL 30), SUBLET_FUZZ_JOBS of them at a time (default 2).
#   tools/fuzz.sh             all targets
#   tools/fuzz.sh NAME...     these
# One line per target, in order of their names. A finding fails the run and leaves its input in
# build/fuzz/findings/.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${SUBLET_FUZZ_SECONDS:-${SUBLET_FULL:+30}}
seconds=${seconds:-5}
jobs=${SUBLET_FUZZ_JOBS:-2}
cmake --preset fuzz >/dev/null && ninja -C build/fuzz "${@:-all}" || exit 1
findings=$PWD/build/fuzz/findings
work=$(mktemp -d)
mkdir -p "$findings"
trap 'rm -rf "$work"' EXIT

# fuzz TARGET: leaves its output and exit status in $work/NAME.log and $work/NAME.rc.
fuzz() {
  local name=${1##*/}
  mkdir "$work/$name"
  "$1" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=0 \
    -artifact_prefix="$findings/$name-" "$work/$name" "tools/fuzz-seeds/$name" >"$work/$name.log" 2>&1
  echo $? >"$work/$name.rc"
  rm -rf "${work:?}/$name"
}

# report TARGET: the line of a target that has ended.
report() {
  local name=${1##*/}
  if [ "$(cat "$work/$name.rc")" = 0 ]; then
    ok=$((ok + 1))
    echo "ok     $name  $(grep -E '^(Done|#[0-9]+.*DONE)' "$work/$name.log" | tail -n 1)"
  else
    bad=$((bad + 1))
    echo "FAILED $name"
    tail -n 30 "$work/$name.log"
  fi
}

ok=0 bad=0
targets=()
while read -r target; do
  [ $# -eq 0 ] || [[ " $* " == *" ${target##*/} "* ]] || continue
  targets+=("$target")
done < <(find build/fuzz -type f -perm -u+x \( -name '*_fuzz' -o -name 'fuzz_*' \) | sort)
reported=0
for i in "${!targets[@]}"; do
  # Whatever ends first makes room; lines come out in order.
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  while [ "$reported" -lt "$i" ] && [ -e "$work/${targets[reported]##*/}.rc" ]; do
    report "${targets[reported]}"
    reported=$((reported + 1))
  done
  fuzz "${targets[i]}" &
done
wait
for target in "${targets[@]:reported}"; do report "$target"; done
echo "fuzz: $ok passed, $bad failed"
[ $bad -eq 0 ] && [ $ok -gt 0 ]
