#!/usr/bin/env bash
# Builds every libFuzzer target (preset fuzz) and runs each for SUBLET_FUZZ_SECONDS (default 5).
# A finding fails the run and leaves its input in build/fuzz/findings/.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${SUBLET_FUZZ_SECONDS:-${SUBLET_FULL:+30}}
seconds=${seconds:-5}
cmake --preset fuzz >/dev/null && ninja -C build/fuzz all || exit 1
findings=$PWD/build/fuzz/findings
mkdir -p "$findings"
ok=0 bad=0
while read -r target; do
  work=$(mktemp -d)
  if "$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=0 \
      -artifact_prefix="$findings/$(basename "$target")-" "$work" "tools/fuzz-seeds/$(basename "$target")" >"$work.log" 2>&1; then
    ok=$((ok + 1))
  else
    bad=$((bad + 1))
    echo "FAILED $target"
    tail -n 30 "$work.log"
  fi
  rm -rf "$work" "$work.log"
done < <(find build/fuzz -type f -perm -u+x \( -name '*_fuzz' -o -name 'fuzz_*' \) | sort)
echo "fuzz: $ok passed, $bad failed"
[ $bad -eq 0 ] && [ $ok -gt 0 ]
