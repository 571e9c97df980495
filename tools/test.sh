#!/usr/bin/env bash
# The tests of Sublet. Needs nothing beforehand: it runs tools/bootstrap.sh first.
#   tools/test.sh             the unit tests; those of what reads outside bytes or keeps data, and the fuzz
#                             targets' seeds, under ASan and UBSan; the e2e suites against the release build
#   tools/test.sh --full      the above, all unit tests under ASan, TSan, thread safety analysis, libFuzzer,
#                             long crash runs, upstream's servers, the sources' format
#   tools/test.sh --only X    one part: unit, asan, tsan, format, analyze, fuzz, or an e2e suite (e2e/X/run.sh)
#   SUBLET_UPSTREAM=DIR       upstream's programs are in DIR (default build/upstream, made with --full)
#   tools/test.sh --list      the parts
# Prints one line per part and closes with 'N passed, N failed, N skipped'; exit 0 only when none failed.
# Logs: build/test-logs/.
set -uo pipefail
cd "$(dirname "$0")/.."

full=
only=
while [ $# -gt 0 ]; do
  case $1 in
    --full) full=1 ;;
    --only) only=${2:?--only needs a part, see tools/test.sh --list}; shift ;;
    --list) echo "unit asan release tsan format analyze fuzz $(cd e2e && ls -d */ 2>/dev/null | while read -r d; do [ -x "$d/run.sh" ] && echo -n "${d%/} "; done)"; exit 0 ;;
    -h|--help) sed -n '2,10p' "$0" | cut -c3-; exit 0 ;;
    *) echo "test.sh: unknown argument $1; see tools/test.sh --help" >&2; exit 2 ;;
  esac
  shift
done
[ -n "$full" ] && export SUBLET_FULL=1

passed=0 failed=0 skipped=0
failures=()
logs=build/test-logs
mkdir -p "$logs"
export CTEST_OUTPUT_ON_FAILURE=1

wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }
seconds() { date +%s; }

# part NAME COMMAND...: runs it, counts the closing lines of its log.
part() {
  local name=$1 begin rc log=$logs/$1.log
  shift
  begin=$(seconds)
  "$@" >"$log" 2>&1
  rc=$?
  local counted p=0 f=0 s=0
  # Google Test programs and our own scripts print different closing lines; both are counted.
  counted=$(sed -nE \
    -e 's/.*\[  PASSED  \] ([0-9]+) tests?\.?.*/p \1/p' \
    -e 's/.*\[  FAILED  \] ([0-9]+) tests?, listed below.*/f \1/p' \
    -e 's/.*\[  SKIPPED \] ([0-9]+) tests?, listed below.*/s \1/p' \
    -e 's/^([0-9]+: )?([A-Za-z0-9_-]+: )?([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/p \3\nf \4\ns \5/p' \
    -e 's/^([0-9]+: )?([A-Za-z0-9_-]+: )?([0-9]+) passed, ([0-9]+) failed$/p \3\nf \4/p' "$log")
  while read -r what count; do
    case $what in
      p) p=$((p + count)) ;;
      f) f=$((f + count)) ;;
      s) s=$((s + count)) ;;
    esac
  done <<<"$counted"
  if [ $rc -ne 0 ] && [ $f -eq 0 ]; then
    f=1
  fi
  if [ $rc -eq 0 ] && [ $((p + s)) -eq 0 ]; then
    p=1  # a part that only builds or checks
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  printf '%-12s %5d passed %3d failed %3d skipped  %4ds\n' "$name" $p $f $s $(($(seconds) - begin))
  if [ $rc -ne 0 ] || [ $f -gt 0 ]; then
    failures+=("$name")
    echo "---- the end of $log ----"
    tail -n 60 "$log"
    echo "----"
  fi
  return $rc
}

build() {  # build PRESET TARGET...
  local preset=$1
  shift
  cmake --preset "$preset" >/dev/null && ninja -C "build/$preset" "$@"
}
# unit_tests PRESET: with a sanitizer the long forms of --full would take hours and find no more.
unit_tests() { env -u SUBLET_FULL ctest --test-dir "build/$1" -V -L unit -j 2 --no-tests=error; }
# Without one all is run: the long forms and the storage's crashes, of which --full makes ten times as many.
all_tests() {
  SUBLET_STORE_ROUNDS=${full:+10} ctest --test-dir build/dev -V -L 'unit|contract' -j 2 --no-tests=error
}

tools/bootstrap.sh ${full:+--full} || exit 1
export PATH=$PWD/.cache/clients:$PATH
export SUBLET_CLIENTS=$PWD/.cache/clients
export SUBLET_BIN=$PWD/build/release/cli/sublet
export SUBLET_API_LOAD=$PWD/build/release/e2e/api_load

# Under ASan the default run takes the layers below the API server, the GPU layer and the parsers.
asan_targets=(base_test storage_test kube_test client_test config_test dns_test gpu_api_test gpud_test
  fuzz_json fuzz_values fuzz_patch fuzz_protobuf fuzz_managed_fields fuzz_config fuzz_dns fuzz_storage
  fuzz_http_response fuzz_json_scan fuzz_websocket fuzz_gpu_api fuzz_gpud)
asan_tests() {
  if [ -n "$full" ]; then
    unit_tests asan
  else
    ctest --test-dir build/asan -V -j 2 --no-tests=error \
      -R "^($(IFS='|'; echo "${asan_targets[*]}"))\$"
  fi
}

if wanted unit; then
  part build build dev all && part unit all_tests
fi
if wanted asan; then
  part asan-build build asan $([ -n "$full" ] && echo all || echo "${asan_targets[@]}") && part asan asan_tests
fi
if [ -z "$only" ] || [ "$only" = release ] || [ -x "e2e/$only/run.sh" ]; then
  part release build release sublet api_load || only=none
fi
# What the suites compare with and run on; each of them builds it too when it is run by itself.
if [ -n "$full" ] && { [ -z "$only" ] || [ "$only" = upstream ]; }; then
  export SUBLET_UPSTREAM=${SUBLET_UPSTREAM:-$PWD/build/upstream}
  part upstream e2e/upstream/build.sh "$SUBLET_UPSTREAM"
fi
for suite in e2e/*/run.sh; do
  [ -x "$suite" ] || continue
  name=$(basename "$(dirname "$suite")")
  if wanted "$name"; then part "$name" "$suite"; fi
done
if [ "$only" = tsan ] || { [ -n "$full" ] && wanted tsan; }; then
  part tsan-build build tsan all && part tsan unit_tests tsan
fi
if [ "$only" = analyze ] || { [ -n "$full" ] && wanted analyze; }; then
  part analyze build analyze all
fi
if [ "$only" = format ] || { [ -n "$full" ] && wanted format; }; then
  part format tools/format.sh --check
fi
if [ "$only" = fuzz ] || { [ -n "$full" ] && wanted fuzz; }; then
  part fuzz tools/fuzz.sh
fi

echo
if [ ${#failures[@]} -gt 0 ]; then
  echo "failed: ${failures[*]}"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
